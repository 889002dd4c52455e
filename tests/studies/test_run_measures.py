"""Tests by hand of what is measured on one run.

A failure means that two runs are compared at another point.
"""

import numpy as np
import pytest

from lib.training.curves import Curve
from papers.studies import run_measures


def run_with(accuracy, **metrics):
    """Return a run with these test accuracies, evaluated every ten steps."""
    accuracy = np.array(accuracy)
    at = 10 * np.arange(len(accuracy))
    return Curve(
        "finished", evaluated_at=at, metrics={"test_accuracy": accuracy} | metrics
    )


def steps_at(run, level):
    return run_measures.at_level(run, "steps", level, "test_accuracy")


def test_a_walk_of_orthogonal_steps_grows_as_pythagoras_says():
    first = np.array([3.0, 5.0])
    last = np.hypot(first, [4.0, 12.0])  # one orthogonal step of length 4, or 12
    grown = run_measures.random_walk_growth(first, np.array([16.0, 144.0]))
    assert grown == pytest.approx(last / first - 1)


def test_a_level_is_passed_between_the_two_evaluations_around_it():
    assert steps_at(run_with([0.2, 0.4, 0.8]), 0.5) == pytest.approx(12.5)


def test_a_level_at_an_evaluation_is_passed_there():
    assert steps_at(run_with([0.2, 0.4, 0.8]), 0.4) == pytest.approx(10)


def test_after_a_fall_the_two_evaluations_around_a_level_count_alone():
    assert steps_at(run_with([0.7, 0.3, 0.9]), 0.8) == pytest.approx(10 + 10 * 5 / 6)


def test_what_follows_does_not_count_for_the_point_at_which_a_level_is_passed():
    run = run_with([0.2, 0.8, 0.1, 0.1])
    assert steps_at(run, 0.5) == pytest.approx(5)


def test_a_level_of_the_first_evaluation_gives_the_first_value():
    assert steps_at(run_with([0.5, 0.3, 0.9]), 0.4) == 0


def test_a_level_that_is_never_reached_gives_no_value():
    assert np.isnan(steps_at(run_with([0.5, 0.3]), 0.6))


def test_of_a_loss_the_smaller_value_is_the_better():
    run = run_with([0.5, 0.6], control_loss=np.array([2.0, 1.0]))
    assert run_measures.rising(run, "control_loss").tolist() == [-2.0, -1.0]
    assert run_measures.rising(run, "test_accuracy").tolist() == [0.5, 0.6]


def test_the_common_level_is_the_best_value_of_the_weaker_run():
    strong = run_with([0.2, 0.6, 1.0])
    weak = run_with([0.0, 0.4, 0.3])
    at = run_measures.at_common_level((strong, weak), "steps", "test_accuracy")
    assert at == pytest.approx([5, 10])


@pytest.mark.parametrize(
    ("name", "is_matrix"),
    [
        ("blocks.0.mlp.1.weight", True),
        ("blocks.0.mlp.0.weight", False),
        ("blocks.0.attention_norm.weight", False),
        ("head.1.bias", False),
    ],
)
def test_a_norm_or_a_bias_is_no_weight_matrix(name, is_matrix):
    run = Curve("finished", weight_norms={name: np.ones(2)})
    assert run_measures.weight_matrices(run) == [name] * is_matrix
