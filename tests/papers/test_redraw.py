"""Tests of studies that are drawn again from kept curves.

A failure means that figures and verdicts differ from what was trained.
"""

import json
import re
import shutil

import pytest
from matplotlib.figure import Figure

from companion import plots
from lib import files
from papers.studies import (
    confirm,
    judged_reviews,
    kept_curves,
    redraw,
    second_round,
)
from tests.companion.test_plots import unreadable
from tests.papers.worlds import race

KEPT = files.ROOT / "figures" / "desk"
# How the names of a picture's claims begin.
BEGIN = {slug: figure for figure, slug in second_round.FIGURES.items()}
BEGIN |= {about.slug: kind for kind, about in judged_reviews.KINDS.items()}
RECORDS = sorted(slug for pictures in redraw.PICTURES.values() for slug in pictures)


@pytest.fixture(scope="module")
def redrawn(tmp_path_factory):
    """Return the lines of verdicts.

    Every picture is made and can be read, and none is turned into pixels.
    """
    out = tmp_path_factory.mktemp("redrawn")
    unread = []

    def look(figure, path):
        figure.draw_without_rendering()
        figure.draw_without_rendering = lambda: None  # one run serves all tests
        unread.extend(unreadable(figure))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", look)
        plots.set_style()
        lines = [
            line for study in redraw.PICTURES for line in redraw._redraw(study, out)
        ]
    assert unread == []
    return lines


def recorded_verdicts(slug):
    """Return the verdicts on the claims of a figure, as page 51 records them."""
    verdicts = json.loads((KEPT / "verdicts.json").read_text(encoding="utf-8"))
    return [
        f"{claim['verdict']}: {claim['statement']}"
        for claim in verdicts["claims"]
        if claim["id"].startswith(f"{BEGIN[slug]}.")
    ]


@pytest.mark.parametrize("slug", RECORDS)
def test_kept_runs_give_the_committed_verdicts_and_seeds(redrawn, slug):
    record = json.loads((KEPT / f"{slug}.json").read_text(encoding="utf-8"))
    judged = ["".join(words.split()) for words in recorded_verdicts(slug)]
    # the further lines of a wrapped verdict are indented
    words = re.split(r"\n {2}(?! )", redrawn[redrawn.index(slug) + 1])
    words = ["".join(each.split()) for each in words]
    assert judged and len(words) == len(judged)
    assert all(
        mine.startswith(theirs) for mine, theirs in zip(words, judged, strict=True)
    )
    assert {row["source"] for row in record["data"]} == {"kept"}
    (study,) = [name for name, pictures in redraw.PICTURES.items() if slug in pictures]
    figure = redraw.FIGURES[study]
    assert record["seeds"] == second_round.read(figure).runs.seeds


@pytest.fixture(scope="module")
def family():
    return redraw._family()


def test_the_family_has_every_claim_ever_judged(family):
    """It has the protocol's 24 claims; a claim that was given up counts with p = 1."""
    assert len({*family, *redraw.GIVEN_UP}) == 24
    assert "fig4.sngd: undecided" in redraw._family_table(family)
    smallest, adjusted = min((claim.p, p) for claim, p in family.values() if claim.p)
    assert adjusted == pytest.approx(24 * smallest)


def test_missing_and_damaged_curves_are_named_and_the_others_drawn(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(files, "ROOT", tmp_path)
    desk = tmp_path / "figures" / "desk"
    desk.mkdir(parents=True)
    for name in ("vit_48000.npz", "mnist_60000.npz", "verdicts.json"):
        shutil.copy(KEPT / name, desk)
    for name in ("vit_48000", "mnist_60000"):
        shutil.copytree(KEPT / "confirm" / name, desk / "confirm" / name)
    damaged = desk / "confirm" / "mnist_60000" / "30.npz"
    damaged.write_bytes(damaged.read_bytes()[:5000])
    out = tmp_path / "out"
    monkeypatch.setattr(confirm, "FOLDER", desk / "confirm")
    asked = ["multi_nli_200", "mnist_60000", "vit_48000", "--out", str(out)]
    assert redraw.main(asked) == 1
    printed = capsys.readouterr().out
    assert "multi_nli_200: not redrawn: multi_nli_200 is not full" in printed
    assert "mnist_60000: not redrawn" in printed
    assert "30.npz" in printed
    assert "mirror_vit\n  reproduced: Adam ahead early" in printed
    assert [path.name for path in out.iterdir()] == ["mirror_vit.png"]
    with pytest.raises(SystemExit, match="2"):
        redraw.main(["wikitext"])
    assert (
        "wikitext: none of multi_nli_200, civil_comments_400" in capsys.readouterr().err
    )


def test_without_words_every_study_is_drawn_and_the_family_printed(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(redraw, "_redraw", lambda study, out: [study])
    assert redraw.main(["--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("\n".join(redraw.PICTURES))
    assert "24 claims of the studies" in printed


def test_a_study_with_too_few_seeds_is_not_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "ROOT", tmp_path)
    with pytest.raises(FileNotFoundError, match="lib.training"):
        kept_curves.kept("invented")
    path = tmp_path / "figures" / "desk" / "invented.npz"
    race({"SGD": 0.02}, seeds=2).save(path)
    with pytest.raises(ValueError, match="unfinished, 2 judged runs"):
        kept_curves.kept("invented")
    race({"SGD": 0.02}, seeds=3).save(path)
    assert kept_curves.kept("invented").seeds() == [0, 1, 2]
