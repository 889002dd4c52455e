"""A training run controlled by sliders: its numbers, its picture, and the controls."""

import html
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import ipywidgets as widgets
import numpy as np
from IPython.display import Image
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from companion import plots
from lib import attention, dynamics, svm
from lib.attention.token_sets import TokenSet
from lib.dynamics.rules import GD, NGD, Polyak, Rule

# Data models by name: functions of seed, n, T, d, signal and noise.
MODELS: dict[str, Callable[..., TokenSet]] = {
    "class means, orthogonal": attention.class_mean_tokens,
    "class means, antipodal": partial(attention.class_mean_tokens, antipodal=True),
    "Gaussian": attention.gaussian_tokens,
    "unit sphere (no signal, no noise)": lambda *setting: attention.unit_tokens(
        *setting[:4]
    ),
}
RULES: dict[str, Callable[[float], Rule]] = {
    "GD": GD,
    "NGD": NGD,
    "NGD-mom": lambda step_size: NGD(step_size, momentum=0.9),
    "Polyak": lambda step_size: Polyak(),
}
UNCAPPED = {"Polyak": "Polyak, no cap"}  # The explorer's Polyak rule has no cap.
MOST_STEPS = 10_000  # the end of the iteration axis, for every run
MOST_TOKENS = (20, 12)  # the ends of the axes for n and T
GHOST = {"color": plots.GREY, "linewidth": 1.0, "alpha": 0.6}
# resolution of the picture as shown; the file has twice this resolution
PIXELS_PER_INCH = 90

# A function of the tokens, their SVM and the selected tokens. It returns an object
# whose method `direction_error(norm)` predicts the direction error.
Law = Callable[[TokenSet, svm.MaxMargin, np.ndarray], Any]


