"""Keys and queries in logarithms, against autograd and mpmath; the norms that factors induce."""

import mpmath
import numpy as np
import pytest
import torch

from lib import attention
from lib.ambient import factored
from lib.ambient import optimisers as o
from lib.attention import coordinates, tokens
from lib.attention.token_sets import TokenSet
from lib.papers.beyond import atlas, factor_norms, factored_atlas

DATA = tokens.unit_tokens(range(2), n=4, T=5, d=6)
SEEDS = range(2)


def polar(G):
    U, S, V = torch.linalg.svd(G)
    kept = S > 1e-12 * S[0]
    return U[:, : len(S)][:, kept] @ V[: len(S)][kept]


BY_TORCH = {"frobenius": lambda G: G / G.norm(), "spectral": polar, np.inf: torch.sign}


def autograd(data, K, Q, direction, eta, steps):
    """The same run in float64, one run of the set, gradients by autograd; direction None: Adam."""
    X, z, y, u = (torch.tensor(part[0]) for part in (data.X, data.z, data.y, data.u))
    K, Q = (torch.tensor(M, requires_grad=True) for M in (K, Q))
    adam = torch.optim.Adam([K, Q], lr=eta, betas=(0.9, 0.99), eps=1e-30)
    for t in range(steps):
        weights = torch.softmax(torch.einsum("ntd,de,ne->nt", X, K @ Q.T, z), -1)
        loss = torch.exp(-y * torch.einsum("nt,ntd,d->n", weights, X, u)).mean()
        adam.zero_grad()
        loss.backward()
        if direction is None:
            adam.step()
            continue
        with torch.no_grad():
            for M in (K, Q):
                M += eta * (t + 1) ** -0.5 * direction(-M.grad)
    return (K @ Q.T).detach().numpy()


@pytest.mark.parametrize("norm", [*BY_TORCH, "adam"])
def test_short_runs_are_those_of_autograd(norm):
    K, Q = factored.small_start(DATA, SEEDS, 3, size=0.3)
    rule = o.adam(0.02, memory=0.99) if norm == "adam" else o.steepest(norm, 0.05, 0.5)
    ours = factored.train(DATA, {"a": rule}, K, Q, [60])["a"].W[0, 0]
    theirs = autograd(DATA, K[0], Q[0], BY_TORCH.get(norm), rule.step_size, 60)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)


def test_one_step_where_every_gradient_underflows_is_that_of_mpmath():
    """Margins of thousands: float64 has no gradient left, its direction is known all the same."""
    K, Q = factored.small_start(DATA, SEEDS, 4)
    far = factored.train(DATA, {"a": o.steepest(2, 0.1)}, K, Q, [800])["a"]
    K, Q = far.K[:, 0], far.Q[:, 0]
    delta = coordinates.differences(DATA, DATA.opt)[0]
    margins = np.einsum("ntd,de,ne->nt", delta, far.W[0, 0], DATA.z[0])
    assert margins.min() > 800
    after = factored.train(DATA, {"a": o.steepest(2, 1.0)}, K, Q, [1])["a"]
    with mpmath.workdps(int(margins.max())):  # digits enough for 1 - p
        G = _mp_gradient(DATA.run(0), K[0] @ Q[0].T)
        of_K, of_Q = G * mpmath.matrix(Q[0].tolist()), G.T * mpmath.matrix(K[0].tolist())
        for move, factor, old in ((of_K, after.K[0, 0], K[0]), (of_Q, after.Q[0, 0], Q[0])):
            unit = np.array((move / mpmath.norm(move)).tolist(), float)
            np.testing.assert_allclose(factor - old, unit, rtol=0, atol=1e-9)


def _mp_gradient(data, W):
    """-grad_W L of one run, mpmath."""
    scores = attention.scores(data, data.u)[0]
    logits = np.einsum("ntd,de,ne->nt", data.X[0], W, data.z[0])
    n, T, d = data.X[0].shape
    G = mpmath.zeros(d, d)
    for i in range(n):
        p = [mpmath.exp(mpmath.mpf(logits[i, t]) - logits[i].max()) for t in range(T)]
        total = mpmath.fsum(p)
        p = [one / total for one in p]
        f = mpmath.fsum(p[t] * mpmath.mpf(scores[i, t]) for t in range(T))
        for t in range(T):
            c = mpmath.exp(-f) * p[t] * (mpmath.mpf(scores[i, t]) - f) / n
            x, z = mpmath.matrix(data.X[0, i, t].tolist()), mpmath.matrix(data.z[0, i].tolist())
            G += c * x * z.T
    return G


def transformed(data, R, S):
    """Tokens and head by R, queries by S, both orthogonal."""
    return TokenSet(X=data.X @ R.T, y=data.y, z=data.z @ S.T, u=data.u @ R.T, opt=data.opt)


