"""Altered copies of a ledger ("wrong worlds"), in which one thing is false by a known
amount.

A claim detects a wrong world if it holds in the true world and fails in the wrong one.
The code of a ledger describes only the true world. The context manager `inside`
replaces some names in the modules that the ledger calls. They stand for the solver's
end point that is passed to a claim, the training, the curve that is read, or a formula.
`PATCHES` lists these names, by ledger and family of worlds.

A function with a cache returns what was measured in the true world, even if other names
are replaced, unless `PATCHES` says that it is measured `afresh`.
"""

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial, wraps
from pkgutil import resolve_name
from typing import Any
from unittest import mock

import numpy as np

from lib import dynamics
from lib.attention.coordinates import Minimal
from lib.attention.token_sets import TokenSet
from lib.dynamics import History
from lib.dynamics.in_coordinates.rules import MirrorDescent
from lib.dynamics.rules import Custom, Polyak, Rule
from lib.regression import Regression
from lib.seeds import stream
from lib.svm import MaxMargin

# For each family: how the size of its error is written, and the sizes from small to
# large.
FAMILIES = {
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
    "sigma off": ("{:+g} %", (0.05, -0.05, 0.3)),
    "identity for the metric": ("wholly", (1.0,)),
    "variance reduction left out": ("wholly", (1.0,)),
}


