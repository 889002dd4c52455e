"""The explorer's controls: a widget per part of a setting, and a picture that follows them."""

from html import escape

import ipywidgets as widgets

from lib.explorer import trajectory
from lib.explorer.trajectory import Board, ExplorerSetting

WIDTH = 9 * trajectory.DPI  # shown at half the picture's pixels
STEPS = [100, 300, 1000, 3000, 10000]


def _controls(setting: ExplorerSetting) -> dict[str, widgets.Widget]:
    """A widget per field of ExplorerSetting, by the field's name, standing at `setting`."""
    made = {
        "model": widgets.Dropdown(description="data model", options=list(trajectory.MODELS)),
        "rule": widgets.Dropdown(description="update rule", options=list(trajectory.RULES)),
        "step_size": widgets.FloatLogSlider(description="step size", min=-4, max=1, step=0.05),
        "n": widgets.IntSlider(description="n", min=2, max=20),
        "T": widgets.IntSlider(description="T", min=2, max=12),
        "d": widgets.IntSlider(description="d", min=3, max=500),
        "signal": widgets.FloatSlider(description="signal", min=0.25, max=6, step=0.25),
        "noise": widgets.FloatLogSlider(description="noise", min=-2, max=0, step=0.05),
        "steps": widgets.SelectionSlider(description="steps", options=STEPS),
        "seed": widgets.IntText(description="seed"),
    }
    for name, widget in made.items():
        widget.style.description_width = "6.5em"
        widget.value = getattr(setting, name)
    return made


def said(shown: trajectory.Trajectory) -> str:
    """The end of a trajectory in words, for whoever cannot see the picture."""
    gap, error = shown.loss_gap[-1], shown.direction_error[-1]
    return (
        f"After {shown.iterations[-1]} iterations of {shown.setting.rule}: direction error "
        f"{error:.3g}, log10 of the loss gap {gap:.3g}, "
        f"softmax weight of the opt token at least {shown.opt_scores[-1].min():.3g}."
    )


class Panel(widgets.VBox):
    """Controls, picture and words; `show` is called with every new value and never raises."""

    def __init__(self, setting: ExplorerSetting):
        self.controls = _controls(setting)
        self.words = widgets.HTML()
        self.picture = widgets.Image(format="png", layout={"max_width": "100%"}, width=WIDTH)
        self.board = Board(trajectory.explore(setting))
        for widget in self.controls.values():
            widget.observe(self.show, names="value")
        layout = {"flex_flow": "row wrap", "max_width": "60em"}
        box = widgets.Box(list(self.controls.values()), layout=layout)
        super().__init__([box, self.words, self.picture])
        self.show()

    def show(self, _change=None) -> None:
        """Train with the controls' values and redraw; the words say why where that fails."""
        try:
            values = {name: widget.value for name, widget in self.controls.items()}
            shown = trajectory.explore(ExplorerSetting(**values))
        except (ValueError, RuntimeError) as error:
            self.words.value = f"No picture: {escape(str(error))}"
            self.picture.layout.visibility = "hidden"
            return
        self.board.show(shown)
        self.words.value, self.picture.value = said(shown), self.board.png()
        self.picture.layout.visibility = "visible"
