"""The optimisers in many digits, from their definitions: one run, fixed head."""

import mpmath
import numpy as np

from lib import attention, dynamics
from lib.attention import tokens

DATA = tokens.unit_tokens([0], n=3, T=4, d=4)
START = np.random.default_rng(5).standard_normal((1, 4, 4))
# One sample of two tokens whose score gap of 1 pulls on one entry.
PAIR = [
    np.zeros(2),
    [-1.0, 0.0],
]
STILL = attention.token_set([np.zeros((2, 2))], [1.0], z=[[1.0]], u=[1.0, 0.0], opt=[0])
mp = mpmath.mp


def ours(rule, steps, start=START, data=DATA, loss="exponential"):
    """Train W by the library for `steps` steps."""
    return dynamics.train(data, rule, steps, [steps], start, loss=loss).W[0, -1]


def one_pair(delta=(1.0, 0.0)):
    """Return one sample with two tokens and one query entry, which can be solved by
    hand.
    """
    return attention.token_set(
        [[np.zeros(2), -np.array(delta)]], [1.0], z=[[1.0]], u=[1.0, 0.0]
    )


def first_of_two():
    """Return two samples of which only the first has a gradient."""
    X = [PAIR, [[1.0, 0.0], [1.0, 0.0]]]
    return attention.token_set(
        X, [1.0, 1.0], z=[[1.0], [1.0]], u=[1.0, 0.0], opt=[0, 0]
    )


digits = np.vectorize(mpmath.mpf, otypes=[object])


def answers(data, W):
    """Compute f_i (n,) and grad f_i (n, d, d_z) without the library's factorisation."""
    X, z, y, u = (digits(a) for a in (data.X[0], data.z[0], data.y[0], data.u[0]))
    f = []
    slopes = []
    for i in range(len(y)):
        logits = X[i] @ W @ z[i]
        top = max(logits)
        weights = np.array([mp.exp(logit - top) for logit in logits])
        weights = weights / weights.sum()
        scores = y[i] * (X[i] @ u)
        f.append(weights @ scores)
        slopes.append(np.outer((weights * (scores - f[-1])) @ X[i], z[i]))
    return np.array(f), np.array(slopes)


def pull(f, loss):
    """Return -l'(f) of every answer."""
    return np.array(
        [mp.exp(-x) if loss == "exponential" else 1 / (1 + mp.exp(x)) for x in f]
    )


def gradients(data, W, loss):
    """Return minus the gradient of each sample's loss, (n, d, d_z)."""
    f, slopes = answers(data, W)
    return pull(f, loss)[:, None, None] * slopes


sign = np.vectorize(lambda x: mp.sign(x), otypes=[object])
root = np.vectorize(lambda x: mp.sqrt(x), otypes=[object])
power = np.vectorize(lambda x, a: mp.sign(x) * abs(x) ** a, otypes=[object])
over = np.vectorize(lambda a, b: a / b if b else mp.mpf(0), otypes=[object])


def svd(G):
    """Return U (d, r), S (r,), V^T (r, d_z) of the singular values that are not zero.

    The largest comes first.
    """
    U, S, V = mp.svd_r(mp.matrix(G.tolist()), full_matrices=False)

    def as_array(M):
        return np.array(M.tolist(), object).reshape(M.rows, M.cols)

    keep = [k for k in range(len(S)) if S[k] > S[0] * mp.mpf(10) ** (5 - mp.dps)]
    return (
        as_array(U)[:, keep],
        np.array([S[k] for k in keep], object),
        as_array(V)[keep],
    )


def steepest(G, norm):
    """Return the D of norm 1 with the largest <G, D>."""
    if norm in ("spectral", "nuclear"):
        U, _, V = svd(G)
        if norm == "spectral":
            return U @ V
        return np.outer(U[:, 0], V[0])
    if norm == np.inf:
        return sign(G)
    if norm == 1:
        first = np.arange(G.size).reshape(G.shape) == np.argmax(np.abs(G))
        return np.where(first, sign(G), mp.mpf(0))
    p = mp.mpf(2 if norm == "frobenius" else norm)
    q = p / (p - 1)
    return power(G, q - 1) / (np.abs(G) ** q).sum() ** (1 / p)


def train(data, direction, rule, steps, W, loss="exponential"):
    """Return W after `steps` steps with a rule's lengths and decays.

    direction(t, gradients (n, d, d_z)) is the direction D, where `gradients` are minus
    those of each sample's loss. The result is (d, d_z), in float64.
    """
    W = digits(W)
    for t in range(steps):
        eta = mp.mpf(rule.step_size) / mp.mpf(t + 1) ** mp.mpf(rule.decay)
        D = direction(t, gradients(data, W, loss))
        W = (1 - eta * mp.mpf(rule.weight_decay)) * W + eta * D
    return W.astype(float)


def train_factors(data, K, Q, make, rule, steps, loss):
    """Return W = K Q^T after `steps` steps, with a direction for each factor.

    make() returns a direction with a state of its own.
    """
    factors = [digits(K), digits(Q)]
    directions = [make(), make()]
    for t in range(steps):
        eta = mp.mpf(rule.step_size) / mp.mpf(t + 1) ** mp.mpf(rule.decay)
        G = gradients(data, factors[0] @ factors[1].T, loss).mean(0)
        pulls = G @ factors[1], G.T @ factors[0]
        moves = [of(t, pull[None]) for of, pull in zip(directions, pulls, strict=False)]
        factors = [M + eta * move for M, move in zip(factors, moves, strict=False)]
    return (factors[0] @ factors[1].T).astype(float)


