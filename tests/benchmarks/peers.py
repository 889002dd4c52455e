"""The strongest peers: good solvers of the same dual, and the same closed form in JAX.

The token SVM's dual is the least of b^T K b / 2 - sum(b) over b >= 0, where K is the
Gram matrix of its constraints. Every solver here is given K. A peer that is not
installed raises ImportError.
"""

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import nnls

from lib.attention.token_sets import TokenSet


def by_daqp(K: np.ndarray) -> np.ndarray:
    """Solve for the duals (m,) by DAQP's active-set method."""
    import daqp

    m = len(K)
    ones = np.ones(m)
    free = np.full(m, 1e30)
    return daqp.solve(
        K, -ones, np.zeros((0, m)), free, np.zeros(m), np.zeros(m, np.int32)
    )[0]


def by_piqp(K: np.ndarray) -> np.ndarray:
    """Solve for the duals (m,) by PIQP's interior-point method, at its own tolerance of
    1e-8.
    """
    import piqp

    solver = piqp.DenseSolver()
    m = len(K)
    solver.setup(K, -np.ones(m), x_l=np.zeros(m), x_u=np.full(m, np.inf))
    solver.solve()
    return solver.result.x


def by_nnls(K: np.ndarray) -> np.ndarray:
    """Solve for the duals (m,) by scipy's nnls on the Cholesky factor of K."""
    L = cholesky(K, lower=True)
    return nnls(L.T, solve_triangular(L, np.ones(len(K)), lower=True))[0]


def by_daqp_primal(A: np.ndarray) -> np.ndarray:
    """Find the least w (D,) with A w >= 1 by DAQP's active-set method."""
    import daqp

    m, D = A.shape
    free = np.full(m, 1e30)
    sense = np.zeros(m, np.int32)
    return daqp.solve(np.eye(D), np.zeros(D), A, free, np.ones(m), sense)[0]


def by_piqp_primal(A: np.ndarray) -> np.ndarray:
    """Find the least w (D,) with A w >= 1 by PIQP's interior-point method."""
    import piqp

    m, D = A.shape
    solver = piqp.DenseSolver()
    solver.settings.eps_abs = 1e-9
    solver.settings.eps_rel = 1e-9
    solver.setup(np.eye(D), np.zeros(D), G=A, h_l=np.ones(m), h_u=np.full(m, np.inf))
    solver.solve()
    return solver.result.x


PRIMAL = {"DAQP": by_daqp_primal, "PIQP": by_piqp_primal}
SOLVERS = {"DAQP": by_daqp, "PIQP": by_piqp, "scipy nnls": by_nnls}


def jax_ngd(tokens: TokenSet, step_size: float, steps: int):
    """Build NGD on W of all runs by `vmap`, `scan` and `jit`, in float64.

    The returned function trains for `steps` steps from zero, and gives ||W|| (runs,).
    The loss is exponential, and its gradient is written out. Masks are not read.
    """
    import jax
    from jax import numpy as jnp

    jax.config.update("jax_enable_x64", True)

    def norm(X, y, z, u):
        scores = y[:, None] * (X @ u)  # (n, T)

        def step(W, _):
            p = jax.nn.softmax(jnp.einsum("ntd,de,ne->nt", X, W, z))
            f = (p * scores).sum(-1, keepdims=True)
            pull = jnp.exp(-f) * p * (scores - f)  # (n, T)
            G = jnp.einsum("nt,ntd,ne->de", pull, X, z)
            return W + step_size * G / jnp.linalg.norm(G), None

        W, _ = jax.lax.scan(step, jnp.zeros((X.shape[-1], z.shape[-1])), None, steps)
        return jnp.linalg.norm(W)

    train = jax.jit(jax.vmap(norm))
    arrays = [jnp.asarray(array) for array in (tokens.X, tokens.y, tokens.z, tokens.u)]
    return lambda: np.asarray(train(*arrays))
