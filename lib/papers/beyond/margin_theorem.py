"""The local theorem of the margins: its constants, its hypotheses, and which runs it proves.

`notebooks/law_of_margins.md` has statement and proof; the names here are its symbols and the
numbers in brackets its equations. A run is proved from a point W on: the constants come from
tokens, head, loss, rule and W, and nothing is fitted. All of it is float64, no interval arithmetic.
"""

from dataclasses import dataclass

import numpy as np

from lib.attention import coordinates, losses, model
from lib.attention.token_sets import TokenSet
from lib.dynamics.rules import CUSTOM, GD, NGD, POLYAK, GradientRule
from lib.svm.least_entropy import INDEPENDENT
from lib.svm.margin_law import MarginLaw
from lib.svm.max_margin import MaxMargin

ROOMS = np.geomspace(1e-8, 10, 37)  # tau: how far the residual may still move; the best is taken


@dataclass(frozen=True, kw_only=True)
class Local:
    """One run's selection as the theorem sees it: m pairs, W as a vector of k numbers.

    A (m, k) the A_m; on (m,) S; V (k,) W_mm, norm its norm; rest (k,) rho_perp; basis (k, u) of U,
    orthonormal, and spanned (k, u + 1) of span(A_m: m in S); shares (m,) pi* = beta/||V||^2, 0 off
    S; log_kappa (m,), NaN off S; least G(rho_perp); slowest, fastest lambda_1, lambda_max; M the
    largest ||A_m||, D the largest ||A_m - A_k|| on S; excess (m,) epsilon_m off S, else 0; B of
    (2), log_nu (m,) of (3), -inf on S; sample (m,); n, loss; best: the selected tokens score most.
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
    least: float
    slowest: float
    fastest: float
    M: float
    D: float
    excess: np.ndarray
    B: float
    log_nu: np.ndarray
    sample: np.ndarray
    n: int
    loss: str
    best: bool

    @property
    def r(self) -> float:
        """min(1, least epsilon_m)."""
        return float(min(1.0, self.excess[~self.on].min(initial=np.inf)))

    def split(self, W: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """a, x = rho - rho_perp in `basis` (u,), omega (k,): W = a V + rho_perp + x + omega (1)."""
        w = np.ravel(W)
        a = w @ self.V / self.norm**2
        off = w - a * self.V
        omega = off - self.spanned @ (self.spanned.T @ off)
        return float(a), self.basis.T @ (off - self.rest), omega

    def small(self, W: np.ndarray) -> float:
        """delta(W) = B max_i P_i + N, the relative error of the saturated gradient (4)."""
        g = self.A @ np.ravel(W)
        log_Z = np.logaddexp.reduce((self.log_kappa - g)[self.on])
        P = np.bincount(self.sample, np.exp(-g)).max()
        return float(self.B * P + np.exp(self.log_nu - g - log_Z).sum())

    def log_small(self, omega: np.ndarray, R: float, tau: float) -> float:
        """log delta_0: delta(W) <= delta_0 e^{-r a} where |x| <= R, |omega' - omega| <= tau (5)."""
        along = self.on + self.excess * ~self.on + ~self.on  # <A_m, V>
        across = np.sqrt(np.maximum((self.A**2).sum(1) - (along / self.norm) ** 2, 0))
        room = np.where(self.on, R, np.hypot(R, tau))
        at_most = across * room - self.A @ (self.rest + omega)
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
    if loss == "logistic":  # l'' = |l'| (1 - |l'|)
        return slope, float(np.exp(losses.log_derivative(ends, "sigmoid")).max())
    if loss == "reciprocal":  # 2/(1 + f)^3 above zero, none below
        return slope, 0.0 if hi <= 0 else 2 / (1 + max(lo, 0.0)) ** 3
    return slope, slope  # exponential: l'' = |l'|; sigmoid: |l''| <= |l'|


