"""Paper C's theorems in its ledger: rows on the regularisation paths, what runs show in k."""

import numpy as np

from lib.companion.claims import Claim, at_most
from lib.companion.ledger import rows
from lib.mirror.descent import MirrorRule, train
from papers.c import cones, joint_path, predecessor, section5
from papers.c.ledger_settings import Sizes, data, selections
from papers.wrong_worlds import TRUE, World


def rate_in_k(sizes: Sizes, p: float) -> tuple[float, float, float]:
    """What plain steps do in k, from D = 0.05 and ||W_0|| = 3 ||W_mm||: an observation, no row.

    Of the worst run: the last D over its bound of the theorem on the rate (its constant 1) over the
    largest since a tenth of `sizes.rate_steps`; then its last ||W|| / ||W_mm|| and its last D.
    """
    of = selections(sizes, p)
    start = cones.on_the_edge(of, np.full(len(of.direction), 0.05), 1)[0]
    W = (start * (3 * of.solution.norm)[:, None]).reshape(of.solution.W.shape)
    history = train(of.tokens, MirrorRule(p, 1.0, normalised=False), sizes.rate_steps, W)
    D, k = history.divergence(of.solution.W), np.log(history.iterations.clip(3))
    bound = {1: np.log(k) / k, 0: np.log(k) ** 2 / k}.get(int(np.sign(p - 2)), k ** (1 - p))
    over = (D / bound)[:, history.iterations >= sizes.rate_steps // 10]
    share = over[:, -1] / over[:, :-1].max(1)
    run = share.argmax()
    return share[run], history.norm[run, -1] / of.solution.norm[run], D[run, -1]


def path_rows(sizes: Sizes, world: World = TRUE) -> list[Claim]:
    """The regularisation paths: of W alone, and of v and W together."""
    few, found = data(sizes.path_seeds, sizes.n, sizes.T, sizes.d), []
    multiples, turned = (1, 3, 10, 30, 100), ("target rotated",)
    where = "opt tokens, R = 100 ‖W_mm‖"
    for p in (1.75, 2, 3):
        end = predecessor.path_against_descent(few, p, multiples, 500, 2, world.target)["path"]
        text, source = (
            f"p = {p:g}: largest last D",
            "paper C, Theorem, path (our constant, a regression test)",
        )
        claim = at_most(f"path.{p:g}", text, source, end[:, -1].max(), 1e-3)
        found += rows("Theorem, path", where, sizes.path_seeds, claim, fails_if=turned)
    where, instance = "the paper's joint instance, r and R 100-fold", section5.joint_instance()
    for p in (1.75, 2, 3):
        v, W = joint_path.solve(instance, p, (10, 100))
        both = joint_path.claims(instance, p, v, W, world.target)
        found += rows("Theorem, joint", where, None, *both, fails_if=turned)
    return found
