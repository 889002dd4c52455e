"""The second protocol: a clock on fixed rows, rates that race, plain classifiers to beat."""

import dataclasses

import numpy as np
import pytest
import torch

from lib import files
from lib.data import texts
from lib.data.images import ImageSet
from lib.papers import kept_curves
from lib.papers.a import speed
from lib.papers.c import reviews
from lib.training import baselines, rate_choice
from lib.training.curves import Curves, load
from lib.training.measures import classification
from lib.training.studies import SECOND
from lib.training.study import OutOfTime, Study
from tests.training import test_study as points
from tests.training.test_loop import clusters, run
from tests.training.worlds import configuration, curve


def test_the_clock_reads_fixed_rows_every_few_steps_and_changes_nothing():
    clock = classification(*clusters(), name="clock")
    _, _, plain = run(steps=12)
    model, _, timed = run(steps=12, clock=clock, tick=4)
    np.testing.assert_array_equal(timed.loss, plain.loss)
    np.testing.assert_array_equal(timed.clock["at"], [0, 4, 8, 12])
    assert timed.clock["loss"][-1] == clock(model)["clock_loss"]
    _, _, shorter = run(steps=8, clock=clock, tick=4)
    assert timed.clock["loss"][2] == shorter.clock["loss"][2]
    assert plain.clock == {}


@pytest.mark.parametrize("at", [3, 4, 5])
def test_a_clock_goes_on_after_a_pause_as_if_there_had_been_none(tmp_path, at):
    options = dict(clock=classification(*clusters(), name="clock"), tick=4)
    _, _, whole = run(steps=12, **options)
    options |= dict(checkpoint=tmp_path / "run.pt")
    _, _, left = run(steps=12, pause=lambda step: step == at, **options)
    assert left.paused and len(left.clock["at"]) == at // 4 + 1
    _, _, again = run(steps=12, **options)
    for name in ("at", "loss"):
        np.testing.assert_array_equal(again.clock[name], whole.clock[name])
    np.testing.assert_array_equal(again.loss, whole.loss)


def test_a_run_ends_where_the_mean_of_three_readings_is_low_enough():
    losses = iter([1.0, 0.1, 0.7, 0.4, 0.3, 0.2])
    clock = lambda model: {"clock_loss": next(losses)}
    stop = lambda found: found["clock"] <= 0.5
    _, _, curve = run(steps=20, clock=clock, tick=2, evaluate=lambda m: {}, at=range(21), stop=stop)
    assert curve.status == "stopped after step 6"  # (0.1 + 0.7 + 0.4) / 3, not the 0.1 alone


def timed(seed, readings, rate=0.1, rule="SGD", every=5, steps=None, part="trial", **rest):
    """A curve whose clock read these losses."""
    readings = np.asarray(readings, dtype=float)
    clock = {"at": every * np.arange(len(readings)), "loss": readings}
    loss = np.ones(steps or every * (len(readings) - 1))
    return curve(rule, seed, loss, part, rate, clock=clock, **rest)


def test_steps_to_a_target_are_those_of_the_clock_not_of_the_batches():
    found = timed(0, [2.0, 0.0, 1.6, 1.0, 0.4, 0.4, 0.4])
    assert found.steps_to(1.0, 3) == 3 * 5  # the first mean of three readings that is at most 1
    assert found.steps_to(0.1, 3) == np.inf
    assert timed(0, [0.0, 0.0]).steps_to(1.0, 3) == np.inf  # two readings are none


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


def world(speeds, diverging=(), noise=0.0):
    """Trials whose loss is 2 exp(-speed step / 100), and a list of all that was asked for."""
    asked = []

    def trials(rates, until):
        asked.extend((rate, until) for rate in rates)
        found = []
        for rate in rates:
            at = np.arange(0, (until or 800) + 1, 5)
            ripple = noise * (-1.0) ** np.arange(len(at))
            one = timed(100, 2 * np.exp(-speeds[rate] * at / 100) + ripple, rate)
            if rate in diverging:
                one = dataclasses.replace(one, status="diverged at step 7", loss=one.loss[:6])
            found.append(one)
        return found

    return trials, asked


def last_asked(asked):
    return {rate: until for rate, until in asked}


