"""The ledger: every numbered statement of a paper beside what was measured for it, its
rows.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from html import escape
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from companion import plots
from companion.claims import KINDS, Claim, folded, frame, html, legend, shown
from companion.record import Number, finite, origin
from companion.statements import Statement
from lib.files import ROOT, read_object

DRIFT = 1e-6  # share of a measured value that another processor may change, in float64
ROUNDING = 1e-9  # a measured value below it is rounding
NO_REMARK = {  # by a claim's verdict, which studies of real data have
    "": "Cause not found.",
    "undecided": "Undecided: part of the interval is as asked, part is not.",
    "unseen": "Not judged: the network must beat the plain classifier.",
    "not reproduced": "Not reproduced by the protocol of the studies; cause not found.",
}


def rows(
    statement: str,
    setting: str,
    seeds: int | None,
    *claims: Claim,
    fails_if: tuple[str, ...],
    remark: str = "",
) -> list[Claim]:
    """The claims as rows of a statement, in a setting that joins their ids, over some
    seeds; fails_if: families of `papers.wrong_worlds` in which they must fail; remark:
    why they fail, or no small world shows it, by default each claim's own.
    """
    about = dict(number=statement, setting=setting, seeds=seeds, fails_if=fails_if)
    named = [replace(claim, id=f"{claim.id} ({setting})", **about) for claim in claims]
    return [replace(claim, remark=remark or claim.remark) for claim in named]


def in_order(ledger: Iterable[Claim], paper: Mapping[str, Statement]) -> list[Claim]:
    """The rows in the paper's order; ValueError for a row of no statement, a
    statement with neither row nor reason, a row with neither wrong world nor remark.
    """
    ledger = list(ledger)
    order = list(paper)
    if mute := [row.id for row in ledger if not row.fails_if and not row.remark]:
        raise ValueError(f"{mute}: name the wrong worlds each must fail in, or why")
    named = {row.number for row in ledger}
    if strange := sorted(named - set(order)):
        raise ValueError(f"{strange}: not statements of the ledger")
    if missing := [name for name in order if name not in named and not paper[name].why]:
        raise ValueError(f"{missing}: no row, and no reason why there is none")
    return sorted(ledger, key=lambda row: order.index(row.number))


def power_path(slug: str) -> Path:
    """The file in which `make falsify` keeps what the rows of a ledger catch."""
    # Of the repository's own figures: a batch sends those of a notebook elsewhere.
    return ROOT / "figures" / "power" / f"{slug}.json"


def with_power(ledger: Iterable[Claim], slug: str) -> list[Claim]:
    """The rows with what they catch, as `make falsify` measured it at small size, else
    None. ValueError for a row that holds, catches no small world, and does not say why
    in its remark.
    """
    ledger = list(ledger)
    path = power_path(slug)
    power = read_object(path) if path.exists() else {}
    caught = {id: tuple(row["catches"]) for id, row in power.items() if row["holds"]}
    mute = [row.id for row in ledger if row.holds and not row.remark]
    if silent := [id for id in mute if id in caught and not power[id]["small"]]:
        advice = (
            "catches no small wrong world: give it one, or say why not in its remark"
        )
        raise ValueError(f"{', '.join(silent)}: {advice}")
    return [replace(row, catches=caught.get(row.id)) for row in ledger]


def measurements(ledger: Iterable[Claim]) -> list[list[Claim]]:
    """Group the rows of a ledger that rest on one measurement.

    Parameters
    ----------
    ledger : iterable of Claim
        The rows, in any order.

    Returns
    -------
    list of list of Claim
        One list per distinct measurement, in the order of the first rows. Two rows are in
        one list if they show the same number, or if `same_as` of one is the id of the
        other. Numbers are the same if they differ by less than `DRIFT` of themselves,
        which another processor may change, or lie in a chain of such numbers; all below
        `ROUNDING` are one number, rounding. A row whose number is not finite stands alone.

    Raises
    ------
    ValueError
        If `same_as` names no row of the ledger.
    """
    ledger = list(ledger)
    own = [row for row in ledger if not row.same_as]
    groups: list[list[Claim]] = [
        [row] for row in own if not math.isfinite(row.measured)
    ]
    last = -math.inf
    for row in sorted((row for row in own if math.isfinite(row.measured)), key=_number):
        if math.isinf(last) or _number(row) - last > DRIFT * abs(_number(row)):
            groups.append([])
        groups[-1].append(row)
        last = _number(row)
    place = {id(row): position for position, row in enumerate(ledger)}
    for group in groups:
        group.sort(key=lambda row: place[id(row)])
    groups.sort(key=lambda group: place[id(group[0])])
    for row in ledger:
        if row.same_as:
            _group_named(groups, row).append(row)
    return groups


def _number(row: Claim) -> float:
    """What a row measured, rounding read as zero."""
    if abs(row.measured) < ROUNDING:
        return 0.0
    return row.measured


def _group_named(groups: list[list[Claim]], copy: Claim) -> list[Claim]:
    """The group that holds the row which `copy` names as the same, in its setting if it
    can.
    """
    named = [copy.same_as, f"{copy.same_as} ({copy.setting})"]
    for group in groups:
        if any(row.id in named for row in group):
            return group
    for group in groups:
        if any(row.id.startswith(f"{copy.same_as} (") for row in group):
            return group
    raise ValueError(
        f"{copy.id}: same_as names {copy.same_as!r}, expected the id of a row"
    )


def _repeats(ledger: Iterable[Claim]) -> dict[str, str]:
    """The first row of its measurement, by the id of each row that repeats one."""
    return {row.id: group[0].id for group in measurements(ledger) for row in group[1:]}


def _with_repeats(ledger: Sequence[Claim]) -> list[Claim]:
    """The rows; what repeats the measurement of an earlier row says so in its remark."""
    first = _repeats(ledger)

    def remark(row: Claim) -> str:
        again = f"counted once with {first[row.id]}" if row.id in first else ""
        return ". ".join(filter(None, (row.remark, again)))

    return [replace(row, remark=remark(row)) for row in ledger]


def statements(paper: Mapping[str, Statement]) -> dict[str, dict[str, str]]:
    """The paper's statements as a figure record stores them."""
    return {name: asdict(statement) for name, statement in paper.items()}


