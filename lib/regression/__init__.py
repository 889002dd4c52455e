"""Paper B: softmax regression, its minima, and preconditioned descent to these minima.

From a covariance, sizes and seeds, the functions compute losses, gradients, the
regulariser, the spectral start, and histories of descent. Open `problem` first, which
contains the law of the data and the loss.
"""

from lib.regression.descent import (
    PreconditionedRule,
    RegressionHistory,
    descend,
    library,
    minibatches,
    oracle,
    population,
    sgd,
)
from lib.regression.empirical import empirical_gradients
from lib.regression.manifold import modes, spectral_start
from lib.regression.problem import (
    Regression,
    excess_loss,
    gaussian_start,
    population_gradients,
    population_loss,
    random_regression,
    regulariser,
    regulariser_gradients,
)
