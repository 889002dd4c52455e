"""The moving picture of notebook 00: what its frames show is the training that the library does."""

import numpy as np
from PIL import Image

from lib import attention, dynamics, svm
from lib.dynamics import rules
from papers.a import turning


def test_the_path_is_that_of_the_exact_engine():
    tokens, walked = attention.two_examples(), turning.path(400)
    problem, target = attention.minimal(tokens), svm.token_svm(tokens)
    goal = {"W_mm": problem.reduce(target.W)[0]}
    start = turning.START[None]
    history = dynamics.train(problem, rules.ngd(turning.STEP), 400, start=start, targets=goal)
    unit = walked / np.linalg.norm(walked, axis=(1, 2), keepdims=True)
    error = np.linalg.norm(unit - target.W[0] / target.norm[0], axis=(1, 2))
    np.testing.assert_allclose(
        error[history.iterations], history.direction_error["W_mm"][0], atol=1e-9
    )


def test_the_arrows_turn_to_the_rays_found_by_eye():
    arrows = turning.directions(turning.path(3000)[-1])
    np.testing.assert_allclose(arrows, [[-(0.5**0.5), 0.5**0.5], [0, -1]], atol=0.02)
    before = turning.directions(turning.START)
    assert np.all((before * arrows).sum(-1) < 0.5)  # there is something to see


def test_the_picture_moves(tmp_path):
    gif, poster = tmp_path / "a.gif", tmp_path / "a.png"
    turning.animate(gif, poster, frames=4)
    with Image.open(gif) as moving, Image.open(poster) as still:
        frames = []
        for k in range(moving.n_frames):
            moving.seek(k)
            frames.append(np.asarray(moving.convert("L"), float))
        assert len(frames) >= 4 and moving.size == still.size
    assert all(np.abs(a - b).max() > 100 for a, b in zip(frames[:3], frames[1:4], strict=True))
