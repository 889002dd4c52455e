"""One training run at a time, fast enough to watch while its setting is moved: what it computes and what it draws."""

import io
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from lib import coordinates, dynamics, plots, rules, svm, tokens
from lib.rules import Rule
from lib.tokens import TokenSet

MODELS: dict[str, Callable[["Setting"], TokenSet]] = {
    "class means, orthogonal": lambda s: tokens.class_mean_tokens(s.seed, s.n, s.T, s.d, s.signal, s.noise),
    "class means, antipodal": lambda s: tokens.class_mean_tokens(s.seed, s.n, s.T, s.d, s.signal, s.noise, True),
    "Gaussian": lambda s: tokens.gaussian_tokens(s.seed, s.n, s.T, s.d, s.signal, s.noise),
    "unit sphere (no signal, no noise)": lambda s: tokens.unit_tokens(s.seed, s.n, s.T, s.d),
}
RULES: dict[str, Callable[[float], Rule]] = {
    "GD": rules.gd,
    "NGD": rules.ngd,
    "NGD-mom": lambda step_size: rules.ngd(step_size, momentum=0.9),
    "Polyak": lambda step_size: rules.polyak(),
}


@dataclass(frozen=True)
class Setting:
    """What a reader may choose. Polyak's rule sets its own step size; an unknown name raises ValueError."""

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
            if getattr(self, name) not in known:
                raise ValueError(f"{name} {getattr(self, name)!r}: choose one of {', '.join(known)}")


@dataclass(frozen=True)
class Trajectory:
    """One run at `iterations` (k,): loss_gap log10(L - L*) (k,), error of the direction (k,), opt_scores the softmax
    weight of each sample's opt token (k, n), and path (k, 2): the parts of W_t along W_mm and off it.
    """

    setting: Setting
    iterations: np.ndarray
    loss_gap: np.ndarray
    direction_error: np.ndarray
    opt_scores: np.ndarray
    path: np.ndarray


def explore(setting: Setting) -> Trajectory:
    """Train one data set from a small Gaussian start and measure it against its W_mm.

    Raises ValueError, with the reason, for a setting that the data model or the rule refuses, or where no W separates
    the opt tokens from the others.
    """
    problem = coordinates.minimal(MODELS[setting.model](setting))
    target = svm.token_svm(problem.tokens).W
    record = dynamics.log_spaced(setting.steps, 120)[1:]
    rule = RULES[setting.rule](setting.step_size)
    start = dynamics.gaussian_start(problem, 1e-3, [setting.seed])
    history = dynamics.train(problem, rule, setting.steps, record, start, {"W_mm": target})
    along, norm = history.alignment["W_mm"][0], history.norm[0]
    path = norm[:, None] * np.stack([along, np.sqrt(np.clip(1 - along**2, 0, None))], -1)  # (k, 2)
    opt_scores = -np.expm1(history.log_miss[0])  # (k, n)
    return Trajectory(
        setting, record, history.log_gap[0] / np.log(10), history.direction_error["W_mm"][0], opt_scores, path
    )


class Board:
    """Four panels that are drawn once and then only moved, which is what makes a redraw fast."""

    def __init__(self, trajectory: Trajectory):
        self.figure = Figure(figsize=(9, 5.4), dpi=80, layout="none")  # a layout that adapts would be sought anew each time
        self.panels = loss, error, scores, path = self.figure.subplots(2, 2).ravel()
        colour = plots.COLOURS["NGD"]
        (self.loss,) = loss.plot([], [], color=colour)
        (self.error,) = error.plot([], [], color=colour)
        (self.path,) = path.plot([], [], color=colour, marker=".", markersize=3)
        self.scores = []
        path.axhline(0, linestyle=":", color="0.3")
        loss.set(title="Loss gap, $\\log_{10}(L - L^*)$", xlabel="iteration $t$", xscale="log")
        error.set(title="Direction error to $W_{mm}$", xlabel="iteration $t$", xscale="log", yscale="log")
        scores.set(title="Softmax weight of the opt token, each sample", xlabel="iteration $t$", xscale="log")
        scores.set_ylim(-0.03, 1.03)
        path.set(title="Path of $W_t$", xlabel="part along $W_{mm}$", ylabel="part off $W_{mm}$")
        self.figure.subplots_adjust(left=0.07, right=0.98, top=0.93, bottom=0.09, hspace=0.42, wspace=0.2)
        self.show(trajectory)

    def show(self, trajectory: Trajectory) -> None:
        """Move the lines to another trajectory."""
        t = trajectory.iterations
        self.loss.set_data(t, trajectory.loss_gap)
        self.error.set_data(t, trajectory.direction_error)
        self.path.set_data(*trajectory.path.T)
        for line in self.scores:
            line.remove()
        self.scores = self.panels[2].plot(t, trajectory.opt_scores, color=plots.COLOURS["NGD"], linewidth=0.8)
        for axes in self.panels:
            axes.minorticks_off()  # they would take a third of the time
            axes.relim()
            axes.autoscale_view(scaley=axes is not self.panels[2])

    def png(self) -> bytes:
        """The panels as a picture."""
        stream = io.BytesIO()
        self.figure.savefig(stream, format="png", dpi="figure", pil_kwargs={"compress_level": 1})
        return stream.getvalue()
