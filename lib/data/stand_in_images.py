"""Small image sets that need no file: scanned digits out of scikit-learn, and coloured shapes drawn here."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from lib import seeds

DIGITS_TEST_ROWS = 360
PICTURES_TRAIN_ROWS, PICTURES_TEST_ROWS = 2000, 500
SIDE = 32


@dataclass(frozen=True)
class Embedded:
    """A stand-in: `read(split)` gives pixels uint8 (N, C, H, W) and labels int64 (N,), the same every time."""

    name: str
    about: str
    rows: int
    read: Callable[[str], tuple[np.ndarray, np.ndarray]]
    revision: Callable[[], str]

    def identity(self) -> dict:
        """{name, source: demo, revision, rows}, as a figure record holds it."""
        return {"name": self.name, "source": "demo", "revision": self.revision(), "rows": self.rows}


def _digits(split: str) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    digits = load_digits()
    # The set has no split of its own; this one is fixed, whatever seed a run has.
    order = seeds.stream(0, "split").permutation(len(digits.target))
    rows = order[:DIGITS_TEST_ROWS] if split == "test" else order[DIGITS_TEST_ROWS:]
    pixels = np.rint(digits.images[rows] * (255 / 16)).astype(
        np.uint8
    )  # (N, 8, 8), grey levels 0 ... 16 spread
    return pixels[:, None], digits.target[rows].astype(np.int64)  # (N, 1, 8, 8), (N,)


def _pictures(split: str) -> tuple[np.ndarray, np.ndarray]:
    """One shape a picture at random place, size and colour: class = shape + 5 (stripes run upright)."""
    rng = seeds.stream(0, "data").spawn(2)[split == "test"]
    rows = PICTURES_TEST_ROWS if split == "test" else PICTURES_TRAIN_ROWS
    labels = rng.permutation(np.arange(rows) % 10)
    size, phase = rng.uniform(6, 11, rows), rng.uniform(0, 4, rows)
    centre = rng.uniform(11, SIDE - 11, (rows, 2))
    back, front = rng.uniform(0, 90, (rows, 3)), rng.uniform(150, 255, (rows, 3))
    grid = np.arange(SIDE) - centre[..., None]  # (rows, 2, SIDE)
    y, x = grid[:, 0, :, None] / size[:, None, None], grid[:, 1, None, :] / size[:, None, None]
    inside = np.select(
        [(labels % 5 == k)[:, None, None] for k in range(5)], _shapes(y, x)
    )  # (rows, SIDE, SIDE)
    along = np.where(
        (labels < 5)[:, None, None], *np.broadcast_arrays(grid[:, 0, :, None], grid[:, 1, None, :])
    )
    lit = inside * np.where((along + phase[:, None, None]) % 4 < 2, 1.0, 0.45)
    pixels = (
        back[:, :, None, None] + lit[:, None] * (front - back)[:, :, None, None]
    )  # (rows, 3, SIDE, SIDE)
    pixels += rng.normal(0, 12, pixels.shape)
    return np.clip(np.rint(pixels), 0, 255).astype(np.uint8), labels.astype(np.int64)


def _shapes(y: np.ndarray, x: np.ndarray) -> list[np.ndarray]:
    """Disk, square, triangle, cross and ring, in coordinates where a shape reaches from -1 to 1."""
    radius, largest = np.hypot(y, x), np.maximum(abs(y), abs(x))
    return [
        radius < 1, largest < 0.85, (abs(x) < (y + 1) / 2) & (y < 0.8),
        (np.minimum(abs(y), abs(x)) < 0.3) & (largest < 1), (radius < 1) & (radius > 0.55),
    ]  # fmt: skip


def _own_bytes() -> str:
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]


DIGITS = Embedded(
    name="digits",
    about="scikit-learn's 8 x 8 digits",
    rows=1797,
    read=_digits,
    revision=lambda: f"scikit-learn {version('scikit-learn')}",
)
PICTURES = Embedded(
    name="demo pictures",
    about="coloured shapes, generated here,",
    rows=PICTURES_TRAIN_ROWS + PICTURES_TEST_ROWS,
    read=_pictures,
    revision=_own_bytes,
)
