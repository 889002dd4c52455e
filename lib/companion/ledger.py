"""The ledger: every numbered statement of a paper beside what was measured for it.

A row is a `Claim` with the number of its statement, a setting and the wrong worlds it must fail in.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

from matplotlib.figure import Figure

from lib.companion import plots
from lib.companion.claims import KINDS, Claim, counts, failing, html_table, legend, number, shown
from lib.companion.record import Number
from lib.companion.statements import Statement
from lib.files import ROOT, read_object, write

COLUMNS = (
    *("kind", "setting", "measured quantity", "measured", "bound", "catches", "why not"),
    "verdict",
)

DRIFT = 1e-6  # of a row's measured value, in float64: so much it may differ on another processor
ROUNDING = 1e-9  # a measured value below it is rounding

NOT_HELD = "Every claim of a committed record that fails, or that its data leave undecided."
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
    *checked: Claim,
    fails_if: tuple[str, ...],
    remark: str = "",
) -> list[Claim]:
    """The claims as rows of a statement, in a setting, over a number of seeds.

    The setting joins the id. fails_if: families of wrong worlds (`papers.wrong_worlds`) in which
    the claims must fail. remark: why the claims fail, or why no small wrong world makes them fail;
    by default each claim's own. Raises ValueError where no world is named and no remark given.
    """
    if not fails_if and not remark:
        raise ValueError(f"{statement} ({setting}): name the wrong worlds it must fail in, or why")
    about = dict(number=statement, setting=setting, seeds=seeds, fails_if=fails_if)
    return [
        replace(claim, id=f"{claim.id} ({setting})", remark=remark or claim.remark, **about)
        for claim in checked
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


def verdict(holds: bool, catches: Sequence[str] | None, fails_if: Sequence[str]) -> str:
    """ "yes", "NO", or "no power": it holds, but in every wrong world that it names as well."""
    powerless = catches is not None and not catches and bool(fails_if)
    return "NO" if not holds else "no power" if powerless else "yes"


def power_path(slug: str) -> Path:
    """Where `make falsify` keeps what the rows of a ledger catch.

    Always the repository's own figures: a batch sends the figures of a notebook elsewhere first.
    """
    return ROOT / "figures" / "power" / f"{slug}.json"


def with_power(ledger: Iterable[Claim], slug: str) -> list[Claim]:
    """The rows with what they catch, as `make falsify` measured it at small size.

    None where it did not, or where a row fails already in the true world of that size. Raises
    ValueError for a row that holds, catches no small world, and does not say why in its remark.
    """
    ledger = list(ledger)
    path = power_path(slug)
    known = read_object(path) if path.exists() else {}
    try:
        caught = {id: tuple(of["catches"]) for id, of in known.items() if of["holds"]}
        weak = {id for id in caught if not known[id]["small"]}
    except (KeyError, TypeError):
        raise ValueError(f"{path} is damaged; `make falsify` writes it anew") from None
    if silent := [row.id for row in ledger if row.id in weak and row.holds and not row.remark]:
        said = "catches no small wrong world: give it one, or say why not in its remark"
        raise ValueError(f"{', '.join(silent)}: {said}")
    return [replace(row, catches=caught.get(row.id)) for row in ledger]


def catches(row: Claim) -> str:
    """What the row catches, in words."""
    if not row.fails_if:
        return "names none"
    return "not measured" if row.catches is None else ", ".join(row.catches) or "nothing it names"


def statements(paper: Mapping[str, Statement]) -> dict[str, dict[str, str]]:
    """The paper's statements as a figure record stores them."""
    return {name: {"topic": s.topic, "says": s.says, "why": s.why} for name, s in paper.items()}


class LedgerTable(tuple):
    """A ledger in a notebook: one line per statement, its rows behind it, failures open."""

    def __new__(cls, ledger: Iterable[Claim], paper: Mapping[str, Statement]):
        """`ledger` in the paper's order."""
        made = super().__new__(cls, ledger)
        made.paper = paper
        return made

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        parts = [f"<p>{legend(self)}</p>"]
        for name, statement in self.paper.items():
            own = [row for row in self if row.number == name]
            failed = sum(not row.holds for row in own)
            count = f"{failed} of {len(own)} fail" if failed else f"{len(own)} hold"
            summary = f"<b>{name}</b> {escape(statement.topic)}: {count if own else 'not checked'}"
            table = html_table(COLUMNS, map(_cells, own)) if own else ""
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


