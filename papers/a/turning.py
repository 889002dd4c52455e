"""Attention that turns, as a picture that moves, of notebook 00's data: `python -m
papers.a.turning` writes figures/turning.gif and, beside it, its last frame.
"""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.animation import FuncAnimation, PillowWriter
from matplotlib.figure import Figure

from companion import plots
from lib import attention, dynamics, files, svm

START = np.array([[1.5, 1.5], [-1.0, 1.0]])  # in a wrong direction, on purpose
STEP = 0.02
STEPS = 10_000
FRAMES = 50
SECONDS = 5.0
LIMITS = (-2.6, 2.6)


def path(times: np.ndarray) -> np.ndarray:
    """W_t (times, 2, 2) of NGD (Eq. 4) on `attention.two_examples()`."""
    problem = attention.minimal(attention.two_examples())
    history = dynamics.train(
        problem, dynamics.NGD(STEP), times[-1], times, start=START[None]
    )
    return np.array([problem.expand(history.weights(k))[0] for k in range(len(times))])


def directions(W: np.ndarray) -> np.ndarray:
    """Unit vectors along W z_i, (..., 2, 2) -> (..., 2 examples, 2)."""
    turned = np.einsum("...de,ie->...id", W, attention.two_examples().z[0])
    return turned / np.linalg.norm(turned, axis=-1, keepdims=True)


def animate(gif: Path, poster: Path, frames: int = FRAMES) -> None:
    """Write the moving picture and its last frame: tokens that grow with their
    weights, the arrow W_t z_i, turned alike between frames, the ray of W_mm z_i.
    """
    tokens = attention.two_examples()
    W_mm = svm.token_svm(tokens).W[0]
    every = directions(path(np.arange(STEPS + 1)))
    turned = np.append(
        0, np.linalg.norm(np.diff(every, axis=0), axis=-1).sum(-1).cumsum()
    )
    times = np.unique(
        np.searchsorted(turned, np.linspace(0, turned[-1], frames)).clip(0, STEPS)
    )
    with mpl.rc_context():
        plots.set_style()
        mpl.rcParams["figure.constrained_layout.use"] = (
            False  # or the panels move between frames
        )
        figure = Figure(figsize=(plots.WIDTH, 3.8), dpi=110)
        panels = [figure.add_axes((left, 0.02, 0.47, 0.76)) for left in (0.02, 0.51)]
        writer = PillowWriter(fps=len(times) / SECONDS)
        shown = [*zip(times, path(times), strict=True)]
        shown += shown[-1:] * round(writer.fps)  # a second to look at the end

        def draw(frame):
            return _draw(figure, panels, tokens, W_mm, *frame)

        FuncAnimation(figure, draw, shown).save(gif, writer, dpi=110)
        figure.savefig(poster, dpi=110)


def _draw(figure, panels, tokens, W_mm, t, W):
    weights = attention.weights(tokens, W[None])[0]  # (2, 3)
    towards = directions(W_mm)
    arrows = directions(W)
    for i, panel in enumerate(panels):
        panel.clear()
        panel.set(xlim=LIMITS, ylim=LIMITS, aspect="equal", title=f"example {i + 1}")
        panel.axis("off")
        panel.plot(*np.outer([0, 3.6], towards[i]).T, **plots.BOUND)
        for k, place in enumerate(tokens.X[0, i]):
            if k == tokens.opt[0, i]:
                colour = plots.INKS["vermilion"]
            else:
                colour = plots.GREY
            panel.scatter(
                *place, s=30 + 900 * weights[i, k], color=colour, alpha=0.85, zorder=3
            )
            words = f"{weights[i, k]:.0%}".replace("%", " %")
            above = dict(textcoords="offset points", color=colour, ha="center")
            panel.annotate(words, place, (0, 20), **above)
        tip = {"arrowstyle": "-|>", "color": plots.look("NGD").colour, "linewidth": 2.5}
        panel.annotate("", 2.2 * arrows[i], (0, 0), arrowprops=tip, zorder=4)
    error = np.linalg.norm(W / np.linalg.norm(W) - W_mm / np.linalg.norm(W_mm))
    words = (
        f"step {t:,}: the direction of $W_t$ is {error:.3f} from that of $W_{{mm}}$\n"
        "arrow: $W_t z_i$; dashed: $W_{mm} z_i$; orange: the best token; numbers: softmax weights"
    )
    figure.suptitle(words, y=0.985, fontsize=10)


if __name__ == "__main__":
    animate(files.ROOT / "figures/turning.gif", files.ROOT / "figures/turning.png")
