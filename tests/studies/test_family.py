"""Tests by hand of what the 21 claims measure.

A failure means that a verdict is about another quantity.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from lib.training.curves import Curve, Curves
from papers import verdicts
from papers.studies import confirm, family
from papers.studies.family import FAMILY, Runs
from papers.studies.intervals import MeanInterval, RankInterval
from tests.studies.worlds import configuration_of, run_to


def clocked(losses, tick=20, **rest):
    losses = np.asarray(losses, np.float32)
    clock = {"at": tick * np.arange(len(losses), dtype=np.float32), "loss": losses}
    return Curve("finished", clock=clock, **rest)


def test_the_family_is_the_protocols():
    assert len(FAMILY) == 21
    text = (confirm.files.ROOT / "notebooks" / "confirmation.md").read_text("utf-8")
    for name in FAMILY:
        stem, _, last = name.rpartition(".")
        assert name in text or stem in text or f"{stem.split('.')[0]}.<rule>" in text, (
            last
        )
    assert {claim.study for claim in FAMILY.values()} == set(confirm.plans())


def test_steps_are_counted_to_the_middle_of_the_three_readings():
    run = clocked([3.0, 2.0, 1.0, 0.9, 0.5, 0.4])
    # The means of three are 2, 1.3, 0.8 at the readings 2, 3, 4.
    assert run.steps_to(0.8) == 80 and family.centred_steps(run, 0.81) == 60
    assert family.centred_steps(run, 0.1) == math.inf


def test_the_isotonic_fit_has_no_noise_to_pass_a_target_by():
    noisy = clocked([2.0, 0.4, 1.6, 1.0, 0.6, 0.2, 0.1])
    # Falling fit: 2, 1, 1, 1, 0.6, 0.2, 0.1.
    assert family.isotonic_steps(noisy, 1.0, 0.1) == 20
    assert family.isotonic_steps(noisy, 0.7, 0.1) == 80
    assert family.isotonic_steps(noisy, 0.01, 0.01) == math.inf
    # A run that went on after its last target is read like one that ended there.
    went_on = clocked([2.0, 0.9, 0.9, 0.9, 5.0, 5.0])
    ended = clocked([2.0, 0.9, 0.9, 0.9])
    assert (
        family.isotonic_steps(went_on, 0.9, 0.9)
        == family.isotonic_steps(ended, 0.9, 0.9)
        == 20
    )


def test_equal_steps_leave_the_error_of_the_clock():
    interval = family.steps_interval(np.full(4, 100.0), np.full(4, 200.0), tick=20)
    assert isinstance(interval, MeanInterval) and interval.estimate == pytest.approx(
        0.5
    )
    assert interval.variance == pytest.approx(20**2 / 12 * (1 / 100**2 + 1 / 200**2))
    assert 0 < verdicts.p_value(interval, verdicts.faster) < 0.05


def test_a_missed_target_has_the_signed_rank_judge():
    steps = np.array([50.0, 60.0, np.inf, 55.0, np.inf, 52.0, 54.0, 58.0])
    reference = np.array([90.0, np.inf, 100.0, 95.0, np.inf, 91.0, 99.0, 93.0])
    interval = family.steps_interval(steps, reference, tick=20, ranked=True)
    assert isinstance(interval, RankInterval) and interval.seeds == 8
    assert np.isneginf(interval.lower[0]) and np.isposinf(interval.upper[-1])


def runs_of(name, curves, **rest):
    plan = replace(confirm.plans()[name], **rest)
    by_rule = {}
    for run in curves:
        by_rule.setdefault(run.rule, {})[run.seed] = run
    seeds = sorted({run.seed for run in curves})
    race = Curves({}, ())
    rates = {rule: rates[0] for rule, rates in plan.rates.items()}
    return Runs(plan, seeds, by_rule, configuration_of(plan), race, rates)


def test_one_miss_in_a_study_has_its_other_claims_judged_by_rank_too_but_not_for_a_rule_unnamed():
    plan = confirm.plans()["mnist_60000"]
    curves = []
    for seed in range(30, 38):
        for rule, steps in (
            ("SGD", 400),
            ("Adam", 300 + 10 * (seed % 3)),
            ("SNGD", 600),
        ):
            missed = rule == "SNGD" and seed == 33
            curves.append(run_to(plan, rule, seed, np.inf if missed else steps))
    (adam,) = FAMILY["fig6.adam"].measure(runs_of("mnist_60000", curves))
    assert isinstance(adam, RankInterval)
    unnamed = [
        replace(run, rule="SPS") if run.rule == "SNGD" else run for run in curves
    ]
    named = [replace(run, rule="SNGD") for run in curves if run.rule == "SGD"]
    (adam,) = FAMILY["fig6.adam"].measure(runs_of("mnist_60000", [*unnamed, *named]))
    assert isinstance(adam, MeanInterval)


def test_growth_is_that_of_norms_after_4800_steps_the_walk_stands_beside():
    curves = []
    for seed in range(30, 36):
        for rule in ("SGD", "Adam", "SNGD"):
            grown = 2.0 * (1.5 + 0.01 * (seed % 2))
            norms = {
                "a.weight": np.array([2.0, grown, 9.0]),
                "b.weight": np.array([1.0, 3.0, 0.1]),
                "a.bias": np.array([1.0, 0.1, 0.1]),  # no matrix
            }
            walked = dict.fromkeys(norms, np.array([0.0, 100.0, 200.0]))
            at = np.array([0, 4800, 4900])
            run = Curve("stopped", rule=rule, seed=seed, evaluated_at=at)
            curves.append(replace(run, weight_norms=norms, walked=walked))
    runs = runs_of("cifar10_50000", curves)
    (interval,) = FAMILY["fig7.growth.sgd"].measure(runs)
    assert interval.estimate == pytest.approx((math.log(1.5) + math.log(1.51)) / 2)
    assert verdicts.above(interval) == verdicts.REPRODUCED
    beside = FAMILY["fig7.growth.sgd"].beside(runs)["beyond a random walk"]
    # The least is b, which grew to 3 times its norm, and a walk to sqrt(1 + 100) times.
    assert beside[0] == pytest.approx(2 - (math.sqrt(101) - 1))
    assert beside[-1] == verdicts.NOT_REPRODUCED
    short = replace(curves[0], evaluated_at=np.array([0, 4000, 4500]))
    with pytest.raises(ValueError, match="not evaluated after 4800 steps"):
        FAMILY["fig7.growth.sgd"].measure(
            runs_of("cifar10_50000", [short, *curves[1:]])
        )


def review(rule, seed, accuracy, rows=2000, **metrics):
    """Return a run on reviews that has this accuracy at its end and at its
    evaluations.
    """
    hits = np.arange(rows) < accuracy * rows
    end = Curve.packed(hits)
    end["present"] = np.full(50, 10)
    used = 4.0 if rule == "l1.1" else 6.0
    end["last.tokens_used"] = np.full((50, 2), used + 0.1 * (seed % 3))
    path = {"every_test_accuracy": np.array([np.nan, *[accuracy] * 4])}
    path["training_accuracy"] = np.array([0.5, 0.6, 0.7, 0.8, 0.9])
    for part in family.PARTS:
        last = 0.3 if rule == "l1.1" else 0.2
        path[f"hoyer.{part}"] = np.linspace(0.1, last, 5) + 0.001 * (seed % 3)
    at = np.arange(5)
    return Curve(
        "finished",
        rule=rule,
        seed=seed,
        end=end,
        metrics=path | metrics,
        evaluated_at=at,
    )


def reviews_of(accuracies, seeds=range(30, 37)):
    curves = []
    for rule, accuracy in accuracies.items():
        for seed in seeds:
            curves.append(review(rule, seed, accuracy + 0.002 * (seed % 2)))
    return runs_of("imdb_256", curves)


def test_reviews_are_judged_by_the_last_four_accuracies_on_all_rows():
    runs = reviews_of({"l1.1": 0.86, "l2": 0.84, "l3": 0.83})
    (interval,) = FAMILY["imdb.l1.1>l2"].measure(runs)
    assert interval.estimate == pytest.approx(0.02)
    pairs = zip(runs.of("l1.1"), runs.of("l2"), strict=True)
    apart = np.stack(
        [first.hits.astype(float) - second.hits for first, second in pairs]
    )
    assert interval.other_variance == pytest.approx(apart.mean(0).var(ddof=1) / 2000)
    end, matched = FAMILY["sparsity.V"].measure(runs)
    assert end.estimate == pytest.approx(0.1) and matched.estimate == pytest.approx(0.1)
    (sharper,) = FAMILY["attention.sharper"].measure(runs)
    assert sharper.estimate == pytest.approx(0.2)


def test_the_gate_of_paper_c_is_its_own_level_and_chance():
    runs = reviews_of({"l1.1": 0.86, "l2": 0.70, "l3": 0.502})
    assert family.gate_on_reviews(runs, "l1.1") == ""
    assert family.gate_on_reviews(runs, "l2").startswith("l2 ends at 0.70")
    assert family.gate_on_reviews(runs, "l3").startswith("l3 ends at 0.50")
    # Two deviations below the paper's level are allowed: seeds at 0.5 and 0.9 scatter
    # by 0.2.
    wide = [review("l2", seed, 0.9 if seed % 2 else 0.5) for seed in range(30, 36)]
    reason = family.gate_on_reviews(runs_of("imdb_256", wide), "l2")
    assert reason == "l2 is at chance in 3 of 6 seeds"


def test_the_gate_of_paper_c_takes_the_deviation_of_a_sample_of_seeds():
    """Two seeds that are 0.04 apart deviate by 0.04 / sqrt(2), and not by 0.02."""
    least = family.PAPER_ACCURACY["l2"] - 2 * 0.04 / math.sqrt(2)
    for low, passes in ((least - 0.015, True), (least - 0.025, False)):
        pair = [review("l2", 30, low), review("l2", 31, low + 0.04)]
        reason = family.gate_on_reviews(runs_of("imdb_256", pair), "l2")
        assert (reason == "") == passes
        assert passes or reason.endswith(f"below the least of {least:.4f}")


def test_vision_compares_where_both_reach_the_same():
    curves = []
    for seed in (30, 31):
        for rule, path in (("Adam", [0.1, 0.5, 0.6]), ("l1.1", [0.1, 0.3, 0.5])):
            metrics = {
                "test_accuracy": np.array(path),
                "control_loss": np.array([2.0, 1.5, 1.0]),
                "hoyer": np.array([0.1, 0.2, 0.3]) + 0.1 * (rule == "l1.1"),
            }
            at = np.array([0, 100, 200])
            curves.append(
                Curve(
                    "finished", rule=rule, seed=seed, evaluated_at=at, metrics=metrics
                )
            )
    runs = runs_of("vit_48000", curves)
    (early,) = FAMILY["vit.early"].measure(runs)
    assert early.estimate == pytest.approx(100 / 200)
    (sparser,) = FAMILY["vit.sparser"].measure(runs)
    assert sparser.estimate == pytest.approx(0.1)


def stairs(rule, seed, *at, tick=20):
    """Return a run of the study of MNIST that reaches its targets at these readings."""
    targets = confirm.plans()["mnist_60000"].first_round.targets
    losses = np.full(at[-1] + 2, 10.0 * targets[0])
    for first, target in zip(at, targets, strict=True):
        losses[first - 1 :] = 0.99 * target
    return clocked(losses, tick, rule=rule, seed=seed)


def runs_on_stairs(faster):
    """Return runs in which Adam needs `faster` times the steps to the last target, and
    as many as SGD to the others.
    """
    curves = []
    for seed in (30, 31, 32):
        late = 40 + seed % 3
        curves.append(stairs("SGD", seed, *early_targets(), late))
        curves.append(stairs("SNGD", seed, *early_targets(), late))
        curves.append(stairs("Adam", seed, *early_targets(), round(faster * late)))
    return runs_of("mnist_60000", curves)


def early_targets():
    count = len(confirm.plans()["mnist_60000"].first_round.targets) - 1
    return [5 * (k + 1) for k in range(count)]


def last_ratio(faster):
    return np.exp(np.mean([np.log(round(faster * k) / k) for k in (40, 41, 42)]))


def test_speed_is_judged_at_the_last_target():
    (adam,) = FAMILY["fig6.adam"].measure(runs_on_stairs(0.5))
    assert adam.estimate == pytest.approx(last_ratio(0.5))


def test_the_counts_beside_a_verdict_are_those_to_the_last_target(monkeypatch):
    monkeypatch.setattr(confirm, "first_round", lambda plan: Curves({}, ()))
    beside = FAMILY["fig6.adam"].beside(runs_on_stairs(0.5))
    *early, last = beside["at every target"].values()
    assert [each[0] for each in early] == pytest.approx([1] * len(early))
    assert last[0] == pytest.approx(last_ratio(0.5))
    assert beside["isotonic fit"][0] == pytest.approx(last_ratio(0.5), rel=0.05)
    assert beside["first round's count"][0] == pytest.approx(last_ratio(0.5), rel=0.05)


def test_the_best_two_rates_are_compared_by_their_steps_to_the_last_target(
    monkeypatch,
):
    monkeypatch.setattr(confirm, "first_round", lambda plan: Curves({}, ()))
    runs = runs_on_stairs(0.5)
    race = []
    for rule in ("SGD", "Adam"):
        for rate in runs.plan.rates[rule]:
            for seed in confirm.TABLE["race_seeds"]:
                late = 40 if rule == "SGD" else 20
                run = stairs(rule, seed, *early_targets(), late)
                cap = runs.plan.cap
                race.append(replace(run, part="trial", rate=rate, cap=None))
                race.append(replace(run, part="trial", rate=rate, cap=cap))
    runs = replace(runs, race=Curves({}, tuple(race)))
    assert family._at_two_rates(runs, "Adam") == pytest.approx([0.5, 0.5])


def test_a_reading_within_the_rounding_of_float32_reaches_the_target_of_a_fit():
    for factor, steps in ((1 + 5e-7, 20), (1 + 2e-6, math.inf)):
        run = clocked([2.0, 0.5, 0.5, 0.5])
        assert family.isotonic_steps(run, 0.5 / factor, 0.5) == steps


def test_the_fit_counts_one_interval_of_the_clock_at_least():
    assert family.isotonic_steps(clocked([0.5, 0.5, 0.5, 0.5]), 1.0, 1.0) == 20


def test_the_fit_has_the_readings_up_to_the_one_that_reaches_the_last_target():
    """The means of three are 1.2 and 0.6 at the readings 2 and 3."""
    run = clocked([2.0, 1.0, 0.6, 0.2, 0.1])
    assert family.isotonic_steps(run, 0.2, 0.61) == 60
    assert family.isotonic_steps(run, 0.1, 0.61) == math.inf


def test_a_late_accuracy_is_the_mean_of_four_evaluations():
    path = np.array([np.nan, 0.1, 0.2, 0.5, 0.6, 0.7, 0.8])
    run = review("l2", 30, 0.5, every_test_accuracy=path)
    assert family.late_accuracy(run) == pytest.approx(0.65)


def test_tokens_used_are_those_of_the_last_of_three_layers():
    run = review("l2", 30, 0.5)
    run.end["last.tokens_used"] = np.tile([1.0, 2.0, 5.0], (50, 1))
    shares = family._tokens_used(runs_of("imdb_256", [run]), "l2")
    np.testing.assert_allclose(shares, np.full((1, 50), 0.5))


@pytest.mark.parametrize(("accuracy", "is_at_chance"), [(0.521, True), (0.5235, False)])
def test_chance_ends_two_standard_errors_above_one_half(accuracy, is_at_chance):
    """Of 2,000 rows two standard errors at about 0.52 are 0.0223."""
    pair = [review("l2", 30, accuracy), review("l2", 31, 0.99)]
    reason = family.gate_on_reviews(runs_of("imdb_256", pair), "l2")
    assert reason == "l2 is at chance in 1 of 2 seeds" * is_at_chance
