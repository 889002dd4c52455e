"""Every committed record can be traced: it came from a clean tree, at a commit of this history."""

import json

import pytest

from lib import files, provenance
from lib.companion import parameters

FILES = (provenance.git("ls-files", "figures/*.json") or "").split()
# What a ledger's rows catch stands in figures/power/; the record that quotes it is among these.
RECORDS = [name for name in FILES if not name.startswith("figures/power/")]

if not RECORDS:
    pytest.skip("no git here, or no committed records", allow_module_level=True)


@pytest.mark.parametrize("name", RECORDS)
def test_record_is_of_a_page_of_today_at_its_scale(name):
    record = json.loads((files.ROOT / name).read_text(encoding="utf-8"))
    page = files.ROOT / "notebooks" / f"{record['notebook']}.py"
    again = f"make figures SCALE={record['scale']} makes {record['slug']} again"
    assert page.exists(), f"there is no page {record['notebook']}: {again}"
    text = page.read_text(encoding="utf-8")
    changed = parameters.changed(record["notebook"], text, record["parameters"])
    assert not changed, f"the page has other parameters now: {again}"


@pytest.mark.parametrize("name", RECORDS)
def test_record_comes_from_a_commit_of_this_history(name):
    if provenance.git("rev-parse", "--is-shallow-repository").strip() == "true":
        pytest.skip("a shallow clone does not have the history")
    commit = json.loads((files.ROOT / name).read_text(encoding="utf-8"))["provenance"]["commit"]
    again = "make it again from committed code"
    assert commit and not commit.endswith("-dirty"), f"{commit} is no clean tree: {again}"
    known = provenance.git("cat-file", "-e", f"{commit}^{{commit}}") is not None
    assert known, f"there is no commit {commit}: {again}"
    before = provenance.git("merge-base", "--is-ancestor", commit, "HEAD") is not None
    assert before, f"{commit} is no commit before this one: {again}"
