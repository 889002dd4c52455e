"""Tests of each step of the proof in notebooks/law_of_margins.md as an inequality.

Tokens, queries, head, labels, loss, selection and the point W are random. Next to each
inequality there is a world in which a hypothesis fails. There the inequality fails as
well, or the code raises an error.
"""

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lib import attention, dynamics, svm
from lib.attention import coordinates, losses, tokens
from papers.law import margin_law
from papers.law import margin_theorem as theorem
from papers.law import margins as measure
from tests.papers.wrong_laws import but

SEEDS = st.integers(0, 100_000)
KINDS = st.sampled_from([{}, {"copies": True}, {"masked": True}])
FEW = settings(max_examples=30, deadline=None)


def problem(seed, n=3, T=3, d=6, copies=False, masked=False, loss=None):
    """Draw tokens and a selection that meets (D) and (G), with its constants, or return
    None.

    If `masked`, samples have different lengths.
    """
    draw = np.random.default_rng(seed)
    loss = loss or attention.LOSSES[seed % 4]
    data = tokens.unit_tokens(seed, n=n, T=T, d=d)
    selected = np.where(
        draw.uniform(size=(1, n)) < 0.7, data.opt, draw.integers(0, T, (1, n))
    )
    if copies:  # a copy of a token that is not selected
        again = np.take_along_axis(data.X, ((selected + 1) % T)[..., None, None], 2)
        X = np.concatenate([data.X, again], 2)
        data = attention.token_set(X, data.y, data.z, data.u, data.opt)
    if masked:
        mask = np.random.default_rng(seed + 2).uniform(size=data.shape[:3]) < 0.6
        for places in (data.opt, selected):
            np.put_along_axis(mask, places[..., None], True, 2)
        if (mask.sum(-1) == 1).all():  # nothing to attend to
            return None
        data = attention.token_set(data.X, data.y, data.z, data.u, data.opt, mask)
    try:
        solution = svm.token_svm(data, selected)
        law = margin_law.margin_law(data, solution, selected, loss)
    except (svm.Infeasible, margin_law.PremiseFails, RuntimeError):
        return None
    if law.norm[0] > 20 or law.constant[0] > 30:  # numbers beyond what e^-g holds below
        return None
    of = theorem.Local(data, law, selected, loss)
    delta = coordinates.differences(data, selected, masked_as_zero=True)
    pairs = coordinates.shown_pairs(data, selected)[0]
    rows = coordinates.constraint_rows(delta, data.z)[0][pairs.ravel()]
    return data, Model(rows, np.linalg.pinv(of.A), data, loss, selected), of


class Model:
    """Convert the coordinates of `Local` to matrices W, and gradients back.

    Its methods say what the model does.
    """

    def __init__(self, rows, inverse, data, loss, selected):
        self.rows = rows
        self.inverse = inverse
        self.data = data
        self.loss = loss
        self.selected = selected
        self.shape = (1, data.shape[3], data.z.shape[2])

    def W(self, w):
        return (self.rows.T @ (self.inverse.T @ w)).reshape(self.shape)

    def gradient(self, w):
        """Return n times the gradient of the loss."""
        found = attention.gradients(self.data, self.W(w), self.data.u, self.loss)[1]
        return self.data.shape[1] * self.inverse @ (self.rows @ found.ravel())

    def log_gap(self, w):
        logits = attention.logits(self.data, self.W(w))
        scores = attention.scores(self.data, self.data.u)
        return attention.slopes(logits, scores, self.loss).log_gap[0]


def drawn(seed, **sizes):
    found = problem(seed, **sizes)
    assume(found is not None)
    return *found[1:], np.random.default_rng(seed + 1)


def at(of, level, x, omega):
    """Return the W of (1) as a vector."""
    return level * of.V + of.rho_perp + of.basis @ x + omega


