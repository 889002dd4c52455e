"""Tests of paper C's claims.

They hold on a problem that satisfies them, and fail on one that does not. Rows of the
ledger are tested in test_wrong_worlds.
"""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from lib import attention, dynamics, mirror, svm
from lib.attention import coordinates, tokens
from lib.mirror import geometry
from papers.c import figures, ledger_rows, lemmas, predecessor, section5
from papers.c.statements import PAPER, STATEMENTS
from papers.wrong_worlds import World, inside

SEEDS = range(4)
DATA = tokens.unit_tokens(SEEDS)
STEPS = {1.75: 1500, 2: 2000, 3: 20000}
RULES = {p: dynamics.MirrorDescent(p) for p in STEPS}
EXPONENTS = [1.3, 2, 3]
FOUND = {p: lemmas.found_selections(DATA, SEEDS, p, 4000) for p in EXPONENTS}


class Trained:
    histories = dynamics.train(
        DATA,
        RULES,
        STEPS,
        start=mirror.gaussian_start(DATA, SEEDS),
        loss="logistic",
    )
    ends = section5.end_points(DATA, histories)
    found = section5.divergences(histories, ends)


def holds(claims):
    return [claim.holds for claim in claims]


def failing(claims):
    return {claim.id for claim in claims if not claim.holds}


def test_bregman_claims():
    found = Trained.found
    histories = Trained.histories
    failed = failing(section5.bregman_claims(found, histories))
    assert {id.split(".")[1] for id in failed} <= {"table", "range"}
    swapped = {(p, q): 3 * found[p, {1.75: 3, 3: 1.75, 2: 2}[q]] for p, q in found}
    stopped = {
        p: replace(h, status=np.array(["diverged"] * 4)) for p, h in histories.items()
    }
    wrong = failing(section5.bregman_claims(swapped, stopped))
    kinds = ("row", "runs", "table")
    assert {f"bregman.{kind}.{p}" for kind in kinds for p in ("1.75", "3")} <= wrong
    assert "bregman.completed" in wrong


@pytest.mark.parametrize("factor", [0.25, 0.5, 2.0])
def test_the_table_is_off_by_the_largest_factor_in_either_direction(factor):
    """All means are `factor` times the reference, but for one that is 1.1 times it."""
    D = {
        (p, q): np.full((8, 1), factor * mean)
        for p, row in section5.REFERENCE.items()
        for q, mean in row.items()
    }
    D[2, 1.75] *= 1.1 / factor
    claims = section5.bregman_claims(D, Trained.histories)
    tables = [claim for claim in claims if claim.id.startswith("bregman.table")]
    assert [claim.measured for claim in tables] == pytest.approx(
        [max(factor, 1 / factor)] * 3
    )


def test_own_selection_takes_the_svm_of_the_other_training():
    # as if training with 3 had found something else
    ends = Trained.ends | {3: Trained.ends[3] | {3: Trained.ends[2][2]}}
    own = section5.divergences(Trained.histories, ends, own_tokens=True)
    same = section5.divergences(Trained.histories, ends)
    np.testing.assert_array_equal(own[1.75, 3], Trained.found[1.75, 2])
    np.testing.assert_array_equal(own[2, 2], Trained.found[2, 2])
    assert same[1.75, 3][0, -1] == Trained.found[1.75, 3][0, -1]


def test_path_claims():
    histories = dynamics.train(DATA.run(1), RULES, STEPS, loss="logistic")
    ends = section5.end_points(DATA.run(1), histories)
    assert failing(section5.path_claims(histories, ends)) == set()
    early = {
        p: replace(h, path=replace(h.path, W=h.W[:, :20])) for p, h in histories.items()
    }
    assert not any(holds(section5.path_claims(early, ends))[1::2])


