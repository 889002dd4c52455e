"""The smallest study, in seconds on stand-in data: what tests and smoke runs take."""

from functools import partial

from lib.training.studies.language import classify
from lib.training.study import Study

PAIRS = Study(
    name="pairs",
    problem=partial(classify, "multi_nli", 24, 8, None),
    rates={"SGD": (0.1, 0.3), "SPS": (0.3, 1.0), "SNGD": (0.1, 0.3)},
    horizon=24,
    batch=8,
    window=4,
    targets=(1.1, 1.0),
    stop=lambda found: False,
    stop_words="never",
    seeds=2,
    evaluations=3,
)
