"""The pictures of paper C's film reviews: two networks, one of which is judged.

The reduced network has fresh seeds, from which the claims are decided; see
`papers.studies.judge`. The network of the paper's size has the seeds of an earlier
round. By the rule of that round it decides nothing, and it is drawn for comparison.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from companion import plots
from companion.claims import Claim, Table
from companion.record import Number, finite
from lib.training.curves import Curves
from papers import pieces
from papers.studies import fresh_seeds, kept_curves, reviews
from papers.studies.family import FAMILY, Interval, late_accuracy
from papers.studies.kept_curves import shown
from papers.studies.second_round import Study

JUDGED = "reduced network (judged)"
BESIDE = "paper's size (not judged)"
PARTS = {"K": "keys", "Q": "queries", "V": "values"}


class Kind(NamedTuple):
    """One kind of claims on reviews, with its picture.

    Parameters
    ----------
    slug
        The name of the picture and of its record.
    number
        What the paper has in its place.
    marks
        What the marks of the upper panel mean.
    height
        The height of the upper panel, in inches.
    upper
        Draws the upper panel from the axes and the runs by network.
    title, axis
        The title of the lower panel, which has the judged differences, and the label of
        its axis.
    unit
        By how much a difference is multiplied before it is drawn.
    digits
        How many digits it is written with after the point.
    earlier
        The claims about the network of the paper's size.
    """

    slug: str
    number: str
    marks: str
    height: float
    upper: Callable[[Axes, Mapping[str, Curves]], None]
    title: str
    axis: str
    unit: float
    digits: int
    earlier: Callable[[Curves], Table]


def _counts(axis: Axes, networks: Mapping[str, Curves]) -> None:
    """Draw the counts of the paper's size, which the paper has counted, too."""
    reviews.draw_counts(axis, networks[BESIDE])
    axis.set_title(
        "Ours, size 3 (not judged), and the paper's, size 6: weights above 0.06"
    )


# By the beginning of the claims' names.
KINDS = {
    "imdb": Kind(
        slug="mirror_imdb",
        number="IMDb table",
        marks="small dots: seeds, large mark: their mean, grey tick: the paper's",
        height=3.6,
        upper=reviews.draw_accuracies,
        title="Reduced network: differences, means of the last four evaluations",
        axis="points; right of 0: as in the paper; star: the paper's, last epoch",
        unit=100,
        digits=1,
        earlier=reviews.accuracy_table,
    ),
    "sparsity": Kind(
        slug="mirror_sparsity",
        number="weights",
        marks="above: dots are seeds, words their means",
        height=2.4,
        upper=_counts,
        title=f"Reduced network: Hoyer index, {shown('l1.1')} minus {shown('l2')}",
        axis="right of 0: as in the paper; matched: at equal training accuracy",
        unit=1,
        digits=3,
        earlier=reviews.sparsity_table,
    ),
    "attention": Kind(
        slug="mirror_attention",
        number="attention maps",
        marks="above: dots are seeds, marks their means",
        height=2.4,
        upper=reviews.draw_tokens_used,
        title=f"Reduced network: tokens used, {shown('l2')} minus {shown('l1.1')}",
        axis="points; right of 0: as in the paper",
        unit=100,
        digits=0,
        earlier=reviews.attention_table,
    ),
}
# What the names of a kind's intervals mean, in the order of `FamilyClaim.measure`.
WAYS = ("at the end", "matched")


def networks(study: Study, beside: Curves) -> dict[str, Curves]:
    """Return the runs of both networks, by what they are called in the pictures."""
    return {JUDGED: study.curves, BESIDE: beside}


def claims(study: Study, kind: str) -> Table:
    """Return the verdicts of one kind, which is one of `KINDS`."""
    return Table([claim for claim in study.claims if claim.id.split(".")[0] == kind])


def draw(study: Study, beside: Curves, kind: str) -> Figure:
    """Draw one kind of claims.

    Parameters
    ----------
    study
        The study of the reduced network, `second_round.read("imdb")`.
    beside
        The runs of the network of the paper's size.
    kind
        One of `KINDS`.

    Returns
    -------
    Figure
        Above, what both networks do. Below, the differences by which the claims about
        the reduced network are decided, with their intervals at 95 % (thick) and
        corrected (thin).
    """
    about = KINDS[kind]
    bars = [bar for claim in claims(study, kind) for bar in _bars(study, claim, about)]
    below = 0.8 + 0.3 * len(bars)
    # The two panels have two heights, so `plots.panels` cannot arrange them.
    figure, _ = plots.panels(1, 1, height=about.height + below)
    figure.clear()
    upper, lower = figure.subplots(2, 1, height_ratios=(about.height, below))
    about.upper(upper, networks(study, beside))

    stars = _papers_differences(study) if kind == "imdb" else []
    drawn = [0.0, *stars]
    for bar in bars:
        values = [bar.low, bar.high, *bar.corrected, *bar.points]
        drawn += [value for value in values if np.isfinite(value)]
    room = 0.1 * (max(drawn) - min(drawn)) or 1.0  # 0 if no claim was judged
    pieces.forest(lower, bars, (min(drawn) - room, max(drawn) + room))
    lower.plot(stars, range(len(stars)), "*", color=plots.BLACK, markersize=7)
    lower.set(title=about.title, xlabel=about.axis)
    return figure


