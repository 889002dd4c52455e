"""Make a narrow version of each committed picture, for phones.

`python -m companion.thumbs` writes figures/thumbs/<slug>.png. This file has the
headline, and the panels of the picture one below the other, each in its original size.
The record of a picture says where its panels are.
"""

import argparse
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from companion import headlines, plots, record
from companion.tables import figures
from lib import files

DOTS_AN_INCH = 200  # resolution of the pictures
WIDE = 3.9  # inches: 780 dots, two for each of the 390 pixels of a phone's width
GAP = 12  # dots between two panels
# Dots around a panel. At the resolution of the picture, a text is wider by up to this
# many dots than at the resolution at which `plots.boxes` measured it.
EDGE = 10


def stacked(
    picture: Image.Image, places: Sequence, above: tuple[str, str]
) -> Image.Image:
    """Put the parts of a picture one below the other, under its headline.

    Parameters
    ----------
    picture : Image
        The picture.
    places : sequence
        The result of `plots.boxes`: the left, top, right and bottom of each part, as
        shares of the picture.
    above : tuple of str
        The headline and the reading instructions of the picture.

    Returns
    -------
    Image
        The narrow picture, `WIDE` inches wide. A part that is wider than this is scaled
        down.
    """
    width = int(WIDE * DOTS_AN_INCH)
    parts = [_words(above)]
    for left, top, right, bottom in places:
        x = picture.width * np.array([left, right])
        y = picture.height * np.array([top, bottom])
        left, right = max(0, int(x[0]) - EDGE), min(picture.width, int(x[1]) + EDGE)
        part = picture.crop((left, int(y[0]), right, int(y[1]) + 1))
        scale = min(1.0, width / part.width)
        size = int(part.width * scale), max(1, int(part.height * scale))
        parts.append(part.resize(size, Image.Resampling.LANCZOS))
    height = sum(part.height + GAP for part in parts)
    page = Image.new("RGB", (width, height), plots.PAPER)
    top = 0
    for part in parts:
        page.paste(part, ((width - part.width) // 2, top))
        top += part.height + GAP
    return page


def _words(above: tuple[str, str]) -> Image.Image:
    """Draw the headline and the line below it as a picture, `WIDE` inches wide."""
    figure = Figure(figsize=(WIDE, 0.01), dpi=DOTS_AN_INCH, layout="none")
    plots.heading(figure, *above)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def make(saved: Mapping, picture: Path, out: Path) -> bool:
    """Make the narrow version of one picture.

    Parameters
    ----------
    saved : mapping
        The picture's record.
    picture : Path
        The picture.
    out : Path
        Where the narrow version is written.

    Returns
    -------
    bool
        False if the record does not say where the panels are. In this case nothing is
        written.

    Raises
    ------
    ValueError
        If the headline quotes a number that the record lacks.
    OSError
        If the picture cannot be read, or if the narrow version cannot be written.
    """
    if not saved.get("panels"):
        return False
    with Image.open(picture) as whole:
        above = headlines.above(saved["slug"], saved)
        page = stacked(whole.convert("RGB"), saved["panels"], above)
    content = io.BytesIO()
    page.save(content, format="PNG", optimize=True)
    files.write(out, content.getvalue())
    return True


def main(argv: list[str] | None = None) -> int:
    """Make all narrow versions.

    The records are those of the figures in figures/index.toml.

    Parameters
    ----------
    argv : list of str, optional
        The words of the command, by default those of this process.

    Returns
    -------
    int
        The exit status: 1 if a record does not say where its panels are, or if a file
        cannot be read or written; otherwise 0. A picture that cannot be written stays
        as it was.

    Raises
    ------
    SystemExit
        With status 2 for any argument other than --help.
    """
    about = "Make a narrow version of each committed picture, in figures/thumbs."
    parser = argparse.ArgumentParser(
        prog="python -m companion.thumbs", description=about
    )
    parser.parse_args(argv)
    plots.set_style()
    folder = files.ROOT / "figures"
    lacking = []
    try:
        entries = [entry for _, some in figures.index(folder) for entry in some]
        for entry in entries:
            path = folder / entry.scale / f"{entry.slug}.json"
            out = folder / "thumbs" / f"{entry.slug}.png"
            if not make(record.read(path), path.with_suffix(".png"), out):
                lacking.append(entry.slug)
    except (OSError, ValueError) as error:
        print(f"companion.thumbs: {files.sentence(error)}", file=sys.stderr)
        return 1
    if lacking:
        print("no panels in the records of", ", ".join(lacking), file=sys.stderr)
    return int(bool(lacking))


if __name__ == "__main__":
    raise SystemExit(main())
