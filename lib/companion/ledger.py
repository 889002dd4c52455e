"""The ledger: every numbered statement of a paper beside what was measured for it; here also paper A's (2402.05738)."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from lib.companion import plots
from lib.companion.claims import Claim, number
from lib.files import folder, write

STATEMENTS = {  # number: (topic, the statement in one line)
    "Theorem 1": (
        "direction of NGD",
        "NGD from any small start: ‖W_t/‖W_t‖ - W_mm/‖W_mm‖‖ ≤ Õ(t^-1/2)",
    ),
    "Theorem 2": ("joint training: loss", "Eq. 13: L(θ_t) ≤ O(exp(-c t^1/3))"),
    "Theorem 3": (
        "joint training: direction of W",
        "Eq. 13: W_t turns towards W_mm at least at rate 1/log t",
    ),
    "Theorem 4": (
        "joint training: margin of u",
        "Eq. 13: the margin of u_t is asymptotically a constant factor of γ* = 1/‖u_mm‖",
    ),
    "Theorem 5": ("direction of NGD, burn-in", "Theorem 1 with its burn-in t0"),
    "Theorem 6": (
        "direction of GD",
        "GD with a small constant step: W_t/‖W_t‖ → W_mm/‖W_mm‖, for any n",
    ),
    "Theorem 7": (
        "direction of Polyak",
        "Polyak step: direction error ≤ Õ(t^-1/2), ‖W_t‖ at least linear, L - L* below ‖∇L‖",
    ),
    "Theorem 8": ("joint training: loss, constant", "Theorem 2 with its constants"),
    "Theorem 9": (
        "joint training: norm of W",
        "Theorem 3 with its constants: ‖W_t‖ = Θ(t^1/3), and ⟨-∇L, W_mm⟩ > 0 along the way (Eq. 58)",
    ),
    "Theorem 10": ("joint training: margin of u, rate", "Theorem 4 with its rate"),
    "Lemma 1": (
        "softmax saturates",
        "NGD: 1 - p_opt ≤ T exp(-c t): the attention map turns sparse exponentially fast",
    ),
    "Lemma 2": (
        "gradient favours $W_{mm}$",
        "for every ε there is R_ε: ‖W‖ ≥ R_ε ⇒ ⟨-∇L, W_mm⟩/‖W_mm‖ ≥ (1-ε) ⟨-∇L, W⟩/‖W‖",
    ),
    "Lemma 3": (
        "gradient, step and curvature",
        "‖∇_u L‖ ≥ c γ* L; L on a step ≤ C L(θ_t); ‖∇²L‖ ≤ C (t+1)^2/3 L(θ_t)",
    ),
    "Lemma 4": (
        "small start",
        "small Gaussian W_0: all softmax weights are within a constant factor of 1/T",
    ),
    "Lemma 5": (
        "opt weight never falls",
        "p_opt never falls below a constant times its start; not yet large, it does not fall at all",
    ),
    "Lemma 6": ("gradient points to $W_{mm}$", "⟨-∇L(W), W_mm⟩ ≥ c ‖∇L(W)‖ for every W"),
    "Lemma 7": ("norm of W, two bounds", "NGD: c η t - ‖W_0‖ ≤ ‖W_t‖ ≤ η t + ‖W_0‖"),
    "Lemma 8": (
        "Example 1 fits the assumptions",
        "Example 1 satisfies Assumptions 1 and 2 with probability 1 - δ",
    ),
    "Lemma 9": ("gradient favours $W_{mm}$, radius", "Lemma 2 with R_ε = Õ(1/ε)"),
    "Lemma 10": ("softmax saturates, constant", "Lemma 1 with its constants"),
    "Lemma 11": (
        "(DM) is nearly orthogonal",
        "(DM): norms concentrate, tokens are nearly orthogonal, with probability 1 - δ",
    ),
    "Lemma 12": ("joint training: upper bound of norms", "Eq. 13: ‖W_t‖, ‖u_t‖ ≤ 3 η t^1/3"),
    "Lemma 13": (
        "joint training: gaps, ratio, opt weight",
        "Eq. 13: growing score gaps, bounded loss ratio, non-decreasing p_opt ≥ 1/2",
    ),
    "Lemma 14": (
        "opt tokens are separable",
        "(y_i, opt tokens and mixtures with p_opt ≥ 1/2) are linearly separable",
    ),
    "Lemma 15": ("curvature, constant", "Lemma 3 with its constants"),
    "Eq. 12": ("norm of W is linear", "NGD: ‖W_t‖ = Θ(t)"),
    "Eq. 13": (
        "exponent of the step size",
        "steps (t+1)^-p with p in [2/3, 1): p = 2/3 gives the fastest rate",
    ),
    "Remark 1": (
        "any start direction",
        "convergence to W_mm is global: from any direction, with more than one sample",
    ),
    "Remark 2": ("n > 1", "Lemma 2 holds for n > 1, where the earlier lemma needed n = 1"),
    "Remark 3": (
        "as fast as linear predictors",
        "joint training's loss rates are those of linear predictors with the same step sizes",
    ),
    "Remark 4": (
        "gradient of order L",
        "‖∇_u L‖ is of the order of L, as for linear predictors with NGD",
    ),
    "Footnote 5": ("antipodal opt tokens", "the results extend to antipodal opt tokens"),
    "Section 3.1": (
        "local directions do not hold",
        "the local max-margin directions of other selections are not where training ends",
    ),
    "Section 4.2": (
        "T > 2",
        "the joint results extend to T > 2 where Assumption 2 holds at every step",
    ),
    "Condition 1": (
        "setting of joint training",
        "zero start, α ≥ C_0, d ≥ C_1 poly(α, n) log(n²/δ), small step (complete: Condition 2)",
    ),
}


@dataclass(frozen=True)
class Row:
    """One line of the ledger: a statement (a key of `paper`, like STATEMENTS), its setting, the
    number of seeds, and the checked claim.

    Without a claim `remark` says why there is none; with one it may explain the outcome.
    """

    statement: str
    setting: str
    seeds: int | None
    claim: Claim | None
    remark: str = ""
    paper: Mapping = field(default_factory=lambda: STATEMENTS, repr=False)

    def __post_init__(self):
        if self.statement not in self.paper:
            raise ValueError(f"{self.statement!r} is not a statement of the ledger")
        if self.claim is None and not self.remark:
            raise ValueError(
                f"{self.statement} has no claim; its remark must say why it cannot be checked"
            )


def rows(
    statement: str,
    setting: str,
    seeds: int | None,
    *checked: Claim,
    remark: str = "",
    paper: Mapping = STATEMENTS,
) -> list[Row]:
    """One row per claim checked for a statement, in a setting, over a number of seeds; the setting joins its id."""
    named = (replace(claim, id=f"{claim.id} ({setting})") for claim in checked)
    return [Row(statement, setting, seeds, claim, remark, paper) for claim in named]


def unchecked(statement: str, why: str, paper: Mapping = STATEMENTS) -> Row:
    """The row of a statement that no computation can check, with the reason."""
    return Row(statement, "", None, None, why, paper)


def verdict(row: Row) -> str:
    """ "yes", "NO", or "not checked"."""
    return "not checked" if row.claim is None else "yes" if row.claim.holds else "NO"


def in_order(ledger: Iterable[Row]) -> list[Row]:
    """The rows in the order of their paper's statements: theorems, lemmas, equations, remarks."""
    return sorted(ledger, key=lambda row: list(row.paper).index(row.statement))


