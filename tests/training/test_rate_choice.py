"""Tests of the rate at which a rule is judged.

A failure means that one rule is raced at a worse rate than another.
"""

import dataclasses

import numpy as np
import pytest

from lib.training.racing import Race
from lib.training.studies import STUDIES
from lib.training.study import ROUNDS, Study
from papers.studies import kept_curves
from tests.papers.worlds import clocked

STUDY = Study(
    name="invented",
    problem=lambda: None,
    rates={"SGD": (0.1, 0.2, 0.4, 0.8)},
    horizon=800,
    batch=1,
    window=4,
    targets=(0.5,),
    clock=5,
)


class Invented(Race):
    """The race of trials `trial(rate, steps)`.

    `asked` lists what was requested: (rate, up to which step). A rate in `before`
    {rate: steps} has run so far already, and this run is returned.
    """

    def __init__(self, study, trial, before=()):
        super().__init__(study, "SGD", self.take)
        self.trial = trial
        self.before = dict(before)
        self.asked = []

    def take(self, rates, steps):
        taken = {}
        for rate in rates:
            self.asked.append((rate, steps))
            further = max(steps, self.before.get(rate, 0))
            taken[rate] = self.trial(rate, further).until(steps)
        return taken

    def longest(self):
        """Return how far every rate was run."""
        return dict(self.asked)


def twice(first):
    """Return the rate that `first`, a maker of `Invented`, chooses.

    The choice must be the same if its runs are already there.
    """
    work = first(())
    chosen = work.best()
    again = first(work.longest())
    assert again.best() == chosen and again.asked == work.asked
    return chosen


def test_rates_that_all_diverge_are_named():
    with pytest.raises(
        ValueError, match="every rate of SGD diverged: 0.1, 0.2, 0.4, 0.8; give"
    ):
        race(
            dict.fromkeys((0.1, 0.2, 0.4, 0.8), 1.0), diverging=(0.1, 0.2, 0.4, 0.8)
        ).best()


def test_a_trial_that_was_dropped_before_its_third_reading_beats_a_diverged_one():
    """Both have an infinite score, and the diverged trial has the larger rate."""
    levels = {0.1: 1.0, 0.2: 1.0, 0.4: 0.5}

    def trial(rate, steps):
        if rate == 0.4 and steps > 6:
            return clocked(100, [0.5, 0.5], rate, status="diverged at step 7")
        return clocked(100, [levels[rate]], rate, steps=steps)

    study = dataclasses.replace(STUDY, rates={"SGD": (0.1, 0.2, 0.4)}, horizon=16)
    work = Invented(dataclasses.replace(study, extensions=0), trial)
    assert work.best() == 0.2 and work.longest() == {0.1: 4, 0.2: 4, 0.4: 8}


def test_a_trial_is_scored_by_the_steps_to_the_last_target_and_by_its_last_reading():
    study = dataclasses.replace(STUDY, targets=(0.75, 0.5))
    losses = np.repeat([1.0, 0.7, 0.4], [10, 15, 15])
    steps, last = study.score(clocked(100, losses))
    means = [losses[k - 2 : k + 1].mean() for k in range(2, 40)]
    assert steps == 5 * (2 + next(k for k, mean in enumerate(means) if mean <= 0.5))
    assert last == pytest.approx(0.4)


def test_accuracy_is_that_of_the_last_evaluations():
    study = dataclasses.replace(STUDY, options={"held_out": 400})
    found = {"metrics": {"test_accuracy": np.array([0.1, 0.2, 0.5, 0.6, 0.7, 0.8])}}
    at = np.array([0, 8, 16, 24, 32, 40])
    trial = clocked(100, np.ones(9), **found, evaluated_at=at)
    assert study.score(trial) == pytest.approx((0.0, -0.65))
    assert study.score(trial.until(32)) == pytest.approx((0.0, -0.5))


def race(speeds, diverging=(), noise=0.0, study=STUDY, before=()):
    """Return `Invented` trials whose loss is 2 exp(-speed step / 100), up to a
    ripple.
    """

    def trial(rate, steps):
        at = np.arange(0, steps + 1, 5)
        ripple = noise * (-1.0) ** np.arange(len(at))
        one = clocked(100, 2 * np.exp(-speeds[rate] * at / 100) + ripple, rate)
        if rate in diverging:
            return dataclasses.replace(
                one, status="diverged at step 7", loss=one.loss[:6]
            )
        return one

    return Invented(study, trial, before)


