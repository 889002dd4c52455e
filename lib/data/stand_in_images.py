"""Small image sets that need no file.

Scikit-learn's scanned digits, and coloured shapes drawn here.
"""

import numpy as np

from lib import seeds

DIGITS_TEST_ROWS = 360
PICTURES_TRAIN_ROWS, PICTURES_TEST_ROWS = 2000, 500
SIDE = 32
BLOCK = 100  # pictures drawn at once


def digits(split: str) -> tuple[tuple[np.ndarray], np.ndarray]:
    """Pixels uint8 (N, 1, 8, 8) and labels int64 (N,), each digit in one split."""
    from sklearn.datasets import load_digits

    scans = load_digits()
    # The set has no split of its own; this one is fixed, whatever seed a run has.
    order = seeds.stream(0, "split").permutation(len(scans.target))
    rows = order[:DIGITS_TEST_ROWS] if split == "test" else order[DIGITS_TEST_ROWS:]
    grey = np.rint(scans.images[rows] * (255 / 16))  # (N, 8, 8), levels 0 ... 16 spread
    return (grey.astype(np.uint8)[:, None],), scans.target[rows].astype(np.int64)


def pictures(split: str) -> tuple[tuple[np.ndarray], np.ndarray]:
    """Pixels uint8 (N, 3, SIDE, SIDE) and labels int64 (N,).

    One shape a picture at random place, size and colour: class = shape + 5 (stripes run upright).
    """
    rng = seeds.stream(0, "data").spawn(2)[split == "test"]
    rows = PICTURES_TEST_ROWS if split == "test" else PICTURES_TRAIN_ROWS
    labels = rng.permutation(np.arange(rows) % 10)
    size, phase = rng.uniform(6, 11, rows), rng.uniform(0, 4, rows)
    centre = rng.uniform(11, SIDE - 11, (rows, 2))
    back, front = rng.uniform(0, 90, (rows, 3)), rng.uniform(150, 255, (rows, 3))
    pixels = np.empty((rows, 3, SIDE, SIDE), np.uint8)
    for first in range(0, rows, BLOCK):  # all of them in float64 would take 200 MB
        part = slice(first, first + BLOCK)
        lit = _lit(labels[part], size[part], phase[part], centre[part])[:, None]
        dark, bright = back[part, :, None, None], front[part, :, None, None]
        drawn = dark + lit * (bright - dark)  # (b, 3, SIDE, SIDE)
        drawn += rng.normal(0, 12, drawn.shape)
        pixels[part] = np.clip(np.rint(drawn), 0, 255)
    return (pixels,), labels.astype(np.int64)


def _lit(labels: np.ndarray, size: np.ndarray, phase: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """How much of the front colour each pixel has, (b, SIDE, SIDE); centre (b, 2), else (b,)."""
    grid = np.arange(SIDE) - centre[..., None]  # (b, 2, SIDE)
    down, across = grid[:, 0, :, None], grid[:, 1, None, :]  # (b, SIDE, 1), (b, 1, SIDE)
    phase, size, level = (values[:, None, None] for values in (phase, size, labels < 5))
    shapes = _shapes(down / size, across / size)
    chosen = [(labels % 5 == k)[:, None, None] for k in range(5)]
    inside = np.select(chosen, shapes)  # (b, SIDE, SIDE)
    along = np.where(level, *np.broadcast_arrays(down, across))
    return inside * np.where((along + phase) % 4 < 2, 1.0, 0.45)


def _shapes(y: np.ndarray, x: np.ndarray) -> list[np.ndarray]:
    """Disk, square, triangle, cross and ring, in coordinates where a shape reaches from -1 to 1."""
    radius, largest = np.hypot(y, x), np.maximum(abs(y), abs(x))
    triangle = (abs(x) < (y + 1) / 2) & (y < 0.8)
    cross = (np.minimum(abs(y), abs(x)) < 0.3) & (largest < 1)
    return [radius < 1, largest < 0.85, triangle, cross, (radius < 1) & (radius > 0.55)]
