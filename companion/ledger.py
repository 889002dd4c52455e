"""The ledger: every numbered statement of a paper, with the values measured for it.

The rows of a statement are its claims, one row per claim and setting.
"""

import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from html import escape
from pathlib import Path
from typing import Self

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from companion import plots
from companion.claims import (
    KINDS,
    UNDECIDED,
    Claim,
    folded,
    frame,
    html,
    legend,
    markdown,
    shown,
)
from companion.record import Number, finite, origin
from companion.statements import Statement
from lib.files import ROOT, read_object

# largest relative change of a measured value between processors, in float64
DRIFT = 1e-6
ROUNDING = 1e-9  # A measured value below this is a rounding error.
# The sizes in the picture of a ledger.
ACROSS = 4  # number of squares side by side in each of the two blocks
SQUARE = 0.42  # inches from the top of one square to the top of the next
LINE = 0.125  # inches from one line of words to the next
LONGEST = 14  # the largest number of letters of a statement's name on one line
# What is written if a failing claim has no remark, by the verdict of the claim. Claims
# on real data have a verdict.
NO_REMARK = {
    "": "We have not found the cause.",
    "undecided": "Undecided: only a part of the interval agrees with the claim.",
    "unseen": "Not judged: the network does not beat the plain classifier.",
    "not reproduced": "Not reproduced, by the protocol; we have not found the cause.",
}


def rows(
    statement: str,
    setting: str,
    seeds: int | None,
    *claims: Claim,
    fails_if: tuple[str, ...],
    remark: str = "",
) -> list[Claim]:
    """Turn claims that were measured in one setting into rows of a statement.

    Parameters
    ----------
    statement : str
        The statement's name in the paper, such as "Theorem 1".
    setting : str
        The setting. It is appended to the ids of the claims.
    seeds : int or None
        The number of seeds of the measurement. It is None if nothing was drawn at
        random.
    *claims : Claim
        The claims.
    fails_if : tuple of str
        Families of `papers.wrong_worlds` in which the claims must fail.
    remark : str, optional
        Why the claims fail, or why they fail in no small altered copy. By default each
        claim keeps its own remark.

    Returns
    -------
    list of Claim
        The rows.

    Examples
    --------
    >>> from companion import claims, ledger
    >>> claim = claims.at_most("gap", "largest gap", "paper A, Theorem 1", 0.5, 1.0)
    >>> (row,) = ledger.rows("Theorem 1", "n = 10", 20, claim, fails_if=("norm off",))
    >>> row.id, row.number, row.seeds
    ('gap (n = 10)', 'Theorem 1', 20)
    """
    about = dict(number=statement, setting=setting, seeds=seeds, fails_if=fails_if)
    named = [replace(claim, id=f"{claim.id} ({setting})", **about) for claim in claims]
    return [replace(claim, remark=remark or claim.remark) for claim in named]


def in_order(ledger: Iterable[Claim], paper: Mapping[str, Statement]) -> list[Claim]:
    """Sort the rows of a ledger in the paper's order.

    Parameters
    ----------
    ledger : iterable of Claim
        The rows.
    paper : mapping of str to Statement
        The paper's statements by name, in its order.

    Returns
    -------
    list of Claim
        The rows. Rows of the same statement keep their order.

    Raises
    ------
    ValueError
        If a row belongs to no statement, if a statement has neither a row nor a reason
        for having none, or if a row has neither an altered copy in which it must fail
        nor a remark.

    Examples
    --------
    >>> from companion import claims, ledger
    >>> from companion.statements import Statement
    >>> paper = {"Lemma 1": Statement("sign", ""), "Theorem 1": Statement("rate", "")}
    >>> claim = claims.at_most("gap", "largest gap", "paper A", 0.5, 1.0)
    >>> last = ledger.rows("Theorem 1", "n = 10", 20, claim, fails_if=("norm off",))
    >>> first = ledger.rows("Lemma 1", "n = 10", 20, claim, fails_if=("norm off",))
    >>> [row.number for row in ledger.in_order(last + first, paper)]
    ['Lemma 1', 'Theorem 1']
    """
    ledger = list(ledger)
    order = list(paper)
    if mute := [row.id for row in ledger if not row.fails_if and not row.remark]:
        raise ValueError(
            f"{mute}: name the altered copies for which each claim must fail, or "
            "say in its remark why there is none"
        )
    named = {row.number for row in ledger}
    if strange := sorted(named - set(order)):
        raise ValueError(
            f"{strange} are not statements of this ledger; use one of its names"
        )
    if missing := [name for name in order if name not in named and not paper[name].why]:
        raise ValueError(
            f"{missing} have neither a claim nor a reason why there is none"
        )
    return sorted(ledger, key=lambda row: order.index(row.number))


