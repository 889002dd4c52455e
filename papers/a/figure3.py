"""What Figure 3 of paper A (2402.05738) shows, as checked claims; an independent computation."""

import numpy as np

from lib.attention.token_sets import TokenSet
from lib.companion.claims import Claim, at_least, at_most
from lib.dynamics.history import History
from lib.svm.max_margin import MaxMargin
from papers.a.joint_training import head_margin, loss_ratio

# One draw of (DM), n = 8, T = 2, d = 400, noise^2 d = 1, signal 3, three queries the opt token, eta
# = 0.3, as computed independently of this library: {iteration: values in the order of `measured`}.
REFERENCE = {
    100: (-3.74, 3.03, 3.43, 0.132, 0.102, 0.959, 1.27, 3.3),
    1000: (-9.13, 7.83, 8.23, 0.050, 0.043, 0.990, 1.27, 8.3),
    5000: (-16.2, 14.2, 14.6, 0.028, 0.024, 0.994, 1.27, 14.9),
}
SECTION = "paper A, Section 5.1"


def at(history: History, t: int) -> int:
    """The index of the record at iteration t; ValueError where that iteration was not recorded."""
    found = np.flatnonzero(history.iterations == t)
    if found.size == 0:
        raise ValueError(
            f"iteration {t} was not recorded; there are {history.iterations[:3]} ... "
            f"{history.iterations[-1]}"
        )
    return int(found[0])


def measured(
    history: History, target: str, head_target: str, tokens: TokenSet, head: MaxMargin, t: int
) -> dict:
    """The quantities of REFERENCE at iteration t: {name: (runs,)}."""
    k = at(history, t)
    return {
        "log L": history.log_gap[:, k],
        "||W||": history.norm[:, k],
        "||u||": history.head_norm[:, k],
        "error of W": history.direction_error[target][:, k],
        "error of u": history.head_direction_error[head_target][:, k],
        "margin": head_margin(history, tokens, head)[:, k],
        "loss ratio": loss_ratio(history, tokens)[:, k],
        "score gap": history.score_gaps[:, k].min((1, 2)),
    }


def against_reference(values: dict[int, dict]) -> list[Claim]:
    """Medians over runs are those of the reference computation, within a factor 1.5.

    One claim a quantity; values: {iteration: measured(...)}, iterations as in REFERENCE.
    """
    claims = []
    for place, name in enumerate(values[min(REFERENCE)]):
        ratios = [np.median(values[t][name]) / known[place] for t, known in REFERENCE.items()]
        worst = max(max(ratio, 1 / ratio) for ratio in ratios)
        times = ", ".join(map(str, REFERENCE))
        statement = f"Eq. 13: {name} and the reference, factor between them at t = {times}"
        source = "independent computation"
        claims.append(at_most(f"reference.{name}", statement, source, worst, 1.5))
    return claims


def slower_than_others(histories: dict[str, History], rule: str, others) -> list[Claim]:
    """At the last record `rule` has the largest loss, the smallest opt weights and norms.

    In every run; `others` are names in `histories`.
    """
    own, rest = histories[rule], [histories[name] for name in others]
    series = {
        "-log L": lambda h: -h.log_gap[:, -1],
        "-log(1 - p_opt)": lambda h: -h.log_miss[:, -1].max(-1),
        "||W||": lambda h: h.norm[:, -1],
        "||u||": lambda h: h.head_norm[:, -1],
    }
    claims = []
    for name, value in series.items():
        over = (value(own) / np.min([value(h) for h in rest], axis=0)).max()
        text = f"last {name} of {rule} over the next slowest rule's"
        claims.append(at_most(f"slowest.{name}", text, SECTION, over, 1.0))
    return claims


def ahead(
    fast: History,
    slow: History,
    names: tuple[str, str],
    target: str,
    head_target: str,
    since: float,
) -> list[Claim]:
    """`fast` is ahead of `slow` in norms, opt weight, alignments: in every run, for t >= since."""
    late = fast.iterations >= since
    series = {
        "||W||": lambda h: h.norm,
        "||u||": lambda h: h.head_norm,
        "-log(1 - p_opt)": lambda h: -h.log_miss.max(-1),
        "1 / error of W": lambda h: 1 / h.direction_error[target],
        "1 / error of u": lambda h: 1 / h.head_direction_error[head_target],
    }
    claims = []
    for name, value in series.items():
        over = (value(fast)[:, late] / value(slow)[:, late]).min()
        text = f"{name} of {names[0]} over that of {names[1]}, smallest"
        claims.append(at_least(f"ahead.{name}", text, SECTION, over, 1.0))
    return claims