@pytest.mark.parametrize("norm", ["frobenius", "spectral"])
def test_rules_without_coordinates_turn_with_tokens_queries_and_columns(norm):
    random = np.random.default_rng(0)
    R, S, C = (np.linalg.qr(random.standard_normal((k, k)))[0] for k in (6, 6, 3))
    K, Q = factored.small_start(DATA, SEEDS, 3, size=0.3)
    rule = {"a": o.steepest(norm, 0.05, 0.5)}
    plain = factored.train(DATA, rule, K, Q, [200])["a"].W
    turned = factored.train(transformed(DATA, R, S), rule, R @ K @ C, S @ Q @ C, [200])["a"].W
    np.testing.assert_allclose(turned, R @ plain @ S.T, rtol=0, atol=1e-7)


def test_sign_descent_keeps_permutations_and_signs_but_not_rotations():
    random = np.random.default_rng(1)
    flips = np.eye(6)[random.permutation(6)] * np.array([1, -1, 1, 1, -1, 1.0])
    R = np.linalg.qr(random.standard_normal((6, 6)))[0]
    K, Q = factored.small_start(DATA, SEEDS, 3, size=0.3)
    rule = {"a": o.steepest(np.inf, 0.05, 0.5)}
    plain = factored.train(DATA, rule, K, Q, [100])["a"].W
    for M, alike in ((flips, True), (R, False)):
        other = factored.train(transformed(DATA, M, M), rule, M @ K, M @ Q, [100])["a"].W
        assert np.allclose(other, M @ plain @ M.T, rtol=0, atol=1e-7) == alike


def test_zero_factors_are_a_saddle_and_one_zero_factor_is_not():
    zero = np.zeros((2, 6, 3))
    for rule in (o.steepest(2, 0.1), o.steepest("spectral", 0.1), o.adam(0.1)):
        found = factored.train(DATA, {"a": rule}, zero, zero, [5])["a"]
        assert (found.status == "stalled").all() and (found.ended == 0).all()
        assert "stalled" in repr(found)
        _, Q = factored.small_start(DATA, SEEDS, 3)
        moved = factored.train(DATA, {"a": rule}, zero, Q, [5])["a"]
        assert (moved.status == "completed").all() and (np.abs(moved.W[:, 0]).max((1, 2)) > 0).all()


def test_columns_bound_the_rank():
    K, Q = factored.small_start(DATA, SEEDS, 2)
    W = factored.train(DATA, {"a": o.steepest(np.inf, 0.05)}, K, Q, [100])["a"].W[:, 0]
    sizes = np.linalg.svd(W, compute_uv=False)
    assert (sizes[:, 2] < 1e-12 * sizes[:, 0]).all() and (sizes[:, 0] > 0).all()


def test_steps_that_overflow_are_told():
    K, Q = factored.small_start(DATA, SEEDS, 2)
    found = factored.train(DATA, {"a": o.steepest(2, 1e250)}, K, Q, [3])["a"]
    assert (found.status == "diverged").all() and np.isnan(found.W[:, -1]).all()


def test_factors_that_do_not_fit_are_refused():
    K, Q = factored.small_start(DATA, SEEDS, 3)
    rule = {"a": o.steepest(2, 0.1)}
    with pytest.raises(ValueError, match="Q has shape"):
        factored.train(DATA, rule, K, Q[..., :2], [1])
    with pytest.raises(ValueError, match="K has shape"):
        factored.train(DATA, rule, K[..., :0], Q[..., :0], [1])
    with pytest.raises(ValueError, match="Q holds NaN"):
        factored.train(DATA, rule, K, np.full_like(Q, np.nan), [1])
    for other in (o.muon(0.1), o.shampoo(0.1), o.on_batches(o.steepest(2, 0.1), 1)):
        with pytest.raises(ValueError, match="without matrix moments and batches"):
            factored.train(DATA, {"a": other}, K, Q, [1])
    with pytest.raises(ValueError, match="m = 0"):
        factored.small_start(DATA, SEEDS, 0)


def test_sign_norm_of_known_matrices():
    x, y = np.array([1.0, -1, 1, 1]), np.array([1.0, 1, -1])
    assert factor_norms.sign_norm(np.outer(x, y)) == pytest.approx(1, rel=1e-8)
    scaled = np.outer([3, -1, 0.5], [0.2, -2])
    assert factor_norms.sign_norm(scaled) == pytest.approx(6, rel=1e-8)
    assert factor_norms.sign_norm(np.array([[1.0, 1], [1, -1]])) == pytest.approx(2, rel=1e-8)
    assert factor_norms.sign_norm(np.zeros((3, 2))) == 0
    with pytest.raises(ValueError, match="NaN"):
        factor_norms.sign_norm(np.full((2, 2), np.inf))
    with pytest.raises(ValueError, match="15 rows"):
        factor_norms.sign_norm(np.ones((15, 2)))