def around(of, draw, size):
    """Draw a random x of length `size`."""
    x = draw.standard_normal(of.basis.shape[1])
    return size * x / max(np.linalg.norm(x), 1e-300)


def small(of, g):
    """Return delta of (4) at margins g (m,)."""
    log_Z = np.logaddexp.reduce((of.log_kappa - g)[of.on])
    P = np.bincount(of.sample, np.exp(-g)).max()
    return of.B * P + np.exp(of.log_nu - g - log_Z).sum()


def off_span(of, draw, size):
    omega = draw.standard_normal(len(of.V))
    omega -= of.spanned @ (of.spanned.T @ omega)
    # nothing if S spans everything
    return size * omega / max(np.linalg.norm(omega), 1e-9)


def saturated(of, W):
    """Return Z and the sum of pi_m A_m over S, at W."""
    pull = np.where(of.on, np.exp(np.where(of.on, of.log_kappa, 0.0) - of.A @ W), 0.0)
    return pull.sum(), pull @ of.A / pull.sum()


def ascent(of, x):
    """Return - grad F(x) in the coordinates of U."""
    return of.basis.T @ saturated(of, at(of, 0.0, x, 0.0))[1]


@given(SEEDS)
@FEW
def test_slope_bounds_hold_between_the_scores(seed):
    draw = np.random.default_rng(seed)
    lo, hi = np.sort(2 * draw.standard_normal(2))
    loss = attention.LOSSES[seed % 4]
    slope, lipschitz = theorem._slope_bounds(lo, hi, loss)
    f = np.linspace(lo, hi, 400)
    derivative = np.exp(losses.log_derivative(f, loss))
    assert derivative.max() <= slope * (1 + 1e-12)
    assert np.abs(np.diff(derivative) / np.diff(f)).max() <= lipschitz + 1e-12


@given(SEEDS, KINDS)
@FEW
def test_lemma_1_the_minimiser_and_its_duals(seed, kind):
    _, of, draw = drawn(seed, **kind)
    beta = of.norm**2 * of.shares
    assert (beta[of.on] > 0).all()
    np.testing.assert_allclose(beta @ of.A, of.V, atol=1e-7 * of.norm)
    assert np.linalg.norm(ascent(of, 0 * around(of, draw, 1.0))) < 1e-8

    def values(W):
        return np.logaddexp.reduce((of.log_kappa - of.A @ W)[of.on])

    for size in (0.01, 0.3, 3.0):
        assert values(at(of, 0.0, around(of, draw, size), 0.0)) >= of.lowest - 1e-9


@given(SEEDS, KINDS)
@FEW
def test_step_1_the_gradient_is_the_saturated_one_up_to_delta(seed, kind):
    model, of, draw = drawn(seed, **kind)
    x = around(of, draw, draw.uniform(0, 2))
    omega = off_span(of, draw, draw.uniform(0, 2))
    W = at(of, draw.uniform(0, 12), x, omega)
    P = np.bincount(of.sample, np.exp(-of.A @ W)).max()
    assume(0.8 * of.B * P <= 1)
    Z, mean = saturated(of, W)
    error = -model.gradient(W) / Z - mean
    assert np.linalg.norm(error) <= of.M * small(of, of.A @ W) + 1e-9
    if of.best:  # the gap to L* of Polyak's step
        gap = model.data.shape[1] * np.exp(model.log_gap(W)) / Z
        assert abs(gap - 1) <= small(of, of.A @ W) + 1e-9


@given(SEEDS)
@FEW
def test_step_1_delta_decays_with_the_level(seed):
    _, of, draw = drawn(seed)
    R, tau, omega = *draw.uniform(0, 2, 2), off_span(of, draw, draw.uniform(0, 3))
    bound = of.log_small(omega, R, tau)
    for share in (1.0, draw.uniform()):
        level = draw.uniform(0, 40)
        W = at(
            of,
            level,
            around(of, draw, share * R),
            omega + off_span(of, draw, share * tau),
        )
        assert np.log(small(of, of.A @ W)) <= bound - of.r * level + 1e-9


