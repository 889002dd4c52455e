"""The one blinded look: how much the number of steps of a rule varies over the first
six seeds.

`python -m papers.studies.blinded STUDY` prints the standard deviation, within a rule,
of the logarithm of the number of steps to the last target. This deviation is pooled
over SGD, which is the reference, and the rules that a claim compares with SGD. The
command also prints the planned deviation, the ratio f of the two, and the number of
seeds. The number of seeds is n if f is at most 1, and otherwise the next whole number
above n f^2, but at most 1.5 n. No ratio between rules is shown.

Steps are counted to the middle of the three readings whose mean reaches the target. For
a run that missed its target we use the horizon, because the protocol does not say what
to use (our reading).
"""

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lib import files
from lib.training.curves import Curve, load
from papers.studies import confirm
from papers.studies.confirm import FOLDER, RACE, TABLE, Plan
from papers.studies.family import centred_steps, named_rules


@dataclass(frozen=True)
class Look:
    """The result of the blinded look.

    Parameters
    ----------
    deviation
        The standard deviation within a rule of the logarithm of steps, pooled over
        rules.
    planned
        The standard deviation for which the study was planned.
    seeds
        The number of seeds from which the claims are decided.
    """

    deviation: float
    planned: float
    seeds: int

    @property
    def factor(self) -> float:
        """Return f, the measured standard deviation divided by the planned one."""
        return self.deviation / self.planned


def pooled_deviation(steps: Mapping[str, np.ndarray]) -> float:
    """Return the standard deviation of the logarithm of steps within a rule.

    Parameters
    ----------
    steps
        {rule: steps (seeds,)}. All steps are finite, and all rules have the same number
        of seeds.

    Returns
    -------
    float
        The square root of the mean over rules of the variance over seeds (n - 1).
    """
    variances = [np.log(counted).var(ddof=1) for counted in steps.values()]
    return math.sqrt(np.mean(variances))


def planned_deviation(plan: Plan) -> float:
    """Return the planned deviation of a speed study; raise ValueError for other
    studies.
    """
    if plan.deviation is None:
        raise ValueError(
            f"{plan.name} is not about speed, so its number of seeds is fixed"
        )
    return plan.deviation


def seeds_needed(plan: Plan, deviation: float) -> int:
    """Return the number of seeds by the protocol's formula.

    Parameters
    ----------
    plan
        The plan of a speed study, with its planned number n and deviation.
    deviation
        The deviation that the look found.

    Returns
    -------
    int
        n if f, the deviation divided by the planned one, is at most 1; otherwise the
        next whole number above n f^2, but at most 1.5 n.
    """
    factor = deviation / planned_deviation(plan)
    if factor <= 1:
        return plan.seeds
    most = math.floor(TABLE["most"] * plan.seeds)
    return min(math.floor(plan.seeds * factor**2) + 1, most)


def look_at(plan: Plan, curves: Mapping[str, Mapping[int, Curve]]) -> Look:
    """Take the blinded look at the runs of the first six seeds.

    Parameters
    ----------
    plan
        The plan of a speed study.
    curves
        {rule: {seed: run}}, with the first six seeds of the reference and of every rule
        that a claim compares with it.

    Returns
    -------
    Look
        The deviation, the planned deviation and the number of seeds.

    Raises
    ------
    ValueError
        If the study is not about speed.
    KeyError
        If one of these runs is missing.
    """
    last_target = plan.first_round.targets[-1]
    steps = {}
    for rule in named_rules(plan.name):
        counted = [
            centred_steps(curves[rule][seed], last_target) for seed in first_seeds(plan)
        ]
        # The number of steps of a run that missed its target is infinite; it is
        # replaced by the horizon.
        steps[rule] = np.minimum(counted, plan.horizon)
    deviation = pooled_deviation(steps)
    return Look(deviation, planned_deviation(plan), seeds_needed(plan, deviation))


def first_seeds(plan: Plan) -> list[int]:
    """Return the seeds whose runs the blinded look uses."""
    return list(plan.numbers)[: TABLE["look_after"]]


def blinded_look(name: str, folder: Path = FOLDER) -> Look:
    """Read the first six seeds of a study, and take the blinded look.

    Parameters
    ----------
    name
        The name of the study.
    folder
        The folder that contains the folders of the studies.

    Returns
    -------
    Look
        The deviation, the planned deviation and the number of seeds.

    Raises
    ------
    ValueError
        If the study has no plan, is not about speed, has fewer than six complete seeds,
        or lacks the file of its race, or if a file does not agree with the plan.
    """
    known = confirm.plans()
    if name not in known:
        raise ValueError(f"there is no plan for {name!r}, only for {', '.join(known)}")
    plan = known[name]
    # This raises ValueError for a study that is not about speed.
    planned_deviation(plan)
    of_study = Path(folder) / name
    paths = [of_study / f"{seed}.npz" for seed in first_seeds(plan)]
    whole = sum(path.exists() for path in paths)
    if whole < len(paths):
        raise ValueError(
            f"{name} has {whole} of the first {len(paths)} seeds, and needs them all"
        )
    if not (of_study / f"{RACE}.npz").exists():
        raise ValueError(f"{name} lacks {RACE}.npz, by which its rates were chosen")
    decided = confirm.rates(plan, load(of_study / f"{RACE}.npz"))
    curves: dict[str, dict[int, Curve]] = {}
    for path in paths:
        for run in confirm.whole_seed(plan, path, decided).curves:
            curves.setdefault(run.rule, {})[run.seed] = run
    return look_at(plan, curves)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Return 0, or 1 after an error, which is printed in one sentence.
    """
    parser = argparse.ArgumentParser(
        "python -m papers.studies.blinded", description=__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "study", metavar="STUDY", help="look at the first six seeds of this study"
    )
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, help="read the seeds below DIR"
    )
    options = parser.parse_args(arguments)
    try:
        look = blinded_look(options.study, options.folder)
    except (ValueError, OSError) as error:
        print(f"error: {files.sentence(error)}", file=sys.stderr)
        return 1
    print(f"deviation {look.deviation:.4f}")
    print(f"planned {look.planned:.4f}")
    print(f"factor {look.factor:.4f}")
    print(f"seeds {look.seeds}")
    print("a run that missed its target counts with the horizon")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
