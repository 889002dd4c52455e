"""The paper that C generalises (2308.16898): keys and queries, several tokens, paths.

The regularisation path is W_R = argmin L(W) over ||W||_{p,p} <= R. Paper C also has the
joint path: argmin L(v, W) over ||W||_{p,p} <= R and ||v||_p <= r. This problem is not
convex, so we solve it from several starts. The joint path selects the tokens whose l_p
head SVM has the largest label margin, because the loss is about e^{-r margin}. Then v/r
turns to the v_mm of this SVM, and W/R turns to W_mm.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
from scipy.optimize import minimize

from companion.claims import Claim
from lib import attention, svm
from lib.attention import TokenSet, coordinates, unit_tokens
from lib.dynamics import MirrorDescent, train
from lib.mirror import selected_tokens
from lib.mirror.geometry import directional_bregman, norm, to_mirror
from lib.seeds import stream
from lib.svm import frobenius
from papers.c.lemmas import select
from papers.c.statements import PAPER

# When we compute the rank of a matrix, singular values below this share of the largest
# one count as zero.
RANK = 1e-6
# How many times the loss is minimised over v and then over W, on the joint path.
ROUNDS = 3
# A token counts as selected if its softmax weight exceeds this, as in the code of
# 2308.16898.
SELECTED = 1e-3


def _alignment(W: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Return <W, V> / (||W||_F ||V||_F) of W and V (..., d, d).

    It is NaN if W or V is zero.
    """
    sizes = np.linalg.norm(W, axis=(-1, -2)) * np.linalg.norm(V, axis=(-1, -2))
    with np.errstate(invalid="ignore"):
        return (W * V).sum((-1, -2)) / sizes


def _ranks(W: np.ndarray) -> np.ndarray:
    """Return the rank of each matrix of W (..., d, d), relative to RANK."""
    return np.linalg.matrix_rank(W, rtol=RANK)


def _unit(a: np.ndarray):
    """Divide each matrix in `a` (runs, r, c) by its Frobenius norm; a zero matrix stays
    zero.
    """
    size = np.linalg.norm(a, axis=(1, 2), keepdims=True)
    return a / np.where(size > 0, size, 1.0)


def train_key_query(
    tokens: TokenSet,
    K: np.ndarray,
    Q: np.ndarray,
    step_size: float,
    record: Sequence[int],
) -> np.ndarray:
    """Train keys and queries, and return W = K Q^T (runs, k, d, d_z) at the iterations
    `record`.

    In the result the iterations are sorted, and each occurs once. The head is fixed and
    the loss logistic. A step of normalised gradient descent is K <- K - eta grad_K L /
    ||grad_K L||_F and Q <- Q - eta grad_Q L / ||grad_Q L||_F, so that each gradient is
    divided by its own norm. The gradients are grad_K L = G Q and grad_Q L = G^T K with
    G = grad_W L. A matrix whose gradient is zero does not change. K must have the shape
    (runs, d, m) and Q the shape (runs, d_z, m), otherwise ValueError is raised.
    """
    runs, _, _, d = tokens.shape
    for name, value, width in (("K", K, d), ("Q", Q, tokens.z.shape[-1])):
        needed = runs, width, K.shape[-1]
        if value.shape != needed:
            raise ValueError(f"{name} has shape {value.shape}; it needs {needed}")
    K = K.copy()
    Q = Q.copy()
    kept = []
    wanted = set(map(int, record))
    scores = attention.scores(tokens, tokens.u)
    Xt = np.swapaxes(tokens.X, -1, -2)
    zt = np.swapaxes(tokens.z, -1, -2)
    for t in range(max(wanted) + 1):
        if t in wanted:
            kept.append(K @ np.swapaxes(Q, 1, 2))
        keys = (tokens.z @ Q) @ np.swapaxes(K, 1, 2)  # (runs, n, d), W z_i
        pull = attention.slopes(
            (tokens.X @ keys[..., None])[..., 0], scores, "logistic"
        ).pull
        # (runs, d_z, d), -G^T up to a factor
        down = zt @ (Xt @ pull[..., None])[..., 0]
        move_K = np.swapaxes(down, 1, 2) @ Q
        move_Q = down @ K
        K += step_size * _unit(move_K)
        Q += step_size * _unit(move_Q)
    return np.stack(kept, 1)


