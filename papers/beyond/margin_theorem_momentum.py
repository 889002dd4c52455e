"""The theorem of `margin_theorem` for normalised steps with momentum: near rho_perp only.

Numbers in brackets: equations of `notebooks/law_of_margins.md`, section "With momentum".
"""

import numpy as np
from scipy.linalg import solve_discrete_lyapunov

from lib.dynamics.rules import NGD, GradientRule
from papers.beyond.margin_theorem import ROOMS, TILT, Local, Proof


def mode_norm(s: float, mu: float) -> tuple[np.ndarray, float, float]:
    """P (2, 2), varrho and d of (14) for (x, v) -> (x + v', v'), v' = mu v - s x.

    |(x, v)|_P^2 = (x, v) P (x, v) shrinks by varrho^2; |(1, 1)|_P = 1; |x| <= d |(x, v)|_P.
    Of two such norms the one with the larger (1 - varrho^2)/d: along the map's eigenvectors, or of
    Lyapunov's equation, where those nearly meet. varrho >= 1 where the mode does not settle.
    """
    T = np.array([[1 - s, mu], [-s, mu]])
    z, S = np.linalg.eig(T)
    half = (1 + np.abs(z).max()) / 2
    found = [(solve_discrete_lyapunov(T.T / half, np.eye(2)), half)] if half < 1 else []
    if np.linalg.cond(S) < 1e6:
        back = np.linalg.inv(S * np.linalg.solve(S, np.ones(2)))
        found.append(((back.conj().T @ back).real, float(np.abs(z).max())))
    scaled = [(P / P.sum(), rate) for P, rate in found]
    every = [(P, rate, float(np.sqrt(np.linalg.inv(P)[0, 0]))) for P, rate in scaled]
    return max(every, key=lambda one: (1 - one[1] ** 2) / one[2])


def prove(of: Local, rule: GradientRule, before: np.ndarray, g: np.ndarray) -> Proof:
    """The theorem for NGD with momentum from the W of margins g on, after that of `before`."""
    (level, x, omega), V, mu = of.split(g), of.norm, rule.momentum
    if of.tilt > TILT:
        return Proof(why=f"rho_perp is none: |grad G| ||V|| = {of.tilt:.1e}", level=level)
    if rule.kind != NGD or rule.decay or np.isfinite(rule.max_step):
        return Proof(why="the rule is none of the theorem's", level=level)
    old, x_old, omega_old = of.split(before)
    centred = of.A @ of.basis
    values, vectors = np.linalg.eigh(centred.T @ (of.shares[:, None] * centred))
    s, exact = rule.step_size * V * values, rule.step_size * V
    norms = [mode_norm(one, mu) for one in s]
    if (rates := np.array([rate for _, rate, _ in norms])).max(initial=0.0) >= 1:
        return Proof(why="the steps are too long", level=level)
    far = max((one for *_, one in norms), default=1.0)
    decay = ((1 - rates**2) / s).min(initial=np.inf)
    pairs = zip(vectors.T @ x, vectors.T @ (x - x_old), norms, strict=True)
    size = np.sqrt(sum(np.array([y, v]) @ P @ [y, v] for y, v, (P, *_) in pairs))
    outside = mu / (1 - mu) * np.linalg.norm(omega - omega_old)
    for tau in ROOMS[::-1]:
        R = far * (size + tau)
        L, r = of.curvature(R)[1], max(min(of.D * R, 300.0), 1e-8)
        xi = V * of.M * np.exp(min(of.log_small(omega, R, outside + tau) - of.r * level, 0.0))
        most, least = exact / max(1 - xi, 0.5), exact / (np.hypot(1, V * L * R) + xi)
        high = np.expm1(r) / r
        bent = far * (high - 1 + high * max(most / exact - 1, 1 - least / exact))
        growth = min(level - old, least * (1 - xi) / ((1 - mu) * V**2))
        if not (xi <= 0.5 and 2 * bent + s.max(initial=0.0) * bent**2 < decay and growth > 0):
            continue
        if most * xi / V / -np.expm1(-of.r * growth) <= (1 - mu) * tau:
            return Proof(why="", level=level, tau=tau)
    return Proof(why="no room tau meets (16)", level=level)
