"""Which rate a rule is judged at, and which runs that takes."""

import dataclasses

import numpy as np
import pytest

from lib.training.rate_choice import choose, score
from lib.training.study import Study
from tests.training.worlds import curve

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


def fresh(diverging, asked):
    """A study's first time: a quarter of a run is what has been run by then."""

    def trials(rates, until):
        asked.extend((rate, until) for rate in rates)
        return [trial(rate, until or 40, diverging.get(rate)) for rate in rates]

    return trials


def taken_up(diverging, asked):
    """The same study later: the whole runs of kept rates are there, and are handed out."""
    before = []
    choose(STUDY, "SGD", fresh(diverging, before))
    whole = {rate for rate, until in before if not until}

    def trials(rates, until):
        asked.extend((rate, until) for rate in rates)
        steps = {rate: 40 if rate in whole else until or 40 for rate in rates}
        return [trial(rate, steps[rate], diverging.get(rate)) for rate in rates]

    return trials


@pytest.mark.parametrize("diverging", [{}, {0.8: 11}, {0.8: 30}, {0.8: 5}, {0.4: 30}])
def test_a_study_taken_up_again_chooses_as_it_did(diverging):
    first, second = [], []
    chosen = choose(STUDY, "SGD", fresh(diverging, first))
    assert choose(STUDY, "SGD", taken_up(diverging, second)) == chosen
    assert second == first


def test_the_best_half_at_a_quarter_goes_on():
    asked = []
    assert choose(STUDY, "SGD", fresh({}, asked)) == 0.8
    assert [rate for rate, until in asked if not until] == [0.8, 0.4, 1.6]


def test_rates_that_all_diverge_are_named_apart_from_those_that_were_dropped():
    with pytest.raises(ValueError) as caught:
        choose(STUDY, "SGD", fresh({0.4: 30, 0.8: 30}, []))
    assert str(caught.value) == (
        "invented: every rate of SGD diverged: 0.4, 0.8 "
        "(dropped at a quarter of the steps: 0.1, 0.2); give the study lower rates"
    )


def test_a_trial_is_scored_by_the_steps_to_the_last_target_in_the_units_of_its_loss():
    study = dataclasses.replace(STUDY, targets=(0.75, 0.5), loss_rows=10)
    loss = np.repeat([10.0, 7.0, 4.0], [10, 15, 15])  # of ten rows: 1.0, 0.7, 0.4 a row
    steps, last = score(study, curve("SGD", 100, loss, "trial"))
    means = [loss[k - 4 : k].mean() for k in range(4, 41)]
    assert steps == 4 + next(k for k, mean in enumerate(means) if mean <= 5.0)
    assert last == pytest.approx(4.0)


def test_accuracy_is_that_of_the_last_evaluations():
    study = dataclasses.replace(STUDY, criterion="accuracy")
    found = np.array([0.1, 0.2, 0.5, 0.6, 0.7, 0.8])
    trial = curve("SGD", 100, np.ones(40), "trial", metrics={"test_accuracy": found})
    assert score(study, trial) == pytest.approx((0.0, -0.65))
