"""The verdicts from fresh seeds, as the claims of a record and as one picture.

The judge decides the claims; see `papers.studies.judge`. Here its verdicts are written
and drawn. A study is shown as soon as all of its seeds have run.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import PlaceHolderLayoutEngine

from companion import claims, plots
from companion.claims import Claim, Table
from companion.record import Number, finite
from papers import pieces, verdicts
from papers.studies import kept_curves, reviews, speed
from papers.studies.confirm import plans
from papers.studies.family import FAMILY, FamilyClaim, Runs
from papers.studies.judge import Verdict
from papers.verdicts import NOT_REPRODUCED, REPRODUCED, UNDECIDED

RECORD = "verdicts"  # the name of the record and of the picture


def growth_in_per_cent(logarithm: float) -> float:
    """Turn the logarithm of the factor by which a norm grows into a growth in per
    cent.
    """
    return 100 * math.expm1(logarithm)


class Block(NamedTuple):
    """The claims that share one unit in the picture, and how their axis is drawn."""

    title: str
    claims: Sequence[str]  # how the names of the block's claims begin
    axis: str  # the label of the axis
    zero: float = 0.0  # where the two rules are equal, or nothing grows
    logarithmic: bool = False
    digits: int = 3  # after the point
    shown: Callable = float  # from the quantity of a claim to the one that is drawn


BLOCKS = (
    Block(
        r"Speed: steps over SGD's (last row: over $\ell_{1.1}$'s)",
        ("fig1.", "fig4.", "fig6.", "fig7.sngd", "vit.early"),
        "fewer steps \N{LEFTWARDS ARROW} 1 \N{RIGHTWARDS ARROW} more steps (log);"
        " dotted: 0.8 and 1.25",
        zero=1.0,
        logarithmic=True,
    ),
    Block(
        "Norms: growth of the matrix that grows least, %",
        ("fig7.growth",),
        "growth of the norm after six epochs, %",
        digits=2,
        shown=growth_in_per_cent,
    ),
    Block(
        "Sparsity: difference of the Hoyer index",
        ("vit.sparser", "sparsity."),
        "difference of the index",
    ),
    Block(
        "Test accuracy on film reviews",
        ("imdb.",),
        "difference of the accuracy",
    ),
    Block(
        "Attention: share of tokens used",
        ("attention.",),
        "difference of the share",
    ),
)
# Where in the papers a claim is made, by the beginning of its name, for the picture.
STUDIED = {
    "fig1": "Paper A, Figure 1, sentence pairs",
    "fig4": "Paper A, Figure 4, comments",
    "fig6": "Paper A, Figure 6, digits",
    "fig7": "Paper A, Figure 7, CIFAR-10",
    "vit": "Paper C, CIFAR-10",
    "imdb": "Paper C, film reviews",
    "sparsity": "Paper C, film reviews",
    "attention": "Paper C, film reviews",
}
# The data of each study, in words.
DATA = {
    "multi_nli_200": "sentence pairs",
    "civil_comments_400": "comments",
    "mnist_60000": "digits",
    "cifar10_50000": "CIFAR-10, paper A",
    "vit_48000": "CIFAR-10, paper C",
    "imdb_256": "film reviews",
}
# What the papers say, in short, with the rules' usual names.
SENTENCES = {
    "fig7.growth.sgd": "norms grow under SGD",
    "fig7.growth.adam": "norms grow under Adam",
    "fig7.growth.sngd": "norms grow, normalised SGD",
    "vit.early": r"Adam ahead of $\ell_{1.1}$ early",
    "vit.sparser": r"weights sparser under $\ell_{1.1}$",
    "imdb.l1.1>l2": r"$\ell_{1.1}$ is above $\ell_2$",
    "imdb.l1.1>l3": r"$\ell_{1.1}$ is above $\ell_3$",
    "imdb.l3>l2": r"$\ell_3$ is above $\ell_2$",
    "sparsity.K": r"keys sparser under $\ell_{1.1}$",
    "sparsity.Q": r"queries sparser under $\ell_{1.1}$",
    "sparsity.V": r"values sparser under $\ell_{1.1}$",
    "attention.sharper": r"$\ell_{1.1}$ is sharper than $\ell_2$",
}
SAYS = {
    verdicts.faster: "is faster",
    verdicts.slower: "is slower",
    verdicts.no_gain: "gains nothing",
}
WORDS = {
    REPRODUCED: "reproduced",
    NOT_REPRODUCED: "not reproduced",
    UNDECIDED: UNDECIDED,
}
# The smallest p that `papers.verdicts.p_value` computes, up to its rounding.
SMALLEST_P = math.exp(-30 + 1e-5)
ABOVE_P = 1e-13  # a round number just above it
# Quantities that the first round measured in the same way, up to one reading of the
# clock.
SAME_QUANTITY = ("fig1.", "fig4.", "fig6.", "fig7.sngd", "vit.")

ROW = 0.25  # inches
HEADING = 0.85  # height of the line that names a study, in rows
AXIS = 0.235, 0.35  # left end and width of an axis, as shares of the picture
# Where the words beside an axis begin, as shares of its width: the study, the sentence,
# the estimate with its corrected interval, the verdict, and the number of seeds.
LEFT, SENTENCE, NUMBER, VERDICT, SEEDS = -0.645, -0.6, 1.03, 1.63, 2.04
TICKS = (0.2, 0.3, 0.5, 0.7, 1, 1.5, 2)  # of ratios


def source(claim: FamilyClaim) -> str:
    """Write where a claim of the family is made, as the source of a record's claim."""
    figure = claim.name.split(".")[0]
    if figure == "vit":
        return reviews.SOURCE.format("vision experiment")
    if not figure.startswith("fig"):
        return reviews.SOURCE.format("experiment on IMDb")
    place = f"paper A, Figure {figure.removeprefix('fig')}"
    if claim.word is verdicts.no_gain:
        return f"{place} (our bound)"
    # Our copy of the text gives only the sentences about the speed of normalised SGD.
    if claim.rules[0] != "SNGD" or claim.word is verdicts.above:
        return f"{place} (our reading)"
    return place


