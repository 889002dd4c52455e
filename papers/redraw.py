"""Every figure and verdict of the real-data studies from their kept curves, without training.

`python -m papers.redraw [STUDY ...] [--out FOLDER]` writes one PNG per picture to runs/redrawn/
and prints each study's verdicts in words, and where all are drawn, every verdict's p value beside
the others'. A study without kept curves is named and left out.
"""

import argparse
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from lib import files
from lib.companion import plots
from lib.companion.claims import Claim, Table
from lib.training.curves import Curves
from papers import kept_curves, verdicts
from papers.a import speed, speed_figure
from papers.c import reviews, reviews_figure, vision
from papers.kept_curves import REMEASURED


class Picture(NamedTuple):
    """A figure of a study, and the claims that are judged by the same curves."""

    slug: str
    table: Callable[[Curves], Table]
    draw: Callable[[Curves], Figure]


def _faster(name: str, observed: str = "") -> Picture:
    return Picture(
        f"fastrates_{name}",
        lambda of: speed.table(of, name),
        lambda of: speed_figure.draw(of, name, observed),
    )


PICTURES = {
    "multi_nli_again": [_faster("fig1", "entropy")],
    "civil_comments": [_faster("fig4", "entropy")],
    "mnist": [_faster("fig6")],
    "cifar10": [_faster("fig7")],
    "vit": [Picture("mirror_vit", vision.table, reviews_figure.vision_figure)],
    "imdb": [
        Picture("mirror_imdb", reviews.accuracy_table, reviews_figure.accuracy_figure),
        Picture("mirror_sparsity", reviews.sparsity_table, reviews_figure.sparsity_figure),
        Picture("mirror_attention", reviews.attention_table, reviews_figure.attention_figure),
    ],
}


GIVEN_UP = ("fig7.adam", "vit.end")  # judged at first, and no claims of the papers' any more


def family() -> dict[str, tuple[Claim, float]]:
    """Every claim of the studies, by id, with Holm's adjusted p value over all of them.

    A claim that was given up, or is measured in a way chosen after the runs, counts as one of the
    family with p = 1: no other claim gains by it. In rising order of adjusted p. OSError or
    ValueError where a study's curves are missing or damaged.
    """
    judged = {
        claim.id: claim
        for study, pictures in PICTURES.items()
        for picture in pictures
        for claim in picture.table(kept_curves.kept(study, needed=True))
        if claim.verdict
    }
    own = {name: claim.p for name, claim in judged.items()}
    adjusted = verdicts.holm(own | dict.fromkeys([*GIVEN_UP, *REMEASURED], 1.0))
    return {name: (judged[name], p) for name, p in adjusted.items() if name in judged}


def told(found: dict[str, tuple[Claim, float]]) -> str:
    """`family` as a table: verdict, own p, p within the family, claim."""
    rows = [f"{'p':>8} {'Holm':>8}  {len(found) + len(GIVEN_UP)} claims of the studies"]
    for name, (claim, p) in found.items():
        rows.append(f"{claim.p:8.2g} {p:8.2g}  {name}: {claim.verdict}")
    return "\n".join(rows)


def redraw(study: str, out: Path) -> list[str]:
    """Draw the pictures of `study` into the folder `out`; a line for each picture and each verdict.

    Raises OSError or ValueError for a curve file that is missing, damaged or unfinished, and
    KeyError for an unknown study.
    """
    kept, said = kept_curves.kept(study, needed=True), []
    for picture in PICTURES[study]:
        picture.draw(kept).savefig(out / f"{picture.slug}.png")
        said += [picture.slug, textwrap.indent(picture.table(kept).words(), "  ")]
    return said


def _study(name: str) -> str:
    if name not in PICTURES:  # argparse's own `choices` refuse that no study is named
        raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(PICTURES)}")
    return name


def main(words: list[str] | None = None) -> int:
    """The command line; 1 where a study could not be redrawn."""
    parser = argparse.ArgumentParser(prog="python -m papers.redraw", description=__doc__)
    parser.add_argument("study", nargs="*", type=_study, help=", ".join(PICTURES))
    parser.add_argument("--out", type=Path, default=files.folder("runs") / "redrawn")
    asked = parser.parse_args(words)
    asked.out.mkdir(parents=True, exist_ok=True)
    plots.set_style()
    began, missing = time.perf_counter(), 0
    for study in asked.study or PICTURES:
        try:
            print("\n".join(redraw(study, asked.out)), flush=True)
        except (OSError, ValueError) as error:
            missing += 1
            print(f"{study}: not redrawn: {error}", flush=True)
    if not (asked.study or missing):
        print(told(family()))
    print(f"{time.perf_counter() - began:.1f} s; pictures in {asked.out}")
    return int(missing > 0)


if __name__ == "__main__":
    raise SystemExit(main())
