"""Rules compared: who reaches a loss first, which rate a grid chooses, and that a stopped
comparison goes on.
"""

import math

import numpy as np
import pytest
import torch

from lib import training
from lib.networks.bert import Tokens
from lib.papers.a import language, language_claims
from lib.training import comparison
from lib.training.record import TrainingHistory


def history(loss, **metrics):
    loss = np.asarray(loss, dtype=float)
    points = np.array([0, len(loss)])
    norm = np.full(len(loss), 2.0)
    found = {name: np.array(values) for name, values in metrics.items()}
    arrays = (loss, np.full(len(loss), 0.1), norm, np.arange(1.0, len(loss) + 1), points)
    return TrainingHistory(*arrays, found, "finished", "cpu", drift=np.zeros(2))


def test_race_against_the_last_loss_of_sgd():
    fall = np.linspace(2, 1, 11)
    loss = {"SGD": np.stack([fall, fall]), "SPS": np.stack([2 * fall - 2, 0 * fall + 3])}
    race = comparison.race(loss, window=1)
    np.testing.assert_allclose(race.target, [1, 1])
    assert race.steps["SGD"].tolist() == [11, 11]
    assert race.steps["SPS"][0] == 6 and race.steps["SPS"][1] == math.inf
    assert race.ratio["SPS"][0] == pytest.approx(6 / 11)
    assert "SPS   does not get there in 1 of 2 runs" in race.text()
    assert "SGD   11 steps, 1.00 ± 0.00" in race.text()
    assert comparison.race(loss, 1, target=1.5).steps["SGD"].tolist() == [6, 6]


def test_choice_leaves_diverged_rates_out():
    losses = {"SGD": {0.1: 0.9, 0.3: 0.7, 1.0: math.nan}}
    chosen = comparison.choose(losses)
    assert chosen == {"SGD": 0.3}
    assert comparison.table(losses, chosen) == "SGD   0.1: 0.900   0.3: 0.700*  1: nan "
    caps = {"SPS": {0.3: 0.8, 1.0: 0.7, 3.0: 0.7, 0.1: 0.9}}  # from 1 on no step reaches its cap
    assert comparison.choose(caps) == {"SPS": 3.0}
    with pytest.raises(ValueError, match="every trial of SGD diverged, at rates 1"):
        comparison.choose({"SGD": {1.0: math.nan}})


def test_errors_of_the_steps_are_found():
    runs = {rule: [history([1.0, 0.8])] for rule in ("SGD", "SNGD", "SPS")}
    errors = comparison.step_errors(runs, rate=0.2, cap=3.0)
    assert errors["SNGD"] == pytest.approx(0)  # 0.2 / 2 is the 0.1 that was taken
    assert errors["SPS"] == pytest.approx(0.2)  # 1 / (2 · 4) = 0.125 against 0.1


def test_seconds_at_the_evaluations():
    assert comparison.seconds_at({"SGD": [history([1.0, 1.0, 1.0])]})["SGD"].tolist() == [0, 3]


def test_parts_are_trained_once(tmp_path):
    calls, parts = [], comparison.Parts(tmp_path / "parts")

    def train(path):
        calls.append(path)
        path.parent.mkdir(exist_ok=True)
        path.write_text("checkpoint")
        return history([1.0, 0.5], test_loss=[1.0, 0.6])

    first, second = (parts.get("a", train) for _ in range(2))
    assert len(calls) == 1 and not calls[0].exists()
    np.testing.assert_array_equal(first.loss, second.loss)
    assert second.metrics["test_loss"].tolist() == [1.0, 0.6]
    parts.clear()
    assert not (tmp_path / "parts").exists()


class Mean(torch.nn.Module):
    """Word vectors, averaged, to two logits."""

    def __init__(self):
        super().__init__()
        self.words, self.head = torch.nn.Embedding(9, 4), torch.nn.Linear(4, 2)

    def forward(self, inputs):
        return self.head(self.words(inputs[:, 0].long()).mean(1))


def experiment(folder):
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1, 9, (40, 2, 5), generator=generator, dtype=torch.int32)
    tokens = Tokens(ids, (ids[:, 0, 0] > 4).long(), torch.full((40,), 5))
    return language.Experiment(
        Mean, tokens, 8, "float32", comparison.Parts(folder), checkpoint_every=3
    )