def keys_against_weights(
    tokens: TokenSet, seeds: Sequence[int], record: Sequence[int], step_size: float
) -> tuple:
    """Train (K, Q) in one run and W in another, and measure how K Q^T and W align with
    the SVM solutions for the tokens that each run selects.

    The entries of the starts are uniform in [-1/sqrt(d), 1/sqrt(d)]. Queries must have
    the dimension of the tokens, and `record` must be ascending.

    Returns
    -------
    tuple
        First come the alignments (runs, k), by ("K, Q" or "W", norm of the SVM). Second
        comes an array (runs,): the sum of the r largest singular values of the last K
        Q^T, divided by the sum of all, where r is the rank of the nuclear-norm
        solution.

    Raises
    ------
    svm.Infeasible
        If no W selects the tokens that a run ends with.
    """
    d = tokens.shape[-1]
    solutions = {}
    starts = np.stack(
        [stream(seed, "start").uniform(-1, 1, (3, d, d)) for seed in seeds], 1
    )
    K, Q, W_0 = starts / d**0.5
    trained = {
        "K, Q": train_key_query(tokens, K, Q, step_size, record),
        "W": train(
            tokens,
            MirrorDescent(2, step_size),
            max(record),
            record,
            W_0,
            loss="logistic",
        ).W,
    }
    for name, W in trained.items():
        chosen = replace(tokens, opt=selected_tokens(tokens, W[:, -1]))
        for kind in ("nuclear", "frobenius"):
            solutions[name, kind] = svm.token_svm(chosen, norm=kind).W
    aligned = {
        key: _alignment(trained[key[0]], V[:, None]) for key, V in solutions.items()
    }
    largest = np.arange(d) < _ranks(solutions["K, Q", "nuclear"])[:, None]
    sizes = np.linalg.svd(trained["K, Q"][:, -1], compute_uv=False)
    return aligned, (sizes * largest).sum(1) / sizes.sum(1)


def rank_by_dimension(
    seeds: Sequence[int], n: int, T: int, dimensions: Sequence[int]
) -> np.ndarray:
    """Return the mean rank of the solutions of nuclear-norm token SVMs.

    The result has the shape (dimensions,). The mean is over the data sets whose SVM has
    a solution. It is NaN if no data set of a dimension has one.
    """

    mean_ranks = np.full(len(dimensions), np.nan)
    for k, d in enumerate(dimensions):
        solvable = svm.feasible(unit_tokens(seeds, n, T, d))
        if solvable is not None:
            solution = svm.token_svm(solvable, norm="nuclear")
            mean_ranks[k] = _ranks(solution.W).mean()
    return mean_ranks