def unmeasured(why: str) -> str:
    """What is said of a statement without rows; "See ..." names the rows of another."""
    if why.startswith("See "):
        return "see its note"
    return "not checked"


def _groups(ledger: Sequence[Claim], paper: Mapping[str, Statement]):
    """(name, its rows, failing first, how many fail, in words) of each statement."""
    for name in paper:
        group = [row for row in ledger if row.number == name]
        group.sort(key=lambda row: bool(row.holds))
        failed = sum(not row.holds for row in group)
        if failed:
            count = f"{failed} of {len(group)} fail"
        else:
            count = f"{len(group)} hold"
        yield name, group, failed, count if group else unmeasured(paper[name].why)


class LedgerTable(tuple):
    """A ledger in the paper's order: a line per statement, failing rows open."""

    paper: Mapping[str, Statement]

    def __new__(cls, ledger: Iterable[Claim], paper: Mapping[str, Statement]):
        table = super().__new__(cls, ledger)
        table.paper = paper
        return table

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        parts = [f"<p>{legend(self)}</p>"]
        for name, group, failed, count in _groups(_with_repeats(self), self.paper):
            statement = self.paper[name]
            summary = f"<b>{name}</b> {escape(statement.topic)}: {count}"
            opened = " open" * bool(failed)
            parts.append(f"<details{opened}><summary>{summary}</summary>")
            parts.append(f"<p>{statement.says} {escape(statement.why)}</p>")
            lost, others = group[:failed], group[failed:]
            if lost:
                parts.append(html(frame(lost)))
            if others:
                table = html(frame(others))
                parts.append(folded("those that hold", table) if lost else table)
            parts.append("</details>")
        return "".join(parts)

    def summary(self) -> str:
        """Counts by kind, failures first, and how many rows catch a wrong world."""
        failed = [row.id for row in self if not row.holds]
        lines = [
            f"{len(failed)} of {len(self)} rows fail",
            *(f"  {id}" for id in failed),
        ]
        kinds = {
            kind: [row.holds for row in self if row.kind == kind] for kind in KINDS
        }
        words = [
            f"{sum(row)} of {len(row)} {kind}s" for kind, row in kinds.items() if row
        ]
        named = [bool(row.catches) for row in self if row.fails_if]
        lines += [f"hold: {', '.join(words)}"]
        groups = measurements(self)
        held = sum(all(row.holds for row in group) for group in groups)
        lines += [
            f"{len(groups)} distinct measurements, {held} of them in rows that all hold"
        ]
        lines += [
            f"{sum(named)} of {len(named)} rows catch a wrong world that they name"
        ]
        lines += [
            f"{len(self.paper)} statements, {len({row.number for row in self})} with rows"
        ]
        return "\n".join(lines)


