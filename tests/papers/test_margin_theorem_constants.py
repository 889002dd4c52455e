"""Tests of the constants of the theorem on the margins, by hand from its equations.

The numbers of equations are those of notebooks/law_of_margins.md.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov

from lib import attention, dynamics, svm
from papers.law import margin_law
from papers.law import margin_theorem as theorem
from papers.law.tolerances import TILT

V, M, D, R_MIN = 1.7, 2.3, 3.1, 0.6


def stub(low=0.4, L=0.9, **changes):
    """Return what `_constants` reads of a problem, with numbers of our choice."""
    of = dict(
        norm=V,
        M=M,
        D=D,
        r=R_MIN,
        n=4,
        slowest=0.5,
        fastest=2.0,
        lowest=0.8,
        across=np.array([0.3, 1.2, 9.0]),
        on=np.array([True, True, False]),
        curvature=lambda R: (low, L),
        log_small=lambda omega, R, tau: 1.1 + R + tau,
    )
    return SimpleNamespace(**(of | changes))


@pytest.mark.parametrize("loss", attention.LOSSES)
@pytest.mark.parametrize("lo, hi", [(-2.0, -0.5), (-0.7, 1.3), (-1.3, 0.7), (0.4, 2.0)])
def test_the_slope_bound_is_attained_on_the_interval(loss, lo, hi):
    f = np.linspace(lo, hi, 20_001)
    derivative = np.exp(attention.losses.log_derivative(f, loss))
    slope, lipschitz = theorem._slope_bounds(lo, hi, loss)
    at_zero = np.exp(attention.losses.log_derivative(np.zeros(1), loss))[0]
    largest = max(derivative.max(), at_zero if lo < 0 < hi else 0.0)
    assert slope == pytest.approx(largest, rel=1e-9)
    # l'' of the reciprocal loss is 2 / (1 + f)^3, which is twice |l'| at f = 0.
    assert lipschitz == (2 * slope if loss == "reciprocal" else slope)


def test_gd_may_take_its_step_from_the_level_at_which_its_sigma_is_small_enough():
    """sigma_t is at most eta/n e^{G(rho) - a + max_S a_m R}, and sigma-bar is 1/L."""
    sigma, xi, level = theorem._step_bound(stub(), dynamics.GD(5.0), 0.7, 0.9)
    assert (sigma, xi) == (pytest.approx(1 / 0.9), 0.5)
    at_level = 5.0 / 4 * np.exp(0.8 - level + 1.2 * 0.7)
    assert at_level == pytest.approx(sigma)
    assert theorem._step_bound(stub(), dynamics.GD(5.0), 0.7, 0.0)[0] == V**2


@pytest.mark.parametrize(
    "rule, exact", [(dynamics.NGD(0.3), 0.3 * V), (dynamics.Polyak(), V**2 / 2)]
)
def test_a_step_of_exactly_two_over_l_is_too_long(rule, exact):
    assert theorem._step_bound(stub(), rule, 0.1, 2 / exact) == (0.0, 0.0, np.inf)
    sigma, xi, level = theorem._step_bound(stub(), rule, 0.1, 1.999 / exact)
    assert sigma > exact and 0 < xi < 1e-3 and level == -np.inf


@pytest.mark.parametrize("slack", [0.1, 0.6, 0.999])
def test_the_shares_of_xi_leave_sigma_bar_below_two_over_l(slack):
    """NGD gives half of the slack to xi, and Polyak, with three factors, a sixth."""
    L = 2 * (1 - slack) / (0.3 * V)
    _, xi, _ = theorem._step_bound(stub(), dynamics.NGD(0.3), 0.1, L)
    assert xi == pytest.approx(min(0.5, slack / 2))
    L = 2 * (1 - slack) / (V**2 / 2)
    _, xi, _ = theorem._step_bound(stub(), dynamics.Polyak(), 0.1, L)
    assert xi == pytest.approx(slack / 6)


@pytest.mark.parametrize("tau", [1e-3, 0.2, 4.0])
@pytest.mark.parametrize("everywhere", [False, True])
def test_the_constants_are_those_of_8_and_9(tau, everywhere):
    rule = dynamics.NGD(0.05)
    x = 0.3
    L = D**2 / 4 if everywhere else 0.9
    found = theorem._constants(stub(), rule, x, np.zeros(3), tau, everywhere)
    sigma, xi, _ = theorem._step_bound(stub(), rule, x + tau, L)
    delta_0 = np.exp(1.1 + x + 2 * tau)
    room = 2 * V / (R_MIN * tau) * np.exp(3 * R_MIN * sigma / (2 * V**2))
    A = max(0.0, np.log(V * M * delta_0 * max(1 / xi, room)) / R_MIN)
    q_1 = V**2 * min(0.4, 2 / sigma - L)
    K = np.exp(q_1 * tau / (2 * V)) * (x + np.exp(1.5) * R_MIN * tau) + tau
    np.testing.assert_allclose(found, [A, K, min(q_1, R_MIN)])


def test_the_rate_is_the_least_of_the_flow_the_steps_and_the_excess():
    """Long steps leave 2/sigma-bar - L, and a small excess leaves r."""
    for eta, low, r in ((0.05, 0.1, 5.0), (0.05, 0.4, 0.2), (0.9, 0.4, 5.0)):
        of = stub(low=low, L=1.2, r=r)
        rule = dynamics.NGD(eta)
        sigma = theorem._step_bound(of, rule, 0.4, 1.2)[0]
        parts = V**2 * low, V**2 * (2 / sigma - 1.2), r
        q = theorem._constants(of, rule, 0.3, np.zeros(3), 0.1)[2]
        assert q == pytest.approx(min(parts))


def test_the_level_is_not_below_zero_nor_below_that_of_gd():
    def small(omega, R, tau):
        return -100.0

    rule = dynamics.NGD(0.05)
    of = stub(log_small=small)
    assert theorem._constants(of, rule, 0.3, np.zeros(3), 0.1)[0] == 0
    gd = dynamics.GD(1e9)
    least = theorem._step_bound(of, gd, 0.4, 0.9)[2]
    assert least > 1
    assert theorem._constants(of, gd, 0.3, np.zeros(3), 0.1)[0] == least


def test_where_nothing_moves_orthogonally_the_residual_moves_by_tau():
    of = stub(fastest=0.0, L=0.0)
    _, K, q = theorem._constants(of, dynamics.NGD(0.05), 0.0, np.zeros(3), 0.1)
    assert (K, q) == (0.1, R_MIN)


def test_steps_that_are_too_long_have_no_constants():
    found = theorem._constants(stub(L=99.0), dynamics.NGD(5.0), 0.3, np.zeros(3), 0.1)
    assert found[0] == np.inf and np.isnan(found[1:]).all()


@pytest.mark.parametrize("R", [0.0, 1e-3, 0.4, 2.0])
def test_the_curvature_is_that_of_6(R):
    """(1 - e^-r)/r and (e^r - 1)/r are the means of e^-rs and e^rs over s in [0, 1]."""
    s = (np.arange(20_000) + 0.5) / 20_000
    low, high = theorem.Local.curvature(stub(), R)
    assert low == pytest.approx(0.5 / V**2 * np.exp(-D * R * s).mean(), rel=1e-6)
    bound = min(D**2 / 4, 2.0 / V**2 * np.exp(D * R * s).mean())
    assert high == pytest.approx(bound, rel=1e-6)
    assert theorem.Local.curvature(stub(fastest=0.0), R) == (np.inf, 0.0)


def test_far_away_the_curvature_is_bounded_by_the_spread_alone():
    low, high = theorem.Local.curvature(stub(), 1e6)
    assert high == D**2 / 4 and 0 < low < 1e-3


def test_proof_takes_the_tau_of_the_least_level(monkeypatch):
    """The level must be at least this A."""
    best = theorem.ROOMS[17]

    def constants(problem, rule, size, omega, tau, everywhere):
        assert size == 5.0 and everywhere
        return 3.0 + abs(tau - best), 2 * tau, 0.1

    monkeypatch.setattr(theorem, "_constants", constants)
    for level, why in ((3.0, ""), (np.nextafter(3.0, 0.0), "the level 3 is below A")):
        of = stub(
            tilt=0.0, split=lambda g, a=level: (a, np.array([3.0, 4.0]), np.zeros(3))
        )
        proof = theorem.prove(of, dynamics.NGD(0.1), None, everywhere=True)
        assert proof.why.startswith(why) and proof.holds == (not why)
        assert (proof.A, proof.K, proof.q, proof.tau) == (3.0, 2 * best, 0.1, best)


def silence(rule, tilt=0.0, best=True):
    of = stub(tilt=tilt, best=best, split=lambda g: (1e9, np.zeros(2), np.zeros(3)))
    return theorem.prove(of, rule, None).why


def test_a_tilted_rho_perp_is_refused_from_its_tolerance_on():
    assert "rho_perp is none" not in silence(dynamics.NGD(0.05), tilt=0.98 * TILT)
    assert "rho_perp is none" in silence(dynamics.NGD(0.05), tilt=1.02 * TILT)


def test_a_decay_of_at_most_one_is_the_theorems():
    assert silence(dynamics.NGD(0.05, decay=1.0)) == ""
    for decay in (1.01, 1.99):
        assert "none of the theorem's" in silence(dynamics.NGD(0.05, decay=decay))


def test_momentum_is_covered_without_decay_and_without_a_cap_alone():
    def why(rule):
        of = stub(tilt=0.0, split=lambda g: (1e9, np.zeros(0), np.zeros(3)))
        of.A, of.basis, of.shares = np.zeros((3, 2)), np.zeros((2, 0)), np.zeros(3)
        return theorem.prove_with_momentum(of, rule, None, None).why

    assert "none of the theorem's" not in why(dynamics.NGD(0.01, momentum=0.5))
    for rule in (
        dynamics.NGD(0.01, momentum=0.5, decay=0.1),
        dynamics.NGD(0.01, momentum=0.5, max_step=9.0),
        dynamics.GD(0.01, momentum=0.5),
    ):
        assert "none of the theorem's" in why(rule)


@pytest.mark.parametrize("mu", [0.3, 0.9])
@pytest.mark.parametrize("s", [0.004, 0.3, 1.7])
def test_the_norm_of_a_mode_is_the_better_of_two(mu, s):
    """One is from the eigenvectors of the step, one from Lyapunov's equation."""
    step = np.array([[1 - s, mu], [-s, mu]])
    values, vectors = np.linalg.eig(step)
    radius = np.abs(values).max()
    inverse = np.linalg.inv(vectors)
    rows = inverse / (inverse @ np.ones(2))[:, None]  # each coordinate of (1, 1) is 1
    halfway = (1 + radius) / 2
    both = [
        ((rows.conj().T @ rows).real, radius),
        (solve_discrete_lyapunov(step.T / halfway, np.eye(2)), halfway),
    ]
    merits = []
    for P, rate in both:
        P = P / (np.ones(2) @ P @ np.ones(2))
        # the largest |x| on |(x, v)|_P = 1
        angle = np.linspace(0, np.pi, 40_001)
        points = np.stack([np.cos(angle), np.sin(angle)])
        size = np.sqrt(np.einsum("ik,ij,jk->k", points, P, points))
        merits.append((1 - rate**2) / (np.abs(points[0]) / size).max())
    P, rate, d = theorem._mode_norm(s, mu)
    assert (1 - rate**2) / d == pytest.approx(max(merits), rel=1e-5)
    assert P.sum() == pytest.approx(1.0)


