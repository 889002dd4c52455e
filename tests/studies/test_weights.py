"""Tests of the histograms of weights in paper C's vision experiment.

A failure means that page 34 draws or tells other shares than those of the weights.
"""

import numpy as np
import pytest

from lib.networks import measures
from lib.training.curves import Curve
from papers.studies import reviews

SPREADS = {"Adam": 0.1, "l1.1": 0.02}  # standard deviations of the weights at the end


@pytest.fixture(scope="module")
def weights():
    """Return the weights {rule: (seeds, 100, 100)} of two seeds at the end."""
    rng = np.random.default_rng(0)
    return {
        rule: spread * rng.standard_normal((2, 100, 100))
        for rule, spread in SPREADS.items()
    }


@pytest.fixture(scope="module")
def runs(weights):
    start = measures.binned([np.full((100, 100), 0.005)])
    return {
        rule: [
            Curve(
                status="finished",
                rule=rule,
                end={
                    "start.histogram": start,
                    "last.histogram": measures.binned([W]),
                },
            )
            for W in of_rule
        ]
        for rule, of_rule in weights.items()
    }


def test_small_weights_are_those_below_the_bound(weights, runs):
    for rule, of_rule in weights.items():
        expected = [100 * (np.abs(W) < 0.01).mean() for W in of_rule]
        np.testing.assert_allclose(reviews.small_weights(runs[rule]), expected)
    numbers = reviews.weight_numbers(runs)
    assert numbers["small_start"].value == 100
    assert numbers["small_l1_1"].value > 3 * numbers["small_adam"].value


def test_the_picture_has_the_mean_share_of_every_bin(weights, runs):
    (axis,) = reviews.vision_weights(runs).axes
    start, *of_rules = axis.lines
    assert start.get_ydata().max() == 100
    for line, of_rule in zip(of_rules, weights.values(), strict=True):
        centres = line.get_xdata()
        bin_of_one_tenth = np.abs(np.log(centres / 0.09)).argmin()
        edges = measures.EDGES[bin_of_one_tenth : bin_of_one_tenth + 2]
        magnitudes = np.abs(of_rule)
        inside = (magnitudes >= edges[0]) & (magnitudes < edges[1])
        shown = line.get_ydata()[bin_of_one_tenth]
        np.testing.assert_allclose(shown, 100 * inside.mean())
