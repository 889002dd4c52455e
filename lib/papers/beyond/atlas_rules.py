"""The rows of the atlas: each rule with its step and the norm that it was predicted to maximise.

The predictions are those of notebooks/atlas_protocol.md, written before the runs that judge them.
Steps give every steepest descent about the same growth of margins, GROWTH a step, on unit tokens
of n = 6, T = 8, d = 10, where the largest margin at norm 1 is about GAMMA.
"""

from dataclasses import dataclass, replace

from lib.ambient import optimisers as o
from lib.ambient.optimisers import Optimiser
from lib.papers.beyond.atlas import NORMS

GROWTH = 0.02
GAMMA = {
    "l_1": 0.067,
    "nuclear": 0.19,
    "Frobenius": 0.34,
    "l_3": 0.64,
    "spectral": 0.65,
    "l_inf": 2.3,
}


@dataclass(frozen=True)
class Row:
    """A rule, the norm whose largest margin it was predicted to reach, and the nearest one.

    reached: None where it was predicted to reach none; highest: the norm whose ratio was predicted
    to be the largest in the median.
    """

    rule: Optimiser
    reached: str | None
    highest: str


def step(norm: str, growth: float = GROWTH) -> float:
    """The step of unit length in a norm that raises the margins by about `growth`."""
    return growth / GAMMA[norm]


def steepest_rows(decay: float = 0.0, growth: float = GROWTH) -> dict[str, Row]:
    """Steepest descent in every norm of the atlas, its own norm predicted."""
    return {
        f"steepest, {name}": Row(o.steepest(norm, step(name, growth), decay), name, name)
        for name, norm in NORMS.items()
    }


def memory_rows() -> dict[str, Row]:
    """Rules with moments, on all samples."""
    of_sign, of_polar = step("l_inf"), step("spectral")
    slow = of_sign / 50  # 0.0004 of margin a step: beta_2 = 0.999 forgets e^-0.0005 a step
    return {
        "Muon": Row(o.muon(of_polar), "spectral", "spectral"),
        "Muon, Newton-Schulz": Row(
            o.muon(of_polar, nesterov=True, newton_schulz=5), None, "spectral"
        ),
        "Signum": Row(o.signum(of_sign), "l_inf", "l_inf"),
        "Lion": Row(o.lion(of_sign / 10), "l_inf", "l_inf"),
        "RMSprop, 0.99": Row(o.rmsprop(of_sign / 10), "l_inf", "l_inf"),
        "Adam, 0.999": Row(o.adam(slow), None, "l_inf"),
        "Adam, 0.999, epsilon": Row(o.adam(slow, epsilon=1e-8), None, "l_inf"),
        "AdaGrad": Row(o.adagrad(of_sign), None, "l_inf"),
        "Shampoo, 0.9": Row(o.shampoo(of_polar, 0.9), "spectral", "spectral"),
        "Shampoo, sums": Row(o.shampoo(of_polar, summed=True), None, "spectral"),
        "SOAP": Row(o.soap(slow), None, "spectral"),
    }


def sample_rows() -> dict[str, Row]:
    """The same rules on one sample a step, in turn."""
    few = step("l_inf") / 10
    rows = {
        "steepest, Frobenius": Row(o.steepest(2, step("Frobenius") / 10), None, "Frobenius"),
        "Signum, 0.99": Row(o.signum(few, 0.99), "l_inf", "l_inf"),
        "Adam, 0.999": Row(o.adam(few / 5), None, "Frobenius"),
    }
    return {
        f"{name}, per sample": replace(row, rule=o.on_batches(row.rule, 1))
        for name, row in rows.items()
    }


def rows() -> dict[str, Row]:
    """Every row of the map."""
    return steepest_rows() | memory_rows() | sample_rows()
