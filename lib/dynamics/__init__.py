"""Training of attention: the function `train` and the rules that it accepts.

`train` takes a token set or its minimal coordinates, update rules, a start and targets.
It returns a `History` of norms, direction errors and margins, and of the logarithms of
all quantities that may underflow. Open `training` first, which sends each rule to its
engine, then `rules` and `in_coordinates.rules`. There are four engines.
`gradient_descent` works in the span of the tokens, by means of `reduced` and `kernel`
(or `factored_kernel` for many tokens), and stays accurate for any number of iterations.
The other three are `mirror_descent`, `in_coordinates`, and `own_rules` for a reader's
own optimiser.
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
