"""The ledger of paper C (2410.14581): every statement's rows, in the true or a wrong world."""

from dataclasses import replace

import numpy as np

from lib.companion.claims import Claim, at_least, at_most
from lib.companion.ledger import rows
from lib.mirror import geometry
from lib.mirror.descent import MirrorRule, gaussian_start, selected_tokens, train
from lib.seeds import stream
from papers.c import cone_lemmas, cones, inequalities, rates, step_lemmas
from papers.c.ledger_paths import path_rows
from papers.c.ledger_settings import SMALL, Sizes, data, seen, selections
from papers.wrong_worlds import TRUE, World

__all__ = ["SECTIONS", "SMALL", "Sizes"]


# Lemma 13 is attained as p rises to 2.
EXPONENTS = np.append(np.geomspace(1.05, 10, 25), 1.999)


def inequality_rows(sizes: Sizes, world: World = TRUE) -> list[Claim]:
    """Lemmas 12-15 on random matrices and numbers, many zero or tiny, and where attained.

    Measured: the smallest ratio larger / smaller side over all EXPONENTS; the smaller side is off
    by the world's "constant off".
    """
    draw, count, size = stream(0, "draws"), sizes.draws, 16
    found = {name: np.inf for name in ("Lemma 12", "Lemma 13", "Lemma 14", "Lemma 15")}
    x, y = np.sort(10 ** draw.uniform(-3, 3, (2, count)), 0)[::-1]
    x, y = np.append(x, [1.0, 1.0]), np.append(y, [1 - 1e-6, 1e-9])  # nearly equal, nearly zero
    ends = np.stack([np.ones(size), np.eye(size)[0]])  # where the two norms' ratio is extreme
    for p in EXPONENTS:
        a, b = (
            draw.standard_normal((count, size)) ** 3 * (draw.random((count, size)) > 0.1)
            for _ in range(2)
        )
        near = np.concatenate([b, a * (1 + 1e-3 * b)])
        a2 = np.concatenate([a, a])
        unit = [v / geometry.norm(v, p)[:, None] for v in (a2, near)]
        pairs = {
            "Lemma 12": inequalities.lemma12(np.concatenate([a, ends]), p),
            "Lemma 13": [inequalities.lemma13(*unit, p)],
            "Lemma 14": inequalities.lemma14(x, y, p),
            "Lemma 15": inequalities.lemma15(x, y, p),
        }
        for name, sides in pairs.items():
            for smaller, larger in sides:
                # A divergence of unit vectors has an error of 1e-16, whatever its size: below 1e-7
                # its ratio would be rounding.
                least = 1e-7 if name == "Lemma 13" else 0.0
                usable = (smaller > least) & np.isfinite(larger)
                found[name] = min(found[name], (larger / smaller)[usable].min())
    # No count of draws: the power of these rows, measured with fewer, is found by their id.
    setting, text = "p from 1.05 to 10", "smallest ratio of larger to smaller side"
    rounding, made = 1e-8, []  # nearly equal numbers lose digits
    for name, ratio in found.items():
        source = f"paper C, {name}" + " (our constant)" * (name == "Lemma 13")
        ratio, id = ratio / (1 + world.of("constant off")), name.lower().replace(" ", "")
        claim = at_least(id, text, source, ratio, 1 - rounding)
        made += rows(name, setting, None, claim, fails_if=("constant off",))
    return made


def gradient_rows(sizes: Sizes, world: World = TRUE) -> list[Claim]:
    """Lemmas 16 and 18 at matrices of all sizes."""
    drawn, off = data(sizes.seeds, sizes.n, sizes.T, sizes.d), world.of("constant off")
    matrices = step_lemmas.random_matrices(drawn, 40)
    setting = "40 matrices of sizes from 0.01 to 1000"
    bounds = step_lemmas.lemma16(drawn, matrices, off)
    found = rows("Lemma 16", setting, sizes.seeds, *bounds, fails_if=("constant off",))
    bounded = [step_lemmas.lemma18(drawn, matrices, p, off) for p in sizes.exponents]
    setting += ", and the data that attain it"
    return found + rows("Lemma 18", setting, sizes.seeds, *bounded, fails_if=("constant off",))


def _pairs(steps):
    """Iterations 0, 1 and 40 pairs (t, t+1), evenly spaced in log t."""
    first = np.concatenate([[0], np.geomspace(1, steps - 1, 40).astype(int)])
    return np.union1d(first, first + 1)


def step_rows(sizes: Sizes, world: World = TRUE) -> list[Claim]:
    """Lemmas 4, 22, 24, 25 along plain lp-AttGD from a random start, at recorded pairs of steps."""
    drawn, found = data(sizes.seeds, sizes.n, sizes.T, sizes.d), []
    start, steps = gaussian_start(drawn, range(sizes.seeds)), _pairs(sizes.steps)
    for p in sizes.exponents:
        rule = MirrorRule(p, 0.01, normalised=False)
        history = train(drawn, world.rule(rule), sizes.steps, start, record=steps)
        taken = step_lemmas.Steps(drawn, replace(history, rule=rule))
        where, count = "plain, η = 0.01, random start", sizes.seeds
        off = ("step off",)
        near = selections(sizes, p)
        own = MirrorRule(p, 1.0, normalised=False)
        aligned = train(near.tokens, world.rule(own), sizes.steps, near.solution.W, record=steps)
        along = step_lemmas.Steps(near.tokens, replace(aligned, rule=own))
        growth = step_lemmas.lemma4(along)
        found += rows("Lemma 4", "plain, η = 1, from W_mm", len(aligned.W), growth, fails_if=off)
        found += rows("Lemma 22", where, count, step_lemmas.lemma22(taken), fails_if=off)
        found += rows("Lemma 24", where, count, step_lemmas.lemma24(taken), fails_if=off)
        steady = step_lemmas.lemma25(taken, history)
        found += rows("Lemma 25", where, count, steady, fails_if=off)
    return found


