"""The theorem of `margin_theorem` for normalised steps with momentum: near rho_perp only.

Numbers in brackets: equations of `notebooks/law_of_margins.md`, section "With momentum".
"""

import numpy as np
from scipy.linalg import solve_discrete_lyapunov

from lib.dynamics.rules import NGD, GradientRule
from papers.beyond.margin_theorem import ROOMS, TILT, Local, Proof


def modes(of: Local, rule: GradientRule) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Modes (u, u) of H in `basis`, their norms P (u, 2, 2), the rate of (14) and l of (15).

    |(y, v)|_P = sqrt((y, v) P (y, v)) shrinks by the rate under (y, v) -> (y + v', v'),
    v' = mu v - s y, s = eta lambda/||V||; |(1, 1)|_P = 1, and |y| <= l |(y, v)|_P. The rate is at
    least 1 where some mode does not settle, and P then says nothing.
    """
    centred = of.A @ of.basis
    values, vectors = np.linalg.eigh(centred.T @ (of.shares[:, None] * centred))
    mu, s = rule.momentum, rule.step_size * of.norm * values
    maps = np.array([[[1 - one, mu], [-one, mu]] for one in s])
    rate = (1 + np.abs(np.linalg.eigvals(maps)).max(initial=0.0)) / 2
    P = np.array([solve_discrete_lyapunov(one.T / rate, np.eye(2)) for one in maps])
    P /= P.sum((1, 2))[:, None, None]
    return vectors, P, float(rate), float(np.sqrt(np.linalg.inv(P)[:, 0, 0].max(initial=0.0)))


def prove(of: Local, rule: GradientRule, before: np.ndarray, g: np.ndarray) -> Proof:
    """The theorem for NGD with momentum from the W of margins g on, after that of `before`."""
    (level, x, omega), V, mu = of.split(g), of.norm, rule.momentum
    if of.tilt > TILT:
        return Proof(why=f"rho_perp is none: |grad G| ||V|| = {of.tilt:.1e}", level=level)
    if rule.kind != NGD or rule.decay or np.isfinite(rule.max_step):
        return Proof(why="the rule is none of the theorem's", level=level)
    old, x_old, omega_old = of.split(before)
    vectors, P, rate, far = modes(of, rule)
    if rate >= 1:
        return Proof(why="the steps are too long", level=level)
    state = np.stack([vectors.T @ x, vectors.T @ (x - x_old)], -1)
    size = np.sqrt(np.einsum("ki,kij,kj->", state, P, state))
    outside = mu / (1 - mu) * np.linalg.norm(omega - omega_old)
    exact, closest = rule.step_size * V, "no room"
    for tau in ROOMS[::-1]:
        R = far * (size + tau)
        log_small = of.log_small(omega, R, outside + tau) - of.r * level
        xi = V * of.M * np.exp(min(log_small, 0.0))
        L, r = of.curvature(R)[1], max(min(of.D * R, 700.0), 1e-8)
        if not xi <= 0.5:
            closest = f"xi = {xi:.2g} at the level {level:.4g}"
            continue
        most, least = exact / (1 - xi), exact / (np.hypot(1, V * L * R) + xi)
        bent = max(most - exact, exact - least) * L
        bent += exact * (np.expm1(r) / r - 1) * of.fastest / V**2
        growth = min(level - old, least * (1 - xi) / ((1 - mu) * V**2))
        if rate + far * bent >= 1 or growth <= 0:
            closest = f"the contraction is {rate + far * bent:.6f}"
            continue
        moved = most * xi / V / -np.expm1(-of.r * growth)
        if moved <= (1 - mu) * tau:
            return Proof(why="", level=level, tau=tau)
        closest = f"the residual may still move by {moved:.2g}"
    return Proof(why=closest, level=level)
