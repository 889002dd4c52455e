"""Wrong worlds: small, named falsehoods that a claim with statistical power must
detect.

A claim detects a wrong world if it holds in the true world and fails in the wrong one.
A ledger computes its rows in the true world, `World()`, and in wrong worlds. A wrong
world changes one thing: what theory names as the end point, the step, the curve, the
data, or the exponent p.
"""

from dataclasses import dataclass, replace

import numpy as np

from lib.attention.coordinates import Minimal
from lib.attention.token_sets import TokenSet
from lib.dynamics import History
from lib.dynamics.in_coordinates.rules import MirrorDescent
from lib.dynamics.rules import Custom, Polyak, Rule
from lib.seeds import stream
from lib.svm import MaxMargin

FAMILIES = {  # For each family: the words for its size, and sizes from small to large.
    "target rotated": ("{:g} %", (0.01, 0.05, 0.3)),
    "norm off": ("{:+g} %", (0.01, -0.01, 0.05, -0.05, 0.3, -0.3)),
    "constant off": ("{:+g} %", (0.01, -0.01, 0.05, -0.05, 0.3, -0.3)),
    "step off": ("{:+g} %", (0.01, -0.01, 0.05, -0.05, 0.3, -0.3, 1.0)),
    "exponent off": ("{:+g}", (0.1, -0.1, 0.3, -0.3)),
    "inner products raised": ("{:g} %", (0.01, 0.05, 0.3, 1.0)),
    "p off": ("{:+g}", (0.1, -0.1, 0.5, -0.5)),
    "label turned": ("one sample", (1.0,)),
    "selection exchanged": ("one sample", (1.0,)),
    "inner product turned": ("one pair", (1.0,)),
    "cap ignored": ("wholly", (1.0,)),
    "sigma off": ("{:+g} %", (0.05, -0.05, 0.3)),
    "identity for the preconditioner": ("wholly", (1.0,)),
    "identity for the metric": ("wholly", (1.0,)),
    "variance reduction left out": ("wholly", (1.0,)),
}


@dataclass(frozen=True)
class World:
    """The true world, or one that is wrong by `size` in the way that `family` names.

    Raises ValueError for an unknown family.
    """

    family: str = ""
    size: float = 0.0

    def __post_init__(self):
        if self.family and self.family not in FAMILIES:
            raise ValueError(f"{self.family!r}: choose one of {', '.join(FAMILIES)}")

    def __str__(self) -> str:
        if not self.family:
            return "the true world"
        text = FAMILIES[self.family][0]
        return f"{self.family}, {text.format(100 * self.size if '%' in text else self.size)}"

    @property
    def small(self) -> bool:
        """Whether the world is off by at most 5 %, 0.1 in an exponent, or one sample or
        pair.
        """
        text = FAMILIES[self.family][0]
        return "one" in text or abs(self.size) <= (0.05 if "%" in text else 0.1) + 1e-12

    def of(self, family: str) -> float:
        """Return how far this world is off in `family`; 0 if it is right."""
        return self.size if family == self.family else 0.0

    def target(self, solution: MaxMargin) -> MaxMargin:
        """Return the end point as this world has it.

        It is rotated by a direction error of `size`, or its norm is off.
        """
        value = solution.value
        factor = 1 + self.of("norm off")
        flat = value.reshape(len(value), -1)
        streams = [stream(run, "draws") for run in range(len(flat))]
        away = np.stack([draw.standard_normal(flat.shape[1]) for draw in streams])
        away -= flat * ((away * flat).sum(1) / (flat * flat).sum(1))[:, None]
        away *= (np.linalg.norm(flat, axis=1) / np.linalg.norm(away, axis=1))[:, None]
        cosine = 1 - self.of("target rotated") ** 2 / 2
        turned = factor * (cosine * flat + np.sqrt(1 - cosine**2) * away)
        # (runs, d, d_z), of a head (runs, d, 1)
        weights = turned.reshape(*value.shape[:2], -1)
        return replace(solution, norm=solution.norm * factor, _weights=lambda: weights)

    def rule(self, rule: Rule) -> Rule:
        """Return the rule as this world has it: with another step size, or another p.

        Polyak's step that is off by 100 % lacks its factor 1/2.
        """
        factor = 1 + self.of("step off")
        if isinstance(rule, MirrorDescent):
            off = max(1.01, rule.p + self.of("p off"))
            return replace(rule, step_size=rule.step_size * factor, p=off)
        if factor == 1 or isinstance(rule, Custom):
            return rule
        if isinstance(rule, Polyak):
            cap = np.log(rule.max_step)
            half = np.log(factor / 2)
            return Custom(
                lambda t, gap, norm: np.minimum(half + gap - 2 * norm, cap),
                logarithmic=True,
            )
        return replace(rule, step_size=rule.step_size * factor)

    def problem(self, problem: Minimal) -> Minimal:
        """Return the data on which this world trains; see `tokens`."""
        return replace(problem, tokens=self.tokens(problem.tokens))

    def tokens(self, tokens: TokenSet) -> TokenSet:
        """Return the tokens of this world.

        The label of the first sample is flipped, or all inner products are raised by a
        common vector, on average by `size` times the product of the two norms.
        """
        if self.of("label turned"):
            y = tokens.y.copy()
            y[:, 0] *= -1
            return replace(tokens, y=y)
        if share := self.of("inner products raised"):
            size = np.linalg.norm(tokens.X, axis=-1, keepdims=True)
            # Random: the sum of the coordinates is zero for the head of class means.
            common = stream(0, "draws").standard_normal(tokens.X.shape[-1])
            common /= np.linalg.norm(common)
            return replace(tokens, X=tokens.X + np.sqrt(share) * size * common)
        return tokens

    def trained(self) -> "World":
        """Return the world as training sees it.

        Only wrong steps, labels and inner products change training; all else is true.
        """
        trains_otherwise = ("step off", "label turned", "inner products raised")
        return self if self.family in trains_otherwise else World()

    def history(self, history: History) -> History:
        """Return a run as this world sees it, trained with targets from `around`.

        The direction error is that of the target that the world names. The exponents in
        t of norms, direction errors, log gap, log weights and score gaps are off by
        `size`, and the last record is right.
        """
        if size := self.of("target rotated"):
            suffix = f"@{size:g}"
        else:
            suffix = ""
        measures = (
            "direction_error alignment descent head_direction_error head_alignment"
        )
        for name in measures.split():
            known = getattr(history, name)
            named = {
                key: known.get(key + suffix, value) for key, value in known.items()
            }
            history = replace(history, **{name: named})
        if not (off := self.of("exponent off")):
            return history
        scale = (history.iterations.clip(1) / history.iterations[-1]) ** off
        curves = {
            n: getattr(history, n) * scale for n in ("norm", "head_norm", "log_gap")
        }
        for name in ("direction_error", "head_direction_error"):
            curves[name] = {key: v * scale for key, v in getattr(history, name).items()}
        log_miss = history.log_miss * scale[:, None]
        gaps = history.score_gaps
        return replace(
            history, **curves, log_miss=log_miss, score_gaps=gaps * scale[:, None, None]
        )


TRUE = World()


def worlds(family: str) -> list[World]:
    """List every wrong world of the family, from small to large."""
    return [World(family, size) for size in FAMILIES[family][1]]


def around(name: str, solution: MaxMargin) -> dict[str, np.ndarray]:
    """Return the end point under `name`, and its rotations by each size as
    name@size.
    """
    turned = worlds("target rotated")
    rotated = {f"{name}@{world.size:g}": world.target(solution).W for world in turned}
    return {name: solution.value} | rotated
