"""Tests that a claim's source names a statement in the paper's list."""

import importlib

import pytest

from companion import record
from companion.statements import check_source
from lib.files import ROOT

PAPERS = {
    letter: importlib.import_module(f"papers.{letter.lower()}.statements").STATEMENTS
    for letter in "ABC"
}


@pytest.mark.parametrize("scale", record.SCALES)
def test_every_committed_claim_names_a_statement_of_its_paper(scale):
    for path in sorted((ROOT / "figures" / scale).glob("*.json")):
        for claim in record.read(path)["claims"]:
            check_source(claim["id"], claim["source"], PAPERS)


def test_a_claim_of_a_statement_that_its_paper_does_not_have_is_refused():
    message = "'strange' names 'Theorem 99' of paper B"
    with pytest.raises(ValueError, match=message):
        check_source("strange", "paper B, Theorem 99 (our reading)", PAPERS)
    check_source("known", "paper B, Theorem 1.2", PAPERS)
