"""What paper A's Figures 1, 4, 6 and 7 claim, from the kept curves of a study."""

import numpy as np

from lib.companion import claims
from lib.companion.claims import Claim, Table
from lib.companion.record import Number, finite
from lib.training.curves import Curve, Curves
from lib.training.rules import STEP_SIZED
from papers import kept_curves, verdicts
from papers.kept_curves import judge
from papers.verdicts import Interval

REFERENCE = "SGD"
FORMULA = 1e-5  # largest relative error of a step against its equation


def steps(curves: Curves, rule: str, target: float) -> np.ndarray:
    """Steps to `target` of every seed, (seeds,), infinite where a run was censored."""
    return np.array([run.steps_to(target) for run in curves.runs(rule)])


def ratio(curves: Curves, rule: str, target: float) -> Interval:
    """Steps of `rule` to `target` over SGD's, paired by seed."""
    both = (steps(curves, name, target) for name in (rule, REFERENCE))
    return verdicts.steps_ratio(*both, curves.configuration["horizon"])


def speed(curves: Curves, rule: str, figure: str) -> Claim:
    """What paper A says of `rule` in `figure`, judged at the last target."""
    word, target = CLAIMED[figure][rule], curves.configuration["targets"][-1]
    source = f"paper A, Figure {figure.removeprefix('fig')}"
    source += " (our bound)" if word is verdicts.no_gain else ""

    def measure():
        measured = ratio(curves, rule, target)
        text = f": steps to loss {target:g} over SGD's, {len(measured.values)} seeds"
        text += f" ({measured.note})" if measured.note else ""
        if both := _at_two_rates(curves, rule, target):
            ends = f"{both[0]:.2f} to {both[1]:.2f}"
            text += f"; at the best two rates of both, in the trials, {ends}"
        return text, measured

    text = f"{rule} {word.__name__.replace('_', ' ')}"
    return judge(curves, f"{figure}.{rule.lower()}", text, source, word, measure)


def _at_two_rates(curves: Curves, rule: str, target: float) -> tuple[float, float] | None:
    """The least and largest ratio of steps at the best two rates of `rule` and of SGD
    in the raced trials; None where less than two of both reached `target`."""
    theirs, mine = (
        sorted(trial.steps_to(target) for trial in curves.trials(name))[:2]
        for name in (REFERENCE, rule)
    )
    if len([*theirs, *mine]) < 4 or np.isinf([*theirs, *mine]).any():
        return None
    return mine[0] / theirs[1], mine[1] / theirs[0]


# What the paper says of each figure. Of Adam in Figure 7 it says nothing.
CLAIMED = {
    "fig1": dict.fromkeys(("SNGD", "SPS", "Adam"), verdicts.faster),
    "fig4": dict.fromkeys(("SNGD", "SPS", "Adam"), verdicts.faster),
    "fig6": {"SNGD": verdicts.slower, "Adam": verdicts.no_gain},
    "fig7": {"SNGD": verdicts.slower},
}


def _step_error(run: Curve) -> float:  # the largest relative one, at the run's loss and ‖g‖
    loss, norm = run.loss.astype(float), run.gradient_norm.astype(float)
    if run.rule == "SNGD":
        expected = np.minimum(run.rate / norm, run.cap)
    else:
        expected = np.minimum(loss / (2 * norm**2), run.rate)
    return float(np.max(np.abs(run.step_size / expected - 1)))


def _formulas(curves: Curves) -> list[Claim]:
    """Steps against the equations, worst run of each rule: a check of the code."""
    equation = {"SNGD": "paper A, Eq. 2", "SPS": "paper A, Eq. 3"}
    measured = []
    for rule in filter(curves.runs, STEP_SIZED):
        id, text = f"formula.{rule}", f"{rule}: worst error of a step"
        worst = max(map(_step_error, curves.runs(rule)))
        measured.append(claims.at_most(id, text, equation[rule], worst, FORMULA))
    return measured


# Of parameters that are no matrices; and "mlp.0.weight" is of the norm before the MLP.
VECTORS = ("norm", "bias", "class_token", "log_temperature", "head.0")


def growth(curves: Curves, rule: str) -> dict[str, np.ndarray]:
    """‖W‖ / ‖W_0‖ - 1 at the end, of matrices, not of vectors: {name: (seeds,)}."""
    norms = lambda name: [run.weight_norms[name] for run in curves.runs(rule)]
    return {name: np.array([n[-1] / n[0] - 1 for n in norms(name)]) for name in layers(curves)}


def random_walk(curves: Curves, rule: str) -> dict[str, np.ndarray]:
    """sqrt(1 + Σ ‖ΔW‖² / ‖W_0‖²) - 1: `growth` of steps in no common direction."""
    walked = lambda run, name: np.sqrt(1 + run.walked[name][-1] / run.weight_norms[name][0] ** 2)
    runs = curves.runs(rule)
    return {name: np.array([walked(run, name) - 1 for run in runs]) for name in layers(curves)}


def layers(curves: Curves) -> list[str]:
    """Names of the weight matrices, in the network's order."""
    vector = lambda name: name.endswith("mlp.0.weight") or any(part in name for part in VECTORS)
    return [name for name in curves.runs(REFERENCE)[0].weight_norms if not vector(name)]


def _growing(curves: Curves, rule: str) -> Claim:
    """Every layer grows, more than a random walk of its steps."""

    def measure():
        grown, walk = growth(curves, rule), random_walk(curves, rule)
        beyond = {layer: values - walk[layer] for layer, values in grown.items()}
        further, longer = (
            sum(values.mean() > 0 for values in part.values()) for part in (beyond, grown)
        )
        lowest = min(beyond, key=lambda name: beyond[name].mean())
        text = (
            f" beyond a random walk of its steps ({further} of {len(grown)} do, {longer} grow"
            f" at all): smallest growth less the walk's, least in {lowest}"
        )
        return text, verdicts.mean_interval(np.min(list(beyond.values()), axis=0))

    id, text = f"fig7.growth.{rule.lower()}", f"every layer grows under {rule}"
    return judge(curves, id, text, "paper A, Figure 7", verdicts.above, measure)


def table(curves: Curves, figure: str) -> Table:
    """The claims of Figure 1, 4, 6 or 7 ("fig1", ...) on the curves of its study."""
    rows = [speed(curves, rule, figure) for rule in CLAIMED[figure]]
    if curves.configuration["walk"]:
        rows += [_growing(curves, rule) for rule in curves.configuration["rates"]]
    return Table([*rows, *_formulas(curves)])


def numbers(curves: Curves) -> dict[str, Number]:
    """Those of `kept_curves`, median last loss and steps ratio of every rule."""
    study = curves.configuration
    measured = kept_curves.numbers(curves)
    for rule in study["rates"]:
        name, last = rule.lower(), [r.smooth(study["window"])[-1] for r in curves.runs(rule)]
        measured[f"{name}_training_loss"] = finite(np.median(last), 1e-6)
        if rule != REFERENCE:
            interval = ratio(curves, rule, study["targets"][-1])
            measured |= kept_curves.ends(f"{name}_steps_ratio", interval)
    return measured
