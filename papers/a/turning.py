"""Attention that turns to the max-margin selection, as a picture that moves: notebook 00's data.

`python -m papers.a.turning` writes figures/turning.gif and, beside it, its last frame.
"""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.animation import PillowWriter
from matplotlib.figure import Figure

from lib import attention, files, svm
from lib.companion import plots

START = np.array([[1.5, 1.5], [-1.0, 1.0]])  # in a wrong direction, on purpose
STEP = 0.05
FRAMES, SECONDS = 72, 8.0
LIMITS = (-2.6, 2.6)


def path(steps: int) -> np.ndarray:
    """W_0 to W_steps (steps + 1, 2, 2) of NGD (paper A, Eq. 4) on `attention.two_examples()`."""
    tokens, W = attention.two_examples(), START
    found = [W]
    for _ in range(steps):
        _, gradient, _ = attention.gradients(tokens, W[None], tokens.u)
        W = W - STEP * gradient[0] / np.linalg.norm(gradient[0])
        found.append(W)
    return np.array(found)


def directions(W: np.ndarray) -> np.ndarray:
    """The unit vectors along W z_i of the two examples, (..., 2, 2) -> (..., 2 examples, 2)."""
    turned = np.einsum("...de,ie->...id", W, attention.two_examples().z[0])
    return turned / np.linalg.norm(turned, axis=-1, keepdims=True)


def animate(gif: Path, poster: Path, frames: int = FRAMES) -> None:
    """Write the moving picture and, beside it, its last frame.

    Per example: the tokens, as large as their softmax weights, the arrow W_t z_i, and the dashed
    ray of W_mm z_i, to which it turns. Frames are spaced by log t.
    """
    tokens = attention.two_examples()
    W_mm = svm.token_svm(tokens).W[0]
    at = np.unique(np.geomspace(1, 3000, frames).astype(int)) - 1
    walked = path(at[-1])
    with mpl.rc_context():
        mpl.rcdefaults()  # whatever style the caller has set: frames and poster have one size
        figure = Figure(figsize=(7, 3.6), dpi=110)
        panels = figure.subplots(1, 2)
        figure.subplots_adjust(left=0.02, right=0.98, top=0.8, bottom=0.04, wspace=0.06)
        writer = PillowWriter(fps=len(at) / SECONDS)
        writer.setup(figure, str(gif))
        for t in at:
            _frame(figure, panels, tokens, walked[t], W_mm, t)
            writer.grab_frame()
        for _ in range(round(2 * writer.fps)):  # two seconds to look at the end
            writer.grab_frame()
        writer.finish()
        figure.savefig(poster)


def _frame(figure, panels, tokens, W, W_mm, t):
    weights = attention.weights(tokens, W[None])[0]  # (2, 3)
    towards, arrows = directions(W_mm), directions(W)
    for i, panel in enumerate(panels):
        panel.clear()
        panel.set(xlim=LIMITS, ylim=LIMITS, aspect="equal", xticks=[], yticks=[])
        panel.set_title(f"example {i + 1}: {weights[i, tokens.opt[0, i]]:.0%} on the best token")
        panel.plot(*np.outer([0, 3.6], towards[i]).T, "--", color="0.45", linewidth=1.2)
        for k, place in enumerate(tokens.X[0, i]):
            best = k == tokens.opt[0, i]
            colour = plots.COLOURS["Polyak"] if best else "0.55"
            panel.scatter(*place, s=30 + 900 * weights[i, k], color=colour, alpha=0.85, zorder=3)
        tip = {"arrowstyle": "-|>", "color": plots.COLOURS["NGD"], "linewidth": 2.5}
        panel.annotate("", 2.2 * arrows[i], (0, 0), arrowprops=tip, zorder=4)
    error = np.linalg.norm(W / np.linalg.norm(W) - W_mm / np.linalg.norm(W_mm))
    figure.suptitle(
        f"step {t:,}: the direction of $W_t$ is {error:.3f} from that of $W_{{mm}}$"
        "   (arrow: $W_t z_i$, dashed: $W_{mm} z_i$)",
        fontsize=9.5,
    )


if __name__ == "__main__":
    animate(files.ROOT / "figures/turning.gif", files.ROOT / "figures/turning.png")