def power_path(slug: str) -> Path:
    """Return the file in which ``make falsify`` stores what a ledger's claims detect.

    Parameters
    ----------
    slug : str
        The name of the ledger's figure.

    Returns
    -------
    Path
        The path of the file, which need not exist.
    """
    # This is the folder of figures in the repository, even if a batch redirects the
    # figures of a notebook.
    return ROOT / "figures" / "power" / f"{slug}.json"


def with_power(ledger: Iterable[Claim], slug: str) -> list[Claim]:
    """Fill in which altered copies each claim detects, as measured by ``make falsify``.

    This command measures the claims on small problems.

    Parameters
    ----------
    ledger : iterable of Claim
        The rows.
    slug : str
        The name of the ledger's figure.

    Returns
    -------
    list of Claim
        The rows with `catches` filled in. It is None if nothing was measured for a row,
        or if the claim did not hold on the small problem without any alteration.

    Raises
    ------
    ValueError
        If a claim holds, detects no small altered copy, and has no remark that says
        why; or if the file of ``make falsify`` cannot be read.
    """
    ledger = list(ledger)
    path = power_path(slug)
    power = read_object(path) if path.exists() else {}
    caught = {id: tuple(row["catches"]) for id, row in power.items() if row["holds"]}
    mute = [row.id for row in ledger if row.holds and not row.remark]
    if silent := [id for id in mute if id in caught and not power[id]["small"]]:
        advice = (
            "detects no small altered copy: name one that it detects, or say in the "
            "remark why there is none"
        )
        raise ValueError(f"{', '.join(silent)}: {advice}")
    return [replace(row, catches=caught.get(row.id)) for row in ledger]


def measurements(ledger: Iterable[Claim]) -> list[list[Claim]]:
    """Group the rows of a ledger that rest on the same measurement.

    Parameters
    ----------
    ledger : iterable of Claim
        The rows, in any order.

    Returns
    -------
    list of list of Claim
        One list per distinct measurement. A list begins with the rows that have no
        `same_as`, in the order of the ledger, and ends with the others, which repeat
        them. The lists are in the order of their first rows. Two rows are in one list
        if they show the same number, or if `same_as` of one is the id of the other,
        with or without its setting. Two numbers count as the same if their relative
        difference is at most `DRIFT`, which another processor may cause, or if a chain
        of such numbers connects them. All numbers with an absolute value below
        `ROUNDING` count as the same. A row whose number is not finite forms its own
        group, which only `same_as` can extend.

    Raises
    ------
    ValueError
        If `same_as` names no row of the ledger, or names a later row that itself has a
        `same_as`.

    Examples
    --------
    >>> from companion import claims, ledger
    >>> gap = claims.at_most("gap", "largest gap", "ours", 0.5, 1.0)
    >>> again = claims.at_least("again", "the same gap", "ours", 0.5, 0.1)
    >>> rank = claims.at_least("rank", "smallest rank", "ours", 3, 2)
    >>> [[row.id for row in group] for group in ledger.measurements([gap, rank, again])]
    [['gap', 'again'], ['rank']]
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
    """Return the measured number of a row; a rounding error is returned as zero."""
    if abs(row.measured) < ROUNDING:
        return 0.0
    return row.measured


def _group_named(groups: list[list[Claim]], copy: Claim) -> list[Claim]:
    """Return the group with the row that `copy` names in its field `same_as`.

    A row of the same setting is preferred. The function raises ValueError if there is
    no such row.
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
    """For each row that repeats a measurement, return the row that it is counted with.

    The result maps ids to ids. The other row is the first one of the list that
    `measurements` returns; it may come later in the ledger than a row with `same_as`.
    """
    return {row.id: group[0].id for group in measurements(ledger) for row in group[1:]}


def _with_repeats(ledger: Sequence[Claim]) -> list[Claim]:
    """Return the rows. If a row repeats a measurement, its remark says which one."""
    first = _repeats(ledger)

    def remark(row: Claim) -> str:
        if row.id not in first:
            return row.remark
        again = f"counted once with {first[row.id]}"
        if not row.remark:
            return again
        return f"{row.remark}. {again}"

    return [replace(row, remark=remark(row)) for row in ledger]


