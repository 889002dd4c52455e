"""Which token does attention learn to read? The whole subject in numpy and scipy, top to bottom.

    python notebooks/minimal.py

Copy it and change it. `lib` does the same at any horizon, in logarithms: here normalised steps lose
their digits once softmax weights are below 1e-155, since a norm squares, the other rules later.
"""

import numpy as np
from scipy.optimize import nnls

# 1. Data. Sample i has T tokens x_it, a query z_i and a label y_i. The head u is fixed.
# The score of a token is the label times the answer if the layer read this token alone;
# the opt token of a sample is the one with the highest score.


def draw(seed, n=6, T=4, d=40):
    """Tokens, queries and head on the unit sphere: X (n, T, d), y (n,), z (n, d), u (d,)."""
    rng = np.random.default_rng(seed)
    X, z, u = (rng.standard_normal(shape) for shape in ((n, T, d), (n, d), d))
    X, z, u = (a / np.linalg.norm(a, axis=-1, keepdims=True) for a in (X, z, u))
    return X, rng.choice((-1.0, 1.0), n), z, u


def scores(X, y, u):
    """gamma_it = y_i u^T x_it, (n, T)."""
    return y[:, None] * (X @ u)


# 2. The layer. The query asks each token for a logit, softmax turns logits into weights,
# and label times answer is the weighted mean of the scores: f_i = sum_t p_it gamma_it.


def attend(W, X, z):
    """p_i = softmax(X_i W z_i), (n, T)."""
    logits = np.einsum("itd,de,ie->it", X, W, z)
    p = np.exp(logits - logits.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)


# 3. The gradient of L(W) = mean_i exp(-f_i). Raising the logit of token t raises f_i by
# p_it (gamma_it - f_i). Near the end gamma_opt - f is a difference of nearly equal numbers,
# so it is summed from differences of scores instead.


def descent(W, X, y, z, u):
    """-grad L, (d, d)."""
    p, gamma = attend(W, X, z), scores(X, y, u)
    f = (p * gamma).sum(1, keepdims=True)
    above = np.einsum("is,its->it", p, gamma[:, :, None] - gamma[:, None])  # gamma_t - f
    return np.einsum("it,itd,ie->de", np.exp(-f) * p * above, X, z) / len(y)


# 4. Update rules: the way down G in, the step out. All but `gd` and Adam go a fixed length,
# each in its own norm: that norm decides which margin is maximised.


def gd(G):
    return G


def ngd(G):
    return G / (np.linalg.norm(G) or 1.0)  # length 1 in the Frobenius norm


def sign(G):
    return np.sign(G)  # length 1 in the largest entry


def polar(G):
    U, S, V = np.linalg.svd(G)  # length 1 in the largest singular value: Muon's direction
    kept = np.flatnonzero(S > 1e-12 * S[0])
    return U[:, kept] @ V[kept]


class Adam:
    """Running means of G and G^2, entry by entry, corrected for their start at zero."""

    def __init__(self, beta_1=0.9, beta_2=0.999):
        self.beta, self.m, self.v, self.t = (beta_1, beta_2), 0.0, 0.0, 0

    def __call__(self, G):
        (b, c), self.t = self.beta, self.t + 1
        self.m, self.v = b * self.m + (1 - b) * G, c * self.v + (1 - c) * G**2
        m, v = self.m / (1 - b**self.t), self.v / (1 - c**self.t)
        return np.divide(m, np.sqrt(v), out=np.zeros_like(m), where=v > 0)


def train(data, rule, step_size, steps):
    """W after `steps` steps from zero."""
    X, _, z, _ = data
    W = np.zeros((X.shape[-1], z.shape[-1]))
    for _ in range(steps):
        W = W + step_size * rule(descent(W, *data))
    return W


# 5. Where the direction of W goes under gd and ngd, if training ends at the opt tokens: to the
# smallest W under which each opt token beats every other token of its sample by one logit,
#     W_mm = argmin ||W||_F  subject to  <A_m, W> >= 1,  A_m = (x_opt - x_t) z_i^T.
# Its dual is a non-negative least-squares problem, so three lines solve it.


def pairs(data):
    """The matrices A_m as rows, (m, d * d), and the gaps of scores, (m,): m = (i, t != opt)."""
    X, y, z, u = data
    gamma = scores(X, y, u)
    opt = gamma.argmax(1)
    i, t = np.nonzero(np.arange(X.shape[1]) != opt[:, None])
    A = np.einsum("md,me->mde", X[i, opt[i]] - X[i, t], z[i]).reshape(len(i), -1)
    return A, gamma[i, opt[i]] - gamma[i, t]


def token_svm(A):
    """W_mm as a row of A's width, and its dual variables beta >= 0: W_mm = sum_m beta_m A_m.

    ValueError where no W satisfies the constraints.
    """
    b, residual = nnls(np.vstack([A.T, np.ones(len(A))]), np.eye(A.shape[1] + 1)[-1])
    if residual < 1e-9:
        raise ValueError("no W lets every opt token win")
    beta = b / (1 - b.sum())
    return beta @ A, beta


# 6. How fast: the law of the margins. Pair m pulls with kappa_m exp(-g_m), g_m = <A_m, W>.
# W keeps its direction only if these pulls are in the ratio of the duals. That fixes the
# differences of the margins, so W runs beside the ray of W_mm at a distance C, and the
# direction error tends to C / ||W||. Holds from W = 0 where all pairs are on the support, with
# positive duals; a pair off it adds a part outside the span of the support.


def law(A, beta, gaps, best):
    """C, from the support vectors alone; best (m,): the score of the pair's opt token."""
    on = beta > 1e-9 * beta.max()
    log_ratio = np.log(np.exp(-best[on]) * gaps[on] / beta[on])
    offsets = log_ratio - beta[on] @ log_ratio / beta[on].sum()
    return np.sqrt(offsets @ np.linalg.solve(A[on] @ A[on].T, offsets))


def main():
    data = draw(0)
    X, y, z, u = data
    A, gaps = pairs(data)
    W_mm, beta = token_svm(A)
    C = law(A, beta, gaps, np.repeat(scores(X, y, u).max(1), X.shape[1] - 1))
    print(f"||W_mm|| = {np.linalg.norm(W_mm):.3f}, {(beta > 0).sum()} support pairs, C = {C:.3f}")
    print("rule    direction error   x ||W||   least weight of a selected token")
    rules = {"gd": (gd, 1.0), "ngd": (ngd, 0.1), "sign": (sign, 0.01), "polar": (polar, 0.03)}
    for name, (rule, step_size) in (rules | {"Adam": (Adam(), 0.01)}).items():
        W = train(data, rule, step_size, 3000).ravel()
        error = np.linalg.norm(W / np.linalg.norm(W) - W_mm / np.linalg.norm(W_mm))
        weight = attend(W.reshape(40, 40), X, z).max(1).min()
        print(f"{name:6} {error:16.4f} {error * np.linalg.norm(W):9.3f} {weight:12.4f}")


if __name__ == "__main__":
    main()
