"""The papers' real-data studies, each a frozen value: sizes, rates, targets, when a run ends.

In: nothing. Out: `STUDIES` by name; their numbers stand in `notebooks/protocol.md`. Open `vision`
first.
"""

from dataclasses import replace

from lib.training.studies import demo
from lib.training.studies.language import CIVIL_COMMENTS, MULTI_NLI, MULTI_NLI_AGAIN
from lib.training.studies.reviews import IMDB
from lib.training.studies.vision import CIFAR10, MNIST, VIT

DIGITS = replace(demo.MNIST, name="digits")  # needs no data
REAL = (MNIST, IMDB, CIFAR10, VIT, MULTI_NLI, MULTI_NLI_AGAIN, CIVIL_COMMENTS)
STUDIES = {study.name: study for study in (*REAL, DIGITS)}

__all__ = ["REAL", "STUDIES", "demo"]