def test_joint_claims():
    data = section5.joint_instance()
    record = [0, 15, 30, 1000, 1500, 2000, 20000]
    joint = dynamics.train(data, RULES, STEPS, record, head="joint", loss="logistic")
    ends = section5.end_points(data, joint)
    chosen = {p: mirror.selected_tokens(data, h.W[:, -1]) for p, h in joint.items()}
    heads = {p: svm.head_svm(data, chosen[p], p) for p in joint}
    assert failing(section5.joint_claims(data, joint, ends, heads)) == set()
    figure = figures.joint(joint, ends, heads, "")
    of_W, of_head = (axis.lines for axis in figure.axes)
    for p, *lines in zip(STEPS, of_W, of_head, strict=True):
        W, v = (line.get_ydata()[-1] for line in lines)
        assert W == joint[p].divergence(ends[p][p].W, p)[0, -1]
        assert v == joint[p].head_divergence(heads[p].value, p)[0, -1]
    exchanged = {1.75: joint[3], 2: joint[3], 3: joint[2]}
    failed = failing(section5.joint_claims(data, exchanged, ends, heads))
    assert {
        f"joint.{kind}.{p:g}" for kind in ("tokens", "directions") for p in STEPS
    } <= failed


@pytest.mark.parametrize("p", EXPONENTS)
def test_edges_of_a_cone_and_those_that_move_a_margin_most(p):
    near = FOUND[p]
    mu = lemmas.radius(FOUND[p])

    def D(V):
        return geometry.directional_bregman(V, near.direction, p)

    for width in (mu, np.full_like(mu, 0.1)):
        edge = lemmas.on_the_edge(near, width, 3)
        np.testing.assert_allclose(geometry.norm(edge, p), 1)
        np.testing.assert_allclose(D(edge) / width, 1, atol=0.01)
    apart = coordinates.differences(near.tokens, near.tokens.opt)
    A = coordinates.constraint_rows(apart, near.tokens.z)

    def moved(V):
        return np.abs(np.einsum("rmD,krD->krm", A, V - near.direction)).max((0, 2))

    E = lemmas._margin_edges(near)
    worst = lemmas._edge_along(near, mu, E)
    drawn = lemmas.on_the_edge(near, mu, 50)
    np.testing.assert_allclose(D(worst), np.broadcast_to(mu, E.shape[:2]), rtol=0.01)
    assert (moved(worst) > moved(drawn)).all()
    # Hoelder's inequality is an equality
    rows = np.swapaxes(A, 0, 1)
    E = E[: A.shape[1]]
    sizes = geometry.norm(rows, p / (p - 1)) * geometry.norm(E, p)
    np.testing.assert_allclose((rows * E).sum(-1), sizes, rtol=1e-12)


def test_lemma_21_measures_pi_beside_log_r_over_r(monkeypatch):
    """If pi = c log R / R, the measure is constant. If pi = c / R, it falls."""
    near = FOUND[2]
    multiples = np.geomspace(5, 5e4, 5)

    def growth(power):
        def pi(near, radii, E):
            return np.log(radii) ** power / radii

        monkeypatch.setattr(lemmas, "_largest_pi", pi)
        return lemmas.lemma21(near, multiples, 1).measured

    assert growth(1.0) == pytest.approx(1.0)
    assert growth(0.0) < 0.95 and growth(2.0) > 1.1


def test_a_selection_with_a_better_support_token_is_not_locally_optimal():
    worst = (DATA.y[..., None] * np.einsum("rntd,rd->rnt", DATA.X, DATA.u)).argmin(-1)
    assert not lemmas.locally_optimal(lemmas.select(DATA, worst, 2)).any()


