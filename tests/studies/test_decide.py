"""Tests of Holm's rule over the family.

A failure means that more than one family in twenty has a wrong verdict.
"""

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from lib.training.curves import Curve, Curves
from papers import verdicts
from papers.studies import confirm, simulate
from papers.studies.decide import Case, Decision, decide
from papers.studies.family import FAMILY
from papers.studies.intervals import MeanInterval
from papers.verdicts import NOT_REPRODUCED, REPRODUCED, UNDECIDED

FAMILIES = 400  # a share of 0.05 has the Monte-Carlo error 0.011


def above(z, variance=1.0):
    """Return the case of a difference that lies `z` standard errors above zero, on many
    seeds.
    """
    seeds = 10_000
    return Case(verdicts.above, [MeanInterval(z / seeds**0.5, variance, seeds)])


def test_holms_rule_by_hand():
    decided = decide(
        {"a": above(2.7), "b": above(-2.2), "c": above(2.5), "d": above(0.5)}
    )
    # p 0.007, 0.028, 0.012, 0.62: times 4, 2, 3, 1.
    assert [each.word for each in decided.values()] == [
        REPRODUCED,
        UNDECIDED,
        REPRODUCED,
        UNDECIDED,
    ]
    assert [each.alone for each in decided.values()][1] == NOT_REPRODUCED
    assert decided["a"].holm == pytest.approx(4 * decided["a"].p)
    assert decided["c"].level == pytest.approx(1 - 0.05 / 3)


def test_what_cannot_be_judged_counts_with_p_1_and_two_intervals_must_agree():
    nothing = Case(verdicts.above, [])
    assert nothing.p == 1.0 and nothing.says(0.95) == UNDECIDED
    (high,) = above(5).intervals
    (low,) = above(-5).intervals
    apart = Case(verdicts.above, [high, low])
    assert apart.p == 1.0 and apart.says(0.95) == UNDECIDED
    both = Case(verdicts.above, [high, above(3).intervals[0]])
    assert both.p == pytest.approx(above(3).p)


def test_the_verdict_is_the_word_at_the_level_of_holms_rule():
    # Estimate 0.93 within 3 %: below 1 at 95 %, within [0.8, 1.25] already at 99.9 %.
    near_one = MeanInterval(np.log(0.93), 0.035**2 * 10_000, 10_000, geometric=True)
    case = Case(verdicts.faster, [near_one])
    others = {f"other {k}": Case(verdicts.above, []) for k in range(20)}
    decision = decide({"claim": case} | others)["claim"]
    assert (decision.alone, decision.word) == (REPRODUCED, NOT_REPRODUCED)
    assert decision.holm < 0.05


def is_wrong(name, word):
    """Return whether a word is wrong if the truth lies on the border of the claim."""
    judged_by = FAMILY[name].word
    if judged_by is verdicts.above:  # zero is on neither side
        return word != UNDECIDED
    if judged_by is verdicts.no_gain:  # 0.8 is no gain yet
        return word == NOT_REPRODUCED
    return word == REPRODUCED  # 1 is neither faster nor slower


def on_the_border(deviations):
    """Return models in which the truth of every claim lies on the border of its
    word.
    """
    models = []
    for model in simulate.first_round_models():
        null = model.scaled(0.0, deviations)
        if isinstance(null, simulate.Speed) and "fig6.adam" in null.cases(
            np.random.default_rng(0)
        ):
            logs = dict(null.mean_logs)
            logs["Adam"] = logs["SGD"] + np.log(0.8)
            null = replace(null, mean_logs=logs)
        models.append(null)
    return models


@pytest.mark.parametrize("deviations", [1.0, 0.5])
def test_the_error_rate_of_a_family_on_the_border_is_at_most_5_percent(deviations):
    families = simulate.simulate(on_the_border(deviations), FAMILIES, seed=1)
    wrong = [
        any(is_wrong(name, each.word) for name, each in drawn.items())
        for drawn in families
    ]
    error = np.sqrt(0.05 * 0.95 / FAMILIES)
    assert np.mean(wrong) <= 0.05 + 2 * error  # two Monte-Carlo errors


