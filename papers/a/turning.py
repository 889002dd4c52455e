"""Animate how attention turns during training, on the data of notebook 00.

`python -m papers.a.turning` writes figures/turning.gif and a still of start and end.
"""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.animation import FuncAnimation, PillowWriter
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from companion import plots
from lib import attention, dynamics, files, svm
from lib.attention import TokenSet

START = np.array([[1.5, 1.5], [-1.0, 1.0]])  # starts in a wrong direction on purpose
STEP = 0.02
STEPS = 10_000
FRAMES = 50
SECONDS = 5.0
HELD_AT_START = 0.9  # seconds
HELD_AT_END = 1.4
SIZE = (plots.WIDTH, 3.8)  # inches
STILL = (plots.WIDTH, 2.7)
LIMITS = (-2.45, 2.45)
# An arrow of norm s is drawn with the length SHORTEST + LENGTHENED log(1 + s).
SHORTEST = 0.4
LENGTHENED = 0.38
HEADLINE = "From a wrong start, the layer turns to the best token"
KEY = (
    "Green: the best token. In a token: its score. Above: its softmax weight, which is"
    " its size.\nArrow: $W_tz_i$, its length on a log scale. Dashed: the direction of"
    " largest margin."
)


def path(times: np.ndarray) -> np.ndarray:
    """Return W_t (times, 2, 2) of NGD (Eq. 4) on `attention.two_examples()`.

    `times` (times,) are ascending whole numbers. The run starts at START, and has the
    step size STEP.
    """
    problem = attention.minimal(attention.two_examples())
    history = dynamics.train(
        problem, dynamics.NGD(STEP), times[-1], times, start=START[None]
    )
    return np.array([problem.expand(history.weights(k))[0] for k in range(len(times))])


def directions(W: np.ndarray) -> np.ndarray:
    """Return the unit vectors along W z_i, of shape (..., 2 examples, 2), for W (...,
    2, 2).

    They are NaN if W z_i is zero.
    """
    turned = np.einsum("...de,ie->...id", W, attention.two_examples().z[0])
    return turned / np.linalg.norm(turned, axis=-1, keepdims=True)


