"""Run the confirmation: fresh seeds for every claim on real data, one file per seed.

`python -m papers.studies.confirm multi_nli_200 --state DIR` races two learning rates of
each rule against each other, and then trains one seed after another with every rule.
The file of a seed is written after all its rules have run, so that a file is either
complete or missing. The same command resumes where it stopped, several processes may
run it at once, and a seed that has a file is not trained again. confirm.toml lists what
is run and how often, and notebooks/confirmation.md says why.
"""

import argparse
import contextlib
import io
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from lib import files
from lib.training.curves import Curve, Curves, load
from lib.training.studies import STUDIES
from lib.training.study import Study
from lib.training.work import OutOfTime, Run, Work

TABLE = files.read_table(Path(__file__).with_suffix(".toml"))
FOLDER = files.ROOT / "figures" / "desk" / "confirm"
RACE = "race"  # the name of the file that holds a study's races


@dataclass(frozen=True)
class Plan:
    """What is fixed about one study before its first run.

    Parameters
    ----------
    name
        The study, a key of `lib.training.studies.STUDIES`.
    seeds
        How many seeds are used, counted from `first_seed`.
    rates
        {rule: candidate rates}, beginning with the rate of the first round. A single
        candidate is the rate of the rule; two candidates are raced against each other
        on `race_seeds`.
    horizon, evaluations
        As in `Study`: the horizon in steps, and the number of evaluations.
    deviation
        The planned standard deviation of the logarithm of a rule's number of steps to
        the target. It is None for a study that is not about speed.
    cap
        The largest step of SNGD. If it is None, the largest step is the rate of SPS.
    grown
        How many of the first seeds run every rule for at least `stop_from` steps.
    stop_from
        The step after which a run of these seeds may end. If it is 0, the run ends at
        its target, like the runs of all other seeds.
    later
        The rules that are run on the seeds after the first `grown` ones. An empty list
        means all rules.
    """

    name: str
    seeds: int
    rates: Mapping[str, Sequence[float]]
    horizon: int
    evaluations: int
    deviation: float | None = None
    cap: float | None = None
    grown: int = 0
    stop_from: int = 0
    later: Sequence[str] = field(default_factory=tuple)

    @property
    def first_round(self) -> Study:
        """Return the study of the first round, whose data, network, batch and targets
        are used again.
        """
        return STUDIES[self.name]

    @property
    def speed(self) -> bool:
        """Return whether the claims of the study are about steps to a target."""
        return self.first_round.criterion == "speed"

    @property
    def numbers(self) -> range:
        """Return the numbers of the seeds from which the claims are decided."""
        return range(TABLE["first_seed"], TABLE["first_seed"] + self.seeds)

    def grows(self, seed: int) -> bool:
        """Return whether the growth of norms is measured on `seed`."""
        return seed < TABLE["first_seed"] + self.grown

    def rules(self, seed: int) -> list[str]:
        """Return the rules that `seed` runs, in the order of the plan."""
        if self.grows(seed) or not self.later:
            return list(self.rates)
        return list(self.later)

    def study(self, rates: Mapping[str, Sequence[float]], grows: bool = False) -> Study:
        """Return the study with the given candidate learning `rates`.

        A run of a speed study ends at the first reading of its last target. If it
        measures growth (`grows`), it does not end before the step `stop_from`. Other
        studies run to their horizon, so that it is known in advance which evaluations
        decide their claims.
        """
        last_target = self.first_round.targets[-1]
        return replace(
            self.first_round,
            rates=rates,
            horizon=self.horizon,
            evaluations=self.evaluations,
            stop_at=last_target if self.speed else None,
            stop_from=self.stop_from if grows else 0,
            walk=grows,
            cap=self.cap,
            seeds=self.seeds,
            first_seed=TABLE["first_seed"],
        )


def plans() -> dict[str, Plan]:
    """Return the plans by the names of their studies, in the order of confirm.toml."""
    tables = {name: row for name, row in TABLE.items() if isinstance(row, Mapping)}
    return {name: Plan(name, **row) for name, row in tables.items()}


