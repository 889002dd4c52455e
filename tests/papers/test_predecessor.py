"""Tests of the paper that C generalises, by autograd and SVMs.

A failure means that paper C is compared with other algorithms.
"""

import numpy as np
import pytest
import torch

from lib import svm
from lib.attention import tokens
from papers.c import predecessor

DATA = tokens.unit_tokens(range(2), n=3, T=4, d=5)
DRAW = np.random.default_rng(0)
K, Q = DRAW.standard_normal((2, 2, 5, 3))
X, y, z, u = (torch.from_numpy(a) for a in (DATA.X, DATA.y, DATA.z, DATA.u))


def mixture(W):
    weights = torch.softmax(torch.einsum("rntd,rde,rne->rnt", X, W, z), -1)
    return torch.einsum("rnt,rntd->rnd", weights, X)


def loss(f):
    return torch.nn.functional.softplus(-y * f).mean(-1).sum()


def unit(gradient):
    return (gradient / torch.linalg.norm(gradient, dim=(1, 2), keepdim=True)).numpy()


def test_keys_and_queries_step_as_autograd_does():
    k, q = (torch.from_numpy(a).requires_grad_() for a in (K, Q))
    loss(torch.einsum("rnd,rd->rn", mixture(k @ q.mT), u)).backward()
    expected = (K - 0.1 * unit(k.grad)) @ np.swapaxes(Q - 0.1 * unit(q.grad), 1, 2)
    W = predecessor.train_key_query(DATA, K, Q, 0.1, [0, 1])
    np.testing.assert_allclose(W[:, 0], K @ np.swapaxes(Q, 1, 2))
    np.testing.assert_allclose(W[:, 1], expected, rtol=1e-10)
    with pytest.raises(ValueError, match="Q has shape"):
        predecessor.train_key_query(DATA, K, Q[:, :4], 0.1, [1])


def test_the_share_of_the_rank_is_that_of_the_largest_singular_values(monkeypatch):
    U, V = np.linalg.qr(np.random.default_rng(1).standard_normal((2, 2, 5, 5)))[0]
    W = U * [8.0, 4.0, 2.0, 1.0, 1.0] @ np.swapaxes(V, 1, 2)
    monkeypatch.setattr(predecessor, "train_key_query", lambda *how: W[:, None])
    monkeypatch.setattr(predecessor, "_ranks", lambda solution: np.array([1, 3]))
    _, share = predecessor.keys_against_weights(DATA, range(2), [1], 0.1)
    np.testing.assert_allclose(share, [8 / 16, (8 + 4 + 2) / 16])


def test_relu_head_steps_as_autograd_does():
    start = torch.zeros(2, 5, 5, dtype=torch.float64, requires_grad=True)
    loss(torch.relu(mixture(start)).sum(-1)).backward()
    W, weights = predecessor._train_relu_head(DATA, 0.1, 1)
    np.testing.assert_allclose(W, -0.1 * unit(start.grad), rtol=1e-10)
    np.testing.assert_allclose(weights.sum(-1), 1)


def test_svm_of_several_tokens():
    chosen = np.array([[1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1]], bool)
    one = DATA.run(0)
    W, equations = predecessor._max_margin(one, chosen)
    logits = np.einsum("ntd,de,ne->nt", DATA.X[0], W, DATA.z[0])
    for selected, row in zip(chosen, logits, strict=True):
        np.testing.assert_allclose(row[selected], row[selected][0], atol=1e-9)
        assert row[selected].min() - row[~selected].max() >= 1 - 1e-9
    assert equations.shape[0] == 2
    np.testing.assert_allclose(equations @ W.ravel(), 0, atol=1e-12)
    single = np.arange(4) == DATA.opt[0][:, None]
    W, _ = predecessor._max_margin(one, single)
    np.testing.assert_allclose(W, svm.token_svm(DATA).W[0], atol=1e-9)
    for bad in (chosen & False, chosen | True):
        with pytest.raises(ValueError, match="chosen"):
            predecessor._max_margin(one, bad)


@pytest.mark.parametrize("p", [1.75, 3])
def test_regularisation_path(p):
    one = DATA.run(0)
    radii = np.array([1.0, 10, 300])
    starts = np.stack(
        [svm.token_svm(one, norm=p).W[0], *DRAW.standard_normal((2, 5, 5))]
    )

    def size(W):
        return (np.abs(W) ** p).sum((-1, -2)) ** (1 / p)

    W = predecessor._solve(one, p, radii, starts)
    np.testing.assert_allclose(size(W), radii)

    def gap(W):
        return predecessor._log_gap_and_gradient(one, W)[0]

    for start in starts:
        for R, found in zip(radii, W, strict=True):
            assert gap(found) <= gap(R * start / size(start)) + 1e-9
    divergences = predecessor.path_against_descent(one, p, [1, 10, 100], 500, 1)["path"]
    assert (np.diff(divergences) < 0).all() and divergences[0, -1] < 0.01


