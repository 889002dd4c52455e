"""Every figure and verdict of the real-data studies from their kept curves, without training.

`python -m lib.papers.redraw [STUDY ...] [--out FOLDER]` writes one PNG per picture to runs/redrawn/
and prints each study's verdicts in words. A study without kept curves is named and left out.
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
from lib.companion.claims import Table
from lib.papers.a import speed, speed_figure
from lib.papers.c import reviews, reviews_figure, vision
from lib.training import curves
from lib.training.curves import Curves


class Picture(NamedTuple):
    """A figure of a study, and the claims that are judged by the same curves."""

    slug: str
    table: Callable[[Curves], Table]
    draw: Callable[[Curves], Figure]


def _faster(slug: str, judged: Callable, name: str, panel: str | None = None) -> Picture:
    also = () if panel is None else (panel,)
    return Picture(slug, lambda of: judged(of, name), lambda of: speed_figure.draw(of, *also))


PICTURES = {
    "multi_nli_again": [_faster("fastrates_fig1", speed.language_table, "fig1", "entropy")],
    "civil_comments": [_faster("fastrates_fig4", speed.language_table, "fig4", "entropy")],
    "mnist": [_faster("fastrates_fig6", speed.vision_table, "fig6")],
    "cifar10": [_faster("fastrates_fig7", speed.vision_table, "fig7")],
    "vit": [Picture("mirror_vit", vision.table, reviews_figure.vision_figure)],
    "imdb": [
        Picture("mirror_imdb", reviews.accuracy_table, reviews_figure.accuracy_figure),
        Picture("mirror_sparsity", reviews.sparsity_table, reviews_figure.sparsity_figure),
        Picture("mirror_attention", reviews.attention_table, reviews_figure.attention_figure),
    ],
}


def redraw(study: str, out: Path) -> list[str]:
    """Draw the pictures of `study` into the folder `out`; a line for each picture and each verdict.

    Raises OSError or ValueError for a curve file that is missing, damaged or unfinished, and
    KeyError for an unknown study.
    """
    kept, said = curves.kept(study, needed=True), []
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
    parser = argparse.ArgumentParser(prog="python -m lib.papers.redraw", description=__doc__)
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
    print(f"{time.perf_counter() - began:.1f} s; pictures in {asked.out}")
    return int(missing > 0)


if __name__ == "__main__":
    raise SystemExit(main())
