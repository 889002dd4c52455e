"""Paper B: softmax regression, its manifold of minima, and preconditioned descent on it.

In: a covariance, sizes, seeds. Out: losses, gradients, the regulariser, the spectral start, and
histories of descent. Open `problem` first: model and losses; `manifold` has the minima, `descent`
Algorithm 1.
"""

from lib.regression.descent import (
    PreconditionedRule,
    RegressionHistory,
    descend,
    minibatches,
    oracle,
    population,
    sgd,
)
from lib.regression.manifold import Manifold, spectral_start
from lib.regression.problem import (
    Regression,
    empirical_gradients,
    excess_loss,
    gaussian_start,
    population_gradients,
    population_loss,
    predict,
    random_regression,
    regulariser,
    regulariser_gradients,
)

__all__ = [
    "Manifold",
    "PreconditionedRule",
    "Regression",
    "RegressionHistory",
    "descend",
    "empirical_gradients",
    "excess_loss",
    "gaussian_start",
    "minibatches",
    "oracle",
    "population",
    "population_gradients",
    "population_loss",
    "predict",
    "random_regression",
    "regulariser",
    "regulariser_gradients",
    "sgd",
    "spectral_start",
]
