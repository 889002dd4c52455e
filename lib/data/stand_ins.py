"""Small data sets that replace real data sets in a demo.

They contain scanned digits, drawn shapes and artificial sentences. Each function
returns columns of N values, and labels int64 (N,). Every call returns the same bytes.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from lib import files, seeds

TRAIN_ROWS = 2000
TEST_ROWS = 500
SIDE = 32
WORDS = files.read_table(Path(__file__).with_suffix(".toml"))


def _digits(split: str) -> tuple[tuple[np.ndarray], np.ndarray]:
    """Return a split of scikit-learn's digits, uint8 (N, 1, 8, 8), and the labels."""
    from sklearn.datasets import load_digits

    scans = load_digits()
    # The data set has no split of its own. Our split does not depend on the seed of a
    # run.
    order = seeds.stream(0, "split").permutation(len(scans.target))
    rows = order[:360] if split == "test" else order[360:]
    grey = np.rint(scans.images[rows] * (255 / 16))  # (N, 8, 8), from levels 0 ... 16
    return (grey.astype(np.uint8)[:, None],), scans.target[rows].astype(np.int64)


def _pictures(split: str) -> tuple[tuple[np.ndarray], np.ndarray]:
    """Draw images of a striped disk, square, triangle, cross or ring.

    The images are uint8 (N, 3, SIDE, SIDE). In the coordinates y and x below, a shape
    reaches from -1 to 1. The label is the number of the shape, 0 to 4, plus 5 if the
    stripes are vertical.
    """
    # Everything random is drawn here. The order must not change, since the pictures
    # depend on it.
    train_stream, test_stream = seeds.stream(0, "data").spawn(2)
    if split == "test":
        rng = test_stream
        rows = TEST_ROWS
    else:
        rng = train_stream
        rows = TRAIN_ROWS
    labels = rng.permutation(np.arange(rows) % 10)
    size = rng.uniform(6, 11, (rows, 1, 1))
    phase = rng.uniform(0, 4, (rows, 1, 1))  # of the stripes
    centre = rng.uniform(11, SIDE - 11, (rows, 2, 1))
    dark = rng.uniform(0, 90, (rows, 3, 1, 1))  # the colour of the ground
    bright = rng.uniform(150, 255, (rows, 3, 1, 1))  # the colour of the shape

    # The coordinates of the pixels, relative to the centre and the size of the shape.
    grid = np.arange(SIDE) - centre  # (N, 2, SIDE)
    down = grid[:, 0, :, None]  # (N, SIDE, 1)
    across = grid[:, 1, None, :]  # (N, 1, SIDE)
    y = down / size
    x = across / size

    # The pixels inside the shape.
    height = np.abs(y)
    width = np.abs(x)
    radius = np.hypot(y, x)
    largest = np.maximum(height, width)
    smallest = np.minimum(height, width)
    disk = radius < 1
    square = largest < 0.85
    triangle = (width < (y + 1) / 2) & (y < 0.8)
    cross = (smallest < 0.3) & (largest < 1)
    ring = disk & (radius > 0.55)
    shapes = [disk, square, triangle, cross, ring]
    number = labels[:, None, None] % 5
    chosen = [number == k for k in range(5)]
    inside = np.select(chosen, shapes)  # (N, SIDE, SIDE)

    # The stripes, which are horizontal or vertical and four pixels apart.
    is_level = labels[:, None, None] < 5
    position = np.where(is_level, down, across)  # (N, SIDE, SIDE)
    is_bright = (position + phase) % 4 < 2
    light = inside * np.where(is_bright, 1.0, 0.45)

    # The colours, with noise.
    pictures = dark + light[:, None] * (bright - dark)  # (N, 3, SIDE, SIDE)
    pictures += rng.normal(0, 12, pictures.shape)
    pictures = np.clip(np.rint(pictures), 0, 255)
    return (pictures.astype(np.uint8),), labels.astype(np.int64)


