"""Every committed record can be traced: it came from a clean tree, at a commit of this history.

What it came from is computed again from that commit, and its picture names the same run.
"""

import io
import json
import re
import subprocess
import tarfile

import pytest
from PIL import Image

from lib import files, provenance
from lib.companion import record

FILES = (provenance.git("ls-files", "figures/*.json") or "").split()
# What a ledger's rows catch stands in figures/power/; the record that quotes it is among these.
RECORDS = [name for name in FILES if not name.startswith("figures/power/")]

if not RECORDS:
    pytest.skip("no git here, or no committed records", allow_module_level=True)


@pytest.mark.parametrize("name", RECORDS)
def test_record_is_of_a_page_of_today_at_its_scale(name):
    found = json.loads((files.ROOT / name).read_text(encoding="utf-8"))
    page = files.ROOT / "notebooks" / f"{found['notebook']}.py"
    again = f"make figures SCALE={found['scale']} makes {found['slug']} again"
    assert page.exists(), f"there is no page {found['notebook']}: {again}"
    text = page.read_text(encoding="utf-8")
    changed = record.Page(found["notebook"], text, text).own(found["parameters"])
    assert not changed, f"the page has other parameters now: {again}"


@pytest.mark.parametrize("name", RECORDS)
def test_caption_and_setting_agree(name):
    found = json.loads((files.ROOT / name).read_text(encoding="utf-8"))
    assert record.contradictions(found) == []


@pytest.mark.parametrize("name", RECORDS)
def test_record_comes_from_a_commit_of_this_history(name):
    if provenance.git("rev-parse", "--is-shallow-repository").strip() == "true":
        pytest.skip("a shallow clone does not have the history")
    commit = json.loads((files.ROOT / name).read_text(encoding="utf-8"))["provenance"]["commit"]
    again = "make it again from committed code"
    assert commit and not commit.endswith("-dirty"), f"{commit} is no clean tree: {again}"
    # A name such as HEAD is of this history whatever the record came from.
    assert re.fullmatch("[0-9a-f]{12}", commit), f"{commit} is no commit's own name: {again}"
    known = provenance.git("cat-file", "-e", f"{commit}^{{commit}}") is not None
    assert known, f"there is no commit {commit}: {again}"
    before = provenance.git("merge-base", "--is-ancestor", commit, "HEAD") is not None
    assert before, f"{commit} is no commit before this one: {again}"


PROTOCOLS = sorted((files.ROOT / "notebooks").glob("*.md"))


@pytest.mark.parametrize("path", PROTOCOLS, ids=lambda path: path.name)
def test_a_commit_that_a_note_names_is_of_this_history(path):
    if provenance.git("rev-parse", "--is-shallow-repository").strip() == "true":
        pytest.skip("a shallow clone does not have the history")
    named = set(re.findall(r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,40}\b", path.read_text("utf-8")))
    gone = [c for c in named if provenance.git("merge-base", "--is-ancestor", c, "HEAD") is None]
    assert gone == []


@pytest.mark.parametrize("name", RECORDS)
def test_picture_is_of_the_run_of_its_record(name):
    found = json.loads((files.ROOT / name).read_text(encoding="utf-8"))
    with Image.open((files.ROOT / name).with_suffix(".png")) as picture:
        stamp = json.loads(picture.info["Description"])
    made = {key: found["provenance"][key] for key in ("commit", "fingerprint")}
    assert stamp == {"slug": found["slug"]} | made, "record and picture come from two runs"


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
            code = [name for name in provenance.CODE if f"{name}/__init__.py" in listed]
            archive = ["git", "archive", commit, *code, "notebooks", *kept]
            packed = subprocess.run(archive, cwd=files.ROOT, capture_output=True, check=True).stdout
            with tarfile.open(fileobj=io.BytesIO(packed)) as files_then:
                files_then.extractall(unpacked[commit], filter="data")
        return unpacked[commit]

    return of


@pytest.mark.parametrize("name", RECORDS)
def test_fingerprint_is_that_of_its_commit(name, sources, monkeypatch):
    found = json.loads((files.ROOT / name).read_text(encoding="utf-8"))
    made, today = found["provenance"], found["notebook"]
    if provenance.git("cat-file", "-e", f"{made['commit']}^{{commit}}") is None:
        pytest.skip("the commit is not here; another test says so where it should be")
    once = [old for old, now in record.names_now().items() if today in now]
    then = sources(made["commit"])
    monkeypatch.setenv("NOTEBOOKS_DIR", str(then / "notebooks"))
    for module in (files, provenance):
        monkeypatch.setattr(module, "ROOT", then)
    known = set()
    for page in (today, *once):
        if (then / "notebooks" / f"{page}.py").exists():
            parts = provenance.fingerprint(page, found["parameters"]) | {"data": found["data"]}
            # A record from before kept results counted has none in its fingerprint.
            before = {key: part for key, part in parts.items() if key != "kept"}
            known |= {provenance.digest(parts), provenance.digest(before)}
    assert made["fingerprint"] in known, f"{made['commit']} has other code, parameters or data"