def test_lemma_28_sees_a_run_that_rests_and_one_that_leaves_on_the_way():
    """Otherwise a step that is a million times too short would pass."""
    D = np.full((len(FOUND[2].direction), 5), 0.1)
    mu = np.full(len(FOUND[2].direction), 0.2)
    assert not lemmas.lemma28(FOUND[2], D * np.linspace(1, 0.9999, 5), mu).holds
    assert lemmas.lemma28(FOUND[2], D * np.linspace(1, 1.01, 5), mu).holds
    stays = lemmas.lemma28(FOUND[2], np.array([[0.1, 0.2, 0.05]]), np.array([0.15]))
    assert not stays.holds and stays.measured == pytest.approx(0.2 / 0.15)
    assert stays.remark.endswith("0.5 to 0.5")
    assert not lemmas.lemma28(FOUND[2], D, mu * 1e-16).holds  # where D is rounding


def test_captured_near_and_far():
    fractions = {2: lemmas.captured(FOUND[2], [0.001, 1.9], 10, 1000, 2)}
    assert all(holds(lemmas.local_claims(fractions, [0.001, 1.9], 10)))
    assert not lemmas.local_claims({2: 1 - fractions[2]}, [0.001, 1.9], 10)[0].holds


def test_a_rise_of_the_loss_at_any_step_is_seen():
    rule = dynamics.MirrorDescent(3, 0.05, normalised=False)
    start = mirror.gaussian_start(DATA, SEEDS)
    steps = lemmas.Steps(
        DATA,
        dynamics.train(DATA, rule, 50, np.arange(51), start, loss="logistic"),
        rule,
    )
    assert failing(lemmas.step_claims(steps)) == set()
    steps.loss_rise = np.array([-1, 3, -1, -1])
    assert failing(lemmas.step_claims(steps)) == {"lemma25.3"}


def near_runs(near):
    return ledger_rows._near_runs(near, 2000)


@pytest.mark.parametrize("p", EXPONENTS)
def test_lemma_27_holds_in_the_cone_with_pi_and_r_pi_of_the_data(p):
    near = FOUND[p]
    claim = lemmas.lemma27(near, *near_runs(near))
    assert claim.holds
    assert 0.9 * lemmas.PI < claim.measured < 1.1 * lemmas.PI


@pytest.mark.parametrize("p", EXPONENTS)
def test_lemma_27_notices_a_step_off_by_one_per_cent(p):
    near = FOUND[p]
    with inside(World("step off", 0.01), "C"):
        runs = near_runs(near)
    claim = lemmas.lemma27(near, *runs)
    assert claim.measured == pytest.approx(lemmas.PI - 0.01, abs=2e-4)


@pytest.mark.parametrize("p, notices", [(1.75, True), (2, True), (3, False)])
def test_lemma_27_fails_inside_the_cone_around_a_rotated_target(p, notices):
    """It fails by Eq. 25 itself: the runs start in the named cone, or the measure would
    be NaN.
    """
    near = lemmas.found_selections(DATA, SEEDS, p, 4000)
    rotated = replace(
        near, solution=World("target rotated", 0.05).target(near.solution)
    )
    claim = lemmas.lemma27(rotated, *near_runs(rotated))
    assert not np.isnan(claim.measured)
    assert claim.holds != notices
    assert bool(claim.remark) != notices


@pytest.mark.parametrize("p", EXPONENTS)
def test_eq_25_is_measured_by_the_gradient_and_the_losses_themselves(p):
    selection = SMALL[p]
    tokens = selection.tokens
    shape = selection.solution.W.shape
    draw = np.random.default_rng(0)
    target = selection.direction.reshape(shape)
    W = 12 * selection.solution.norm[:, None, None] * target
    later = W + 0.3 * draw.standard_normal(shape)
    size, size_later = (geometry.norm(one.reshape(2, -1), p) for one in (W, later))

    def loss(W):
        scores = attention.scores(tokens, tokens.u)
        weights = np.exp(attention.logits(tokens, W))
        weights /= weights.sum(-1, keepdims=True)
        return np.logaddexp(0, -(weights * scores).sum(-1)).mean(-1)

    gradient = attention.gradients(tokens, W, tokens.u, "logistic")[1]
    eta = 0.1 / geometry.norm(gradient.reshape(2, -1), p / (p - 1))
    left = -eta * (gradient * target).sum((1, 2))
    grown = size_later ** (p - 1) - size ** (p - 1)
    right = grown / 1.5 + eta * (loss(later) - loss(W)) / size
    history = SimpleNamespace(W=np.stack([W, later], 1))
    least = np.zeros(2)
    _, slack = lemmas._turning(selection, history, 0, 0.1, 0.5, least, least)
    np.testing.assert_allclose(slack, (left - right) / np.abs(left), rtol=1e-3)


