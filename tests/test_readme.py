"""The README tells the truth: its figures exist, its numbers are the records', its commands name what there is."""

import json
import re
from decimal import Decimal
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
ROWS = [line for line in README.splitlines() if re.match(r"\| \[`\w+`\]\(figures/", line)]
RECORDS = {
    path.relative_to(ROOT).as_posix(): json.loads(path.read_text())
    for path in ROOT.glob("figures/*/*.json")
}
QUOTED = r"([-−]?[\d.]+)( %)? \(`(\w+)`\)"


def test_every_figure_has_a_row_at_its_largest_scale():
    largest = {}
    for path, record in RECORDS.items():
        rank = ("demo", "desk", "paper").index(record["scale"])
        largest[record["slug"]] = max(largest.get(record["slug"], (-1, "")), (rank, path))
    linked = {re.search(r"\((figures/[^)]+)\.png\)", row).group(1) + ".json" for row in ROWS}
    assert linked == {path for _, path in largest.values()}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: re.search(r"`(\w+)`", row).group(1))
def test_row_agrees_with_its_record(row):
    record = RECORDS[re.search(r"\((figures/[^)]+)\.png\)", row).group(1) + ".json"]
    assert (
        f"`{record['slug']}`" in row
        and f"notebooks/{record['notebook']}.ipynb" in row
        and record["scale"] in row
    )
    quoted = re.findall(QUOTED, row)
    assert quoted
    for text, percent, name in quoted:
        shown = Decimal(text.replace("−", "-"))
        value = Decimal(repr(record["numbers"][name]["value"])) * (100 if percent else 1)
        assert round(value, -shown.as_tuple().exponent) == shown, name
    held = sum(claim["holds"] for claim in record["claims"])
    assert f"{held}/{len(record['claims'])}" in row


def test_links_and_commands_name_what_there_is():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
    makefile = (ROOT / "Makefile").read_text()
    for command in set(re.findall(r"make ([a-z]+)", README)) - {"a"}:
        assert re.search(rf"^{command}:", makefile, re.MULTILINE), command