def test_a_double_eigenvalue_has_no_basis_of_eigenvectors():
    """At s = (1 - sqrt(mu))^2 the step is a Jordan block of sqrt(mu)."""
    mu = 0.25
    _, rate, d = theorem._mode_norm((1 - mu**0.5) ** 2, mu)
    assert rate == pytest.approx((1 + mu**0.5) / 2, abs=1e-6) and np.isfinite(d)


def test_the_size_in_modes_is_the_root_of_the_sum_of_squares():
    norms = [np.array([[2.0, 0.5], [0.5, 1.0]]), np.eye(2)]
    found = theorem._size_in_modes(np.array([1.0, 3.0]), np.array([-2.0, 4.0]), norms)
    assert found == pytest.approx(np.sqrt((2 - 2 + 4) + 25))


@pytest.fixture(scope="module")
def local():
    """Two pairs on the support, whose margins are 2 w_1 and 3 w_2, and one off it."""
    X = [[[0.0, 0, 0], [-2.0, 0, 0], [0, -3.0, 0], [-3.0, -1.5, -1.0]]]
    data = attention.token_set(X, [1.0], z=[[1.0]], u=[0.5, 1.0, 0.25])
    law = margin_law.margin_law(data, svm.token_svm(data))
    return theorem.Local(data, law, data.opt, "exponential")