def test_the_bound_of_lemma_18_is_that_of_each_run_by_a_plain_loop():
    drawn = tokens.unit_tokens([0, 1, 2], n=3, T=3, d=4)
    W = np.random.default_rng(1).standard_normal((2, 3, 4, 4))
    q = 1.5
    widths = lemmas.spread(drawn, q)
    for matrices, ratio in zip(
        W, lemmas._gradient_over_bound(drawn, W, q), strict=True
    ):
        gradient = attention.gradients(drawn, matrices, drawn.u, "logistic")[1]
        for run in range(3):
            bounds = []
            for sample in range(3):
                scores = [
                    drawn.y[run, sample] * drawn.u[run] @ x
                    for x in drawn.X[run, sample]
                ]
                range_of_scores = max(scores) - min(scores)
                bounds.append(range_of_scores * widths[run, sample] / 4)
            size = (np.abs(gradient[run]) ** q).sum() ** (1 / q)
            assert ratio[run] == pytest.approx(size / np.mean(bounds))


def test_lemma_27_says_nothing_of_a_run_that_starts_outside_the_cone():
    near = FOUND[2]
    runs, step_size = near_runs(near)
    short = [replace(run, path=replace(run.path, W=run.W * 0.99)) for run in runs]
    assert np.isnan(lemmas.lemma27(near, short, step_size).measured)


@pytest.mark.parametrize("p", EXPONENTS)
def test_no_direction_of_the_cone_needs_more_than_pi_from_r_pi_on(p):
    near = FOUND[p]
    edges = lemmas._edge_along(near, lemmas.radius(near), lemmas._margin_edges(near))
    for pi in (0.1, 0.001):
        for further in (1, 10):
            size = further * lemmas.lemma21_radius(near, pi) * near.solution.norm
            needed = max(lemmas._excess(near, V * size[:, None]).max() for V in edges)
            assert needed <= pi


def test_the_radius_of_lemma_21_by_hand():
    """Every sample has scores 2 and 0, no token is off the support, and delta =
    infinity, nu = 1/2.
    """
    selection = lemmas.select(HAND, HAND.opt, 2)
    scores = np.zeros((2, 3, 4))
    np.put_along_axis(scores, HAND.opt[..., None], 2.0, -1)
    X = HAND.y[..., None, None] * scores[..., None] * HAND.u[:, None, None]
    X /= (HAND.u**2).sum(-1)[:, None, None, None]
    margins = np.ones_like(selection.solution.margins)
    data = replace(selection.tokens, X=X)
    solution = replace(selection.solution, margins=margins)
    hand = lemmas.Selection(data, solution, 2)
    kappa = (1 / 2) * (1 + np.exp(2))  # c_max / c_min = -l'(0) / -l'(2), G = g_min
    expected = np.log(8 * kappa * 9 * 0.5 / 0.1) / 0.1
    np.testing.assert_allclose(lemmas.lemma21_radius(hand, 0.1), expected)


def test_the_excess_loss_stays_exact_below_rounding():
    start = mirror.gaussian_start(DATA, SEEDS)
    W = lemmas.select(DATA, DATA.opt, 2).solution.W
    near, far = (lemmas._excess_loss(DATA, at) for at in (start, 600 * W))
    assert (np.abs(near) > 1e-3).all() and (far < 1e-200).all() and (far > 0).all()