def test_a_nuclear_norm_solution_has_a_rank_of_at_most_the_samples_and_dimensions():
    for n, dimensions in ((2, [4, 6]), (5, [1, 6])):
        ranks = predecessor.rank_by_dimension(range(2), n, 5, dimensions)
        known = ~np.isnan(ranks)
        assert (ranks <= np.minimum(n, dimensions))[known].all() and ranks[
            known
        ].max() > 1


def test_claims_on_parents_hold_and_can_fail():
    data = tokens.unit_tokens(range(3))
    pairs, share = predecessor.keys_against_weights(data, range(3), [100, 2000], 0.1)
    several = {
        d: predecessor.several_tokens(range(8), 3, 4, d, 0.1, 1000) for d in (4, 10)
    }
    followed = {2: predecessor.path_against_descent(data, 2, [1, 5, 50], 1000, 2)}
    claims = predecessor.claims_on_parents(pairs, share, several, followed)
    assert [claim.id for claim in claims if not claim.holds] == []
    other = {"nuclear": "frobenius", "frobenius": "nuclear"}
    swapped = {(name, norm): pairs[name, other[norm]] for name, norm in pairs}
    late = {2: followed[2] | {"path": followed[2]["path"][:, ::-1]}}
    several = {4: several[10], 10: -several[4]}
    wrong = predecessor.claims_on_parents(swapped, 0 * share, several, late)
    assert [claim.id for claim in wrong if claim.holds] == []


def test_claims_on_parents_take_medians_over_runs_and_the_worst_path():
    ends = {("K, Q", "nuclear"): 0.9, ("K, Q", "frobenius"): 0.6}
    ends |= {("W", "nuclear"): 0.4, ("W", "frobenius"): 0.8}
    aligned = {
        key: np.array([[0.1, end], [0.2, end - 0.3], [0.3, end + 0.05]])
        for key, end in ends.items()
    }
    several = {4: np.array([0.2, 0.5, np.nan, 0.9]), 10: np.array([0.6, 0.7, 1.0])}
    paths = {
        1.5: {"path": np.array([[1.0, 2.0, 1.0, 0.25], [1.0, 0.5, 0.45, 0.1]])},
        3: {"path": np.array([[1.0, 0.1, 0.05, 0.01], [1.0, 0.1, 0.03, 0.02]])},
    }
    for followed in (paths, dict(reversed(paths.items()))):
        share = np.array([0.5, 0.9, 0.95])
        rows = predecessor.claims_on_parents(aligned, share, several, followed)
        measured = {row.id.removeprefix("parents."): row.measured for row in rows}
        assert measured == pytest.approx(
            {
                "kq": 0.9,
                "kq.other": 0.9 / 0.6,
                "w": 0.8,
                "w.other": 0.8 / 0.4,
                "rank": 0.9,
                "several": 0.7,
                "several.d": 0.7 / 0.5,
                "path": 0.25,
                "path.falls": 0.45 / 0.5,
            }
        )


@pytest.mark.parametrize("p", [1.5, 2, 4])
def test_a_linear_function_on_the_sphere_has_its_minimum_by_hoelder(p):
    """On ||w||_p = R, min <c, w> = -R ||c||_q with q = p / (p - 1)."""
    c = np.array([3.0, -1.0, 0.5, 2.0])
    found, value = predecessor._on_the_sphere(
        lambda w: (c @ w, c), np.array([-1.0, -1.0, 1.0, 0.5]), 7.0, p
    )
    q = p / (p - 1)
    assert value == pytest.approx(-7 * (np.abs(c) ** q).sum() ** (1 / q), rel=1e-6)
    assert (np.abs(found) ** p).sum() ** (1 / p) == pytest.approx(7)


def test_gradients_of_log_losses_are_those_of_autograd():
    one = DATA.run(0)
    W = DRAW.standard_normal((1, 5, 5))
    v = DRAW.standard_normal(5)
    mixed = mixture(torch.from_numpy(np.concatenate([W, W])))[0]
    head = torch.from_numpy(v).requires_grad_()
    of_head = torch.log(torch.nn.functional.softplus(-y[0] * (mixed @ head)).mean())
    of_head.backward()
    log_loss, gradient = predecessor._log_loss_of_head(one, W, v)
    assert log_loss == pytest.approx(of_head.item())
    np.testing.assert_allclose(gradient, head.grad.numpy(), rtol=1e-10)
    at = torch.from_numpy(np.concatenate([W, W])).requires_grad_()
    best = torch.from_numpy(np.take_along_axis(DATA.X, DATA.opt[..., None, None], 2))
    best_scores = y[:1] * torch.einsum("rnd,rd->rn", best[:1, :, 0], u[:1])
    limit = torch.nn.functional.softplus(-best_scores).mean()
    scores = torch.einsum("rnd,rd->rn", mixture(at)[:1], u[:1])
    of_W = torch.log(torch.nn.functional.softplus(-y[:1] * scores).mean() - limit)
    of_W.backward()
    gap, gradient = predecessor._log_gap_and_gradient(one, W.ravel())
    assert gap == pytest.approx(of_W.item())
    np.testing.assert_allclose(gradient, at.grad[0].numpy().ravel(), rtol=1e-9)
