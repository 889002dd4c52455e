"""The atlas as optimisers are used: own norms, weight decay, variance reduction, turned factors."""

from dataclasses import replace
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest

from lib import svm
from lib.attention import tokens
from papers import falsify
from papers.beyond import atlas, atlas_rules, atlas_used, margin_law
from papers.beyond.engine import optimisers as o
from papers.beyond.engine import training
from tests import exact

DATA = tokens.unit_tokens(range(2), n=3, T=3, d=6)
ONE = DATA.run(0)
A = atlas.features(ONE, ONE.opt[0])


def test_the_shortest_vector_is_the_frobenius_svm_and_says_where_there_is_none():
    V, duals = atlas_used._shortest(A.reshape(-1, 36))
    np.testing.assert_allclose(V.reshape(6, 6), svm.token_svm(ONE).W[0], atol=1e-9)
    assert duals.min() >= 0 and duals.sum() == pytest.approx(V @ V)
    with pytest.raises(RuntimeError, match="not separable"):
        atlas_used._shortest(np.array([[1.0, 0.0], [-1.0, 0.0]]))


def test_the_fixed_point_is_one_and_says_how_far_it_is_from_it():
    found = atlas_used._fixed_point(A)
    assert found.residual <= atlas_used.SETTLED
    _, duals = atlas_used._shortest((A / np.sqrt(found.s)).reshape(-1, 36))
    pulls = np.einsum("im,imjk->ijk", duals.reshape(3, 2), A)
    s = np.sqrt((pulls**2).sum(0))
    np.testing.assert_allclose(found.s / found.s.max(), s / s.max(), atol=1e-6)
    early = atlas_used._fixed_point(A, most=2)
    assert early.steps == 2 and early.residual > atlas_used.SETTLED


def test_a_max_margin_matrix_has_ratio_one_in_its_own_norm_alone():
    rng = np.random.default_rng(0)
    s = rng.uniform(0.1, 2, (6, 6))
    V, _ = atlas_used._shortest((A / np.sqrt(s)).reshape(-1, 36))
    W = V.reshape(6, 6) / np.sqrt(s)
    assert atlas_used._entrywise(A, W, s) == pytest.approx(1, abs=1e-9)
    assert atlas_used._entrywise(A, W, np.ones((6, 6))) < 0.99
    left, right = (M @ M.T for M in rng.standard_normal((2, 6, 6)))
    assert atlas_used._two_sided(A, W, left, right) < 0.99
    Q = [np.linalg.qr(M)[0] for M in rng.standard_normal((2, 6, 6))]
    there = replace(ONE, X=ONE.X @ Q[0], u=ONE.u @ Q[0], z=ONE.z @ Q[1])
    W = Q[0] @ svm.token_svm(there, norm=np.inf).W[0] @ Q[1].T
    assert atlas_used._in_turned(ONE, ONE.opt[0], W, *Q) == pytest.approx(1, abs=1e-6)
    assert atlas_used._in_turned(ONE, ONE.opt[0], W, *np.stack([np.eye(6)] * 2)) < 0.99


@pytest.mark.parametrize("name", ["Adam, 0.999, per sample", "AdaGrad"])
def test_own_norms_are_noticed_when_the_metric_is_the_identity(name):
    rows = atlas_rules.rows()
    path = training.train(DATA, rows[name].rule, 200_000, record=[100_000, 200_000])
    found = atlas.ratios(path, atlas.BestMargins(DATA))
    own, residual = atlas_used.own_ratios(DATA, name, path, found)
    plain, _ = atlas_used.own_ratios(DATA, name, path, found, identity=True)
    np.testing.assert_allclose(plain, found.last[:, atlas.column("Frobenius")], atol=1e-6)
    assert (own > plain).all() and (own <= 1 + 1e-9).all() and residual.max() <= 1e-9


