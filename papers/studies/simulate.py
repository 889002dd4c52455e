"""Simulate how many claims the confirmation decides if the first round's effects are
right.

`python -m papers.studies.simulate` draws synthetic studies with the planned numbers of
seeds, and decides each family by the same functions as the confirmation. It prints for
every claim how often the claim is decided under Holm's rule, and it prints how many of
the 21 claims are decided on average. With `--effects 0.8` every effect has only 0.8
times its size in the first round, and with `--deviations 1.3` every deviation is 1.3
times the planned or measured one.

The simulation assumes:

* Steps to a target are log-normal. The mean logarithm of each rule is that of the first
  round, with steps counted to the middle of three readings. An effect is the difference
  of this mean from SGD's.
* The standard deviation of these logarithms within a rule is the planned one in
  confirm.toml, pooled over the rules of a study. The runs of a seed are independent of
  each other. So the logarithm of a ratio has sqrt(2) times this deviation, and the
  logarithms of two ratios of a study have the correlation 1/2, because each ratio has
  the steps of SGD as its denominator.
* Steps are rounded to the clock, and a run that would need more steps than the horizon
  misses its target.
* All other quantities are normal, with the means and the covariance over the three
  seeds of the first round; the quantities of one study are drawn together. Accuracies
  are those on the sampled reviews, which were a tenth of the test rows, but with the
  sampling error of all rows.
* Every gate is passed, and every race chooses the first round's rate.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lib import files, seeds
from papers.studies import confirm, family
from papers.studies.blinded import planned_deviation
from papers.studies.confirm import Plan
from papers.studies.decide import Case, Decision, decide
from papers.studies.family import FAMILY, PARTS, REFERENCE, REVIEWS, VISION, named_rules
from papers.studies.intervals import difference_interval, ratio_interval
from papers.studies.run_measures import at_common_level, weight_matrices
from papers.verdicts import REPRODUCED, UNDECIDED

ORDER = (("l1.1", "l2"), ("l1.1", "l3"), ("l3", "l2"))  # better, worse


@dataclass(frozen=True)
class Speed:
    """A log-normal model of the number of steps to the target of one study.

    Parameters
    ----------
    study
        The name of the study.
    mean_logs
        {rule: mean logarithm of its number of steps}.
    deviation
        The standard deviation of these logarithms within a rule.
    seeds
        How many seeds are drawn.
    tick, horizon
        The interval of the clock and the horizon, in steps.
    """

    study: str
    mean_logs: Mapping[str, float]
    deviation: float
    seeds: int
    tick: int
    horizon: int

    def scaled(self, effects: float, deviations: float) -> "Speed":
        """Return the model with its effects and its deviation multiplied by these
        factors.
        """
        reference = self.mean_logs[REFERENCE]
        logs = {}
        for rule, log in self.mean_logs.items():
            logs[rule] = reference + effects * (log - reference)
        return replace(self, mean_logs=logs, deviation=deviations * self.deviation)

    def cases(self, generator: np.random.Generator) -> dict[str, Case]:
        """Simulate one study, and return the cases of its claims on speed, by claim."""
        steps = {}
        for rule, log in self.mean_logs.items():
            drawn = np.exp(log + self.deviation * generator.normal(size=self.seeds))
            read = self.tick * np.maximum(1, np.round(drawn / self.tick))
            steps[rule] = np.where(read > self.horizon, np.inf, read)
        ranked = any(np.isinf(each).any() for each in steps.values())
        found = {}
        for claim in FAMILY.values():
            if (
                claim.study == self.study
                and claim.rules[-1] == REFERENCE
                and len(claim.rules) == 2
            ):
                interval = family.steps_interval(
                    steps[claim.rules[0]], steps[REFERENCE], self.tick, ranked
                )
                found[claim.name] = Case(claim.word, [interval])
        return found


@dataclass(frozen=True)
class Differences:
    """A normal model of several quantities of one study, drawn together.

    Parameters
    ----------
    columns
        The claim to which each quantity belongs, (quantities,). A claim may have
        several quantities.
    values
        The values in the first round, (seeds, quantities), of at least two seeds. For
        ratios they are logarithms.
    seeds
        How many seeds are drawn.
    geometric
        The claims whose quantity is the logarithm of a ratio.
    row_variances
        {claim: variance of its mean due to the finite number of test rows}.
    effects, deviations
        The factors by which the means and the deviations are multiplied.
    """

    columns: Sequence[str]
    values: np.ndarray
    seeds: int
    geometric: Sequence[str] = ()
    row_variances: Mapping[str, float] | None = None
    effects: float = 1.0
    deviations: float = 1.0

    def scaled(self, effects: float, deviations: float) -> "Differences":
        """Return the model with its effects and its deviations multiplied by these
        factors.
        """
        return replace(self, effects=effects, deviations=deviations)

    def cases(self, generator: np.random.Generator) -> dict[str, Case]:
        """Simulate one study, and return the cases of its claims, by claim."""
        known = len(self.values)
        mean = self.values.mean(0)
        # A sum of the centred seeds with normal weights has their sample covariance.
        mixture = generator.normal(size=(self.seeds, known)) / np.sqrt(known - 1)
        drawn = self.effects * mean + self.deviations * mixture @ (self.values - mean)
        intervals: dict[str, list] = {}
        for name, column in zip(self.columns, drawn.T, strict=True):
            if name in self.geometric:
                interval = ratio_interval(np.exp(column))
            else:
                other = (self.row_variances or {}).get(name, 0.0)
                if other:
                    column = column + np.sqrt(other) * generator.normal()
                interval = difference_interval(column, other)
            intervals.setdefault(name, []).append(interval)
        return {
            name: Case(FAMILY[name].word, found) for name, found in intervals.items()
        }


Model = Speed | Differences


# Models from the first round.


def _speed(plan: Plan) -> Speed:
    """Return the model of a speed study. For a run that missed its target, the number
    of steps is the horizon.
    """
    curves = confirm.first_round(plan)
    target = curves.configuration["targets"][-1]
    logs = {}
    for rule in named_rules(plan.name):
        steps = [family.centred_steps(run, target) for run in curves.runs(rule)]
        logs[rule] = float(
            np.log(np.minimum(steps, curves.configuration["horizon"])).mean()
        )
    tick = curves.configuration["clock"]
    deviation = planned_deviation(plan)
    return Speed(
        study=plan.name,
        mean_logs=logs,
        deviation=deviation,
        seeds=plan.seeds,
        tick=tick,
        horizon=plan.horizon,
    )


def _growth(plan: Plan) -> Differences:
    """Return the model of the smallest log growth of a weight matrix, by rule."""
    curves = confirm.first_round(plan)
    rules = ("SGD", "Adam", "SNGD")
    columns = []
    for rule in rules:
        column = []
        for run in curves.runs(rule):
            ratios = [
                run.weight_norms[name][-1] / run.weight_norms[name][0]
                for name in weight_matrices(run)
            ]
            column.append(np.log(min(ratios)))
        columns.append(column)
    names = [f"fig7.growth.{rule.lower()}" for rule in rules]
    return Differences(columns=names, values=np.transpose(columns), seeds=plan.grown)


def _vision(plan: Plan) -> Differences:
    """Return the model of the two claims on vision."""
    curves = confirm.first_round(plan)
    rows = []
    for pair in zip(curves.runs("Adam"), curves.runs("l1.1"), strict=True):
        adam, mirror = at_common_level(pair, "steps", "test_accuracy")
        adam_index, mirror_index = at_common_level(pair, "hoyer", "control_loss")
        rows.append([np.log(adam / mirror), mirror_index - adam_index])
    names = ["vit.early", "vit.sparser"]
    return Differences(
        columns=names, values=np.array(rows), seeds=plan.seeds, geometric=("vit.early",)
    )


def _reviews(plan: Plan) -> Differences:
    """Return the model of the claims on reviews. Claims on sparsity have two columns:
    at the end, and at the same training accuracy.
    """
    curves = confirm.first_round(plan)
    columns = []
    values = []
    row_variances = {}
    for better, worse in ORDER:
        name = f"imdb.{better}>{worse}"
        pairs = list(zip(curves.runs(better), curves.runs(worse), strict=True))
        late = [
            first.metrics["test_accuracy"][-family.LAST :].mean()
            - second.metrics["test_accuracy"][-family.LAST :].mean()
            for first, second in pairs
        ]
        hits = np.stack(
            [first.hits.astype(float) - second.hits for first, second in pairs]
        )
        columns.append(name)
        values.append(late)
        row_variances[name] = float(hits.mean(0).var(ddof=1) / hits.shape[1])
    pairs = list(zip(curves.runs("l1.1"), curves.runs("l2"), strict=True))
    for part in PARTS:
        metric = f"hoyer.{part}"
        last = [
            first.metrics[metric][-1] - second.metrics[metric][-1]
            for first, second in pairs
        ]
        matched = []
        for pair in pairs:
            first, second = at_common_level(pair, metric, "training_accuracy")
            matched.append(first - second)
        columns += [f"sparsity.{part}"] * 2
        values += [last, matched]
    used = []
    for first, second in pairs:
        shares = [
            run.end["last.tokens_used"][:, -1] / run.end["present"]
            for run in (first, second)
        ]
        used.append(shares[1].astype(float) - shares[0])
    columns.append("attention.sharper")
    values.append(np.mean(used, axis=1))
    row_variances["attention.sharper"] = float(
        np.mean(used, 0).var(ddof=1) / len(used[0])
    )
    return Differences(
        columns=columns,
        values=np.transpose(values),
        seeds=plan.seeds,
        row_variances=row_variances,
    )


def first_round_models() -> list[Model]:
    """Return the models of all studies, from the stored curves of the first round.

    Returns
    -------
    list
        Models that together have the 21 claims.
    """
    plans = confirm.plans()
    models: list[Model] = [_speed(plan) for plan in plans.values() if plan.speed]
    models.append(_growth(plans[family.FIGURES["fig7"]]))
    models.append(_vision(plans[VISION]))
    models.append(_reviews(plans[REVIEWS]))
    return models


# Simulating.


def simulate(
    models: Sequence[Model], draws: int, seed: int = 0
) -> list[dict[str, Decision]]:
    """Simulate families of claims, and decide them.

    Parameters
    ----------
    models
        Models that together have all claims of the family, each claim once.
    draws
        How many families are drawn.
    seed
        The seed of the draws.

    Returns
    -------
    list of dict
        For each family, {claim: decision}.
    """
    generator = seeds.stream(seed, "data")
    families = []
    for _ in range(draws):
        found: dict[str, Case] = {}
        for model in models:
            found |= model.cases(generator)
        families.append(decide({name: found[name] for name in FAMILY}))
    return families


def chances(families: Sequence[Mapping[str, Decision]]) -> dict[str, float]:
    """Return how often each claim is decided, as {claim: share of the families}."""
    shares = {}
    for name in families[0]:
        is_decided = [drawn[name].word != UNDECIDED for drawn in families]
        shares[name] = float(np.mean(is_decided))
    return shares


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Return 0, or 1 after an error, which is printed in one sentence.
    """
    parser = argparse.ArgumentParser(
        "python -m papers.studies.simulate", description=__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--draws", type=int, default=1000, help="draw so many families")
    parser.add_argument(
        "--effects", type=float, default=1.0, help="multiply every effect"
    )
    parser.add_argument(
        "--deviations", type=float, default=1.0, help="multiply every deviation"
    )
    parser.add_argument("--seed", type=int, default=0, help="draw from this seed")
    options = parser.parse_args(arguments)
    try:
        seeds.whole_number("draws", options.draws, 2)
        models = first_round_models()
        models = [model.scaled(options.effects, options.deviations) for model in models]
        families = simulate(models, options.draws, options.seed)
    except (ValueError, OSError) as error:
        print(f"error: {files.sentence(error)}", file=sys.stderr)
        return 1
    shares = chances(families)
    for name, share in shares.items():
        words = [drawn[name].word for drawn in families]
        reproduced = words.count(REPRODUCED) / len(words)
        print(f"{name}: decided {share:.3f}, reproduced {reproduced:.3f}")
    counts = [
        sum(each.word != UNDECIDED for each in drawn.values()) for drawn in families
    ]
    error = np.std(counts, ddof=1) / np.sqrt(len(counts))
    mean = np.mean(counts)
    print(f"decided of {len(shares)}: {mean:.2f} (Monte-Carlo error {error:.2f})")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