def test_a_race_takes_the_fewest_steps_and_ends_when_two_are_there():
    trials, asked = world({0.1: 0.1, 0.2: 0.4, 0.4: 1.0, 0.8: 0.9}, noise=0.5)
    assert rate_choice.choose(STUDY, "SGD", trials) == 0.4
    assert max(until for _, until in asked) == 200  # both need about 140 to 160 steps


def test_a_race_ends_at_twice_the_steps_of_the_first():
    speeds = {0.1: 0.01, 0.2: 0.02, 0.4: 0.5, 0.8: 0.03}
    study = dataclasses.replace(STUDY, targets=(0.7,))
    trials, asked = world(speeds, noise=1.2)
    assert rate_choice.choose(study, "SGD", trials) == 0.4
    assert set(last_asked(asked).values()) == {300}
    trials, asked = world(speeds)  # the others are dropped at 200, and nothing is left to wait for
    assert rate_choice.choose(study, "SGD", trials) == 0.4
    assert last_asked(asked) == {0.1: 200, 0.2: 200, 0.4: 300, 0.8: 200}


def test_a_rate_is_dropped_early_only_where_it_is_worse_by_more_than_its_error():
    speeds = {0.1: 0.01, 0.2: 0.15, 0.4: 0.18, 0.8: 0.15}
    quiet, asked = world(speeds)
    rate_choice.choose(STUDY, "SGD", quiet)
    assert last_asked(asked)[0.1] == 200  # seen at a quarter of the horizon
    loud, asked = world(speeds, noise=0.8)
    rate_choice.choose(STUDY, "SGD", loud)
    assert last_asked(asked)[0.1] == last_asked(asked)[0.4] > 200


def test_a_best_rate_at_an_edge_brings_in_the_next_and_one_beside_a_diverged_rate_does_not():
    speeds = {0.05: 1.0, 0.1: 1.5, 0.2: 1.0, 0.4: 0.9, 0.8: 0.8}
    trials, asked = world(speeds)
    assert rate_choice.choose(STUDY, "SGD", trials) == 0.1
    assert last_asked(asked)[0.05] == 200
    speeds = {0.1: 0.5, 0.2: 0.8, 0.4: 1.0, 0.8: 9.0}
    trials, asked = world(speeds, diverging=[0.8])
    assert rate_choice.choose(STUDY, "SGD", trials) == 0.4
    assert set(last_asked(asked)) == set(speeds)


def test_a_race_is_the_same_where_its_runs_are_there_already():
    speeds = {0.1: 0.1, 0.2: 0.4, 0.4: 1.0, 0.8: 1.2, 1.6: 1.1}
    first, asked = world(speeds)
    chosen = rate_choice.choose(STUDY, "SGD", first)
    longest = last_asked(asked)

    def later(rates, until):  # as far as they went the first time
        return [first([rate], longest[rate])[0] for rate in rates]

    assert rate_choice.choose(STUDY, "SGD", later) == chosen == 0.8


def test_no_rate_left_is_an_error_that_names_them():
    trials, _ = world(dict.fromkeys(STUDY.rates["SGD"], 1.0), diverging=STUDY.rates["SGD"])
    with pytest.raises(ValueError, match=r"every rate of SGD diverged: 0.1, 0.2, 0.4, 0.8; give"):
        rate_choice.choose(STUDY, "SGD", trials)


def test_for_accuracy_a_rate_stays_within_the_error_of_the_held_out_rows():
    study = dataclasses.replace(STUDY, criterion="accuracy", options={"held_out": 400})
    ends, asked = {0.1: 0.60, 0.2: 0.75, 0.4: 0.80, 0.8: 0.79}, []

    def trials(rates, until):
        asked.extend((rate, until) for rate in rates)
        at = np.arange(0, (until or 800) + 1, 50)
        metrics = lambda rate: {"test_accuracy": np.full(len(at), ends[rate])}
        return [
            timed(100, np.ones(3), rate, steps=until or 800, metrics=metrics(rate), evaluated_at=at)
            for rate in rates
        ]

    assert rate_choice.choose(study, "SGD", trials) == 0.4
    assert last_asked(asked) == {0.1: 200, 0.2: None, 0.4: None, 0.8: None}


def clocked(batch=8, rows=64):
    """The study of points with a clock, and a classifier that has three rows of four right."""
    found = points.problem(batch, rows)
    data = found.batches(0, False)
    clock = classification(data.inputs, data.targets, name="clock")
    hits = np.arange(rows) % 4 > 0
    return dataclasses.replace(found, clock=clock, baselines={"three of four": lambda: hits})


