"""One training run, fast enough to watch while its setting is moved: its numbers, its picture."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from lib import dynamics, svm
from lib.attention import coordinates, tokens
from lib.attention.token_sets import TokenSet
from lib.companion import plots
from lib.dynamics import rules
from lib.dynamics.rules import GradientRule

MODELS: dict[str, Callable[..., TokenSet]] = {  # of seed, n, T, d, signal, noise
    "class means, orthogonal": tokens.class_mean_tokens,
    "class means, antipodal": partial(tokens.class_mean_tokens, antipodal=True),
    "Gaussian": tokens.gaussian_tokens,
    "unit sphere (no signal, no noise)": lambda *setting: tokens.unit_tokens(*setting[:4]),
}
RULES: dict[str, Callable[[float], GradientRule]] = {
    "GD": rules.gd,
    "NGD": rules.ngd,
    "NGD-mom": lambda step_size: rules.ngd(step_size, momentum=0.9),
    "Polyak": lambda step_size: rules.polyak(),
}
UNCAPPED = {"Polyak": "Polyak, no cap"}  # here it has none
DPI = 80  # of the picture as shown


@dataclass(frozen=True)
class ExplorerSetting:
    """What a reader may choose; ValueError for an unknown name."""

    model: str = "class means, orthogonal"
    n: int = 10
    T: int = 6
    d: int = 100
    signal: float = 3.0
    noise: float = 0.1
    rule: str = "NGD"
    step_size: float = 0.025
    seed: int = 0
    steps: int = 1000

    def __post_init__(self):
        for name, known in (("model", MODELS), ("rule", RULES)):
            chosen = getattr(self, name)
            if chosen not in known:
                raise ValueError(f"{name} {chosen!r}: choose one of {', '.join(known)}")


@dataclass(frozen=True)
class Trajectory:
    """One run at `iterations` (k,): loss_gap log10(L - L*) (k,), direction_error against W_mm (k,).

    opt_scores (k, n) are the softmax weights of opt tokens, path (k, 2) W_t along W_mm and off it.
    """

    setting: ExplorerSetting
    iterations: np.ndarray
    loss_gap: np.ndarray
    direction_error: np.ndarray
    opt_scores: np.ndarray
    path: np.ndarray


def explore(setting: ExplorerSetting) -> Trajectory:
    """Train one data set from a small Gaussian start and measure it against its W_mm.

    Raises ValueError, with the reason, for a setting that the data model or the rule
    refuses, or where no W separates the opt tokens from the others.
    """
    s = setting
    drawn = MODELS[s.model](s.seed, s.n, s.T, s.d, s.signal, s.noise)
    problem = coordinates.minimal(drawn)
    targets = {"W_mm": svm.token_svm(problem.tokens).W}
    record = dynamics.log_spaced(s.steps, 120)[1:]
    start = dynamics.gaussian_start(problem, 1e-3, [s.seed])
    rule = RULES[s.rule](s.step_size)
    history = dynamics.train(problem, rule, s.steps, record, start, targets)
    kept = np.isfinite(history.log_gap[0])  # a run may end early, stalled or diverged
    if not kept.any():
        end = f"{history.status[0]} at iteration {history.ended[0]}"
        raise ValueError(f"the run {end}, before any record")
    along, norm = history.alignment["W_mm"][0, kept], history.norm[0, kept]
    off = np.sqrt(np.clip(1 - along**2, 0, None))
    return Trajectory(
        setting=setting,
        iterations=record[kept],
        loss_gap=history.log_gap[0, kept] / np.log(10),
        direction_error=history.direction_error["W_mm"][0, kept],
        opt_scores=-np.expm1(history.log_miss[0, kept]),
        path=norm[:, None] * np.stack([along, off], -1),
    )


class Board:
    """Four panels, made once, that show one trajectory after the other.

    They have twice as many pixels as are shown: sharp on a screen of two pixels a point.
    """

    def __init__(self, trajectory: Trajectory):
        self.canvas = FigureCanvasAgg(Figure(figsize=(9, 5.4), dpi=2 * DPI, layout="none"))
        self.panels = self.canvas.figure.subplots(2, 2).ravel()
        titles = ("Loss gap, $\\log_{10}(L - L^*)$", "Direction error to $W_{mm}$")
        titles += ("Softmax weight of the opt token, each sample", "Path of $W_t$")
        for panel, title in zip(self.panels, titles, strict=True):
            panel.set(title=title, xlabel="iteration $t$", xscale="log")
        self.panels[1].set(yscale="log")
        self.panels[2].set(ylim=(-0.03, 1.03))
        labels = dict(xlabel="part along $W_{mm}$", ylabel="part off $W_{mm}$")
        self.panels[3].set(**labels, xscale="linear")
        for panel in self.panels:
            panel.minorticks_off()  # they would take a third of the time
        self.canvas.figure.subplots_adjust(0.08, 0.1, 0.98, 0.94, hspace=0.45, wspace=0.2)
        self.show(trajectory)

    def show(self, trajectory: Trajectory) -> None:
        """Draw another trajectory in place of the last."""
        over_time = trajectory.loss_gap, trajectory.direction_error, trajectory.opt_scores
        curves = [*((trajectory.iterations, y) for y in over_time), trajectory.path.T]
        rule = trajectory.setting.rule
        colour = plots.look(UNCAPPED.get(rule, rule)).colour
        for panel, (x, y) in zip(self.panels, curves, strict=True):
            for line in list(panel.lines):
                line.remove()
            panel.plot(x, y, linewidth=1.4 if y.ndim == 1 else 0.8, color=colour)
            panel.relim()
            panel.autoscale_view()
        longest = np.abs(trajectory.path).max()  # both axes of the path end at one value
        self.panels[3].set(xlim=(min(0, *trajectory.path[:, 0]), longest), ylim=(0, longest))
        self.canvas.draw()

    def png(self) -> bytes:
        """The panels as a picture."""
        stream = io.BytesIO()
        picture = Image.fromarray(np.asarray(self.canvas.buffer_rgba())).convert("RGB")
        picture.save(stream, "png", compress_level=1)
        return stream.getvalue()