EARLY = dataclasses.replace(STUDY, targets=(0.7,))
ONE = {0.1: 0.01, 0.2: 0.02, 0.4: 0.5, 0.8: 0.03}
CLOSE = {0.1: 0.01, 0.2: 0.15, 0.4: 0.18, 0.8: 0.15}


@pytest.mark.parametrize(
    ("speeds", "how", "best", "ends"),
    [
        # Two are there, after about 140 to 160 steps.
        (
            {0.1: 0.1, 0.2: 0.4, 0.4: 1.0, 0.8: 0.9},
            dict(noise=0.5),
            0.4,
            {0.4: 200, 0.8: 200},
        ),
        # The race ends at twice the steps of the first one, or once all others are
        # dropped.
        (ONE, dict(noise=1.2, study=EARLY), 0.4, dict.fromkeys(ONE, 300)),
        (ONE, dict(study=EARLY), 0.4, {0.1: 200, 0.2: 200, 0.4: 300, 0.8: 200}),
        # A rate is dropped if it is worse by more than its error, judged at a quarter.
        (CLOSE, {}, 0.4, {0.1: 200}),
        (CLOSE, dict(noise=0.8), 0.4, {0.1: 700, 0.4: 700}),
        # A winner at an edge adds the next rate. A winner next to a diverged rate does
        # not.
        ({0.05: 1.0, 0.1: 1.5, 0.2: 1.0, 0.4: 0.9, 0.8: 0.8}, {}, 0.1, {0.05: 200}),
        ({0.1: 0.5, 0.2: 0.8, 0.4: 1.0, 0.8: 9.0}, dict(diverging=[0.8]), 0.4, {}),
        ({0.1: 0.1, 0.2: 0.4, 0.4: 1.0, 0.8: 1.2, 1.6: 1.1}, {}, 0.8, {1.6: 200}),
    ],
)
def test_a_race(speeds, how, best, ends):
    assert twice(lambda before: race(speeds, before=before, **how)) == best
    work = race(speeds, **how)
    work.best()
    longest = work.longest()
    assert set(longest) == set(speeds) and ends.items() <= longest.items()


def test_for_accuracy_a_rate_stays_within_the_error_of_the_held_out_rows():
    study = dataclasses.replace(STUDY, options={"held_out": 400})
    ends = {0.1: 0.60, 0.2: 0.75, 0.4: 0.80, 0.8: 0.79}

    def trial(rate, steps):
        at = np.arange(0, steps + 1, 50)
        metrics = {"test_accuracy": np.full(len(at), ends[rate])}
        return clocked(
            100, np.ones(3), rate, steps=steps, metrics=metrics, evaluated_at=at
        )

    work = Invented(study, trial)
    assert work.best() == 0.4 and work.longest() == {
        0.1: 200,
        0.2: 800,
        0.4: 800,
        0.8: 800,
    }


def test_held_out_rows_without_an_accuracy_on_them_are_refused():
    study = dataclasses.replace(STUDY, options={"held_out": 400})

    def trial(rate, steps):
        return clocked(100, np.ones(3), rate, steps=steps)

    with pytest.raises(ValueError, match="invented does not measure test_accuracy"):
        Invented(study, trial).best()


def test_one_bad_reading_of_an_accuracy_drops_no_rate():
    study = dataclasses.replace(STUDY, options={"held_out": 2_000})
    steady = {0.1: 0.84, 0.2: 0.85, 0.4: 0.855, 0.8: 0.70}

    def trial(rate, steps):
        at = np.arange(0, steps + 1, 50)
        accuracy = np.full(len(at), steady[rate])
        if rate == 0.4:
            accuracy[-1] -= 0.05  # the best rate, on its worst day
        metrics = {"test_accuracy": accuracy}
        return clocked(
            100, np.ones(3), rate, steps=steps, metrics=metrics, evaluated_at=at
        )

    work = Invented(study, trial)
    work.best()
    assert work.longest() == {0.1: 800, 0.2: 800, 0.4: 800, 0.8: 200}


@pytest.mark.parametrize("name", kept_curves.STUDIES.values())
def test_a_study_keeps_the_rules_of_the_protocol(name):
    study = STUDIES[name]
    assert study.seeds >= 3 and study.first_seed == 20 and study.extensions >= 2
    for rates in study.rates.values():
        assert len(rates) >= 3 and np.allclose(np.divide(rates[1:], rates[:-1]), 2)
    ends = study.horizon / ROUNDS * np.arange(1, ROUNDS + 1)
    # a race looks where a run was evaluated
    assert set(ends) <= set(study.points.tolist())
    assert study.criterion == "speed" or study.options["held_out"]