@given(SEEDS)
@FEW
def test_step_1_delta_0_is_delta_at_the_lowest_margins_that_the_region_allows(seed):
    _, of, draw = drawn(seed)
    R, tau, omega = *draw.uniform(0, 2, 2), off_span(of, draw, draw.uniform(0, 3))
    P = dict.fromkeys(of.sample, 0.0)
    N = 0.0
    for m, A_m in enumerate(of.A):
        across = np.linalg.norm(A_m - (A_m @ of.V) / of.norm**2 * of.V)
        moved = R if of.on[m] else np.hypot(R, tau)
        lowest = A_m @ (of.rho_perp + omega) - across * moved
        P[of.sample[m]] += np.exp(-lowest)
        if not of.on[m]:
            N += np.exp(of.log_nu[m] - lowest - of.lowest)
    expected = np.log(of.B * max(P.values()) + N)
    assert of.log_small(omega, R, tau) == pytest.approx(expected, abs=1e-6)


@given(SEEDS)
@FEW
def test_step_2_the_three_parts_of_a_step(seed):
    model, of, draw = drawn(seed)
    x = around(of, draw, 0.5)
    omega = off_span(of, draw, 0.5)
    R = 0.5
    tau = 0.1
    level = max(0.0, (of.log_small(omega, R, tau) + np.log(2 * of.norm * of.M)) / of.r)
    assume(level * (1 + of.excess.max()) < 250)
    W = at(of, level, x, omega)
    Z, _ = saturated(of, W)
    sigma = draw.uniform(0.1, 1.0)
    moved = of.split(of.A @ (W - sigma / Z * model.gradient(W)))
    growth = (moved[0] - level) * of.norm**2 / sigma
    delta = small(of, of.A @ W)
    assert abs(growth - 1) <= of.norm * of.M * delta + 1e-7 and 0.5 <= growth <= 1.5
    kick = moved[1] - x - sigma * ascent(of, x)
    assert np.linalg.norm(kick) <= sigma * of.M * delta + 1e-7
    assert np.linalg.norm(moved[2] - omega) <= sigma * of.M * delta + 1e-7


