"""The studies in seconds, for smoke tests: smaller networks, few steps, stand-in data.

They show that the code runs, and nothing about the papers' claims.
"""

from collections.abc import Mapping
from dataclasses import replace

from lib.training.studies import language, reviews, vision
from lib.training.study import Study


def _small(study: Study, horizon: int, options: Mapping, **changes) -> Study:
    """`study` with these `options`, two rates out of the middle of each grid and none beyond.

    So few steps cannot tell whether the best rate lies beyond the grid.
    """
    fixed = dict(seeds=2, evaluations=4, window=20, extensions=0, horizon=horizon)
    fixed["rates"] = {rule: tuple(values[1:3]) for rule, values in study.rates.items()}
    return replace(study, **fixed | {"options": {**study.options, **options}} | changes)


SMALL = dict(shape=vision.SMALL, demo=True)
TINY = dict(size=2, width=24, hidden=48)
RATES = {"SGD": (0.1, 0.3), "Adam": (1e-3, 3e-3), "SPS": (0.3, 1.0), "SNGD": (0.1, 0.3)}
SHORT = dict(length=24, layers=None, rows=None)
MNIST = _small(vision.MNIST, 120, SMALL | {"rows": 1400}, targets=(1.8, 1.2))
CIFAR10 = _small(vision.CIFAR10, 80, SMALL | {"rows": 2000}, targets=(2.2, 2.0))
VIT = _small(vision.VIT, 80, SMALL | {"rows": 1600, "held_out": 400})
IMDB = _small(reviews.IMDB, 120, dict(length=24, words=200, shape=TINY, held_out=400, demo=True))
MULTI_NLI = _small(language.MULTI_NLI, 60, SHORT, rates=RATES, targets=(1.1, 1.0))
CIVIL_COMMENTS = replace(
    MULTI_NLI,
    name="civil_comments",
    options=dict(name="civil_comments", **SHORT),
    targets=(0.6, 0.4),
)


def digits(rates: Mapping[str, tuple[float, ...]]) -> Study:
    """The small study on handwritten digits, of the rules of `RULES` that `rates` names."""
    return replace(MNIST, rates=rates)


DEMO = {study.name: study for study in (MNIST, IMDB, CIFAR10, VIT, MULTI_NLI, CIVIL_COMMENTS)}
