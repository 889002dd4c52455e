"""Draw every figure and verdict of the real-data studies from their stored curves.

`python -m papers.studies.redraw [STUDY ...] [--out FOLDER]` writes one PNG per picture
to runs/redrawn/ and prints each study's verdicts in words. It trains nothing. If all
studies are drawn, the command also prints the p values of all verdicts, and draws the
verdicts as verdicts.png, of which figures/verdicts.png is a copy. If a study has no
stored curves, the command says so and leaves the study out.
"""

import argparse
import re
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from companion import headlines, plots, record
from companion.claims import Claim
from lib import files
from lib.training.curves import Curves
from papers import pieces, verdicts
from papers.studies import kept_curves, reviews, speed

# For each picture, by study and then by slug: the function that returns its claims, and
# the function that draws it.
PICTURES: dict[str, dict[str, tuple[Callable, Callable]]] = {
    kept_curves.STUDIES[name]: {
        f"fastrates_{name}": (
            partial(speed.table, figure=name),
            partial(speed.draw, name=name),
        )
    }
    for name in speed.CLAIMED
}
PICTURES[kept_curves.STUDIES["vit"]] = {
    "mirror_vit": (reviews.vision_table, reviews.vision_figure)
}


def _beside_reduced(draw: Callable, curves: Curves) -> Figure:
    """Draw the reviews' curves by `draw`, with the curves of the reduced network."""
    return draw(curves, kept_curves.kept("imdb"))


# For film reviews, we draw the network of the paper's size together with a reduced
# network.
PICTURES["imdb_paper"] = {
    "mirror_imdb": (
        reviews.accuracy_table,
        partial(_beside_reduced, reviews.accuracy_figure),
    ),
    "mirror_sparsity": (
        reviews.sparsity_table,
        partial(_beside_reduced, reviews.sparsity_figure),
    ),
    "mirror_attention": (
        reviews.attention_table,
        partial(_beside_reduced, reviews.attention_figure),
    ),
}

# The reduced network's claims on film reviews belong to the family of 24, as its
# protocol says. The claims on the network of the paper's size form a separate family of
# seven.
REVIEWS = kept_curves.STUDIES["imdb"]
REVIEW_TABLES = (
    reviews.accuracy_table,
    reviews.sparsity_table,
    reviews.attention_table,
)
OTHER_FAMILY = "imdb_paper"
# We read paper A's sentence "norms grow" as a claim only after the runs, so that this
# claim is in no family.
LATER = "fig7.grows."

# These claims were decided at first. We dropped them later, because the papers do not
# make them, or because the rule that they are about is no longer run.
GIVEN_UP = ("fig7.adam", "fig7.growth.sps", "vit.end")


def _judged() -> dict[str, Claim]:
    """Return every claim of the studies that has a verdict, by id, except those that
    belong to another family.
    """
    tables = [
        table(kept_curves.kept(study))
        for study, pictures in PICTURES.items()
        for table, _ in pictures.values()
        if study != OTHER_FAMILY
    ]
    tables += [table(kept_curves.kept(REVIEWS)) for table in REVIEW_TABLES]
    return {claim.id: claim for table in tables for claim in table if claim.verdict}


def _family() -> dict[str, tuple[Claim, float]]:
    """Return every claim of the family with its p adjusted by Holm's rule, by id and in
    ascending order of p.

    A claim that was dropped, or could not be decided, enters Holm's rule with p = 1. So
    dropping it makes no other verdict easier to reach.
    """
    claims = {id: claim for id, claim in _judged().items() if not id.startswith(LATER)}
    p = dict.fromkeys(GIVEN_UP, 1.0)
    for name, claim in claims.items():
        p[name] = 1.0 if claim.p is None else claim.p
    adjusted = verdicts.holm(p)
    return {name: (claims[name], p) for name, p in adjusted.items() if name in claims}


def _of_papers(judged: dict[str, tuple[Claim, float]]) -> list[Claim]:
    """Return the claims that the papers make.

    About the growth of layers, the paper claims only that "norms grow". All other
    claims about growth are our own and are left out.
    """
    theirs = [claim for claim, _ in judged.values() if claim.kind != "finding"]
    return theirs + [claim for id, claim in _judged().items() if id.startswith(LATER)]