def local(
    tokens: TokenSet, solution: MaxMargin, law: MarginLaw, selected: np.ndarray, loss: str
) -> Local:
    """What the theorem needs of one run (a runs axis of length 1), whose law is `law`.

    Whatever breaks the theorem's hypotheses on the selection has been refused by `margin_law`.
    """
    delta = coordinates.differences(tokens, selected)
    A = coordinates.constraint_rows(delta, tokens.z)[0]
    on, V = law.support[0].ravel(), solution.W[0].ravel()
    beta = np.where(on, law.duals[0].ravel(), 0.0)
    rest, shares = law.coefficients[0].ravel() @ A, beta / beta.sum()
    scores = model.scores(tokens, tokens.u)[0]
    own = np.take_along_axis(scores, selected[0][:, None], 1)
    gaps = own - np.take_along_axis(scores, coordinates.others(selected, scores.shape[1])[0], 1)
    lo, hi = scores.min(1), scores.max(1)
    bounds = np.array([slope_bounds(a, b, loss) for a, b in zip(lo, hi, strict=True)])
    at_own = np.exp(losses.log_derivative(own[:, 0], loss))
    sample = np.repeat(np.arange(len(scores)), gaps.shape[1])
    flat = gaps.ravel()
    spread = (hi - lo)[sample]
    with np.errstate(divide="ignore", invalid="ignore"):
        log_kappa = np.where(on, np.log(at_own[sample] * flat), np.nan)
        each = (bounds[:, 1] / at_own * (hi - lo))[sample] + 1 + spread / flat
        log_nu = np.where(on, -np.inf, np.log(bounds[sample, 0] * spread))
    left, size, _ = np.linalg.svd(A[on].T, full_matrices=False)
    spanned = left[:, size > np.sqrt(INDEPENDENT) * size[0]]
    unit = spanned.T @ V / np.linalg.norm(V)
    basis = spanned @ np.linalg.qr(unit[:, None], mode="complete")[0][:, 1:]
    tight = A[on]
    square = (tight**2).sum(1)
    apart = np.add.outer(square, square) - 2 * tight @ tight.T
    return Local(
        A=A,
        on=on,
        V=V,
        norm=float(np.linalg.norm(V)),
        rest=rest,
        basis=basis,
        spanned=spanned,
        shares=shares,
        log_kappa=log_kappa,
        least=float(np.logaddexp.reduce((log_kappa - A @ rest)[on])),
        slowest=float(law.slowest[0]),
        fastest=float(law.fastest[0]),
        M=float(np.sqrt((A**2).sum(1).max())),
        D=float(np.sqrt(max(apart.max(), 0.0))),
        excess=np.where(on, 0.0, A @ V - 1),
        B=float(1.25 * each[on].max()),
        log_nu=log_nu,
        sample=sample,
        n=len(scores),
        loss=loss,
        best=bool((gaps >= 0).all()),
    )


@dataclass(frozen=True, kw_only=True)
class Proof:
    """Whether the theorem holds from a point on: `why` not, in words; level a_0 against A.

    From there |W_t - a_t V - rho_perp - omega_inf| <= K (1 + a_t - a_0) e^{-q (a_t - a_0)} (9).
    tau: the room that gave the least A; `everywhere`: it needs no R, sigma-bar < 8/D^2.
    """

    why: str
    level: float
    A: float = np.inf
    K: float = np.nan
    q: float = np.nan
    tau: float = np.nan
    everywhere: bool = False

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
        across = np.sqrt(np.maximum((of.A[of.on] ** 2).sum(1).max() - of.norm**-2, 0))
        return most, 0.5, np.log(rule.step_size / (of.n * most)) + of.least + across * R
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


def prove(of: Local, rule: GradientRule, W: np.ndarray, everywhere: bool = False) -> Proof:
    """The theorem for `rule` without momentum, from the point W (r, q) on.

    everywhere: by sigma-bar < 8/D^2 alone, not by the curvature near rho_perp.
    """
    level, x, omega = of.split(W)
    if rule.momentum or rule.kind == CUSTOM or rule.decay > 1:
        return Proof(why="the rule is none of the theorem's", level=level)
    if rule.kind == POLYAK and not of.best:
        return Proof(why="Polyak's step takes another loss for L*", level=level)
    size = float(np.linalg.norm(x))
    found = [(constants(of, rule, size, omega, tau, everywhere), tau) for tau in ROOMS]
    (A, K, q), tau = min(found, key=lambda one: one[0][0])
    why = "" if level >= A else f"the level {level:.4g} is below A = {A:.4g}"
    why = why if np.isfinite(A) else "the steps are too long"
    return Proof(why=why, level=level, A=A, K=K, q=q, tau=tau, everywhere=everywhere)
