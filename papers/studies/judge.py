"""Decide the claims of the confirmation by its protocol: each claim gets an interval, a
p, Holm's p and a verdict.

`python -m papers.studies.judge` decides the family of 21 claims from the files of the
seeds in figures/desk/confirm. If a study has fewer seeds than it needs, the command
stops with an error. With `--hours-ended`, which means that no more seeds will be run,
it continues, and every verdict says from how many seeds it is decided. If studies are
given as arguments, only their claims are decided. The claims of all other studies then
enter Holm's rule with p = 1, which can only make a verdict harder to reach.
"""

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from lib import files
from lib.training.curves import Curve, Curves, load
from papers import verdicts
from papers.studies import confirm, kept_curves
from papers.studies.blinded import first_seeds, look_at
from papers.studies.confirm import FOLDER, RACE, TABLE, Plan
from papers.studies.decide import ALPHA, Case, Decision, decide
from papers.studies.family import (
    FAMILY,
    REVIEWS,
    FamilyClaim,
    Runs,
    ends,
    gate_on_reviews,
)
from papers.studies.intervals import NotMeasurable
from papers.verdicts import SAME, UNDECIDED

FEWEST = 2  # fewest seeds from which an interval can be computed


@dataclass(frozen=True)
class Verdict:
    """The verdict on one claim, in plain values.

    Parameters
    ----------
    claim, study, text
        The claim's name in the protocol, the study whose runs decide the claim, and
        what the paper says.
    estimate, low, high
        The estimate and its interval at 95 %. They are NaN if the claim cannot be
        decided.
    alone
        The verdict of that interval, without the correction.
    p, holm
        The claim's p, and its p adjusted by Holm's rule.
    word
        The verdict, by Holm's rule.
    corrected
        The two ends of the claim's interval at the level at which Holm's rule tests the
        claim. The verdict is the one of this interval. The ends are NaN if the claim
        cannot be decided.
    level
        This level.
    seeds, planned
        From how many seeds the claim is decided, and how many were planned for it.
    notes
        Remarks on the verdict, such as "after 19 epochs", or the reason why there is no
        verdict.
    beside
        Further numbers {name: value}, on which the verdict does not depend.
    """

    claim: str
    study: str
    text: str
    estimate: float
    low: float
    high: float
    alone: str
    p: float
    holm: float
    word: str
    corrected: tuple[float, float]
    level: float
    seeds: int
    planned: int
    notes: tuple[str, ...] = ()
    beside: Mapping = field(default_factory=dict)


# Reading.


def read_runs(plan: Plan, folder: Path, hours_ended: bool = False) -> Runs | None:
    """Read the complete seeds from which the claims of a study are decided.

    Parameters
    ----------
    plan
        The plan as in confirm.toml.
    folder
        The folder that contains the folders of the studies.
    hours_ended
        Whether the claims are decided even if there are fewer seeds than needed.

    Returns
    -------
    Runs or None
        The runs. Their plan has the number of seeds that the blinded look requires. The
        result is None if no seed is complete and `hours_ended` is true.

    Raises
    ------
    ValueError
        The message is one sentence. The possible reasons are: the file of the race is
        missing; seeds of the study are missing and `hours_ended` is false; two files
        belong to one seed, or a file belongs to none; there is a seed beyond the number
        needed; two files differ in their data or networks; or a file does not agree
        with the plan.
    """
    of_study = Path(folder) / plan.name
    paths = [path for path in sorted(of_study.glob("*.npz")) if path.stem != RACE]
    race_path = of_study / f"{RACE}.npz"
    if paths and not race_path.exists():
        raise ValueError(f"{race_path} is missing, by which the rates were chosen")
    if not paths:
        if hours_ended:
            return None
        missing = f"{plan.seeds} of {plan.seeds} seeds are missing"
        raise ValueError(
            f"{plan.name} is not full: {missing}; --hours-ended judges without them"
        )
    _refuse_twice(paths)
    race = load(race_path)
    for run in race.curves:
        confirm.refuse_other_code(race_path, run)
    decided = confirm.rates(plan, race)

    # The blinded look may have raised the number of seeds, so we first read more files
    # than planned.
    if plan.speed:
        most = math.floor(TABLE["most"] * plan.seeds)
    else:
        most = plan.seeds
    widest = confirm.with_seeds(plan, most)
    kept = [confirm.whole_seed(widest, path, decided) for path in paths]
    _refuse_other_data(paths, kept)
    curves: dict[str, dict[int, Curve]] = {}
    for seed_file in kept:
        for run in seed_file.curves:
            curves.setdefault(run.rule, {})[run.seed] = run
    seeds = sorted(int(path.stem) for path in paths)

    needed = plan.seeds
    if plan.speed and set(first_seeds(plan)) <= set(seeds):
        needed = look_at(plan, curves).seeds
    final = confirm.with_seeds(plan, needed)
    beyond = [seed for seed in seeds if seed not in final.numbers]
    if beyond:
        raise ValueError(
            f"{plan.name} is judged on {needed} seeds, {beyond} are beyond them"
        )
    missing = needed - len(seeds)
    if missing and not hours_ended:
        raise ValueError(
            f"{plan.name} is not full: {missing} of {needed} seeds are missing; "
            "--hours-ended judges without them"
        )
    return Runs(
        plan=final,
        seeds=seeds,
        curves=curves,
        configuration=kept[0].configuration,
        race=race,
        rates=decided,
    )