def _family_table(claims: dict[str, tuple[Claim, float]]) -> str:
    """Write `_family` as a table: p, p within the family, claim and verdict."""
    lines = [f"{'p':>8} {'Holm':>8}  {len({*claims, *GIVEN_UP})} claims of the studies"]
    for name, (claim, p) in claims.items():
        alone = 1.0 if claim.p is None else claim.p
        lines.append(f"{alone:8.2g} {p:8.2g}  {name}: {claim.verdict}")
    return "\n".join(lines)


class Block(NamedTuple):
    """The claims that share one unit in the picture of verdicts, and how their axis is
    drawn.
    """

    title: str
    claims: Sequence[str]  # how the ids of the block's claims begin
    axis: str  # the label of the axis
    zero: float = 0.0
    form: str = "+.2f"  # format of a value
    logarithmic: bool = False


BLOCKS = (
    Block(
        "Speed: steps to one level, divided by the rival's",
        ("fig1.", "fig4.", "fig6.", "fig7.sngd", "vit.early"),
        "fewer steps \N{LEFTWARDS ARROW} 1 \N{RIGHTWARDS ARROW} more steps",
        zero=1.0,
        form=".2f",
        logarithmic=True,
    ),
    Block(
        "Norms of weights: growth of the median layer",
        ("fig7.grows",),
        "growth, relative to the start",
    ),
    Block(
        "Sparsity: difference of the Hoyer index",
        ("vit.sparser",),
        "difference of the index",
        form="+.3f",
    ),
)
STUDIED = {  # where in the papers a claim is made, by the beginning of its id
    "fig1": "A Fig. 1, sentence pairs",
    "fig4": "A Fig. 4, comments",
    "fig6": "A Fig. 6, digits",
    "fig7": "A Fig. 7, CIFAR-10",
    "vit": "C, CIFAR-10",
}
SENTENCES = {  # what the papers say, in short, with the rules' usual names
    "norms grow under SNGD": "norms grow under normalised SGD",
    "SNGD faster": "normalised SGD is faster",
    "SNGD slower": "normalised SGD is slower",
    "SPS faster": "Polyak's rule is faster",
    "Adam faster": "Adam is faster",
    "Adam no gain": "Adam gains nothing",
    "Adam ahead early": r"Adam is ahead of $\ell_{1.1}$ early",
    "l1.1 sparser": r"weights are sparser under $\ell_{1.1}$",
}
SHADE = {verdicts.BOUNDS[word]: side for word, side in verdicts.SIDES.items()}
# What the claims without a verdict are about, by the beginning of their ids.
SILENT = {"imdb": "accuracy", "sparsity": "sparsity", "attention": "sharpness"}
VERDICT_WORDS = {
    verdicts.REPRODUCED: "as the paper",
    verdicts.NOT_REPRODUCED: "not as the paper",
}
ROW = 0.23  # inches
AXIS = 0.488, 0.18  # left end and width of an axis, as shares of the picture
# Of words beside an axis, as shares of its width: where in the papers, the sentence,
# the number, the verdict of the claim alone, and that after the correction.
LEFT, MIDDLE, NUMBER, ALONE, CORRECTED = -2.65, -1.58, 1.05, 1.42, 2.29


def _sentence(claim: Claim) -> str:
    """Write what the paper says, from the claim's statement."""
    words = re.split(r":| \(", claim.statement)[0]
    said = SENTENCES.get(words, words)
    return re.sub(r"(?<!\{)\bl([\d.]*\d)", r"$\\ell_{\1}$", said)


