"""What paper C claims of its vision transformer, from the kept curves of the study `vit`."""

import numpy as np

from lib.companion.claims import Claim, Table
from lib.companion.record import Number, finite
from lib.papers.c.reviews import accuracy, accuracy_difference, at_end, matched
from lib.papers.kept_curves import few, judge
from lib.training import verdicts
from lib.training.curves import Curves
from lib.training.verdicts import Interval

MARGIN = 0.015  # of test accuracy within which two rules end equal
SOURCE = "paper C, vision"
RULES = ("Adam", "l1.1")


def early(curves: Curves) -> Interval:
    """Adam's sampled test accuracy less that of l1.1, at the first evaluation after the start."""
    first, second = (
        np.array([run.metrics["test_accuracy"][1] for run in curves.runs(rule)]) for rule in RULES
    )
    return verdicts.mean_interval(first - second)


def sparser(curves: Curves) -> Claim:
    """The median Hoyer index of weight matrices is larger under l1.1, at matched training loss."""
    adam, mirror = matched(curves, "hoyer", RULES, "control_loss", rising=False)
    found = verdicts.mean_interval(mirror - adam)
    last = [
        np.mean([at_end(run, "hoyer") for run in curves.runs(rule)]) for rule in ("l1.1", "Adam")
    ]
    text = (
        "Hoyer index, l1.1 minus Adam, at matched training loss"
        f" (at the end {last[0]:.3f} and {last[1]:.3f})"
    )
    return judge("vit.sparser", text, SOURCE, found, verdicts.above(found))


def table(curves: Curves) -> Table:
    """Equal ends, Adam ahead early, l1.1 sparser."""
    words = {
        "vit.end": "Adam and l1.1 end equal",
        "vit.early": "Adam is ahead early",
        "vit.sparser": "l1.1 is sparser",
    }
    unknown = [few(name, text, SOURCE, curves) for name, text in words.items()]
    if all(unknown):
        return Table(unknown)
    end, begin = accuracy_difference(curves, *RULES), early(curves)
    equal, within = verdicts.equivalent(end, MARGIN), f"interval within ± {MARGIN}"
    last = f"Adam minus l1.1, last test accuracy, {len(end.values)} seeds"
    first = "Adam minus l1.1, test accuracy at the first evaluation"
    rows = [
        judge("vit.end", last, f"{SOURCE} (our bound)", end, equal, within),
        judge("vit.early", first, SOURCE, begin, verdicts.above(begin)),
        sparser(curves),
    ]
    return Table(rows)


def numbers(curves: Curves) -> dict[str, Number]:
    """Test accuracy, rate, Hoyer index of both rules; exact, since from stored curves."""
    found = {"seeds": Number(float(len(curves.seeds())), 0.0)}
    for rule in RULES:
        name = rule.lower().replace(".", "_")
        index = np.mean([at_end(run, "hoyer") for run in curves.runs(rule)])
        found |= {
            f"{name}_test_accuracy": finite(accuracy(curves, rule).mean(), 1e-9),
            f"{name}_hoyer": finite(index, 1e-9),
            f"{name}_rate": finite(curves.rates()[rule], 1e-12),
        }
    return found | {"processor_hours": finite(curves.hours(), 1e-6)}