POINTS = dataclasses.replace(
    points.STUDY,
    problem=clocked,
    clock=2,
    targets=(0.5, 0.4),
    stop_by="clock",
    stop_at=0.1,
    first_seed=20,
    evaluations=8,
    rates={"SGD": (0.1, 0.4), "SPS": (0.5, 1.0), "SNGD": (0.2, 0.4)},
)


def same(first, second):
    points.same(first, second)
    for mine, theirs in zip(first.curves, second.curves, strict=True):
        np.testing.assert_equal(dict(mine.clock), dict(theirs.clock))


def test_a_study_with_a_clock_in_pieces_is_bit_for_bit_that_in_one(tmp_path):
    whole = points.run(POINTS, tmp_path / "whole")
    for _ in range(1000):
        try:
            pieces = points.run(POINTS, tmp_path / "pieces", minutes=3e-3)
            break
        except OutOfTime:
            pass
    same(whole, pieces)
    assert whole.seeds() == [20, 21]
    assert whole.baselines() == {"three of four": 0.75}
    whole.save(tmp_path / "kept.npz")
    same(whole, load(tmp_path / "kept.npz"))


def test_the_clock_stands_in_the_configuration_and_leaves_that_of_other_studies_alone():
    assert POINTS.configuration({})["clock"] == 2
    assert not {"clock", "first_seed"} & set(points.STUDY.configuration({}))


def judged(network, plain, rates=(0.05, 0.1, 0.2)):
    """Curves of SGD and Adam judged at 0.1 with this test accuracy, and one plain classifier's."""
    right = lambda share: {
        "test_correct": np.packbits(np.arange(1000) < 1000 * share),
        "test_rows": np.array(1000),
    }
    runs = []
    for rule, speed_ in (("SGD", 1.0), ("Adam", 1.0)):
        for seed in (20, 21, 22):
            readings = 2 * np.exp(-speed_ * np.arange(40) / 10 * (1 + seed / 1000))
            runs.append(timed(seed, readings, rule=rule, part="curve", end=right(network)))
        runs += [timed(100, np.ones(3), rate, rule) for rate in rates]
    if plain is not None:
        runs.append(curve("bag of words", 0, np.zeros(0), "baseline", end=right(plain)))
    found = configuration(("SGD", "Adam"), 200, clock=5)
    return Curves("invented", found, tuple(runs))


def test_a_network_speaks_only_where_it_beats_the_plain_classifiers():
    loud = speed.speed(judged(0.9, 0.8), "Adam", "fig6")
    assert loud.verdict == "reproduced"
    for curves, reason in (
        (judged(0.8, 0.8), "too small to speak (SGD 0.800, bag of words 0.800 of the test rows)"),
        (judged(0.9, None), "no plain classifier was fitted"),
        (judged(0.9, 0.8, rates=(0.1, 0.2)), "judged at the edge of the rates tried: SGD 0.1"),
    ):
        claim = speed.speed(curves, "Adam", "fig6")
        assert claim.verdict == "undecided" and reason in claim.statement
    assert reviews.ordered(judged(0.8, 0.9), "l1.1", "l2").verdict == "undecided"


def test_the_ratio_at_the_best_two_rates_is_that_of_the_trials():
    curves = judged(0.9, 0.8)
    fast = {0.05: 30, 0.1: 20, 0.2: 60}
    runs = []
    for one in curves.curves:
        if one.part == "trial":
            steps = fast[one.rate] * (2 if one.rule == "Adam" else 1)
            readings = np.where(np.arange(40) * 5 < steps, 2.0, 0.0)
            one = timed(100, readings, one.rate, one.rule)
        runs.append(one)
    raced = dataclasses.replace(curves, curves=tuple(runs))
    # A mean of three readings is 0 two readings, ten steps, after the first of them.
    expected = (50 / 40, 70 / 30)
    assert speed.at_two_rates(raced, "Adam", 0.5) == pytest.approx(expected)
    assert "in the trials, 1.25 to 2.33" in speed.speed(raced, "Adam", "fig6").statement