@dataclass(frozen=True)
class ExplorerSetting:
    """The settings that a reader can choose in the explorer.

    Parameters
    ----------
    model : str, optional
        The data model, one of `MODELS`.
    n, T, d : int, optional
        The numbers of samples, of tokens per sample, and of dimensions. Pictures show
        at most `MOST_TOKENS` samples and tokens.
    signal, noise : float, optional
        The sizes of the class means and of the noise. The unit sphere uses neither.
    rule : str, optional
        The update rule, one of `RULES`.
    step_size : float, optional
        The step size of the rule. Polyak's rule does not use it.
    seed : int, optional
        The seed of the data and of the start.
    steps : int, optional
        The number of iterations. Pictures show at most `MOST_STEPS`.

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
class Run:
    """One run of a setting, at its k recorded iterations.

    Parameters
    ----------
    setting : ExplorerSetting
        The setting of the run.
    iterations : ndarray (k,)
        The recorded iterations.
    norm : ndarray (k,)
        The Frobenius norm of W_t.
    direction_error : ndarray (k,)
        The distance of W_t / ||W_t|| from W_mm / ||W_mm||.
    predicted : ndarray (k,) or None
        The direction error that the law predicts. It is None if no law was given, or if
        the premises of the law fail.
    opt_weights : ndarray (k, n)
        The softmax weight of the opt token of each sample.
    weights : ndarray (n, T)
        The softmax weights of all tokens at the last iteration.
    opt : ndarray (n,)
        The opt token of each sample.
    """

    setting: ExplorerSetting
    iterations: np.ndarray
    norm: np.ndarray
    direction_error: np.ndarray
    predicted: np.ndarray | None
    opt_weights: np.ndarray
    weights: np.ndarray
    opt: np.ndarray

    @property
    def words(self) -> str:
        """The end of the run in a sentence."""
        return (
            f"After {self.iterations[-1]:,} iterations of {self.setting.rule} the "
            f"direction error is {self.direction_error[-1]:.3g}, and the smallest "
            f"softmax weight of an opt token is {self.opt_weights[-1].min():.3g}."
        )


def explore(setting: ExplorerSetting, law: Law | None = None) -> Run:
    """Train on one data set from a small Gaussian start, and compare the run with W_mm.

    Parameters
    ----------
    setting : ExplorerSetting
        The setting to run.
    law : callable, optional
        A function that predicts the direction error. It takes the tokens, their SVM and
        the selected tokens, and returns an object with a method
        `direction_error(norm)`. The norms and the direction errors have the shape
        (runs, k). If the function raises ValueError, the premises of the law fail.

    Returns
    -------
    Run
        The run, at up to 120 recorded iterations from iteration 1 on, until the run
        ends.

    Raises
    ------
    KeyError
        If there is no such data model or rule.
    ValueError
        If the data model, the rule or the SVM rejects the setting, or if the run ends
        before the first recorded iteration.
    RuntimeError
        If the SVM does not reach its accuracy.

    Examples
    --------
    >>> from companion import explorer
    >>> setting = explorer.ExplorerSetting(n=2, T=2, d=4, steps=100)
    >>> run = explorer.explore(setting)
    >>> int(run.iterations[-1]), run.weights.shape
    (100, (2, 2))
    """
    sizes = setting.n, setting.T, setting.d
    drawn = MODELS[setting.model](setting.seed, *sizes, setting.signal, setting.noise)
    problem = attention.minimal(drawn)
    target = svm.token_svm(problem.tokens)
    record = dynamics.log_spaced(setting.steps, 120)[1:]
    history = dynamics.train(
        problem,
        RULES[setting.rule](setting.step_size),
        setting.steps,
        record,
        dynamics.gaussian_start(problem, 1e-3, [setting.seed]),
        targets={"W_mm": target},
    )
    # A run may end early, because it stalled or diverged.
    kept = np.isfinite(history.log_gap[0])
    if not kept.any():
        end = f"{history.status[0]} at iteration {history.ended[0]}"
        raise ValueError(f"the run {end}, before any record")
    last = int(np.flatnonzero(kept)[-1])
    weights = attention.weights(problem.tokens, history.weights(last))[0]
    norm = history.norm[0, kept]
    return Run(
        setting=setting,
        iterations=record[kept],
        norm=norm,
        direction_error=history.direction_error["W_mm"][0, kept],
        predicted=_predicted(law, problem.tokens, target, norm),
        opt_weights=-np.expm1(history.log_miss[0, kept]),
        weights=weights,
        opt=problem.tokens.opt[0],
    )


def _predicted(
    law: Law | None, tokens: TokenSet, target: svm.MaxMargin, norm: np.ndarray
) -> np.ndarray | None:
    """Return the direction error (k,) that a law predicts at the given norms (k,).

    It is None if there is no law, or if the premises of the law fail.
    """
    if law is None:
        return None
    try:
        return law(tokens, target, tokens.opt).direction_error(norm[None])[0]
    except ValueError:
        return None


def draw(run: Run, ghost: Run | None = None) -> Figure:
    """Draw a run on axes that are the same for all runs.

    Parameters
    ----------
    run : Run
        The run.
    ghost : Run, optional
        Another run, such as the previous one, to draw in grey behind this run.

    Returns
    -------
    Figure
        Three panels: the tokens with their softmax weights at the end; the direction
        error, with the prediction if there is one; and the softmax weights of the opt
        tokens. For the run in grey, the last panel shows only the smallest of these
        weights.

    Examples
    --------
    >>> from companion import explorer
    >>> setting = explorer.ExplorerSetting(n=2, T=2, d=4, steps=100)
    >>> len(explorer.draw(explorer.explore(setting)).axes)
    3
    """
    plots.set_style()
    # The places of the panels are fixed, because a layout that fits the labels would
    # take longer than the run.
    figure = Figure(figsize=(plots.WIDTH, 3.0), layout="none")
    places = dict(left=0.06, right=0.97, bottom=0.17, top=0.88, wspace=0.35)
    tokens, error, opt = figure.subplots(1, 3, gridspec_kw=places)
    _draw_tokens(tokens, run)
    colour = plots.look(UNCAPPED.get(run.setting.rule, run.setting.rule)).colour
    error.set(yscale="log", ylim=(1e-4, 2.5), title="Direction error")
    error.yaxis.set_major_formatter("{x:g}")
    opt.set(ylim=(-0.03, 1.03), title="Weights of the opt tokens")
    for axis in (error, opt):
        axis.set(xscale="log", xlim=(1, MOST_STEPS), xlabel="iteration")
        axis.xaxis.set_major_formatter("{x:,.0f}")
        # Minor ticks and formulas would take half of the drawing time.
        axis.minorticks_off()
    if ghost is not None:
        error.plot(ghost.iterations, ghost.direction_error, **GHOST)
        opt.plot(ghost.iterations, ghost.opt_weights.min(1), **GHOST)
    error.plot(run.iterations, run.direction_error, color=colour)
    if run.predicted is not None:
        error.plot(run.iterations, run.predicted, **plots.PREDICTED)
    opt.plot(run.iterations, run.opt_weights, color=colour, linewidth=0.8)
    return figure


def _draw_tokens(axis: Axes, run: Run) -> None:
    """Draw each token as a disc whose area grows with its softmax weight.

    A token of weight 0 is a small dot. Opt tokens are orange.
    """
    n, T = run.weights.shape
    samples, tokens = np.mgrid[:n, :T]
    is_opt = tokens == run.opt[:, None]
    inks = np.where(is_opt, plots.INKS["vermilion"], plots.GREY)
    axis.scatter(
        tokens.ravel() + 1,
        samples.ravel() + 1,
        s=4 + 60 * run.weights.ravel(),
        c=inks.ravel(),
        linewidths=0,
    )
    rows, columns = MOST_TOKENS
    axis.yaxis.labelpad = -8
    axis.set(xlim=(0.3, columns + 0.7), ylim=(rows + 0.7, 0.3), xlabel="token")
    axis.set(title="Tokens, by weight; orange: opt", xticks=[1, columns])
    axis.set(yticks=[1, rows], ylabel="sample")


def picture(run: Run, ghost: Run | None = None) -> Image:
    """Draw a run as an image for a notebook. It looks sharp on any screen.

    Parameters
    ----------
    run : Run
        The run.
    ghost : Run, optional
        Another run to draw in grey behind this run.

    Returns
    -------
    IPython.display.Image
        The picture. Its text for readers who cannot see it is the sentence `run.words`.

    Examples
    --------
    >>> from companion import explorer
    >>> setting = explorer.ExplorerSetting(n=2, T=2, d=4, steps=100)
    >>> explorer.picture(explorer.explore(setting)).format
    'png'
    """
    stream = io.BytesIO()
    quick = {"compress_level": 1}
    draw(run, ghost).savefig(stream, dpi=2 * PIXELS_PER_INCH, pil_kwargs=quick)
    width = int(plots.WIDTH * PIXELS_PER_INCH)
    return Image(stream.getvalue(), width=width, alt=run.words)


def interactive(setting: ExplorerSetting, law: Law | None = None) -> widgets.Box:
    """Show a run with controls.

    Each change trains a new run, and the previous run is drawn in grey.

    Parameters
    ----------
    setting : ExplorerSetting
        The setting to show first. A number beyond the range of its slider is moved to
        the end of the range.
    law : callable, optional
        A function that predicts the direction error, as in `explore`.

    Returns
    -------
    ipywidgets.Box
        The controls, one for each field of `ExplorerSetting`, followed by the picture
        and the sentence of the run. If a setting cannot be run, there is no picture,
        and the sentence says why.

    Raises
    ------
    traitlets.TraitError
        If the model, the rule or the steps of `setting` are not among the choices.

    Examples
    --------
    >>> from companion import explorer
    >>> setting = explorer.ExplorerSetting(n=2, T=2, d=4, steps=100)
    >>> panel = explorer.interactive(setting)
    >>> [control.description for control in panel.children[:2]]
    ['model', 'rule']
    """
    controls = _controls()
    for name, control in controls.items():
        control.description = name
        control.layout = {"width": "20em"}
        control.style = {"description_width": "5.5em"}
        control.set_trait("value", getattr(setting, name))
    # An `Output`, which `ipywidgets.interactive` would use, exchanges messages with the
    # page while a cell runs. Without a browser this exchange sometimes never ended, and
    # the batch waited for it. A picture and a sentence are only sent, so that nothing
    # has to wait.
    width = f"{int(plots.WIDTH * PIXELS_PER_INCH)}px"
    shown = widgets.Image(layout={"width": width, "max_width": "100%"})
    said = widgets.HTML(layout={"width": "100%", "min_height": "3em"})
    last: list[Run] = []

    def show(_: Any = None) -> None:
        values = {name: control.value for name, control in controls.items()}
        try:
            run = explore(ExplorerSetting(**values), law)
        except (ValueError, RuntimeError) as error:
            shown.layout.display = "none"
            said.value = html.escape(f"No picture: {error}")
            return
        shown.value = picture(run, *last).data
        shown.layout.display = None
        said.value = html.escape(run.words)
        last[:] = [run]

    for control in controls.values():
        control.observe(show, "value")
    show()
    # The controls are placed side by side.
    flow = {"display": "flex", "flex_flow": "row wrap", "max_width": "64em"}
    return widgets.Box([*controls.values(), shown, said], layout=flow)


def _controls() -> dict[str, widgets.DOMWidget]:
    """Return a control for each field of `ExplorerSetting`, by its name."""
    slider = dict(continuous_update=True)
    return {
        "model": widgets.Dropdown(options=list(MODELS)),
        "rule": widgets.Dropdown(options=list(RULES)),
        "step_size": widgets.FloatLogSlider(min=-4, max=1, step=0.05, **slider),
        "n": widgets.IntSlider(min=2, max=MOST_TOKENS[0], **slider),
        "T": widgets.IntSlider(min=2, max=MOST_TOKENS[1], **slider),
        "d": widgets.IntSlider(min=3, max=500, **slider),
        "signal": widgets.FloatSlider(min=0.25, max=6, step=0.25, **slider),
        "noise": widgets.FloatLogSlider(min=-2, max=0, step=0.05, **slider),
        "steps": widgets.SelectionSlider(options=[100, 300, 1000, 3000, MOST_STEPS]),
        "seed": widgets.IntText(),
    }
