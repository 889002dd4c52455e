"""The explorer shows what training gives; its controls follow every move and never raise."""

import io
import itertools

import numpy as np
import pytest
from PIL import Image

from lib import dynamics, explorer, svm
from lib.attention import coordinates, tokens
from lib.dynamics import rules
from lib.explorer import panel
from lib.explorer.trajectory import MODELS, RULES, ExplorerSetting

SMALL = dict(n=4, T=3, d=20, steps=100)


def test_trajectory_is_the_training_run_of_its_setting():
    shown = explorer.explore(ExplorerSetting(rule="NGD", step_size=0.05, seed=2, **SMALL))
    problem = coordinates.minimal(tokens.class_mean_tokens(2, 4, 3, 20))
    start = dynamics.gaussian_start(problem, 1e-3, [2])
    target = svm.token_svm(problem.tokens).W
    history = dynamics.train(
        problem, rules.ngd(0.05), 100, shown.iterations, start, {"W_mm": target}
    )
    np.testing.assert_array_equal(shown.direction_error, history.direction_error["W_mm"][0])
    np.testing.assert_allclose(10**shown.loss_gap, np.exp(history.log_gap[0]), rtol=1e-12)
    W = history.weights(len(shown.iterations) - 1)[0]
    np.testing.assert_allclose(
        shown.path[-1, 0], (W * target[0]).sum() / np.linalg.norm(target[0]), rtol=1e-9
    )
    np.testing.assert_allclose(np.hypot(*shown.path.T), history.norm[0], rtol=1e-9)
    assert (
        shown.opt_scores.shape == (shown.iterations.size, 4)
        and (np.diff(shown.opt_scores[:, 0]) > 0).all()
    )


@pytest.mark.parametrize(("model", "rule"), list(itertools.product(MODELS, RULES)))
def test_every_choice_gives_finite_curves(model, rule):
    shown = explorer.explore(ExplorerSetting(model=model, rule=rule, step_size=1.0, **SMALL))
    for values in (shown.loss_gap, shown.direction_error, shown.opt_scores, shown.path):
        assert np.isfinite(values).all() and len(values) == len(shown.iterations)


@pytest.mark.parametrize("values", [dict(model="sphere"), dict(rule="Adam")])
def test_unknown_name_is_refused(values):
    with pytest.raises(ValueError, match="choose one of"):
        ExplorerSetting(**values)


def pixels(content):
    return np.asarray(Image.open(io.BytesIO(content)), int)


def test_picture_has_two_pixels_for_each_that_is_shown():
    """On a screen of two pixels a point the browser need not enlarge it."""
    shown = panel.Panel(ExplorerSetting(**SMALL))
    width, height = Image.open(io.BytesIO(shown.picture.value)).size
    assert width == 2 * int(shown.picture.width) and shown.picture.height == ""
    assert width / height == pytest.approx(9 / 5.4, rel=1e-3)


def test_board_forgets_what_it_showed_before():
    first, second = (explorer.explore(ExplorerSetting(seed=seed, **SMALL)) for seed in (0, 1))
    moved = explorer.Board(first)
    moved.show(second)
    fresh = explorer.Board(second)
    np.testing.assert_array_equal(pixels(moved.png()), pixels(fresh.png()))
    assert (pixels(explorer.Board(first).png()) != pixels(fresh.png())).any()


def test_controls_redraw_at_every_move_and_say_what_cannot_be_drawn():
    shown = panel.Panel(ExplorerSetting(**SMALL))
    assert set(shown.controls) == set(ExplorerSetting.__dataclass_fields__)
    before, words = shown.picture.value, shown.words.value
    shown.controls["seed"].value = 5
    assert shown.picture.value != before and shown.words.value != words
    shown.controls["model"].value = "Gaussian"
    shown.controls["d"].value = 5  # nT = 12 tokens cannot have equal scores in 5 dimensions
    assert (
        "No picture: n T = 12 exceeds d = 5" in shown.words.value
        and shown.picture.layout.visibility == "hidden"
    )
    shown.controls["d"].value = 20
    assert "direction error" in shown.words.value and shown.picture.layout.visibility == "visible"
