"""Tests of the paper that C generalises, by autograd and SVMs.

A failure means that paper C is compared with other algorithms.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lib import svm
from lib.attention import tokens
from lib.dynamics import MirrorDescent, train
from lib.mirror.geometry import directional_bregman
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


def test_the_alignment_is_a_cosine_and_has_no_scale():
    W = np.array([[1.0, 0.0], [0.0, 0.0]])
    V = np.array([[3.0, 4.0], [0.0, 12.0]])
    pair = np.stack([W, 0 * W])
    np.testing.assert_allclose(predecessor._alignment(7 * pair, V), [3 / 13, np.nan])


def test_keys_queries_and_weights_start_within_the_reciprocal_of_the_root(monkeypatch):
    data = tokens.unit_tokens(range(2), n=3, T=4, d=16)
    seen = []

    def train_key_query(tokens, K, Q, *how):
        seen.extend([K, Q])
        return (K @ np.swapaxes(Q, 1, 2))[:, None]

    def train(tokens, rule, steps, record, start, loss):
        seen.append(start)
        assert (rule.step_size, steps, record) == (0.1, 7, [3, 7])
        return SimpleNamespace(W=start[:, None])

    monkeypatch.setattr(predecessor, "train_key_query", train_key_query)
    monkeypatch.setattr(predecessor, "train", train)
    predecessor.keys_against_weights(data, range(2), [3, 7], 0.1)
    for start in seen:
        assert start.shape == (2, 16, 16)
        assert 0.98 / 4 < start.max() <= 1 / 4 and -1 / 4 <= start.min() < -0.98 / 4
    assert len({start[0, 0, 0] for start in seen}) == 3


def test_alignments_are_with_the_svm_of_the_tokens_at_the_end(monkeypatch):
    """W turns from -W_mm to W_mm, and K Q^T stays at the solution of another norm."""
    solutions = {
        norm: svm.token_svm(DATA, norm=norm).W for norm in ("nuclear", "frobenius")
    }
    between = np.broadcast_to(np.eye(5), (2, 5, 5))
    ends = {norm: np.stack([-W, between, W], 1) for norm, W in solutions.items()}
    monkeypatch.setattr(predecessor, "train_key_query", lambda *how: ends["nuclear"])
    monkeypatch.setattr(
        predecessor, "train", lambda *how, **more: SimpleNamespace(W=ends["frobenius"])
    )
    aligned, share = predecessor.keys_against_weights(DATA, range(2), [1, 2, 3], 0.1)
    for pair in (("K, Q", "nuclear"), ("W", "frobenius")):
        np.testing.assert_allclose(aligned[pair][:, ::2], [[-1, 1]] * 2, atol=1e-9)
    cosine = [
        np.vdot(a, b) / np.linalg.norm(a) / np.linalg.norm(b)
        for a, b in zip(*solutions.values(), strict=True)
    ]
    np.testing.assert_allclose(aligned["W", "nuclear"][:, -1], cosine, atol=1e-9)
    # The sum over the rank of the solution itself is the whole.
    np.testing.assert_allclose(share, 1.0)


def test_a_second_step_of_the_relu_head_is_that_of_autograd():
    first, _ = predecessor._train_relu_head(DATA, 0.1, 1)
    start = torch.from_numpy(first).requires_grad_()
    loss(torch.relu(mixture(start)).sum(-1)).backward()
    W, _ = predecessor._train_relu_head(DATA, 0.1, 2)
    np.testing.assert_allclose(W, first - 0.1 * unit(start.grad), rtol=1e-9)


def test_equations_that_repeat_count_once():
    """Of three chosen tokens the third is in line with the other two."""
    one = DATA.run(0)
    one.X[0, 0, 2] = 2 * one.X[0, 0, 1] - one.X[0, 0, 0]
    chosen = np.array([[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 1, 0]], bool)
    W, E = predecessor._max_margin(one, chosen)
    assert E.shape == (1, 25)
    np.testing.assert_allclose(E @ E.T, np.eye(1), atol=1e-12)
    logits = np.einsum("td,de,e->t", one.X[0, 0], W, one.z[0, 0])
    np.testing.assert_allclose(logits[:3], logits[0], atol=1e-9)
    assert logits[0] - logits[3] >= 1 - 1e-9


def test_the_equations_take_no_part_in_the_alignment(monkeypatch):
    """A token is selected if its weight exceeds SELECTED, and not if it equals it."""
    data = tokens.unit_tokens(range(2), n=2, T=3, d=4)
    high = 2 * predecessor.SELECTED
    weights = np.full((2, 2, 3), high)
    weights[0] = [
        [high, high, predecessor.SELECTED],
        [predecessor.SELECTED, 1e-9, high],
    ]
    V, E = predecessor._max_margin(data.run(0), weights[0] == high)
    W = 3 * V + (E.T @ [5.0]).reshape(4, 4)
    trained = np.stack([W, W]), weights
    monkeypatch.setattr(predecessor, "_train_relu_head", lambda *how: trained)
    aligned = predecessor.several_tokens(range(2), 2, 3, 4, 0.1, 1)
    np.testing.assert_allclose(aligned, [1.0, np.nan])


@pytest.mark.parametrize("p", [1.5, 2, 4])
def test_the_search_on_the_sphere_has_the_gradient_of_its_own_objective(monkeypatch, p):
    """Otherwise L-BFGS stops early. The start need not lie on the sphere."""
    a = np.array([0.3, -1.0, 0.7])
    found = {}

    def minimize(objective, start, **how):
        found["objective"] = objective
        return SimpleNamespace(x=start, fun=0.0)

    monkeypatch.setattr(predecessor, "minimize", minimize)
    w = np.array([1.2, -0.4, 0.9])
    end, _ = predecessor._on_the_sphere(
        lambda w: (np.sin(w @ a) + w[0] ** 2, np.cos(w @ a) * a + [2 * w[0], 0, 0]),
        w,
        2.5,
        p,
    )
    on = 2.5 * w / (np.abs(w) ** p).sum() ** (1 / p)
    np.testing.assert_allclose(end, on)
    value, gradient = found["objective"](w)
    assert value == pytest.approx(np.sin(on @ a) + on[0] ** 2)
    steps = 1e-6 * np.eye(3)
    slope = [
        (found["objective"](w + e)[0] - found["objective"](w - e)[0]) / 2e-6
        for e in steps
    ]
    np.testing.assert_allclose(gradient, slope, rtol=1e-6, atol=1e-8)


def test_the_path_starts_from_all_starts_and_from_the_radius_before(monkeypatch):
    asked = []

    def on_the_sphere(function, start, R, p):
        asked.append((start[0], R))
        return np.array([R, start[0], 2.0, 3.0]), -start[0] * R

    monkeypatch.setattr(predecessor, "_on_the_sphere", on_the_sphere)
    starts = np.array([[[5.0, 0.0], [0.0, 0.0]], [[0.0, 2.0], [0.0, 0.0]]])
    W = predecessor._solve(DATA.run(0), 2, [1.0, 10.0, 100.0], starts)
    np.testing.assert_array_equal(
        W, [[[R, 1.0], [2.0, 3.0]] for R in (1.0, 10.0, 100.0)]
    )
    # From the second radius on, the last solution is a start too.
    before = [R / np.sqrt(R**2 + 14) for R in (1.0, 10.0)]
    firsts = [1.0, 0.0, 1.0, 0.0, before[0], 1.0, 0.0, before[1]]
    assert [first for first, _ in asked] == pytest.approx(firsts)


def fake_pairs():
    """Return two pairs of solutions, of a head and of a weight, with their norms."""
    return [
        tuple(SimpleNamespace(norm=np.array([size])) for size in sizes)
        for sizes in ((2.0, 3.0), (5.0, 7.0))
    ]


def test_the_joint_path_takes_the_radii_of_the_largest_margin_and_the_least_loss(
    monkeypatch,
):
    pairs = fake_pairs()
    asked = []

    def in_turn(data, p, r, R, pair):
        asked.append((r, R, pairs.index(pair)))
        return [-1.0, -4.0][asked[-1][2]], f"v {len(asked)}", f"W {len(asked)}"

    monkeypatch.setattr(predecessor, "_candidates", lambda *how: pairs)
    monkeypatch.setattr(predecessor, "_in_turn", in_turn)
    assert predecessor.solve_jointly(None, 2, 10.0) == ("v 2", "W 2")
    assert asked == [(20.0, 30.0, 0), (20.0, 30.0, 1)]


def test_the_loss_in_turn_is_that_of_a_head_and_a_weight_on_their_spheres(monkeypatch):
    """Without a search: v keeps its direction, and W its start."""
    asked = []

    def on_the_sphere(function, v, r, p):
        return 1.5 * v, None

    def solve(data, p, radii, W):
        asked.append((radii, W, data.u))
        return W

    monkeypatch.setattr(predecessor, "_on_the_sphere", on_the_sphere)
    monkeypatch.setattr(predecessor, "_solve", solve)
    one = DATA.run(0)
    v = np.arange(1.0, 6)
    V = DRAW.standard_normal((1, 5, 5))
    size = (np.abs(V) ** 3).sum() ** (1 / 3)
    pair = (
        SimpleNamespace(value=v[None]),
        SimpleNamespace(W=V, norm=np.array([size])),
    )
    log_loss, end, W = predecessor._in_turn(one, 3, 4.0, 6.0, pair)
    np.testing.assert_allclose(W, 6 / size * V[0])
    np.testing.assert_allclose(end, 1.5**3 * v)
    on = 4 * v / (v**3).sum() ** (1 / 3)
    expected, _ = predecessor._log_loss_of_head(one, W[None], on)
    assert log_loss == pytest.approx(expected)
    for k, (radii, _, u) in enumerate(asked, 1):
        assert radii == [6.0]
        np.testing.assert_allclose(u, 1.5**k * v[None])


def test_descent_is_followed_to_its_last_iterate_beside_the_path(monkeypatch):
    asked = []

    def solve(data, p, radii, starts):
        asked.append((radii, starts))
        return np.stack([starts[0] + 0.1 * k for k in range(len(radii))])

    monkeypatch.setattr(predecessor, "_solve", solve)
    found = predecessor.path_against_descent(DATA, 3, [2, 5], 30, 2)
    history = train(DATA, MirrorDescent(3), 30, loss="logistic")
    V = svm.token_svm(DATA, norm=3).W
    sizes = (np.abs(V) ** 3).sum((1, 2)) ** (1 / 3)
    end = history.W[:, -1]
    lengths = (np.abs(end) ** 3).sum((1, 2)) ** (1 / 3)
    np.testing.assert_allclose(found["multiple"], lengths / sizes, rtol=1e-6)

    def divergence(W, V):
        return directional_bregman(W.ravel(), V.ravel(), 3)

    expected = [divergence(W, goal) for W, goal in zip(end, V, strict=True)]
    np.testing.assert_allclose(found["descent"], expected)
    logits = np.einsum("rntd,rde,rne->rnt", DATA.X, end, DATA.z)
    np.testing.assert_array_equal(
        found["optimal"], (logits.argmax(-1) == DATA.opt).all(1)
    )
    for run, (radii, starts) in enumerate(asked):
        np.testing.assert_allclose(radii, [2 * sizes[run], 5 * sizes[run]], rtol=1e-6)
        assert starts.shape == (4, 5, 5)
        np.testing.assert_allclose(starts[0], V[run], atol=1e-9)
        np.testing.assert_array_equal(starts[1], end[run])
        path = [0.0, divergence(starts[0] + 0.1, V[run])]
        np.testing.assert_allclose(found["path"][run], path, atol=1e-9)


def test_candidates_are_all_selections_by_the_norm_of_their_heads(monkeypatch):
    one = tokens.unit_tokens(range(1), n=2, T=3, d=4)

    def head_svm(data, selected, p):
        (a, b) = selected[0]
        return SimpleNamespace(norm=np.array([9.0 * a % 5 + 0.1 * b]), of=(a, b))

    def token_svm(data, selected, norm):
        (a, b) = selected[0]
        return SimpleNamespace(norm=np.array([10.0 * b - a]), of=(a, b))

    monkeypatch.setattr(svm, "head_svm", head_svm)
    monkeypatch.setattr(svm, "token_svm", token_svm)
    pairs = predecessor._candidates(one, 2)
    assert all(head.of == end.of for head, end in pairs)
    # 9 a modulo 5 is 0, 4 and 3.
    assert [head.of for head, _ in pairs] == [
        (a, b) for a in (0, 2, 1) for b in range(3)
    ]


def test_samples_with_label_minus_one_select_several_tokens_more_often():
    share = predecessor.share_with_several(range(8), 3, 4, 10, 0.1, 1000)
    tokens = predecessor.unit_tokens(range(8), 3, 4, 10)
    _, weights = predecessor._train_relu_head(tokens, 0.1, 1000)
    expected = {-1: [], 1: []}
    for run, sample in np.ndindex(tokens.y.shape):
        selected = (weights[run, sample] > predecessor.SELECTED).sum()
        expected[int(tokens.y[run, sample])].append(selected > 1)
    assert share == pytest.approx({y: np.mean(many) for y, many in expected.items()})
    assert share[-1] > 0.8 > share[1] > 0
