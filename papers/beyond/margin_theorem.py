"""Theorems on the margins: constants, hypotheses, which runs they prove. Names and
numbers in brackets: `notebooks/law_of_margins.md`. All in float64.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_discrete_lyapunov

from lib.attention import TokenSet, losses, model
from lib.dynamics.rules import CUSTOM, GD, NGD, POLYAK, GradientRule
from papers.beyond.margin_law import MarginLaw, features, gaps_of_scores, gram
from papers.beyond.tolerances import INDEPENDENT, TILT

# tau: how far the residual may still move; the best is taken
ROOMS = np.geomspace(1e-8, 10, 37)


def _slope_bounds(lo: float, hi: float, loss: str) -> tuple[float, float]:
    """Largest |l'| and largest |l''| (a Lipschitz constant of l') on [lo, hi]."""
    ends = np.array(
        [lo, hi, np.clip(0.0, lo, hi)]
    )  # |l'| is monotone or largest next to 0
    slope = np.exp(losses.log_derivative(ends, loss)).max(0)
    return (
        slope,
        2 * slope if loss == "reciprocal" else slope,
    )  # |l''| <= 2 |l'|, else |l'|


class Local:
    """One run's selection (1, n) for the theorem: m pairs, k coordinates of a span."""

    def __init__(
        self, tokens: TokenSet, law: MarginLaw, selected: np.ndarray, loss: str
    ):
        self.A = A = features(gram(tokens, selected)[0])  # (m, k) the A_m
        self.on, coefficients = (
            part[0].ravel() for part in (law.support, law.coefficients)
        )
        beta = np.where(self.on, law.duals[0].ravel(), 0.0)
        self.V = beta @ A  # (k,) W_mm
        self.norm = float(np.linalg.norm(self.V))
        self.rest = coefficients @ A  # (k,) rho_perp
        self.shares = beta / beta.sum()  # (m,) pi* = beta/||V||^2, 0 off S
        tight = A[self.on]
        left, size, _ = np.linalg.svd(
            (tight / np.linalg.norm(tight, axis=1)[:, None]).T
        )
        self.spanned = left[:, : (size**2 >= INDEPENDENT).sum()]  # of span(A_m: m in S)
        turn = np.linalg.qr((self.spanned.T @ self.V)[:, None], mode="complete")[0]
        self.basis = self.spanned @ turn[:, 1:]  # (k, u) of U, orthonormal
        self.slowest = float(law.slowest[0])  # lambda_1
        self.fastest = float(law.fastest[0])  # lambda_max
        square = (tight**2).sum(1)
        apart = np.add.outer(square, square) - 2 * tight @ tight.T
        self.M = float(np.sqrt((A**2).sum(1).max()))  # the largest ||A_m||
        self.D = float(np.sqrt(max(apart.max(), 0.0)))  # the largest ||A_m - A_k|| on S
        self.excess = np.where(self.on, 0.0, A @ self.V - 1)  # epsilon_m, 0 on S
        scores = model.scores(tokens, tokens.u)[0]
        gaps = gaps_of_scores(scores[None], selected)[0]
        self.best = bool((gaps >= 0).all())  # the selected tokens score most
        chosen = np.take_along_axis(scores, selected[0][:, None], 1)[:, 0]
        lo = scores.min(1)
        hi = scores.max(1)
        at_chosen = np.exp(losses.log_derivative(chosen, loss))
        slope, lipschitz = _slope_bounds(lo, hi, loss)
        self.sample = sample = np.repeat(
            np.arange(len(scores)), gaps.shape[1]
        )  # of each pair
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = (lipschitz * (hi - lo) / at_chosen)[sample]
            worst = relative + 1 + (hi - lo)[sample] / gaps.ravel()
            self.B = float(1.25 * worst[self.on].max())  # of (2)
            kappa = at_chosen[sample] * gaps.ravel()
            self.log_kappa = np.where(self.on, np.log(kappa), np.nan)  # NaN off S
            nu = (slope * (hi - lo))[sample]
            self.log_nu = np.where(self.on, -np.inf, np.log(nu))  # of (3), -inf on S

    @property
    def r(self) -> float:
        """min(1, least epsilon_m)."""
        return float(min(1.0, self.excess[~self.on].min(initial=np.inf)))

    @property
    def across(self) -> np.ndarray:
        """The norm of A_m's part across V, (m,)."""
        square = (self.A**2).sum(1) - ((1 + self.excess) / self.norm) ** 2
        return np.sqrt(np.maximum(square, 0))

    @property
    def lowest(self) -> float:
        """G(rho_perp)."""
        return float(
            np.logaddexp.reduce((self.log_kappa - self.A @ self.rest)[self.on])
        )

    @property
    def tilt(self) -> float:
        """||V|| ||grad G(rho_perp)||: 0, or `rest` is the rho_perp of another law."""
        pi = np.exp((self.log_kappa - self.A @ self.rest)[self.on] - self.lowest)
        return float(self.norm * np.linalg.norm(self.basis.T @ (pi @ self.A[self.on])))

    def split(self, g: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """a, x in `basis` (u,), omega (k,) of (1), for margins g (n, T-1)."""
        w = np.linalg.lstsq(self.A, np.ravel(g), rcond=None)[0]
        a = w @ self.V / self.norm**2
        off = w - a * self.V
        omega = off - self.spanned @ (self.spanned.T @ off)
        return float(a), self.basis.T @ (off - self.rest), omega

    def log_small(self, omega: np.ndarray, R: float, tau: float) -> float:
        """log delta_0 of (5): delta(W) <= delta_0 e^{-r a} for |x| <= R and tau."""
        room = np.where(self.on, R, np.hypot(R, tau))
        at_most = self.across * room - self.A @ (self.rest + omega)
        samples = range(self.sample.max() + 1)
        log_P = max(np.logaddexp.reduce(at_most[self.sample == i]) for i in samples)
        log_N = np.logaddexp.reduce(self.log_nu + at_most) - self.lowest
        return float(np.logaddexp(np.log(self.B) + log_P, log_N))

    def curvature(self, R: float) -> tuple[float, float]:
        """l(R) and L(R) of (6), bounds on the mean Hessian of G."""
        if self.fastest == 0:
            return np.inf, 0.0
        r = min(self.D * R, 700.0)
        low, high = (-np.expm1(-r) / r, np.expm1(r) / r) if r > 0 else (1.0, 1.0)
        square = self.norm**2
        return low * self.slowest / square, min(
            self.D**2 / 4, high * self.fastest / square
        )


@dataclass(frozen=True, kw_only=True)
class Proof:
    """A theorem from a point on: `why` it is silent, or ""; level a_0 against A. Then
    |W_t - a_t V - rho_perp - omega_inf| <= K (1 + a_t - a_0) e^{-q (a_t - a_0)}.
    """

    why: str
    level: float
    A: float = np.inf
    K: float = np.nan
    q: float = np.nan
    tau: float = np.nan  # the room that gave the least A

    @property
    def holds(self) -> bool:
        """Whether every hypothesis was met."""
        return not self.why


def _step_bound(
    problem: Local, rule: GradientRule, R: float, L: float
) -> tuple[float, float, float]:
    """sigma-bar of (7), 0 for none, its xi, and GD's lowest level, -inf else."""
    if rule.kind == GD:
        sigma = 1 / L if L else problem.norm**2
        log_Z = problem.lowest + problem.across[problem.on].max() * R
        return (
            sigma,
            0.5,
            np.log(rule.step_size / ((problem.sample[-1] + 1) * sigma)) + log_Z,
        )
    if rule.kind == NGD:
        exact = rule.step_size * problem.norm
    else:
        exact = problem.norm**2 / 2
    slack = 1 - exact * L / 2
    if slack <= 0:
        return 0.0, 0.0, np.inf
    if rule.kind == NGD:
        xi = min(0.5, slack / 2)
        return exact / (1 - xi), xi, -np.inf
    xi = slack / 6
    return exact * (1 + xi) / (1 - xi) ** 2, xi, -np.inf


def _constants(
    problem: Local,
    rule: GradientRule,
    x: float,
    omega: np.ndarray,
    tau: float,
    everywhere=False,
) -> tuple[float, float, float]:
    """A, K, q of (8) and (9) for |x_0| = x; A infinite for steps too long."""
    R = x + tau
    low, L = problem.curvature(R)
    L = problem.D**2 / 4 if everywhere else L
    sigma, xi, level = _step_bound(problem, rule, R, L)
    if not sigma:
        return np.inf, np.nan, np.nan
    r = problem.r
    rise = 1.5 * sigma / problem.norm**2
    needed = max(-np.log(xi), np.log(2 * problem.norm / (r * tau)) + r * rise)
    A = (
        np.log(problem.norm * problem.M) + problem.log_small(omega, R, tau) + needed
    ) / r
    if problem.fastest == 0:  # nothing across V
        return max(0.0, A, level), tau, r
    q_1 = problem.norm**2 * min(low, 2 / sigma - L)
    K = np.exp(q_1 * tau / (2 * problem.norm)) * (x + r * tau * np.exp(1.5)) + tau
    return max(0.0, A, level), float(K), float(min(q_1, r))


def prove(
    problem: Local, rule: GradientRule, g: np.ndarray, everywhere: bool = False
) -> Proof:
    """The theorem without momentum, from margins g; everywhere: sigma-bar < 8/D^2."""
    level, x, omega = problem.split(g)
    foreign = rule.momentum or rule.kind == CUSTOM or rule.decay > 1
    if why := _silent(problem, rule, foreign):
        return Proof(why=why, level=level)
    size = float(np.linalg.norm(x))
    tried = [
        (_constants(problem, rule, size, omega, tau, everywhere), tau) for tau in ROOMS
    ]
    (A, K, q), tau = min(tried, key=lambda pair: pair[0][0])
    if level >= A:
        why = ""
    else:
        why = f"the level {level:.4g} is below A = {A:.4g}"
    why = why if np.isfinite(A) else "the steps are too long"
    return Proof(why=why, level=level, A=A, K=K, q=q, tau=tau)


def _silent(problem, rule, foreign):
    """Why the theorem says nothing of this problem and rule, else empty."""
    if problem.tilt > TILT:
        return f"rho_perp is none: |grad G| ||V|| = {problem.tilt:.1e}"
    if foreign:
        return "the rule is none of the theorem's"
    other = rule.kind == POLYAK and not problem.best
    if other:
        return "Polyak's step takes another loss for L*"
    return ""


def _mode_norm(s: float, mu: float) -> tuple[np.ndarray, float, float]:
    """P (2, 2), varrho, d of (14) for (x, v) -> (x + v', v'), v' = mu v - s x: |(x,
    v)|_P shrinks by varrho, |(1, 1)|_P = 1, |x| <= d |(x, v)|_P. The larger (1 -
    varrho^2)/d of two: by the map's eigenvectors, or Lyapunov's equation.
    """
    T = np.array([[1 - s, mu], [-s, mu]])
    z, S = np.linalg.eig(T)
    half = (1 + np.abs(z).max()) / 2
    if half < 1:
        forms = [(solve_discrete_lyapunov(T.T / half, np.eye(2)), half)]
    else:
        forms = []
    if np.linalg.cond(S) < 1e6:
        back = np.linalg.inv(S * np.linalg.solve(S, np.ones(2)))
        forms.append(((back.conj().T @ back).real, float(np.abs(z).max())))
    scaled = [(P / P.sum(), rate) for P, rate in forms]
    norms = [(P, rate, float(np.sqrt(np.linalg.inv(P)[0, 0]))) for P, rate in scaled]
    return max(norms, key=lambda norm: (1 - norm[1] ** 2) / norm[2])


def prove_with_momentum(
    problem: Local, rule: GradientRule, before: np.ndarray, g: np.ndarray
) -> Proof:
    """The theorem for NGD with momentum, from margins g on, after `before`."""
    (level, x, omega) = problem.split(g)
    V = problem.norm
    mu = rule.momentum
    foreign = rule.kind != NGD or rule.decay or np.isfinite(rule.max_step)
    if why := _silent(problem, rule, foreign):
        return Proof(why=why, level=level)
    old, x_old, omega_old = problem.split(before)
    centred = problem.A @ problem.basis
    values, vectors = np.linalg.eigh(centred.T @ (problem.shares[:, None] * centred))
    s = rule.step_size * V * values
    norms = [_mode_norm(mode, mu) for mode in s]
    if (rates := np.array([rate for _, rate, _ in norms])).max(initial=0.0) >= 1:
        return Proof(why="the steps are too long", level=level)
    far = max((d for *_, d in norms), default=1.0)
    decay = ((1 - rates**2) / s).min(initial=np.inf)
    pairs = zip(vectors.T @ x, vectors.T @ (x - x_old), norms, strict=True)
    size = np.sqrt(sum(np.array([y, v]) @ P @ [y, v] for y, v, (P, *_) in pairs))
    outside = mu / (1 - mu) * np.linalg.norm(omega - omega_old)
    longest = s.max(initial=0.0)
    for tau in ROOMS[::-1]:
        room = _room(problem, rule, far, size, omega, outside, level, level - old, tau)
        bends = 2 * room.b + longest * room.b**2 < decay
        if not (room.xi <= 0.5 and bends and room.rise > 0):
            continue
        pushed = room.high * room.xi / V / -np.expm1(-problem.r * room.rise)
        if pushed <= (1 - mu) * tau:  # (16)
            return Proof(why="", level=level, tau=tau)
    return Proof(why="no room tau meets (16)", level=level)


class _Room(NamedTuple):
    """R, xi, the ends of sigma_t, b and the least rise of the level of (15)."""

    R: float
    xi: float
    low: float
    high: float
    b: float
    rise: float


def _room(problem, rule, far, size, omega, outside, level, rise, tau):
    """`_Room` of a start at `level` that rises by `rise`; outside adds to tau."""
    V = problem.norm
    exact = rule.step_size * problem.norm
    R = far * (size + tau)
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
        b=far * (h - 1 + h * spread),
        rise=min(rise, steady),
    )
