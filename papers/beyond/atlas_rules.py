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
        if name != "head-wise"  # a rule in `head_rows`
    }


def memory_rows() -> dict[str, Row]:
    """Rules with moments, on all samples."""
    of_sign, of_polar = step("l_inf"), step("spectral")
    slow = of_sign / 50  # 0.0004 of margin a step: beta_2 = 0.999 forgets e^-0.0005 a step
    return {
        "Muon": Row(o.muon(of_polar), "spectral", "spectral", source=MULTICLASS),
        "Muon, Newton-Schulz": Row(
            o.muon(of_polar, nesterov=True, newton_schulz=5), None, "spectral"
        ),
        "Signum": Row(o.signum(of_sign), "l_inf", "l_inf", source=MULTICLASS),
        "Lion": Row(o.lion(of_sign / 10), "l_inf", "l_inf"),
        "RMSprop, 0.99": Row(o.rmsprop(of_sign / 10), "l_inf", "l_inf"),
        "Adam, 0.999": Row(o.adam(slow), None, "l_inf", source=ADAM),
        "Adam, 0.999, epsilon": Row(o.adam(slow, epsilon=1e-8), None, "l_inf"),
        "AdaGrad": Row(o.adagrad(of_sign), None, "l_inf"),
        "Shampoo, 0.9": Row(o.shampoo(of_polar, 0.9), "spectral", "spectral", TENTH),
        "Shampoo, sums": Row(o.shampoo(of_polar, summed=True), None, "spectral", TENTH),
        "SOAP": Row(o.soap(slow), None, "spectral"),
    }


def sample_rows() -> dict[str, Row]:
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


def head_rows() -> dict[str, Row]:
    """The polar factor by heads, two halves of W's rows, without and with momentum."""
    of_heads, name = step("head-wise"), "head-wise"
    rules = {
        "steepest, head-wise": o.steepest("spectral", of_heads),
        "Muon, head-wise": o.muon(of_heads),
    }
    return {what: Row(o.in_blocks(rule, 2), name, name, TENTH) for what, rule in rules.items()}


def metric_rows() -> dict[str, Row]:
    """Mirror descent, natural gradients, full-matrix AdaGrad, progressive rescaling."""
    of_frobenius, name = step("Frobenius"), "Frobenius"
    relative = o.natural(of_frobenius, 0.1, relative=True, normalised=True)
    grown = o.rescaled(o.steepest(2, 1.0), 10.0, 1.2, 200)
    return {
        "mirror, l_3": Row(o.mirror(3, 0.3), "l_3", "l_3", source=MIRROR),
        "natural, undamped": Row(o.natural(of_frobenius, normalised=True), None, "nuclear", TENTH),
        "natural, damped": Row(o.natural(0.05, 0.01), None, name),
        "natural, damped by trace": Row(relative, name, name, TENTH),
        "AdaGrad, full matrix": Row(o.full_adagrad(of_frobenius), None, name, 2_000),
        "rescaled, Frobenius": Row(grown, name, name, 20_000, RESCALING),
    }


def growing_rows() -> dict[str, Row]:
    """Steepest descents with steps like t^{1/2}: margins grow by 1 a step from step 2,500 on."""
    return {
        name: replace(
            row,
            reached=row.reached if row.reached == "Frobenius" else None,
            longest=TENTH,
            source=OURS,
        )
        for name, row in steepest_rows(-0.5).items()
    }


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
    return steepest_rows() | memory_rows() | sample_rows() | head_rows() | metric_rows()


def trained(
    tokens: TokenSet, rows: Mapping[str, Row], steps: int, times: np.ndarray, folder: File
) -> dict[str, Path]:
    """Every row's path, of `steps` or until its `longest`, by `kept.train`; records at `times`."""
    paths = {}
    for end in sorted({min(steps, row.longest) for row in rows.values()}):
        some = {name: row.rule for name, row in rows.items() if min(steps, row.longest) == end}
        paths |= kept.train(tokens, some, end, np.append(times[times < end], end), folder)
    return {name: paths[name] for name in rows}
