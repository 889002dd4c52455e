"""The papers' real-data studies, each a frozen value: sizes, rates, targets, when a run ends.

In: nothing. Out: `STUDIES` by name. `python -m lib.training study NAME` runs one; their numbers
stand in `notebooks/protocol.md`.
"""

from lib.training.studies import demo
from lib.training.studies.language import CIVIL_COMMENTS, MULTI_NLI, MULTI_NLI_AGAIN
from lib.training.studies.reviews import IMDB
from lib.training.studies.vision import CIFAR10, MNIST, VIT

STUDIES = {
    study.name: study
    for study in (MNIST, IMDB, CIFAR10, VIT, MULTI_NLI, MULTI_NLI_AGAIN, CIVIL_COMMENTS)
}

__all__ = [
    "CIFAR10",
    "CIVIL_COMMENTS",
    "IMDB",
    "MNIST",
    "MULTI_NLI",
    "MULTI_NLI_AGAIN",
    "STUDIES",
    "VIT",
    "demo",
]