def _made(
    split: str, classes: int, make: Callable
) -> tuple[list[tuple[str, ...]], np.ndarray]:
    """Return the columns and labels of a split, whose rows `make(rng, label)` makes.

    There are TRAIN_ROWS or TEST_ROWS rows, in random order. `make` returns a row as a
    tuple of texts. The numbers of rows per label differ by at most one. No row of
    "test" also occurs in "train".
    """
    rng = seeds.stream(0, "data")
    rows = []
    # "test" is drawn after "train", so that it can leave out the rows of "train".
    counts = [TRAIN_ROWS]
    if split != "train":
        counts.append(TEST_ROWS)
    for count in counts:
        taken = set(rows)
        rows = []
        labels = np.arange(count) % classes
        while len(rows) < count:
            row = make(rng, int(labels[len(rows)]))
            if row not in taken:
                rows.append(row)
        order = rng.permutation(count)
    return list(zip(*(rows[k] for k in order), strict=True)), labels[order]


def _pick(rng: np.random.Generator, words: Sequence[str], besides: str = "") -> str:
    """Draw one of the words that differ from `besides`."""
    left = [word for word in words if word != besides]
    return left[rng.integers(len(left))]


def _pair(rng: np.random.Generator, label: int) -> tuple[str, str]:
    """Return a premise and a hypothesis.

    For label 0, the hypothesis repeats the premise but leaves something out. For label
    1, it adds something that the premise does not say. For label 2, it changes the
    place or the act, or says that nobody does this.
    """
    who, where, act, when = (
        _pick(rng, WORDS[k]) for k in ("people", "places", "acts", "times")
    )
    premise = f"The {who} in the {where} {act} {when}."
    if label == 0:
        ends = (
            f"The {who} {act}.",
            f"A {who} is in the {where}.",
            f"The {who} {act} {when}.",
        )
    elif label == 1:
        added = (f"The {who} {act} with a friend.", f"The tall {who} {act}.")
        ends = (*added, f"The {who} {act} and is happy.")
    else:
        place = _pick(rng, WORDS["places"], where)
        other = _pick(rng, WORDS["acts"], act)
        ends = (
            f"The {who} is in the {place}.",
            f"The {who} only {other}.",
            f"No {who} {act}.",
        )
    return premise, _pick(rng, ends)


def _comment(rng: np.random.Generator, label: int) -> tuple[str]:
    """Return one or two remarks on topics of a town, as a row of one column.

    For label 0, the last remark is polite. For label 1, it contains an insult, but
    names no group or person. If there is another remark, it is polite.
    """

    def remark(kind: str) -> str:
        return _pick(rng, WORDS[kind]).format(_pick(rng, WORDS["topics"]))

    if label:
        last = remark("rude")
    else:
        last = remark("polite")
    if rng.random() < 0.5:
        return (f"{remark('polite')} {last}",)
    return (last,)


def _review(rng: np.random.Generator, label: int) -> tuple[str]:
    """Return a review with three opinions on a film, as a row of one column.

    Two or three of the opinions agree with the label, which is 0 for a negative review
    and 1 for a positive one.
    """
    if label:
        agreeing = WORDS["good"]
        opposite = WORDS["bad"]
    else:
        agreeing = WORDS["bad"]
        opposite = WORDS["good"]
    words = [_pick(rng, agreeing), _pick(rng, agreeing)]
    if rng.random() < 0.5:
        words.append(_pick(rng, opposite))
    else:
        words.append(_pick(rng, agreeing))
    parts = rng.permutation(WORDS["parts"])[:3]
    first, second, third = map(
        " is ".join, zip(parts, rng.permutation(words), strict=True)
    )
    return (f"In this {_pick(rng, WORDS['films'])} {first}, {second} and {third}.",)


STAND_INS = {
    "digits": _digits,
    "demo pictures": _pictures,
    "demo pairs": partial(_made, classes=3, make=_pair),
    "demo comments": partial(_made, classes=2, make=_comment),
    "demo reviews": partial(_made, classes=2, make=_review),
}
