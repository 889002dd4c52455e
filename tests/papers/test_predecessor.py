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
