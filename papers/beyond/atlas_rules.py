"""The rows of the atlas: each rule with its step and the norm that it was predicted to maximise.

The predictions are those of notebooks/atlas_protocol.md. Steps give every steepest
descent about the same growth of margins, GROWTH a step, on unit tokens of n = 6, T = 8, d = 10,
where the largest margin at norm 1 is about GAMMA.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as File

import numpy as np

from lib.attention.token_sets import TokenSet
from papers.beyond.atlas import NORMS
from papers.beyond.engine import kept
from papers.beyond.engine import optimisers as o
from papers.beyond.engine.optimisers import Optimiser
from papers.beyond.engine.training import Path

GROWTH = 0.02
OURS = "ours"
MULTICLASS = "arXiv 2502.04664 for linear models"  # Fan, Schmidt and Thrampoulidis
BATCHES = "arXiv 2602.11557 for linear models"  # Li, Tang and Zou
ADAM = "arXiv 2406.10650 for linear models"  # Zhang, Zou and Cao
PER_SAMPLE = "arXiv 2510.26303 for linear models"  # Baek, Song and Yun
RESCALING = "arXiv 2311.14387 for linear models"  # Wang, Min and Wu
MIRROR = "paper C for attention"
TENTH = 119_378  # the first record of a run of 10^6 steps beyond a tenth of them
GAMMA = {
    "l_1": 0.067,
    "nuclear": 0.19,
    "Frobenius": 0.34,
    "l_3": 0.64,
    "spectral": 0.65,
    "l_inf": 2.3,
    "head-wise": 0.8,
}


@dataclass(frozen=True)
class Row:
    """A rule, the norm whose largest margin it was predicted to reach, and the nearest one.

    reached: None where it was predicted to reach none; highest: the norm whose ratio was predicted
    to be the largest in the median. longest: where the rule stops, for what its steps cost or, with
    growing norms, for what a float holds. source: whose theorem says so, OURS where none that we
    know does.
    """

    rule: Optimiser
    reached: str | None
    highest: str
    longest: int = 1_000_000
    source: str = OURS


def step(norm: str, growth: float = GROWTH) -> float:
    """The step of unit length in a norm that raises the margins by about `growth`."""
    return growth / GAMMA[norm]


def steepest_rows(decay: float = 0.0, growth: float = GROWTH) -> dict[str, Row]:
    """Steepest descent in every norm of the atlas, its own norm predicted."""
    return {
        f"steepest, {name}": Row(
            o.steepest(norm, step(name, growth), decay), name, name, source=MULTICLASS
        )
        for name, norm in NORMS.items()
        if name != "head-wise"  # a rule in `_head_rows`
    }


def _memory_rows() -> dict[str, Row]:
    """Rules with moments, on all samples."""
    sign_step, polar_step = step("l_inf"), step("spectral")
    slow = sign_step / 50  # 0.0004 of margin a step: beta_2 = 0.999 forgets e^-0.0005 a step
    return {
        "Muon": Row(o.muon(polar_step), "spectral", "spectral", source=MULTICLASS),
        "Muon, Newton-Schulz": Row(
            o.muon(polar_step, nesterov=True, newton_schulz=5), None, "spectral"
        ),
        "Signum": Row(o.signum(sign_step), "l_inf", "l_inf", source=MULTICLASS),
        "Lion": Row(o.lion(sign_step / 10), "l_inf", "l_inf"),
        "RMSprop, 0.99": Row(o.rmsprop(sign_step / 10), "l_inf", "l_inf"),
        "Adam, 0.999": Row(o.adam(slow), None, "l_inf", source=ADAM),
        "Adam, 0.999, epsilon": Row(o.adam(slow, epsilon=1e-8), None, "l_inf"),
        "AdaGrad": Row(o.adagrad(sign_step), None, "l_inf"),
        "Shampoo, 0.9": Row(o.shampoo(polar_step, 0.9), "spectral", "spectral", TENTH),
        "Shampoo, sums": Row(o.shampoo(polar_step, summed=True), None, "spectral", TENTH),
        "SOAP": Row(o.soap(slow), None, "spectral"),
    }


def _sample_rows() -> dict[str, Row]:
    """The same rules on one sample a step, in turn."""
    few = step("l_inf") / 10
    rows = {
        "steepest, Frobenius": Row(o.steepest(2, step("Frobenius") / 10), None, "Frobenius"),
        "Signum, 0.99": Row(o.signum(few, 0.99), "l_inf", "l_inf", source=PER_SAMPLE),
        "Adam, 0.999": Row(o.adam(few / 5), None, "Frobenius"),
    }
    return {
        f"{name}, per sample": replace(row, rule=o.on_batches(row.rule, 1))
        for name, row in rows.items()
    }


def _head_rows() -> dict[str, Row]:
    """The polar factor by heads, two halves of W's rows, without and with momentum."""
    name = "head-wise"
    rules = {
        "steepest, head-wise": o.steepest("spectral", step(name)),
        "Muon, head-wise": o.muon(step(name)),
    }
    return {what: Row(o.in_blocks(rule, 2), name, name, TENTH) for what, rule in rules.items()}