def full_studies(folder: Path = FOLDER) -> dict[str, Runs]:
    """Read the studies of which all seeds have run.

    Parameters
    ----------
    folder
        The folder that contains the folders of the studies.

    Returns
    -------
    dict of str to Runs
        The runs of these studies by their names, in the order of the plans. A study of
        which seeds are missing is left out.

    Raises
    ------
    ValueError
        If a file is not as planned, as for `read_runs`.
    """
    full = {}
    for name, plan in confirm.plans().items():
        runs = read_runs(plan, folder, hours_ended=True)
        if runs is not None and len(runs.seeds) == len(runs.plan.numbers):
            full[name] = runs
    return full


def _refuse_twice(paths: Sequence[Path]) -> None:
    """Raise ValueError if two file names mean the same seed, such as 30 and 030."""
    known: dict[int, Path] = {}
    for path in paths:
        if not path.stem.isdecimal():
            raise ValueError(f"{path} is named after no seed; move the file away")
        seed = int(path.stem)
        if seed in known:
            raise ValueError(
                f"seed {seed} is there twice: {known[seed]} and {path}; keep one"
            )
        known[seed] = path


def _refuse_other_data(paths: Sequence[Path], kept: Sequence[Curves]) -> None:
    """Raise ValueError if the data or the network of a file differ from those of the
    first file.
    """
    for path, curves in zip(paths, kept, strict=True):
        if curves.configuration["problem"] != kept[0].configuration["problem"]:
            raise ValueError(
                f"{path} has other data or another network than {paths[0]}"
            )


# The gate.


def gate(claim: FamilyClaim, runs: Runs) -> str:
    """Return why the rules of a claim may not be compared, or "".

    Parameters
    ----------
    claim
        The claim.
    runs
        The runs of its study.

    Returns
    -------
    str
        In the study on reviews, a reason why the first of the claim's rules that fails
        does not pass the gate of paper C. In all other studies the gate is that of the
        first round: the mean test accuracy of the best rule must exceed that of every
        plain classifier.
    """
    if claim.study == REVIEWS:
        reasons = [gate_on_reviews(runs, rule) for rule in claim.rules]
        return next((reason for reason in reasons if reason), "")
    first_round = confirm.first_round(runs.plan)
    accuracies = []
    for rule in first_round.rates():
        accuracies.append(np.mean([run.hits.mean() for run in first_round.runs(rule)]))
    plain = first_round.baselines()
    if not plain:
        return "the first round fitted no plain classifier"
    if max(accuracies) - max(plain.values()) < kept_curves.LEAD:
        return "the first round's network does not beat every plain classifier"
    return ""


# Deciding.


def judge(studies: Mapping[str, Runs | None]) -> list[Verdict]:
    """Decide the family of claims from the runs of its studies.

    Parameters
    ----------
    studies
        {study: runs}. If a study is missing or has no runs, its claims enter Holm's
        rule with p = 1.

    Returns
    -------
    list of Verdict
        One verdict per claim of the given studies, in the order of the protocol's
        table.
    """
    cases = {}
    reasons = {}
    for name, claim in FAMILY.items():
        runs = studies.get(claim.study)
        intervals, reasons[name] = _measured(claim, runs)
        cases[name] = Case(claim.word, intervals)
    decisions = decide(cases)
    verdicts_in_order = []
    for name, claim in FAMILY.items():
        if claim.study in studies:
            runs = studies[claim.study]
            verdict = _verdict(claim, runs, cases[name], decisions[name], reasons[name])
            verdicts_in_order.append(verdict)
    return verdicts_in_order


def verdicts_by_rank(claim: FamilyClaim, runs: Runs) -> dict[int, str]:
    """Return the verdict of a claim for every step at which Holm's rule may reach it.

    Parameters
    ----------
    claim
        The claim.
    runs
        The runs of its study.

    Returns
    -------
    dict of int to str
        {k: verdict}. Holm's rule tests a claim at the level 0.05 / k, where k claims of
        the family are not yet decided. The verdict is that of the claim's intervals at
        the level 1 - 0.05 / k. For small k it holds only if the rule gets so far.
    """
    intervals, _ = _measured(claim, runs)
    case = Case(claim.word, intervals)
    return {k: case.says(1 - ALPHA / k) for k in range(len(FAMILY), 0, -1)}


def _measured(claim: FamilyClaim, runs: Runs | None) -> tuple[list, str]:
    """Return the intervals of a claim and "", or an empty list and the reason why there
    are none.
    """
    if runs is None:
        return [], "no seed has run"
    fewest = min(len(runs.of(rule)) for rule in claim.rules)
    if fewest < FEWEST:
        return [], f"{fewest} seeds give no interval"
    reason = gate(claim, runs)
    if reason:
        return [], f"the gate is not passed: {reason}"
    try:
        return claim.measure(runs), ""
    except NotMeasurable as error:
        return [], f"cannot be measured: {error}"