def statements(paper: Mapping[str, Statement]) -> dict[str, dict[str, str]]:
    """Return a paper's statements as a figure record stores them.

    Parameters
    ----------
    paper : mapping of str to Statement
        The statements by name.

    Returns
    -------
    dict of str to dict of str to str
        The fields of each statement, by its name.

    Examples
    --------
    >>> from companion import ledger
    >>> from companion.statements import Statement
    >>> ledger.statements({"Lemma 1": Statement("sign", "$y = 1$.")})
    {'Lemma 1': {'topic': 'sign', 'says': '$y = 1$.', 'why': ''}}
    """
    return {name: asdict(statement) for name, statement in paper.items()}


def unmeasured(why: str) -> str:
    """Return the words that replace the verdict of a statement without rows.

    Parameters
    ----------
    why : str
        Why the statement has no rows. A text that begins with "See" refers to rows of
        another statement.

    Returns
    -------
    str
        The words.

    Examples
    --------
    >>> from companion import ledger
    >>> ledger.unmeasured("See Lemma 1.")
    'see its note'
    >>> ledger.unmeasured("It is a definition.")
    'not checked'
    """
    if why.startswith("See "):
        return "see its note"
    return "not checked"


def _groups(
    ledger: Sequence[Claim], paper: Mapping[str, Statement]
) -> Iterator[tuple[str, list[Claim], int, str]]:
    """Yield for each statement its name, its rows, how many rows fail, and a text.

    The text says how many rows fail or, if none fails, how many hold. If there are no
    rows, it is the text of `unmeasured`. Rows that fail come first.
    """
    for name in paper:
        group = [row for row in ledger if row.number == name]
        group.sort(key=lambda row: bool(row.holds))
        failed = sum(not row.holds for row in group)
        if not group:
            count = unmeasured(paper[name].why)
        elif failed:
            count = f"{failed} of {len(group)} fail"
        else:
            count = f"{len(group)} hold"
        yield name, group, failed, count


class LedgerTable(tuple):
    """A ledger as a notebook shows it, in the paper's order.

    Each statement has a line that can be opened to show the claims; if claims fail, the
    line is already open. As plain text the table is its summary.

    Parameters
    ----------
    ledger : iterable of Claim
        The rows.
    paper : mapping of str to Statement
        The paper's statements by name, in its order.

    Examples
    --------
    >>> from companion import claims, ledger
    >>> from companion.statements import Statement
    >>> claim = claims.at_most("gap", "largest gap", "paper A", 0.5, 1.0)
    >>> rows = ledger.rows("Theorem 1", "n = 10", 20, claim, fails_if=("norm off",))
    >>> ledger.LedgerTable(rows, {"Theorem 1": Statement("rate", "")})
    0 of 1 claims fail
    hold: 1 of 1 statements
    1 distinct measurements, 1 of them in claims that all hold
    0 of 1 claims detect an altered copy that they name
    1 statements, 1 with claims
    """

    paper: Mapping[str, Statement]

    def __new__(cls, ledger: Iterable[Claim], paper: Mapping[str, Statement]) -> Self:
        """Make a tuple of the rows that also holds the paper's statements."""
        table = super().__new__(cls, ledger)
        table.paper = paper
        return table

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        """Return the ledger as HTML: how to read intervals, then the statements."""
        parts = []
        explained = legend(self)
        if explained:
            parts.append(f"<p>{explained}</p>")
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
                if lost:
                    table = folded("those that hold", table)
                parts.append(table)
            parts.append("</details>")
        return "".join(parts)

    def summary(self) -> str:
        """Count the claims that fail, that hold, and that detect an altered copy.

        Returns
        -------
        str
            The counts, one per line. The ids of the claims that fail or are undecided
            come first. The claims that hold are counted by kind.

        Raises
        ------
        ValueError
            In the cases in which `measurements` raises it.
        """
        failed = [row.id for row in self if not row.holds]
        lines = [
            f"{len(failed)} of {len(self)} claims fail",
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
            f"{len(groups)} distinct measurements, "
            f"{held} of them in claims that all hold"
        ]
        lines += [
            f"{sum(named)} of {len(named)} claims detect an altered copy that they name"
        ]
        lines += [
            f"{len(self.paper)} statements, "
            f"{len({row.number for row in self})} with claims"
        ]
        return "\n".join(lines)


