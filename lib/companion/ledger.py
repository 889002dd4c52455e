"""The ledger: every numbered statement of a paper beside what was measured for it.

A row is a `Claim` with the number of its statement, a setting and the wrong worlds it must fail in.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from html import escape
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from lib.companion import plots
from lib.companion.claims import KINDS, Claim, counts, failing, html_table, legend, number, shown
from lib.companion.record import Number
from lib.companion.statements import Statement
from lib.files import ROOT, read_object, write

COLUMNS = "kind|setting|measured quantity|measured|bound|catches|why not|verdict".split("|")
DRIFT = 1e-6  # share of a measured value that another processor may change, in float64
ROUNDING = 1e-9  # a measured value below it is rounding
# By a claim's verdict; studies of real data have one, all others None.
NO_REMARK = {
    None: " Cause not found.",
    "undecided": " Undecided: an interval that the protocol asks for does not tell the two apart.",
    "not reproduced": " Not reproduced by the protocol of the studies; cause not found.",
}


def rows(
    statement: str,
    setting: str,
    seeds: int | None,
    *claims: Claim,
    fails_if: tuple[str, ...],
    remark: str = "",
) -> list[Claim]:
    """The claims as rows of a statement, in a setting that joins their ids, over some seeds.

    fails_if: families of wrong worlds (`papers.wrong_worlds`) in which the claims must fail.
    remark: why the claims fail, or why no small wrong world makes them fail; by default each
    claim's own. Raises ValueError where no world is named and no remark given.
    """
    if not fails_if and not remark:
        raise ValueError(f"{statement} ({setting}): name the wrong worlds it must fail in, or why")
    about = dict(number=statement, setting=setting, seeds=seeds, fails_if=fails_if)
    return [
        replace(claim, id=f"{claim.id} ({setting})", remark=remark or claim.remark, **about)
        for claim in claims
    ]


def room(claim: Claim, why: str) -> str:
    """A remark: `why` no small wrong world shows, and how much tighter the bound could be."""
    return f"{why}; room: the bound could be {number(claim.margin)} times as tight"


def in_order(ledger: Iterable[Claim], paper: Mapping[str, Statement]) -> list[Claim]:
    """The rows in the order of the paper's statements.

    ValueError for a row or a gap they lack, and for a row with neither wrong world nor remark.
    """
    ledger, order = list(ledger), list(paper)
    if mute := [row.id for row in ledger if not row.fails_if and not row.remark]:
        raise ValueError(f"{mute}: name the wrong worlds each must fail in, or why")
    named = {row.number for row in ledger}
    if strange := named - set(order):
        raise ValueError(f"{sorted(strange)}: not statements of the ledger")
    if missing := [name for name in order if name not in named and not paper[name].why]:
        raise ValueError(f"{missing}: no row, and no reason why there is none")
    return sorted(ledger, key=lambda row: order.index(row.number))


def power_path(slug: str) -> Path:
    """The file in which `make falsify` keeps what the rows of a ledger catch.

    Always in the repository's own figures: a batch sends the figures of a notebook elsewhere.
    """
    return ROOT / "figures" / "power" / f"{slug}.json"


def with_power(ledger: Iterable[Claim], slug: str) -> list[Claim]:
    """The rows with what they catch, as `make falsify` measured it at small size.

    None where it did not, or where a row fails already in the true world of that size. Raises
    ValueError for a row that holds, catches no small world, and does not say why in its remark.
    """
    ledger = list(ledger)
    path = power_path(slug)
    power = read_object(path) if path.exists() else {}
    caught = {id: tuple(row["catches"]) for id, row in power.items() if row["holds"]}
    weak = {id for id in caught if not power[id]["small"]}
    if silent := [row.id for row in ledger if row.id in weak and row.holds and not row.remark]:
        advice = "catches no small wrong world: give it one, or say why not in its remark"
        raise ValueError(f"{', '.join(silent)}: {advice}")
    return [replace(row, catches=caught.get(row.id)) for row in ledger]


def verdict(holds: bool, catches: Sequence[str] | None, fails_if: Sequence[str]) -> str:
    """ "yes", "NO", or "no power": it holds, but in every wrong world that it names as well."""
    powerless = catches is not None and not catches and bool(fails_if)
    return "NO" if not holds else "no power" if powerless else "yes"


def _catches(row: Claim) -> str:
    if not row.fails_if:
        return "names none"
    return "not measured" if row.catches is None else ", ".join(row.catches) or "nothing it names"


def _cells(row: Claim) -> tuple[str, ...]:
    setting = row.setting + (f", {row.seeds} seeds" if row.seeds else "")
    value = shown(row), row.bound, _catches(row), row.remark
    return row.kind, setting, row.statement, *value, verdict(row.holds, row.catches, row.fails_if)


def statements(paper: Mapping[str, Statement]) -> dict[str, dict[str, str]]:
    """The paper's statements as a figure record stores them."""
    return {name: asdict(statement) for name, statement in paper.items()}


