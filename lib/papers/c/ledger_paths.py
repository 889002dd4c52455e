"""Rows of paper C's ledger on its theorems: the rate in k, and the two regularisation paths."""

from dataclasses import replace

import numpy as np

from lib.companion.claims import Claim, at_most
from lib.companion.ledger import rows
from lib.mirror.descent import MirrorRule, train
from lib.papers.c import cones, joint_path, predecessor, section5
from lib.papers.c.ledger_settings import Sizes, data, selections
from lib.papers.wrong_worlds import TRUE, World

FINITE = (
    "Finite horizon: ||W|| grows like log k, and D falls only once ||W|| is far above"
    " ||W_mm||. The worst of 20 runs has 5.2, 7.0 and 8.1 ||W_mm|| at k = 4,000, 40,000 and 160,000"
    " and D = 0.043, 0.051 and 0.050 there (p = 2); 0.040, 0.042, 0.040 (p = 1.75); 0.053, 0.073,"
    " 0.082 (p = 3, where its smallest weight of a selected token is still 0.7)"
)


def plain_rate_rows(sizes: Sizes, world: World = TRUE) -> list[Claim]:
    """The composed rate D(k): plain steps, where ||W|| grows like log k, from the same cone."""
    found, t0 = [], sizes.rate_steps // 10
    for p in (1.75, 2, 3):
        of = selections(sizes, p)
        start = cones.on_the_edge(of, np.full(len(of.direction), 0.05), 1)[0]
        W = (start * (3 * of.solution.norm)[:, None]).reshape(of.solution.W.shape)
        rule = MirrorRule(p, 1.0, normalised=False)
        history = train(of.tokens, world.rule(rule), sizes.rate_steps, W)
        D = replace(history, rule=rule).divergence(world.target(of.solution).W)
        D = D * (history.iterations.clip(1) / history.iterations[-1]) ** world.of("exponent off")
        late, k = history.iterations >= t0, np.log(history.iterations.clip(2))
        loglog = np.log(np.maximum(k, 1.1))
        bound = {1: loglog / k, 0: loglog**2 / k}.get(int(np.sign(p - 2)), k ** (1 - p))
        over = (D / bound)[:, late]
        worst = (over[:, -1] / over[:, :-1].max(1)).max()
        text = f"p = {p:g}: last D over its bound in k, over the largest since k = {t0}"
        source = "paper C, Theorem, rate (our constant)"
        claim = at_most(f"rate.k.{p:g}", text, source, worst, 1.0)
        where = "plain, η = 1, from D = 0.05, ‖W_0‖ = 3 ‖W_mm‖"
        off, count = ("target rotated", "exponent off"), len(of.direction)
        found += rows("Theorem, rate", where, count, claim, fails_if=off, remark=FINITE)
    return found


def path_rows(sizes: Sizes, world: World = TRUE) -> list[Claim]:
    """The regularisation paths: of W alone, and of v and W together."""
    few, found = data(sizes.path_seeds, sizes.n, sizes.T, sizes.d), []
    multiples, turned = (1, 3, 10, 30, 100), ("target rotated",)
    where = "opt tokens, R = 100 ‖W_mm‖"
    for p in (1.75, 2, 3):
        end = predecessor.path_against_descent(few, p, multiples, 500, 2, world.target)["path"]
        text, source = f"p = {p:g}: largest last D", "paper C, Theorem, path (our constant)"
        claim = at_most(f"path.{p:g}", text, source, end[:, -1].max(), 1e-3)
        found += rows("Theorem, path", where, sizes.path_seeds, claim, fails_if=turned)
    where, instance = "the paper's joint instance, r and R 100-fold", section5.joint_instance()
    for p in (1.75, 2, 3):
        v, W = joint_path.solve(instance, p, (10, 100))
        both = joint_path.claims(instance, p, v, W, world.target)
        found += rows("Theorem, joint", where, None, *both, fails_if=turned)
    return found