def test_the_excess_and_the_parts_of_the_features_by_hand(local):
    """W_mm is (1/2, 1/3), and the third margin is 2."""
    assert local.on.tolist() == [True, True, False]
    np.testing.assert_allclose(local.excess, [0, 0, 1], atol=1e-9)
    norm = np.hypot(1 / 2, 1 / 3)
    assert local.norm == pytest.approx(norm)
    squares = np.array([4, 9, 9 + 2.25 + 1]) - np.array([1, 1, 2]) ** 2 / norm**2
    np.testing.assert_allclose(local.across**2, squares)
    assert local.M == pytest.approx(np.sqrt(12.25))
    assert local.D == pytest.approx(np.sqrt(13))


def test_the_slopes_and_b_of_the_three_pairs_by_hand(local):
    """The scores are 0, -1, -3 and -3.25; |l'| is e^-f."""
    np.testing.assert_allclose(local.log_kappa[:2], np.log([1.0, 3.0]))
    assert local.log_nu[2] == pytest.approx(3.25 + np.log(3.25))
    assert np.isneginf(local.log_nu[:2]).all() and np.isnan(local.log_kappa[2])
    worst = 3.25 * np.exp(3.25) + 1 + 3.25 / np.array([1.0, 3.0])
    assert local.B == pytest.approx(1.25 * worst.max())
    assert local.n == 1 and local.best


