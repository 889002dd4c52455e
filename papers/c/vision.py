"""What paper C claims of its vision transformer, from the kept curves of the study `vit_48000`."""

from itertools import product

import numpy as np

from lib.companion.claims import Claim, Table
from lib.companion.record import Number, finite
from lib.training.curves import Curves
from papers import verdicts
from papers.c.reviews import accuracy, accuracy_difference, at_end, late, matched, of_pair
from papers.kept_curves import few, gate_numbers, judge

SOURCE = "paper C, vision"
RULES = ("Adam", "l1.1")
# What is compared, and where: along which metric both runs are at one level.
EARLY, SPARSER = ("steps", "test_accuracy"), ("hoyer", "control_loss", False)


def steps_to_accuracy(curves: Curves) -> np.ndarray:
    """Steps of both `RULES` to the best sampled test accuracy that both reach: (2, seeds)."""
    return matched(curves, EARLY[0], RULES, *EARLY[1:])


def _early(curves: Curves) -> Claim:
    """Adam gets to the accuracy that both reach in fewer steps."""
    adam, mirror = steps_to_accuracy(curves)
    measured = verdicts.ratio_interval(adam / mirror)
    text = (
        "Adam ahead early: steps to the best test accuracy that both reach, over those of l1.1,"
        f" {len(measured.values)} seeds; {_two_rates(curves, lambda x, y: x / y, *EARLY)}"
    )
    return judge("vit.early", text, SOURCE, curves, measured, verdicts.faster, "interval below 1")


def _sparser(curves: Curves) -> Claim:
    """The median Hoyer index of weight matrices is larger under l1.1, at matched training loss."""
    adam, mirror = matched(curves, SPARSER[0], RULES, *SPARSER[1:])
    measured = verdicts.mean_interval(mirror - adam)
    last = [np.mean([at_end(run, "hoyer") for run in curves.runs(r)]) for r in ("l1.1", "Adam")]
    text = (
        "l1.1 sparser: Hoyer index, l1.1 minus Adam, at matched training loss"
        f" (at the end {last[0]:.3f} and {last[1]:.3f});"
        f" {_two_rates(curves, lambda x, y: y - x, *SPARSER)}"
    )
    return judge("vit.sparser", text, SOURCE, curves, measured, verdicts.above)


def _two_rates(curves: Curves, compared, name: str, *along) -> str:
    """The least and the most that is `compared` at the best two rates of both, in the trials."""
    best = (sorted(curves.trials(rule), key=late)[-2:] for rule in RULES)
    values = [compared(*of_pair(pair, name, *along)) for pair in product(*best)]
    return f"at the best two rates of both, in the trials, {min(values):.2g} to {max(values):.2g}"


def table(curves: Curves) -> Table:
    """Adam ahead early, l1.1 sparser. Equal ends after 1,000 epochs are not tested here."""
    words = {"vit.early": "Adam ahead early", "vit.sparser": "l1.1 sparser"}
    unknown = [few(name, text, SOURCE, curves) for name, text in words.items()]
    return Table(unknown if all(unknown) else [_early(curves), _sparser(curves)])


def numbers(curves: Curves) -> dict[str, Number]:
    """Test accuracy, rate, Hoyer index of both rules; exact, since from stored curves."""
    measured = {"seeds": Number(float(len(curves.seeds())), 0.0)}
    for rule in RULES:
        name = rule.lower().replace(".", "_")
        index = np.mean([at_end(run, "hoyer") for run in curves.runs(rule)])
        measured |= {
            f"{name}_test_accuracy": finite(accuracy(curves, rule).mean(), 1e-9),
            f"{name}_hoyer": finite(index, 1e-9),
            f"{name}_rate": finite(curves.rates()[rule], 1e-12),
        }
    apart = accuracy_difference(curves, *RULES)
    measured |= gate_numbers(curves)
    return measured | {
        "end_apart": finite(apart.estimate, 1e-9),
        "end_apart_low": finite(apart.low, 1e-6),
        "end_apart_high": finite(apart.high, 1e-6),
        "processor_hours": finite(curves.hours(), 1e-6),
    }