def test_decay_shrinks_w_before_the_step():
    rule = o.decayed(o.steepest(2, 0.1, decay=0.5), 0.7)
    start = 0.3 * np.random.default_rng(1).standard_normal((2, 6, 6))
    W = training.train(DATA, rule, 3, start=start, record=[0, 1, 2, 3]).W
    for t in range(3):
        step = W[:, t + 1] - (1 - 0.07 / np.sqrt(t + 1)) * W[:, t]
        np.testing.assert_allclose(np.linalg.norm(step, axis=(1, 2)), 0.1 / np.sqrt(t + 1))
    plain = training.train(DATA, replace(rule, weight_decay=0.0), 1, start=start, record=[1]).W
    np.testing.assert_allclose(W[:, 1], plain[:, 0] - 0.07 * start, atol=1e-15)


def test_variance_reduction_is_svrg():
    """Steps of gradient descent by hand: anchor at the begin of each epoch of three samples."""
    eta, W, anchor = 0.2, np.zeros((6, 6)), None
    rule = o.variance_reduced(o.on_batches(o.steepest(2, eta, normalised=False), 1))
    for t in range(7):
        now = exact.gradients(ONE, W, "exponential").astype(float)
        anchor = now if t % 3 == 0 else anchor
        W = W + eta * (now[t % 3] - anchor[t % 3] + anchor.mean(0))
    found = training.train(ONE, rule, 7, record=[7]).W[0, 0]
    np.testing.assert_allclose(found, W, atol=1e-12)


def test_olion_moves_by_the_sign_of_the_polar_factor():
    rules = {"signed": o.olion(0.1), "polar": o.steepest("spectral", 0.1)}
    signed, polar = (path.W[:, 0] for path in training.train(DATA, rules, 1, record=[1]).values())
    np.testing.assert_allclose(signed, 0.1 * np.sign(polar))


@pytest.mark.parametrize("name", ["decay", "gauge"])
def test_rows_as_used_fail_with_the_identity_as_their_metric(monkeypatch, name):
    """Or with another decay or size of R, where the identity is the metric."""
    monkeypatch.setattr(atlas_used, "ALLOWED", (1, 100))
    power = falsify._power(falsify._sections("beyond")[name])
    assert [id for id, row in power.items() if not (row["holds"] and row["catches"])] == []


@pytest.mark.parametrize(
    "name, size",
    [
        ("GD", lambda W: cp.norm(W, "fro")),
        ("Muon", cp.sigma_max),
        ("sign", lambda W: cp.max(cp.abs(W))),
    ],
)
def test_the_least_loss_in_a_ball_lacks_what_the_law_says_to_first_order(name, size):
    """Solved for by cvxpy: nothing is trained. Margins of 3 and of 3,000 allowed."""
    kappa = margin_law.saturated_slopes(ONE)[0].ravel()
    off = []
    for allowed in (3, 3_000):
        row = atlas_used.DECAYED[name].row(allowed)
        W = cp.Variable((6, 6))
        loss = cp.log_sum_exp(kappa - A.reshape(-1, 36) @ cp.vec(W, "C") / row.rule.weight_decay)
        cp.Problem(cp.Minimize(loss), [size(W) <= 1]).solve(cp.CLARABEL)
        W = W.value[None, None] / row.rule.weight_decay
        path = SimpleNamespace(W=W, status=np.array(["completed"]))
        end = atlas_used.at_rest(row, path, atlas.BestMargins(ONE))
        assert end.size == pytest.approx(1, abs=1e-6)
        off.append(abs(end.missing[0] / end.law[0] - 1))
    assert off[0] > 0.005 and off[1] < 0.002


def test_a_decay_that_forbids_the_margin_is_said():
    nothing = np.full(2, np.nan)
    end = atlas_used.AtRest(np.ones(2), nothing, nothing, DATA.opt, nothing)
    low = replace(end, allowed=np.array([0.7, 4.0]))
    assert atlas_used.forbidden({"sign, 1": low, "sign, 3": end}) == {"sign, 1": 1, "sign, 3": 2}