def test_r_is_the_least_excess_and_at_most_one():
    def r(*excess):
        of = SimpleNamespace(
            excess=np.array([0.0, *excess]),
            on=np.array([True] + [False] * len(excess)),
        )
        return theorem.Local.r.fget(of)

    assert r(0.4, 0.7) == 0.4 and r(1.05, 3.0) == 1.0 and r() == 1.0


def test_the_tilt_is_the_slope_of_g_across_v(local):
    """By central differences of G along U, at a wrong rho_perp."""
    wrong = local.rho_perp + 0.1 * local.basis[:, 0]
    of = SimpleNamespace(**vars(local))
    of.rho_perp = wrong
    of.lowest = theorem.Local.lowest.fget(of)

    def G(W):
        return np.log(np.exp((local.log_kappa - local.A @ W)[local.on]).sum())

    step = 1e-5 * local.basis[:, 0]
    slope = (G(wrong + step) - G(wrong - step)) / 2e-5
    assert of.lowest == pytest.approx(G(wrong))
    assert theorem.Local.tilt.fget(of) == pytest.approx(local.norm * abs(slope))
    assert abs(slope) > 0.01 and local.tilt < 1e-9


def test_a_worse_selection_is_not_best():
    X = [[[0.0, 0, 0], [-2.0, 0, 0], [0, -3.0, 0]]]
    data = attention.token_set(X, [1.0], z=[[1.0]], u=[0.5, 1.0, 0.0])
    law = margin_law.margin_law(data, svm.token_svm(data))
    for score, best in ((1.0, True), (0.0, True), (-1e-9, False)):  # a tie is best
        u = [0.5, score, 0.0]
        other = attention.token_set(X, [1.0], z=[[1.0]], u=u, opt=[0])
        of = theorem.Local(other, law, data.opt, "exponential")
        assert of.best == best


@pytest.mark.parametrize("log_delta", [-3.0, -0.5])
def test_the_room_of_a_point_by_hand(log_delta):
    """Where delta is large, xi and the longest step are cut off."""
    level = 2.0
    of = stub(M=0.4, log_small=lambda omega, R, tau: log_delta + R_MIN * level)
    rule = dynamics.NGD(0.05, momentum=0.4)
    room = theorem._room(
        of,
        rule,
        d_max=1.5,
        size=0.2,
        omega=None,
        outside=0.1,
        level=level,
        rise=np.inf,
        tau=0.3,
    )
    xi = V * 0.4 * np.exp(log_delta)
    exact = 0.05 * V
    assert room.R == pytest.approx(1.5 * 0.5) and room.xi == pytest.approx(xi)
    assert room.high == pytest.approx(exact / max(1 - xi, 0.5))
    assert room.low == pytest.approx(exact / (np.hypot(1, V * 0.9 * room.R) + xi))
    h = np.expm1(D * room.R) / (D * room.R)
    spread = max(room.high / exact - 1, 1 - room.low / exact)
    assert room.b == pytest.approx(1.5 * (h - 1 + h * spread))
    assert room.rise == pytest.approx(room.low * (1 - xi) / (0.6 * V**2))
