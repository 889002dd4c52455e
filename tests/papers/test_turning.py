"""The moving picture of notebook 00: what its frames show is the training that the library does."""

import numpy as np
from PIL import Image

from papers.a import turning


def test_the_arrows_turn_to_the_rays_found_by_eye():
    start, end = turning.path([0, turning.STEPS])
    np.testing.assert_allclose(start, turning.START, atol=1e-12)
    before, arrows = turning.directions(start), turning.directions(end)
    np.testing.assert_allclose(arrows, [[-(0.5**0.5), 0.5**0.5], [0, -1]], atol=0.02)
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
