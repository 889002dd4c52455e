"""The local theorem of the margins: its constants, its hypotheses, and which runs it proves.

`notebooks/law_of_margins.md` has statement and proof; the names here are its symbols and the
numbers in brackets its equations. A run is proved from a point W on, by constants that come from
tokens, head, loss, rule and the margins of W. All of it is float64, no interval arithmetic.
"""

from dataclasses import dataclass

import numpy as np

from lib.attention import coordinates, losses, model
from lib.attention.token_sets import TokenSet
from lib.dynamics.rules import CUSTOM, GD, NGD, POLYAK, GradientRule
from papers.beyond.least_entropy import INDEPENDENT, features
from papers.beyond.margin_law import MarginLaw

TILT = 1e-6  # largest ||V|| ||grad G(rho_perp)|| that is rounding
ROOMS = np.geomspace(1e-8, 10, 37)  # tau: how far the residual may still move; the best is taken


@dataclass(frozen=True, kw_only=True)
class Local:
    """One run's selection as the theorem sees it, m pairs, in k coordinates of their span.

    A (m, k) the A_m; on (m,) S; V (k,) W_mm, norm its norm; rest (k,) rho_perp; basis (k, u) of U,
    orthonormal, and spanned (k, u + 1) of span(A_m: m in S); shares (m,) pi* = beta/||V||^2, 0 off
    S; log_kappa (m,), NaN off S; slowest, fastest lambda_1, lambda_max; M the largest ||A_m||, D
    the largest ||A_m - A_k|| on S; excess (m,) epsilon_m, 0 on S; B of (2), log_nu (m,) of (3),
    -inf on S; sample (m,); best: the selected tokens score most.
    """

    A: np.ndarray
    on: np.ndarray
    V: np.ndarray
    norm: float
    rest: np.ndarray
    basis: np.ndarray
    spanned: np.ndarray
    shares: np.ndarray
    log_kappa: np.ndarray
    slowest: float
    fastest: float
    M: float
    D: float
    excess: np.ndarray
    B: float
    log_nu: np.ndarray
    sample: np.ndarray
    best: bool

    @property
    def r(self) -> float:
        """min(1, least epsilon_m)."""
        return float(min(1.0, self.excess[~self.on].min(initial=np.inf)))

    @property
    def across(self) -> np.ndarray:
        """alpha_m: the norm of A_m's part across V, (m,)."""
        square = (self.A**2).sum(1) - ((1 + self.excess) / self.norm) ** 2
        return np.sqrt(np.maximum(square, 0))

    @property
    def least(self) -> float:
        """G(rho_perp)."""
        return float(np.logaddexp.reduce((self.log_kappa - self.A @ self.rest)[self.on]))

    @property
    def tilt(self) -> float:
        """||V|| ||grad G(rho_perp)||: 0, or `rest` is the rho_perp of another law."""
        pi = np.exp((self.log_kappa - self.A @ self.rest)[self.on] - self.least)
        return float(self.norm * np.linalg.norm(self.basis.T @ (pi @ self.A[self.on])))

    def split(self, g: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """a, x in `basis` (u,), omega (k,) of (1) for the W of margins g (n, T-1).

        Of omega the part in the span of all A_m, which alone can move.
        """
        w = np.linalg.lstsq(self.A, np.ravel(g), rcond=None)[0]
        a = w @ self.V / self.norm**2
        off = w - a * self.V
        omega = off - self.spanned @ (self.spanned.T @ off)
        return float(a), self.basis.T @ (off - self.rest), omega

    def log_small(self, omega: np.ndarray, R: float, tau: float) -> float:
        """log delta_0: delta(W) <= delta_0 e^{-r a} where |x| <= R, |omega' - omega| <= tau (5)."""
        room = np.where(self.on, R, np.hypot(R, tau))
        at_most = self.across * room - self.A @ (self.rest + omega)
        samples = range(self.sample.max() + 1)
        log_P = max(np.logaddexp.reduce(at_most[self.sample == i]) for i in samples)
        log_N = np.logaddexp.reduce(self.log_nu + at_most) - self.least
        return float(np.logaddexp(np.log(self.B) + log_P, log_N))

    def curvature(self, R: float) -> tuple[float, float]:
        """l(R) and L(R): bounds on the mean Hessian of G from rho_perp to rho, |x| <= R (6)."""
        if self.fastest == 0:
            return np.inf, 0.0
        r = min(self.D * R, 700.0)
        low, high = (-np.expm1(-r) / r, np.expm1(r) / r) if r > 0 else (1.0, 1.0)
        square = self.norm**2
        return low * self.slowest / square, min(self.D**2 / 4, high * self.fastest / square)


def slope_bounds(lo: float, hi: float, loss: str) -> tuple[float, float]:
    """Largest |l'| and largest |l''| (a Lipschitz constant of l') on [lo, hi]."""
    ends = np.array([lo, hi, min(max(0.0, lo), hi)])  # |l'| is monotone or largest next to zero
    slope = float(np.exp(losses.log_derivative(ends, loss)).max())
    return slope, 2 * slope if loss == "reciprocal" else slope  # |l''| <= 2 |l'|, else |l'|


def local(tokens: TokenSet, law: MarginLaw, selected: np.ndarray, loss: str) -> Local:
    """What the theorem needs of one run (a runs axis of length 1) with tokens `selected` (1, n).

    Whatever breaks the theorem's hypotheses on the selection was refused by `margin_law`.
    """
    A = features(coordinates.gram(coordinates.differences(tokens, selected), tokens.z)[0])
    on, coefficients = (part[0].ravel() for part in (law.support, law.coefficients))
    beta = np.where(on, law.duals[0].ravel(), 0.0)
    V, tight = beta @ A, A[on]
    norm = float(np.linalg.norm(V))
    left, size, _ = np.linalg.svd((tight / np.linalg.norm(tight, axis=1)[:, None]).T)
    spanned = left[:, : (size**2 >= INDEPENDENT).sum()]
    turn = np.linalg.qr((spanned.T @ V)[:, None], mode="complete")[0]
    square = (tight**2).sum(1)
    apart = np.add.outer(square, square) - 2 * tight @ tight.T
    scores = model.scores(tokens, tokens.u)[0]
    own = np.take_along_axis(scores, selected[0][:, None], 1)
    gaps = own - np.take_along_axis(scores, coordinates.others(selected, scores.shape[1])[0], 1)
    lo, hi, at_own = scores.min(1), scores.max(1), np.exp(losses.log_derivative(own[:, 0], loss))
    slope, lipschitz = np.transpose([slope_bounds(a, b, loss) for a, b in zip(lo, hi, strict=True)])
    sample = np.repeat(np.arange(len(scores)), gaps.shape[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = lipschitz * (hi - lo) / at_own
        B = 1.25 * (relative[sample] + 1 + (hi - lo)[sample] / gaps.ravel())[on].max()
        return Local(
            A=A,
            on=on,
            V=V,
            norm=norm,
            rest=coefficients @ A,
            basis=spanned @ turn[:, 1:],
            spanned=spanned,
            shares=beta / beta.sum(),
            log_kappa=np.where(on, np.log(at_own[sample] * gaps.ravel()), np.nan),
            slowest=float(law.slowest[0]),
            fastest=float(law.fastest[0]),
            M=float(np.sqrt((A**2).sum(1).max())),
            D=float(np.sqrt(max(apart.max(), 0.0))),
            excess=np.where(on, 0.0, A @ V - 1),
            B=float(B),
            log_nu=np.where(on, -np.inf, np.log((slope * (hi - lo))[sample])),
            sample=sample,
            best=bool((gaps >= 0).all()),
        )


@dataclass(frozen=True, kw_only=True)
class Proof:
    """Whether the theorem holds from a point on: `why` not, in words; level a_0 against A.

    From there |W_t - a_t V - rho_perp - omega_inf| <= K (1 + a_t - a_0) e^{-q (a_t - a_0)} (9).
    tau: the room that gave the least A.
    """

    why: str
    level: float
    A: float = np.inf
    K: float = np.nan
    q: float = np.nan
    tau: float = np.nan

    @property
    def holds(self) -> bool:
        """Whether every hypothesis was met."""
        return not self.why


def step_bound(of: Local, rule: GradientRule, R: float, L: float) -> tuple[float, float, float]:
    """sigma-bar < 2/L, the xi that it needs, and GD's own least level, -inf else; (7).

    sigma-bar is 0 where the rule's steps are too long for L at any level.
    """
    if rule.kind == GD:
        most = 1 / L if L else of.norm**2
        log_Z = of.least + of.across[of.on].max() * R
        return most, 0.5, np.log(rule.step_size / ((of.sample[-1] + 1) * most)) + log_Z
    exact = rule.step_size * of.norm if rule.kind == NGD else of.norm**2 / 2
    slack = 1 - exact * L / 2
    if slack <= 0:
        return 0.0, 0.0, np.inf
    if rule.kind == NGD:
        xi = min(0.5, slack / 2)
        return exact / (1 - xi), xi, -np.inf
    xi = slack / 6
    return exact * (1 + xi) / (1 - xi) ** 2, xi, -np.inf


def constants(
    of: Local, rule: GradientRule, x: float, omega: np.ndarray, tau: float, everywhere=False
) -> tuple[float, float, float]:
    """A, K, q of (8) and (9) for a start with |x_0| = x and omega_0, and room tau.

    A is infinite where the steps are too long. everywhere: L = D^2/4, whatever R.
    """
    R = x + tau
    low, L = of.curvature(R)
    L = of.D**2 / 4 if everywhere else L
    sigma, xi, own = step_bound(of, rule, R, L)
    if not sigma:
        return np.inf, np.nan, np.nan
    r, most = of.r, 1.5 * sigma / of.norm**2
    needed = max(-np.log(xi), np.log(2 * of.norm / (r * tau)) + r * most)
    A = (np.log(of.norm * of.M) + of.log_small(omega, R, tau) + needed) / r
    if of.fastest == 0:  # nothing across V
        return max(0.0, A, own), tau, r
    q_1 = of.norm**2 * min(low, 2 / sigma - L)
    K = np.exp(q_1 * tau / (2 * of.norm)) * (x + r * tau * np.exp(1.5)) + tau
    return max(0.0, A, own), float(K), float(min(q_1, r))


def prove(of: Local, rule: GradientRule, g: np.ndarray, everywhere: bool = False) -> Proof:
    """The theorem for `rule` without momentum, from the W of margins g (n, T-1) on.

    everywhere: by sigma-bar < 8/D^2 alone, not by the curvature near rho_perp.
    """
    level, x, omega = of.split(g)
    if of.tilt > TILT:
        return Proof(why=f"rho_perp is none: |grad G| ||V|| = {of.tilt:.1e}", level=level)
    if rule.momentum or rule.kind == CUSTOM or rule.decay > 1:
        return Proof(why="the rule is none of the theorem's", level=level)
    if rule.kind == POLYAK and not of.best:
        return Proof(why="Polyak's step takes another loss for L*", level=level)
    size = float(np.linalg.norm(x))
    found = [(constants(of, rule, size, omega, tau, everywhere), tau) for tau in ROOMS]
    (A, K, q), tau = min(found, key=lambda one: one[0][0])
    why = "" if level >= A else f"the level {level:.4g} is below A = {A:.4g}"
    why = why if np.isfinite(A) else "the steps are too long"
    return Proof(why=why, level=level, A=A, K=K, q=q, tau=tau)