def in_blocks(make, count):
    """Return the direction that acts on each of `count` blocks of rows on its own.

    make() returns a direction with a state of its own.
    """
    directions = [make() for _ in range(count)]

    def direction(t, parts):
        blocks = np.split(parts, count, 1)
        return np.concatenate(
            [of(t, block) for of, block in zip(directions, blocks, strict=False)]
        )

    return direction


def rescaled(norm, eta, radius, growth, every, steps, W):
    """Run steepest descent that is rescaled to the ball of its phase, and return W.

    Phase k begins after k `every` steps, and its ball has the radius `radius` growth^k.
    W is scaled to the boundary of the ball where a phase after the first begins, and
    after a step that leaves the ball.
    """
    W = digits(W)
    for t in range(steps):
        W = W + mp.mpf(eta) * steepest(gradients(DATA, W, "exponential").mean(0), norm)
        size = mp.sqrt((W * W).sum())
        phase = (t + 1) // every
        bound = mp.mpf(radius) * mp.mpf(growth) ** phase
        if size > bound or (phase > 0 and (t + 1) % every == 0):
            W = W * bound / size
    return W.astype(float)


def full_adagrad(floor):
    """Return the direction S^{-1/2} vec(G).

    Eigenvalues of S below `floor` of the largest are left out.
    """
    S = 0

    def direction(t, parts):
        nonlocal S
        g = parts.mean(0).ravel()
        S = S + np.outer(g, g)
        values, Q = mp.eigsy(mp.matrix(S.tolist()))
        Q = np.array(Q.tolist(), object).reshape(len(g), -1)
        kept = [k for k in range(len(g)) if values[k] > floor * max(values)]
        D = sum((Q[:, k] @ g) / mp.sqrt(values[k]) * Q[:, k] for k in kept)
        return D.reshape(parts[0].shape)

    return direction


def natural(data, rule, steps, W, loss, size=None):
    """Return W after `steps` steps of the natural gradient, full or in batches.

    The system of `size` samples is solved as it is written. Batches go through the
    samples in turn; by default a batch has all of them.
    """
    W = digits(W)
    n = len(data.y[0])
    size = size or n
    for t in range(steps):
        chosen = [(t * size + k) % n for k in range(size)]
        f, slopes = answers(data, W)
        f = f[chosen]
        J = slopes[chosen].reshape(size, -1)
        down = pull(f, loss)
        # The Fisher weight is the squared score, averaged over both labels by their
        # probabilities.
        both = (1 - down) * down**2 + down * (1 - down) ** 2
        curved = down if loss == "exponential" else both
        weights = curved / size
        damping = mp.mpf(rule.damping)
        if rule.relative:
            damping = damping * (weights * (J * J).sum(1)).sum()
        # (sum w j j^T + damping) D = sum down j / size, with D = sum a j
        system = weights[:, None] * (J @ J.T) + damping * digits(np.eye(size))
        a = mp.lu_solve(mp.matrix(system.tolist()), mp.matrix((down / size).tolist()))
        D = np.array(list(a), object) @ J
        if rule.normalised:
            D = D / mp.sqrt((D * D).sum())
        W = W + mp.mpf(rule.step_size) * D.reshape(W.shape)
    return W.astype(float)


def adaptive(momentum, memory, epsilon=0.0, summed=False, corrected=True):
    """Return Adam, RMSprop or AdaGrad as a direction with state."""
    beta, beta2, m, v = map(mp.mpf, (momentum, memory, 0, 0))

    def direction(t, parts):
        nonlocal m, v
        G = parts.mean(0)
        m = beta * m + (1 - beta) * G
        if summed:
            v = v + G * G
        else:
            v = beta2 * v + (1 - beta2) * G * G
        if not corrected:
            return over(m, root(v) + mp.mpf(epsilon))
        of_v = root(v / (1 - beta2 ** (t + 1))) + mp.mpf(epsilon)
        return over(m / (1 - beta ** (t + 1)), of_v)

    return direction


def sign_momentum(first_mix, momentum):
    """Return Signum or Lion as a direction with state."""
    a, beta, m = map(mp.mpf, (first_mix, momentum, 0))

    def direction(t, parts):
        nonlocal m
        G = parts.mean(0)
        before = m
        m = beta * m + (1 - beta) * G
        return sign(a * before + (1 - a) * G)

    return direction


def muon(momentum, nesterov):
    """Return Muon with the polar factor as a direction with state."""
    mu, m = map(mp.mpf, (momentum, 0))

    def direction(t, parts):
        nonlocal m
        G = parts.mean(0)
        m = mu * m + (1 - mu) * G
        return steepest(mu * m + (1 - mu) * G if nesterov else m, "spectral")

    return direction


def mirror(data, p, step_size, steps, W, normalised, loss="exponential"):
    """Return W after `steps` steps of l_p mirror descent."""
    p = mp.mpf(p)
    q = p / (p - 1)
    U = power(digits(W), p - 1)
    for _ in range(steps):
        G = gradients(data, power(U, 1 / (p - 1)), loss).mean(0)
        if normalised:
            size = (np.abs(G) ** q).sum() ** (1 / q)
        else:
            size = 1
        U = U + mp.mpf(step_size) * G / size
    return power(U, 1 / (p - 1)).astype(float)