def test_lemma30():
    near = FOUND[2]
    rule = dynamics.MirrorDescent(2, 1.0, normalised=False)
    history = dynamics.train(
        near.tokens, rule, 20000, start=near.solution.W, loss="logistic"
    )
    size = near.solution.norm
    stay = np.arange(len(near.direction)) > 0

    def claims(history, size, stay):
        return holds(lemmas.lemma30(history, 2, size, 2000, stay))

    assert all(claims(history, size, stay))
    assert not any(claims(history, 3 * size, stay))
    assert not any(claims(history, size, stay & False))
    slow = replace(history, own_norm=history.own_norm * np.where(stay, 1, 0.5)[:, None])
    assert all(claims(slow, size, stay))


def test_the_joint_path_turns_to_the_largest_label_margin():
    instance = section5.joint_instance()
    heads, _ = zip(*predecessor._candidates(instance, 2), strict=True)
    assert (np.diff([head.norm[0] for head in heads]) >= 0).all()
    v, W = predecessor.solve_jointly(instance, 2, 100)
    assert all(holds(predecessor.joint_claims(instance, 2, v, W)))
    np.testing.assert_allclose(geometry.norm(v, 2), 100 * heads[0].norm[0])
    with inside(World("target rotated", 0.05), "C"):
        assert not any(holds(predecessor.joint_claims(instance, 2, v, W)))
    assert not any(holds(predecessor.joint_claims(instance, 2, -v, -W)))


def test_the_ledger_has_a_row_or_a_reason_for_every_statement():
    rows = PAPER._rows.values()
    explained = {name for name, statement in STATEMENTS.items() if statement.why}
    assert {
        number for number, *_ in rows
    } & STATEMENTS.keys() == STATEMENTS.keys() - explained
    restored = {
        name
        for name, statement in STATEMENTS.items()
        if "our reading" in statement.says
    }
    # The paper's, as it is
    assert not [row for row in rows if row[0] in restored and not row[2]]


HAND = tokens.unit_tokens(range(2), n=3, T=4, d=6)  # numbers that are known beforehand
SMALL = {p: lemmas.select(HAND, HAND.opt, p) for p in EXPONENTS}


def test_nearness_is_half_the_least_excess_and_at_most_one_half():
    selection = SMALL[2]
    margins = np.ones_like(selection.solution.margins)
    margins[0, 0, 0], margins[1, 0, 0] = 1.6, 3.0
    changed = replace(selection, solution=replace(selection.solution, margins=margins))
    np.testing.assert_allclose(lemmas._delta(changed), [0.3, 1.0])
    np.testing.assert_allclose(lemmas._nearness(changed), [0.3, 0.5])


@pytest.mark.parametrize("p", EXPONENTS)
def test_the_radius_moves_the_worst_pair_by_the_nearness(p):
    """Lemmas 12 and 13 backwards give the distance that mu_0 allows, and the margin
    that it moves.
    """
    selection = SMALL[p]
    mu = lemmas.radius(selection)
    entries = selection.direction.shape[-1]
    if p >= 2:  # D >= ||V - W||_p^p / (p 2^p)
        distance = 2 * (mu * p) ** (1 / p)
    else:  # D >= (p-1)/2 ||V - W||_2^2
        distance = np.sqrt(2 * mu / (p - 1)) * entries ** (1 / p - 0.5)
    apart = HAND.X[:, :, :, None] - HAND.X[:, :, None]
    A = np.einsum("rntsd,rne->rntsde", apart, HAND.z).reshape(2, -1, entries)
    E = geometry.to_mirror(A, p / (p - 1))
    with np.errstate(invalid="ignore"):  # 0/0 of a token less itself
        E /= geometry.norm(E, p)[..., None]
    moved = np.nanmax((A * E).sum(-1), 1)  # by a step of length 1, at most
    found = distance * moved * selection.solution.norm
    np.testing.assert_allclose(found, lemmas._nearness(selection), rtol=1e-9)


