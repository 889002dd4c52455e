"""Which rate a rule is judged at, and which runs that takes."""

import dataclasses

import numpy as np
import pytest

from lib.training.study import Study, Work
from tests.papers.worlds import curve

STUDY = Study(
    name="invented",
    problem=lambda: None,
    rates={"SGD": (0.1, 0.2, 0.4, 0.8)},
    horizon=40,
    batch=1,
    window=4,
    targets=(0.5,),
)
# Final loss by rate; the first quarter tells them apart in the same order.
LOSSES = {0.1: 0.9, 0.2: 0.8, 0.4: 0.7, 0.8: 0.6, 0.05: 0.95, 1.6: 1.1}


def trial(rate, steps=40, diverges_at=None):
    loss = np.full(steps, 1 + LOSSES[rate])[: None if diverges_at is None else diverges_at - 1]
    status = f"paused after step {steps}" if steps < 40 else "finished"
    if diverges_at is not None and diverges_at <= steps:
        status = f"diverged at step {diverges_at}"
    return dataclasses.replace(curve("SGD", 100, loss, "trial", rate), status=status)


class Invented(Work):
    """A study whose trials are known, and `asked` for: (rate, up to which step).

    A rate that is `whole` has been run to its end before, and that run is handed out.
    """

    def __init__(self, diverging, whole=()):
        self.study, self.diverging, self.whole, self.asked = STUDY, diverging, whole, []

    def all_of(self, runs, until=None):
        rates = [run["rate"] for run in runs]
        self.asked += [(rate, until) for rate in rates]
        steps = {rate: 40 if rate in self.whole else until or 40 for rate in rates}
        return [trial(rate, steps[rate], self.diverging.get(rate)) for rate in rates]


@pytest.mark.parametrize("diverging", [{}, {0.8: 11}, {0.8: 30}, {0.8: 5}, {0.4: 30}])
def test_a_study_taken_up_again_chooses_as_it_did(diverging):
    first = Invented(diverging)
    chosen = first.best("SGD", None)
    second = Invented(diverging, {rate for rate, until in first.asked if not until})
    assert second.best("SGD", None) == chosen and second.asked == first.asked


def test_rates_that_all_diverge_are_named_without_those_that_were_dropped():
    with pytest.raises(ValueError, match="every rate of SGD diverged.*dropped: 0.4, 0.8; give the"):
        Invented({0.4: 30, 0.8: 30}).best("SGD", None)


def test_a_trial_is_scored_by_the_steps_to_the_last_target_in_the_units_of_its_loss():
    study = dataclasses.replace(STUDY, targets=(0.75, 0.5), loss_rows=10)
    loss = np.repeat([10.0, 7.0, 4.0], [10, 15, 15])  # of ten rows: 1.0, 0.7, 0.4 a row
    steps, last = study.score(curve("SGD", 100, loss, "trial"), 40)
    means = [loss[k - 4 : k].mean() for k in range(4, 41)]
    assert steps == 4 + next(k for k, mean in enumerate(means) if mean <= 5.0)
    assert last == pytest.approx(4.0)


def test_accuracy_is_that_of_the_last_evaluations():
    study = dataclasses.replace(STUDY, criterion="accuracy")
    found = {"metrics": {"test_accuracy": np.array([0.1, 0.2, 0.5, 0.6, 0.7, 0.8])}}
    at = np.array([0, 8, 16, 24, 32, 40])
    trial = curve("SGD", 100, np.ones(40), "trial", **found, evaluated_at=at)
    assert study.score(trial, 40) == pytest.approx((0.0, -0.65))
    assert study.score(trial, 32) == pytest.approx((0.0, -0.5))
