"""Paper B: softmax regression, its minima, and preconditioned descent to them.

In: a covariance, sizes, seeds. Out: losses, gradients, the regulariser, the spectral
start, histories of descent. Open `problem` first: the law of the data and its loss.
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
