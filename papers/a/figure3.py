"""Paper A's Figure 3: head and attention trained together, beside an independent computation."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from lib.attention.token_sets import TokenSet
from lib.companion import plots
from lib.companion.claims import Claim
from lib.companion.record import Number
from lib.dynamics import History
from lib.svm import MaxMargin
from papers import pieces
from papers.a.joint_training import head_margin, loss_ratio
from papers.a.statements import PAPER

# One draw of (DM), n = 8, T = 2, d = 400, noise^2 d = 1, signal 3, three queries the opt token, eta
# = 0.3, as computed independently of this library: {iteration: values in the order of `measured`}.
REFERENCE = {
    100: (-3.74, 3.03, 3.43, 0.132, 0.102, 0.959, 1.27, 3.3),
    1000: (-9.13, 7.83, 8.23, 0.050, 0.043, 0.990, 1.27, 8.3),
    5000: (-16.2, 14.2, 14.6, 0.028, 0.024, 0.994, 1.27, 14.9),
}
SMALLEST_LOG_LOSS = -30  # powers of ten, as drawn; the loss of NGD falls much further


def at(history: History, t: int) -> int:
    """The index of the record at iteration t; ValueError where there is none."""
    if t not in history.iterations:
        times = f"{history.iterations[:3]} ... {history.iterations[-1]}"
        raise ValueError(f"iteration {t} was not recorded; there are {times}")
    return int(np.searchsorted(history.iterations, t))


def measured(history: History, tokens: TokenSet, head: MaxMargin, t: int) -> dict:
    """The quantities of REFERENCE at iteration t: {name: (runs,)}."""
    k = at(history, t)
    return {
        "log L": history.log_gap[:, k],
        "||W||": history.norm[:, k],
        "||u||": history.head_norm[:, k],
        "error of W": history.direction_error["W_mm"][:, k],
        "error of u": history.head_direction_error["u_mm"][:, k],
        "margin": head_margin(history, tokens, head)[:, k],
        "loss ratio": loss_ratio(history, tokens)[:, k],
        "score gap": history.score_gaps[:, k].min((1, 2)),
    }


def against_reference(values: dict[int, dict]) -> list[Claim]:
    """Medians of `values` {iteration: measured(...)}, within 1.5 times REFERENCE."""
    made, times = [], ", ".join(map(str, REFERENCE))
    for place, name in enumerate(values[min(REFERENCE)]):
        ratios = [np.median(values[t][name]) / known[place] for t, known in REFERENCE.items()]
        factor = max(max(ratio, 1 / ratio) for ratio in ratios)
        made.append(PAPER.claim("reference", factor, name, say=(times,)))
    return made


COMPARED = {  # (runs, k) each, the larger the further ahead
    "-log L": lambda run: -run.log_gap,
    "||W||": lambda run: run.norm,
    "||u||": lambda run: run.head_norm,
    "-log(1 - p_opt)": lambda run: -run.log_miss.max(-1),
    "1 / error of W": lambda run: 1 / run.direction_error["W_mm"],
    "1 / error of u": lambda run: 1 / run.head_direction_error["u_mm"],
}


def slower_than_others(histories: dict[str, History], rule: str, rivals) -> list[Claim]:
    """In every run `rule` ends with the largest loss, smallest weights and norms."""
    made = []
    for name in ("-log L", "-log(1 - p_opt)", "||W||", "||u||"):
        own, *others = (COMPARED[name](histories[run])[:, -1] for run in (rule, *rivals))
        ratio = (own / np.min(others, axis=0)).max()
        made.append(PAPER.claim("slowest", ratio, name, say=(rule,)))
    return made


def ahead(fast: History, slow: History, names: tuple[str, str], since: float) -> list[Claim]:
    """In every run, t >= since, `fast` has larger norms, weights and alignments."""
    late, made = fast.iterations >= since, []
    for name in list(COMPARED)[1:]:  # but the loss
        ahead, behind = (COMPARED[name](run)[:, late] for run in (fast, slow))
        made.append(PAPER.claim("ahead", (ahead / behind).min(), name, say=names))
    return made


def draw(histories: Mapping[str, History], step_size: float, caption: str) -> Figure:
    """Figure 3: medians over runs with their spread; Lemma 12's bound."""
    figure, axes = plots.panels(2, 3)
    for name, history in histories.items():
        for axis, (title, values) in zip(axes, _panels(history).items(), strict=True):
            plots.band(axis, history.iterations[1:], values[:, 1:], name)
            axis.set(title=title, xscale="log", xlim=(1, history.iterations[-1]))
    axes[0].set_ylim(SMALLEST_LOG_LOSS, 1)
    steps, at_ten = next(iter(histories.values())).iterations[-1], 3 * step_size * 10 ** (1 / 3)
    for axis in axes[1:3]:
        axis.set(yscale="log", ylim=(0.1, 1e4))
        plots.power_law(axis, (10, steps), 1 / 3, at_ten, r"$3\eta t^{1/3}$ (Lemma 12)")
    decayed, look = histories["NGD, decay"], plots.look("NGD, decay")
    said = "NGD, decay, of its bound:"
    for t in [t for t in REFERENCE if t > 100]:
        norm = np.median(decayed.norm[:, at(decayed, t)])
        axes[1].plot(t, norm, ms=6, mec=plots.PAPER, zorder=4, **look.mark)
        said += f"\n{norm:.3g} of {3 * step_size * t ** (1 / 3):#.3g} at $t$ = {t:,}"
    pieces.note(axes[1], said, 0.04, 0.97, "top", look.colour)
    for axis in axes[4:]:  # on which 1 - value is drawn
        axis.set(yscale="log", ylim=(1, 1e-8))
        labels = ["0." + "9" * k if k < 4 else f"$1-10^{{-{k}}}$" for k in range(1, 9)]
        axis.set_yticks([10.0**-k for k in range(1, 9)], labels, minor=False)
        axis.minorticks_off()
    for axis in axes[3:]:
        axis.set_xlabel("iteration $t$")
    return plots.caption(plots.legend(figure, axes[1]), caption)


def _panels(history):
    """{title: values (runs, k)}; of an alignment its distance from 1 is drawn."""
    return {
        "Train loss, $\\log_{10} L$": history.log_gap / np.log(10),
        "Norm $\\|W_t\\|$": np.where(history.norm > 0, history.norm, np.nan),
        "Norm $\\|u_t\\|$": history.head_norm,
        "Mean weight of the opt token": history.opt_score,
        "Alignment with $W_{mm}$": history.direction_error["W_mm"] ** 2 / 2,
        "Alignment with $u_{mm}$": history.head_direction_error["u_mm"] ** 2 / 2,
    }


def numbers(values: Mapping, attention: MaxMargin, head) -> dict[str, Number]:
    """The record's numbers, of `values` {iteration: measured(...)}."""
    known = {
        f"{name.replace(' ', '_').replace('|', '')}_at_{t}": Number(np.median(value), 1e-5)
        for t, quantities in values.items()
        for name, value in quantities.items()
    }
    known["norm_of_W_mm"] = Number(np.median(attention.norm), 1e-6)
    known["norm_of_u_mm"] = Number(np.median(head.norm), 1e-6)
    return known