def with_seeds(plan: Plan, seeds: int) -> Plan:
    """Return the plan with as many seeds as the blinded look requires.

    Parameters
    ----------
    plan
        The plan as confirm.toml has it.
    seeds
        How many seeds are used.

    Returns
    -------
    Plan
        The same plan, with this number of seeds.

    Raises
    ------
    ValueError
        If there are fewer seeds than planned or more than the protocol allows, or if
        there are more than planned although the study is not about speed.
    """
    if plan.speed:
        most = math.floor(TABLE["most"] * plan.seeds)
    else:
        most = plan.seeds
    if not plan.seeds <= seeds <= most:
        raise ValueError(f"{plan.name} has {plan.seeds} to {most} seeds, not {seeds}")
    return replace(plan, seeds=seeds)


def cost(plan: Plan, run: Curve) -> float:
    """Return the cost by which a race compares its runs; smaller is better.

    In a speed study the cost is the number of steps to the last target, which is
    infinite if the target was not reached. In other studies it is minus the mean of the
    last four accuracies on held-out training rows. The cost of a run that diverged is
    infinite.
    """
    steps_or_zero, accuracy_or_reading = plan.first_round.score(run)
    return steps_or_zero if plan.speed else accuracy_or_reading


def chosen(plan: Plan, rule: str, races: Sequence[Curve]) -> float:
    """Return the learning rate of `rule` with the smallest median cost over the seeds
    of the race.

    In a tie the rate of the first round wins. The function raises ValueError if a seed
    is missing.
    """
    candidates = plan.rates[rule]
    if len(candidates) == 1:
        return candidates[0]
    medians = []
    for rate in candidates:
        runs = [run for run in races if run.rule == rule and run.rate == rate]
        if sorted(run.seed for run in runs) != TABLE["race_seeds"]:
            raise ValueError(
                f"the race of {rule} {rate:g} in {plan.name} is not finished"
            )
        medians.append(float(np.median([cost(plan, run) for run in runs])))
    return candidates[int(np.argmin(medians))]


class Confirmation:
    """The runs of one plan: its races, then its seeds.

    Parameters
    ----------
    plan
        What is run.
    out
        The folder that contains the study's folder of result files.
    state
        The folder for checkpoints and single runs. This folder may be deleted.
    until
        The time (`time.monotonic`) at which training stops with `OutOfTime`.
    say
        A function that is called with one line of text about each run.
    """

    def __init__(
        self,
        plan: Plan,
        out: Path,
        state: Path,
        until: float = math.inf,
        say: Callable[[str], None] = print,
    ) -> None:
        self.plan = plan
        self.folder = Path(out) / plan.name
        self.state = Path(state)
        self.until = until
        self.say = say

    def _work(self, study: Study) -> Work:
        minutes = (self.until - time.monotonic()) / 60
        if minutes <= 0:
            raise OutOfTime("no further run was begun")
        work = Work(study, self.state, minutes, say=self.say, cpu=True)
        ours = {name: work.made[name] for name in ("code", "torch", "threads")}
        planned = {name: TABLE[name] for name in ours}
        if ours != planned:
            raise ValueError(
                f"the confirmation runs with {planned}, here are {ours}:"
                f" run it from a clone of commit {TABLE['commit']}"
            )
        return work

    def race(self) -> dict[str, float]:
        """Run the races that have no file yet, and return the learning rate of each
        rule.

        SPS comes before SNGD, because the cap of SNGD is the rate of SPS if the plan
        gives none. A trial of the first round is used as a run of the race if it has
        the same rate and the same cap. The method raises ValueError if the library's
        code, torch or the number of threads differ from the planned ones, and
        `OutOfTime` at the time `until`.
        """
        path = self.folder / f"{RACE}.npz"
        if path.exists():
            return rates(self.plan, load(path))
        work = self._work(self.plan.study(self.plan.rates))
        kept = usable_trials(self.plan)
        trained: list[Curve] = []
        decided: dict[str, float] = {}
        for rule in self.plan.rates:
            wanted = _raced(self.plan, rule, decided)
            trained += work.all_of(
                [run for run in wanted if _matching(kept, run) is None]
            )
            found = [_matching([*kept, *trained], run) for run in wanted]
            decided[rule] = chosen(
                self.plan, rule, [run for run in found if run is not None]
            )
        Curves(work.configuration, tuple(trained)).save(path)
        self.say(f"{self.plan.name}: rates {decided}")
        return decided

    def run(self) -> None:
        """Run the races, and every seed that has no file yet and that no other process
        is running.

        The method raises ValueError in the cases in which `race` does, and `OutOfTime`
        at the time `until`.
        """
        decided = self.race()
        works: dict[tuple, Work] = {}
        for seed in self.plan.numbers:
            path = self.folder / f"{seed}.npz"
            if path.exists():
                continue
            lock = FileLock(self.state / f".{self.plan.name}-{seed}.lock")
            with contextlib.suppress(Timeout), lock.acquire(blocking=False):
                grows = self.plan.grows(seed)
                rules = self.plan.rules(seed)
                key = (grows, *rules)
                if key not in works:
                    given = {rule: (decided[rule],) for rule in rules}
                    works[key] = self._work(self.plan.study(given, grows))
                cap = _cap(self.plan, decided)
                runs = [
                    Run.of("curve", rule, decided[rule], cap, seed) for rule in rules
                ]
                curves = works[key].all_of(runs)
                Curves(works[key].configuration, tuple(curves)).save(path)
                self.say(f"{path} is whole")