def _block(
    axis: Axes, block: Block, claims: Sequence[Claim], corrected: Mapping[str, float]
) -> None:
    """Draw the claims with one unit, one per row: interval, number and two verdicts.

    The shade of a row shows the range in which the whole interval must lie for the
    paper's claim to hold. The second verdict is after the correction, with the adjusted
    p value of each claim of the family in `corrected`.
    """
    said = ""
    drawn = [block.zero]
    right = {"transform": axis.get_yaxis_transform(), "va": "center", "fontsize": 8}
    sides = []
    for row, claim in enumerate(claims):
        value, low, high = claim.measured, *claim.interval
        colour = plots.look(claim.verdict).colour
        bar = {"color": colour, "linewidth": 4, "alpha": 0.5}
        axis.plot([low, high], [row, row], solid_capstyle="butt", **bar)
        decided = claim.verdict in VERDICT_WORDS
        face = colour if decided else plots.PAPER
        axis.plot(value, row, "o", color=colour, mfc=face, ms=5.5)
        drawn += [low, high]
        sides.append(SHADE[claim.bound])
        # The words left and right of the axis.
        study = STUDIED[claim.id.partition(".")[0]]
        if study != said:
            axis.text(LEFT, row, study, **right)
        said = study
        axis.text(MIDDLE, row, _sentence(claim), **right)
        number = pieces.written(format(value, block.form))
        axis.text(NUMBER, row, number, color=colour, **right)
        word = VERDICT_WORDS.get(claim.verdict, claim.verdict)
        weight = "bold" if decided else "normal"
        axis.text(ALONE, row, word, color=colour, fontweight=weight, **right)
        adjusted = corrected.get(claim.id)
        if adjusted is None:
            word = "not in it"
        elif adjusted <= 1 - verdicts.LEVEL:
            word = "decided"
        else:
            word = "not decided"
        axis.text(CORRECTED, row, word, color=plots.INKS["shade"], **right)
    axis.axvline(block.zero, color=plots.BLACK, linewidth=1)
    axis.set_ylim(len(claims) - 0.4, -0.6)
    axis.set(yticks=[], xlabel=block.axis)
    axis.tick_params(labelsize=8)
    axis.xaxis.label.set_size(8)
    axis.spines["left"].set_visible(False)
    if block.logarithmic:
        axis.set(xscale="log", xlim=(0.8 * min(drawn), 1.2 * max(drawn)))
        pieces.plain_ticks(axis.xaxis)
        axis.minorticks_off()
    ends = axis.get_xlim()
    for row, side in enumerate(sides):
        box = {"color": plots.FAINT, "alpha": 0.45, "linewidth": 0, "zorder": 0}
        axis.fill_between(np.clip(side, *ends), row - 0.45, row + 0.45, **box)
    axis.set_xlim(ends)
    title = {"fontsize": 9, "fontweight": "bold"}
    axis.text(LEFT, -1.15, block.title, **right | title)
    for at, words in ((ALONE, "uncorrected"), (CORRECTED, "corrected")):
        axis.text(at, -1.15, words, **right | title | {"fontsize": 8})


def _forest(judged: dict[str, tuple[Claim, float]]) -> Figure:
    """Draw every claim of papers A and C on real data that has an interval, one per
    row, in blocks by unit, and name the other claims in one line.
    """
    claims = sorted(_of_papers(judged), key=lambda claim: claim.id)
    claims_of = {}
    for block in BLOCKS:
        starts = tuple(block.claims)
        claims_of[block] = [claim for claim in claims if claim.id.startswith(starts)]

    # Heights are in inches. Each block has its rows, its title and its axis.
    heights = [ROW * (0.2 + len(rows)) for rows in claims_of.values()]
    between = 0.72
    total = sum(heights) + between * len(claims_of) + 0.3
    figure = Figure(figsize=(plots.WIDTH, total), layout="none")

    # The blocks, from top to bottom.
    adjusted = {name: p for name, (_, p) in judged.items()}
    top = total - 0.28
    for (block, rows), height in zip(claims_of.items(), heights, strict=True):
        bottom = top - height
        place = (AXIS[0], bottom / total, AXIS[1], height / total)
        _block(figure.add_axes(place), block, rows, adjusted)
        top = bottom - between

    # The claims without an interval.
    silent = [claim for claim in claims if not claim.interval]
    if silent:
        grey = {"fontsize": 8, "color": plots.INKS["shade"], "va": "bottom"}
        left = AXIS[0] + AXIS[1] * LEFT
        figure.text(left, 0.06 / total, _not_judged(silent), **grey)
    return plots.heading(figure, _result(judged, claims), _reading(judged, claims))