def _metric_rows() -> dict[str, Row]:
    """Mirror descent, natural gradients, full-matrix AdaGrad, progressive rescaling."""
    name = "Frobenius"
    undamped = o.natural(step(name), normalised=True)
    relative = o.natural(step(name), 0.1, relative=True, normalised=True)
    grown = o.rescaled(o.steepest(2, 1.0), 10.0, 1.2, 200)
    return {
        "mirror, l_3": Row(o.mirror(3, 0.3), "l_3", "l_3", source=MIRROR),
        "natural, undamped": Row(undamped, None, "nuclear", TENTH),
        "natural, damped": Row(o.natural(0.05, 0.01), None, name),
        "natural, damped by trace": Row(relative, name, name, TENTH),
        "AdaGrad, full matrix": Row(o.full_adagrad(step(name)), None, name, 2_000),
        "rescaled, Frobenius": Row(grown, name, name, 20_000, RESCALING),
    }


def growing_rows() -> dict[str, Row]:
    """Steepest descents with steps like t^{1/2}: margins grow by 1 a step from step 2,500 on."""
    rows = steepest_rows(-0.5)
    for name, row in rows.items():
        reached = row.reached if row.reached == "Frobenius" else None
        rows[name] = replace(row, reached=reached, longest=TENTH, source=OURS)
    return rows


def batch_rows(sizes: Sequence[int]) -> dict[str, dict[int, Row]]:
    """Four rules on so many of the samples a step, in turn; their own norm at all samples."""
    rules = {
        "normalised GD": (o.steepest(2, step("Frobenius")), "Frobenius"),
        "sign": (o.steepest(np.inf, step("l_inf")), "l_inf"),
        "polar": (o.steepest("spectral", step("spectral")), "spectral"),
        "Adam, 0.99": (o.adam(step("l_inf") / 5, memory=0.99), "l_inf"),
    }
    return {
        what: {size: Row(o.on_batches(rule, size), None, name, TENTH, BATCHES) for size in sizes}
        for what, (rule, name) in rules.items()
    }


def wrong_memory(row: Row) -> Row:
    """The row as a wrong world has it: its beta_2 = 0.9999."""
    return replace(row, rule=replace(row.rule, memory=0.9999), longest=TENTH)


def rows() -> dict[str, Row]:
    """Every row of the map."""
    return steepest_rows() | _memory_rows() | _sample_rows() | _head_rows() | _metric_rows()


def trained(
    tokens: TokenSet, rows: Mapping[str, Row], steps: int, times: np.ndarray, folder: File
) -> dict[str, Path]:
    """Every row's path, of `steps` or until its `longest`, by `kept.train`; records at `times`."""
    paths = {}
    ends = {name: min(steps, row.longest) for name, row in rows.items()}
    for end in sorted(set(ends.values())):
        ending = {name: row.rule for name, row in rows.items() if ends[name] == end}
        paths |= kept.train(tokens, ending, end, np.append(times[times < end], end), folder)
    return {name: paths[name] for name in rows}


def _moved(rule: Optimiser) -> str:
    """D as a formula in G, M (a mean of G), v (of G^2)."""
    if rule.kind == o.ENTRYWISE:
        named = {1: "sgn of the largest entry of G, there", 2: "G / |G|", np.inf: "sgn(G)"}
        q = rule.p / (rule.p - 1) if 1 < rule.p < np.inf else 0
        return named.get(rule.p, f"sgn(G) |G|^{q - 1:g}, over its l_{rule.p:g} norm")
    if rule.kind == o.SPECTRAL:
        of = "M + (G - M) (1 - mu)" if rule.nesterov else "M" if rule.momentum else "G"
        shape = {o.POLAR: "U V^T", o.LEADING: "u_1 v_1^T"}
        word = shape.get(rule.shape, f"{rule.iterations} Newton-Schulz steps on U S V^T")
        return f"sgn(U V^T), U S V^T = {of}" if rule.signed else f"{word}, U S V^T = {of}"
    if rule.kind == o.ADAPTIVE:
        below = "sqrt(sum G^2)" if rule.summed else "sqrt(v)"
        more = f" + {rule.epsilon:g}" if rule.epsilon else ""
        return f"{'M' if rule.momentum else 'G'} / ({below}{more})"
    return {
        o.SIGN: "sgn(M)"
        if rule.momentum == rule.first_mix
        else "sgn(M' + (G - M') 0.1), M' before G",
        o.SHAMPOO: "L^{-1/4} G R^{-1/4}, L and R of G G^T and G^T G",
        o.SOAP: "Adam's M / sqrt(v) in the eigenbases of Shampoo's L and R",
        o.MIRROR: f"G / |G|_q on sgn(W) |W|^{rule.p - 1:g}",
        o.NATURAL: "(F + damping)^{-1} G",
        o.FULL_ADAGRAD: "(sum vec(G) vec(G)^T)^{-1/2} vec(G)",
    }[rule.kind]


def formula(rule: Optimiser) -> str:
    """One step of a rule in a line: W's move, then what G is and what is done to D and W."""
    parts = ["W += eta D" if not rule.weight_decay else "W = (1 - eta lambda) W + eta D"]
    parts.append(f"D = {_moved(rule)}")
    if rule.blocks > 1:
        parts.append(f"in each of {rule.blocks} blocks")
    if rule.batch:
        parts.append(f"G of {rule.batch} sample" + ", variance reduced" * rule.reduced)
    if rule.radius < np.inf:
        parts.append(f"W in a ball that grows {rule.growth:g} times every {rule.every} steps")
    return "; ".join(parts)


def listing(rows: Mapping[str, Row]) -> list[tuple[str, ...]]:
    """Per row: name, formula, the norm predicted, whose prediction."""
    none = lambda row: f"none; nearest {row.highest}"
    return [
        (name, formula(row.rule), row.reached or none(row), row.source)
        for name, row in rows.items()
    ]
