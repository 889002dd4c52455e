"""A training run under sliders: what it computes, what it draws, its widgets.

In: an `ExplorerSetting`. Out: a trajectory and its picture. Open `trajectory` first;
`panel` has the widgets.
"""

from lib.explorer.panel import Panel, said
from lib.explorer.trajectory import MODELS, RULES, Board, ExplorerSetting, Trajectory, explore

__all__ = ["MODELS", "RULES", "Board", "Panel", "ExplorerSetting", "Trajectory", "explore", "said"]