def animate(gif: Path, poster: Path, frames: int = FRAMES) -> None:
    """Write the animation, and a still picture of its start and its end.

    The larger a token's softmax weight is, the larger the token is drawn. Each arrow
    shows W_t z_i; the length of the arrow grows with the logarithm of the norm of W_t
    z_i. The frames are spaced so that the total turn of the two arrows is about the
    same from each frame to the next. The first and the last frame are shown for longer.

    Parameters
    ----------
    gif, poster : Path
        Where the animation and the still picture are written. Existing files are
        replaced.
    frames : int, optional
        The largest number of different moments that the animation shows.
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
        # A layout would move the panels between frames.
        mpl.rcParams["figure.constrained_layout.use"] = False
        figure = Figure(figsize=SIZE, dpi=110)
        panels = [figure.add_axes((left, 0.01, 0.47, 0.74)) for left in (0.02, 0.51)]
        writer = PillowWriter(fps=len(times) / SECONDS)
        moments = [*zip(times, path(times), strict=True)]
        held = moments[:1] * round(HELD_AT_START * writer.fps)
        shown = held + moments + moments[-1:] * round(HELD_AT_END * writer.fps)

        def draw(moment: int):
            _draw(figure, panels, tokens, W_mm, *moment)

        FuncAnimation(figure, draw, shown).save(gif, writer, dpi=110)
        _still(moments[0], moments[-1], tokens, W_mm).savefig(poster, dpi=110)


def _still(start: tuple, end: tuple, tokens: TokenSet, W_mm: np.ndarray) -> Figure:
    """Draw the two examples twice: at the start of training on the left, and at its end
    on the right.

    `start` and `end` are pairs (t, W), where W and `W_mm` have the shape (2, 2).
    """
    width, height = STILL
    figure = Figure(figsize=STILL, dpi=110)
    for left, (t, W) in ((0.0, start), (0.51, end)):
        panels = [
            figure.add_axes((left + more, 0.01, 0.24, 0.24 * width / height))
            for more in (0.005, 0.245)
        ]
        for i, panel in enumerate(panels):
            _example(panel, i, tokens, W_mm, W)
        figure.text(left + 0.245, 0.66, f"step {t:,}", ha="center", fontsize=10)
    between = {"color": plots.FAINT, "linewidth": 1}
    figure.add_artist(Line2D([0.5, 0.5], [0.03, 0.70], **between))
    figure.text(0.02, 0.97, HEADLINE, va="top", **plots.HEADLINE)
    figure.text(0.02, 0.875, KEY, va="top", **plots.READING)
    return figure


def _draw(
    figure: Figure,
    panels: Sequence[Axes],
    tokens: TokenSet,
    W_mm: np.ndarray,
    t: int,
    W: np.ndarray,
) -> None:
    """Draw one frame: the two examples and, as text above them, the step, the direction
    error and the norm of W.

    W and W_mm (2, 2) must not be zero. Texts that are already in `figure` are removed.
    """
    for i, panel in enumerate(panels):
        _example(panel, i, tokens, W_mm, W)
    for text in list(figure.texts):
        text.remove()
    size = np.linalg.norm(W)
    error = np.linalg.norm(W / size - W_mm / np.linalg.norm(W_mm))
    figure.text(0.02, 0.97, HEADLINE, va="top", **plots.HEADLINE)
    words = f"step {t:,}: direction {error:.3f} off, norm {size:.1f}\n{KEY}"
    figure.text(0.02, 0.905, words, va="top", **plots.READING)


def _example(
    panel: Axes, i: int, tokens: TokenSet, W_mm: np.ndarray, W: np.ndarray
) -> None:
    """Draw example i (0 or 1) in a panel, which is cleared: its tokens with their
    weights and scores, the arrow W z_i, and the ray along W_mm z_i.
    """
    weights = attention.weights(tokens, W[None])[0, i]
    scores = attention.scores(tokens, tokens.u)[0, i]
    panel.clear()
    panel.set(xlim=LIMITS, ylim=LIMITS, aspect="equal")
    panel.axis("off")
    name = f"example {i + 1}"
    panel.text(0.02, 0.04, name, transform=panel.transAxes, fontsize=9)
    panel.plot(*np.outer([0, 3.6], directions(W_mm)[i]).T, **plots.BOUND)
    for k, place in enumerate(tokens.X[0, i]):
        best = k == tokens.opt[0, i]
        colour = plots.look("best token").colour if best else plots.GREY
        size = 130 + 800 * weights[k]
        panel.scatter(*place, s=size, color=colour, alpha=0.85, zorder=3, clip_on=False)
        style = {"textcoords": "offset points", "ha": "center", "fontsize": 8}
        share = f"{weights[k]:.0%}".replace("%", " %")
        above = 0, np.sqrt(size) / 2 + 2  # offset in points, just above the disc
        panel.annotate(share, place, above, color=colour, va="bottom", **style)
        score = f"{scores[k]:+.0f}".replace("-", "\N{MINUS SIGN}").replace("+0", "0")
        white = {"color": plots.PAPER, "va": "center", "zorder": 4}
        panel.annotate(score, place, (0, 0), **white, **style)
    arrow = W @ tokens.z[0, i]
    size = np.linalg.norm(arrow)
    length = SHORTEST + LENGTHENED * np.log(1 + size)
    tip = {
        "arrowstyle": "-|>",
        "color": plots.look("measured").colour,
        "linewidth": 2.5,
    }
    panel.annotate("", length * arrow / size, (0, 0), arrowprops=tip, zorder=5)


if __name__ == "__main__":
    animate(files.ROOT / "figures/turning.gif", files.ROOT / "figures/turning.png")