def _train_relu_head(
    tokens: TokenSet, step_size: float, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Train W by normalised gradient descent from zero under a ReLU head.

    The loss is logistic, and f_i = y_i h(X_i^T softmax(X_i W z_i)) with the head h(x) =
    sum_j max(x_j, 0). Since h is convex, a single token is always best for a sample
    with label y_i = +1. For y_i = -1 the best mixture has the smallest h, and it
    usually contains several tokens. Around a mixture x, h is linear with u = 1[x > 0],
    so that loss and gradient are those of `lib.attention.slopes` with one head per
    sample.

    Returns
    -------
    tuple of ndarray
        W (runs, d, d_z), and its softmax weights (runs, n, T).
    """
    runs, _, _, d = tokens.shape
    W = np.zeros((runs, d, tokens.z.shape[-1]))
    for _ in range(steps):
        # The head of each sample, linear around the mixture it attends to.
        weights = attention.weights(tokens, W)
        mixture = np.einsum("rnt,rntd->rnd", weights, tokens.X)
        u = (mixture > 0).astype(float)
        head_of_tokens = np.einsum("rntd,rnd->rnt", tokens.X, u)
        scores = tokens.y[..., None] * head_of_tokens

        # The negative gradient, sum_i (sum_t pull_it x_it) z_i^T.
        logits = attention.logits(tokens, W)
        pull = attention.slopes(logits, scores, "logistic").pull
        pulled_tokens = np.einsum("rnt,rntd->rnd", pull, tokens.X)
        descent = np.einsum("rnd,rne->rde", pulled_tokens, tokens.z)

        # A step of length step_size, or no step if the gradient is zero.
        size = np.linalg.norm(descent, axis=(1, 2), keepdims=True)
        W = W + step_size * descent / np.where(size > 0, size, 1.0)
    return W, attention.weights(tokens, W)


def _max_margin(tokens: TokenSet, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Solve the SVM that selects several tokens per sample, for the first run.

    W = argmin ||W||_F such that (x_t - x_s)^T W z_i = 0 for chosen tokens t and s, and
    (x_t - x_s)^T W z_i >= 1 for a chosen token t and a token s that is not chosen.
    `chosen` (n, T) is True for at least one token per sample. The function raises
    svm.Infeasible if no W exists, and ValueError if a sample has no chosen token or if
    all tokens of all samples are chosen.

    Returns
    -------
    tuple of ndarray
        W (d, d_z), and E (e, d d_z), whose orthonormal rows span the equations.
    """
    if not chosen.any(1).all() or chosen.all():
        raise ValueError("every sample needs a chosen token, and some sample another")
    X = tokens.X[0]
    z = tokens.z[0]
    n, T = chosen.shape

    # Each row is (x_first - x_t) z_i^T: the first chosen token minus every token.
    first = chosen.argmax(1)
    first_tokens = X[np.arange(n), first]
    differences = first_tokens[:, None] - X
    rows = coordinates.constraint_rows(differences, z).reshape(n, T, -1)

    # The equations say that all chosen tokens have the same logit as the first chosen
    # token.
    other_chosen = chosen & (np.arange(T) != first[:, None])
    _, singular_values, E = np.linalg.svd(rows[other_chosen], full_matrices=False)
    independent = singular_values > 1e-10 * singular_values.max(initial=0)
    E = E[independent]

    # The inequalities, projected onto the subspace in which the equations hold.
    inequalities = rows[~chosen]
    A = inequalities - inequalities @ E.T @ E

    # The solver expects features a_m = delta_m z_m^T. We pass each row as delta_m, with
    # z_m = (1).
    ones = np.ones((len(A), 1))
    constraints = frobenius.Constraints(
        problem="multi-token SVM",
        run=0,
        shape=ones.shape,
        delta=A[:, None],
        z=ones,
        stretch=ones[:, 0],
    )
    beta, *_ = frobenius.solve(constraints)
    W = (A.T @ beta).reshape(X.shape[-1], z.shape[-1])
    return W, E


def several_tokens(
    seeds: Sequence[int], n: int, T: int, d: int, step_size: float, steps: int
) -> np.ndarray:
    """Train with a ReLU head, and return the alignment of W with the solution of the
    SVM for the tokens that W selects.

    The result has the shape (runs,). We leave out the part of W in the span of the
    SVM's equations. A token is selected if its softmax weight exceeds SELECTED. The
    alignment is NaN if the SVM has no solution, or if all tokens are selected.
    """
    tokens = unit_tokens(seeds, n, T, d)
    W, weights = _train_relu_head(tokens, step_size, steps)
    chosen = weights > SELECTED
    aligned = np.full(len(W), np.nan)
    for run in range(len(W)):
        try:
            V, equations = _max_margin(tokens.run(run), chosen[run])
        except ValueError:  # svm.Infeasible is one
            continue
        flat = W[run].ravel()
        aligned[run] = _alignment(
            (flat - equations.T @ (equations @ flat)).reshape(d, d), V
        )
    return aligned


def share_with_several(
    seeds: Sequence[int], n: int, T: int, d: int, step_size: float, steps: int
) -> dict[int, float]:
    """Train as in `several_tokens`, and return the share of the samples that select
    more than one token, by label.
    """
    tokens = unit_tokens(seeds, n, T, d)
    _, weights = _train_relu_head(tokens, step_size, steps)
    many = (weights > SELECTED).sum(-1) > 1
    labels = np.broadcast_to(tokens.y, many.shape)
    return {label: float(many[labels == label].mean()) for label in (-1, 1)}


def _on_the_sphere(
    function: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    R: float,
    p: float,
):
    """Minimise `function`, which returns its value and gradient, over ||w||_p = R.

    `start` (D,) may have any norm except zero. The function returns the local minimiser
    (D,) that L-BFGS finds, and the value of `function` there (float).
    """

    def objective(w: np.ndarray):
        size = norm(w, p)
        value, gradient = function(R / size * w)
        # The part of the gradient that only changes ||w|| is removed.
        along = (gradient @ w) / size * to_mirror(w / size, p)
        return value, R / size * (gradient - along)

    end = minimize(objective, start, method="L-BFGS-B", jac=True)
    return R * end.x / norm(end.x, p), end.fun


def _log_gap_and_gradient(tokens: TokenSet, W: np.ndarray) -> tuple[float, np.ndarray]:
    """Return log(L - L*) of the first run, and its gradient, at a flattened W (d d_z,).

    L* is the loss of attending only to the opt tokens. The result is accurate even if
    L - L* is as small as e^-30000.
    """
    logits = attention.logits(tokens, W.reshape(1, tokens.shape[-1], -1))
    slopes = attention.slopes(logits, attention.scores(tokens, tokens.u), "logistic")
    pull = slopes.pull[0] * np.exp(slopes.log_scale[0] - slopes.log_gap[0])
    gradient = -np.einsum("nt,ntd,ne->de", pull, tokens.X[0], tokens.z[0])
    return slopes.log_gap[0], gradient.ravel()


def _solve(
    tokens: TokenSet, p: float, radii: np.ndarray, starts: np.ndarray
) -> np.ndarray:
    """Follow the regularisation path of the first run: W_R (k, d, d_z) at ascending
    `radii`.

    Each W_R minimises log(L - L*) over ||W||_{p,p} = R. The search starts from all
    `starts` (starts, d, d_z), which must not be zero, and from the solution at the
    previous radius. The end point with the smallest loss is returned.
    """
    path = []
    function = partial(_log_gap_and_gradient, tokens)
    for R in radii:
        flat = [start.ravel() for start in (*starts, *path[-1:])]
        ends = [_on_the_sphere(function, w / norm(w, p), R, p) for w in flat]
        W, _ = min(ends, key=lambda end: end[1])
        path.append(W.reshape(starts.shape[1:]))
    return np.array(path)


def _candidates(tokens: TokenSet, p: float):
    """Solve the head SVM and the token SVM for every selection for which both SVMs have
    a solution.

    `tokens` has one run, and all T^n selections are tried. The function returns a list
    of pairs (head, token), sorted by the label margin of the head, the largest first.
    """
    pairs = []
    (_, n, T, _) = tokens.shape
    for chosen in product(range(T), repeat=n):
        selected = np.array([chosen])
        try:
            head = svm.head_svm(tokens, selected, p)
            pairs.append((head, svm.token_svm(tokens, selected, norm=p)))
        except svm.Infeasible:
            continue
    return sorted(pairs, key=lambda pair: float(pair[0].norm[0]))


def solve_jointly(
    tokens: TokenSet, p: float, multiple: float
) -> tuple[np.ndarray, np.ndarray]:
    """Minimise the loss of one run over v (d,) and W (d, d_z), each on a sphere.

    The radii of the spheres are r = multiple ||v_mm|| and R = multiple ||W_mm||, where
    v_mm and W_mm are the SVM solutions of the selection with the largest label margin.
    The loss is minimised over v and over W in turn, starting from the SVM solutions of
    every selection. The v and W with the smallest loss are returned.
    """
    pairs = _candidates(tokens, p)
    r, R = (multiple * solution.norm[0] for solution in pairs[0])
    ends = [_in_turn(tokens, p, r, R, pair) for pair in pairs]
    _, v, W = min(ends, key=lambda end: end[0])
    return v, W


def _log_loss_of_head(
    tokens: TokenSet, W: np.ndarray, v: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return log L(v, W) of the first run, and its gradient with respect to the head v
    (d,).

    W has the shape (1, d, d_z).
    """
    scores = attention.scores(tokens, v[None])
    slopes = attention.slopes(attention.logits(tokens, W), scores, "logistic")
    log_loss = slopes.log_loss[0]
    # grad log L = grad L / L. We subtract logarithms instead of dividing, because grad
    # L and L may underflow.
    push = slopes.push[0] * np.exp(slopes.log_push_scale[0] - log_loss)
    gradient = -np.einsum("nt,n,ntd->d", push, tokens.y[0], tokens.X[0])
    return log_loss, gradient


def _in_turn(
    tokens: TokenSet,
    p: float,
    r: float,
    R: float,
    pair: tuple[svm.MaxMargin, svm.MaxMargin],
):
    """Minimise the loss over v and over W in turn, ROUNDS times, from a pair of SVM
    solutions.

    The function returns log L, v (d,), whose norm is r up to rounding, and W (d, d_z),
    whose norm is R.
    """
    head, weights = pair
    v = head.value[0]
    W = weights.W * (R / weights.norm[0])
    for _ in range(ROUNDS):
        v, _ = _on_the_sphere(partial(_log_loss_of_head, tokens, W), v, r, p)
        with_this_head = replace(tokens, u=v[None])
        W = _solve(with_this_head, p, [R], W)
    on_the_sphere = r / norm(v, p) * v
    log_loss, _ = _log_loss_of_head(tokens, W, on_the_sphere)
    return log_loss, v, W[0]


def joint_claims(
    tokens: TokenSet, p: float, v: np.ndarray, W: np.ndarray
) -> list[Claim]:
    """Check that v and W point along the SVM solutions of the selection with the
    largest label margin.

    The measured values are the divergences between their directions. `tokens` has one
    run, v has the shape (d,), and W has the shape (d, d_z).
    """
    claims = []
    for name, end, solution in zip(
        ("v", "W"), (v, W), _candidates(tokens, p)[0], strict=True
    ):
        ends = end.reshape(1, -1), solution.value.reshape(1, -1)
        claims.append(
            PAPER.claim("joint.path", directional_bregman(*ends, p)[0], name, p)
        )
    return claims


def path_against_descent(
    tokens: TokenSet,
    p: float,
    multiples: Sequence[float],
    steps: int,
    random_starts: int,
) -> dict:
    """Compare the regularisation path of every run with lp-AttGD from W_0 = 0.

    W_mm is the SVM solution of the opt tokens, and the radii are R = multiple ||W_mm||.

    Returns
    -------
    dict
        "path" (runs, multiples) has the divergences of the path from W_mm, and
        "descent" (runs,) has those of the last iterate of descent. "multiple" (runs,)
        is ||W|| / ||W_mm|| at the end of descent. "optimal" (runs,) says whether
        descent selects the opt tokens.
    """
    selection = select(tokens, tokens.opt, p)
    history = train(tokens, MirrorDescent(p), steps, loss="logistic")
    solution = selection.solution
    divergences = []
    towards = solution.W.reshape(selection.direction.shape)
    for run in range(len(tokens.y)):
        random = stream(run, "draws").standard_normal(
            (random_starts, *solution.W.shape[1:])
        )
        starts = np.stack([solution.W[run], history.W[run, -1], *random])
        radii = np.asarray(multiples, float) * solution.norm[run]
        W = _solve(tokens.run(run), p, radii, starts)
        divergences.append(directional_bregman(W.reshape(len(W), -1), towards[run], p))
    return {
        "path": np.array(divergences),
        "optimal": (selected_tokens(tokens, history.W[:, -1]) == tokens.opt).all(1),
        "descent": history.divergence(solution.W, p)[:, -1],
        "multiple": history.own_norm[:, -1] / solution.norm,
    }


def claims_on_parents(
    aligned: Mapping, share: np.ndarray, several: Mapping, followed: Mapping
) -> list[Claim]:
    """Check the claims of 2308.16898 on keys and queries, on several tokens, and on the
    path.

    `aligned` and `share` are the results of `keys_against_weights`, `several` has those
    of `several_tokens` by dimension, and `followed` those of `path_against_descent` by
    p. Alignments are measured at the last iteration, as medians over runs. On the path
    we measure two values: the largest divergence at the last radius, and the largest
    ratio of a divergence to the one at the previous radius, from the second ratio on.
    """
    last = {key: np.median(values[:, -1]) for key, values in aligned.items()}
    small = min(several)
    large = max(several)
    low, high = (np.nanmedian(several[d]) for d in (small, large))
    paths = [ends["path"] for ends in followed.values()]
    falls = max((path[:, 1:] / path[:, :-1])[:, 1:].max() for path in paths)
    kq = last["K, Q", "nuclear"]
    w = last["W", "frobenius"]
    values = {
        "parents.kq": kq,
        "parents.kq.other": kq / last["K, Q", "frobenius"],
        "parents.w": w,
        "parents.w.other": w / last["W", "nuclear"],
        "parents.rank": np.median(share),
    }
    return [
        *PAPER.claims(values),
        PAPER.claim("parents.several", high, say=(large,)),
        PAPER.claim("parents.several.d", high / low, say=(small,)),
        PAPER.claim("parents.path", max(path[:, -1].max() for path in paths)),
        PAPER.claim("parents.path.falls", falls),
    ]