def table(found: Sequence[Verdict]) -> Table:
    """Return the verdicts as the claims of a record.

    Parameters
    ----------
    found
        The verdicts.

    Returns
    -------
    Table
        One claim per verdict, with its 95 % interval, its own p, and in its statement
        Holm's p and the judge's notes. A claim on speed can also be decided because its
        interval lies between 0.8 and 1.25, or must lie below 0.8. If its p is therefore
        not that of the test of a ratio of 1, the statement has the p of this test, too.
    """
    rows = []
    for verdict in found:
        claim = FAMILY[verdict.claim]
        words = [verdict.text, f"Holm's p {_p_in_words(verdict)}", *verdict.notes]
        against = verdict.beside.get("p against 1")
        if against and not math.isclose(against, verdict.p, rel_tol=0.01):
            words.append(f"the test of a ratio of 1 has p {against:.1g}")
        row = claims.judged(
            verdict.claim,
            "; ".join(words),
            source(claim),
            (verdict.estimate, verdict.low, verdict.high),
            verdicts.BOUNDS[claim.word],
            verdict=verdict.word,
            seeds=verdict.seeds,
            p=verdict.p,
        )
        rows.append(replace(row, remark=_why(verdict)))
    return Table(rows)


def _why(verdict: Verdict) -> str:
    """Write by which rule of the protocol a claim is not reproduced, or why it is
    undecided although its 95 % interval alone would decide it. Otherwise return "".
    """
    low, high = verdict.corrected
    if verdict.word == UNDECIDED and verdict.alone != UNDECIDED:
        return (
            f"at 95 % the interval alone would say {verdict.alone}; the corrected one,"
            f" {low:.3g} to {high:.3g}, decides nothing"
        )
    if verdict.word != NOT_REPRODUCED:
        return ""
    least, most = verdicts.SAME
    if least <= low < 1 < high <= most:
        return (
            f"the corrected interval contains 1 and lies within {least:g} to {most:g},"
            " so by the protocol the two rules count as equally fast"
        )
    return "the corrected interval lies wholly on the other side"


def _p_in_words(verdict: Verdict) -> str:
    """Write Holm's p of a verdict, as an upper bound if p is the smallest that is
    computed.
    """
    if verdict.p <= SMALLEST_P:
        return f"below {verdict.holm:.1g}"
    return f"{verdict.holm:.2g}"


def counts(found: Sequence[Verdict]) -> dict[str, int]:
    """Count the verdicts by their words, and the claims that wait for their seeds.

    Returns
    -------
    dict of str to int
        The numbers "family", "judged", "waiting", "reproduced", "not_reproduced",
        "undecided" and "decided", the last of which is the sum of "reproduced" and
        "not_reproduced".
    """
    words = [verdict.word for verdict in found]
    counted = {
        "family": len(FAMILY),
        "judged": len(words),
        "waiting": len(FAMILY) - len(words),
        "reproduced": words.count(REPRODUCED),
        "not_reproduced": words.count(NOT_REPRODUCED),
        "undecided": words.count(UNDECIDED),
    }
    counted["decided"] = counted["reproduced"] + counted["not_reproduced"]
    return counted