def _result(judged: dict[str, tuple[Claim, float]], claims: Sequence[Claim]) -> str:
    """Write how many of the papers' `claims` hold uncorrected, and which are decided in
    the family `judged`.
    """
    reproduced = sum(claim.verdict == verdicts.REPRODUCED for claim in claims)
    of_papers = {claim.id for claim in claims}
    decided = []
    for id, (_, p) in judged.items():
        if id in of_papers and p <= 1 - verdicts.LEVEL:
            decided.append(id)
    return (
        f"Uncorrected, {reproduced} of {len(claims)} claims hold; corrected,"
        f" {', '.join(decided) or 'none'}"
    )


def _reading(judged: dict[str, tuple[Claim, float]], claims: Sequence[Claim]) -> str:
    """Write how to read the figure of the papers' `claims`, in the family `judged`."""
    numbers_of_seeds = sorted({claim.seeds or 0 for claim in claims})
    seeds = " or ".join(map(str, numbers_of_seeds))
    low, high = verdicts.SAME

    # How many claims are in the family, and how many of the papers' are not in it.
    count = len({*judged, *GIVEN_UP})
    later = sum(claim.id.startswith(LATER) for claim in claims)
    return (
        f"Bars: 95 % intervals over {seeds} paired seeds of reduced networks."
        " Uncorrected, a claim holds if its whole bar lies in the grey area"
        f" ({low:g} to {high:g}: equally fast). Corrected: by Holm's rule over the"
        f" {count} claims of our protocol; the {later} claims on norms are not in it."
    )


def _not_judged(claims: Sequence[Claim]) -> str:
    """Write in a line how many claims are not judged, what they are about, and why."""
    about = []
    for start, words in SILENT.items():
        number = sum(claim.id.startswith(f"{start}.") for claim in claims)
        about.append(f"{words} ({number})")
    *first, last = about
    return (
        f"{len(claims)} not judged: {', '.join(first)} and {last} on film reviews,"
        " where a bag of words beats the network."
    )


def _redraw(study: str, out: Path) -> list[str]:
    """Draw the pictures of `study` into the folder `out`, and return lines with their
    names and verdicts.
    """
    curves = kept_curves.kept(study)
    lines = []
    for slug, (table, draw) in PICTURES[study].items():
        figure = draw(curves)
        path = files.ROOT / "figures" / "desk" / f"{slug}.json"
        if path.exists():  # the record says whether the headline is true
            plots.heading(figure, *headlines.above(slug, record.read(path)))
        figure.savefig(out / f"{slug}.png")
        lines += [slug, textwrap.indent(table(curves).words(), "  ")]
    return lines


def main(words: list[str] | None = None) -> int:
    """Run the command line; return 0, or 1 if a study could not be redrawn.

    `words` are the arguments, by default those of the process.
    """
    parser = argparse.ArgumentParser(
        prog="python -m papers.studies.redraw", description=__doc__
    )
    meaning = f"of {', '.join(PICTURES)}; default all"
    parser.add_argument("study", nargs="*", metavar="STUDY", help=meaning)
    parser.add_argument("--out", type=Path, default=files.folder("runs") / "redrawn")
    asked = parser.parse_args(words)
    if unknown := [name for name in asked.study if name not in PICTURES]:
        parser.error(f"{', '.join(unknown)}: none of {', '.join(PICTURES)}")
    asked.out.mkdir(parents=True, exist_ok=True)
    plots.set_style()
    began = time.perf_counter()
    missing = False
    for study in asked.study or PICTURES:
        try:
            print("\n".join(_redraw(study, asked.out)), flush=True)
        except (OSError, ValueError) as error:
            missing = True
            print(f"{study}: not redrawn: {error}", flush=True)
    if not (asked.study or missing):
        judged = _family()
        print(_family_table(judged))
        _forest(judged).savefig(asked.out / "verdicts.png")
    print(f"{time.perf_counter() - began:.1f} s; pictures in {asked.out}")
    return int(missing)


if __name__ == "__main__":
    raise SystemExit(main())