def _cap(plan: Plan, decided: Mapping[str, float]) -> float | None:
    """Return the cap of SNGD: the cap in the plan, or else the learning rate of SPS."""
    if plan.cap is not None:
        return plan.cap
    return decided.get("SPS")


def _matching(known: Sequence[Curve], wanted: Run) -> Curve | None:
    """Return the curve in `known` that belongs to the run `wanted`, if there is one."""
    names = ("rule", "rate", "cap", "seed")
    for curve in known:
        if all(getattr(curve, name) == getattr(wanted, name) for name in names):
            return curve
    return None


def first_round(plan: Plan) -> Curves:
    """Return the committed curves of the first round of a study."""
    return _loaded(files.ROOT / "figures" / "desk" / f"{plan.name}.npz")


@cache
def _loaded(path: Path) -> Curves:
    """Return the curves in a file, which is read once: every race needs them again."""
    return load(path)


def usable_trials(plan: Plan) -> list[Curve]:
    """Return the trials of the first round that also count in the race.

    A trial that was stopped early does not show how it would have ended. So in a speed
    study we use a trial if it reached the last target, and in other studies if it ran
    to the horizon.
    """
    trials = [run for run in first_round(plan).curves if run.part == "trial"]
    if plan.speed:
        return [run for run in trials if math.isfinite(cost(plan, run))]
    return [run for run in trials if run.status == "finished"]


def rates(plan: Plan, race: Curves) -> dict[str, float]:
    """Return the learning rate of each rule, from the `race` and the first round's
    trials.

    The function raises ValueError if a run of the race is missing.
    """
    decided: dict[str, float] = {}
    for rule in plan.rates:
        decided[rule] = chosen(plan, rule, raced_runs(plan, rule, race, decided))
    return decided


def raced_runs(
    plan: Plan, rule: str, race: Curves, decided: Mapping[str, float]
) -> list[Curve]:
    """Return the runs by which the learning rate of a rule was chosen.

    Parameters
    ----------
    plan
        The plan of the study.
    rule
        The rule.
    race
        The curves of the race.
    decided
        The rates of the rules that come before `rule`. The cap of SNGD depends on these
        rates.

    Returns
    -------
    list of Curve
        The runs of the race, and the trials of the first round that are used. The list
        is empty if the rate was given and not raced.
    """
    known = [*race.curves, *usable_trials(plan)]
    found = [_matching(known, run) for run in _raced(plan, rule, decided)]
    return [run for run in found if run is not None]


def _raced(plan: Plan, rule: str, decided: Mapping[str, float]) -> list[Run]:
    """Return the runs of the race of `rule`, or none if its learning rate is given."""
    if len(plan.rates[rule]) == 1:
        return []
    return [
        Run.of("trial", rule, rate, _cap(plan, decided), seed)
        for seed in TABLE["race_seeds"]
        for rate in plan.rates[rule]
    ]


