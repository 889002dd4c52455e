"""What paper C claims of its vision transformer, from the study `vit_48000`."""

from itertools import product

import numpy as np

from lib.companion.claims import Claim, Table
from lib.companion.record import Number, finite
from lib.training.curves import Curves
from papers import kept_curves, verdicts
from papers.c.reviews import accuracy_difference, at_end, late, matched, of_pair
from papers.kept_curves import judge

SOURCE = "paper C, vision"
RULES = ("Adam", "l1.1")
# What is compared, and where: along which metric both runs are at one level.
EARLY, SPARSER = ("steps", "test_accuracy"), ("hoyer", "control_loss", False)


def steps_to_accuracy(curves: Curves) -> np.ndarray:
    """Steps of `RULES` to the best sampled test accuracy that both reach, (2, seeds)."""
    return matched(curves, EARLY[0], RULES, *EARLY[1:])


def _early(curves: Curves) -> Claim:
    """Adam gets to the accuracy that both reach in fewer steps."""

    def measure():
        adam, mirror = steps_to_accuracy(curves)
        text = (
            ": steps to the best test accuracy that both reach, over those of l1.1,"
            f" {len(adam)} seeds; {_two_rates(curves, lambda x, y: x / y, *EARLY)}"
        )
        return text, verdicts.ratio_interval(adam / mirror)

    about = "vit.early", "Adam ahead early", SOURCE
    return judge(curves, *about, verdicts.faster, measure)


def _sparser(curves: Curves) -> Claim:
    """The median Hoyer index is larger under l1.1, at matched training loss."""

    def measure():
        adam, mirror = matched(curves, SPARSER[0], RULES, *SPARSER[1:])
        runs = (curves.runs(rule) for rule in ("l1.1", "Adam"))
        last = [np.mean([at_end(run, "hoyer") for run in of_rule]) for of_rule in runs]
        text = (
            ": Hoyer index, l1.1 minus Adam, at matched training loss"
            f" (at the end {last[0]:.3f} and {last[1]:.3f});"
            f" {_two_rates(curves, lambda x, y: y - x, *SPARSER)}"
        )
        return text, verdicts.mean_interval(mirror - adam)

    return judge(curves, "vit.sparser", "l1.1 sparser", SOURCE, verdicts.above, measure)


def _two_rates(curves: Curves, compared, name: str, *along) -> str:
    """Least and most that is `compared` at the best two rates of both, in the trials."""
    best = (sorted(curves.trials(rule), key=late)[-2:] for rule in RULES)
    values = [compared(*of_pair(pair, name, *along)) for pair in product(*best)]
    return f"at the best two rates of both, in the trials, {min(values):.2g} to {max(values):.2g}"


def table(curves: Curves) -> Table:
    """Adam ahead early, l1.1 sparser; equal ends after 1,000 epochs are not tested."""
    return Table([_early(curves), _sparser(curves)])


def numbers(curves: Curves) -> dict[str, Number]:
    """Those of `kept_curves`, Hoyer indices, accuracies apart at the end."""
    measured = kept_curves.numbers(curves)
    for rule in RULES:
        index = np.mean([at_end(run, "hoyer") for run in curves.runs(rule)])
        measured[f"{rule.lower().replace('.', '_')}_hoyer"] = finite(index, 1e-9)
    return measured | kept_curves.ends("end_apart", accuracy_difference(curves, *RULES))
