"""Whether two drawings of a figure show the same, from the pictures themselves.

Rounding on another processor moves a line by a pixel or two and leaves its colour,
width and dashes. So the amount of each colour, tile by tile, must be nearly the same,
and every mark must have its like close by.
"""

import io

import numpy as np
from PIL import Image

BLOCK = 3  # pixels: places are compared in blocks of this side
NEAR = 4  # blocks that a mark may move, under a hundredth of a page's width
FAINT = 0.25  # ink of a block that counts as much as all differences below it
MISSING = 0.3  # of a block's ink: so much may lack its like nearby
TILE = 240  # pixels: colours are measured in tiles of about this side
LEVELS = 4  # of red, green and blue each, between which colours are told apart
SHARE, SPECKS = 0.1, 0.0012  # of a colour's amount, of a tile: so much may change


def same(picture: bytes, other: bytes) -> bool:
    """Whether two PNGs show the same figure in the same style, up to what rounding
    moves; OSError or ValueError where one of them is no picture."""
    before, now = _ink(picture), _ink(other)
    if before.shape != now.shape:
        return False
    old, new = _amounts(before), _amounts(now)
    like = (abs(old - new) <= SHARE * np.maximum(old, new) + SPECKS).all()
    return bool(like) and _has_its_like(before, now) and _has_its_like(now, before)


def _ink(png: bytes) -> np.ndarray:
    """What a picture has beside white, (height, width, 3), in [0, 1]."""
    with Image.open(io.BytesIO(png)) as picture:
        return 1 - np.asarray(picture.convert("RGB"), np.float32) / 255


def _amounts(ink: np.ndarray) -> np.ndarray:
    """How much there is of each colour, the direction of its ink, in each tile: (tiles, colours).
    Each counts for the levels around it by how near they are: nothing jumps where it moves."""
    height, width = ink.shape[:2]
    rows, columns = (max(1, round(side / TILE)) for side in (height, width))
    row, column = (np.arange(n) * k // n for n, k in ((height, rows), (width, columns)))
    tile, weight = np.add.outer(row * columns, column), ink.max(-1)
    drawn = weight > 0
    tile, weight = tile[drawn], weight[drawn]
    place = ink[drawn] / weight[:, None] * (LEVELS - 1)  # (pixels, 3)
    low = np.minimum(place.astype(int), LEVELS - 2)
    amounts = np.zeros(rows * columns * LEVELS**3)
    for corner in np.ndindex(2, 2, 2):
        near = np.where(corner, place - low, 1 - place + low).prod(-1)
        colour = (low + corner) @ (LEVELS**2, LEVELS, 1)
        amounts += np.bincount(tile * LEVELS**3 + colour, weight * near, amounts.size)
    return amounts.reshape(rows * columns, -1) * rows * columns / (height * width)


def _has_its_like(ink: np.ndarray, other: np.ndarray) -> bool:
    """Whether what is drawn in `ink` is drawn in `other`, within NEAR blocks of its place."""
    from scipy import ndimage  # only where a picture is compared

    rows, columns = (side // BLOCK for side in ink.shape[:2])
    trimmed = (each[: rows * BLOCK, : columns * BLOCK] for each in (ink, other))
    means = (each.reshape(rows, BLOCK, columns, BLOCK, 3).mean((1, 3)) for each in trimmed)
    blocks, nearby = (ndimage.uniform_filter(each, (3, 3, 1)) for each in means)
    nearby = ndimage.maximum_filter(nearby, (2 * NEAR + 1, 2 * NEAR + 1, 1))
    return bool((blocks - nearby <= MISSING * (blocks + FAINT)).all())
