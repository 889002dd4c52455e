"""Every committed record can be traced: it came from a clean tree, at a commit of this history.

What it came from is computed again from that commit, and its picture names the same run.
"""

import io
import json
import re
import subprocess
import tarfile
from functools import cache

import pytest
from PIL import Image

from lib import files, provenance
from lib.companion import record

FILES = (provenance.git("ls-files", "figures/*.json") or "").split()
# What a ledger's rows catch stands in figures/power/; the record that quotes it is among these.
RECORDS = [name for name in FILES if not name.startswith("figures/power/")]

if not RECORDS:
    pytest.skip("no git here, or no committed records", allow_module_level=True)


def read(name):
    return json.loads((files.ROOT / name).read_text(encoding="utf-8"))


each = pytest.mark.parametrize("name", RECORDS)


@each
def test_record_is_of_a_page_of_today_at_its_scale_and_its_caption_agrees(name):
    saved = read(name)
    assert contradictions(saved) == []
    page = files.ROOT / "notebooks" / f"{saved['notebook']}.py"
    again = f"make figures SCALE={saved['scale']} makes {saved['slug']} again"
    assert page.exists(), f"there is no page {saved['notebook']}: {again}"
    text = page.read_text(encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NOTEBOOKS_DIR", str(page.parent))
        patch.setattr(provenance, "git", lambda *_: None)  # the page as it is
        changed = record._edited(saved["notebook"], text, saved["parameters"])
    assert not changed, f"the page has other parameters now: {again}"


_NUMBER = r"(\d+(?:,\d{3})*(?:\.\d+)?)"


def contradictions(record):
    """Where the caption of a record names other n, T, d, k or seeds than its setting, in words."""
    caption, wrong = record["caption"], []
    settings = {**record["parameters"], **record.get("setting", {})}
    for name in sorted(settings.keys() & {*"nTdk"}):
        used = settings[name]
        stated = re.findall(rf"(?<![\w\\]){name}\s*=\s*{_NUMBER}", caption)
        values = used if isinstance(used, list | tuple) else [used]
        if stated and not {float(x.replace(",", "")) for x in stated} & {*map(float, values)}:
            wrong.append(f"the caption has {name} = {', '.join(stated)}, the setting {used}")
    seeds, count = list(record["seeds"]), len(record["seeds"])
    listed = re.findall(r"\bseeds? (\d+|\[[\d, ]+\])", caption)
    numbers = re.findall(r"(\d+) (?:paired |fresh )*seeds", caption)
    if numbers and str(count) not in numbers:
        wrong.append(f"the caption has {' and '.join(numbers)} seeds, the record {count}")
    if listed and not numbers and str(seeds) not in [f"[{text.strip('[]')}]" for text in listed]:
        wrong.append(f"the caption has seed {', '.join(listed)}, the record {count} of them")
    return wrong


def test_no_demo_record_took_more_memory_than_was_said():
    text = (files.ROOT / "REPRODUCING.md").read_text(encoding="utf-8")
    said = float(re.search(r"below ([\d.]+) GB at demo scale", text)[1])
    took = [read(name)["provenance"]["peak_memory_mb"] for name in RECORDS if "/demo/" in name]
    assert max(took) < 1000 * said


SHALLOW = provenance.git("rev-parse", "--is-shallow-repository").strip() == "true"
whole = pytest.mark.skipif(SHALLOW, reason="a shallow clone does not have the history")


@whole
def test_every_record_comes_from_a_clean_commit_of_this_history_and_its_picture_too():
    history = {commit[:12] for commit in provenance.git("rev-list", "HEAD").split()}
    strange = [name for name in RECORDS if read(name)["provenance"]["commit"] not in history]
    assert strange == [], "make them again from committed code"
    for name in RECORDS:
        saved = read(name)
        with Image.open((files.ROOT / name).with_suffix(".png")) as picture:
            stamp = json.loads(picture.info["Description"])
        made = {key: saved["provenance"][key] for key in ("commit", "fingerprint")}
        assert stamp == {"slug": saved["slug"]} | made, f"{name}: the picture is of another run"


@whole
def test_the_commits_that_notes_name_are_of_this_history():
    texts = [path.read_text("utf-8") for path in (files.ROOT / "notebooks").glob("*.md")]
    named = set(re.findall(r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,40}\b", "\n".join(texts)))
    assert "46dc51e" in named
    gone = [c for c in named if provenance.git("merge-base", "--is-ancestor", c, "HEAD") is None]
    assert gone == []


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The folder of what a commit's notebooks read, unpacked once for each commit."""
    unpacked = {}

    def of(commit):
        if commit not in unpacked:
            unpacked[commit] = tmp_path_factory.mktemp(commit).resolve()
            listed = provenance.git("ls-tree", "-r", "--name-only", commit).split()
            kept = [name for name in listed if name.startswith(("figures/desk/", "figures/power/"))]
            kept = [name for name in kept if name.endswith(".npz") or "/power/" in name]
            kept += {"figures/index.toml"} & {*listed}  # which study a picture draws
            code = [name for name in provenance.CODE if f"{name}/__init__.py" in listed]
            archive = ["git", "archive", commit, *code, "notebooks", *kept]
            packed = subprocess.run(archive, cwd=files.ROOT, capture_output=True, check=True).stdout
            with tarfile.open(fileobj=io.BytesIO(packed)) as files_then:
                files_then.extractall(unpacked[commit], filter="data")
        return unpacked[commit]

    return of


@cache
def parts_of(page, parameters, then):
    """The fingerprint of a page in the folder `then`; once for all figures of the page."""
    return provenance.fingerprint(page, json.loads(parameters))


@each
def test_fingerprint_is_that_of_its_commit(name, sources, monkeypatch):
    saved = read(name)
    made, today = saved["provenance"], saved["notebook"]
    if provenance.git("cat-file", "-e", f"{made['commit']}^{{commit}}") is None:
        pytest.skip("the commit is not here; another test says so where it should be")
    once = [
        old
        for old, now in files.read_table(files.ROOT / "notebooks" / "renamed.toml").items()
        if today in now
    ]
    then = sources(made["commit"])
    monkeypatch.setenv("NOTEBOOKS_DIR", str(then / "notebooks"))
    for module in (files, provenance):
        monkeypatch.setattr(module, "ROOT", then)
    known = set()
    for page in (today, *once):
        if (then / "notebooks" / f"{page}.py").exists():
            parts = parts_of(page, json.dumps(saved["parameters"]), then)
            parts = parts | {"data": saved["data"]}
            # A record from before kept results counted has none in its fingerprint.
            before = {key: part for key, part in parts.items() if key != "kept"}
            known |= {provenance.digest(parts), provenance.digest(before)}
    assert made["fingerprint"] in known, f"{made['commit']} has other code, parameters or data"
