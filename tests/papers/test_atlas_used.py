"""The atlas as optimisers are used: own norms, weight decay, variance reduction, turned factors."""

from dataclasses import replace

import numpy as np
import pytest

from lib import svm
from lib.attention import tokens
from papers.beyond import atlas, atlas_rules, atlas_used, own_norms
from papers.beyond.engine import optimisers as o
from papers.beyond.engine import training
from papers.wrong_worlds import caught

DATA = tokens.unit_tokens(range(2), n=3, T=3, d=6)
ONE = DATA.run(0)
A = own_norms.features(ONE, ONE.opt[0])


def test_the_shortest_vector_is_the_frobenius_svm_and_says_where_there_is_none():
    V, duals = own_norms.shortest(A.reshape(-1, 36))
    np.testing.assert_allclose(V.reshape(6, 6), svm.token_svm(ONE).W[0], atol=1e-9)
    assert duals.min() >= 0 and duals.sum() == pytest.approx(V @ V)
    with pytest.raises(RuntimeError, match="not separable"):
        own_norms.shortest(np.array([[1.0, 0.0], [-1.0, 0.0]]))


def test_the_fixed_point_is_one_and_says_how_far_it_is_from_it():
    found = own_norms.fixed_point(A)
    assert found.residual <= own_norms.SETTLED
    _, duals = own_norms.shortest((A / np.sqrt(found.s)).reshape(-1, 36))
    pulls = np.einsum("im,imjk->ijk", duals.reshape(3, 2), A)
    s = np.sqrt((pulls**2).sum(0))
    np.testing.assert_allclose(found.s / found.s.max(), s / s.max(), atol=1e-6)
    early = own_norms.fixed_point(A, most=2)
    assert early.steps == 2 and early.residual > own_norms.SETTLED


def test_a_max_margin_matrix_has_ratio_one_in_its_own_norm_alone():
    rng = np.random.default_rng(0)
    s = rng.uniform(0.1, 2, (6, 6))
    V, _ = own_norms.shortest((A / np.sqrt(s)).reshape(-1, 36))
    W = V.reshape(6, 6) / np.sqrt(s)
    assert own_norms.entrywise(A, W, s) == pytest.approx(1, abs=1e-9)
    assert own_norms.entrywise(A, W, np.ones((6, 6))) < 0.99
    left, right = (M @ M.T for M in rng.standard_normal((2, 6, 6)))
    assert own_norms.two_sided(A, W, left, right) < 0.99
    Q = [np.linalg.qr(M)[0] for M in rng.standard_normal((2, 6, 6))]
    there = replace(ONE, X=ONE.X @ Q[0], u=ONE.u @ Q[0], z=ONE.z @ Q[1])
    W = Q[0] @ svm.token_svm(there, norm=np.inf).W[0] @ Q[1].T
    assert own_norms.turned(ONE, ONE.opt[0], W, *Q) == pytest.approx(1, abs=1e-6)
    assert own_norms.turned(ONE, ONE.opt[0], W, *np.stack([np.eye(6)] * 2)) < 0.99


@pytest.mark.parametrize("name", ["Adam, 0.999, per sample", "AdaGrad"])
def test_own_norms_are_noticed_when_the_metric_is_the_identity(name):
    rows = atlas_rules.rows()
    path = training.train(DATA, rows[name].rule, 200_000, record=[100_000, 200_000])
    found = atlas.ratios(path, atlas.BestMargins(DATA))
    own, residual = own_norms.own_ratios(DATA, name, path, found)
    plain, _ = own_norms.own_ratios(DATA, name, path, found, identity=True)
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


@pytest.mark.parametrize(
    "make, named",
    [
        (lambda: o.decayed(o.steepest(2, 0.5), 2.0), "eta lambda"),
        (lambda: o.decayed(o.steepest(2, 0.5), -1.0), "weight_decay"),
        (lambda: o.decayed(o.mirror(3, 0.1), 0.1), "mirror"),
        (lambda: o.variance_reduced(o.steepest(2, 0.1)), "batches"),
    ],
)
def test_what_makes_no_rule_is_refused(make, named):
    with pytest.raises(ValueError, match=named):
        make()


def test_variance_reduction_is_svrg():
    """Steps of gradient descent by hand: anchor at the begin of each epoch of three samples."""
    eta, W, data, anchor = 0.2, np.zeros((6, 6)), ONE, None
    rule = o.variance_reduced(o.on_batches(o.steepest(2, eta, normalised=False), 1))
    for t in range(7):
        now = exact_pulls(data, W)
        anchor = now if t % 3 == 0 else anchor
        W = W + eta * (now[t % 3] - anchor[t % 3] + anchor.mean(0))
    found = training.train(data, rule, 7, record=[7]).W[0, 0]
    np.testing.assert_allclose(found, W, atol=1e-12)