def cone_rows(sizes: Sizes, world: World = TRUE) -> list[Claim]:
    """Lemmas 19-21, 27, 28 and 30: on the edge of the cone of mu_0 and along training inside it.

    For Lemma 30 the norm's exponent in k is off by the world's.
    """
    found, multiples = [], np.geomspace(5, 5e6, 13)
    turned = ("target rotated",)
    for p in sizes.exponents:
        true, of = selections(sizes, p), seen(sizes, p, world)
        count, mu, edge = len(of.direction), cones.radius(true), "edge of the cone of μ_0"
        width = mu ** max(1 / 2, (p - 1) / p)  # of the cone, in the mirror image
        start = cones.on_the_edge(true, mu / 4, 1, seed=4)[0].reshape(true.solution.W.shape)
        far = _far_out(true, start, width, 4 * sizes.steps, of.solution.W)
        first = start * (50 * true.solution.norm)[:, None, None]
        near_rule = rates.relative_rule(first, p, 0.0002)
        near = train(of.tokens, world.rule(near_rule), 400, first, record=_pairs(400))
        plain_rule = MirrorRule(p, 1.0, normalised=False)
        plain = train(of.tokens, world.rule(plain_rule), sizes.steps * 10, true.solution.W)
        taken = step_lemmas.Steps(of.tokens, replace(near, rule=near_rule))
        share = (plain.iterations.clip(1) / plain.iterations[-1]) ** world.of("exponent off")
        grown = replace(plain, rule=plain_rule, norm=plain.norm * share)
        stay = (selected_tokens(of.tokens, plain.W[:, -1]) == of.tokens.opt).all(1)
        logarithm = step_lemmas.lemma30(grown, of.solution.norm, sizes.steps, stay)
        far_out = "from D = μ_0/4, far out, normalised"
        found += rows("Lemma 19", edge, count, cone_lemmas.lemma19(of), fails_if=turned)
        positive, rate = cone_lemmas.lemma20(of, multiples, 10)
        found += rows("Lemma 20", edge, count, rate, fails_if=("norm off",))
        found += rows("Lemma 20", edge, count, positive, fails_if=("label turned",))
        # At p = 1.3 mu_0 is 2e-6 at most: W and W_mm hardly differ in such a cone, whatever
        # direction is named, so that a row could not fail.
        if p >= 1.5:
            favours = cone_lemmas.lemma21(of, multiples, 3)
            found += rows("Lemma 21", edge, count, favours, fails_if=turned)
        where = "from D = μ_0/4, ‖W_0‖ = 50 ‖W_mm‖, normalised"
        turn = cone_lemmas.lemma27(of, taken)
        found += rows("Lemma 27", where, count, turn, fails_if=("step off",))
        found += rows("Lemma 28", far_out, count, cone_lemmas.lemma28(of, far, mu), fails_if=turned)
        where = "plain, η = 1, from W_mm"
        found += rows("Lemma 30", where, count, *logarithm, fails_if=("norm off", "exponent off"))
    return found


def _far_out(of, start, width, steps, target):
    """D (runs, k) along normalised training from `start`, each run with its own step.

    A step turns the mirror image of W by a tenth of the cone's width, all together by much more,
    and ||W_0|| is so large that the minimiser of the loss on its sphere, about ||W_mm||/||W|| away,
    lies in the cone. One step for all runs, sized by the narrowest cone, would hardly move the
    others.
    """
    found = []
    for run, wide in enumerate(width):
        W = start[run : run + 1] * (100 / wide * of.solution.norm[run])
        one = rates.part(of.tokens, np.array([run]))
        history = train(one, rates.relative_rule(W, of.p, 0.1 * wide), steps, W)
        found.append(history.divergence(target[run : run + 1])[0])
    return np.array(found)


def rate_rows(sizes: Sizes, world: World = TRUE) -> list[Claim]:
    """Lemma 29 and the theorem on local convergence, from the cone D = 0.001."""
    found = []
    for p in sizes.rate_exponents:
        of = selections(sizes, p)
        edge = rates.Edge(0.001, 100)
        history, runs = rates.from_cone(of, edge, sizes.rate_steps, sizes.rate_step, world.rule)
        history = replace(history, rule=replace(history.rule, p=p))
        divergence = history.divergence(world.target(of.solution).W)
        t = history.iterations.clip(1) / history.iterations[-1]
        divergence = divergence * t ** world.of("exponent off")
        where, count = "from the cone D = 0.001, normalised", len(of.direction)
        names = ("target rotated", "exponent off", "p off")
        found += rows("Lemma 29", where, count, *rates.lemma29(history, divergence), fails_if=names)
        ends, kept = divergence[:, -1].max(), "Theorem, convergence"
        text = f"p = {p:g}: largest last D, started at 0.001"
        claim = at_most(f"convergence.{p:g}", text, f"paper C, {kept} (our constant)", ends, 1e-4)
        found += rows(kept, where, count, claim, fails_if=("target rotated",))
    return found


SECTIONS = {
    "inequalities": inequality_rows,
    "gradients": gradient_rows,
    "steps": step_rows,
    "cones": cone_rows,
    "rates": rate_rows,
    "paths": path_rows,
}
