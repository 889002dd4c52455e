"""The ledger of paper C (2410.14581): every statement's rows, in the true world or in a wrong
one.
"""

from dataclasses import replace

import numpy as np

from lib.companion.claims import Claim, at_least, at_most
from lib.companion.ledger import rows
from lib.mirror import geometry
from lib.mirror.descent import MirrorRule, gaussian_start, train
from lib.papers.c import cone_lemmas, cones, inequalities, predecessor, rates, step_lemmas
from lib.papers.c.ledger_settings import SMALL, Sizes, data, seen, selections
from lib.papers.wrong_worlds import World
from lib.seeds import stream

__all__ = ["SECTIONS", "SMALL", "Sizes"]


EXPONENTS = np.geomspace(1.05, 10, 25)


TRUE = World()


def inequality_rows(sizes: Sizes, world: World = TRUE) -> list[Claim]:
    """Lemmas 12-15 on random matrices and numbers, many zero or tiny, and on those that attain
    them.

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
    setting, text = f"p from 1.05 to 10, {count} draws", "smallest ratio of larger to smaller side"
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
    bounded = [step_lemmas.lemma18(drawn, matrices, p) for p in sizes.exponents]
    why = "a bound for every W, met 20 times over on these: no small change of it shows"
    return found + rows("Lemma 18", setting, sizes.seeds, *bounded, fails_if=(), remark=why)


def _pairs(steps):
    """Iterations 0, 1 and 40 pairs (t, t+1), evenly spaced in log t."""
    first = np.concatenate([[0], np.geomspace(1, steps - 1, 40).astype(int)])
    return np.union1d(first, first + 1)


def step_rows(sizes: Sizes, world: World = TRUE) -> list[Claim]:
    """Lemmas 4, 22, 24 and 25 along plain lp-AttGD from a random start, at recorded pairs of
    steps.
    """
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
        why = "it holds for every small step, so that a step twice as long keeps it"
        steady = step_lemmas.lemma25(replace(history, rule=rule))
        found += rows("Lemma 25", where, count, steady, fails_if=(), remark=why)
    return found


def cone_rows(sizes: Sizes, world: World = TRUE) -> list[Claim]:
    """Lemmas 19-21, 27, 28 and 30: on the edge of the cone of mu_0 and along training inside it.

    For Lemma 28 a step turns the mirror image of W by less than the cone is wide, all together by
    much more, and ||W_0|| is so large that the minimiser of the loss on its sphere, about
    ||W_mm||/||W|| away, lies in the cone.
    """
    found, multiples = [], np.geomspace(5, 5e6, 13)
    turned = ("target rotated",)
    for p in sizes.exponents:
        true, of = selections(sizes, p), seen(sizes, p, world)
        count, mu, edge = len(of.direction), cones.radius(true), "edge of the cone of μ_0"
        width = mu ** max(1 / 2, (p - 1) / p)  # of the cone, in the mirror image
        start = cones.on_the_edge(true, mu / 4, 1, seed=4)[0].reshape(true.solution.W.shape)
        sized = [start * (m * true.solution.norm)[:, None, None] for m in (100 / width, 50)]
        rule = rates.relative_rule(sized[0], p, 0.1 * width.min())
        far = train(of.tokens, world.rule(rule), sizes.steps, sized[0])
        near_rule = rates.relative_rule(sized[1], p, 0.0002)
        near = train(of.tokens, world.rule(near_rule), 400, sized[1], record=_pairs(400))
        plain_rule = MirrorRule(p, 1.0, normalised=False)
        plain = train(of.tokens, world.rule(plain_rule), sizes.steps * 10, true.solution.W)
        taken = step_lemmas.Steps(of.tokens, replace(near, rule=near_rule))
        grown = replace(plain, rule=plain_rule)
        logarithm = step_lemmas.lemma30(grown, of.solution.norm, sizes.steps)
        inside, favours = (
            cone_lemmas.lemma20(of, multiples, 10),
            cone_lemmas.lemma21(of, multiples, 10),
        )
        far_out = "from D = μ_0/4, far out, normalised"
        found += rows("Lemma 19", edge, count, *cone_lemmas.lemma19(of, 10), fails_if=turned)
        found += rows("Lemma 20", edge, count, inside[1], fails_if=("norm off",))
        why = "a sign, which no small world changes"
        found += rows("Lemma 20", edge, count, inside[0], fails_if=(), remark=why)
        found += rows("Lemma 21", edge, count, favours, fails_if=turned)
        where = "from D = μ_0/4, ‖W_0‖ = 50 ‖W_mm‖, normalised"
        turn = cone_lemmas.lemma27(of, taken)
        found += rows("Lemma 27", where, count, turn, fails_if=("step off",))
        stays = cone_lemmas.lemma28(of, replace(far, rule=rule), mu)
        found += rows("Lemma 28", far_out, count, *stays, fails_if=turned)
        where = "plain, η = 1, from W_mm"
        found += rows("Lemma 30", where, count, *logarithm, fails_if=("norm off",))
    return found


def rate_rows(sizes: Sizes, world: World = TRUE) -> list[Claim]:
    """Lemma 29 and the theorems on local convergence and its rate, from the cone D = 0.001."""
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
    return found + _plain_rate_rows(sizes, world)


def _plain_rate_rows(sizes, world):
    """The composed rate D(k): plain steps, where ||W|| grows like log k, from the same cone."""
    found, t0 = [], sizes.rate_steps // 10
    for p in (1.75, 2, 3):
        of = selections(sizes, p)
        start = cones.on_the_edge(of, np.full(len(of.direction), 0.05), 1)[0]
        W = (start * (3 * of.solution.norm)[:, None]).reshape(of.solution.W.shape)
        rule = MirrorRule(p, 1.0, normalised=False)
        history = train(of.tokens, world.rule(rule), sizes.rate_steps, W)
        D = replace(history, rule=rule).divergence(world.target(of.solution).W)
        late, k = history.iterations >= t0, np.log(history.iterations.clip(2))
        loglog = np.log(np.maximum(k, 1.1))
        bound = {1: loglog / k, 0: loglog**2 / k}.get(int(np.sign(p - 2)), k ** (1 - p))
        over = (D / bound)[:, late]
        text = f"p = {p:g}: last D over its bound in k, over the largest since k = {t0}"
        claim = at_most(
            f"rate.k.{p:g}",
            text,
            "paper C, Theorem, rate (our constant)",
            (over[:, -1] / over[:, :-1].max(1)).max(),
            1.0,
        )
        where = "plain, η = 1, from D = 0.05, ‖W_0‖ = 3 ‖W_mm‖"
        found += rows(
            "Theorem, rate", where, len(of.direction), claim, fails_if=("target rotated",)
        )
    return found


def path_rows(sizes: Sizes, world: World = TRUE) -> list[Claim]:
    """The regularisation paths: of W alone, and of v and W together."""
    few, found = data(sizes.path_seeds, sizes.n, sizes.T, sizes.d), []
    multiples, where = (1, 3, 10, 30, 100), "opt tokens, R = 100 ‖W_mm‖"
    for p in (1.75, 2, 3):
        end = predecessor.path_against_descent(few, p, multiples, 500, 2, world.target)["path"]
        text, source = f"p = {p:g}: largest last D", "paper C, Theorem, path (our constant)"
        claim = at_most(f"path.{p:g}", text, source, end[:, -1].max(), 1e-3)
        found += rows("Theorem, path", where, sizes.path_seeds, claim, fails_if=("target rotated",))
    return found


SECTIONS = {
    "inequalities": inequality_rows,
    "gradients": gradient_rows,
    "steps": step_rows,
    "cones": cone_rows,
    "rates": rate_rows,
    "paths": path_rows,
}