def exact_pulls(data, W):
    """Minus the gradient of each sample's loss, (n, d, d), by differences of the loss."""

    def losses(W):
        logits = np.einsum("ntd,nd->nt", data.X[0], data.z[0] @ W.T)
        p = np.exp(logits - logits.max(1, keepdims=True))
        scores = data.y[0, :, None] * (data.X[0] @ data.u[0])
        return np.exp(-(p * scores).sum(1) / p.sum(1))

    h, out = 1e-5, np.zeros((len(data.y[0]), *W.shape))
    for j in np.ndindex(*W.shape):
        E = np.zeros(W.shape)
        E[j] = h
        out[(slice(None), *j)] = (losses(W - E) - losses(W + E)) / (2 * h)
    return out


def test_olion_moves_by_the_sign_of_the_polar_factor():
    step = [
        training.train(DATA, rule, 1, record=[1]).W[:, 0]
        for rule in (o.olion(0.1), o.steepest("spectral", 0.1))
    ]
    np.testing.assert_allclose(step[0], 0.1 * np.sign(step[1]))


@pytest.fixture(scope="module")
def rested():
    """GD and sign under decay, here, small: (ends, ends with the identity as the metric)."""
    solutions, ends, wrong = atlas_used.Solutions(DATA), {}, {}
    for name in ("GD", "sign"):
        row = atlas_used.DECAYED[name].row(100)
        path = training.train(DATA, row.rule, row.longest, record=[row.longest])
        ends[name] = atlas_used.at_rest(row, path, solutions)
        wrong[name] = atlas_used.at_rest(row, path, solutions, identity=True)
    return ends, wrong


def test_decay_rests_on_its_sphere_with_the_shortfall_of_the_law(rested):
    for one in rested[0].values():
        np.testing.assert_allclose(one.size, 1, atol=1e-4)
        np.testing.assert_allclose(one.missing, one.law, rtol=0.05)


def test_decay_claims_notice_the_identity_and_a_wrong_decay(rested):
    every = lambda ends: (
        {
            f"{name}, {m}": ends[name if name in ends else "sign"]
            for name in atlas_used.DECAYED
            for m in atlas_used.ALLOWED
        }
        | {atlas_used.SLOW: replace(ends["sign"], size=0.2 * ends["sign"].size)}
    )
    here = atlas_used.decay_claims(every(rested[0]))
    assert all(claim.holds for claim in here)
    off = {k: replace(v, size=1.02 * v.size) for k, v in rested[0].items()}
    worlds = {"identity": every(rested[1]), "decay 2 % off": every(off)}
    there = {world: atlas_used.decay_claims(ends) for world, ends in worlds.items()}
    noticed = caught(here, there)
    assert {id for id in noticed["identity"]} == {c.id for c in here if not c.id.endswith(".GD")}
    assert "atlas.decay.norm.GD" in noticed["decay 2 % off"]


def test_a_decay_that_forbids_the_margin_is_said():
    nothing = np.full(2, np.nan)
    end = atlas_used.AtRest(np.ones(2), nothing, nothing, DATA.opt, nothing)
    low = replace(end, allowed=np.array([0.7, 4.0]))
    assert atlas_used.forbidden({"sign, 1": low, "sign, 3": end}) == {"sign, 1": 1, "sign, 3": 2}


def test_turned_keys_and_queries_are_seen_by_sign_and_adam_alone():
    moved = atlas_used.turned_back(DATA, range(2), 50)
    here = atlas_used.gauge_claims(moved)
    assert all(claim.holds for claim in here)
    same = atlas_used.gauge_claims(atlas_used.turned_back(DATA, range(2), 50, identity=True))
    seen = caught(here, {"R = 1": same})["R = 1"]
    assert {id.split(".")[-1].split("_")[0] for id in seen} == {"sign", "Adam"}


def test_every_row_has_a_formula_and_a_source():
    rows = atlas_rules.rows() | atlas_used.decay_rows() | atlas_used.other_rows()
    table = atlas_rules.listing(rows)
    assert len(table) == len(rows) and all(all(line) for line in table)
    formulas = dict(line[:2] for line in table)
    assert formulas["AdamW, 3"] == "W = (1 - eta lambda) W + eta D; D = M / (sqrt(v))"
    assert formulas["OLion"].endswith("sgn(U V^T), U S V^T = M + (G - M) (1 - mu)")