class Way(NamedTuple):
    """One of the differences by which a claim is decided.

    Parameters
    ----------
    name
        One of `WAYS`.
    interval
        The difference with its interval at 95 %.
    corrected
        The ends of its interval at the level at which Holm's procedure tests the claim.
    """

    name: str
    interval: Interval
    corrected: tuple[float, float]


def ways(study: Study, claim: Claim) -> list[Way]:
    """Return the differences by which a claim is decided, none if it was not judged.

    A claim about sparsity has two of them, and the verdict must be the same for both.
    The claim itself shows the first one.
    """
    if claim.interval is None:
        return []
    found = []
    for k, interval in enumerate(FAMILY[claim.id].measure(study.runs)):
        thin = replace(interval, level=study.levels[claim.id])
        found.append(Way(WAYS[k], interval, (thin.low, thin.high)))
    return found


def _bars(study: Study, claim: Claim, about: Kind) -> list[pieces.Bar]:
    """Return the lines of the lower panel for a claim: one per interval by which it is
    decided. The first one has the verdict.
    """
    bars = []
    for way in ways(study, claim):
        interval = way.interval
        values = [interval.estimate, interval.low, interval.high]
        estimate, low, high = about.unit * np.array(values)
        words = f"{estimate:+.{about.digits}f}"
        bar = pieces.Bar(
            label=_label(claim, way.name),
            value=estimate,
            low=low,
            high=high,
            verdict=claim.verdict,
            points=about.unit * np.array(interval.values),
            words=words if bars else f"{words} {claim.verdict}",
            corrected=about.unit * np.array(way.corrected),
        )
        bars.append(bar)
    nothing = pieces.Bar(_label(claim), np.nan, np.nan, np.nan, claim.verdict)
    return bars or [nothing]


def _label(claim: Claim, way: str = "") -> str:
    """Write what is compared in a claim, and at which point of the runs."""
    kind, _, rest = claim.id.partition(".")
    if kind == "sparsity":
        return f"{PARTS[rest]}, {way}" if way else PARTS[rest]
    first, second = FAMILY[claim.id].rules
    if kind == "attention":  # the difference is positive if the first rule uses less
        first, second = second, first
    return f"{shown(first)} minus {shown(second)}"


def _papers_differences(study: Study) -> list[float]:
    """Return the differences of the paper's accuracies, in points, by claim."""
    found = []
    for claim in claims(study, "imdb"):
        first, second = FAMILY[claim.id].rules
        found.append(100 * (reviews.PAPER[first] - reviews.PAPER[second]))
    return found


def caption(study: Study, beside: Curves, kind: str) -> str:
    """Write the caption of `draw`: the marks, the setting, the rates and the
    verdicts.
    """
    about = KINDS[kind]
    said = []
    for claim in claims(study, kind):
        said.append(replace(claim, statement=fresh_seeds.sentence(FAMILY[claim.id])))
    bars = (
        f"paper's size: {len(beside.seeds())} seeds; below: bars at 95 %, thin:"
        f" corrected for {len(FAMILY)} claims, dots: seeds"
    )
    chosen = (
        " (each the better of two in a race on three other seeds, by held-out"
        " accuracy; none of the judged seeds had been run before)."
    )
    words = kept_curves.caption(
        f"Paper C, {about.number}",
        study.curves,
        f"{about.marks}; {bars}",
        Table(said),
        chosen,
    )
    problem = beside.configuration["problem"]
    return (
        f"{words} Beside it, not judged: {problem['network']},"
        f" {len(beside.seeds())} seeds of an earlier round, rates given by the authors'"
        " code."
    )


def numbers(study: Study, beside: Curves) -> dict[str, Number]:
    """Return the numbers of a record.

    These are the numbers of `reviews.numbers` for the reduced network, for each
    difference by which a claim is decided its estimate with both intervals, and with
    "paper_size_" before their names the numbers of the network of the paper's size. The
    late accuracies of the reduced network are those on all test reviews, by which the
    claims are decided.
    """
    measured = reviews.numbers(study.curves)
    for rule in study.runs.rates:
        late = np.mean([late_accuracy(run) for run in study.runs.of(rule)])
        name = f"{rule.replace('.', '_')}_late_test_accuracy"
        measured[name] = finite(late, 1e-9)
    for claim in study.claims:
        for way in ways(study, claim):
            name = claim.id.replace(">", "_above_").replace(".", "_")
            if way.name == "matched":
                name = f"{name}_matched"
            interval = way.interval
            measured[name] = finite(interval.estimate, 1e-9)
            measured[f"{name}_low"] = finite(interval.low, 1e-6)
            measured[f"{name}_high"] = finite(interval.high, 1e-6)
            measured[f"{name}_corrected_low"] = finite(way.corrected[0], 1e-6)
            measured[f"{name}_corrected_high"] = finite(way.corrected[1], 1e-6)
    larger = reviews.numbers(beside)
    return measured | {f"paper_size_{name}": each for name, each in larger.items()}