def test_the_word_at_95_percent_would_err_more_often_than_the_correction_allows():
    """This is why the verdict is not the word "alone" of a claim whose p Holm's rule
    keeps.
    """
    families = simulate.simulate(on_the_border(0.5), FAMILIES, seed=1)
    wrong = []
    for drawn in families:
        kept = {name: each.alone for name, each in drawn.items() if each.holm <= 0.05}
        wrong.append(any(is_wrong(name, word) for name, word in kept.items()))
    assert np.mean(wrong) > 0.1


def test_the_power_is_what_was_planned():
    families = simulate.simulate(simulate.first_round_models(), 200)
    counts = [
        sum(each.word != UNDECIDED for each in drawn.values()) for drawn in families
    ]
    error = np.std(counts, ddof=1) / np.sqrt(len(counts))
    assert error < 0.15
    # Notebooks/confirmation.md
    assert 14 - 2 * error <= np.mean(counts) <= 17 + 2 * error
    shares = simulate.chances(families)
    for name in (
        "fig1.adam",
        "fig1.sps",
        "fig4.adam",
        "fig6.sngd",
        "vit.early",
        "vit.sparser",
    ):
        assert shares[name] > 0.9


def test_a_known_ratio_is_decided_as_often_as_the_t_test_says():
    """The power of one claim alone at 5 % agrees with the noncentral t, within two
    errors.
    """
    model = simulate.Speed(
        "mnist_60000", {"SGD": 7.0, "SNGD": 7.15, "Adam": 7.0}, 0.12, 24, 1, 9600
    )
    generator = np.random.default_rng(0)
    found = []
    for _ in range(1000):
        case = model.cases(generator)["fig6.sngd"]
        found.append(case.intervals[0].low > 1)
    effect = 0.15 / (np.sqrt(2) * 0.12) * np.sqrt(24)
    power = 1 - stats.nct.cdf(stats.t.ppf(0.975, 23), 23, effect)
    assert np.mean(found) == pytest.approx(
        power, abs=2 * np.sqrt(power * (1 - power) / 1000)
    )


def test_models_scale_effects_and_deviations():
    speed = simulate.Speed(
        "mnist_60000", {"SGD": 1.0, "Adam": 2.0, "SNGD": 0.0}, 0.1, 24, 10, 9600
    )
    scaled = speed.scaled(0.8, 1.3)
    assert scaled.mean_logs == pytest.approx({"SGD": 1.0, "Adam": 1.8, "SNGD": 0.2})
    assert scaled.deviation == pytest.approx(0.13)
    values = np.array([[1.0], [2.0], [4.0]])
    other = simulate.Differences(["vit.sparser"], values, 20_000).scaled(0.5, 2.0)
    (interval,) = other.cases(np.random.default_rng(0))["vit.sparser"].intervals
    assert interval.mean == pytest.approx(0.5 * values.mean(), abs=0.1)
    assert interval.variance == pytest.approx(4 * values.var(ddof=1), rel=0.05)


def test_the_command_prints_chances_and_refuses_no_draws(capsys):
    assert (
        simulate.main(["--draws", "5", "--effects", "0.8", "--deviations", "1.3"]) == 0
    )
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 22 and said[-1].startswith("decided of 21: ")
    shares = [
        re.findall(r"(?:decided|reproduced) (\d\.\d+)", line) for line in said[:-1]
    ]
    for decided, reproduced in shares:
        assert 0 <= float(reproduced) <= float(decided) <= 1
    assert any(0 < float(reproduced) for _, reproduced in shares)
    total = sum(float(decided) for decided, _ in shares)
    assert float(said[-1].split()[3]) == pytest.approx(total, abs=0.01)
    assert simulate.main(["--draws", "1"]) == 1
    assert "draws" in capsys.readouterr().err


