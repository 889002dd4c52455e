"""Every figure and verdict of the real-data studies from their kept curves, without
training.

`python -m papers.studies.redraw [STUDY ...] [--out FOLDER]` writes one PNG per picture to
runs/redrawn/ and prints each study's verdicts in words, and where all are drawn, every
verdict's p value beside the others', and draws them all as verdicts.png, of which
figures/verdicts.png is a copy. A study without kept curves is named and left out.
"""

import argparse
import re
import textwrap
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from companion import plots
from companion.claims import Claim
from lib import files
from lib.training.curves import Curves
from papers import pieces, verdicts
from papers.studies import kept_curves, reviews, speed

# Of every study the pictures by slug: the claims that its curves judge, and the figure.
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
    """What `draw` makes of the reviews' curves, with the reduced network's beside
    them.
    """
    return draw(curves, kept_curves.kept("imdb"))


# Film reviews: the network of the paper's own size is drawn, a reduced one beside it.
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

# The reduced network's claims on film reviews are of the 24, as its protocol has it.
# Those of the paper's own size are a family of their own, of seven.
REVIEWS = kept_curves.STUDIES["imdb"]
REVIEW_TABLES = (
    reviews.accuracy_table,
    reviews.sparsity_table,
    reviews.attention_table,
)
OTHER_FAMILY = "imdb_paper"
# Paper A's sentence "norms grow" was read as a claim after the runs: it is in no
# family.
LATER = "fig7.grows."

# Judged at first, and no claims of the papers' any more, or of a rule that is not run
# any more.
GIVEN_UP = ("fig7.adam", "fig7.growth.sps", "vit.end")


def _judged() -> dict[str, Claim]:
    """Every claim of the studies that has a verdict, but those of another family."""
    tables = [
        table(kept_curves.kept(study))
        for study, pictures in PICTURES.items()
        for table, _ in pictures.values()
        if study != OTHER_FAMILY
    ]
    tables += [table(kept_curves.kept(REVIEWS)) for table in REVIEW_TABLES]
    return {claim.id: claim for table in tables for claim in table if claim.verdict}


def _family() -> dict[str, tuple[Claim, float]]:
    """Every claim of the studies with Holm's adjusted p value over all, in rising
    order. One that was given up, or not judged, counts with p = 1: no other gains.
    """
    claims = {id: claim for id, claim in _judged().items() if not id.startswith(LATER)}
    known = {
        name: 1.0 if claim.p is None else claim.p for name, claim in claims.items()
    }
    adjusted = verdicts.holm(dict.fromkeys(GIVEN_UP, 1.0) | known)
    return {name: (claims[name], p) for name, p in adjusted.items() if name in claims}


def _of_papers(judged: dict[str, tuple[Claim, float]]) -> list[Claim]:
    """The claims that the papers make: of a layer's growth, "norms grow" and not our
    own.
    """
    theirs = [claim for claim, _ in judged.values() if claim.kind != "finding"]
    return theirs + [claim for id, claim in _judged().items() if id.startswith(LATER)]


def _family_table(claims: dict[str, tuple[Claim, float]]) -> str:
    """`_family` as a table: p, p within the family, claim and verdict."""
    lines = [f"{'p':>8} {'Holm':>8}  {len({*claims, *GIVEN_UP})} claims of the studies"]
    for name, (claim, p) in claims.items():
        alone = 1.0 if claim.p is None else claim.p
        lines.append(f"{alone:8.2g} {p:8.2g}  {name}: {claim.verdict}")
    return "\n".join(lines)


DATA = {
    "fig1": "MultiNLI",
    "fig4": "CivilComments",
    "fig6": "MNIST",
    "fig7": "CIFAR-10",
    "imdb": "IMDb accuracy",
    "sparsity": "IMDb Hoyer",
    "attention": "IMDb tokens used",
    "vit": "CIFAR-10",
}


def _forest(judged: dict[str, tuple[Claim, float]]) -> Figure:
    """The papers' claims by study: ratios of steps left, differences right."""
    sides = {False: [], True: []}
    order = list(DATA)
    labels = {}
    claims = _of_papers(judged)
    for claim in sorted(claims, key=lambda c: (order.index(c.id.split(".")[0]), c.id)):
        ratio = claim.bound != verdicts.BOUNDS[verdicts.above]
        words = re.split(r":| \(", claim.statement)[0]
        words = words.replace("l1.1 sparser", "l1.1 sparser (Hoyer)")
        words = re.sub(r"\bl([\d.]*\d)", r"$\\ell_{\1}$", words)
        data = DATA[claim.id.partition(".")[0]]
        if sides[ratio] and sides[ratio][-1].label.partition(":")[0] != data:
            sides[ratio].append(None)
        ends = claim.measured, *(claim.interval or (np.nan, np.nan))
        asked = verdicts.SAME if "within" in claim.bound else ()
        if ratio:
            number = f"{claim.measured:.2f}"
        else:
            number = f"{claim.measured:+.3f}"
        small = ", too small" * ("too small to speak" in claim.statement)
        if claim.interval:
            said = f"{number} {claim.verdict}"
        else:
            said = claim.verdict + small
        bar = pieces.Bar(f"{data}: {words}", *ends, claim.verdict, asked, words=said)
        sides[ratio].append(bar)
        labels[claim.id] = bar.label
    height = 0.2 * max(map(len, sides.values())) + 0.9
    figure, (ratios, differences) = plots.panels(1, 2, height)
    ratios.set(xscale="log", xlabel="steps over those of the other rule")
    pieces.forest(ratios, sides[True], (0.08, 2.4), 1.0)
    pieces.forest(differences, sides[False], (-0.03, 0.65))
    differences.set(xlabel="growth, or difference (asked: above 0)")
    for axis, ticks in (
        (ratios, "0.1 0.2 0.5 1 2".split()),
        (differences, "0 0.2 0.4 0.6".split()),
    ):
        axis.set_xticks([*map(float, ticks)], map(pieces.written, ticks))
        axis.minorticks_off()
        axis.tick_params(labelsize=6.5)
    seeds = " or ".join(map(str, sorted({claim.seeds or 0 for claim in claims})))
    still = [
        f'"{labels[name]}"'
        for name, (_, p) in judged.items()
        if p <= 1 - verdicts.LEVEL and name in labels
    ]
    line = f"Papers A and C on real data, reduced; {seeds} paired seeds; bars: 95 %; between"
    line += " ticks no gain; SNGD: normalised SGD, SPS: Polyak; each verdict is of its claim"
    count = len({*judged, *GIVEN_UP})
    line += f" alone. Of the {count} claims of the protocol, those decided under Holm's"
    line += f" correction and drawn here: {', '.join(still) or 'none'}."
    line += (
        f' "Norms grow" was read as a claim after the runs and is not of the {count}'
    )
    return plots.caption(figure, line)


def _redraw(study: str, out: Path) -> list[str]:
    """Draw the pictures of `study` into `out`; a line for each and each verdict."""
    curves = kept_curves.kept(study)
    lines = []
    for slug, (table, draw) in PICTURES[study].items():
        draw(curves).savefig(out / f"{slug}.png")
        lines += [slug, textwrap.indent(table(curves).words(), "  ")]
    return lines


def main(words: list[str] | None = None) -> int:
    """The command line; 1 where a study could not be redrawn."""
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
