"""Apply the local theorem on the margins to a run: check the hypotheses of the theorem,
and compute its constants.

`Local` has what the theorem needs to know about one run. `prove` and
`prove_with_momentum` return a `Proof`. Symbols and numbers of equations are those of
`notebooks/law_of_margins.md`. All computations are in float64.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_discrete_lyapunov

from lib.attention import TokenSet, coordinates, losses, model
from lib.dynamics.rules import GD, NGD, BuiltIn, Polyak, Rule
from papers.law.margin_law import MarginLaw, features, gram
from papers.law.tolerances import INDEPENDENT, TILT
from papers.saturation import gaps_of_scores

# The values of tau that we try. tau is the distance by which the residual may still
# move.
ROOMS = np.geomspace(1e-8, 10, 37)


def _slope_bounds(
    lo: np.ndarray, hi: np.ndarray, loss: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest |l'| and a Lipschitz constant of l' on each of the intervals
    [lo, hi], as two arrays (n,).

    The Lipschitz constant is an upper bound on |l''|.
    """
    # |l'| is monotone on the interval, or it is largest at the point nearest to 0.
    ends = np.array([lo, hi, np.clip(0.0, lo, hi)])
    slope = np.exp(losses.log_derivative(ends, loss)).max(0)
    # For the reciprocal loss |l''| <= 2 |l'|; for all other losses |l''| <= |l'|.
    if loss == "reciprocal":
        return slope, 2 * slope
    return slope, slope