def evaluate(model):
    return {"test_loss": float(model.head.weight.square().sum()), "test_accuracy": 0.5}


def test_the_cap_of_sngd_is_the_one_that_sps_chose(tmp_path):
    grid = {"SGD": [0.1], "Adam": [0.01], "SPS": [0.2, 0.4], "SNGD": [0.3, 0.6]}
    losses = experiment(tmp_path).grid(grid, seed=7, steps=4, evaluate=evaluate)
    assert {rule: list(trials) for rule, trials in losses.items()} == grid
    cap = comparison.choose(losses)["SPS"]
    names = {path.stem for path in tmp_path.glob("*.npz")}
    assert f"SNGD-0.3-{cap:g}-seed7-4" in names and len(names) == 6


def test_a_killed_run_goes_on_to_the_same_bits(tmp_path):
    arguments = ("SNGD", 0.3, 1.0, 0, 8)
    whole = experiment(tmp_path / "whole").train(*arguments, evaluate, [0])
    calls = []

    def dies(model):
        calls.append(1)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return evaluate(model)

    with pytest.raises(KeyboardInterrupt):
        experiment(tmp_path / "cut").train(*arguments, dies, [0, 5])
    assert list((tmp_path / "cut").glob("*.pt"))
    resumed = experiment(tmp_path / "cut").train(*arguments, evaluate, [0, 5])
    np.testing.assert_array_equal(resumed.loss, whole.loss)
    assert not list((tmp_path / "cut").glob("*.pt"))


def compared():
    good = dict(test_accuracy=[0.5, 0.9], **{"entropy.0": [0.8, 0.4], "entropy.1": [0.6, 0.4]})
    fall, fast = np.linspace(1, 0.5, 10), np.linspace(1, 0.1, 10)
    return {rule: [history(fall if rule == "SGD" else fast, **good)] * 2 for rule in language.RULES}


def test_claims_and_numbers_of_a_figure():
    runs = compared()
    race = comparison.race(comparison.stacked(runs, "loss"), 2)
    rates = dict.fromkeys(language.RULES, 0.2)
    table = language_claims.table(runs, race, rates, 2, 2, "Fig. 1", real=True)
    by_id = {claim.id: claim for claim in table}
    assert by_id["faster.SNGD"].holds and by_id["faster.SNGD"].measured == pytest.approx(
        race.ratio["SNGD"].max()
    )
    assert by_id["entropy.SGD"].measured == pytest.approx(0.8 / 1.4)
    assert not by_id["formula.SPS"].holds and by_id["formula.SNGD"].holds
    race.ratio["SNGD"][:] = 1  # as many steps are not fewer
    again = language_claims.table(runs, race, rates, 2, 2, "Fig. 1", real=True)
    assert not {claim.id: claim for claim in again}["faster.SNGD"].holds
    demo = language_claims.table(runs, race, rates, 2, 2, "Fig. 1", real=False)
    assert {claim.id for claim in demo} == {"formula.SNGD", "formula.SPS", "learns"}
    race.ratio["Adam"][0] = math.inf
    numbers = language_claims.numbers(runs, race, {"SGD": {0.1: 0.7, 1.0: math.nan}}, 2, 2, 0.05)
    assert (numbers["sgd_0.1_held_out_loss"].value, numbers["sgd_1_held_out_loss"].value) == (
        0.7,
        None,
    )
    assert (
        numbers["adam_steps_ratio"].value is None and numbers["adam_steps_ratio_sd"].value is None
    )
    assert numbers["sgd_test_accuracy"].value == 0.9 and numbers[
        "sgd_entropy_ratio"
    ].value == pytest.approx(0.8 / 1.4)


def test_rules_are_those_of_the_paper():
    model = training.initialised(Mean, 0)
    for rule, make in language.RULES.items():
        assert isinstance(make(model.parameters(), 0.1, 1.0), torch.optim.Optimizer), rule
    assert list(language.RULES).index("SPS") < list(language.RULES).index("SNGD")  # whose cap it is


def test_a_choice_at_the_edge_of_its_grid_is_named():
    losses = {"SGD": {0.1: 2.0, 0.3: 1.0, 1.0: 3.0}, "Adam": {0.001: 1.0, 0.01: 2.0}}
    assert comparison.at_edge(losses, comparison.choose(losses)) == ["Adam"]