@pytest.mark.parametrize("p", EXPONENTS)
def test_lemma_20_has_no_more_room_than_the_margins_of_its_cone(p):
    """At ||W_mm|| the margins lie within 1 +- nearness/2, so that c grows at most by
    m_1 - m_0.
    """
    multiples = np.geomspace(5, 5e3, 7)
    _, rate = lemmas.lemma20(SMALL[p], multiples, 3)
    assert 0 <= rate.measured <= multiples[1] - multiples[0] + 1


@pytest.mark.parametrize("p", EXPONENTS)
def test_lemma_20_measures_its_constant_by_the_gradient_itself(p):
    selection = SMALL[p]
    tokens = selection.tokens
    multiples = np.array([1.0, 1.5, 2.0])  # the loss of p = 1.3 underflows soon
    mu = lemmas.radius(selection)
    W, V = (lemmas.on_the_edge(selection, mu, 3, seed) for seed in (1, 2))
    delta = lemmas._nearness(selection)
    log_c = np.full((len(multiples), len(delta)), np.inf)
    for k, multiple in enumerate(multiples):
        size = multiple / delta  # ||W|| / ||W_mm||
        for w, v in zip(W, V, strict=True):
            shape = selection.solution.W.shape
            at = (w * (size * selection.solution.norm)[:, None]).reshape(shape)
            gradient = attention.gradients(tokens, at, tokens.u, "logistic")[1]
            descent = -(gradient * v.reshape(shape)).sum((1, 2))
            log_c[k] = np.minimum(log_c[k], np.log(descent) + (1 + delta / 2) * size)
    _, rate = lemmas.lemma20(selection, multiples, 3)
    assert rate.measured == pytest.approx((log_c[1:] - log_c[0]).min(), rel=1e-6)


@pytest.mark.parametrize("p", EXPONENTS)
def test_lemma_20_measures_the_smallest_inner_product_of_all_its_pairs(p, monkeypatch):
    """One invented pair of directions has a negative product, at one multiple only."""
    invented = iter([3.0, 2.0, 5.0, -1.0, 4.0, 6.0])

    def descent(selection, W, toward):
        value = next(invented)
        return np.full(len(W), value), np.zeros(len(W))

    monkeypatch.setattr(lemmas, "_descent", descent)
    positive, _ = lemmas.lemma20(SMALL[p], np.array([1.0, 2.0, 3.0]), 2)
    assert positive.measured == -1.0 and not positive.holds


@pytest.mark.parametrize("p, exponent", [(1.3, -0.6), (2, -2.0), (3, -2.0)])
def test_the_divergence_falls_with_the_square_of_the_error(p, exponent):
    history = dynamics.train(HAND, dynamics.MirrorDescent(p), 3, loss="logistic")
    r = np.broadcast_to(
        np.geomspace(10, 1e4, history.norm.shape[1]), history.norm.shape
    )
    history = replace(history, own_norm=r)
    for off, holds in ((0.0, True), (0.2, False)):
        assert lemmas.lemma29(history, p, r ** (exponent + off))[1].holds == holds


@pytest.mark.parametrize("p, a, b", [(1.3, -0.3, 0), (2, -1, 2), (3, -1, 1)])
def test_lemma_29_measures_the_growth_of_d_over_its_bound_since_the_middle(p, a, b):
    r = np.geomspace(10, 1e5, 5)[None]  # log r is 1/2 of its range at 1000
    bound = 1e-3 * r**a * np.log(r) ** b
    for power, growth in ((0.0, 1.0), (0.1, 100**0.1), (-0.1, 100**-0.1)):
        history = SimpleNamespace(own_norm=np.concatenate([r, r]))
        D = np.concatenate([bound * r**power, bound * r**-0.2])
        assert lemmas.lemma29(history, p, D)[0].measured == pytest.approx(growth)


