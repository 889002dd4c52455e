"""A training run under sliders: its numbers, its picture, a widget for each setting."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from html import escape

import ipywidgets as widgets
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from companion import plots
from lib import dynamics, svm
from lib.attention import coordinates, tokens
from lib.attention.token_sets import TokenSet
from lib.dynamics import rules
from lib.dynamics.rules import Rule

MODELS: dict[str, Callable[..., TokenSet]] = {  # of seed, n, T, d, signal, noise
    "class means, orthogonal": tokens.class_mean_tokens,
    "class means, antipodal": partial(tokens.class_mean_tokens, antipodal=True),
    "Gaussian": tokens.gaussian_tokens,
    "unit sphere (no signal, no noise)": lambda *setting: tokens.unit_tokens(
        *setting[:4]
    ),
}
RULES: dict[str, Callable[[float], Rule]] = {
    "GD": rules.GD,
    "NGD": rules.NGD,
    "NGD-mom": lambda step_size: rules.NGD(step_size, momentum=0.9),
    "Polyak": lambda step_size: rules.Polyak(),
}
UNCAPPED = {"Polyak": "Polyak, no cap"}  # here it has none
DPI = 80  # of the picture as shown, with half its pixels


@dataclass(frozen=True)
class ExplorerSetting:
    """What a reader may choose in the explorer.

    Parameters
    ----------
    model : str, optional
        The data model, one of `MODELS`.
    n, T, d : int, optional
        How many samples, tokens per sample and dimensions.
    signal, noise : float, optional
        The sizes of class means and noise.
    rule : str, optional
        The update rule, one of `RULES`.
    step_size : float, optional
        The step size of the rule.
    seed : int, optional
        The seed of data and start.
    steps : int, optional
        How many iterations.

    Examples
    --------
    >>> from companion import explorer
    >>> explorer.ExplorerSetting(rule="GD", step_size=0.1).model
    'class means, orthogonal'
    """

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


@dataclass(frozen=True)
class _Trajectory:
    """One run of a setting, at its recorded iterations.

    Parameters
    ----------
    setting : ExplorerSetting
        What was run.
    iterations : ndarray (k,)
        The recorded iterations.
    loss_gap : ndarray (k,)
        log10(L - L*).
    direction_error : ndarray (k,)
        The direction error against W_mm.
    opt_scores : ndarray (k, n)
        Softmax weights of the opt tokens.
    path : ndarray (k, 2)
        W_t along W_mm and off it.
    """

    setting: ExplorerSetting
    iterations: np.ndarray
    loss_gap: np.ndarray
    direction_error: np.ndarray
    opt_scores: np.ndarray
    path: np.ndarray


def explore(setting: ExplorerSetting) -> _Trajectory:
    """Train one data set from a small Gaussian start and measure it against its W_mm.

    Parameters
    ----------
    setting : ExplorerSetting
        What to run.

    Returns
    -------
    _Trajectory
        The run at up to 120 iterations, until it ends.

    Raises
    ------
    ValueError
        If data model, rule or SVM refuse the setting, or the run ends before any
        record.
    RuntimeError
        If the SVM does not reach its accuracy.

    Examples
    --------
    >>> from companion import explorer
    >>> setting = explorer.ExplorerSetting(n=2, T=2, d=4, steps=100)
    >>> run = explorer.explore(setting)
    >>> int(run.iterations[-1]), run.path.shape[1]
    (100, 2)
    """
    sizes = setting.n, setting.T, setting.d
    drawn = MODELS[setting.model](setting.seed, *sizes, setting.signal, setting.noise)
    problem = coordinates.minimal(drawn)
    targets = {"W_mm": svm.token_svm(problem.tokens).W}
    record = dynamics.log_spaced(setting.steps, 120)[1:]
    start = dynamics.gaussian_start(problem, 1e-3, [setting.seed])
    rules = {setting.rule: RULES[setting.rule](setting.step_size)}
    histories = dynamics.train(
        problem, rules, setting.steps, record, start, targets=targets
    )
    history = histories[setting.rule]
    kept = np.isfinite(history.log_gap[0])  # a run may end early, stalled or diverged
    if not kept.any():
        end = f"{history.status[0]} at iteration {history.ended[0]}"
        raise ValueError(f"the run {end}, before any record")
    along = history.alignment["W_mm"][0, kept]
    norm = history.norm[0, kept]
    off = np.sqrt(np.clip(1 - along**2, 0, None))
    return _Trajectory(
        setting=setting,
        iterations=record[kept],
        loss_gap=history.log_gap[0, kept] / np.log(10),
        direction_error=history.direction_error["W_mm"][0, kept],
        opt_scores=-np.expm1(history.log_miss[0, kept]),
        path=norm[:, None] * np.stack([along, off], -1),
    )


class Board:
    """Four panels that show one trajectory after the other, sharp on any screen.

    Parameters
    ----------
    trajectory : _Trajectory
        The first one to show.
    """

    def __init__(self, trajectory: _Trajectory) -> None:
        figure = Figure(figsize=(9, 5.4), dpi=2 * DPI)
        figure.set_layout_engine("none")
        self.canvas = FigureCanvasAgg(figure)
        room = dict(
            left=0.08, bottom=0.1, right=0.98, top=0.94, hspace=0.45, wspace=0.2
        )
        self.panels = figure.subplots(2, 2, gridspec_kw=room).ravel()
        time = dict(xlabel="iteration $t$", xscale="log")
        self.panels[0].set(title="Loss gap, $\\log_{10}(L - L^*)$", **time)
        self.panels[1].set(title="Direction error to $W_{mm}$", yscale="log", **time)
        title = "Softmax weight of the opt token, each sample"
        self.panels[2].set(title=title, ylim=(-0.03, 1.03), **time)
        labels = dict(xlabel="part along $W_{mm}$", ylabel="part off $W_{mm}$")
        self.panels[3].set(title="Path of $W_t$", **labels)
        for panel in self.panels:
            panel.minorticks_off()  # they would take a third of the time
        self.show(trajectory)

    def show(self, trajectory: _Trajectory) -> None:
        """Draw another trajectory in place of the last.

        Parameters
        ----------
        trajectory : _Trajectory
            The run to draw.
        """
        over_time = (
            trajectory.loss_gap,
            trajectory.direction_error,
            trajectory.opt_scores,
        )
        curves = [*((trajectory.iterations, y) for y in over_time), trajectory.path.T]
        rule = trajectory.setting.rule
        colour = plots.look(UNCAPPED.get(rule, rule)).colour
        for panel, (x, y) in zip(self.panels, curves, strict=True):
            for line in list(panel.lines):
                line.remove()
            panel.plot(x, y, linewidth=1.4 if y.ndim == 1 else 0.8, color=colour)
            panel.relim()
            panel.autoscale_view()
        longest = np.abs(
            trajectory.path
        ).max()  # both axes of the path end at one value
        self.panels[3].set(
            xlim=(min(0, *trajectory.path[:, 0]), longest), ylim=(0, longest)
        )
        self.canvas.draw()

    def png(self) -> bytes:
        """Return the panels as a picture.

        Returns
        -------
        bytes
            A PNG.
        """
        stream = io.BytesIO()
        picture = Image.fromarray(np.asarray(self.canvas.buffer_rgba())).convert("RGB")
        picture.save(stream, "png", compress_level=1)
        return stream.getvalue()


class Panel(widgets.VBox):
    """Controls, picture and words of the explorer.

    A change of a control calls `show`, which never raises an error of the setting.

    Parameters
    ----------
    setting : ExplorerSetting
        What to show first.
    """

    def __init__(self, setting: ExplorerSetting) -> None:
        self.controls: dict[str, widgets.Widget] = {  # by the field of ExplorerSetting
            "model": widgets.Dropdown(options=list(MODELS)),
            "rule": widgets.Dropdown(options=list(RULES)),
            "step_size": widgets.FloatLogSlider(min=-4, max=1, step=0.05),
            "n": widgets.IntSlider(min=2, max=20),
            "T": widgets.IntSlider(min=2, max=12),
            "d": widgets.IntSlider(min=3, max=500),
            "signal": widgets.FloatSlider(min=0.25, max=6, step=0.25),
            "noise": widgets.FloatLogSlider(min=-2, max=0, step=0.05),
            "steps": widgets.SelectionSlider(options=[100, 300, 1000, 3000, 10000]),
            "seed": widgets.IntText(),
        }
        self.words = widgets.HTML()
        self.picture = widgets.Image(
            format="png", layout={"max_width": "100%"}, width=9 * DPI
        )
        self.board = Board(explore(setting))
        words = {"model": "data model", "rule": "update rule", "step_size": "step size"}
        for name, widget in self.controls.items():
            widget.set_trait("description", words.get(name, name))
            widget.set_trait("value", getattr(setting, name))
            widget.set_trait("style", {"description_width": "6.5em"})
            widget.observe(self.show, names="value")
        layout = {"flex_flow": "row wrap", "max_width": "60em"}
        box = widgets.Box(list(self.controls.values()), layout=layout)
        super().__init__([box, self.words, self.picture])
        self.show()

    def show(self, _change: object = None) -> None:
        """Train with the controls' values and redraw; if that fails, the words say why.

        Parameters
        ----------
        _change : object, optional
            What ipywidgets says of the change; it is not used.
        """
        try:
            values = {
                name: getattr(each, "value")  # noqa: B009 - Widget declares none
                for name, each in self.controls.items()
            }
            shown = explore(ExplorerSetting(**values))
        except (ValueError, RuntimeError) as error:
            self.words.value = f"No picture: {escape(str(error))}"
            self.picture.layout.visibility = "hidden"
            return
        self.board.show(shown)
        self.picture.value = self.board.png()
        self.words.value = (  # for whoever cannot see the picture
            f"After {shown.iterations[-1]} iterations of {shown.setting.rule}: "
            f"direction error {shown.direction_error[-1]:.3g}, "
            f"log10 of the loss gap {shown.loss_gap[-1]:.3g}, softmax weight of the "
            f"opt token at least {shown.opt_scores[-1].min():.3g}."
        )
        self.picture.layout.visibility = "visible"
