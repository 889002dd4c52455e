"""The explorer: else it draws another run than its controls say, or freezes at a
setting.
"""

import io

import numpy as np
import pytest
from PIL import Image

from companion import explorer
from companion.explorer import ExplorerSetting
from lib import dynamics, svm
from lib.attention import coordinates, tokens
from lib.dynamics import rules

SMALL = dict(n=4, T=3, d=20, steps=100)


def test_trajectory_is_the_training_run_of_its_setting():
    shown = explorer.explore(
        ExplorerSetting(rule="NGD", step_size=0.05, seed=2, **SMALL)
    )
    problem = coordinates.minimal(tokens.class_mean_tokens(2, 4, 3, 20))
    start = dynamics.gaussian_start(problem, 1e-3, [2])
    W_mm = svm.token_svm(problem.tokens).W
    run = dynamics.train(
        problem, rules.NGD(0.05), 100, shown.iterations, start, targets={"W_mm": W_mm}
    )
    np.testing.assert_array_equal(shown.direction_error, run.direction_error["W_mm"][0])
    np.testing.assert_allclose(10**shown.loss_gap, np.exp(run.log_gap[0]), rtol=1e-12)
    along = (run.weights(-1)[0] * W_mm[0]).sum() / np.linalg.norm(W_mm[0])
    np.testing.assert_allclose(shown.path[-1, 0], along, rtol=1e-9)
    np.testing.assert_allclose(np.hypot(*shown.path.T), run.norm[0], rtol=1e-9)
    assert shown.opt_scores.shape == (shown.iterations.size, 4)
    assert (np.diff(shown.opt_scores[:, 0]) > 0).all()


@pytest.mark.parametrize("model", explorer.MODELS)
def test_every_choice_gives_finite_curves(model):
    for rule in explorer.RULES:
        shown = explorer.explore(
            ExplorerSetting(model=model, rule=rule, step_size=1.0, **SMALL)
        )
        for values in (
            shown.loss_gap,
            shown.direction_error,
            shown.opt_scores,
            shown.path,
        ):
            assert np.isfinite(values).all() and len(values) == len(shown.iterations)


def test_board_forgets_what_it_showed_before():
    first, second = (
        explorer.explore(ExplorerSetting(seed=seed, **SMALL)) for seed in (0, 1)
    )
    board = explorer.Board(first)
    before = board.png()
    board.show(second)
    assert before != board.png() == explorer.Board(second).png()


def test_controls_redraw_at_every_move_and_say_what_cannot_be_drawn():
    panel = explorer.Panel(ExplorerSetting(**SMALL))
    assert set(panel.controls) == set(ExplorerSetting.__dataclass_fields__)
    before = panel.picture.value
    words = panel.words.value
    # Two pixels for each that is shown: on such a screen the browser need not enlarge
    # it.
    width, height = Image.open(io.BytesIO(before)).size
    assert width == 2 * int(panel.picture.width) and width / height == pytest.approx(
        9 / 5.4, 1e-3
    )
    panel.controls["seed"].value = 5
    assert panel.picture.value != before and panel.words.value != words
    panel.controls["model"].value = "Gaussian"
    panel.controls[
        "d"
    ].value = 5  # nT = 12 tokens cannot have equal scores in 5 dimensions
    assert (
        "n T = 12" in panel.words.value and panel.picture.layout.visibility == "hidden"
    )
    panel.controls["d"].value = 20
    assert (
        "direction error" in panel.words.value
        and panel.picture.layout.visibility == "visible"
    )