def _cells(row):
    setting = row.setting + (f", {row.seeds} seeds" if row.seeds else "")
    said = verdict(row.holds, row.catches, row.fails_if)
    value = shown(row), row.bound, catches(row), row.remark, said
    return row.kind, setting, row.statement, *value


def markdown(ledger: Iterable[Claim], paper: Mapping[str, Statement], heading: str) -> str:
    """The ledger as a Markdown document: per statement its sentence and a table of its rows."""
    ledger, lines = list(ledger), [f"# {heading}", ""]
    for name, text in KINDS.items():
        lines += [f"* {name}: {text}"]
    if said := legend(ledger):
        lines += [f"* {said}"]
    for name, statement in paper.items():
        lines += ["", f"## {name}: {statement.topic}", "", f"{statement.says} {statement.why}"]
        own = [_cells(row) for row in ledger if row.number == name]
        for line in [COLUMNS, ("---",) * len(COLUMNS), *own] if own else []:
            lines += ["", ""][: line is COLUMNS]
            lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |"]
    return "\n".join(lines) + "\n"


def save(ledger, paper: Mapping[str, Statement], record: Path, heading: str) -> Path:
    """Write the Markdown beside the figure's `record`, the path that its run gave.

    Return its path.
    """
    path = record.with_suffix(".md")
    write(path, markdown(ledger, paper, heading).encode())
    return path


def totals(ledger: Iterable[Claim], loose: Mapping[str, float] | None = None) -> dict[str, Number]:
    """The numbers of a ledger's record: how many rows, how many hold, and what each measured.

    A measured value may move by `DRIFT` of itself, or by `ROUNDING`. `loose` has what rows may move
    by, in their units, that magnify rounding, such as draws on the edge of a cone: by the beginning
    of their ids.
    """
    ledger = list(ledger)
    held = sum(bool(row.holds) for row in ledger)
    found = {"claims": Number(len(ledger), 0), "claims_that_hold": Number(held, 0)}
    for row in ledger:
        own = [tolerance for start, tolerance in (loose or {}).items() if row.id.startswith(start)]
        known = math.isfinite(row.measured)
        tolerance = max([DRIFT * abs(row.measured), ROUNDING, *own]) if known else 0
        found[row.id] = Number(row.measured if known else None, tolerance)
    return found


def draw(ledger: Iterable[Claim], paper: Mapping[str, Statement]) -> Figure:
    """The ledger as one table: per statement its rows by verdict and the smallest world caught."""
    ledger = list(ledger)
    figure, (axis,) = plots.panels(1, 1, height=0.17 * (len(paper) + 2))
    axis.axis("off")
    lines = [("statement", "fail", "hold", "catches")]
    for name, statement in paper.items():
        own = [row for row in ledger if row.number == name]
        failed = sum(not row.holds for row in own)
        caught = list(dict.fromkeys(text for row in own for text in row.catches or ()))
        said = "not checked" if not own else ", ".join(caught[:3])
        lines.append((f"{name}: {statement.topic}", failed or "", len(own) - failed or "", said))
    for place, line in enumerate(lines):
        colour = plots.COLOURS["Polyak"] if place and line[1] else "0.15"
        for x, text in zip((0, 0.5, 0.55, 0.6), line, strict=True):
            weight = "bold" if place == 0 else "normal"
            axis.text(x, -place, text, fontsize=7, va="center", color=colour, weight=weight)
    axis.set(xlim=(0, 1), ylim=(-len(lines) + 0.5, 0.5))
    return figure


def failures(records: Iterable[Mapping]) -> str:
    """What did not hold, and why: every failing claim of figure records, as a Markdown page."""
    lines = ["# What did not hold, and why", "", NOT_HELD]
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