def refuse_other_code(path: Path, run: Curve) -> None:
    """Raise ValueError if the code, torch or the number of threads of a run differ from
    the planned ones.

    Parameters
    ----------
    path
        The file with the run. The error gives its name.
    run
        The run.
    """
    for name in ("code", "torch", "threads"):
        if run.made.get(name) != TABLE[name]:
            raise ValueError(
                f"{path}: {run.rule} was run with {name} {run.made.get(name)!r}, the"
                f" confirmation has {TABLE[name]!r}; move the file away"
            )


def whole_seed(plan: Plan, path: Path, decided: Mapping[str, float]) -> Curves:
    """Read the file of one seed, check that it agrees with the plan, and return its
    runs.

    Parameters
    ----------
    plan
        The plan of the study.
    path
        The file, named after its seed.
    decided
        The rate of each rule.

    Returns
    -------
    Curves
        The runs of the seed, one for each rule that the plan has for it.

    Raises
    ------
    ValueError
        The message is one sentence that names the file. The possible reasons are:
        the file cannot be read; its seed is not in the plan, or is not the one in its
        name; runs are missing, duplicated or unfinished; the runs belong to another
        study, or have other rates or caps; or the code, torch or the number of threads
        differ from the planned ones.
    """
    curves = load(path)
    seeds = {run.seed for run in curves.curves}
    if {str(seed) for seed in seeds} != {path.stem}:
        raise ValueError(f"{path} holds seed {sorted(seeds)}, not the one of its name")
    seed = int(path.stem)
    if seed not in plan.numbers:
        raise ValueError(f"{path} is of seed {seed}; the plan has {plan.numbers}")
    planned = plan.study(plan.rates)
    expectations = {
        "horizon": planned.horizon,
        "batch": planned.batch,
        "clock": planned.clock,
        "targets": list(planned.targets),
    }
    for name, expected in expectations.items():
        found = curves.configuration[name]
        if found != expected:
            raise ValueError(
                f"{path} is of a study with {name} {found}, the plan has {expected}"
            )
    for run in curves.curves:
        refuse_other_code(path, run)
        if run.rate != decided.get(run.rule):
            raise ValueError(
                f"{path}: {run.rule} was run at rate {run.rate:g}, the race chose"
                f" {decided.get(run.rule)}; move the file away"
            )
        cap = _cap(plan, decided) if run.rule == "SNGD" else None
        if run.cap != cap:
            raise ValueError(
                f"{path}: {run.rule} was run with cap {run.cap}, the plan has {cap}"
            )
        if run.paused:
            raise ValueError(
                f"{path}: {run.rule} is {run.status}; the seed is not whole"
            )
    rules = [run.rule for run in curves.curves]
    if sorted(rules) != sorted(plan.rules(seed)):
        raise ValueError(f"{path} has runs of {rules}, the plan has {plan.rules(seed)}")
    return curves


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m papers.studies.confirm", description=__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "studies", nargs="*", metavar="STUDY", help="train these; without any, all"
    )
    parser.add_argument(
        "--out", type=Path, default=FOLDER, help="keep a seed's file below DIR"
    )
    state = files.folder("runs") / "studies"
    parser.add_argument(
        "--state", type=Path, default=state, help="keep unfinished runs in DIR"
    )
    words = "train so many seeds, if the blinded look asks for more than the plan has"
    parser.add_argument("--seeds", type=int, help=words)
    words = "stop after this many minutes and save; rerun to continue"
    parser.add_argument("--minutes", type=float, default=math.inf, help=words)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Return 0, or 3 if the time is over, or 1 after an error, which is printed.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    options = _options(arguments)
    until = time.monotonic() + 60 * options.minutes
    known = plans()
    try:
        for name in options.studies or known:
            if name not in known:
                raise ValueError(
                    f"there is no plan for {name!r}, only for {', '.join(known)}"
                )
            plan = known[name]
            if options.seeds is not None:
                plan = with_seeds(plan, options.seeds)
            os.makedirs(options.state, exist_ok=True)
            Confirmation(plan, options.out, options.state, until).run()
    except OutOfTime as rest:
        print(f"the minutes are used up ({rest}); the same command goes on from here")
        return 3
    except (ValueError, OSError) as error:
        print(f"error: {files.sentence(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