def test_growth_is_that_beyond_a_random_walk():
    found = judged(0.9, 0.8)
    for final, verdict in ((2.3, "reproduced"), (1.9, "not reproduced")):
        runs = [
            dataclasses.replace(
                run,
                weight_norms={"w.weight": np.array([1.0, final + 0.01 * (run.seed - 21)])},
                walked={"w.weight": np.array([0.0, 3.0])},  # which alone would double the norm
            )
            for run in found.curves
        ]
        claim = speed.growing(dataclasses.replace(found, curves=tuple(runs)), "SGD")
        assert claim.verdict == verdict and "beyond a random walk" in claim.statement


def test_caption_and_record_say_what_the_plain_classifiers_reach():
    curves = judged(0.8, 0.9)
    assert kept_curves.gate(curves) == (
        " Test accuracy: SGD 80.0 %; on the same rows bag of words 90.0 %: too small to speak."
    )
    assert kept_curves.gate_numbers(curves)["baseline_bag_of_words"].value == 0.9
    assert "too small" not in kept_curves.gate(judged(0.9, 0.8))


def test_plain_classifiers_read_images_and_texts():
    rng = np.random.default_rng(0)

    def split(rows):
        labels = rng.integers(0, 2, rows)
        pixels = 100 * labels[:, None, None, None] + rng.integers(0, 60, (rows, 1, 4, 4))
        arrays = torch.tensor(pixels, dtype=torch.uint8), torch.tensor(labels)
        words = [("good film", "bad film")[k] + f" number {n % 7}" for n, k in enumerate(labels)]
        place = dict(name="invented", source="demo", revision="", rows=rows)
        return ImageSet(*arrays, 2, **place), texts.TextSet(words, labels, 2, **place)

    (pictures, reviews_), (seen, read) = split(100), split(40)
    found = baselines.of_images(pictures, seen) | baselines.of_texts(reviews_, read)
    ids = torch.stack([seen.labels + 1, torch.zeros(40, dtype=torch.int64)], 1)
    read_ids = baselines.of_tokens((ids, seen.labels), (ids[:9], seen.labels[:9]), 3)
    assert read_ids["bag of words"]().tolist() == [True] * 9
    assert set(found) == {"logistic regression", "3 nearest neighbours", "bag of words"}
    assert all(fit().shape == (40,) and fit().all() for fit in found.values())


def test_a_balanced_sample_is_drawn_alike_by_whoever_has_the_rows():
    labels = np.array([0] * 30 + [1] * 6)
    words = [f"row {k} " + "x" * (k % 10) for k in range(36)]
    whole = texts.TextSet(words, labels, 2, "invented", "demo", "", 36)
    found = whole.balanced(8, 14)
    assert np.bincount(found.labels).tolist() == [4, 4]
    assert max(map(len, found.texts)) <= 14 and len(set(found.texts)) == 8
    assert found.content() == whole.balanced(8, 14).content() != whole.balanced(6, 14).content()
    assert len(whole.balanced(1000, 100)) == 12  # as many of each class as the rarer has
    with pytest.raises(ValueError, match="a class has no row of at most 3 characters"):
        whole.balanced(8, 3)


@pytest.mark.parametrize("study", SECOND, ids=lambda study: study.name)
def test_a_study_of_the_second_protocol_keeps_its_rules(study):
    assert study.clock and study.seeds >= 3 and study.first_seed == 20 and study.extensions >= 2
    for rates in study.rates.values():
        steps = np.divide(rates[1:], rates[:-1])
        assert len(rates) >= 3 and np.allclose(steps, 2)
    assert study.horizon % rate_choice.ROUNDS == 0
    ends = study.horizon // rate_choice.ROUNDS * np.arange(1, rate_choice.ROUNDS + 1)
    assert set(ends) <= set(study.points.tolist())  # a race looks where a run was evaluated
    assert study.criterion == "speed" or study.options["held_out"]


def test_the_protocol_states_what_the_studies_are():
    whole = (files.ROOT / "notebooks" / "protocol.md").read_text("utf-8")
    rows = [line for line in whole.splitlines() if line.startswith("| `")]
    for study in SECOND:
        (row,) = [row.replace("*", "") for row in rows if row.startswith(f"| `{study.name}`")]
        *_, sizes, clock, stop, targets = [cell.strip() for cell in row.strip("|").split("|")]
        assert sizes.startswith(f"{study.batch}; {study.horizon:,} steps")
        assert clock.endswith(f"{study.clock} steps")
        if study.criterion == "speed":
            assert [float(target) for target in targets.split(", ")] == list(study.targets)
        told = None if stop == "never" else float(stop.split()[-1])
        assert told == study.stop_at