def totals(
    ledger: Iterable[Claim], loose: Mapping[str, float] | None = None
) -> dict[str, Number]:
    """Count the rows of a ledger for its record.

    Parameters
    ----------
    ledger : iterable of Claim
        The rows.
    loose : mapping of str to float, optional
        Wider tolerances for the measured values of rows, by the beginning of the rows'
        ids.

    Returns
    -------
    dict of str to Number
        How many rows there are, how many hold, on how many distinct `measurements` they
        rest, and the measured value of each row. The tolerance of a measured number is
        the largest of `DRIFT` times the number, `ROUNDING`, and the tolerance in
        `loose`. A measured value that is not finite becomes a `Number` without a value
        and with the tolerance 0.

    Raises
    ------
    ValueError
        In the cases in which `measurements` raises it.

    Examples
    --------
    >>> from companion import claims, ledger
    >>> claim = claims.at_most("gap", "largest gap", "paper A", 0.5, 1.0)
    >>> numbers = ledger.totals([claim], loose={"gap": 0.1})
    >>> numbers["claims_that_hold"]
    Number(value=1, tolerance=0)
    >>> numbers["gap"]
    Number(value=0.5, tolerance=0.1)
    """
    ledger = list(ledger)
    holds = sum(row.holds for row in ledger)
    numbers = {"claims": Number(len(ledger), 0), "claims_that_hold": Number(holds, 0)}
    # Numbers that differ by about `DRIFT` are equal on some processors and different on
    # others.
    numbers["distinct_measurements"] = Number(len(measurements(ledger)), 3)
    for row in ledger:
        more = [
            slack for start, slack in (loose or {}).items() if row.id.startswith(start)
        ]
        if math.isfinite(row.measured):
            within = max(DRIFT * abs(row.measured), ROUNDING, *more)
        else:
            within = 0  # NaN and infinity are compared exactly.
        numbers[row.id] = finite(row.measured, within)
    return numbers


