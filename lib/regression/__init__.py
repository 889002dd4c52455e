"""Paper B: softmax regression, its manifold of minima, and preconditioned descent on it.

In: a covariance, sizes, seeds. Out: losses, gradients, the regulariser, the spectral start, and
histories of descent. Open `problem` first: the law of the data; then `losses`, and `empirical` for
samples. `manifold` has the minima, `curvature` what surrounds them. `rules` has Algorithm 1, which
`descent` runs on one of the `gradient_sources`.
"""

from lib.regression.curvature import modes
from lib.regression.descent import RegressionHistory, descend
from lib.regression.empirical import empirical_gradients
from lib.regression.gradient_sources import minibatches, oracle, population
from lib.regression.losses import (
    excess_loss,
    population_gradients,
    population_loss,
    regulariser,
    regulariser_gradients,
)
from lib.regression.manifold import Manifold, spectral_start
from lib.regression.problem import Regression, gaussian_start, random_regression
from lib.regression.rules import Library, PreconditionedRule, library, sgd

__all__ = [
    "Library",
    "Manifold",
    "PreconditionedRule",
    "Regression",
    "RegressionHistory",
    "descend",
    "empirical_gradients",
    "excess_loss",
    "gaussian_start",
    "library",
    "minibatches",
    "modes",
    "oracle",
    "population",
    "population_gradients",
    "population_loss",
    "random_regression",
    "regulariser",
    "regulariser_gradients",
    "sgd",
    "spectral_start",
]