@dataclass(frozen=True)
class World:
    """An altered copy (a "world") in which one thing is false by `size`; `family` says
    which thing.

    Each method returns one thing as it is in this world. If the family is about
    something else, the method returns this thing unchanged. An unknown family raises
    ValueError.
    """

    family: str
    size: float

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ValueError(f"{self.family!r}: choose one of {', '.join(FAMILIES)}")

    def __str__(self) -> str:
        text = FAMILIES[self.family][0]
        if "%" in text:
            size = 100 * self.size
        else:
            size = self.size
        return f"{self.family}, {text.format(size)}"

    @property
    def small(self) -> bool:
        """Return whether the error of this world is small: at most 5 %, at most 0.1 in
        an exponent, or only in one sample or pair.
        """
        text = FAMILIES[self.family][0]
        largest = 0.05 if "%" in text else 0.1
        return "one" in text or abs(self.size) <= largest + 1e-12

    def of(self, family: str) -> float:
        """Return the size of this world's error in `family`, which is 0 if the world is
        right there.
        """
        return self.size if family == self.family else 0.0

    def turned(self, value: np.ndarray) -> np.ndarray:
        """Return vectors or matrices (runs, ...) as this world has them.

        Each vector or matrix is rotated by a direction error of `size`, or its norm is
        changed. None of them may be zero, and each needs at least two entries.
        """
        factor = 1 + self.of("norm off")
        flat = value.reshape(len(value), -1)
        streams = [stream(run, "draws") for run in range(len(flat))]
        away = np.stack([draw.standard_normal(flat.shape[1]) for draw in streams])
        away -= flat * ((away * flat).sum(1) / (flat * flat).sum(1))[:, None]
        away *= (np.linalg.norm(flat, axis=1) / np.linalg.norm(away, axis=1))[:, None]
        cosine = 1 - self.of("target rotated") ** 2 / 2
        turned = factor * (cosine * flat + np.sqrt(1 - cosine**2) * away)
        return turned.reshape(value.shape)

    def target(self, solution: MaxMargin) -> MaxMargin:
        """Return the end point as this world has it.

        It is rotated by a direction error of `size`, or its norm is changed.
        """
        weights = self.turned(solution.value)
        if weights.ndim == 2:  # a head, (runs, d, 1)
            weights = weights[..., None]
        norm = solution.norm * (1 + self.of("norm off"))
        return replace(solution, norm=norm, _weights=lambda: weights)

    def end_points(self, targets: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return the targets of training as this world has them.

        The end points that theory predicts are `turned`. Those of other selections are
        unchanged.
        """
        if not targets:
            return targets
        turned = dict(targets)
        for name in turned.keys() & {"W_mm", "u_mm"}:
            value = turned[name]
            if isinstance(value, MaxMargin):
                value = value.value
            turned[name] = self.turned(value)
        return turned

    def rule(self, rule: Rule) -> Rule:
        """Return the rule as this world has it: with another step size, or another p.

        If the step of Polyak's rule is off by 100 %, it lacks the factor 1/2; the cap
        is unchanged. A changed p is at least 1.01. A Custom rule is unchanged.
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

    def rules(self, rules: Rule | Mapping[Any, Rule]) -> Rule | dict[Any, Rule]:
        """Apply `rule` to one rule, or to each of several."""
        if isinstance(rules, Mapping):
            return {name: self.rule(rule) for name, rule in rules.items()}
        return self.rule(rules)

    def problem(self, problem: Minimal | TokenSet) -> Minimal | TokenSet:
        """Return the data on which this world trains; see `tokens`."""
        if isinstance(problem, Minimal):
            return replace(problem, tokens=self.tokens(problem.tokens))
        return self.tokens(problem)

    def tokens(self, tokens: TokenSet) -> TokenSet:
        """Return the tokens of this world.

        In one family, the label of the first sample is flipped in every run. In
        another, a common vector raises all inner products of two tokens, on average by
        `size` times the product of the two norms. Queries are unchanged.
        """
        if self.of("label turned"):
            y = tokens.y.copy()
            y[:, 0] *= -1
            return replace(tokens, y=y)
        if share := self.of("inner products raised"):
            size = np.linalg.norm(tokens.X, axis=-1, keepdims=True)
            # The vector is random, because a constant one is orthogonal to the head of
            # class means.
            common = stream(0, "draws").standard_normal(tokens.X.shape[-1])
            common /= np.linalg.norm(common)
            return replace(tokens, X=tokens.X + np.sqrt(share) * size * common)
        return tokens

    def selection(self, selection: Any) -> Any:
        """Return a selection of paper C with the `tokens` and the `target` of this
        world.
        """
        tokens = self.tokens(selection.tokens)
        return replace(
            selection, tokens=tokens, solution=self.target(selection.solution)
        )

    def history(self, history: History) -> History:
        """Return a run as this world has it.

        The exponents in t of norms, direction errors, log gap, log weights and score
        gaps are changed by `size`; the last record is unchanged.
        """
        scale = (history.iterations.clip(1) / history.iterations[-1]) ** self.of(
            "exponent off"
        )
        curves: dict[str, Any] = {
            name: getattr(history, name) * scale
            for name in ("norm", "head_norm", "log_gap")
        }
        for name in ("direction_error", "head_direction_error"):
            errors = getattr(history, name)
            curves[name] = {key: value * scale for key, value in errors.items()}
        curves["log_miss"] = history.log_miss * scale[:, None]
        curves["score_gaps"] = history.score_gaps * scale[:, None, None]
        return replace(history, **curves)

    def histories(self, trained: Any) -> Any:
        """Apply `history` to one history, or to each of several, by rule."""
        if isinstance(trained, History):
            return self.history(trained)
        return {name: self.history(history) for name, history in trained.items()}

    def covariance(self, problem: Regression) -> Regression:
        """Return paper B's problem for the closed forms, with Sigma too large by
        `size`.
        """
        return replace(problem, Sigma=problem.Sigma * (1 + self.of("sigma off")))


def worlds(family: str) -> list[World]:
    """List every wrong world of the family, from small to large."""
    return [World(family, size) for size in FAMILIES[family][1]]


Change = Callable[[World, Any], Any]


@dataclass(frozen=True)
class Patch:
    """A `name` in a module, and a function from the world and the original to its
    replacement.
    """

    name: str
    by: Callable[[World, Any], Any]

    @property
    def place(self) -> tuple[Any, str]:
        """Return the module or class that has the name, and the name's last part."""
        owner, _, attribute = self.name.rpartition(".")
        return resolve_name(owner), attribute


def argument(name: str, change: Change) -> Callable[[World, Any], Any]:
    """Build a patch that replaces a function by one that changes its argument `name`.

    If a call leaves the argument at its default, nothing is changed.
    """

    def patched(world: World, function: Any) -> Any:
        signature = inspect.signature(function)

        @wraps(function)
        def replaced(*args: Any, **named: Any) -> Any:
            bound = signature.bind(*args, **named)
            if name in bound.arguments:
                bound.arguments[name] = change(world, bound.arguments[name])
            return function(*bound.args, **bound.kwargs)

        return replaced

    return patched


def result(change: Change) -> Callable[[World, Any], Any]:
    """Build a patch that replaces a function by one that changes its result."""

    def patched(world: World, function: Any) -> Any:
        @wraps(function)
        def replaced(*args: Any, **named: Any) -> Any:
            return change(world, function(*args, **named))

        return replaced

    return patched


def afresh(world: World, function: Any) -> Any:
    """Return a copy of a function with a cache.

    The copy has its own cache, which is empty.
    """
    return cache(function.__wrapped__)


def value(new: Any) -> Callable[[World, Any], Any]:
    """Build a patch that replaces a value by the constant `new`."""
    return lambda world, old: new


def larger(family: str) -> Change:
    """Build a change that multiplies numbers by 1 plus the size of the world's error in
    the family.
    """
    return lambda world, number: number * (1 + world.of(family))


def smaller(family: str) -> Change:
    """Build a change that divides numbers by 1 plus the size of the world's error in
    the family.

    This is for a ratio whose denominator is a constant of the family.
    """
    return lambda world, ratio: ratio / (1 + world.of(family))


def each(change: Change) -> Change:
    """Build the change that applies `change` to every value of a mapping."""
    return lambda world, values: {
        name: change(world, number) for name, number in values.items()
    }


def _tilted(world: World, x: Any, values: np.ndarray) -> np.ndarray:
    """Return `values` (..., k) over x (k,) with another exponent in x.

    At the last x they are unchanged.
    """
    x = np.asarray(x, float)
    return values * (x / x[-1]) ** world.of("exponent off")


def _fit_of_tilted(world: World, fit: Any) -> Any:
    """Replace a fit of an exponent, fit(x, values), by a fit of the `_tilted` curve."""
    return lambda x, values, *more: fit(x, _tilted(world, x, values), *more)


# ---------------------------------------------------------------- paper A
_A = "papers.a.ledger_rows"
_TRAINED = Patch(f"{_A}._trained", afresh)
# All claims that detect wrong training are about the small start, so we train from no
# other start.
_TRAINS_OTHERWISE = (_TRAINED, Patch(f"{_A}.STARTS", value(("small",))))
_TRAIN = "lib.dynamics.train"
_STEPS = Patch(_TRAIN, argument("rules", World.rules))
_DATA = Patch(_TRAIN, argument("tokens", World.problem))
_NAMED_ENDS = (
    Patch("papers.a.fixed_head.small_start", argument("solution", World.target)),
    Patch("papers.a.fixed_head.lemma6", argument("solution", World.target)),
    Patch("papers.a.fixed_head.lemma2", argument("solution", World.target)),
    Patch("papers.a.joint_training.eq13", argument("head", World.target)),
    Patch("papers.a.joint_training.lemma3", argument("head", World.target)),
    Patch(f"{_A}._stationary", argument("target", World.target)),
    Patch(f"{_A}._growth_of_ngd", argument("target", World.target)),
    Patch(f"{_A}._lemma14", argument("head", World.target)),
)


def _exchanged(world: World, trained: Any) -> Any:
    """Return histories in which the alignments with W_mm and with the end point of
    another selection are exchanged.
    """
    runs = {}
    for rule, history in trained.items():
        near = dict(history.alignment)
        near["W_mm"], near["exchanged"] = near["exchanged"], near["W_mm"]
        runs[rule] = replace(history, alignment=near)
    return runs


def _spread_otherwise(world: World, function: Any) -> Any:
    """Replace `_spreads` with a function whose result grows like a different power of
    d.
    """

    @wraps(function)
    def spreads(tokens: TokenSet, *more: float) -> tuple[np.ndarray, ...]:
        scale = float(tokens.shape[-1]) ** world.of("exponent off")
        return tuple(scale * spread for spread in function(tokens, *more))

    return spreads


_OF_A: dict[str, tuple[Patch, ...]] = {
    "target rotated": (
        *_NAMED_ENDS,
        Patch(_TRAIN, argument("targets", World.end_points)),
        Patch(_TRAIN, argument("head_targets", World.end_points)),
        _TRAINED,
    ),
    "norm off": _NAMED_ENDS,
    "step off": (_STEPS, *_TRAINS_OTHERWISE),
    "exponent off": (
        Patch(_TRAIN, result(World.histories)),
        Patch(f"{_A}._trained", result(World.histories)),
        Patch(f"{_A}._spreads", _spread_otherwise),
    ),
    "label turned": (
        _DATA,
        *_TRAINS_OTHERWISE,
        Patch(f"{_A}._data_claims", argument("tokens", World.tokens)),
        Patch(f"{_A}._lemma14", argument("tokens", World.tokens)),
        Patch(f"{_A}._stationary", argument("tokens", World.tokens)),
    ),
    "inner products raised": (
        _DATA,
        *_TRAINS_OTHERWISE,
        *(
            Patch(f"papers.a.assumptions.{name}", argument("tokens", World.tokens))
            for name in (
                "score_gaps",
                "near_orthogonality",
                "orthogonality_of_all_tokens",
            )
        ),
        Patch(f"{_A}._lemma11", argument("tokens", World.tokens)),
    ),
    "inner product turned": (
        Patch("papers.a.phase_diagram.two_samples", lambda world, f: partial(f, 1.0)),
        Patch(
            "papers.a.phase_diagram.two_samples_of",
            argument("K", lambda world, K: np.abs(K)),
        ),
    ),
    "selection exchanged": (Patch(f"{_A}._trained", result(_exchanged)),),
    "constant off": (
        Patch("papers.a.phase_diagram.theta_star", result(larger("constant off"))),
        Patch(
            f"{_A}._longest_differences",
            result(lambda world, D: D * (1 - world.size)),
        ),
    ),
    "sigma off": (Patch(f"{_A}._thousand_starts", result(larger("sigma off"))),),
}

# ---------------------------------------------------------------- paper B
_B = "papers.b.ledger_rows"


def _landscape_over_larger_constants(world: World, measured: tuple) -> tuple:
    """Return the result of `_landscape_measured` as if theory had larger constants.

    The curvatures and the ratios of Lemma 2 are divided by these constants.
    """
    points, distance, worst, ratios = measured
    over = each(smaller("constant off"))
    return points, distance, over(world, worst), over(world, ratios)


def _longer_steps(world: World, rule: Any) -> Any:
    """Replace the class of a rule by a function that returns the rule with a longer
    step.
    """
    return lambda step_size: rule(step_size * (1 + world.of("step off")))


_OF_B: dict[str, tuple[Patch, ...]] = {
    "sigma off": (
        Patch(
            "lib.regression.Regression.assumptions", argument("self", World.covariance)
        ),
        *(
            Patch(f"papers.b.landscape.{name}", argument("named", World.covariance))
            for name in (
                "by_monte_carlo",
                "sample_average",
                "minima",
                "convexity",
                "lemma1_symmetry",
            )
        ),
    ),
    "constant off": (
        Patch(f"{_B}._self_logits", result(larger("constant off"))),
        Patch(f"{_B}._landscape_measured", result(_landscape_over_larger_constants)),
        Patch(
            "papers.b.landscape.lemma1_ratios", result(each(smaller("constant off")))
        ),
        Patch(
            "papers.b.landscape.lemma8_formulas", result(each(larger("constant off")))
        ),
        Patch("papers.b.scaling.least_squares_errors", result(smaller("constant off"))),
    ),
    "exponent off": (
        Patch(f"{_B}.log_slope", _fit_of_tilted),
        Patch(f"{_B}.leading", _fit_of_tilted),
    ),
    "step off": (Patch("papers.b.scaling.PreconditionedRule", _longer_steps),),
}

# ---------------------------------------------------------------- paper C
_C = "papers.c.ledger_rows"
_NAMED_SELECTIONS = tuple(
    Patch(name, argument("selection", World.selection))
    for name in (
        f"{_C}._on_the_edge",
        f"{_C}._near_runs",
        "papers.c.lemmas.lemma27",
        "papers.c.lemmas.lemma28",
    )
)


def _turned(world: World, target: np.ndarray) -> np.ndarray:
    """Apply `turned` to targets (runs, ...), or to a single one (k,)."""
    if target.ndim == 1:
        return world.turned(target[None])[0]
    return world.turned(target)


def _grown_otherwise(world: World, history: History) -> History:
    """Return a run of lp-AttGD in which ||W||_{p,p} has another exponent in t."""
    t = history.iterations.clip(1)
    return replace(history, own_norm=_tilted(world, t, history.own_norm))


def _diverging_otherwise(world: World, lemma29: Any) -> Any:
    """Replace `lemma29` by a function that checks divergences whose exponent in t is
    changed.
    """

    @wraps(lemma29)
    def of_tilted(history: History, p: float, divergence: np.ndarray) -> Any:
        t = history.iterations.clip(1)
        return lemma29(history, p, _tilted(world, t, divergence))

    return of_tilted


_OF_C: dict[str, tuple[Patch, ...]] = {
    "target rotated": (
        *_NAMED_SELECTIONS,
        Patch(f"{_C}._far_out", argument("target", _turned)),
        Patch(f"{_C}._rate_claims", argument("solution", World.target)),
        # The targets of the regularisation paths
        Patch("papers.c.predecessor.directional_bregman", argument("V", _turned)),
    ),
    "norm off": (
        *_NAMED_SELECTIONS,
        Patch("papers.c.lemmas.lemma30", argument("size", larger("norm off"))),
    ),
    "label turned": _NAMED_SELECTIONS[:1],
    "constant off": (
        Patch(f"{_C}._least_ratio", result(smaller("constant off"))),
        Patch("papers.c.lemmas.claim", argument("values", smaller("constant off"))),
    ),
    "step off": (_STEPS,),
    "p off": (_STEPS,),
    "exponent off": (
        Patch("papers.c.lemmas.lemma29", _diverging_otherwise),
        Patch("papers.c.lemmas.lemma30", argument("history", _grown_otherwise)),
    ),
}

# ---------------------------------------------------------------- the atlas
_ATLAS = "papers.atlas.ledger_rows"


class UnsignedOLion(dynamics.OLion):
    """OLion without the sign: it steps by the orthogonalised momentum itself."""

    def _own_numbers(self) -> dict[str, float]:
        return super()._own_numbers() | {"signed": False}


def _without_sign(world: World, rule: Rule) -> Rule:
    """Return OLion without its sign. Other rules are returned unchanged."""
    if isinstance(rule, dynamics.OLion):
        return UnsignedOLion(rule.step_size)
    return rule


def _without_reduction(world: World, rule: Rule) -> Rule:
    """Return a rule without its variance reduction.

    A rule that has none is returned unchanged.
    """
    if getattr(rule, "variance_reduced", False):
        return replace(rule, variance_reduced=False)
    return rule


def _at_rest_otherwise(world: World, end: Any) -> Any:
    """Return the limits of the runs as if theory predicted another weight decay."""
    factor = 1 + world.of("constant off")
    return replace(end, size=factor * end.size, law=factor * end.law)


def identity_moments(world: World, path: History) -> History:
    """Return a history in which the moments of the rule give the identity as its
    metric.
    """
    runs = len(path.W)
    d, d_z = path.W.shape[2:]
    left = [np.eye(d)] * runs
    right = [np.eye(d_z)] * runs
    moments: Any = {"second": [None] * runs, "left": left, "right": right}
    return replace(path, moments=moments)


def _reached_in_frobenius(world: World, predictions: Any) -> Any:
    """Replace `predictions` by a function that uses the Frobenius ratio in every norm.

    It does so only for the rules with variance reduction.
    """
    atlas = importlib.import_module("papers.atlas.atlas")
    column = atlas.column("Frobenius")

    def in_frobenius(ratios: Any) -> Any:
        alone = ratios.value[..., column : column + 1]
        return replace(ratios, value=np.repeat(alone, len(atlas.NORMS), -1))

    @wraps(predictions)
    def of_identity(rows: Mapping[str, Any], reached: Mapping[str, Any]) -> Any:
        seen = dict(reached)
        for name, row in rows.items():
            if getattr(row.rule, "variance_reduced", False):
                seen[name] = in_frobenius(seen[name])
        return predictions(rows, seen)

    return of_identity


_OF_THE_ATLAS: dict[str, tuple[Patch, ...]] = {
    "identity for the metric": (
        Patch(
            "papers.atlas.atlas_used.at_rest",
            argument("row", lambda world, row: replace(row, highest="Frobenius")),
        ),
        Patch("papers.atlas.atlas_used.own_ratios", argument("path", identity_moments)),
        Patch(
            "papers.atlas.atlas_used.turns",
            result(lambda world, R: np.broadcast_to(np.eye(R.shape[-1]), R.shape)),
        ),
        Patch(f"{_ATLAS}._path", argument("rule", _without_sign)),
        Patch("papers.atlas.atlas_rules.predictions", _reached_in_frobenius),
    ),
    "constant off": (
        Patch("papers.atlas.atlas_used.at_rest", result(_at_rest_otherwise)),
        Patch("papers.atlas.atlas_used.turns", result(larger("constant off"))),
    ),
    "variance reduction left out": (
        Patch(f"{_ATLAS}._path", argument("rule", _without_reduction)),
    ),
}

# By ledger and then by family, what is replaced in the worlds of this family.
PATCHES: dict[str, dict[str, tuple[Patch, ...]]] = {
    "A": _OF_A,
    "B": _OF_B,
    "C": _OF_C,
    "atlas": _OF_THE_ATLAS,
}


def _in_truth(function: Any, replaced: list[tuple[Any, str, Any]]) -> Any:
    """Return the function as it runs in the true world, even if other names are
    `replaced`.

    While it runs, the original values are restored.
    """

    @wraps(function)
    def undisturbed(*args: Any, **named: Any) -> Any:
        with ExitStack() as stack:
            for owner, attribute, original in replaced:
                stack.enter_context(mock.patch.object(owner, attribute, original))
            return function(*args, **named)

    return undisturbed


@contextmanager
def inside(world: World, ledger: str) -> Iterator[None]:
    """Run the sections of a `ledger` in a wrong world, as a context manager.

    The function raises ValueError if the ledger has no such world.
    """
    if world.family not in PATCHES[ledger]:
        raise ValueError(
            f"{world.family!r}: the ledger {ledger!r} has no such world, only "
            f"{', '.join(PATCHES[ledger])}"
        )
    patches = PATCHES[ledger][world.family]
    rows = importlib.import_module(f"papers.{ledger.lower()}.ledger_rows")
    cached = [
        (rows, name, function)
        for name, function in vars(rows).items()
        if hasattr(function, "cache_info")
    ]
    replaced = cached + [(*patch.place, getattr(*patch.place)) for patch in patches]
    fresh = {patch.name for patch in patches if patch.by is afresh}
    with ExitStack() as stack:
        for owner, name, function in cached:
            if f"{rows.__name__}.{name}" not in fresh:
                undisturbed = _in_truth(function, replaced)
                stack.enter_context(mock.patch.object(owner, name, undisturbed))
        # A name may be replaced twice. The second patch then replaces the result of the
        # first one.
        for patch in patches:
            owner, name = patch.place
            new = patch.by(world, getattr(owner, name))
            stack.enter_context(mock.patch.object(owner, name, new))
        yield
