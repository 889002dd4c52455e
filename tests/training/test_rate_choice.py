"""Which rate a rule is judged at, and which runs that takes."""

import dataclasses

import numpy as np
import pytest

from lib.training.studies import STUDIES
from lib.training.study import ROUNDS, Study, Work
from tests.papers.worlds import clocked, curve

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
    """A study whose trials are `trial(rate, steps)`, and `asked` for: (rate, up to which step).

    A rate of `before` {rate: steps} has been run so far before, and that run is handed out.
    """

    def __init__(self, study, trial, before=()):
        self.study, self.trial, self.before, self.asked = study, trial, dict(before), []

    def all_of(self, runs, until=None):
        rates = [run["rate"] for run in runs]
        self.asked += [(rate, until) for rate in rates]
        end = until or self.study.horizon
        return [self.trial(rate, max(end, self.before.get(rate, 0))) for rate in rates]

    def best(self, rule="SGD", cap=None):
        return super().best(rule, cap)

    def longest(self):
        """How far every rate was run."""
        return {rate: until or self.study.horizon for rate, until in self.asked}


@pytest.mark.parametrize("diverging", [{}, {0.8: 11}, {0.8: 30}, {0.8: 5}, {0.4: 30}])
def test_a_study_taken_up_again_chooses_as_it_did(diverging):
    of = lambda rate, steps: trial(rate, steps, diverging.get(rate))
    first = Invented(STUDY, of)
    chosen = first.best()
    second = Invented(STUDY, of, first.longest())
    assert second.best() == chosen and second.asked == first.asked


def test_rates_that_all_diverge_are_named_without_those_that_were_dropped():
    with pytest.raises(ValueError, match="every rate of SGD diverged.*dropped: 0.4, 0.8; give the"):
        Invented(STUDY, lambda rate, steps: trial(rate, steps, 30 if rate > 0.3 else None)).best()


def test_a_trial_is_scored_by_the_steps_to_the_last_target_in_the_units_of_its_loss():
    study = dataclasses.replace(STUDY, targets=(0.75, 0.5), loss_rows=10)
    loss = np.repeat([10.0, 7.0, 4.0], [10, 15, 15])  # of ten rows: 1.0, 0.7, 0.4 a row
    steps, last = study.score(curve("SGD", 100, loss, "trial"))
    means = [loss[k - 4 : k].mean() for k in range(4, 41)]
    assert steps == 4 + next(k for k, mean in enumerate(means) if mean <= 5.0)
    assert last == pytest.approx(4.0)


def test_accuracy_is_that_of_the_last_evaluations():
    study = dataclasses.replace(STUDY, criterion="accuracy")
    found = {"metrics": {"test_accuracy": np.array([0.1, 0.2, 0.5, 0.6, 0.7, 0.8])}}
    at = np.array([0, 8, 16, 24, 32, 40])
    trial = curve("SGD", 100, np.ones(40), "trial", **found, evaluated_at=at)
    assert study.score(trial) == pytest.approx((0.0, -0.65))
    assert study.score(trial.until(32)) == pytest.approx((0.0, -0.5))


RACE = dataclasses.replace(STUDY, horizon=800, clock=5)


def race(speeds, diverging=(), noise=0.0, study=RACE, before=()):
    """`Invented` trials whose loss is 2 exp(-speed step / 100), up to a ripple."""

    def trial(rate, steps):
        at = np.arange(0, steps + 1, 5)
        ripple = noise * (-1.0) ** np.arange(len(at))
        one = clocked(100, 2 * np.exp(-speeds[rate] * at / 100) + ripple, rate)
        if rate in diverging:
            return dataclasses.replace(one, status="diverged at step 7", loss=one.loss[:6])
        return one

    return Invented(study, trial, before)


def test_a_race_takes_the_fewest_steps_and_ends_when_two_are_there():
    work = race({0.1: 0.1, 0.2: 0.4, 0.4: 1.0, 0.8: 0.9}, noise=0.5)
    assert work.best() == 0.4
    assert max(work.longest().values()) == 200  # both need about 140 to 160 steps


def test_a_race_ends_at_twice_the_steps_of_the_first():
    speeds = {0.1: 0.01, 0.2: 0.02, 0.4: 0.5, 0.8: 0.03}
    study = dataclasses.replace(RACE, targets=(0.7,))
    work = race(speeds, noise=1.2, study=study)
    assert work.best() == 0.4 and set(work.longest().values()) == {300}
    work = race(speeds, study=study)  # the others are dropped at 200, nothing is left to wait for
    assert work.best() == 0.4
    assert work.longest() == {0.1: 200, 0.2: 200, 0.4: 300, 0.8: 200}


def test_a_rate_is_dropped_early_only_where_it_is_worse_by_more_than_its_error():
    speeds = {0.1: 0.01, 0.2: 0.15, 0.4: 0.18, 0.8: 0.15}
    quiet, loud = race(speeds), race(speeds, noise=0.8)
    assert quiet.best() == loud.best() == 0.4
    assert quiet.longest()[0.1] == 200  # seen at a quarter of the horizon
    assert loud.longest()[0.1] == loud.longest()[0.4] > 200


def test_a_best_rate_at_an_edge_brings_in_the_next_and_one_beside_a_diverged_rate_does_not():
    work = race({0.05: 1.0, 0.1: 1.5, 0.2: 1.0, 0.4: 0.9, 0.8: 0.8})
    assert work.best() == 0.1 and work.longest()[0.05] == 200
    speeds = {0.1: 0.5, 0.2: 0.8, 0.4: 1.0, 0.8: 9.0}
    work = race(speeds, diverging=[0.8])
    assert work.best() == 0.4 and set(work.longest()) == set(speeds)


def test_a_race_is_the_same_where_its_runs_are_there_already():
    speeds = {0.1: 0.1, 0.2: 0.4, 0.4: 1.0, 0.8: 1.2, 1.6: 1.1}
    first = race(speeds)
    assert first.best() == 0.8
    again = race(speeds, before=first.longest())
    assert again.best() == 0.8 and again.asked == first.asked


def test_for_accuracy_a_rate_stays_within_the_error_of_the_held_out_rows():
    study = dataclasses.replace(RACE, criterion="accuracy", options={"held_out": 400})
    ends = {0.1: 0.60, 0.2: 0.75, 0.4: 0.80, 0.8: 0.79}

    def trial(rate, steps):
        at = np.arange(0, steps + 1, 50)
        metrics = {"test_accuracy": np.full(len(at), ends[rate])}
        return clocked(100, np.ones(3), rate, steps=steps, metrics=metrics, evaluated_at=at)

    work = Invented(study, trial)
    assert work.best() == 0.4 and work.longest() == {0.1: 200, 0.2: 800, 0.4: 800, 0.8: 800}


SECOND = [study for study in STUDIES.values() if study.clock]


@pytest.mark.parametrize("study", SECOND, ids=lambda study: study.name)
def test_a_study_of_the_second_protocol_keeps_its_rules(study):
    assert study.seeds >= 3 and study.first_seed == 20 and study.extensions >= 2
    for rates in study.rates.values():
        assert len(rates) >= 3 and np.allclose(np.divide(rates[1:], rates[:-1]), 2)
    ends = study.horizon / ROUNDS * np.arange(1, ROUNDS + 1)
    assert set(ends) <= set(study.points.tolist())  # a race looks where a run was evaluated
    assert study.criterion == "speed" or study.options["held_out"]