def draw(ledger: Iterable[Row]) -> Figure:
    """A mark per claim, statement by statement from top to bottom: how many times over its bound is met."""
    ledger = list(ledger)
    shown = list(dict.fromkeys(row.statement for row in ledger))
    topics = {row.statement: row.paper[row.statement][0] for row in ledger}
    figure, (axis,) = plots.panels(1, 1, height=0.19 * len(shown) + 1)
    marks = {"holds": [], "holds more than 1000 times over": [], "does not hold": []}
    for row in ledger:
        place = shown.index(row.statement)
        if row.claim is None:
            axis.text(1.15, place, "cannot be checked by computing", fontsize=7, va="center")
        else:
            kind = 2 if not row.claim.holds else 1 if row.claim.margin > 1000 else 0
            marks[list(marks)[kind]].append((np.clip(row.claim.margin, 0.3, 1000), place))
    for (label, points), marker, colour in zip(
        marks.items(), "o>X", ("NGD", "NGD", "Polyak"), strict=True
    ):
        points = np.reshape(points, (-1, 2)).T
        label = f"{label} ({points.shape[1]})"
        axis.plot(
            *points, marker, color=plots.COLOURS[colour], alpha=0.6, markersize=4.5, label=label
        )
    axis.axvline(1, color="0.3", linewidth=0.8)
    axis.set(xscale="log", xlim=(0.25, 1300), ylim=(len(shown) - 0.5, -0.5))
    axis.set_xlabel("how many times over the bound is met")
    axis.set_yticks(range(len(shown)), [f"{name}: {topics[name]}" for name in shown], fontsize=7)
    plots.legend(figure, axis)
    return figure


def _margin(claim):
    return "∞" if math.isinf(claim.margin) else number(claim.margin)


def markdown(ledger: Iterable[Row], heading: str) -> str:
    """The ledger as a Markdown document with one table."""
    columns = (
        "statement",
        "setting",
        "measured quantity",
        "theory",
        "measured",
        "margin",
        "seeds",
        "holds",
        "remark",
    )
    lines = [
        f"# {heading}",
        "",
        "Margin: how many times over the bound is met (∞: no multiple breaks it).",
        "",
    ]
    lines += ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    seen = set()
    for row in ledger:
        title = f"**{row.statement}**" + (
            "" if row.statement in seen else f" {row.paper[row.statement][1]}"
        )
        seen.add(row.statement)
        c = row.claim
        values = (
            ("", "", "", "")
            if c is None
            else (c.statement, c.bound, number(c.measured), _margin(c))
        )
        cells = title, row.setting, *values, str(row.seeds or ""), verdict(row), row.remark
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def read(text: str) -> list[dict[str, str]]:
    """The rows of `markdown`'s table, a dict per row by column; "says" is the statement in one
    line, in all its rows.

    Text without such a table gives no rows.
    """
    table = [line for line in text.splitlines() if line.startswith("| ")]
    if len(table) < 2:
        return []
    columns, *lines = (
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in table
    )
    found, says = [], {}
    for cells in lines:
        if len(cells) == len(columns) and (
            title := re.fullmatch(r"\*\*(.+?)\*\*\s*(.*)", cells[0])
        ):
            name = title[1]
            says.setdefault(name, title[2])
            found.append({**dict(zip(columns, cells)), "statement": name, "says": says[name]})
    return found


def save(ledger: Iterable[Row], slug: str, scale: str, heading: str) -> Path:
    """Write the Markdown table beside the figure's record, <figures>/<scale>/<slug>.md; return its path."""
    path = folder("figures") / scale / f"{slug}.md"
    write(path, markdown(ledger, heading).encode())
    return path