def test_the_model_of_the_reviews_has_the_first_rounds_differences():
    plan = confirm.plans()["imdb_256"]
    model = simulate._reviews(plan)
    curves = confirm.first_round(plan)
    runs = {rule: curves.runs(rule) for rule in ("l1.1", "l2", "l3")}
    of_column = {}
    for name, values in zip(model.columns, model.values.T, strict=True):
        of_column.setdefault(name, []).append(values)

    shares = {
        rule: np.stack(
            [run.end["last.tokens_used"][:, -1] / run.end["present"] for run in of_rule]
        )
        for rule, of_rule in runs.items()
    }
    fewer = shares["l2"] - shares["l1.1"]  # (seeds, reviews)
    (sharper,) = of_column["attention.sharper"]
    np.testing.assert_allclose(sharper, fewer.mean(1), rtol=1e-6)
    assert model.row_variances["attention.sharper"] == pytest.approx(
        fewer.mean(0).var(ddof=1) / fewer.shape[1], rel=1e-6
    )
    for better, worse in (("l1.1", "l2"), ("l1.1", "l3"), ("l3", "l2")):
        name = f"imdb.{better}>{worse}"
        pairs = list(zip(runs[better], runs[worse], strict=True))
        late = [
            np.mean(one.metrics["test_accuracy"][-4:])
            - np.mean(other.metrics["test_accuracy"][-4:])
            for one, other in pairs
        ]
        np.testing.assert_allclose(of_column[name], [late], rtol=1e-6)
        apart = np.mean([1.0 * one.hits - other.hits for one, other in pairs], 0)
        variance = apart.var(ddof=1) / len(apart)
        assert model.row_variances[name] == pytest.approx(variance)
    ends = [
        one.metrics["hoyer.K"][-1] - other.metrics["hoyer.K"][-1]
        for one, other in zip(runs["l1.1"], runs["l2"], strict=True)
    ]
    np.testing.assert_allclose(of_column["sparsity.K"][0], ends)


# Models from invented first rounds.


def first_round_of(monkeypatch, name, curves, **configuration):
    """Put invented curves in the place of a first round; return its plan."""
    values = {"rates": dict.fromkeys(run.rule for run in curves)} | configuration
    made = Curves(values, tuple(curves))
    monkeypatch.setattr(confirm, "first_round", lambda plan: made)
    return confirm.plans()[name]


def test_the_model_of_speed_has_the_steps_to_the_last_target_up_to_the_horizon(
    monkeypatch,
):
    def run(rule, seed, *losses):
        clock = {"at": 10.0 * np.arange(len(losses)), "loss": np.array(losses)}
        return Curve("finished", rule=rule, seed=seed, clock=clock)

    curves = []
    for rule, late in (("SGD", 6), ("SNGD", 8), ("Adam", 4)):
        fall = [5.0] + [0.9] * (late - 2) + [0.1] * 3
        curves += [run(rule, 0, *fall), run(rule, 1, *fall)]
    curves.append(run("Adam", 2, *[0.9] * 12))  # it misses the last target
    curves += [run("SGD", 2, *fall), run("SNGD", 2, *fall)]
    plan = first_round_of(
        monkeypatch,
        "mnist_60000",
        curves,
        targets=[2.0, 1.0, 0.2],
        horizon=500,
        clock=10,
    )
    model = simulate._speed(plan)
    # The middle one of the first three low readings.
    assert model.mean_logs["SGD"] == pytest.approx(np.log([60, 60, 40]).mean())
    assert model.mean_logs["Adam"] == pytest.approx(np.log([40, 40, 500]).mean())
    assert (model.tick, model.seeds, model.horizon) == (10, 24, plan.horizon)


def test_the_model_of_growth_has_the_matrix_that_grew_least_at_the_end(monkeypatch):
    curves = []
    for rule, factor in (("SGD", 2.0), ("Adam", 3.0), ("SNGD", 5.0)):
        for seed in (0, 1):
            norms = {
                "a.weight": np.array([2.0, 7.0, 2.0 * factor + seed]),
                "b.weight": np.array([1.0, 9.0, 50.0]),
                "a.bias": np.array([1.0, 1.0, 0.1]),
            }
            curves.append(Curve("finished", rule=rule, seed=seed, weight_norms=norms))
    plan = first_round_of(monkeypatch, "cifar10_50000", curves)
    model = simulate._growth(plan)
    assert model.columns == ["fig7.growth.sgd", "fig7.growth.adam", "fig7.growth.sngd"]
    expected = np.log([[2.0, 3.0, 5.0], [2.5, 3.5, 5.5]])
    np.testing.assert_allclose(model.values, expected)
    assert model.seeds == 6


def test_the_model_of_vision_has_the_ratio_of_steps_and_the_difference_of_indices(
    monkeypatch,
):
    curves = []
    for rule, path, index in (
        ("Adam", [0.1, 0.5, 0.6], 0.1),
        ("l1.1", [0.1, 0.3, 0.5], 0.4),
    ):
        for seed in (0, 1):
            metrics = {
                "test_accuracy": np.array(path),
                "control_loss": np.array([2.0, 1.5, 1.0]),
                "hoyer": np.array([0.1, 0.2, 0.3]) + index,
            }
            at = np.array([0, 100, 200])
            how = dict(evaluated_at=at, metrics=metrics)
            curves.append(Curve("finished", rule=rule, seed=seed, **how))
    model = simulate._vision(first_round_of(monkeypatch, "vit_48000", curves))
    np.testing.assert_allclose(model.values, [[np.log(100 / 200), 0.3]] * 2)
    assert model.columns == ["vit.early", "vit.sparser"]
    assert model.geometric == ("vit.early",)


