"""The same optimisers in many digits, from their definitions: one run, fixed head."""

import mpmath
import numpy as np

mp = mpmath.mp
digits = np.vectorize(mpmath.mpf, otypes=[object])


def answers(data, W):
    """f_i (n,) and grad f_i (n, d, d_z), and nothing of the library's factorisation."""
    X, z, y, u = (digits(a) for a in (data.X[0], data.z[0], data.y[0], data.u[0]))
    f, slopes = [], []
    for i in range(len(y)):
        logits = X[i] @ W @ z[i]
        top = max(logits)
        weights = np.array([mp.exp(logit - top) for logit in logits])
        weights, scores = weights / weights.sum(), y[i] * (X[i] @ u)
        f.append(weights @ scores)
        slopes.append(np.outer((weights * (scores - f[-1])) @ X[i], z[i]))
    return np.array(f), np.array(slopes)


def pull(f, loss):
    """-l'(f) of every answer."""
    return np.array([mp.exp(-x) if loss == "exponential" else 1 / (1 + mp.exp(x)) for x in f])


def gradients(data, W, loss):
    """-grad of each sample's loss, (n, d, d_z)."""
    f, slopes = answers(data, W)
    return pull(f, loss)[:, None, None] * slopes


sign = np.vectorize(lambda x: mp.sign(x), otypes=[object])
root = np.vectorize(lambda x: mp.sqrt(x), otypes=[object])
power = np.vectorize(lambda x, a: mp.sign(x) * abs(x) ** a, otypes=[object])
over = np.vectorize(lambda a, b: a / b if b else mp.mpf(0), otypes=[object])


def svd(G):
    """U (d, r), S (r,), V^T (r, d_z) of the singular values that are not zero, largest first."""
    U, S, V = mp.svd_r(mp.matrix(G.tolist()), full_matrices=False)
    as_array = lambda M: np.array(M.tolist(), object).reshape(M.rows, M.cols)
    keep = [k for k in range(len(S)) if S[k] > S[0] * mp.mpf(10) ** (5 - mp.dps)]
    return as_array(U)[:, keep], np.array([S[k] for k in keep], object), as_array(V)[keep]


def steepest(G, norm):
    """The D of norm 1 with the largest <G, D>."""
    if norm == "spectral":
        U, _, V = svd(G)
        return U @ V
    if norm == "nuclear":
        U, _, V = svd(G)
        return np.outer(U[:, 0], V[0])
    if norm == np.inf:
        return sign(G)
    if norm == 1:
        D = np.full(G.shape, mp.mpf(0))
        place = np.unravel_index(np.argmax(np.abs(G)), G.shape)
        D[place] = mp.sign(G[place])
        return D
    p = mp.mpf(norm)
    q = p / (p - 1)
    return power(G, q - 1) / (np.abs(G) ** q).sum() ** (1 / p)


def train(data, direction, step_size, steps, W, loss="exponential", decay=0.0):
    """W after `steps`; direction(t, gradients (n, d, d_z)) returns D."""
    W = digits(W)
    for t in range(steps):
        eta = mp.mpf(step_size) / mp.mpf(t + 1) ** mp.mpf(decay)
        W = W + eta * direction(t, gradients(data, W, loss))
    return W.astype(float)


def in_blocks(norm, count, by_columns):
    """Steepest descent in the largest N of `count` blocks, as a direction."""

    def direction(t, parts):
        return np.concatenate(
            [steepest(part, norm) for part in np.split(parts.mean(0), count, int(by_columns))],
            int(by_columns),
        )

    return direction


def full_adagrad(floor):
    """S^{-1/2} vec(G), without eigenvalues of S below `floor` of the largest."""
    state = {"S": 0}

    def direction(t, parts):
        g = parts.mean(0).ravel()
        state["S"] = state["S"] + np.outer(g, g)
        values, Q = mp.eigsy(mp.matrix(state["S"].tolist()))
        Q = np.array(Q.tolist(), object).reshape(len(g), -1)
        kept = [k for k in range(len(g)) if values[k] > floor * max(values)]
        return sum((Q[:, k] @ g) / mp.sqrt(values[k]) * Q[:, k] for k in kept).reshape(
            parts[0].shape
        )

    return direction


def natural(data, rule, steps, W, loss, size=None):
    """W after `steps` of the natural gradient: the n x n system as it stands, or in batches."""
    W, n = digits(W), len(data.y[0])
    size = size or n
    for t in range(steps):
        chosen = [(t * size + k) % n for k in range(size)]
        f, slopes = answers(data, W)
        f, J = f[chosen], slopes[chosen].reshape(size, -1)
        down = pull(f, loss)
        curved = down if loss == "exponential" else down * (1 - down)
        weights = (down**2 if rule.empirical else curved) / size
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
    """Adam, RMSprop and AdaGrad as a direction with state."""
    beta, beta2, state = mp.mpf(momentum), mp.mpf(memory), {}

    def direction(t, parts):
        G = parts.mean(0)
        zero = np.full(G.shape, mp.mpf(0))
        m, v = state.get("m", zero), state.get("v", zero)
        m = beta * m + (1 - beta) * G
        v = v + G * G if summed else beta2 * v + (1 - beta2) * G * G
        state.update(m=m, v=v)
        if corrected:
            m = m / (1 - beta ** (t + 1))
            v = v / (1 - beta2 ** (t + 1))
        return over(m, root(v) + mp.mpf(epsilon))

    return direction


def sign_momentum(first_mix, momentum):
    """Signum and Lion."""
    a, beta, state = mp.mpf(first_mix), mp.mpf(momentum), {}

    def direction(t, parts):
        G = parts.mean(0)
        m = state.get("m", np.full(G.shape, mp.mpf(0)))
        state["m"] = beta * m + (1 - beta) * G
        return sign(a * m + (1 - a) * G)

    return direction


def muon(momentum, nesterov):
    """Muon with the polar factor."""
    mu, state = mp.mpf(momentum), {}

    def direction(t, parts):
        G = parts.mean(0)
        m = mu * state.get("m", np.full(G.shape, mp.mpf(0))) + (1 - mu) * G
        state["m"] = m
        return steepest(mu * m + (1 - mu) * G if nesterov else m, "spectral")

    return direction


def mirror(data, p, step_size, steps, W, normalised, loss="exponential"):
    """W after `steps` of l_p mirror descent."""
    p = mp.mpf(p)
    q, U = p / (p - 1), power(digits(W), p - 1)
    for _ in range(steps):
        G = gradients(data, power(U, 1 / (p - 1)), loss).mean(0)
        size = (np.abs(G) ** q).sum() ** (1 / q) if normalised else 1
        U = U + mp.mpf(step_size) * G / size
    return power(U, 1 / (p - 1)).astype(float)