def _verdict(
    claim: FamilyClaim, runs: Runs | None, case: Case, decision: Decision, reason: str
) -> Verdict:
    """Return the verdict on a claim. `reason` says why there are no intervals, or is
    "".
    """
    planned, counted = _seeds(claim, runs)
    notes = [reason] if reason else []
    shown = [math.nan] * 3
    corrected = (math.nan, math.nan)
    beside = {}
    if runs is not None and case.intervals:
        notes += _notes(claim, runs, case, decision)
        shown = ends(case.intervals[0])
        tested = replace(case.intervals[0], level=decision.level)
        corrected = (tested.low, tested.high)
        beside = claim.beside(runs)
    if runs is not None and counted < planned:
        notes.append(f"judged on {counted} of {planned} seeds")
    return Verdict(
        claim=claim.name,
        study=claim.study,
        text=claim.text,
        estimate=shown[0],
        low=shown[1],
        high=shown[2],
        alone=decision.alone,
        p=decision.p,
        holm=decision.holm,
        word=decision.word,
        corrected=corrected,
        level=decision.level,
        seeds=counted,
        planned=planned,
        notes=tuple(notes),
        beside=beside,
    )


def _seeds(claim: FamilyClaim, runs: Runs | None) -> tuple[int, int]:
    """Return how many seeds were planned for a claim, and from how many seeds the claim
    is decided.
    """
    if runs is None:
        plan = confirm.plans()[claim.study]
    else:
        plan = runs.plan
    wanted = [seed for seed in plan.numbers if claim.rules[0] in plan.rules(seed)]
    if ".growth." in claim.name:
        wanted = [seed for seed in wanted if plan.grows(seed)]
    if runs is None:
        counted = 0
    else:
        counted = len([seed for seed in wanted if seed in runs.seeds])
    return len(wanted), counted


def _notes(claim: FamilyClaim, runs: Runs, case: Case, decision: Decision) -> list[str]:
    """Return the notes that the protocol adds to a verdict."""
    notes = []
    first = replace(case.intervals[0], level=decision.level)
    is_ratio = claim.word is not verdicts.above
    is_decided = decision.word != UNDECIDED
    if is_ratio and is_decided and SAME[0] <= first.estimate <= SAME[1]:
        if first.high < 1:
            notes.append("faster by less than a fifth")
        elif first.low > 1:
            notes.append("slower by less than a fifth")
    if hasattr(first, "lower"):
        notes.append("by the signed rank, since a run missed its target")
    if claim.study == REVIEWS:
        rows = runs.configuration["problem"]["rows"]
        epochs = runs.plan.horizon * runs.configuration["batch"] / rows
        notes.append(f"after {epochs:.0f} epochs")
    return notes


def plain(value: Any) -> Any:
    """Return a value in a form for JSON: floats that are not finite become strings, and
    tuples become lists.
    """
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def in_words(verdict: Verdict) -> str:
    """Return a verdict in one line, with a further line for each note and for each
    number beside it.
    """
    numbers = f"{verdict.estimate:.3g} [{verdict.low:.3g}, {verdict.high:.3g}]"
    lines = [
        f"{verdict.claim}: {verdict.word} ({numbers}, p {verdict.p:.2g},"
        f" Holm {verdict.holm:.2g}, alone {verdict.alone}, {verdict.seeds} seeds)"
    ]
    lines += [f"    {note}" for note in verdict.notes]
    lines += [
        f"    beside, {name}: {_shown(value)}" for name, value in verdict.beside.items()
    ]
    return "\n".join(lines)


def _shown(value: Any) -> str:
    """Write an entry of `Verdict.beside`.

    A float has three digits. The items of a list are separated by commas. The items of
    a mapping are written as "name: item" and separated by semicolons. All other values
    are written as str writes them.
    """
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_shown(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_shown(each) for each in value)
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Return 0, or 1 after an error, which is printed in one sentence.
    """
    parser = argparse.ArgumentParser(
        "python -m papers.studies.judge", description=__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "studies", nargs="*", metavar="STUDY", help="judge these; without any, all"
    )
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, help="read the seeds below DIR"
    )
    words = "judge the whole seeds there are, since no more will run"
    parser.add_argument("--hours-ended", action="store_true", help=words)
    parser.add_argument("--json", type=Path, help="write the verdicts to FILE as well")
    options = parser.parse_args(arguments)
    known = confirm.plans()
    try:
        studies = {}
        for name in options.studies or known:
            if name not in known:
                raise ValueError(
                    f"there is no plan for {name!r}, only for {', '.join(known)}"
                )
            studies[name] = read_runs(known[name], options.folder, options.hours_ended)
        judged = judge(studies)
        if options.json:
            rows = {
                "family": len(FAMILY),
                "verdicts": [plain(asdict(each)) for each in judged],
            }
            files.write(options.json, files.dumps(rows).encode())
    except (ValueError, OSError) as error:
        print(f"error: {files.sentence(error)}", file=sys.stderr)
        return 1
    print("\n".join(in_words(verdict) for verdict in judged))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