def totals(
    ledger: Iterable[Claim], loose: Mapping[str, float] | None = None
) -> dict[str, Number]:
    """The numbers of a ledger's record: how many rows, how many hold, how many distinct
    `measurements` they rest on, what each measured. This may move by `DRIFT` of itself,
    by `ROUNDING`, or as `loose` says for its id's start.
    """
    ledger = list(ledger)
    holds = sum(row.holds for row in ledger)
    numbers = {"claims": Number(len(ledger), 0), "claims_that_hold": Number(holds, 0)}
    # Numbers that lie about `DRIFT` apart are one on some processors and two on others.
    numbers["distinct_measurements"] = Number(len(measurements(ledger)), 3)
    for row in ledger:
        more = [
            slack for start, slack in (loose or {}).items() if row.id.startswith(start)
        ]
        within = max(DRIFT * abs(row.measured), ROUNDING, *more)
        numbers[row.id] = finite(
            row.measured, within if math.isfinite(row.measured) else 0
        )
    return numbers


def draw(
    ledger: Sequence[Claim], paper: Mapping[str, Statement], wide: int = 12
) -> Figure:
    """A square for each statement, as `caption` says: in it how many of its rows hold
    or fail.
    """
    figure, (axis,) = plots.panels(1, 1, height=0.52 * -(-len(paper) // wide) + 0.4)
    rows = f"{sum(row.holds for row in ledger)} of {len(ledger)} rows hold"
    made = len({row.number for row in ledger})
    distinct = len(measurements(ledger))
    axis.set_title(
        f"{rows}, {distinct} distinct measurements; {made} of {len(paper)} statements have rows"
    )
    for place, (name, group, failed, count) in enumerate(_groups(ledger, paper)):
        like = plots.look(
            "not reproduced" if failed else "reproduced" if group else "undecided"
        )
        left = place % wide
        low = -(place // wide)
        square = Rectangle((left, low), 0.92, 0.9, edgecolor=like.colour, alpha=0.3)
        square.set(facecolor=like.colour if group and not failed else "none")
        square.set(hatch="///" if failed else "")
        axis.add_patch(square)
        words = name.replace(" ", "\n", 1) + (f"\n{count}" if group else "")
        middle = dict(ha="center", va="center", fontsize=5.5)
        edge = dict(color=plots.PAPER, pad=1) if failed else None
        axis.text(left + 0.46, low + 0.44, words, bbox=edge, **middle)
    axis.set(xlim=(-0.02, wide), ylim=(-((len(paper) - 1) // wide) - 0.05, 0.95))
    axis.axis("off")
    return figure


def caption(paper: str, ledger: Sequence[Claim]) -> str:
    """What the squares of `draw` say, and over how many draws."""
    seeds = [row.seeds for row in ledger if row.seeds]
    return (
        f"Paper {paper}: filled, all rows hold; hatched, one or more fail; empty, not checked; our"
        f" settings; synthetic, float64; {min(seeds)} to {max(seeds):,} draws where counted"
    )


def failures(records: Sequence[Mapping]) -> str:
    """Every failing claim of figure records with its reason, as a Markdown page."""
    lines = ["# What did not hold, and why", ""]
    lines += [
        "Every claim of a committed record that fails, or that its data leave undecided."
    ]
    lines += [
        "",
        legend(Claim.of(row) for one in records for row in one["claims"]) + ".",
    ]
    for record in records:
        failed = [claim for claim in map(Claim.of, record["claims"]) if not claim.holds]
        if failed:
            name = f"{origin(record)}: {record['figure']}, `{record['slug']}`"
            lines += ["", f"## {name} ({record['scale']})", ""]
        for claim in failed:
            found = f": {shown(claim)}".removesuffix(": nan")  # its words say why
            why = NO_REMARK[claim.verdict if found else "unseen"]
            why = f"{claim.remark}." if claim.remark else why
            where = claim.source + (f", {claim.setting}" if claim.setting else "")
            lines += [
                f"* {claim.statement}{found}, asked {claim.bound} ({where}). {why}"
            ]
    return "\n".join(lines) + "\n"
