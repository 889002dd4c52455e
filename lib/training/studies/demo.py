"""The studies in seconds, for smoke tests: smaller networks, few steps, stand-in data.

They show that the code runs, and nothing about the papers' claims.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from lib.training.studies import language, reviews, vision
from lib.training.study import Study

SMALL = dict(width=32, depth=2, heads=4, hidden=64)


def _small(study: Study, horizon: int, problem, **changes) -> Study:
    """`study` on `problem`, with two rates out of the middle of each rule's grid and none beyond.

    So few steps cannot tell whether the best rate lies beyond the grid.
    """
    rates = {rule: tuple(values[1:3]) for rule, values in study.rates.items()}
    changes = {
        "rates": rates,
        "seeds": 2,
        "evaluations": 4,
        "window": 20,
        "extensions": 0,
    } | changes
    return replace(study, horizon=horizon, problem=problem, **changes)


MNIST = _small(
    vision.MNIST,
    120,
    partial(vision.classify, "mnist", 1400, 4, SMALL, batch=50, demo=True),
    targets=(1.8, 1.2),
)
CIFAR10 = _small(
    vision.CIFAR10,
    80,
    partial(vision.classify, "cifar10", 2000, 4, SMALL, batch=50, demo=True),
    targets=(2.2, 2.0),
)
VIT = _small(
    vision.VIT, 80, partial(vision.augmented, 1600, 400, 32, 8, SMALL, batch=50, demo=True)
)
TINY = dict(size=2, width=24, hidden=48)
IMDB = _small(
    reviews.IMDB, 120, partial(reviews.reviews, 24, 200, TINY, batch=50, held=400, demo=True)
)
MULTI_NLI = _small(
    language.MULTI_NLI,
    60,
    partial(language.classify, "multi_nli", 24, 16, None),
    rates={"SGD": (0.1, 0.3), "Adam": (1e-3, 3e-3), "SPS": (0.3, 1.0), "SNGD": (0.1, 0.3)},
    targets=(1.1, 1.0),
)
CIVIL_COMMENTS = replace(
    MULTI_NLI,
    name="civil_comments",
    problem=partial(language.classify, "civil_comments", 24, 16, None),
    targets=(0.6, 0.4),
)


def digits(rates: Mapping[str, tuple[float, ...]]) -> Study:
    """The small study on handwritten digits, of the rules of `RULES` that `rates` names."""
    return replace(MNIST, rates=rates)


DEMO = {study.name: study for study in (MNIST, IMDB, CIFAR10, VIT, MULTI_NLI, CIVIL_COMMENTS)}
