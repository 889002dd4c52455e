"""The papers' real-data studies, each a frozen value: sizes, rates, targets, when a run ends.

In: nothing. Out: `STUDIES` by name; their numbers stand in `notebooks/protocol.md`. Open `vision`
first.
"""

from dataclasses import replace

from lib.training.studies import demo, language, reviews, vision
from lib.training.studies.language import CIVIL_COMMENTS, MULTI_NLI, MULTI_NLI_AGAIN
from lib.training.studies.reviews import IMDB
from lib.training.studies.vision import CIFAR10, MNIST, VIT

DIGITS = replace(demo.MNIST, name="digits")  # needs no data
REAL = (MNIST, IMDB, CIFAR10, VIT, MULTI_NLI, MULTI_NLI_AGAIN, CIVIL_COMMENTS)
# The studies of the second protocol, in the order in which they are to be trained.
SECOND = (
    vision.MNIST_60000,
    reviews.IMDB_256,
    vision.CIFAR10_50000,
    vision.VIT_48000,
    language.CIVIL_COMMENTS_400,
    language.MULTI_NLI_200,
)
STUDIES = {study.name: study for study in (*REAL, *SECOND, DIGITS)}

__all__ = ["REAL", "STUDIES", "demo"]