def test_the_model_of_reviews_has_the_index_at_the_end_and_at_the_same_accuracy(
    monkeypatch,
):
    curves = []
    for rule, trained, last in (
        ("l1.1", [0.5, 0.7, 0.9], 0.4),
        ("l2", [0.5, 0.6, 0.7], 0.1),
        ("l3", [0.5, 0.6, 0.7], 0.1),
    ):
        for seed in (0, 1):
            metrics = {
                "test_accuracy": np.full(3, 0.8),
                "training_accuracy": np.array(trained),
            }
            for part in ("K", "Q", "V"):
                metrics[f"hoyer.{part}"] = np.array([0.1, 0.2, last])
            end = Curve.packed(np.arange(8) < 6 + seed)
            end |= {"present": np.full(5, 10), "last.tokens_used": np.ones((5, 3))}
            how = dict(metrics=metrics, end=end, evaluated_at=np.arange(3))
            curves.append(Curve("finished", rule=rule, seed=seed, **how))
    model = simulate._reviews(first_round_of(monkeypatch, "imdb_256", curves))
    end, same = (
        values
        for name, values in zip(model.columns, model.values.T, strict=True)
        if name == "sparsity.Q"
    )
    np.testing.assert_allclose(end, 0.4 - 0.1)
    np.testing.assert_allclose(same, 0.2 - 0.1)  # both at the training accuracy 0.7
    assert model.seeds == 7


def test_the_error_of_the_test_rows_moves_all_seeds_of_a_study_together():
    """Without scatter over seeds, a mean is normal with the variance of the rows."""
    name = "imdb.l1.1>l2"
    model = simulate.Differences(
        [name], np.full((3, 1), 0.5), 4, row_variances={name: 0.04}
    )
    generator = np.random.default_rng(0)
    cases = [model.cases(generator)[name].intervals[0] for _ in range(2000)]
    means = np.array([each.mean for each in cases])
    assert means.mean() == pytest.approx(0.5, abs=0.015)
    assert means.var() == pytest.approx(0.04, rel=0.1)
    assert stats.kurtosis(means) == pytest.approx(0, abs=0.4)
    assert {each.other_variance for each in cases} == {0.04}
    assert max(each.variance for each in cases) < 1e-20


def test_simulated_steps_are_on_the_ticks_of_the_clock_and_none_is_zero():
    logs = {"SGD": np.log(3.0), "SNGD": np.log(200.0), "Adam": np.log(200.0)}
    model = simulate.Speed("mnist_60000", logs, 1e-9, 4, 20, 9600)
    case = model.cases(np.random.default_rng(0))["fig6.sngd"]
    assert case.intervals[0].estimate == pytest.approx(200 / 20)


def decision(word):
    return Decision(word, word, 0.01, 0.01, 0.95)


def test_the_command_prints_the_error_of_the_mean_number_of_decided_claims(
    monkeypatch, capsys
):
    words = [REPRODUCED, NOT_REPRODUCED, UNDECIDED]
    families = [
        {"a": decision(words[k % 3]), "b": decision(words[k % 2])} for k in range(6)
    ]
    monkeypatch.setattr(simulate, "first_round_models", list)
    monkeypatch.setattr(simulate, "simulate", lambda *_: families)
    assert simulate.main(["--draws", "6"]) == 0
    first, second, last = capsys.readouterr().out.splitlines()
    assert first == "a: decided 0.667, reproduced 0.333"
    assert second == "b: decided 1.000, reproduced 0.500"
    counts = [2, 2, 1, 2, 2, 1]
    error = stats.sem(counts)
    assert last == f"decided of 2: {10 / 6:.2f} (Monte-Carlo error {error:.2f})"


def test_chances_of_a_single_family_are_zero_or_one():
    family = {"a": decision(REPRODUCED), "b": decision(UNDECIDED)}
    assert simulate.chances([family]) == {"a": 1.0, "b": 0.0}
