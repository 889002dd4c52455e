"""Small text sets made here: sentences from templates, labelled by how they were put together.

They stand in where the real set is nowhere. Whoever reads them should see at once that they are not
real.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from lib import seeds

TRAIN_ROWS, TEST_ROWS = 2000, 500
Row = Callable[[np.random.Generator, int], tuple[str, ...]]  # the sentences of one row

PEOPLE = tuple("teacher farmer doctor painter sailor baker singer pilot nurse writer".split())
PLACES = tuple("library garden market station kitchen harbour museum school theatre office".split())
ACTS = (
    *("reads a letter", "drinks tea", "repairs a chair", "draws a map", "feeds a cat"),
    *("counts coins", "waters plants", "writes a song", "cleans a window", "sorts books"),
)
TIMES = ("in the morning", "at noon", "in the evening", "after lunch", "on Monday", "every day")

TOPICS = (
    *("the new bridge", "the bus timetable", "the school roof", "the town budget"),
    *("the parking rules", "the river path", "the recycling plan", "the market hall"),
    *("the tram line", "the swimming pool"),
)
POLITE = (
    "I disagree with the report on {}, but the figures help.",
    "Thank you for the clear article on {}.",
    "Could someone explain what {} will cost?",
    "My neighbours and I support {}.",
    "Two more years for {} seem long to me.",
    "The council should publish the numbers for {}.",
)
RUDE = (
    "Only a fool would like {}, and you are one.",
    "What a stupid thing to write about {}, you clown.",
    "Anyone who wants {} is an idiot.",
    "Shut up about {}, nobody cares what losers think.",
    "Your ridiculous opinion on {} is garbage, as always.",
    "You people who praise {} are pathetic.",
)

FILMS = ("film", "comedy", "drama", "thriller", "documentary", "western")
PARTS = ("the acting", "the music", "the plot", "the dialogue", "the ending", "the camera work")
GOOD = ("moving", "brilliant", "charming", "gripping", "wonderful", "clever")
BAD = ("dull", "clumsy", "tedious", "hollow", "awful", "lazy")


def _made(split: str, classes: int, make: Row) -> tuple[list[tuple[str, ...]], np.ndarray]:
    """The columns of "train" or "test" and their labels int64 (N,), every label equally often.

    `make(rng, label)` gives the sentences of a row. The same bytes every time; no row of
    "test" is in "train".
    """
    rng = seeds.stream(0, "data")
    rows, labels = _draw(rng, TRAIN_ROWS, classes, make, set())
    if split == "test":
        rows, labels = _draw(rng, TEST_ROWS, classes, make, set(rows))
    return list(zip(*rows, strict=True)), labels


def _draw(rng, count: int, classes: int, make: Row, taken: set):
    rows, labels = [], np.arange(count) % classes
    while len(rows) < count:
        row = make(rng, int(labels[len(rows)]))
        if row not in taken:
            rows.append(row)
    order = rng.permutation(count)
    return [rows[k] for k in order], labels[order]


def _pick(rng, words: tuple[str, ...], besides: str = "") -> str:
    left = [word for word in words if word != besides]
    return left[rng.integers(len(left))]  # what `rng.choice` takes, without an array of the words


def _pair(rng, label: int) -> tuple[str, str]:
    """Premise and hypothesis of one label.

    0 leaves something out, 1 adds something unsaid, 2 changes place or act.
    """
    who, where, act, when = (_pick(rng, words) for words in (PEOPLE, PLACES, ACTS, TIMES))
    premise = f"The {who} in the {where} {act} {when}."
    if label == 0:
        ends = (f"The {who} {act}.", f"A {who} is in the {where}.", f"The {who} {act} {when}.")
    elif label == 1:
        added = (f"The {who} {act} with a friend.", f"The tall {who} {act}.")
        ends = (*added, f"The {who} {act} and is happy.")
    else:
        place, other = _pick(rng, PLACES, where), _pick(rng, ACTS, act)
        ends = (f"The {who} is in the {place}.", f"The {who} only {other}.", f"No {who} {act}.")
    return premise, _pick(rng, ends)


def _comment(rng, label: int) -> tuple[str]:
    """A remark on a town topic: 0 polite, 1 an insult without any group or person in it."""
    first = _pick(rng, RUDE if label else POLITE).format(_pick(rng, TOPICS))
    second = _pick(rng, POLITE).format(_pick(rng, TOPICS)) if rng.random() < 0.5 else ""
    return (f"{second} {first}".strip(),)


def _review(rng, label: int) -> tuple[str]:
    """Three verdicts on a film; two or three of them decide the label: 0 negative, 1 positive."""
    mine, other = (GOOD, BAD) if label else (BAD, GOOD)
    words = [_pick(rng, mine), _pick(rng, mine), _pick(rng, other if rng.random() < 0.5 else mine)]
    parts = rng.permutation(PARTS)[:3]
    verdicts = [
        f"{part} is {word}" for part, word in zip(parts, rng.permutation(words), strict=True)
    ]
    return (f"In this {_pick(rng, FILMS)} {verdicts[0]}, {verdicts[1]} and {verdicts[2]}.",)


STAND_INS = {
    "demo pairs": partial(_made, classes=3, make=_pair),
    "demo comments": partial(_made, classes=2, make=_comment),
    "demo reviews": partial(_made, classes=2, make=_review),
}
