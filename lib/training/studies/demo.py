"""The same studies in seconds, for the notebooks' smoke tests: smaller networks, few steps,
stand-in data.

They show that the code runs, and nothing about the papers' claims.
"""

from dataclasses import replace
from functools import partial

from lib.training.studies import language, reviews, vision

SMALL = dict(width=32, depth=2, heads=4, hidden=64)
SHORT = dict(seeds=2, evaluations=4, window=20)


def _middle(rates):
    """Two rates out of the middle of each rule's grid."""
    return {rule: tuple(values[1:3]) for rule, values in rates.items()}


MNIST = replace(
    vision.MNIST,
    problem=partial(vision.classify, "mnist", 1400, 4, SMALL, batch=50, demo=True),
    rates=_middle(vision.MNIST.rates),
    horizon=120,
    targets=(1.8, 1.2),
    **SHORT,
)
CIFAR10 = replace(
    vision.CIFAR10,
    problem=partial(vision.classify, "cifar10", 2000, 4, SMALL, batch=50, demo=True),
    rates=_middle(vision.CIFAR10.rates),
    horizon=80,
    targets=(2.2, 2.0),
    **SHORT,
)
VIT = replace(
    vision.VIT,
    problem=partial(vision.augmented, 1600, 400, 32, 8, SMALL, batch=50, demo=True),
    rates=_middle(vision.VIT.rates),
    horizon=80,
    **SHORT,
)
IMDB = replace(
    reviews.IMDB,
    problem=partial(reviews.reviews, 24, 200, 2, 24, 48, batch=50, held=400, demo=True),
    rates=_middle(reviews.IMDB.rates),
    horizon=120,
    **SHORT,
)
MULTI_NLI = replace(
    language.MULTI_NLI,
    problem=partial(language.classify, "multi_nli", 24, 16, None),
    rates={"SGD": (0.1, 0.3), "Adam": (1e-3, 3e-3), "SPS": (0.3, 1.0), "SNGD": (0.1, 0.3)},
    horizon=60,
    targets=(1.1, 1.0),
    **SHORT,
)
CIVIL_COMMENTS = replace(
    MULTI_NLI,
    name="civil_comments",
    problem=partial(language.classify, "civil_comments", 24, 16, None),
    targets=(0.6, 0.4),
)
DEMO = {study.name: study for study in (MNIST, IMDB, CIFAR10, VIT, MULTI_NLI, CIVIL_COMMENTS)}
