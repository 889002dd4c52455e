"""A training run under sliders: what it computes, what it draws, its widgets.

In: a `Setting`. Out: a trajectory and its picture. Open `trajectory` first;
`panel` has the widgets.
"""

from lib.explorer.panel import Panel, said
from lib.explorer.trajectory import MODELS, RULES, Board, Setting, Trajectory, explore

__all__ = ["MODELS", "RULES", "Board", "Panel", "Setting", "Trajectory", "explore", "said"]
