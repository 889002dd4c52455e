"""The numbered statements of paper C (2410.14581): what its ledger lists, and the rows that speak of lp-AttGD."""

import numpy as np

from lib.attention.tokens import TokenSet
from lib.companion.claims import Claim, at_least, at_most
from lib.companion.ledger import Row, rows
from lib.mirror import geometry
from lib.mirror.descent import MirrorRule, gaussian_start, train
from lib.papers.c import cones, inequalities, rates, step_lemmas

STATEMENTS = {  # number: (topic, the statement in one line)
    "Lemma 4": ("increments of the norm", "‖W(k+1)‖^(p-1) ≤ ‖W(k)‖^(p-1) + η ‖∇L‖_qq, at most linear growth"),
    "Lemma 12": ("ℓp and Frobenius norm", "p ≥ 2: d^(2/p-1) ‖W‖_F ≤ ‖W‖_pp ≤ ‖W‖_F; p < 2: the ends switched"),
    "Lemma 13": ("divergence, distance", "unit norms, Δ = W_1 - W_2: D ≥ ‖Δ‖_pp^p / (p 2^p), p ≥ 2; ≥ c ‖Δ‖_F², p < 2"),
    "Lemma 14": ("differences of powers", "x ≥ y ≥ 0, r = x^(p-1) - y^(p-1): y r ≤ (p-1)/p (x^p - y^p) ≤ x r"),
    "Lemma 15": ("powers and tangents", "x ≥ y ≥ 0, p ≥ 2: y^(p-2) ≤ (x^(p-1) - y^(p-1)) / ((p-1) (x-y)) ≤ x^(p-2)"),
    "Lemma 16": ("loss is bounded", "L_min ≤ L(W) ≤ L_max"),
    "Lemma 17": ("gradient", "∇L(W) = 1/n Σ l'_i X_i^T softmax'(a_i) γ_i z_i^T"),
    "Lemma 18": ("gradient is bounded", "‖∇L(W)‖_qq ≤ G for every W"),
    "Lemma 19": ("margins inside the cone", "in S with μ_0: margins of support tokens in [1/2, 3/2], others δ above"),
    "Lemma 20": ("gradient inside the cone", "W, V in the cone: ⟨-∇L(W), V⟩ ≥ c exp(-(1 + δ/2) ‖W‖/‖W_mm‖) > 0"),
    "Lemma 21": ("gradient favours $W_{mm}$", "for every π there is R_π: ⟨-∇L, W/‖W‖⟩ ≤ (1+π) ⟨-∇L, W_mm/‖W_mm‖⟩"),
    "Lemma 22": ("norm grows", "‖W(k+1)‖^(p-1) ≥ ‖W(k)‖^(p-1) + η ⟨-∇L, W(k)⟩ / ‖W(k)‖"),
    "Lemma 23": ("identities of mirror descent", "Eq. 23; D(V, W) = D(V, W+) + D_{ψ-ηL}(W+, W) - η ⟨∇L, V - W⟩ + η ΔL"),
    "Lemma 24": ("potential and loss", "(p-1)/p Δ‖W‖^p + η ΔL ≤ -η ⟨∇L, W_k⟩ for small η"),
    "Lemma 25": ("loss never rises", "L(W(k+1)) ≤ L(W(k)) for small η"),
    "Lemma 26": ("law of cosines", "D(a, b) = D(a, c) + D(c, b) - ⟨∇ψ(b) - ∇ψ(c), a - c⟩"),
    "Lemma 27": ("turning towards $W_{mm}$", "in the cone: ⟨Δ∇ψ(W), W_mm/‖W_mm‖⟩ ≥ (Δ‖W‖^(p-1) + η ΔL/‖W‖) / (1+π)"),
    "Lemma 28": ("cone is not left", "started in a thinner cone, training stays in the cone"),
    "Lemma 29": ("rate in the norm", "D = O(log r/r), O((log r)²/r), O(r^(1-p)) for p > 2, = 2, < 2, r = ‖W(k)‖"),
    "Lemma 30": ("norm is Ω(log k)", "‖W(k)‖_pp = Ω(log k)"),
}  # fmt: skip
EXPONENTS = np.geomspace(1.05, 10, 25)


def deterministic(draws: int, size: int = 16, seed: int = 0) -> list[Row]:
    """Lemmas 12-15 and 26 on random matrices of `size` entries and numbers, many of them zero or
    tiny; all EXPONENTS.

    Measured: the smallest ratio larger / smaller side; for Lemma 26 the largest relative difference
    of its two sides.
    """
    draw = np.random.default_rng(seed)

    def matrices():
        return draw.standard_normal((draws, size)) ** 3 * (draw.random((draws, size)) > 0.1)

    x, y = np.sort(10 ** draw.uniform(-3, 3, (2, draws)), 0)[::-1]
    found = {"Lemma 12": [], "Lemma 13": [], "Lemma 14": [], "Lemma 15": []}
    cosines = []
    for p in EXPONENTS:
        a, b, c = matrices(), matrices(), matrices()
        unit = [v / geometry.norm(v, p)[:, None] for v in (a, b)]
        pairs = {
            "Lemma 12": inequalities.lemma12(a, p),
            "Lemma 13": [inequalities.lemma13(*unit, p)],
            "Lemma 14": inequalities.lemma14(x, y, p),
            "Lemma 15": inequalities.lemma15(x, y, p),
        }
        for name, sides in pairs.items():
            found[name] += [(larger / smaller)[smaller > 0].min() for smaller, larger in sides]
        left, right = inequalities.lemma26(a, b, c, p)
        scale = sum(geometry.norm(v, p) ** p for v in (a, b, c))
        cosines.append((np.abs(left - right) / scale).max())
    checked = {
        name: at_least(name.lower().replace(" ", ""), "smallest ratio of larger to smaller side", f"paper C, {name}",
                       min(ratios), 1.0 - 1e-12)
        for name, ratios in found.items()
    }  # fmt: skip
    checked["Lemma 26"] = at_most("lemma26", "largest relative difference of the two sides", "paper C, Lemma 26",
                                  max(cosines), 1e-12)  # fmt: skip
    setting = f"p from {EXPONENTS[0]:g} to {EXPONENTS[-1]:g}, {draws} draws"
    return [row for name, claim in checked.items() for row in _rows(name, setting, None, [claim])]