def numbers(found: Sequence[Verdict]) -> dict[str, int | Number]:
    """Return the numbers of a record: the counts, and for each claim its estimate,
    interval and Holm's p, with the numbers that the protocol reports beside a verdict.
    """
    known: dict[str, int | Number] = dict(counts(found))
    for verdict in found:
        name = verdict.claim
        known[f"{name}.estimate"] = finite(verdict.estimate, 1e-9)
        known[f"{name}.low"] = finite(verdict.low, 1e-6)
        known[f"{name}.high"] = finite(verdict.high, 1e-6)
        known[f"{name}.corrected_low"] = finite(verdict.corrected[0], 1e-6)
        known[f"{name}.corrected_high"] = finite(verdict.corrected[1], 1e-6)
        known[f"{name}.level"] = finite(verdict.level, 1e-9)
        known[f"{name}.holm"] = finite(verdict.holm, 1e-6)
        known[f"{name}.seeds"] = verdict.seeds
        if "p against 1" in verdict.beside:
            known[f"{name}.p_against_1"] = finite(verdict.beside["p against 1"], 1e-6)
        for kind, (estimate, low, high) in _beside(verdict).items():
            known[f"{name}.{kind}"] = finite(estimate, 1e-9)
            known[f"{name}.{kind}.low"] = finite(low, 1e-6)
            known[f"{name}.{kind}.high"] = finite(high, 1e-6)
    return known


def _beside(verdict: Verdict) -> dict[str, Sequence[float]]:
    """Return the intervals that the protocol reports beside a verdict on speed."""
    beside = verdict.beside
    found = {}
    for target, interval in beside.get("at every target", {}).items():
        found[f"target {target}"] = interval
    for name in ("isotonic fit", "first round's count"):
        if name in beside:
            found[name] = beside[name]
    return found


def other_measures(found: Sequence[Verdict]) -> list[dict[str, str]]:
    """Write the ratios of steps by other measures, one row per claim on speed.

    Parameters
    ----------
    found
        The verdicts.

    Returns
    -------
    list of dict
        The columns of a row are the claim, the p-value of the test that the ratio is 1,
        the ratio at the first, second and last target with its 95 % interval, the ratio
        by the isotonic fit and by the first round's count of steps, and the smallest
        and largest ratio of median steps at the best two rates, in the races.
    """
    rows = []
    for verdict in found:
        targets = verdict.beside.get("at every target")
        if not targets:
            continue
        row = {"claim": verdict.claim}
        p = verdict.beside["p against 1"]
        row["p against 1"] = f"{p:.1g}" if p > SMALLEST_P else f"below {ABOVE_P:.0g}"
        columns = zip(("first", "second", "last"), targets.values(), strict=True)
        row |= {f"{place} target": _written(ends) for place, ends in columns}
        row["isotonic fit"] = _written(verdict.beside["isotonic fit"])
        row["first round's count"] = _written(verdict.beside["first round's count"])
        two = verdict.beside["best two rates"]
        row["best two rates"] = f"{two[0]:.2f} to {two[1]:.2f}" if two else ""
        rows.append(row)
    return rows


def _written(ends: Sequence[float]) -> str:
    estimate, low, high = ends
    return f"{estimate:.2f} ({low:.2f} to {high:.2f})"


def data(studies: Mapping[str, Runs]) -> list[dict]:
    """Return the data sets and weights of the studies, as rows of a record.

    Parameters
    ----------
    studies
        The runs by study.

    Returns
    -------
    list of dict
        The rows of the studies, without repetitions. Their source is "kept", because
        the figure is drawn from kept runs, and "trained_on" says what these were
        trained on.
    """
    rows = []
    for runs in studies.values():
        problem = runs.configuration["problem"]
        for part in ("data", "weights"):
            if part in problem:
                row = dict(problem[part])
                row |= {"source": "kept", "trained_on": row["source"]}
                if row not in rows:
                    rows.append(row)
    return rows


def seeds(studies: Mapping[str, Runs]) -> list[int]:
    """Return all seeds of the studies, in ascending order."""
    return sorted({seed for runs in studies.values() for seed in runs.seeds})


