"""Training of attention: the function `train` and the rules that it accepts.

In: a token set or its minimal coordinates, update rules, a start, targets. Out: a
`History` of norms, direction errors, margins and logarithms of whatever underflows.
Open `training` first, which sends each rule to its engine, then `rules` and
`in_coordinates.rules`. Engines: `gradient_descent` in the span of the tokens (on
`reduced` and `kernel`), exact at any horizon; `mirror_descent`; `in_coordinates`; and
`own_rules` for a reader's own optimiser.
"""

from lib.dynamics.history import History
from lib.dynamics.in_coordinates.rules import (
    SOAP,
    AdaGrad,
    Adam,
    FullAdaGrad,
    Lion,
    MirrorDescent,
    Muon,
    NaturalGradient,
    OLion,
    RMSprop,
    Shampoo,
    SignDescent,
    Signum,
    SteepestDescent,
)
from lib.dynamics.recording import log_spaced
from lib.dynamics.rules import GD, NGD, Custom, Polyak, Rule
from lib.dynamics.starts import Start, gaussian_start, zero_start
from lib.dynamics.training import train