def _rows(
    statement: str, setting: str, seeds: int | None, checked: list[Claim], remark: str = ""
) -> list[Row]:
    return rows(statement, setting, seeds, *checked, remark=remark, paper=STATEMENTS)


def _pairs(steps):
    """Iterations 0, 1 and 40 pairs (t, t+1), evenly spaced in log t."""
    first = np.concatenate([[0], np.geomspace(1, steps - 1, 40).astype(int)])
    return np.union1d(first, first + 1)


def on_gradients(data: TokenSet, seeds, exponents, draws: int) -> list[Row]:
    """Lemmas 16-18 at matrices of all sizes."""
    matrices, count = step_lemmas.random_matrices(data, draws), len(seeds)
    bounded = [step_lemmas.lemma18(data, matrices, p) for p in exponents]
    setting = f"{draws} matrices of sizes from 0.01 to 1000"
    return [
        *_rows("Lemma 16", setting, count, step_lemmas.lemma16(data, matrices)),
        *_rows(
            "Lemma 17",
            "random start",
            count,
            [step_lemmas.lemma17(data, gaussian_start(data, seeds))],
        ),
        *_rows("Lemma 18", setting, count, bounded),
    ]


def on_steps(data: TokenSet, seeds, p: float, step_size: float, steps: int) -> list[Row]:
    """Lemmas 4 and 22-25 along plain lp-AttGD from a random start, at every recorded pair of iterations."""
    start = gaussian_start(data, seeds)
    history = train(
        data, MirrorRule(p, step_size, normalised=False), steps, start, record=_pairs(steps)
    )
    taken = step_lemmas.Steps(data, history)
    checked = {
        "Lemma 4": step_lemmas.lemma4(taken, history, data),
        "Lemma 22": [step_lemmas.lemma22(taken)],
        "Lemma 23": [step_lemmas.lemma23(taken, taken.W[:, -1])],
        "Lemma 24": [step_lemmas.lemma24(taken)],
        "Lemma 25": [step_lemmas.lemma25(history)],
    }
    setting = f"plain, η = {step_size:g}, random start"
    return [
        row for name, claims in checked.items() for row in _rows(name, setting, len(seeds), claims)
    ]


def in_cones(of: cones.Selection, multiples, draws: int, steps: int) -> list[Row]:
    """Lemmas 19-21 on the edge of the cone of mu_0; Lemmas 27, 28 and 30 along training from inside
    it.

    For Lemma 28 a step turns the mirror image of W by less than the cone is wide, all together by
    much more, and ||W_0|| is so large that the minimiser of the loss on its sphere, about
    ||W_mm||/||W|| away, lies in the cone.
    """
    count, mu = len(of.direction), cones.radius(of)
    width = mu ** max(
        1 / 2, (of.p - 1) / of.p
    )  # of the cone, in the mirror image: D is its power 2, or p/(p-1)
    start = cones.on_the_edge(of, mu / 4, 1, seed=4)[0].reshape(of.solution.W.shape)
    far, near = (start * (size * of.solution.norm)[:, None, None] for size in (100 / width, 50))
    history = train(of.tokens, rates.relative_rule(far, of.p, 0.1 * width.min()), steps, far)
    short = train(of.tokens, rates.relative_rule(near, of.p, 0.0002), 400, near, record=_pairs(400))
    plain = train(of.tokens, MirrorRule(of.p, 1.0, normalised=False), steps * 10, of.solution.W)
    checked = {
        "Lemma 19": cones.lemma19(of, draws),
        "Lemma 20": cones.lemma20(of, multiples, draws),
        "Lemma 21": cones.lemma21(of, multiples, draws),
        "Lemma 27": [cones.lemma27(of, step_lemmas.Steps(of.tokens, short))],
        "Lemma 28": [cones.lemma28(of, history, mu)],
        "Lemma 30": step_lemmas.lemma30(plain, of.solution.norm, steps / 10),
    }
    settings = {"Lemma 27": "from D = μ_0/4, ‖W_0‖ = 50 ‖W_mm‖, normalised",
                "Lemma 28": "from D = μ_0/4, far out, normalised",
                "Lemma 30": "plain, η = 1, from W_mm"}  # fmt: skip
    return [row for name, claims in checked.items()
            for row in _rows(name, settings.get(name, "edge of the cone of μ_0"), count, claims)]  # fmt: skip