def caption(studies: Mapping[str, Runs], found: Sequence[Verdict]) -> str:
    """Write the caption of the picture: what is drawn, the data, seeds and verdicts."""
    sizes = []
    for name, runs in studies.items():
        rows = runs.configuration["problem"]["rows"]
        number = len(runs.seeds)
        sizes.append(f"{DATA[name]} ({rows:,} training rows, {number} seeds)")
    counted = counts(found)
    words = (
        "Papers A and C on real data, reduced networks, fresh seeds: thick bars are"
        f" 95 % intervals, thin bars intervals at Holm's level over {counted['family']}"
        f" claims. Studies: {'; '.join(sizes)}. Targets, candidate learning rates and"
        " the rule for the numbers of seeds are those of a protocol that was committed"
        " before the first run. Grey"
        f" diamonds: the first round's three seeds. Of {counted['judged']} claims,"
        f" {counted['reproduced']} reproduced, {counted['not_reproduced']} not"
        f" reproduced, {counted['undecided']} undecided."
    )
    if waiting := counted["waiting"]:
        words = f"{words} {waiting} claims wait for their seeds."
    return words


# The picture.


def first_round() -> dict[str, Claim]:
    """Return the claims of the first round that measure a quantity of the family, by
    name.
    """
    tables = [speed.table(kept_curves.kept(name), name) for name in speed.CLAIMED]
    tables.append(reviews.vision_table(kept_curves.kept("vit")))
    found = {}
    for rows in tables:
        for claim in rows:
            if claim.id in FAMILY and claim.id.startswith(SAME_QUANTITY):
                found[claim.id] = claim
    return found


def forest(found: Sequence[Verdict], earlier: Mapping[str, Claim]) -> Figure:
    """Draw the claims with their intervals and verdicts, one per row, in blocks by
    unit.

    Parameters
    ----------
    found
        The verdicts.
    earlier
        The claims of the first round that are drawn as grey diamonds, by name.

    Returns
    -------
    Figure
        The blocks that have a verdict. Claims that wait for their seeds are not drawn;
        a line below counts them.
    """
    by_name = {verdict.claim: verdict for verdict in found}
    rows_of = _rows_of(by_name)

    # Heights are in inches. Each block has its rows, its title and its axis.
    heights = [ROW * (0.2 + _places(rows)[1]) for rows in rows_of.values()]
    between = 0.72
    total = sum(heights) + between * len(rows_of) + 0.3
    # A figure without a layout engine gets the layout engine of the style when Jupyter
    # shows it.
    size = (plots.WIDTH, total)
    figure = Figure(figsize=size, layout=PlaceHolderLayoutEngine(True, True))

    # The blocks, from top to bottom.
    top = total - 0.28
    for (block, rows), height in zip(rows_of.items(), heights, strict=True):
        bottom = top - height
        place = (AXIS[0], bottom / total, AXIS[1], height / total)
        _block(figure.add_axes(place), block, rows, by_name, earlier)
        top = bottom - between

    if waiting := _waiting(by_name):
        grey = {"fontsize": 8, "color": plots.INKS["shade"], "va": "bottom"}
        left = AXIS[0] + AXIS[1] * LEFT
        figure.text(left, 0.06 / total, waiting, **grey)
    return figure


def _waiting(by_name: Mapping[str, Verdict]) -> str:
    """Write how many claims wait for their seeds, by study, or "" if none does."""
    waiting = [claim for name, claim in FAMILY.items() if name not in by_name]
    parts = []
    for study in plans():
        number = sum(claim.study == study for claim in waiting)
        if number:
            parts.append(f"{DATA[study]} ({number})")
    if not parts:
        return ""
    return f"Not drawn: {len(waiting)} claims that wait, on {', '.join(parts)}."


def _rows_of(by_name: Mapping[str, Verdict]) -> dict[Block, list[str]]:
    """Return the claims with a verdict by their blocks, without blocks that have
    none.
    """
    found = {}
    for block in BLOCKS:
        rows = [name for name in by_name if name.startswith(tuple(block.claims))]
        if rows:
            found[block] = sorted(rows)
    return found


def _places(names: Sequence[str]) -> tuple[dict[str, float], float]:
    """Return the height of the row of each claim, and the height of all rows.

    Heights are in rows from the top. The first claim of each study leaves room for the
    name of the study above it.
    """
    places = {}
    height = 0.0
    said = ""
    for name in names:
        study = STUDIED[name.partition(".")[0]]
        if study != said:
            height += HEADING
        said = study
        places[name] = height
        height += 1
    return places, height