@pytest.mark.parametrize("p", [1.3, 1.75, 2, 3])
def test_the_small_step_is_half_of_what_the_convexity_along_w_allows(p):
    """Along W, D_psi is (p-1) ||W||^{p-2} ||dW||^2 / 2, which is its least for p <= 2.

    For p > 2 the convexity is taken as that of p = 2, without the factor p - 1.
    """
    selection = SMALL[p] if p in SMALL else lemmas.select(HAND, HAND.opt, p)
    multiple = np.array([3.0, 50.0])
    size = selection.solution.norm
    W = selection.direction * (multiple * size)[:, None]
    by = 1e-4
    D = geometry.bregman((1 + by) * W, W, p)
    convexity = 2 * D / (by * multiple * size) ** 2
    A = lemmas.spread(selection.tokens, p / (p - 1)).max(-1)
    longest = (convexity / max(p - 1, 1) / (size * A**2)).min()
    step = lemmas.small_step(selection, multiple)
    assert step == pytest.approx(longest / 2, rel=1e-3)


def test_a_run_between_two_svms_is_not_nearest_to_its_own():
    histories = dict.fromkeys(
        (1.5, 2.5, 3.5),
        dynamics.train(HAND, dynamics.MirrorDescent(2), 3, loss="logistic"),
    )
    last = {
        (p, q): np.full((4, 1), 1.0 if p == q else 2.0)
        for p in histories
        for q in histories
    }
    for other, share in ((2.0, 1.0), (0.5, 0.75)):
        last[1.5, 2.5][0] = other
        claims = {claim.id: claim for claim in section5.bregman_claims(last, histories)}
        runs = claims["bregman.runs.1.5"]
        assert runs.measured == share and runs.holds == (share == 1)


def test_rank_does_not_depend_on_the_scale():
    W = np.diag([1.0, 0.1, 1e-9, 0.0])[None]
    assert [predecessor._ranks(scale * W).tolist() for scale in (1e-12, 1.0, 1e12)] == [
        [2]
    ] * 3


@pytest.mark.parametrize(
    ("p", "bound"),
    [
        (1.5, lambda k: math.log(k) ** -0.5),
        (2, lambda k: math.log(math.log(k)) ** 2 / math.log(k)),
        (3, lambda k: math.log(math.log(k)) / math.log(k)),
    ],
)
def test_the_rate_in_k_is_the_last_share_of_the_bound_in_the_worst_run(
    monkeypatch, p, bound
):
    iterations = np.array([0, 1, 50, 100, 400, 1000])
    shares = np.array(  # D over its bound; what comes before 100 does not count
        [[9, 9, 9, 2.0, 4.0, 1.0], [9, 9, 9, 1.0, 5.0, 3.0], [9, 9, 9, 8.0, 9.0, 4.5]]
    )
    bounds = np.array([bound(max(k, 3)) for k in iterations.tolist()])
    size = np.array([2.0, 4.0, 5.0])
    norms = (
        size[:, None] * np.array([[1, 2, 3, 4, 5, 6.0], [1, 2, 3, 4, 5, 7.0]] * 2)[:3]
    )

    def divergence(W, exponent):
        assert (W, exponent) == ("W_mm", p)
        return shares * bounds

    def from_cone(selections, mu, multiple, steps, change):
        assert (selections, mu, multiple, steps) == (found, 0.05, 3, 1000)
        assert change(None) == dynamics.MirrorDescent(p, 1.0, normalised=False)
        history = SimpleNamespace(
            iterations=iterations, own_norm=norms, divergence=divergence
        )
        return history, None

    found = SimpleNamespace(solution=SimpleNamespace(W="W_mm", norm=size))
    monkeypatch.setattr(ledger_rows, "_selections", lambda sizes, p: found)
    monkeypatch.setattr(lemmas, "from_cone", from_cone)
    sizes = ledger_rows.Sizes(rate_steps=1000)
    # 1/4, 3/5 and 4.5/9.
    assert ledger_rows.rate_in_k(sizes, p) == pytest.approx((0.6, 7.0, 3 * bounds[-1]))