class Local:
    """What the theorem needs to know about one run: its m pairs, in k coordinates of
    their span.

    `selected` has the shape (1, n). Masked tokens have no pair. S denotes the support,
    and V = W_mm. `spanned` is a basis of the span of the A_m with m in S. `basis` is a
    basis of the part of this span that is orthogonal to V, and `rho_perp` is a vector
    in that part whose norm is the law's constant C.
    """

    def __init__(
        self, tokens: TokenSet, law: MarginLaw, selected: np.ndarray, loss: str
    ) -> None:
        self.shown = coordinates.shown_pairs(tokens, selected)[0]  # (n, T-1)
        self._set_directions(tokens, law, selected)
        self._set_slopes(tokens, selected, loss)

    def _set_directions(
        self, tokens: TokenSet, law: MarginLaw, selected: np.ndarray
    ) -> None:
        """Compute what follows from the A_m and the law of the run."""
        # The A_m, and the support with its duals.
        K = gram(tokens, selected, masked_as_zero=True)[0]
        is_pair = self.shown.ravel()
        A = features(K[np.ix_(is_pair, is_pair)])
        self.A = A  # (m, k) the A_m
        self.on = law.support[0][self.shown]
        beta = np.where(self.on, law.duals[0][self.shown], 0.0)
        self.shares = beta / beta.sum()  # (m,) pi* = beta/||V||^2, 0 off S

        # W_mm and rho_perp.
        self.V = beta @ A  # (k,) W_mm
        self.norm = float(np.linalg.norm(self.V))
        coefficients = law.coefficients[0][self.shown]
        self.rho_perp = coefficients @ A  # (k,) rho_perp
        self.excess = np.where(self.on, 0.0, A @ self.V - 1)  # epsilon_m, 0 on S

        # The span of the A_m on S, and its part U orthogonal to V.
        on_support = A[self.on]
        lengths = np.linalg.norm(on_support, axis=1)
        units = on_support / lengths[:, None]
        left, size, _ = np.linalg.svd(units.T)
        rank = (size**2 >= INDEPENDENT).sum()
        self.spanned = left[:, :rank]  # basis of span(A_m: m in S)
        V_in_span = self.spanned.T @ self.V
        turn = np.linalg.qr(V_in_span[:, None], mode="complete")[0]
        self.basis = self.spanned @ turn[:, 1:]  # (k, u) of U, orthonormal

        # The constants of the Hessian of G.
        self.slowest = float(law.slowest[0])  # lambda_1
        self.fastest = float(law.fastest[0])  # lambda_max
        square = (on_support**2).sum(1)
        squared_distance = np.add.outer(square, square) - 2 * on_support @ on_support.T
        largest_square = (A**2).sum(1).max()
        self.M = float(np.sqrt(largest_square))  # the largest ||A_m||
        # The largest ||A_m - A_k|| on S.
        self.D = float(np.sqrt(max(squared_distance.max(), 0.0)))

    def _set_slopes(self, tokens: TokenSet, selected: np.ndarray, loss: str) -> None:
        """Compute what follows from the scores and the slope of the loss at them."""
        # Score gaps of the pairs, and the scores of the selected tokens.
        scores = model.scores(tokens, tokens.u)[0]
        self.n = len(scores)
        gaps = gaps_of_scores(scores[None], selected)[0][self.shown]
        # Whether the selected tokens have the largest scores.
        self.best = bool((gaps >= 0).all())
        chosen = np.take_along_axis(scores, selected[0][:, None], 1)[:, 0]

        # The range of the scores of each sample, without masked tokens, and |l'| there.
        lo = np.where(scores > -np.inf, scores, np.inf).min(1)
        hi = scores.max(1)
        slope, lipschitz = _slope_bounds(lo, hi, loss)
        at_chosen = np.exp(losses.log_derivative(chosen, loss))

        # The arrays below have one entry per pair. A score gap of zero leads to a
        # division by zero.
        self.sample = np.nonzero(self.shown)[0]
        score_range = (hi - lo)[self.sample]
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = (lipschitz * (hi - lo) / at_chosen)[self.sample]
            worst = relative + 1 + score_range / gaps
            self.B = float(1.25 * worst[self.on].max())  # B of (2)
            kappa = at_chosen[self.sample] * gaps
            self.log_kappa = np.where(self.on, np.log(kappa), np.nan)  # NaN off S
            nu = (slope * (hi - lo))[self.sample]
            # log of nu in (3), -inf on S
            self.log_nu = np.where(self.on, -np.inf, np.log(nu))

    @property
    def r(self) -> float:
        """Return min(1, the least epsilon_m outside the support)."""
        return float(min(1.0, self.excess[~self.on].min(initial=np.inf)))

    @property
    def across(self) -> np.ndarray:
        """Return the norm of the part of A_m orthogonal to V.

        The result has the shape (m,).
        """
        square = (self.A**2).sum(1) - ((1 + self.excess) / self.norm) ** 2
        return np.sqrt(np.maximum(square, 0))

    @property
    def lowest(self) -> float:
        """Return G(rho_perp), the minimum of G."""
        return float(
            np.logaddexp.reduce((self.log_kappa - self.A @ self.rho_perp)[self.on])
        )

    @property
    def tilt(self) -> float:
        """Return ||V|| ||grad G(rho_perp)||.

        The result is zero, unless `rho_perp` belongs to another law.
        """
        pi = np.exp((self.log_kappa - self.A @ self.rho_perp)[self.on] - self.lowest)
        return float(self.norm * np.linalg.norm(self.basis.T @ (pi @ self.A[self.on])))

    def split(self, g: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Split the W with margins g (n, T-1), as equation (1) does.

        W = a V + rho_perp + basis x + omega. W is the shortest matrix with these
        margins, so it lies in the span of the A_m. The method returns the level a, the
        deviation x (u,) and omega (k,), the part outside the span of the A_m on the
        support.
        """
        of_pairs = np.reshape(g, self.shown.shape)[self.shown]
        w = np.linalg.lstsq(self.A, of_pairs, rcond=None)[0]
        a = w @ self.V / self.norm**2
        off = w - a * self.V
        omega = off - self.spanned @ (self.spanned.T @ off)
        return float(a), self.basis.T @ (off - self.rho_perp), omega

    def log_small(self, omega: np.ndarray, R: float, tau: float) -> float:
        """Return log delta_0 of (5).

        Then delta(W) <= delta_0 e^{-r a} as long as |x| <= R and omega moves by at most
        tau.
        """
        room = np.where(self.on, R, np.hypot(R, tau))
        at_most = self.across * room - self.A @ (self.rho_perp + omega)
        samples = np.unique(self.sample)
        log_P = max(np.logaddexp.reduce(at_most[self.sample == i]) for i in samples)
        log_N = np.logaddexp.reduce(self.log_nu + at_most) - self.lowest
        return float(np.logaddexp(np.log(self.B) + log_P, log_N))

    def curvature(self, R: float) -> tuple[float, float]:
        """Return l(R) and L(R) of (6), a lower and an upper bound on the mean Hessian
        of G.

        l(R) is inf and L(R) is 0 if W cannot move orthogonally to V in the support's
        span.
        """
        if self.fastest == 0:
            return np.inf, 0.0
        r = min(self.D * R, 700.0)
        # (1 - e^{-r}) / r and (e^r - 1) / r, which are 1 at r = 0.
        low = 1.0
        high = 1.0
        if r > 0:
            low = -np.expm1(-r) / r
            high = np.expm1(r) / r
        square = self.norm**2
        smallest = low * self.slowest / square
        largest = min(self.D**2 / 4, high * self.fastest / square)
        return smallest, largest


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What the theorem proves about a run, from one point of the run on.

    If every hypothesis holds, then at all later times the residual obeys |W_t - a_t V -
    rho_perp - omega_inf| <= K (1 + a_t - a_0) e^{-q (a_t - a_0)}.

    Parameters
    ----------
    why : str
        The hypothesis that fails, or "" if all hold.
    level : float
        The margin level a_0 = <W, V> / ||V||^2 of the point.
    A : float
        The level that a_0 must reach. It stays infinite in `prove_with_momentum`.
    K, q : float
        The constant and the rate of the bound above.
    tau : float
        How far the residual may still move. `prove` uses the tau that gives the least
        A.
    """

    why: str
    level: float
    A: float = np.inf
    K: float = np.nan
    q: float = np.nan
    tau: float = np.nan

    @property
    def holds(self) -> bool:
        """Whether every hypothesis is met."""
        return not self.why


def _step_bound(
    problem: Local, rule: Rule, R: float, L: float
) -> tuple[float, float, float]:
    """Return sigma-bar and xi of (7), and the smallest level that GD may have.

    sigma-bar bounds the steps. Rules other than GD may have any level, so that the
    smallest one is -inf. If the steps of a rule are too long, the result is (0, 0,
    inf).
    """
    if isinstance(rule, GD):
        sigma = 1 / L if L else problem.norm**2
        log_Z = problem.lowest + problem.across[problem.on].max() * R
        least_level = np.log(rule.step_size / (problem.n * sigma)) + log_Z
        return sigma, 0.5, least_level
    if isinstance(rule, NGD):
        exact = rule.step_size * problem.norm
    else:
        exact = problem.norm**2 / 2
    slack = 1 - exact * L / 2
    if slack <= 0:
        return 0.0, 0.0, np.inf
    if isinstance(rule, NGD):
        xi = min(0.5, slack / 2)
        return exact / (1 - xi), xi, -np.inf
    xi = slack / 6
    return exact * (1 + xi) / (1 - xi) ** 2, xi, -np.inf


def _constants(
    problem: Local,
    rule: Rule,
    x: float,
    omega: np.ndarray,
    tau: float,
    everywhere: bool = False,
) -> tuple[float, float, float]:
    """Compute A, K, q of (8) and (9), which `Proof` explains.

    Parameters
    ----------
    problem : Local
    rule : GD, NGD or Polyak
    x : float
        The norm of the deviation x_0 at the point.
    omega : ndarray (k,)
        The part of W outside the support's span.
    tau : float
        How far the residual may still move.
    everywhere : bool
        Whether to use the bound D^2/4 on the Hessian of G, which holds at every x.

    Returns
    -------
    tuple of float
        A, K and q. If the steps are too long, A is infinite, and K and q are NaN.
    """
    R = x + tau
    low, L = problem.curvature(R)
    if everywhere:
        L = problem.D**2 / 4
    sigma, xi, lowest_level = _step_bound(problem, rule, R, L)
    if sigma == 0:  # the steps are too long
        return np.inf, np.nan, np.nan
    V = problem.norm
    r = problem.r

    # From the level A on, delta is small enough for xi and for a move of at most tau.
    rise = 1.5 * sigma / V**2
    for_xi = -np.log(xi)
    for_room = np.log(2 * V / (r * tau)) + r * rise
    log_delta_0 = problem.log_small(omega, R, tau)
    A = (np.log(V * problem.M) + log_delta_0 + max(for_xi, for_room)) / r
    A = max(0.0, A, lowest_level)
    if problem.fastest == 0:  # nothing moves orthogonally to V
        return A, tau, r

    # K and q say how fast the part orthogonal to V decays.
    q_1 = V**2 * min(low, 2 / sigma - L)
    growth = np.exp(q_1 * tau / (2 * V))
    K = growth * (x + r * tau * np.exp(1.5)) + tau
    return A, float(K), float(min(q_1, r))


def prove(problem: Local, rule: Rule, g: np.ndarray, everywhere: bool = False) -> Proof:
    """Apply the theorem for rules without momentum to one point of a run.

    Parameters
    ----------
    problem : Local
        The tokens that the run selects, and the law of the run.
    rule : Rule
        GD, NGD or Polyak without momentum, with a decay of at most 1. For any other
        rule, also for a subclass of these that defines its own step, nothing is proved,
        and the Proof says why.
    g : ndarray (n, T-1)
        The margins of all pairs at the point.
    everywhere : bool
        Whether to replace L(R), the bound on the Hessian of G near rho_perp, by the
        bound D^2/4, which holds at every x. Then the condition on the steps is
        sigma-bar < 8/D^2.

    Returns
    -------
    Proof
        The first hypothesis that fails, if any, and the constants A, K and q of the
        bound. The proof holds only if the level a_0 of the point is at least A.
    """
    level, x, omega = problem.split(g)
    known = _has_step_of(rule, GD | NGD | Polyak)
    foreign = not known or rule.momentum or rule.decay > 1
    if why := _silent(problem, rule, foreign):
        return Proof(why=why, level=level)
    size = float(np.linalg.norm(x))
    tried = [
        (_constants(problem, rule, size, omega, tau, everywhere), tau) for tau in ROOMS
    ]
    (A, K, q), tau = min(tried, key=lambda pair: pair[0][0])
    if not np.isfinite(A):
        why = "the steps are too long"
    elif level >= A:
        why = ""
    else:
        why = f"the level {level:.4g} is below A = {A:.4g}"
    return Proof(why=why, level=level, A=A, K=K, q=q, tau=tau)


def _has_step_of(rule: Rule, kinds: Any) -> bool:
    """Return whether a rule takes the steps of one of the classes `kinds`.

    A subclass that defines its own `log_step` or `direction` does not.
    """
    own_step = type(rule).log_step is not BuiltIn.log_step or rule.has_direction
    return isinstance(rule, kinds) and not own_step


def _silent(problem: Any, rule: Any, foreign: Any):
    """Return in words why the theorem does not apply to this problem and rule, or "" if
    it applies.

    `foreign` is True if the theorem does not cover the rule.
    """
    if problem.tilt > TILT:
        return f"rho_perp is none: |grad G| ||V|| = {problem.tilt:.1e}"
    if foreign:
        return "the rule is none of the theorem's"
    other = isinstance(rule, Polyak) and not problem.best
    if other:
        return "Polyak's step takes another loss for L*"
    return ""


def _mode_norm(s: float, mu: float) -> tuple[np.ndarray, float, float]:
    """Return a norm of (x, v) in which a step with momentum is a contraction, for one
    mode.

    The step maps (x, v) to (x + v', v') with v' = mu v - s x. As in (14), the norm |(x,
    v)|_P is defined by P (2, 2), shrinks by a factor varrho in each step, and satisfies
    |(1, 1)|_P = 1 and |x| <= d |(x, v)|_P. There are two candidates for P, one from the
    eigenvectors of the map and one from Lyapunov's equation. The function returns the
    candidate with the larger (1 - varrho^2)/d.

    Returns
    -------
    tuple
        P, varrho and d.
    """
    step = np.array([[1 - s, mu], [-s, mu]])
    eigenvalues, eigenvectors = np.linalg.eig(step)
    spectral_radius = np.abs(eigenvalues).max()
    candidates = []

    # Lyapunov's equation at a rate halfway between the spectral radius and 1.
    halfway = (1 + spectral_radius) / 2
    if halfway < 1:
        P = solve_discrete_lyapunov(step.T / halfway, np.eye(2))
        candidates.append((P, halfway))

    # In coordinates of the eigenvectors, the map shrinks by its spectral radius. The
    # eigenvectors are scaled so that (1, 1) has the coordinates 1. If the eigenvectors
    # are too close to parallel, we do not use them as a basis.
    if np.linalg.cond(eigenvectors) < 1e6:
        scale = np.linalg.solve(eigenvectors, np.ones(2))
        to_coordinates = np.linalg.inv(eigenvectors * scale)
        P = (to_coordinates.conj().T @ to_coordinates).real
        candidates.append((P, float(spectral_radius)))

    norms = []
    for P, varrho in candidates:
        P = P / P.sum()  # |(1, 1)|_P = 1
        d = float(np.sqrt(np.linalg.inv(P)[0, 0]))
        norms.append((P, varrho, d))

    def merit(norm: Any):
        _, varrho, d = norm
        return (1 - varrho**2) / d

    return max(norms, key=merit)


def _size_in_modes(x: np.ndarray, v: np.ndarray, norms: list[np.ndarray]) -> float:
    """Return the norm of (x, v), a float, for x (u,) and v (u,) in coordinates of the
    modes.

    `norms` has the matrix P of every mode.
    """
    square = 0
    for x_mode, v_mode, P in zip(x, v, norms, strict=True):
        state = np.array([x_mode, v_mode])
        square = square + state @ P @ state
    return np.sqrt(square)


def prove_with_momentum(
    problem: Local, rule: Rule, before: np.ndarray, g: np.ndarray
) -> Proof:
    """Apply the theorem for NGD with momentum to one point of a run.

    `g` (n, T-1) are the margins at the point, and `before` are the margins one step
    earlier. `rule` is NGD without decay and without a cap. The A, K and q of the Proof
    stay unknown.
    """
    level, x, omega = problem.split(g)
    known = _has_step_of(rule, NGD)
    foreign = not known or rule.decay or np.isfinite(rule.max_step)
    why = _silent(problem, rule, foreign)
    if why:
        return Proof(why=why, level=level)
    level_before, x_before, omega_before = problem.split(before)
    V = problem.norm
    mu = rule.momentum

    # The modes of the Hessian of G at rho_perp, and their step sizes s.
    centred = problem.A @ problem.basis
    hessian = centred.T @ (problem.shares[:, None] * centred)
    eigenvalues, modes = np.linalg.eigh(hessian)
    s = rule.step_size * V * eigenvalues

    # For each mode, the norm (14) in which it shrinks.
    norms = [_mode_norm(s_mode, mu) for s_mode in s]
    rates = np.array([varrho for _, varrho, _ in norms])
    if rates.max(initial=0.0) >= 1:
        return Proof(why="the steps are too long", level=level)
    d_max = max((d for _, _, d in norms), default=1.0)
    decay = ((1 - rates**2) / s).min(initial=np.inf)

    # The size of the starting point in these norms, and how far momentum still moves
    # the part of W outside the span.
    forms = [P for P, _, _ in norms]
    size = _size_in_modes(modes.T @ x, modes.T @ (x - x_before), forms)
    outside = mu / (1 - mu) * np.linalg.norm(omega - omega_before)

    # Any tau that meets the hypotheses will do; the largest is tried first.
    rise_before = level - level_before
    s_max = s.max(initial=0.0)
    for tau in ROOMS[::-1]:
        room = _room(
            problem,
            rule,
            d_max=d_max,
            size=size,
            omega=omega,
            outside=outside,
            level=level,
            rise=rise_before,
            tau=tau,
        )
        contracts = 2 * room.b + s_max * room.b**2 < decay
        if not (room.xi <= 0.5 and contracts and room.rise > 0):
            continue
        pushed = room.high * room.xi / V / -np.expm1(-problem.r * room.rise)
        if pushed <= (1 - mu) * tau:  # (16)
            return Proof(why="", level=level, tau=tau)
    return Proof(why="no room tau meets (16)", level=level)


class _Room(NamedTuple):
    """The quantities in (15): R, xi, the bounds on sigma_t, b, and the least rise of
    the level.
    """

    R: float
    xi: float
    low: float
    high: float
    b: float
    rise: float


def _room(
    problem: Local,
    rule: NGD,
    *,
    d_max: float,
    size: float,
    omega: np.ndarray,
    outside: float,
    level: float,
    rise: float,
    tau: float,
) -> _Room:
    """Return the `_Room` of a point at `level`, which `prove_with_momentum` needs.

    Parameters
    ----------
    problem : Local
    rule : NGD
    d_max : float
        The largest d of the modes' norms.
    size : float
        The norm of the deviation and of its last move, taken together over all modes.
    omega : ndarray (k,)
        The part of W outside the support's span.
    outside : float
        How far momentum still moves omega; it adds to `tau`.
    level, rise : float
        The margin level of the point, and by how much the last step raised it.
    tau : float
        How far the residual may still move.
    """
    V = problem.norm
    exact = rule.step_size * problem.norm
    R = d_max * (size + tau)
    L = problem.curvature(R)[1]
    r = max(min(problem.D * R, 300.0), 1e-8)
    log_delta = problem.log_small(omega, R, outside + tau) - problem.r * level
    xi = V * problem.M * np.exp(min(log_delta, 0.0))
    high = exact / max(1 - xi, 0.5)
    low = exact / (np.hypot(1, V * L * R) + xi)
    h = np.expm1(r) / r
    spread = max(high / exact - 1, 1 - low / exact)
    steady = low * (1 - xi) / ((1 - rule.momentum) * V**2)
    return _Room(
        R=R,
        xi=xi,
        low=low,
        high=high,
        b=d_max * (h - 1 + h * spread),
        rise=min(rise, steady),
    )