def draw(
    ledger: Sequence[Claim],
    paper: Mapping[str, Statement],
    plain: Mapping[str, str] | None = None,
) -> Figure:
    """Draw a square for each statement of a paper, and write the failures below.

    The squares form two blocks, which a narrow page shows one below the other.

    Parameters
    ----------
    ledger : sequence of Claim
        The rows.
    paper : mapping of str to Statement
        The paper's statements by name, in its order.
    plain : mapping of str to str, optional
        What a failure means in plain words, by the id of the claim without its setting.
        The default is the statement of the claim.

    Returns
    -------
    Figure
        The figure. Each square says how many of the statement's rows fail or, if none
        fails, how many hold. Below the squares there is one failing claim for each
        statement that has any.

    Examples
    --------
    >>> from companion import claims, ledger
    >>> from companion.statements import Statement
    >>> claim = claims.at_most("gap", "largest gap", "paper A", 0.5, 1.0)
    >>> rows = ledger.rows("Theorem 1", "n = 10", 20, claim, fails_if=("norm off",))
    >>> figure = ledger.draw(rows, {"Theorem 1": Statement("rate", "")})
    >>> figure.axes[0].texts[0].get_text().split()
    ['Theorem', '1', '1', 'holds']
    """
    lines = -(-len(paper) // (2 * ACROSS))
    failing = []
    for name, group, failed, count in _groups(ledger, paper):
        if failed:
            failing.append((f"{name}: {count}", _reason(group[0], plain or {})))
    # The words below the squares, in inches: a bold line for each failure, and its
    # reason. The first failure is below the left block, the second below the right one.
    needed = [0.0, 0.0]
    for place, (_, reason) in enumerate(failing):
        needed[place % 2] += LINE * (2.6 + reason.count("\n"))
    below = max(needed)
    figure, axes = plots.panels(1, 2, height=SQUARE * lines + below + 0.35)
    for place, (name, group, failed, count) in enumerate(_groups(ledger, paper)):
        axis = axes[place // (lines * ACROSS)]
        left = place % ACROSS
        low = -SQUARE * (place // ACROSS % lines)
        _square(axis, (left, low), name, (len(group), failed, count))
    heights = [SQUARE * (0.8 - lines)] * 2
    for place, (title, reason) in enumerate(failing):
        axis, top = axes[place % 2], heights[place % 2]
        words = dict(ha="left", va="top", fontsize=7.5)
        colour = plots.look("not reproduced").colour
        axis.text(0, top, title, color=colour, fontweight="bold", **words)
        axis.text(0, top - 1.15 * LINE, reason, **words)
        heights[place % 2] -= LINE * (2.6 + reason.count("\n"))
    for axis in axes:
        axis.set(xlim=(-0.03, ACROSS), ylim=(SQUARE * (0.92 - lines) - below, SQUARE))
        axis.axis("off")
    axes[1].set_visible(len(paper) > lines * ACROSS or len(failing) > 1)
    return figure


def _square(
    axis: Axes, corner: tuple[float, float], name: str, counts: tuple[int, int, str]
) -> None:
    """Draw the square of a statement at its lower left corner, in columns and inches.

    `counts` has the number of rows, the number of rows that fail, and a text with these
    numbers.
    """
    number, failed, count = counts
    edge_width = 0.8
    if failed:
        like = plots.look("not reproduced")
        edge_width = 2.5
    elif number:
        like = plots.look("reproduced")
    else:
        like = plots.look("undecided")
    if number:
        fill = to_rgba(like.colour, 0.3)
        text_colour = plots.BLACK
    else:
        fill = "none"
        text_colour = plots.GREY
    square = Rectangle(corner, 0.94, 0.88 * SQUARE, facecolor=fill)
    square.set(edgecolor=like.colour, linewidth=edge_width)
    axis.add_patch(square)

    # A long name takes two lines.
    if number == 1 and not failed:
        count = "1 holds"
    if count == unmeasured("See its page."):
        count = "see the page"
    title = name
    if len(name) > LONGEST:
        title = name.replace(" ", "\n", 1)
    middle = dict(ha="center", va="center", fontsize=7, linespacing=1.05)
    x = corner[0] + 0.47
    y = corner[1] + 0.44 * SQUARE
    axis.text(x, y, f"{title}\n{count}", color=text_colour, **middle)


def _reason(row: Claim, plain: Mapping[str, str]) -> str:
    """Write in lines what the failure of a row means, and what was measured."""
    words = plain.get(row.id.partition(" (")[0])
    if words is None:
        words = f"{row.statement} ({row.setting})."
    measured = f"{row.measured:.2g}"
    text = f"{words} Measured {measured}, required {row.bound}."
    text = re.sub(r"(?<!\w)-(?=\d)", "\N{MINUS SIGN}", text)
    return textwrap.fill(text, 56)


def caption(paper: str, ledger: Sequence[Claim]) -> str:
    """Return the caption of `draw`: the colours, and the number of data sets.

    Parameters
    ----------
    paper : str
        The paper's letter.
    ledger : sequence of Claim
        The rows, at least one of them with seeds.

    Returns
    -------
    str
        The caption.

    Examples
    --------
    >>> from companion import claims, ledger
    >>> claim = claims.at_most("gap", "largest gap", "paper A", 0.5, 1.0, seeds=20)
    >>> ledger.caption("A", [claim]).partition(";")[0]
    'Paper A: blue, all claims hold'
    """
    seeds = [row.seeds for row in ledger if row.seeds]
    return (
        f"Paper {paper}: blue, all claims hold; orange, one or more fail; empty, "
        f"not checked; our settings; synthetic, float64; {min(seeds)} to "
        f"{max(seeds):,} data sets if counted"
    )


def failures(records: Sequence[Mapping]) -> str:
    """Write every failing claim of figure records as a Markdown page.

    Parameters
    ----------
    records : sequence of mapping
        The records.

    Returns
    -------
    str
        The page. It lists undecided claims among the failing ones, and each claim with
        the reason.
    """
    lines = ["# What did not hold, and why", ""]
    claims = [Claim.of(row) for one in records for row in one["claims"]]
    undecided = sum(claim.verdict == UNDECIDED for claim in claims)
    failing = sum(not claim.holds for claim in claims) - undecided
    lines += [
        f"The committed records hold {len(claims)} claims, at all scales. {failing} of "
        f"them fail, and {undecided} are undecided, which means that the data allow "
        "both answers. This page lists all of these, each with its reason. A claim "
        "that fails stays here until a measurement changes, not until its bound does.",
        "",
        "A claim is a measured number beside the bound that it requires. "
        + legend(claims),
    ]
    for record in records:
        failed = [claim for claim in map(Claim.of, record["claims"]) if not claim.holds]
        if failed:
            name = f"{origin(record)}: {record['figure']}, `{record['slug']}`"
            lines += ["", f"## {markdown(name)} ({record['scale']})", ""]
        for claim in failed:
            # The remark of a claim that was not measured says why.
            found = f": {shown(claim)}".removesuffix(": nan")
            if claim.remark:
                why = f"{claim.remark}."
            elif found:
                why = NO_REMARK[claim.verdict]
            else:
                why = NO_REMARK["unseen"]
            where = claim.source
            if claim.setting:
                where += f", {claim.setting}"
            said = f"{claim.statement}{found}, required {claim.bound} ({where}). {why}"
            lines += [f"* {markdown(said)}"]
    return "\n".join(lines) + "\n"