def test_lemma_19_holds_of_the_support_alone_if_there_are_no_other_tokens():
    data = tokens.unit_tokens([0, 1], n=2, T=2, d=6)
    solution = svm.token_svm(data)
    assert solution.support.all()
    claim = lemmas.lemma19(lemmas.Selection(data, solution, 2))
    assert claim.holds and np.isfinite(claim.measured)


@pytest.mark.parametrize(
    "p, bound", [(1.5, 0.5), (2, 1 / 4), (2.5, 0.1414213562), (3, 1 / 12)]
)
def test_lemma_13_between_two_axes_by_hand(p, bound):
    """e_1 and e_2 are (1, -1) apart, with sum_k |.|^p = 2, and D_psi is 1."""
    smaller, D = lemmas.lemma13(np.array([1.0, 0.0]), np.array([0.0, 1.0]), p)
    assert smaller == pytest.approx(bound) and D == pytest.approx(1.0)


def test_lemmas_22_24_and_25_by_hand_at_the_worst_of_two_steps():
    """One entry, p = 2: W goes from 2 to 3 under the gradient -1, and from 4 to 5 under
    -1/2. The losses fall by 3.6 and by 2.4, and eta is 1/2.
    """
    steps = SimpleNamespace(
        W=np.array([[[2.0], [4.0]]]),
        later=np.array([[[3.0], [5.0]]]),
        gradient=np.array([[[-1.0], [-0.5]]]),
        losses=(np.array([[4.0, 3.0]]), np.array([[0.4, 0.6]])),
        eta=0.5,
        p=2,
        loss_rise=np.array([-1]),
    )
    measured = [claim.measured for claim in lemmas.step_claims(steps)]
    # eta <-grad L, W> is 1 in both steps.
    of_22 = min((1 - 1 / 2) / (1 / 2), (1 - 1 / 4) / (1 / 4))
    of_24 = min(1 - (5 / 2 - 1.8), 1 - (9 / 2 - 1.2))
    of_25 = min(1.8, 1.2)
    assert measured == pytest.approx([of_22, of_24, of_25])
    # The norm grows by 1, and eta ||grad L|| is 1/2 and 1/4.
    assert lemmas.lemma4(steps).measured == pytest.approx(4)


@pytest.mark.parametrize("factor", [0.4, 0.9, 1.4])
def test_the_slack_of_eqs_12_is_that_of_the_worst_token(monkeypatch, factor):
    """At W = factor W_mm every margin is `factor` times that of the solution."""
    selection = SMALL[2]
    monkeypatch.setattr(
        lemmas, "_edge_along", lambda *how: factor * selection.direction[None]
    )
    slacks = []
    for run in selection.solution.margins:
        others = [m for m in run.ravel() if m > 1 + 1e-6]
        delta = (min(others) - 1) / 2
        slacks += [2 * factor, 1.5 / factor]
        slacks += [factor * (m - 1) / delta for m in others]
        slacks += [(factor * m - 1) / delta for m in others]
    found = lemmas._slack(selection, np.ones(2))
    assert found == pytest.approx(min(slacks), rel=1e-6)


@pytest.mark.parametrize("factor, slack", [(0.4, 0.8), (1.4, 1.5 / 1.4)])
def test_a_selection_without_other_tokens_has_the_slack_of_its_support(
    monkeypatch, factor, slack
):
    data = tokens.unit_tokens([0, 1], n=2, T=2, d=6)
    selection = lemmas.select(data, data.opt, 2)
    monkeypatch.setattr(
        lemmas, "_edge_along", lambda *how: factor * selection.direction[None]
    )
    assert lemmas._slack(selection, np.ones(2)) == pytest.approx(slack, rel=1e-6)