class LedgerTable(tuple):
    """A ledger in a notebook: one line per statement, its rows behind it, failures open."""

    def __new__(cls, ledger: Iterable[Claim], paper: Mapping[str, Statement]):
        """`ledger` in the paper's order."""
        table = super().__new__(cls, ledger)
        table.paper = paper
        return table

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        parts = [f"<p>{legend(self)}</p>"]
        for name, statement in self.paper.items():
            group = [row for row in self if row.number == name]
            failed = sum(not row.holds for row in group)
            count = f"{failed} of {len(group)} fail" if failed else f"{len(group)} hold"
            count = count if group else "not checked"
            summary = f"<b>{name}</b> {escape(statement.topic)}: {count}"
            table = html_table(COLUMNS, map(_cells, group)) if group else ""
            parts.append(
                f"<details{' open' * bool(failed)}><summary>{summary}</summary>"
                f"<p>{statement.says} {escape(statement.why)}</p>{table}</details>"
            )
        return "".join(parts)

    def summary(self) -> str:
        """Counts by kind, failures first, and how many rows catch a small wrong world."""
        failed = [row.id for row in self if not row.holds]
        named = [row for row in self if row.fails_if]
        strong = sum(bool(row.catches) for row in named)
        lines = [f"{len(failed)} of {len(self)} rows fail" + "".join(f"\n  {f}" for f in failed)]
        lines += [f"hold: {counts(self)}"]
        lines += [f"{strong} of {len(named)} rows catch a wrong world that they name"]
        lines += [f"{len(self.paper)} statements, {len({row.number for row in self})} with rows"]
        return "\n".join(lines)


def save(ledger, paper: Mapping[str, Statement], record: Path, heading: str) -> Path:
    """Write the ledger as Markdown beside the figure's `record`; return the path.

    Per statement its sentence and a table of its rows.
    """
    ledger, lines = list(ledger), [f"# {heading}", ""]
    lines += [f"* {name}: {text}" for name, text in KINDS.items()]
    lines += [f"* {text}"] if (text := legend(ledger)) else []
    for name, statement in paper.items():
        lines += ["", f"## {name}: {statement.topic}", "", f"{statement.says} {statement.why}"]
        group = [_cells(row) for row in ledger if row.number == name]
        if group:
            table = [COLUMNS, ("---",) * len(COLUMNS), *group]
            escaped = [[cell.replace("|", "\\|") for cell in line] for line in table]
            lines += ["", *("| " + " | ".join(line) + " |" for line in escaped)]
    path = record.with_suffix(".md")
    write(path, ("\n".join(lines) + "\n").encode())
    return path


def totals(ledger: Iterable[Claim], loose: Mapping[str, float] | None = None) -> dict[str, Number]:
    """The numbers of a ledger's record: how many rows, how many hold, and what each measured.

    A measured value may move by `DRIFT` of itself, or by `ROUNDING`; rows whose id begins as a key
    of `loose` by that many of their units, since they magnify rounding.
    """
    ledger = list(ledger)
    held = sum(bool(row.holds) for row in ledger)
    numbers = {"claims": Number(len(ledger), 0), "claims_that_hold": Number(held, 0)}
    for row in ledger:
        known = math.isfinite(row.measured)
        more = [slack for start, slack in (loose or {}).items() if row.id.startswith(start)]
        tolerance = max([DRIFT * abs(row.measured), ROUNDING, *more]) if known else 0
        numbers[row.id] = Number(row.measured if known else None, tolerance)
    return numbers


def draw(ledger: Iterable[Claim], paper: Mapping[str, Statement], wide: int = 12) -> Figure:
    """A square for each statement: filled where all its rows hold, hatched where one fails.

    An empty one is not checked. In it stand the statement and how many rows hold or fail.
    """
    ledger = list(ledger)
    figure, (axis,) = plots.panels(1, 1, height=0.52 * -(-len(paper) // wide) + 0.2)
    for place, name in enumerate(paper):
        group = [row for row in ledger if row.number == name]
        failed = sum(not row.holds for row in group)
        like = plots.look("not reproduced" if failed else "reproduced" if group else "undecided")
        fill = dict(facecolor=like.colour if group and not failed else "none", alpha=0.3)
        corner = np.array((place % wide, -(place // wide)))
        square = dict(width=0.92, height=0.9, edgecolor=like.colour)
        axis.add_patch(Rectangle(corner, **square, **fill, hatch="///" if failed else ""))
        count = f"{failed} of {len(group)} fail" if failed else f"{len(group)} hold"
        words = f"{name.replace(' ', chr(10), 1)}\n{count if group else 'not checked'}"
        axis.text(*(corner + (0.46, 0.44)), words, ha="center", va="center", fontsize=6.5)
    axis.set(xlim=(0, wide), ylim=(-((len(paper) - 1) // wide) - 0.05, 0.95))
    axis.axis("off")
    return figure


def failures(records: Iterable[Mapping]) -> str:
    """Every failing claim of figure records with its reason, as a Markdown page."""
    lines = ["# What did not hold, and why", ""]
    lines += ["Every claim of a committed record that fails, or that its data leave undecided."]
    for record in records:
        failed = [claim for claim in record["claims"] if claim["holds"] is not True]
        if failed:
            name = f"{record['figure']}, `{record['slug']}`"
            lines += ["", f"## Paper {record['paper']}, {name} ({record['scale']})", ""]
        for claim in failed:
            value = failing(claim["measured"], claim["bound"])
            if claim.get("verdict") and claim.get("interval"):
                value += " [{}, {}]".format(*map(number, claim["interval"]))
            why = f" {claim['remark']}." if claim.get("remark") else NO_REMARK[claim.get("verdict")]
            where = claim["source"] + (f", {claim['setting']}" if claim.get("setting") else "")
            lines += [f"* {claim['statement']}: {value}, asked {claim['bound']} ({where}).{why}"]
    return "\n".join(lines) + "\n"