def mean_hessian(of, x):
    """Return the mean of F's Hessian on the way from 0 to x."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    H = np.zeros((len(x), len(x)))
    centre = of.A @ of.basis
    for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        powers = np.where(of.on, np.log(np.where(of.on, of.shares, 1.0)), -np.inf)
        pi = np.exp(powers - node * (centre @ x))
        pi /= pi.sum()
        apart = centre - pi @ centre
        H += weight * apart.T @ (pi[:, None] * apart)
    return H


@given(SEEDS, KINDS)
@FEW
def test_step_3_the_curvature_between_its_bounds(seed, kind):
    _, of, draw = drawn(seed, **kind)
    assume(of.basis.shape[1] > 0)
    R = draw.uniform(0.01, 3.0)
    low, high = of.curvature(R)
    x = around(of, draw, R)
    H = mean_hessian(of, x)
    np.testing.assert_allclose(-ascent(of, x), H @ x, atol=1e-7)
    values = np.linalg.eigvalsh(H)
    assert low * (1 - 1e-7) <= values[0] and values[-1] <= high * (1 + 1e-7)


def test_step_3_near_the_minimiser_the_bounds_meet_the_eigenvalues():
    _, _, of = problem(8)
    low, high = of.curvature(1e-9)
    square = of.norm**2
    np.testing.assert_allclose([low * square, high * square], [of.slowest, of.fastest])
    assert of.curvature(1e9)[1] == of.D**2 / 4 >= high
    values = np.linalg.eigvalsh(
        (of.basis.T @ of.A.T * (of.shares * square)) @ of.A @ of.basis
    )
    np.testing.assert_allclose(values[[0, -1]], [of.slowest, of.fastest], rtol=1e-6)


RULES = [dynamics.NGD(0.3), dynamics.Polyak(), dynamics.GD(2.0), dynamics.NGD(0.05)]


@given(SEEDS, st.sampled_from(RULES))
@FEW
def test_step_7_no_step_is_longer_than_sigma_bar(seed, rule):
    model, of, draw = drawn(seed)
    assume(not isinstance(rule, dynamics.Polyak) or of.best)
    x = draw.uniform(0, 0.5)
    tau = 0.2
    omega = off_span(of, draw, 0.3)
    R = x + tau
    A, _, _ = theorem._constants(of, rule, x, omega, tau)
    assume(np.isfinite(A) and A * (1 + of.excess.max()) < 300)
    W = at(of, A, around(of, draw, R), omega + off_span(of, draw, tau))
    sigma_bar, xi, _ = theorem._step_bound(of, rule, R, L := of.curvature(R)[1])
    assert 0 < sigma_bar < 2 / L or not L
    assert of.norm * of.M * small(of, of.A @ W) <= xi * (1 + 1e-9)
    Z, mean = saturated(of, W)
    n = model.data.shape[1]
    log_norm = np.log(np.linalg.norm(model.gradient(W)) / n)
    sigma = np.exp(rule.log_step(0, model.log_gap(W), log_norm)) * Z / n
    assert sigma <= sigma_bar * (1 + 1e-7)


@pytest.mark.parametrize("rule", [dynamics.NGD(0.3), dynamics.Polyak()])
def test_step_7_sigma_bar_is_there_for_every_step_that_is_short_enough(rule):
    """Otherwise the theorem would be silent about runs that it proves, or prove too
    much.
    """
    _, _, of = problem(8)
    if isinstance(rule, dynamics.NGD):
        exact = 0.3 * of.norm
    else:
        exact = of.norm**2 / 2
    for share in (0.01, 0.5, 0.99):
        L = 2 * share / exact
        sigma_bar, xi, _ = theorem._step_bound(of, rule, 0.1, L)
        if isinstance(rule, dynamics.NGD):
            above = 1 / (1 - xi)
        else:
            above = (1 + xi) / (1 - xi) ** 2
        assert (
            0 < xi <= 0.5 and np.isclose(sigma_bar, exact * above) and sigma_bar < 2 / L
        )
    assert theorem._step_bound(of, rule, 0.1, 2.01 / exact)[0] == 0


@pytest.mark.parametrize("tau", [1e-4, 0.1, 10.0])
@pytest.mark.parametrize("rule", RULES[:2])
def test_step_4_from_the_level_of_8_on_all_errors_sum_to_at_most_tau(rule, tau):
    """They sum to most if the level rises slowest, by half of what sigma-bar gives."""
    _, _, of = problem(8)
    omega = off_span(of, np.random.default_rng(0), 0.3)
    A, _, _ = theorem._constants(of, rule, 0.01, omega, tau)
    R = 0.01 + tau
    sigma_bar, xi, _ = theorem._step_bound(of, rule, R, of.curvature(R)[1])
    size = of.norm * of.M * np.exp(of.log_small(omega, R, tau))
    rise = sigma_bar / of.norm**2
    first = sigma_bar / of.norm * size * np.exp(-of.r * A)
    assert first / -np.expm1(-of.r * rise / 2) <= tau
    room = 2 * of.norm / (of.r * tau) * np.exp(1.5 * of.r * rise)
    assert A == pytest.approx(max(0.0, np.log(size * max(1 / xi, room)) / of.r))


def trained(model, of, rule, W, times):
    """Return margins (k, n, T-1), levels a (k,), x (k, u) and omega (k, d) of a run
    from W.
    """
    start = model.W(W)
    history = dynamics.train(
        model.data, rule, times[-1], times, start=start, loss=model.loss
    )
    margins = measure.relative_margins(history, model.data.opt, model.selected)[0]
    return margins, *map(np.array, zip(*map(of.split, margins), strict=True))


@pytest.mark.parametrize("everywhere", [True, False])
@pytest.mark.parametrize("seed", [2, 8, 11, 20, 25, 37])
def test_steps_4_and_5_the_region_is_never_left_and_the_residual_dies(seed, everywhere):
    """The start has the level A itself; each rule whose steps are short enough is
    tested.
    """
    (_, model, of) = problem(seed, n=2, T=3, d=12)
    seen = 0
    draw = np.random.default_rng(seed)
    for rule in (dynamics.NGD(0.2), dynamics.Polyak(), dynamics.GD(2.0)):
        size = 1.0 if everywhere else 0.01
        omega = off_span(of, draw, 0.2)
        tried = [
            (*theorem._constants(of, rule, size, omega, t, everywhere), t)
            for t in (0.1, 1)
        ]
        A, K, q, tau = min(tried, key=lambda constants: constants[0])
        if not np.isfinite(A) or (isinstance(rule, dynamics.Polyak) and not of.best):
            continue
        W = at(of, A, around(of, draw, size), omega)
        _, levels, x, omegas = trained(
            model, of, rule, W, np.linspace(0, 4000, 60).astype(int)
        )
        x = np.linalg.norm(x, axis=1)
        moved = omegas - omegas[0]
        assert (np.diff(levels) > 0).all()
        assert x.max() <= size + tau and np.linalg.norm(moved, axis=1).max() <= tau
        bound = K * (1 + levels - A) * np.exp(-q * (levels - A))
        left = np.linalg.norm(moved - moved[-1], axis=1)
        assert (np.hypot(x, left) <= bound + 1e-9).all()
        seen += 1
    assert seen >= 1


def test_beyond_the_threshold_the_code_refuses_and_the_residual_does_not_die():
    _, model, of = problem(8, n=2, T=3, d=12)
    W = at(of, 200.0 / of.r, around(of, np.random.default_rng(0), 0.01), 0.0)
    ends = []
    proofs = []
    times = np.linspace(0, 2000, 60).astype(int)
    for multiple in (1.3, 0.9):
        rule = dynamics.NGD(multiple * 2 * of.norm / of.fastest)
        proofs.append(theorem.prove(of, rule, of.A @ W))
        ends.append(np.linalg.norm(trained(model, of, rule, W, times)[2], axis=1))
    assert (
        proofs[0].why == "the steps are too long"
        and proofs[0].A == np.inf
        and proofs[1].holds
    )
    # it first cycles, then decays
    assert ends[0][-20:].min() > 0.1 and ends[1][-1] < 1e-9


def test_below_the_level_the_theorem_is_silent():
    _, _, of = problem(8, n=2, T=3, d=12)
    proof = theorem.prove(of, dynamics.NGD(0.1), 0.01 * of.A @ of.V)
    assert not proof.holds and "is below A" in proof.why and np.isfinite(proof.A)
    assert (
        "another loss"
        in theorem.prove(but(of, best=False), dynamics.Polyak(), of.A @ of.V).why
    )


class OwnDirection(dynamics.Rule):
    def direction(self, gradient, state):
        return -gradient


class LongerSteps(dynamics.NGD):
    def log_step(self, t, log_gap, log_norm):
        return np.log(100.0) - log_norm


@pytest.mark.parametrize(
    "rule",
    [
        dynamics.NGD(0.1, momentum=0.5),
        dynamics.NGD(0.1, decay=1.5),
        dynamics.Custom(lambda t, gap, norm: -norm, logarithmic=True),
        dynamics.SignDescent(0.1),
        dynamics.SteepestDescent("spectral", 0.1),
        dynamics.RMSprop(0.1),
        dynamics.AdaGrad(0.1),
        dynamics.MirrorDescent(p=3),
        OwnDirection(),
        LongerSteps(0.1),
    ],
    ids=lambda rule: type(rule).__name__,
)
def test_the_theorem_is_silent_about_other_rules(rule):
    _, _, of = problem(8, n=2, T=3, d=12)
    # At this level the theorem covers normalised GD.
    g = 1e4 * of.A @ of.V
    assert theorem.prove(of, dynamics.NGD(0.1), g).holds
    proof = theorem.prove(of, rule, g)
    assert not proof.holds and "none of the theorem's" in proof.why


def test_the_theorem_with_momentum_is_silent_about_other_steps():
    _, _, of = problem(8, n=2, T=3, d=12)
    g = 1e4 * of.A @ of.V
    rule = LongerSteps(0.1, momentum=0.5)
    proof = theorem.prove_with_momentum(of, rule, g - 1.0, g)
    assert not proof.holds and "none of the theorem's" in proof.why


@pytest.mark.parametrize(
    "mu, s",
    [
        *product((0.5, 0.9), (1e-5, 2.6e-3, 0.02, 0.1, 0.5, 1.99)),
        (0.5, 2.985),
        (0.9, 3.781),
    ],
)
def test_momentum_norms_contract(mu, s):
    draw = np.random.default_rng(0)
    P, rate, far = theorem._mode_norm(s, mu)

    def size(x, v):
        return np.sqrt(np.array([x, v]) @ P @ [x, v])

    assert rate < 1 and abs(size(3.0, 3.0) - 3) < 1e-9
    for x, v in draw.standard_normal((20, 2)):
        after = mu * v - s * x
        assert size(x + after, after) <= rate * size(x, v) * (1 + 1e-9)
        assert abs(x) <= far * size(x, v) * (1 + 1e-9)
    assert theorem._mode_norm(2.01 * (1 + mu), mu)[1] >= 1


@given(SEEDS, st.sampled_from([0.5, 0.9]))
@FEW
def test_momentum_the_force_is_linear_up_to_theta(seed, mu):
    """sigma H-bar = eta ||V|| H^1/2 (1 + Theta) H^1/2 with ||Theta|| <= b/d-hat, sigma
    as in (15).
    """
    model, of, draw = drawn(seed)
    assume(of.basis.shape[1] > 0)
    rule = dynamics.NGD(draw.uniform(0.01, 0.3), momentum=mu)
    far = draw.uniform(1, 3)
    exact = rule.step_size * of.norm
    size = draw.uniform(0.001, 0.2)
    tau = 0.1
    omega = off_span(of, draw, 0.3)
    R = far * (size + tau)
    outside = 0.05
    small = of.log_small(omega, R, tau + outside)
    level = max(0.0, (small + np.log(4 * of.norm * of.M)) / of.r)
    assume(level * (1 + of.excess.max()) < 250)
    point = dict(size=size, omega=omega, outside=outside, level=level, tau=tau)
    rooms = [
        theorem._room(of, rule, d_max=far, rise=by, **point) for by in (1e-9, np.inf)
    ]
    room = rooms[1]
    assert room.R == R and room.xi <= 0.5
    xi = of.norm * of.M * np.exp(small - of.r * level)
    steady = room.low * (1 - xi) / ((1 - mu) * of.norm**2)
    np.testing.assert_allclose([each.rise for each in rooms], [1e-9, steady])
    turned = np.hypot(1, of.norm * of.curvature(R)[1] * R) + xi
    np.testing.assert_allclose(room[1:4], [xi, exact / turned, exact / (1 - xi)])
    h = np.expm1(of.D * R) / (of.D * R)
    off = max(room.high / exact - 1, 1 - room.low / exact)
    np.testing.assert_allclose(1 + room.b / far, h * (1 + off))
    x = around(of, draw, draw.uniform(0, R))
    W = at(of, level, x, omega + off_span(of, draw, tau + outside))
    sigma = rule.step_size * saturated(of, W)[0] / np.linalg.norm(model.gradient(W))
    assert room.low * (1 - 1e-7) <= sigma <= room.high * (1 + 1e-7)
    values, vectors = np.linalg.eigh(mean_hessian(of, 0 * x))
    back = vectors / np.sqrt(values) @ vectors.T
    for step in (room.low, sigma, room.high):
        bent = step / exact * back @ mean_hessian(of, x) @ back
        assert np.linalg.norm(bent - np.eye(len(x)), 2) <= room.b / far * (1 + 1e-6)


def of_16(of, rule, before, g, tau):
    """Return what (16) requires to be positive, |(x_0, v_0)|, P and s, and (15).

    The run goes from the margins `before` to g with room tau. The last result is the
    room that momentum adds for omega.
    """
    (old, x_old, omega_old) = of.split(before)
    (level, x, omega) = of.split(g)
    mu = rule.momentum
    values, vectors = np.linalg.eigh(mean_hessian(of, 0 * x))
    s = rule.step_size * of.norm * values
    P, rates, far = map(
        np.array, zip(*(theorem._mode_norm(mode, mu) for mode in s), strict=True)
    )
    xv = np.stack([x @ vectors, (x - x_old) @ vectors], -1)
    size = np.sqrt(np.einsum("ki,kij,kj->", xv, P, xv))
    outside = mu / (1 - mu) * np.linalg.norm(omega - omega_old)
    point = dict(size=size, omega=omega, outside=outside, level=level, tau=tau)
    room = theorem._room(of, rule, d_max=far.max(), rise=level - old, **point)
    left = ((1 - rates**2) / s).min() - 2 * room.b - s.max() * room.b**2
    pushed = room.high * room.xi / (of.norm * -np.expm1(-of.r * room.rise))
    positive = left, room.rise, (1 - mu) * tau - pushed, 0.5 - room.xi
    return positive, (size, P, s, vectors), room, outside


def test_momentum_the_theorem_begins_where_16_does():
    """The omega of the start moves or rests; levels are tested one by one."""
    _, _, of = problem(0)
    rule = dynamics.NGD(0.02, momentum=0.5)
    draw = np.random.default_rng(0)
    began = []
    x = around(of, draw, 1e-3)
    omega = off_span(of, draw, 0.2)
    turn = off_span(of, draw, 2.0)
    for moved in (0, turn):
        holds = []
        for level in np.linspace(9, 18, 10) / of.r:
            before = of.A @ at(of, level - 0.01, x, omega - moved)
            g = of.A @ at(of, level, x, omega)
            proof = theorem.prove_with_momentum(of, rule, before, g)
            meets = [
                min(of_16(of, rule, before, g, tau)[0]) > 0 for tau in theorem.ROOMS
            ]
            assert proof.holds == any(meets)
            assert not any(meets) or proof.tau == theorem.ROOMS[meets].max()
            holds.append(proof.holds)
        began.append(holds.index(True))
    assert 0 < began[0] < began[1]


@pytest.mark.parametrize("seed", [2, 8, 11])
@pytest.mark.parametrize("mu", [0.5, 0.9])
def test_momentum_the_region_of_16_is_never_left(seed, mu):
    _, model, of = problem(seed, n=2, T=3, d=12)
    rule = dynamics.NGD(0.02, momentum=mu)
    draw = np.random.default_rng(seed)
    W = at(of, 40 / of.r, around(of, draw, 1e-3), off_span(of, draw, 0.2))
    margins, levels, x, omega = trained(model, of, rule, W, np.arange(401))
    first = 100  # from the point on at which the steps have their length
    proof = theorem.prove_with_momentum(of, rule, margins[first - 1], margins[first])
    assert proof.holds and proof.level == levels[first], proof
    found = of_16(of, rule, margins[first - 1], margins[first], proof.tau)
    positive, (start, P, s, vectors), room, outside = found
    assert min(positive) > 0
    xv = np.stack([x @ vectors, np.diff(x, axis=0, prepend=x[:1]) @ vectors], -1)
    sizes = np.sqrt(np.einsum("tki,kij,tkj->t", xv, P, xv))  # |(x_t, v_t)|
    t = np.arange(len(levels) - first)
    assert (levels[first:] >= proof.level + room.rise * t - 1e-9).all()
    assert np.linalg.norm(x[first:], axis=1).max() <= room.R
    assert (
        np.linalg.norm(omega[first:] - omega[first], axis=1).max()
        <= proof.tau + outside
    )
    rate = max(np.sqrt(1 - s.min() * positive[0]), np.exp(-of.r * room.rise))
    assert (sizes[first:] <= (start + t * proof.tau) * rate ** (t - 1.0) + 1e-9).all()
    falling = theorem.prove_with_momentum(of, rule, margins[first], margins[first - 1])
    assert "no room tau meets (16)" in falling.why
    long = dynamics.NGD(2.02 * (1 + mu) * of.norm / of.fastest, momentum=mu)
    assert (
        "too long"
        in theorem.prove_with_momentum(of, long, margins[99], margins[100]).why
    )


def test_another_rho_perp_is_refused():
    _, _, of = problem(8, n=2, T=3, d=12)
    g = of.A @ (100 / of.r * of.V + of.rho_perp)
    rule = dynamics.NGD(0.01)
    for scale, tilted in ((1.0, False), (1.001, True)):
        other = but(of, rho_perp=scale * of.rho_perp)
        both = (
            theorem.prove(other, rule, g),
            theorem.prove_with_momentum(other, rule, 0.9 * g, g),
        )
        assert all(("rho_perp is none" in proof.why) == tilted for proof in both)


def test_the_constants_of_two_samples_by_hand():
    """Every A_m is on the support: tokens are orthogonal but for their scores."""
    X = np.zeros((2, 3, 7))
    X[:, :, 0] = [[1.0, 0.0, 0.0], [2.0, 1.5, -1.0]]
    X[np.arange(6) // 3, np.arange(6) % 3, 1 + np.arange(6)] = 5.0
    data = attention.token_set(X, np.ones(2), z=np.eye(2), u=np.eye(7)[0])
    law = margin_law.margin_law(data, svm.token_svm(data))
    of = theorem.Local(data, law, data.opt, "exponential")
    assert of.on.all() and of.best
    # |l'| is e^-f, and the steepest at the lowest score: e^(1 - 0) and e^(2 + 1) times
    # that at the selected token. The score ranges are 1 and 3, the gaps 1, 1, 1/2, 3.
    worst = [np.e + 1 + 1] * 2 + [3 * np.exp(3) + 1 + 6, 3 * np.exp(3) + 1 + 1]
    assert of.B == pytest.approx(1.25 * max(worst))
    np.testing.assert_allclose(of.log_kappa, [-1, -1, np.log(0.5) - 2, np.log(3) - 2])
    # ||A_m||^2 is 50 and the square of the gap.
    assert of.M == pytest.approx(59**0.5)
    assert of.D == pytest.approx((59 + 51) ** 0.5)


def test_the_slope_of_a_token_off_the_support_by_hand():
    """Margins at W_mm = (1/2, 0) are 1 and 3/2; the scores are 0, -2 and -7/2."""
    X = [[[0.0, 0.0], [-2.0, 0.0], [-3.0, -1.0]]]
    data = attention.token_set(X, [1.0], z=[[1.0]], u=[1.0, 0.5])
    law = margin_law.margin_law(data, svm.token_svm(data))
    of = theorem.Local(data, law, data.opt, "exponential")
    assert of.on.tolist() == [True, False] and of.r == pytest.approx(0.5)
    assert of.log_nu[1] == pytest.approx(3.5 + np.log(3.5))
    assert of.B == pytest.approx(1.25 * (3.5 * np.exp(3.5) + 1 + 3.5 / 2))
    assert of.M == pytest.approx(10**0.5) and of.D == 0
