"""Gradient descent on attention, exact at any horizon.

Its cost does not depend on the dimension. In: a token set or its minimal coordinates,
update rules, a start, targets. Out: a `History` of norms, direction errors, margins and
logarithms of whatever underflows. Open `gradient_descent` first, then `rules`; both run
on `reduced` and `kernel`.
"""

from lib.dynamics.gradient_descent import (
    Start,
    gaussian_start,
    train,
    zero_start,
)
from lib.dynamics.history import History
from lib.dynamics.recording import log_spaced
from lib.dynamics.rules import GD, NGD, Custom, Polyak, Rule
