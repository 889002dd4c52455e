"""Keys and queries, several tokens and the regularisation path.

They are held against autograd, finite differences and their SVMs.
"""

import numpy as np
import pytest
import torch

from lib import svm
from lib.attention import tokens
from papers.c import key_query, multi_token, predecessor, regularisation_path, theory_figures

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
    found = key_query.train_key_query(DATA, K, Q, 0.1, [0, 1])
    np.testing.assert_allclose(found[:, 0], K @ np.swapaxes(Q, 1, 2))
    np.testing.assert_allclose(found[:, 1], expected, rtol=1e-10)
    with pytest.raises(ValueError, match="Q has shape"):
        key_query.train_key_query(DATA, K, Q[:, :4], 0.1, [1])


def test_relu_head_steps_as_autograd_does():
    W = torch.zeros(2, 5, 5, dtype=torch.float64, requires_grad=True)
    loss(torch.relu(mixture(W)).sum(-1)).backward()
    found, weights = multi_token.train_relu_head(DATA, 0.1, 1)
    np.testing.assert_allclose(found, -0.1 * unit(W.grad), rtol=1e-10)
    np.testing.assert_allclose(weights.sum(-1), 1)


def test_svm_of_several_tokens():
    chosen = np.array([[1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1]], bool)
    W, equations = multi_token.max_margin(DATA.run(0), chosen)
    logits = np.einsum("ntd,de,ne->nt", DATA.X[0], W, DATA.z[0])
    for own, row in zip(chosen, logits, strict=True):
        np.testing.assert_allclose(row[own], row[own][0], atol=1e-9)
        assert row[own].min() - row[~own].max() >= 1 - 1e-9
    assert equations.shape[0] == 2
    np.testing.assert_allclose(equations @ W.ravel(), 0, atol=1e-12)
    single = np.arange(4) == DATA.opt[0][:, None]
    np.testing.assert_allclose(
        multi_token.max_margin(DATA.run(0), single)[0], svm.token_svm(DATA).W[0], atol=1e-9
    )
    for bad in (chosen & False, chosen | True):
        with pytest.raises(ValueError, match="every sample needs a chosen token"):
            multi_token.max_margin(DATA.run(0), bad)


def test_gradient_of_the_log_gap():
    W, E = DRAW.standard_normal((2, 5, 5))
    value, gradient = regularisation_path.log_gap_and_gradient(DATA.run(0), W)
    ahead, behind = (
        regularisation_path.log_gap_and_gradient(DATA.run(0), W + h * E)[0] for h in (1e-6, -1e-6)
    )
    assert np.isclose((ahead - behind) / 2e-6, (gradient * E).sum(), rtol=1e-7) and np.isfinite(
        value
    )


@pytest.mark.parametrize("p", [1.75, 3])
def test_regularisation_path(p):
    one = DATA.run(0)
    starts = np.stack([svm.token_svm(one, norm=p).W[0], *DRAW.standard_normal((2, 5, 5))])
    radii = np.array([1.0, 10, 300])
    W, gap = regularisation_path.solve(one, p, radii, starts)
    sizes = (np.abs(W) ** p).sum((1, 2)) ** (1 / p)
    np.testing.assert_allclose(sizes, radii)
    for start in starts:
        scaled = radii[:, None, None] * start / (np.abs(start) ** p).sum() ** (1 / p)
        assert all(
            g <= regularisation_path.log_gap_and_gradient(one, s)[0] + 1e-9
            for g, s in zip(gap, scaled)
        )
    found = predecessor.path_against_descent(one, p, [1, 10, 100], 500, 1)
    assert (np.diff(found["path"]) < 0).all() and found["path"][0, -1] < 0.01


def test_a_nuclear_norm_solution_has_a_rank_of_at_most_the_samples_and_dimensions():
    for n, dimensions in ((2, [4, 6]), (5, [1, 6])):
        found = predecessor.rank_by_dimension(range(2), n, 5, dimensions)
        known = ~np.isnan(found)
        assert (found <= np.minimum(n, dimensions))[known].all() and found[known].max() > 1


def test_where_descent_ends_is_drawn_beside_the_path():
    data = tokens.unit_tokens(range(2), n=3, T=4, d=6)
    found = predecessor.path_against_descent(data, 2, [1, 10], 200, 1)
    pairs = {(what, norm): np.ones((2, 3)) for what in ("K, Q", "W") for norm in ("a", "b")}
    several = {4: (0, np.ones(3)), 6: (0, np.ones(3))}
    ranked, followed = ([2, 3], {(2, 3): [1, 1]}), ([1, 10], {2: found})
    figure = theory_figures.parents(([1, 2, 3], pairs), ranked, several, followed, "")
    _, there, elsewhere = figure.axes[3].lines
    assert len(there.get_xdata()) == found["optimal"].sum()
    assert len(there.get_xdata()) + len(elsewhere.get_xdata()) == 2
    (label,) = figure.axes[3].get_legend().texts
    assert label.get_text() == f"p = 2; descent: {found['optimal'].sum()} of 2 there"


def test_claims_on_parents_hold_and_can_fail():
    data = tokens.unit_tokens(range(3))
    pairs = predecessor.keys_against_weights(data, range(3), [100, 2000], 0.1)
    several = {k: predecessor.several_tokens(range(8), 3, 4, k, 0.1, 1000) for k in (4, 10)}
    paths = {2: predecessor.path_against_descent(data, 2, [1, 5, 50], 1000, 2)}
    found = predecessor.claims_on_parents(pairs, several, paths)
    assert [c.id for c in found if not c.holds] == []
    swapped = pairs | {(w, n): pairs[w, {"nuclear": "frobenius", "frobenius": "nuclear"}[n]]
                       for w in ("W", "K, Q") for n in ("nuclear", "frobenius")}  # fmt: skip
    swapped["share"], late = 0 * pairs["share"], {2: paths[2] | {"path": paths[2]["path"][:, ::-1]}}
    wrong = predecessor.claims_on_parents(swapped, {4: several[10], 10: (0, -several[4][1])}, late)
    assert [c.id for c in wrong if c.holds] == []