def test_sign_norm_is_a_norm_between_its_bounds():
    random = np.random.default_rng(2)
    K, Q, V = (random.standard_normal(shape) for shape in ((5, 3), (6, 3), (5, 6)))
    W = K @ Q.T
    found, of_V = factor_norms.sign_norm(W), factor_norms.sign_norm(V)
    assert found <= 3 * np.abs(K).max() * np.abs(Q).max() * (1 + 1e-9)
    assert found >= np.abs(W).max()
    assert factor_norms.sign_norm(W.T) == pytest.approx(found, rel=1e-7)
    assert factor_norms.sign_norm(-2 * W) == pytest.approx(2 * found, rel=1e-7)
    assert factor_norms.sign_norm(W + V) <= (found + of_V) * (1 + 1e-8)
    signs = factor_norms._signs(5)
    for _ in range(20):  # any Y proves <Y, W> <= ||Y||_{inf -> 1} ||W||_sgn
        Y = random.standard_normal((5, 6))
        assert (Y * W).sum() <= factor_norms.largest_products(Y, signs, 1)[0][0] * found


def test_spectral_and_nuclear_norm_are_what_factors_induce():
    random = np.random.default_rng(3)
    W = random.standard_normal((5, 4))
    U, S, V = np.linalg.svd(W, full_matrices=False)
    K, Q = U * np.sqrt(S), V.T * np.sqrt(S)
    np.testing.assert_allclose(K @ Q.T, W)
    cost = {
        "spectral": lambda K, Q: max(np.linalg.norm(K, 2), np.linalg.norm(Q, 2)) ** 2,
        "nuclear": lambda K, Q: max(np.linalg.norm(K), np.linalg.norm(Q)) ** 2,
    }
    for name, of in cost.items():
        assert of(K, Q) == pytest.approx(atlas.norm(W, name), rel=1e-12)
        for _ in range(20):
            C = np.linalg.qr(random.standard_normal((4, 4)))[0] + 0.3 * np.eye(4)
            assert of(K @ C, Q @ np.linalg.inv(C).T) >= atlas.norm(W, name) * (1 - 1e-12)


def test_best_sign_margin_is_not_beaten():
    random = np.random.default_rng(4)
    A = random.standard_normal((3, 4, 5))
    best, gap = factor_norms.best_sign_margin(A)
    assert gap <= 1e-8
    for W in random.standard_normal((20, 4, 5)):
        assert np.einsum("mde,de->m", A, W).min() <= best * factor_norms.sign_norm(W) * (1 + 1e-8)
    alone, _ = factor_norms.best_sign_margin(A[:1])
    value = factor_norms.largest_products(A[0], factor_norms._signs(4), 1)[0][0]
    assert alone == pytest.approx(value, rel=1e-8)


@pytest.fixture(scope="module")
def ran():
    data = tokens.unit_tokens([102, 103], n=6, T=8, d=10)
    table = {k: v for k, v in factored_atlas.rows().items() if not k.startswith("Adam")}
    return table, *factored_atlas.run(data, table, 20_000, [102, 103])


def test_short_runs_turn_to_the_induced_norms_and_wrong_worlds_are_caught(ran):
    table, both, alone, gap = ran
    assert gap < 1e-7
    for name, row in table.items():
        assert factored_atlas.share(both[name], row.norm) == 1
        assert factored_atlas.share(alone[name], row.alone_norm) == 1
    here = [c.id for c in factored_atlas.predictions(table, both, alone) if c.holds]
    assert "factors.bounded" in here
    for wrong in factored_atlas.worlds(table, both, alone).values():
        there = {c.id: c.holds for c in factored_atlas.predictions(table, *wrong)}
        assert any(not there[name] for name in here)


def test_runs_that_select_nothing_fail_every_prediction(ran):
    table, both, alone, _ = ran
    none = {
        n: factored_atlas.Ends(np.full_like(e.last, np.nan), e.optimal, e.steady)
        for n, e in both.items()
    }
    claims = factored_atlas.predictions(table, none, alone)
    assert not any(c.holds for c in claims if ".norm." in c.id or ".above." in c.id)


def test_rows_are_those_of_the_protocol():
    rows = factored_atlas.rows()
    assert [row.norm for row in rows.values()] == [
        "nuclear",
        factor_norms.SIGN,
        "spectral",
        factor_norms.SIGN,
        factor_norms.SIGN,
    ]
    assert [row.always for row in rows.values()] == [True, True, True, False, False]
