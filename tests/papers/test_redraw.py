"""Figures and verdicts of the real-data studies, drawn again from their kept curves."""

import json
import shutil

import pytest

from lib import files
from lib.papers import redraw

KEPT = files.ROOT / "figures" / "desk"
RECORDS = sorted({picture.slug for many in redraw.PICTURES.values() for picture in many})


@pytest.fixture(scope="module")
def redrawn(tmp_path_factory):
    """The folder of all pictures and the lines that were said."""
    out = tmp_path_factory.mktemp("redrawn")
    return out, [line for study in redraw.PICTURES for line in redraw.redraw(study, out)]


@pytest.mark.parametrize("slug", RECORDS)
def test_kept_curves_give_the_committed_verdicts(redrawn, slug):
    out, said = redrawn
    record = KEPT / f"{slug}.json"
    if not record.exists():
        pytest.skip(f"no committed record {slug}")
    claims = json.loads(record.read_text(encoding="utf-8"))["claims"]
    judged = [f"  {one['verdict']}: {one['statement']}" for one in claims if one.get("verdict")]
    words = said[said.index(slug) + 1].splitlines()
    assert judged and len(words) == len(judged)
    assert all(mine.startswith(theirs) for mine, theirs in zip(words, judged, strict=True))
    assert (out / f"{slug}.png").read_bytes().startswith(b"\x89PNG")


def test_missing_and_damaged_curves_are_named_and_the_others_drawn(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(files, "ROOT", tmp_path)
    desk = tmp_path / "figures" / "desk"
    desk.mkdir(parents=True)
    shutil.copy(KEPT / "mnist.npz", desk)
    (desk / "vit.npz").write_bytes((KEPT / "vit.npz").read_bytes()[:5000])
    out = tmp_path / "out"
    assert redraw.main(["multi_nli_again", "vit", "mnist", "--out", str(out)]) == 1
    said = capsys.readouterr().out
    assert "multi_nli_again: not redrawn" in said and "vit: not redrawn" in said
    assert "fastrates_fig6\n  reproduced: SNGD slower" in said
    assert [path.name for path in out.iterdir()] == ["fastrates_fig6.png"]


def test_an_unknown_study_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        redraw.main(["wikitext"])
    assert "none of multi_nli_again, civil_comments" in capsys.readouterr().err