def _block(
    axis: Axes,
    block: Block,
    names: Sequence[str],
    by_name: Mapping[str, Verdict],
    earlier: Mapping[str, Claim],
) -> None:
    """Draw the claims with one unit, one per row, below the names of their studies.

    The shade of a row is the range in which the interval must lie for the paper's claim
    to hold.
    """
    right = {"transform": axis.get_yaxis_transform(), "va": "center", "fontsize": 8}
    places, height = _places(names)
    drawn = [block.zero]
    said = ""
    for name, row in places.items():
        study = STUDIED[name.partition(".")[0]]
        if study != said:
            above = right | {"color": plots.INKS["shade"]}
            axis.text(LEFT, row - HEADING - 0.05, study, **above)
        said = study
        axis.text(SENTENCE, row, sentence(FAMILY[name]), **right)
        if name in earlier and math.isfinite(earlier[name].measured):
            value = earlier[name].measured
            grey = {"color": plots.GREY, "mfc": plots.PAPER, "ms": 3.5, "zorder": 5}
            axis.plot(value, row + 0.27, "D", **grey)
            drawn.append(value)
        drawn += _row(axis, row, by_name[name], block)

    # The axes.
    axis.axvline(block.zero, color=plots.BLACK, linewidth=1)
    axis.set_ylim(height - 0.4, -0.6)
    axis.set(yticks=[], xlabel=block.axis)
    axis.tick_params(labelsize=8)
    axis.xaxis.label.set_size(8)
    axis.spines["left"].set_visible(False)
    finite_values = [value for value in drawn if np.isfinite(value) and value != 0]
    if block.logarithmic:
        ends = (0.85 * min(finite_values), 1.15 * max(*finite_values, verdicts.SAME[1]))
        axis.set(xscale="log", xlim=ends)
        ticks = [tick for tick in TICKS if ends[0] <= tick <= ends[1]]
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.minorticks_off()
        for border in verdicts.SAME:
            axis.axvline(border, color=plots.GREY, linewidth=0.8, linestyle=":")
    else:
        axis.margins(x=0.12)
    ends = axis.get_xlim()
    for name, row in places.items():
        side = np.clip(verdicts.SIDES[FAMILY[name].word], *ends)
        box = {"color": plots.FAINT, "alpha": 0.45, "linewidth": 0, "zorder": 0}
        axis.fill_between(side, row - 0.42, row + 0.42, **box)
    axis.set_xlim(ends)

    # The titles of the columns.
    bold = right | {"fontweight": "bold"}
    axis.text(LEFT, -1.0, block.title, **bold | {"fontsize": 9})
    columns = ((NUMBER, "corrected interval"), (VERDICT, "verdict"), (SEEDS, "seeds"))
    for at, words in columns:
        axis.text(at, -1.0, words, **bold)


def _row(axis: Axes, row: float, verdict: Verdict, block: Block) -> list[float]:
    """Draw the intervals, the number, the verdict and the seeds of a claim.

    The function returns the values that the axis must contain.
    """
    right = {"transform": axis.get_yaxis_transform(), "va": "center", "fontsize": 8}
    colour = plots.look(verdict.word).colour
    is_decided = verdict.word != UNDECIDED
    values = [verdict.estimate, verdict.low, verdict.high, *verdict.corrected]
    estimate, low, high, *thin = map(block.shown, values)
    if math.isfinite(estimate):
        # The corrected interval is thin, and the interval at 95 % is thick.
        thick = (low, high)
        axis.plot(thin, [row, row], color=colour, linewidth=1.2, zorder=3)
        wide = {"linewidth": 5, "alpha": 0.5, "solid_capstyle": "butt", "zorder": 3}
        axis.plot(thick, [row, row], color=colour, **wide)
        face = colour if is_decided else plots.PAPER
        axis.plot(estimate, row, "o", color=colour, mfc=face, ms=4.5, zorder=4)
        number, *ends = (
            pieces.written(f"{value:.{block.digits}f}") for value in (estimate, *thin)
        )
        words = f"{number} ({ends[0]} to {ends[1]})"
        axis.text(NUMBER, row, words, **right)
    weight = "bold" if is_decided else "normal"
    style = {"color": colour, "fontweight": weight} | right
    axis.text(VERDICT, row, WORDS[verdict.word], **style)
    axis.text(SEEDS, row, str(verdict.seeds), **right)
    return [estimate, low, high, *thin]


def sentence(claim: FamilyClaim) -> str:
    """Write in short what the paper says in a claim of the family."""
    if claim.name in SENTENCES:
        return SENTENCES[claim.name]
    return f"{kept_curves.shown(claim.rules[0])} {SAYS[claim.word]}"
