"""Tests of paper A's claims.

They hold where the statements do, fail elsewhere, and measure known values.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from companion import claims
from lib import attention, dynamics, svm
from lib.attention import coordinates, token_sets, tokens
from lib.dynamics import rules
from papers import fits, joint_loss
from papers.a import assumptions, fixed_head, joint_training, ledger_rows, turning
from papers.a import phase_diagram as phase
from papers.wrong_worlds import World, inside


class Fixed:
    space = coordinates.minimal(tokens.gaussian_tokens([0, 1], n=3, T=3, d=60))
    tokens = space.tokens
    svm = svm.token_svm(tokens)


class Joint:
    space = coordinates.minimal(tokens.two_token_gaussian([0, 1], n=4, d=100))
    tokens = space.tokens
    svm, head = svm.token_svm(tokens), svm.head_svm(tokens)
    record = np.unique(
        np.concatenate([dynamics.log_spaced(2000, 40), [1, 2, 3, 100, 101, 1000]])
    )
    history = dynamics.train(
        space, rules.NGD(0.3, decay=2 / 3), 2000, record,
        targets={"W_mm": svm.W}, head="joint", head_targets={"u_mm": head.value},
    )  # fmt: skip


F = Fixed
J = Joint
RUN = Joint.history


def with_head(history, factor):
    """Return the run with head u_t times factor[k] at record k, and matching scores and
    norms.
    """
    gaps = history.score_gaps * factor[:, None, None]
    norm = history.head_norm * np.abs(factor)

    assert not history.path.u_0.any()  # so that its coefficients hold all of u_t
    path = replace(history.path, b=history.path.b * factor[:, None, None])
    return replace(history, score_gaps=gaps, head_norm=norm, path=path)


def reference(factor):
    """Return the quantities of the independent computation, all off by a factor."""
    names = joint_training.quantities(RUN, J.tokens, J.head, 100)
    rows = joint_training.REFERENCE.items()
    return {
        t: dict(zip(names, factor * np.array(row)[:, None], strict=True))
        for t, row in rows
    }


def starts(factor):
    start = dynamics.gaussian_start(F.space, 1.0, [5, 6])
    start = dynamics.Start(factor * start.inside, factor * start.outside)
    return ledger_rows._lemma4(ledger_rows._start_ratios(F.tokens, start, 60))


def drawn_in(d):
    if d == 4000:
        return tokens.gaussian_tokens(range(29), n=2, T=3, d=d)
    return phase.skewed(tokens.class_mean_tokens([0, 1], n=4, T=3, d=d), 0.5, [0, 1])


def other_tokens(factor):
    """Measure Lemma 14 with every other token equal to the opt token times a factor.

    Without a factor the tokens stay as drawn.
    """
    X = J.tokens.X.copy()
    X[:, :, 0] = factor * X[:, :, 1] if factor else X[:, :, 0]
    return ledger_rows._lemma14(replace(J.tokens, X=X), J.head)[0]


def lemma11_exponents(off):
    def draw(seeds, d):
        return tokens.two_token_gaussian(seeds, n=4, d=d)

    with inside(World("exponent off", off), "A"):
        return ledger_rows._lemma11_exponents(draw, 40, 3.0)


def unchanged(value):
    return value


DM = tokens.two_token_gaussian(range(5), n=4, d=100)

# a function that returns claims, data in which all of them hold, and data in which none
# holds
RIGHT_AND_WRONG = {
    "theorem2": (lambda factor: joint_training.eq13(
        replace(RUN, log_gap=RUN.log_gap * factor), J.tokens, J.head, 0.3, 200)[0], 1, 0.1),
    "reference": (lambda factor: joint_training.against_reference(reference(factor)), 1.3, 2.6),
    "lemma4": (starts, 1, 100),
    "assumptions": (lambda d: ledger_rows._data_claims(drawn_in(d))[1:], 4000, 6),
    "example 1": (lambda d: ledger_rows._how_often(
        "assumption1", assumptions.near_orthogonality(drawn_in(d))), 4000, 6),
    "assumption1.all": (lambda d: ledger_rows._how_often(
        "assumption1.all", assumptions.orthogonality_of_all_tokens(drawn_in(d))), 4000, 6),
    "definition1": (lambda change: ledger_rows._data_claims(change(drawn_in(4000)))[0],
                    unchanged, World("label turned", 1.0).tokens),
    "lemma11": (lambda noise: ledger_rows._lemma11(DM, 3.0, noise), 0.1, 0.01),
    "lemma11 exponents": (lemma11_exponents, 0.0, 0.15),
    "lemma14": (other_tokens, 0, -2),
    "lemma14 opt": (lambda change: ledger_rows._lemma14(J.tokens, change(J.head))[1],
                    unchanged, World("norm off", -0.01).target),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT_AND_WRONG)
def test_claims_hold_and_can_fail(name):
    claims_of, right, wrong = RIGHT_AND_WRONG[name]

    def listed(made):
        if isinstance(made, claims.Claim):
            return [made]
        return list(made)

    assert [claim.id for claim in listed(claims_of(right)) if not claim.holds] == []
    assert [claim.id for claim in listed(claims_of(wrong)) if claim.holds] == []


def test_few_draws_are_too_few_for_a_probability():
    few = tokens.gaussian_tokens(range(28), n=2, T=3, d=4000)
    assert [c.holds for c in ledger_rows._data_claims(few)] == [True, True, False]


def test_figure_3_claims_name_the_slowest_and_the_fastest():
    slow = replace(with_head(RUN, np.full(J.record.size, 0.5)), log_gap=RUN.log_gap / 2,
                   norm=RUN.norm / 2, log_miss=RUN.log_miss / 2)  # fmt: skip
    runs = {"slow": slow, "fast": RUN}
    assert all(
        c.holds for c in joint_training.slower_than_others(runs, "slow", ["fast"])
    )
    assert not any(
        c.holds for c in joint_training.slower_than_others(runs, "fast", ["slow"])
    )
    ahead = joint_training.ahead(slow, RUN, ("slow", "fast"), since=2)
    assert [c.holds for c in ahead] == [False, False, False, True, True]


def test_smoothness_bounds_the_curvature():
    rng = np.random.default_rng(0)
    data = F.tokens
    for size in (0.1, 1.0, 3.0):
        W, V = rng.standard_normal((2, *F.svm.W.shape))
        W = size * W
        V = V / np.linalg.norm(V, axis=(1, 2), keepdims=True)
        ahead, behind = (
            attention.gradients(data, W + e * V, data.u)[1] for e in (1e-5, -1e-5)
        )
        bent = np.linalg.norm(ahead - behind, axis=(1, 2)) / 2e-5
        assert (bent <= fixed_head.smoothness(data)).all()


def test_smoothness_by_hand():
    """Tokens are 2 apart, a query has length 3, scores are 1 and -1: e * 6^2 * (4/16 +
    2/4).
    """
    data = attention.token_set([[[1.0, 0], [-1.0, 0]]], [1.0], z=[[3.0, 0]], u=[1.0, 0])
    assert fixed_head.smoothness(data) == pytest.approx(27 * np.e)


def test_curvature_is_the_hessian_of_the_loss():
    k = 12
    one = J.tokens.run(0)
    W = RUN.weights(k)[:1]
    u = RUN.head(k)[:1]
    x = np.concatenate([W.ravel(), u.ravel()])
    loss = attention.gradients(one, W, u)[0]

    def gradient(x):
        W_and_u = x[: W.size].reshape(W.shape), x[W.size :].reshape(u.shape)
        _, grad_W, grad_u = attention.gradients(one, *W_and_u)
        return np.concatenate([grad_W.ravel(), grad_u.ravel()]) / loss

    rows = [gradient(x + 1e-5 * e) - gradient(x - 1e-5 * e) for e in np.eye(x.size)]
    hessian = np.stack(rows) / 2e-5
    largest = np.abs(np.linalg.eigvalsh((hessian + hessian.T) / 2)).max()
    assert largest == pytest.approx(joint_loss.curvature(RUN, J.tokens)[0, k], rel=1e-6)


def test_losses_along_a_run_are_those_of_the_model():
    loss = attention.gradients(J.tokens, RUN.weights(9), RUN.head(9))[0]
    parts = joint_loss.log_loss_parts(*joint_loss.opt_first(RUN, J.tokens))
    log_losses = -parts[2][:, 9]
    np.testing.assert_allclose(np.exp(log_losses).mean(-1), loss, rtol=1e-12)
    np.testing.assert_allclose(np.exp(RUN.log_gap[:, 9]), loss, rtol=1e-12)


def test_broken_assumptions():
    data = phase.bounded_tokens([0, 1], n=4, T=3, d=20, ratio=2.0)
    skewed = phase.skewed(data, 0.5, [0, 1])
    before, after = (attention.scores(part, part.u) for part in (data, skewed))
    best = np.take_along_axis(before, data.opt[..., None], -1)
    np.testing.assert_allclose(np.take_along_axis(after, data.opt[..., None], -1), best)
    moved = np.abs(after - np.where(before == best, before, 0))[after < best.min()]
    np.testing.assert_allclose(moved.max(), 0.5 * best.min())
    assert (
        np.linalg.norm(data.X, axis=-1).max() < 4
        and (after.argmax(-1) == data.opt).all()
    )
    with pytest.raises(ValueError, match="spread = 1.0"):
        phase.skewed(data, 1.0, [0, 1])


@pytest.mark.parametrize("overlap, holds", [(-1.0, True), (1.0, False)])
def test_two_samples_whose_pairs_oppose_each_other_need_assumption_1(overlap, holds):
    data = phase.two_samples(overlap)
    assert (data.opt == 1).all() and assumptions.near_orthogonality(data) < 1
    K = coordinates.gram(coordinates.differences(data, data.opt), data.z)[0]
    np.testing.assert_allclose(K[0, 1], 3 * overlap + 1e-4)
    named = {"NGD": rules.NGD(0.05), "GD": rules.GD(0.2)}
    found = phase.assumption1_needed(data, named, 1000)
    assert [c.holds for c in found] == [holds, holds]


def test_runs_without_a_solution_are_left_out():
    ngd = {"NGD": rules.NGD(0.1)}
    flat = tokens.class_mean_tokens(range(12), n=6, T=6, d=3)
    kept = svm.feasible(flat)
    assert kept is None or 0 < len(kept.y) < 12
    share = phase.fraction_reached(flat, ngd, 10)["NGD"]
    assert np.isnan(share) == (kept is None)
    easy = tokens.class_mean_tokens([0, 1], n=3, T=3, d=50)
    assert phase.fraction_reached(easy, ngd, 300) == {"NGD": 1.0}


TIMES = np.arange(1001)
POLYAK = dynamics.train(F.space, rules.Polyak(), 1000, TIMES, targets={"W_mm": F.svm.W})
SHAPE = POLYAK.norm.shape  # (runs, k)


def invented(**curves):
    """Return a run with invented curves of shape (k,) or (runs, k)."""
    return replace(
        POLYAK, **{name: np.broadcast_to(c, SHAPE) for name, c in curves.items()}
    )


def theorem5_at_its_rate():
    rate = np.ones(1001)
    rate[2:] = np.sqrt(np.log(TIMES[2:]) / TIMES[2:])
    history = replace(
        POLYAK, direction_error={"W_mm": np.broadcast_to(0.3 * rate, SHAPE)}
    )
    return fixed_head._theorem5(history, 1.0, F.tokens, F.svm)


def fastest(slowed):
    """Judge a rule whose loss gap reaches the level after 50 iterations, times
    `slowed`.

    The rivals take 50 and 100 iterations.
    """
    gap = np.broadcast_to(np.log(fixed_head.THRESHOLD) * TIMES / 50, SHAPE)
    runs = {
        "own": invented(log_gap=slowed(gap)),
        "other": invented(log_gap=halved(gap)),
    }
    return fixed_head.fastest_at_first(runs, "own", ("other",))


def halved(gap):
    return gap / np.array([[1.0], [2.0]])


def never(gap):
    return np.where(np.array([[True], [False]]), gap, 0.0)


def joint_lemma(id):
    """Judge a run whose norm is Lemma 12's bound.

    Its smallest gap grows like S_t, the others grow faster.
    """
    data = tokens.two_token_gaussian([0, 1], n=4, d=100)
    problem = coordinates.minimal(data)
    head = svm.head_svm(problem.tokens)
    ends = {
        "targets": {"W_mm": svm.token_svm(problem.tokens)},
        "head_targets": {"u_mm": head},
    }
    rule = rules.NGD(0.1, decay=2 / 3)
    known = dynamics.train(problem, rule, 1000, TIMES, head="joint", **ends)
    path = fits.path_sum(TIMES, 2 / 3)
    gaps = np.broadcast_to(
        9 * path[:, None, None] ** 1.2, known.score_gaps.shape
    ).copy()
    gaps[:, :, 2, 0] = path
    norms = np.broadcast_to(3 * 0.1 * np.cbrt(TIMES), known.norm.shape)
    history = replace(known, score_gaps=gaps, head_norm=norms, norm=norms / 2)
    made = joint_training.eq13(history, problem.tokens, head, 0.1, 10)
    return next(claim for claim in made if claim.id == id)


@pytest.mark.parametrize(
    "claim, measured",
    [
        (theorem5_at_its_rate, 1.0),
        (lambda: fastest(halved), 1.0),
        (lambda: fastest(lambda gap: 2 * gap), 0.5),
        (lambda: fastest(never), np.inf),
        (lambda: joint_lemma("lemma12"), 1.0),
        (lambda: joint_lemma("lemma13.gap"), 1.0),
    ],
)
def test_claims_measure_what_is_known_of_an_invented_run(claim, measured):
    assert claim().measured == pytest.approx(measured, rel=1e-9)


def test_path_sums_and_exponents_in_them():
    np.testing.assert_allclose(
        fits.path_sum(np.array([0, 1, 3]), 2), [0, 1, 1 + 1 / 4 + 1 / 9]
    )
    np.testing.assert_array_equal(fits.path_sum(TIMES, 0), TIMES)
    values = np.broadcast_to(fits.path_sum(TIMES, 2 / 3) ** 1.3, SHAPE)
    np.testing.assert_allclose(
        joint_training.path_exponent(POLYAK, values, 2 / 3, 10), 1.3
    )


@pytest.mark.parametrize("failed, draws", [(0, 29), (3, 50), (29, 29)])
def test_the_upper_end_of_a_probability_is_where_5_per_cent_of_cases_have_so_few(
    failed, draws
):
    p = phase.upper_end(np.arange(draws) < failed)
    assert (
        p == 1
        if failed == draws
        else stats.binom.cdf(failed, draws, p) == pytest.approx(0.05)
    )


def test_a_start_of_one_logit_stays_within_its_two_sided_quantile():
    found = ledger_rows._union_bound(np.full((1, 1, 1), 0.5), 0.1)
    assert found == pytest.approx(0.5 * stats.norm.isf(0.05), rel=1e-9)


def spanned(scores, overlap=0.0):
    """Return one data set of three tokens per sample with scores (2, 3).

    Everything else is orthogonal except one pair.
    """
    X = np.zeros((2, 3, 9))
    X[:, :, 0] = scores
    X[np.arange(6) // 3, np.arange(6) % 3, 1 + np.arange(6)] = 2.0
    X[1, 1, 1] += overlap / 2  # with the first sample's first token
    y = np.ones(2)
    u = np.eye(9)[0]
    z = np.tile(3 * np.eye(9)[8], (2, 1))
    return token_sets.token_set(X, y, z=z, u=u)


def test_imbalance_and_near_orthogonality_by_their_formulas_on_two_samples():
    uneven = spanned([[1.0, 0.0, -0.2], [0.5, 0.0, 0.0]])
    gap, imbalance = assumptions.score_gaps(uneven)
    assert (gap, imbalance) == (pytest.approx(0.5 / 1), pytest.approx(0.2 / 0.5))
    data = spanned([[1e-3, 0.0, 0.0]] * 2, overlap=0.1)
    (margin,) = assumptions.orthogonality_of_all_tokens(data)
    phi = 1 / (3 * np.e)
    gap = 1e-3
    mu = 0.1
    a = 4.0 + 1e-6
    b = 3.0
    C = np.exp(gap / 2) / (4 * phi * (1 - phi))  # both samples' gaps are alike
    assert margin == pytest.approx(b**2 * (a - 3 * mu) / (4 * 2 * C * mu**2), rel=1e-9)


def test_near_orthogonality_by_its_formula_and_equal_opt_tokens_do_no_harm():
    data = spanned([[1e-3, 0.0, 0.0]] * 2, overlap=0.1)
    data = replace(data, z=data.z + 0.2 * np.eye(9)[[0, 1]])  # no longer equal queries
    queries = data.z[0] @ data.z[0].T
    nu = abs(queries[0, 1])
    b2 = queries.diagonal().min()
    mu = 0.1
    a2 = (data.X[0, :, 0] ** 2).sum(-1).min()
    U2 = (data.X[0, :, 0] ** 2).sum(-1).max()
    p = np.linspace(1 / (3 * np.e), 0.5, 1001)

    def pull(p):
        return np.exp(-1e-3 * p) * p * (1 - p)

    C = pull(np.linspace(0, 1, 100_001)).max() / pull(p).min()
    (room,) = assumptions.near_orthogonality(data)
    assert room == pytest.approx(
        b2 * (a2 - 3 * mu) / (C * nu * (U2 + 3 * mu)), rel=1e-6
    )
    shared = tokens.class_mean_tokens(
        range(3), n=4, T=3, d=4000, signal=2.0, noise=4000**-0.5
    )
    assert (assumptions.near_orthogonality(shared) > 1).all()
    assert (assumptions.orthogonality_of_all_tokens(shared) < 1).all()


def test_where_the_condition_holds_no_step_lowers_a_small_weight_of_an_opt_token():
    drawn = tokens.class_mean_tokens(
        range(3), n=4, T=3, d=4000, signal=2.0, noise=4000**-0.5
    )
    data = coordinates.minimal(drawn).tokens
    rng = np.random.default_rng(0)
    phi = 1 / (3 * np.e)
    seen = 0
    for size in (0.1, 1.0, 3.0, 10.0):
        W = size * rng.standard_normal((3, data.X.shape[-1], data.z.shape[-1]))
        before = np.take_along_axis(attention.weights(data, W), data.opt[..., None], -1)
        W = W - 1e-3 * attention.gradients(data, W, data.u)[1]
        after = np.take_along_axis(attention.weights(data, W), data.opt[..., None], -1)
        small = (before >= phi) & (before <= 0.5)
        seen += small.sum()
        assert (after[small] >= before[small]).all()
    assert seen > 5


def test_lemma_11_has_tails_that_hold_and_half_of_them_does_not():
    d = 100
    delta = 0.1
    signal = 3.0
    noise = 0.1
    bounded = ledger_rows._lemma11(DM, signal, noise)
    pairs = zip(ledger_rows._spreads(DM, signal, noise), bounded, strict=True)
    norms, cross = (
        np.quantile(found, 1 - delta) / claim.measured for found, claim in pairs
    )
    share = delta / (2 * 8**2)  # probability for one token or pair of the 8 tokens
    assert stats.chi2.sf(d + norms, d) <= share < stats.chi2.sf(d + norms / 2, d)
    normal = stats.norm(scale=np.sqrt(d))
    assert normal.sf(cross) <= share < normal.sf(cross / 2)


def test_the_arrows_turn_to_the_rays_found_by_eye():
    start, end = turning.path([0, turning.STEPS])
    np.testing.assert_allclose(start, turning.START, atol=1e-12)
    before = turning.directions(start)
    arrows = turning.directions(end)
    np.testing.assert_allclose(arrows, [[-(0.5**0.5), 0.5**0.5], [0, -1]], atol=0.02)
    assert np.all((before * arrows).sum(-1) < 0.5)  # there is something to see


def test_the_picture_moves(tmp_path):
    gif = tmp_path / "a.gif"
    poster = tmp_path / "a.png"
    turning.animate(gif, poster, frames=4)
    with Image.open(gif) as moving, Image.open(poster) as still:
        frames = []
        for k in range(moving.n_frames):
            moving.seek(k)
            frames.append(np.asarray(moving.convert("L"), float))
        assert len(frames) >= 4 and moving.width == still.width
    assert all(
        np.abs(a - b).max() > 100 for a, b in zip(frames[:3], frames[1:4], strict=True)
    )


def test_exponents_at_the_horizon_are_those_of_the_slowest_run_and_of_the_fastest_gd():
    last = {
        "NGD": np.array([-1.005, -0.985, -0.99]),
        "NGD-mom": np.array([-0.97, -0.99, -1.0]),
        "Polyak, no cap": np.array([-1.0, -1.001, -0.995]),
        "GD": np.array([-0.05, -0.3, -0.1]),
    }
    rows = fixed_head.horizon_claims(last)
    assert {row.id: row.measured for row in rows} == {
        "rate.bound": -0.985,
        "rate.measured": -0.985,
        "rate.momentum": -0.97,
        "rate.polyak": -0.995,
        "rate.gd": -0.3,
    }
    assert {row.id for row in rows if not row.holds} == {"rate.momentum", "rate.gd"}


def ended(errors, weights):
    """Return runs that end at these direction errors and opt weights on two samples."""
    miss = np.log1p(-np.array(weights))
    last = np.array(errors)[:, None]
    return SimpleNamespace(
        log_miss=np.stack([np.full_like(miss, -0.1), miss], 1),
        direction_error={"W_mm": np.concatenate([np.full_like(last, 1.4), last], 1)},
    )


def test_remark_1_has_the_largest_last_error_or_none_where_a_sample_selects_another():
    good = [[0.9, 0.6], [0.51, 0.99], [0.9, 0.9]]
    row = fixed_head.remark1(ended([0.01, 0.02, 0.005], good), "NGD", "zero")
    assert row.measured == 0.02
    lost = [*good[:2], [0.9, 0.49]]
    row = fixed_head.remark1(ended([0.01, 0.02, 0.005], lost), "NGD", "zero")
    assert row.measured == np.inf and not row.holds


def test_a_run_has_reached_a_direction_at_an_alignment_of_nine_tenths():
    # Unit vectors whose inner product is c are the root of 2 - 2 c apart.
    errors = [np.linalg.norm([c - 1, np.sqrt(1 - c**2)]) for c in (0.91, 0.89, 0.91)]
    weights = [[0.9, 0.9], [0.9, 0.9], [0.9, 0.4]]
    found = fixed_head.reached(ended(errors, weights))
    assert found.tolist() == [True, False, False]


def test_near_orthogonality_takes_the_worst_tokens_and_queries_of_uneven_samples():
    """Its definition in plain loops: no two samples share a norm, a gap or a score."""
    data = spanned([[1.5, -0.3, -0.3], [0.8, 0.2, 0.2]], overlap=0.1)
    data = replace(data, z=np.array([[[0, 0.3, 0, 0, 0, 0, 0, 0, 3.0],
                                      [0, 0.2, 0, 0, 0, 0, 0, 0, 2.0]]]))  # fmt: skip
    X = data.X[0]
    z = data.z[0]
    places = [(i, t) for i in range(2) for t in range(3)]
    every = [(a, b) for a in places for b in places if a != b]
    of_two_opt = max(abs(X[a] @ X[b]) for a, b in every if a[1] == b[1] == 0)
    of_others = max(abs(X[a] @ X[b]) for a, b in every if a[1] or b[1])
    phi = 1 / (3 * np.e)
    rests, gaps = np.array([-0.3, 0.2]), np.array([1.8, 0.6])

    def pulls(p):
        return [
            np.exp(-r - p * g) * g * p * (1 - p)
            for r, g in zip(rests, gaps, strict=True)
        ]

    strongest = np.max(pulls(np.linspace(0, 1, 100_001)))
    weakest = np.min(pulls(np.linspace(phi, 0.5, 1001)))
    nu = abs(z[0] @ z[1])
    own = (z[1] @ z[1]) * (X[1, 0] @ X[1, 0] - 3 * of_others)
    others = strongest / weakest * nu * (X[0, 0] @ X[0, 0] + 3 * of_others)
    assert of_two_opt > of_others
    assert assumptions.near_orthogonality(data) == pytest.approx(own / others, rel=1e-8)

    own = (z[1] @ z[1]) * (X[1, 0] @ X[1, 0] - 3 * of_two_opt)
    C = np.exp(1.8 / 2) * 1.8 / (4 * 0.6 * phi * (1 - phi))
    strict = own / (4 * 2 * C * of_two_opt**2)
    assert assumptions.orthogonality_of_all_tokens(data) == pytest.approx(strict)
    one = token_sets.token_set(X[:1], [1.0], z=z[:1], u=np.eye(9)[0])
    assert assumptions.near_orthogonality(one) == np.inf


def test_lemma_5_is_measured_at_the_worst_sample_and_only_up_to_one_half():
    p = np.array([[0.2, 0.3, 0.15, 0.6], [0.4, 0.8, 0.7, 0.9]])  # by sample
    history = SimpleNamespace(log_miss=np.log1p(-p).T[None])
    least, rises = fixed_head.lemma5(history, "NGD")
    assert least.measured == pytest.approx(0.15 / 0.2)
    assert rises.measured == pytest.approx(0.15 / 0.3)
    _, rises = fixed_head.lemma5(
        SimpleNamespace(log_miss=history.log_miss[..., 1:]), "NGD"
    )
    assert rises.measured == pytest.approx(0.8 / 0.4)  # its fall to 0.7 does not count


def test_steps_norms_and_margins_are_compared_with_their_predictions():
    t = np.array([0, 10, 100, 1000])
    history = SimpleNamespace(
        iterations=t,
        log_step=np.log([[9.0, 9.0, 9.0, 0.3]]),
        log_gradient=np.log([[9.0, 9.0, 9.0, 5.0]]),
        norm=np.array([[0.0, 9.0, 30.0, 30.0 + 0.2 * 900]]),
        # The sample that is least selected counts.
        log_miss=np.stack([-0.5 * t, -0.1 * t], -1)[None],
    )
    solution = SimpleNamespace(norm=np.array([4.0]))
    assert fixed_head.polyak_step_norm(history, solution).measured == pytest.approx(
        0.75
    )
    assert fixed_head.lemma7(history, 0.25).measured == pytest.approx(0.8)
    rate = fixed_head.margin_growth(history, "NGD", np.array([0.08]), 10)
    assert rate.measured == pytest.approx(1.25)


def test_exponents_are_fitted_decade_by_decade():
    t = np.array([10, 30, 100, 300, 1000, 3000])
    error = np.where(t <= 100, 5 / t, 500 / t**2.0)
    history = SimpleNamespace(iterations=t, direction_error={"W_mm": error[None]})
    found = fixed_head.decade_exponents({"NGD": history}, 5000)
    np.testing.assert_allclose(found["NGD"], [[-1.0, -2.0]])


def test_theorem_6_is_measured_over_the_last_decade_and_where_plain_descent_ends():
    t = np.geomspace(1, 1000, 13)
    norm = np.array([4.0, 3.0, *np.geomspace(2, 200, 11)])  # it shrinks at first
    error = np.where(t < 99, 3 * norm**-0.2, 3 * 100**0.5 * norm**-0.7)
    growing = SimpleNamespace(
        iterations=t, norm=norm[None], direction_error={"W_mm": error[None]}
    )
    plain = SimpleNamespace(
        norm=np.array([[1.0, 3.0]]),
        direction_error={"W_mm": np.array([[1.0, 1.25 * 3 * 3**-0.2]])},
    )
    slope, path = fixed_head.theorem6(plain, growing)
    assert slope.measured == pytest.approx(-0.7)
    assert path.measured == pytest.approx(1.25)


def test_lemma_6_is_attained_where_one_pair_alone_is_not_learnt():
    """There -grad L points along A_m, so that its cosine with W_mm times ||W_mm|| is
    <A_m, W_mm> / ||A_m||.
    """
    tokens = F.tokens
    size = np.linalg.norm(tokens.z, axis=-1)[..., None]
    lengths = size * np.linalg.norm(
        coordinates.differences(tokens, tokens.opt), axis=-1
    )
    longest = lengths.max((1, 2), keepdims=True)
    expected = (F.svm.margins / lengths * longest).min()
    assert fixed_head.lemma6(tokens, F.svm).measured == pytest.approx(
        expected, rel=1e-9
    )


def test_the_sum_of_steps_may_leave_out_the_first_one():
    values = np.broadcast_to((fits.path_sum(TIMES, 0.5) - 1).clip(0) ** 1.3, SHAPE)
    found = joint_training.path_exponent(POLYAK, values, 0.5, 10, skipped=1)
    np.testing.assert_allclose(found, 1.3)


@pytest.mark.parametrize(
    "factor, off", [(1.3, 1.3), (1 / 1.3, 1.3), (-1, np.inf), (0.2, 5)]
)
def test_a_reference_is_missed_by_the_larger_of_a_ratio_and_its_inverse(factor, off):
    rows = joint_training.against_reference(reference(factor))
    assert [row.measured for row in rows] == pytest.approx([off] * len(rows))


def test_slowest_and_ahead_are_judged_at_the_last_record_and_at_every_late_one():
    last = np.arange(len(J.record)) == len(J.record) - 1

    def scaled(factor):
        return replace(
            with_head(RUN, factor),
            log_gap=RUN.log_gap * factor,
            norm=RUN.norm * factor,
            log_miss=RUN.log_miss * factor[:, None],
        )

    runs = {"slow": scaled(np.where(last, 0.5, 2.0)), "fast": RUN}
    rows = joint_training.slower_than_others(runs, "slow", ["fast"])
    assert [row.measured for row in rows] == pytest.approx([0.5] * 4)
    rows = joint_training.ahead(runs["slow"], RUN, ("slow", "fast"), since=2)
    assert [row.measured for row in rows[:3]] == pytest.approx([0.5] * 3)
