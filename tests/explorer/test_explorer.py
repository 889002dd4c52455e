"""Tests of the explorer.

A failure means that it draws another run than its controls say, or freezes at a
setting.
"""

import io
from dataclasses import fields, replace

import numpy as np
import pytest
from PIL import Image

from companion import explorer
from companion.explorer import ExplorerSetting
from lib import attention, dynamics, svm
from lib.dynamics import rules
from papers.law.margin_law import margin_law

SMALL = dict(n=4, T=3, d=20, steps=100)


def test_a_run_is_the_training_run_of_its_setting():
    shown = explorer.explore(
        ExplorerSetting(rule="NGD", step_size=0.05, seed=2, **SMALL)
    )
    problem = attention.minimal(attention.class_mean_tokens(2, 4, 3, 20))
    start = dynamics.gaussian_start(problem, 1e-3, [2])
    targets = {"W_mm": svm.token_svm(problem.tokens)}
    run = dynamics.train(
        problem, rules.NGD(0.05), 100, shown.iterations, start, targets=targets
    )
    np.testing.assert_array_equal(shown.direction_error, run.direction_error["W_mm"][0])
    np.testing.assert_array_equal(shown.norm, run.norm[0])
    weights = attention.weights(problem.tokens, run.weights(-1))[0]
    np.testing.assert_allclose(shown.weights, weights, rtol=1e-12)
    at_opt = weights[np.arange(4), shown.opt]
    np.testing.assert_allclose(shown.opt_weights[-1], at_opt, rtol=1e-9)
    assert (np.diff(shown.opt_weights[:, 0]) > 0).all()


@pytest.mark.parametrize("model", explorer.MODELS)
@pytest.mark.parametrize("rule", explorer.RULES)
def test_every_choice_gives_finite_curves(model, rule):
    setting = ExplorerSetting(model=model, rule=rule, step_size=1.0, **SMALL)
    shown = explorer.explore(setting)
    for values in (shown.norm, shown.direction_error, shown.opt_weights):
        assert np.isfinite(values).all()
        assert len(values) == len(shown.iterations)


def test_the_dotted_line_is_the_law_of_the_norm_and_missing_without_a_law():
    setting = ExplorerSetting(**SMALL)
    shown = explorer.explore(setting, margin_law)
    tokens = attention.class_mean_tokens(0, 4, 3, 20)
    law = margin_law(tokens, svm.token_svm(tokens), tokens.opt)
    predicted = law.direction_error(shown.norm[None])[0]
    np.testing.assert_allclose(shown.predicted, predicted, rtol=1e-6)
    assert explorer.explore(setting).predicted is None


def test_a_law_whose_premises_fail_is_left_out():
    def refuses(tokens, target, selected):
        raise ValueError("its premises fail")

    assert explorer.explore(ExplorerSetting(**SMALL), refuses).predicted is None


def test_the_axes_are_the_same_for_every_run():
    settings = ExplorerSetting(**SMALL), ExplorerSetting(n=2, T=2, d=9, rule="GD")
    limits = [
        [(axis.get_xlim(), axis.get_ylim()) for axis in figure.axes]
        for figure in (explorer.draw(explorer.explore(one)) for one in settings)
    ]
    assert limits[0] == limits[1]


def test_the_last_run_is_drawn_behind_in_grey():
    setting = ExplorerSetting(**SMALL)
    last = explorer.explore(setting)
    run = explorer.explore(replace(setting, seed=1))
    alone, both = explorer.draw(run), explorer.draw(run, last)
    for before, after in zip(alone.axes[1:], both.axes[1:], strict=True):
        assert len(after.lines) == len(before.lines) + 1
    ghost = both.axes[1].lines[0]
    np.testing.assert_array_equal(ghost.get_ydata(), last.direction_error)


def test_the_discs_are_as_large_as_the_weights():
    run = explorer.explore(ExplorerSetting(**SMALL))
    (discs,) = explorer.draw(run).axes[0].collections
    areas = discs.get_sizes().reshape(run.weights.shape)
    heaviest = np.unravel_index(areas.argmax(), areas.shape)
    assert heaviest == np.unravel_index(run.weights.argmax(), run.weights.shape)


def test_a_picture_has_two_pixels_for_each_that_is_shown_and_says_what_it_shows():
    run = explorer.explore(ExplorerSetting(**SMALL))
    picture = explorer.picture(run)
    width, _ = Image.open(io.BytesIO(picture.data)).size
    assert width == 2 * picture.width
    assert "direction error" in picture.alt


def test_controls_redraw_at_every_move_and_say_what_cannot_be_drawn():
    panel = explorer.interactive(ExplorerSetting(**SMALL))
    *moved, shown, said = panel.children
    controls = {control.description: control for control in moved}
    assert list(controls) == [
        "model", "rule", "step_size", "n", "T", "d", "signal", "noise", "steps", "seed"
    ]  # fmt: skip
    assert set(controls) == {one.name for one in fields(ExplorerSetting)}
    before = shown.value
    controls["seed"].value = 5
    assert shown.value != before
    controls["model"].value = "Gaussian"
    controls["d"].value = 5  # nT = 12 tokens cannot have equal scores in 5 dimensions
    assert said.value.startswith("No picture: ") and "n T = 12" in said.value
    assert shown.layout.display == "none"
    controls["d"].value = 20
    assert "direction error" in said.value
    assert shown.layout.display is None
