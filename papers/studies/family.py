"""The 21 claims of the confirmation: what each of them measures, and which verdicts are
possible.

The verdicts, the bounds and the measured quantities are those of
notebooks/confirmation.md. The measure of a claim is a function from the runs of its
study to the intervals by which it is decided. This is one interval, or, for claims on
sparsity, two intervals that must agree.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy import optimize

from lib.training.curves import Curve, Curves
from papers import verdicts
from papers.studies.confirm import Plan, raced_runs
from papers.studies.intervals import (
    MeanInterval,
    NotMeasurable,
    RankInterval,
    difference_interval,
    rank_interval,
    ratio_interval,
)
from papers.studies.run_measures import (
    at_common_level,
    random_walk_growth,
    weight_matrices,
)

Interval = MeanInterval | RankInterval

REFERENCE = "SGD"  # the reference rule: step counts are divided by its step count
LAST = 4  # number of final evaluations over which an accuracy is averaged
ROUNDING = 1e-6  # relative rounding error of a fitted reading; readings are float32
PARTS = ("K", "Q", "V")
# Paper C's last test accuracy on IMDb, for model size 3.
PAPER_ACCURACY = {"l1.1": 0.8257, "l2": 0.8061, "l3": 0.8133}
FIGURES = {
    "fig1": "multi_nli_200",
    "fig4": "civil_comments_400",
    "fig6": "mnist_60000",
    "fig7": "cifar10_50000",
}
VISION = "vit_48000"
REVIEWS = "imdb_256"


@dataclass(frozen=True)
class Runs:
    """The runs of one study from which its claims are decided.

    Parameters
    ----------
    plan
        The plan of the study.
    seeds
        The seeds that are used, in their order.
    curves
        {rule: {seed: run}}; not every rule runs every seed.
    configuration
        The study's configuration, as it is in the files of the study.
    race
        The curves of the race that chose the rates.
    rates
        The rate of each rule.
    """

    plan: Plan
    seeds: Sequence[int]
    curves: Mapping[str, Mapping[int, Curve]]
    configuration: Mapping
    race: Curves
    rates: Mapping[str, float]

    def of(self, rule: str) -> list[Curve]:
        """Return the runs of `rule` in the order of the seeds that it has run."""
        mine = self.curves.get(rule, {})
        return [mine[seed] for seed in self.seeds if seed in mine]

    def pairs(self, first: str, second: str) -> list[tuple[Curve, Curve]]:
        """Return the runs of two rules, paired by seed.

        Parameters
        ----------
        first, second
            The rules. They must have run the same seeds.

        Returns
        -------
        list of pairs of Curve
            A pair for each seed.

        Raises
        ------
        ValueError
            If one of the rules has run a seed that the other one has not.
        """
        pairs = list(zip(self.of(first), self.of(second), strict=True))
        if any(mine.seed != theirs.seed for mine, theirs in pairs):
            raise ValueError(f"{first} and {second} have run different seeds")
        return pairs

    @property
    def targets(self) -> list[float]:
        """Return the target training losses, up to which steps are counted.

        Claims are decided by the last one.
        """
        return list(self.plan.first_round.targets)


@dataclass(frozen=True)
class FamilyClaim:
    """One of the 21 claims.

    Parameters
    ----------
    name
        The name of the claim in the protocol's table, such as "fig1.adam".
    study
        The study whose runs decide it.
    text
        What the paper says, in words.
    word
        The function of `papers.verdicts` that returns the verdict of an interval as a
        string.
    measure
        A function from the study's runs to the intervals by which the claim is decided.
    beside
        A function from the study's runs to further numbers {name: value}, on which the
        verdict does not depend.
    rules
        The rules that are compared.
    """

    name: str
    study: str
    text: str
    word: Callable[..., str]
    measure: Callable[[Runs], list[Interval]]
    beside: Callable[[Runs], dict]
    rules: tuple[str, ...]


# Steps to a target.


def centred_steps(run: Curve, target: float) -> float:
    """Return the steps of a run to a target, counted to the middle of the readings that
    reach it.

    Parameters
    ----------
    run
        A run with a clock.
    target
        The training loss.

    Returns
    -------
    float
        The step of the middle one of the first three readings whose mean is at most
        `target`. It is infinite if the run missed the target.
    """
    reached = run.readings() <= target
    if not reached.any():
        return math.inf
    last_of_three = int(reached.argmax())
    return float(run.clock["at"][last_of_three - 1])


def late_steps(run: Curve, target: float) -> float:
    """Return the number of steps of a run to a target, counted as in the first
    round.
    """
    return run.steps_to(target)


def isotonic_steps(run: Curve, target: float, last_target: float) -> float:
    """Return the number of steps after which a falling fit of the readings reaches a
    target.

    Parameters
    ----------
    run
        A run with a clock.
    target
        The training loss.
    last_target
        The last target of the study. Readings after this target was reached are left
        out (our reading). So it makes no difference that some runs continued so that
        their norms could be measured.

    Returns
    -------
    float
        The first step at which the isotonic (never rising) least-squares fit of the
        single readings is at most `target`. The result is at least one interval of the
        clock. It is infinite if the run missed the target.
    """
    at = run.clock["at"]
    losses = run.clock["loss"].astype(float)
    reached = run.readings() <= last_target
    if reached.any():
        end = int(reached.argmax()) + 1
        at = at[:end]
        losses = losses[:end]
    fitted = optimize.isotonic_regression(losses, increasing=False).x
    passed = fitted <= target * (1 + ROUNDING)
    if not passed.any():
        return math.inf
    return float(max(at[passed.argmax()], run.clock["at"][1]))


def steps_interval(
    steps: np.ndarray, reference: np.ndarray, tick: float, ranked: bool = False
) -> Interval:
    """Return the interval of the number of steps divided by that of the reference.

    Parameters
    ----------
    steps, reference
        The numbers of steps to the target, (seeds,), paired by seed. They are infinite
        where a run missed the target.
    tick
        The interval of the clock, in steps. A count can be wrong by half of this
        interval in either direction. So (tick / steps)^2 / 12 is added to the variance
        of a logarithm for each run, averaged over the seeds.
    ranked
        Whether to return the interval from signed ranks, which is used if a run of the
        study missed its target. Rounding adds nothing to this interval, because the
        protocol has no term for it.

    Returns
    -------
    MeanInterval or RankInterval
        The interval at the level 0.95.

    Raises
    ------
    ValueError
        If there are fewer than two seeds, or if a run missed its target and `ranked` is
        false.
    """
    steps = np.asarray(steps, dtype=float)
    reference = np.asarray(reference, dtype=float)
    if ranked:
        # If both runs missed the target, this is infinity minus infinity.
        with np.errstate(invalid="ignore"):
            return rank_interval(np.log(steps) - np.log(reference))
    rounding = tick**2 / 12 * (1 / steps**2 + 1 / reference**2)
    return ratio_interval(steps / reference, float(rounding.mean()))


def named_rules(study: str) -> list[str]:
    """Return the rules of a speed study that the claims about speed compare, the
    reference first.

    Parameters
    ----------
    study
        The name of the study.

    Returns
    -------
    list of str
        The rules, in the order of the family's claims.
    """
    rules = [REFERENCE]
    for claim in FAMILY.values():
        if (
            claim.study == study
            and claim.rules[-1] == REFERENCE
            and claim.rules[0] not in rules
        ):
            rules.append(claim.rules[0])
    return rules


def _ratio(runs: Runs, rule: str, count: Callable[[Curve], float]) -> Interval:
    """Return the interval of count(run of `rule`) divided by count(run of the
    reference).

    Signed ranks are used if any run of the rules that the claims compare missed its
    target.
    """
    counted = {}
    for each in named_rules(runs.plan.name):
        counted[each] = np.array([count(run) for run in runs.of(each)])
    ranked = any(np.isinf(steps).any() for steps in counted.values())
    return steps_interval(
        counted[rule], counted[REFERENCE], runs.configuration["clock"], ranked
    )


def _speed(rule: str, runs: Runs) -> list[Interval]:
    target = runs.targets[-1]
    return [_ratio(runs, rule, partial(centred_steps, target=target))]


def _beside_speed(rule: str, runs: Runs) -> dict:
    """Return the numbers that the protocol reports in addition to a verdict on
    speed.
    """
    last = runs.targets[-1]
    at_targets = {}
    for target in runs.targets:
        at_targets[f"{target:g}"] = ends(
            _ratio(runs, rule, partial(centred_steps, target=target))
        )
    isotonic = partial(isotonic_steps, target=last, last_target=last)
    judged = _ratio(runs, rule, partial(centred_steps, target=last))
    return {
        "p against 1": verdicts.p_value(judged, _differs_from_one),
        "at every target": at_targets,
        "isotonic fit": ends(_ratio(runs, rule, isotonic)),
        "first round's count": ends(
            _ratio(runs, rule, partial(late_steps, target=last))
        ),
        "best two rates": _at_two_rates(runs, rule),
    }


def _differs_from_one(ratio: Interval) -> str:
    """Decide whether a ratio differs from 1, in either direction.

    This is not a claim of the family. The p-value of a claim is the level at which its
    interval would just decide it, and a claim such as "slower" can also be decided
    because its interval lies between 0.8 and 1.25.
    """
    return verdicts.decided(ratio.high < 1 or ratio.low > 1, False)


def _at_two_rates(runs: Runs, rule: str) -> list[float] | None:
    """Return the smallest and the largest ratio of median steps, over the raced
    learning rates of `rule` and of the reference.

    The result is None if the rate of a rule was given and not raced, or if the median
    run of a rate missed the target.
    """
    medians = {}
    for each in (rule, REFERENCE):
        raced = raced_runs(runs.plan, each, runs.race, runs.rates)
        at_rate = []
        for rate in runs.plan.rates[each]:
            steps = [
                centred_steps(run, runs.targets[-1])
                for run in raced
                if run.rate == rate
            ]
            at_rate.append(float(np.median(steps)) if steps else math.inf)
        medians[each] = at_rate
    everything = [*medians[rule], *medians[REFERENCE]]
    if len(everything) < 4 or math.inf in everything:
        return None
    ratios = [mine / theirs for mine in medians[rule] for theirs in medians[REFERENCE]]
    return [min(ratios), max(ratios)]


def ends(interval: Interval) -> list[float]:
    """Return the estimate of an interval and its two ends."""
    return [interval.estimate, interval.low, interval.high]


# Growth of norms.


def _norms(run: Curve, step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return, for every weight matrix, the norm at the start, the norm after `step`
    steps, and the sum of the squared steps until then, as three arrays (matrices,).

    The function raises NotMeasurable if the run was not evaluated after `step` steps.
    """
    found = np.flatnonzero(np.asarray(run.evaluated_at) == step)
    if len(found) == 0:
        raise NotMeasurable(
            f"{run.rule} of seed {run.seed} was not evaluated after {step} steps"
        )
    at = int(found[0])
    names = weight_matrices(run)
    first = np.array([run.weight_norms[name][0] for name in names])
    last = np.array([run.weight_norms[name][at] for name in names])
    walked = np.array([run.walked[name][at] for name in names])
    return first, last, walked


def smallest_log_growth(run: Curve, step: int) -> float:
    """Return the growth of the weight matrix that grows least, as a logarithm.

    Parameters
    ----------
    run
        A run whose norms were recorded after `step` steps.
    step
        The number of steps.

    Returns
    -------
    float
        min over the matrices of log(||W_step|| / ||W_0||).

    Raises
    ------
    ValueError
        If the run was not evaluated after `step` steps.
    """
    first, last, _ = _norms(run, step)
    return float(np.log(last / first).min())


def smallest_beyond_walk(run: Curve, step: int) -> float:
    """Return the smallest value, over weight matrices, of the growth minus the growth
    of a random walk.

    The random walk has steps of the same lengths. The arguments are those of
    `smallest_log_growth`. The first round used this measure.
    """
    first, last, walked = _norms(run, step)
    return float((last / first - 1 - random_walk_growth(first, walked)).min())


def _grown(runs: Runs, rule: str) -> list[Curve]:
    return [run for run in runs.of(rule) if runs.plan.grows(run.seed)]


def _growth(rule: str, runs: Runs) -> list[Interval]:
    step = runs.plan.stop_from
    return [
        difference_interval(
            [smallest_log_growth(run, step) for run in _grown(runs, rule)]
        )
    ]


def _beside_growth(rule: str, runs: Runs) -> dict:
    step = runs.plan.stop_from
    beyond = difference_interval(
        [smallest_beyond_walk(run, step) for run in _grown(runs, rule)]
    )
    return {"beyond a random walk": [*ends(beyond), verdicts.above(beyond)]}


# Paper C.


def _matched(runs: Runs, rules: tuple[str, str], name: str, along: str) -> np.ndarray:
    """Return the metric `name` of two rules, each at the point at which it reaches a
    common level of the metric `along`.

    The result has the shape (2, seeds).
    """
    pairs = runs.pairs(*rules)
    return np.transpose([at_common_level(pair, name, along) for pair in pairs])


def _early(runs: Runs) -> list[Interval]:
    adam, mirror = _matched(runs, ("Adam", "l1.1"), "steps", "test_accuracy")
    return [ratio_interval(adam / mirror)]


def _sparser_vision(runs: Runs) -> list[Interval]:
    adam, mirror = _matched(runs, ("Adam", "l1.1"), "hoyer", "control_loss")
    return [difference_interval(mirror - adam)]


def late_accuracy(run: Curve) -> float:
    """Return the mean of a run's last four accuracies on all test reviews."""
    return float(run.metrics["every_test_accuracy"][-LAST:].mean())


def _row_variance(apart: np.ndarray) -> float:
    """Return the variance of a mean that is due to the finite number of test rows.

    `apart` has the paired differences (seeds, rows). The mean is over seeds and rows.
    """
    return float(apart.mean(0).var(ddof=1) / apart.shape[1])


def _order(better: str, worse: str, runs: Runs) -> list[Interval]:
    pairs = runs.pairs(better, worse)
    apart = [late_accuracy(first) - late_accuracy(second) for first, second in pairs]
    rows = [first.hits.astype(float) - second.hits for first, second in pairs]
    return [difference_interval(apart, _row_variance(np.stack(rows)))]


def _sparsity(part: str, runs: Runs) -> list[Interval]:
    name = f"hoyer.{part}"
    rules = ("l1.1", "l2")
    last = [
        np.array([run.metrics[name][-1] for run in runs.of(rule)]) for rule in rules
    ]
    first, second = _matched(runs, rules, name, "training_accuracy")
    return [difference_interval(last[0] - last[1]), difference_interval(first - second)]


def _beside_sparsity(part: str, runs: Runs) -> dict:
    _, matched = _sparsity(part, runs)
    return {"at matched training accuracy": ends(matched)}


def _tokens_used(runs: Runs, rule: str) -> np.ndarray:
    """Return the share of tokens attended to in the last layer.

    The result has the shape (seeds, reviews).
    """
    shares = []
    for run in runs.of(rule):
        used = run.end["last.tokens_used"][:, -1].astype(float)
        shares.append(used / run.end["present"])
    return np.stack(shares)


def _sharper(runs: Runs) -> list[Interval]:
    apart = _tokens_used(runs, "l2") - _tokens_used(runs, "l1.1")
    return [difference_interval(apart.mean(1), _row_variance(apart))]


def _nothing(runs: Runs) -> dict:
    return {}


def _family() -> dict[str, FamilyClaim]:
    claims = []

    # Paper A: steps to the last target.
    for figure, rules, word in (
        ("fig1", ("Adam", "SPS", "SNGD"), verdicts.faster),
        ("fig4", ("Adam", "SPS", "SNGD"), verdicts.faster),
        ("fig6", ("SNGD",), verdicts.slower),
        ("fig7", ("SNGD",), verdicts.slower),
        ("fig6", ("Adam",), verdicts.no_gain),
    ):
        for rule in rules:
            claim = FamilyClaim(
                name=f"{figure}.{rule.lower()}",
                study=FIGURES[figure],
                text=(
                    f"{rule}: {word.__name__.replace('_', ' ')}, steps divided by SGD's"
                ),
                word=word,
                measure=partial(_speed, rule),
                beside=partial(_beside_speed, rule),
                rules=(rule, REFERENCE),
            )
            claims.append(claim)

    # Paper A: growth of norms.
    for rule in ("SGD", "Adam", "SNGD"):
        claim = FamilyClaim(
            name=f"fig7.growth.{rule.lower()}",
            study=FIGURES["fig7"],
            text=f"norms grow under {rule}, smallest log growth of a weight matrix",
            word=verdicts.above,
            measure=partial(_growth, rule),
            beside=partial(_beside_growth, rule),
            rules=(rule,),
        )
        claims.append(claim)

    # Paper C: vision.
    early = FamilyClaim(
        name="vit.early",
        study=VISION,
        text="Adam ahead early, its steps divided by those of l1.1",
        word=verdicts.faster,
        measure=_early,
        beside=_nothing,
        rules=("Adam", "l1.1"),
    )
    sparser = FamilyClaim(
        name="vit.sparser",
        study=VISION,
        text="l1.1 sparser, Hoyer index minus Adam's",
        word=verdicts.above,
        measure=_sparser_vision,
        beside=_nothing,
        rules=("l1.1", "Adam"),
    )
    claims += [early, sparser]

    # Paper C: reviews.
    for better, worse in (("l1.1", "l2"), ("l1.1", "l3"), ("l3", "l2")):
        claim = FamilyClaim(
            name=f"imdb.{better}>{worse}",
            study=REVIEWS,
            text=f"{better} above {worse}, difference of test accuracy",
            word=verdicts.above,
            measure=partial(_order, better, worse),
            beside=_nothing,
            rules=(better, worse),
        )
        claims.append(claim)
    for part in PARTS:
        claim = FamilyClaim(
            name=f"sparsity.{part}",
            study=REVIEWS,
            text=f"{part} sparser under l1.1, Hoyer index minus that of l2",
            word=verdicts.above,
            measure=partial(_sparsity, part),
            beside=partial(_beside_sparsity, part),
            rules=("l1.1", "l2"),
        )
        claims.append(claim)
    sharper = FamilyClaim(
        name="attention.sharper",
        study=REVIEWS,
        text="l1.1 sharper, share of tokens used by l2 minus that by l1.1",
        word=verdicts.above,
        measure=_sharper,
        beside=_nothing,
        rules=("l1.1", "l2"),
    )
    claims.append(sharper)
    return {claim.name: claim for claim in claims}


FAMILY = _family()


# The gate: the accuracy that a rule must reach for paper C's claims about it to be
# decided.


def gate_on_reviews(runs: Runs, rule: str) -> str:
    """Return why a rule on reviews may not be compared, or "".

    Parameters
    ----------
    runs
        The runs of the study on reviews, of at least two seeds.
    rule
        One of the rules in `PAPER_ACCURACY`.

    Returns
    -------
    str
        A reason in two cases: if the mean accuracy is below the paper's accuracy minus
        two standard deviations over the seeds, or if the accuracy of some seed is not
        above 0.5 by two standard errors of the test rows. Otherwise the result is "".
        The accuracy is the one at the end on all test reviews, because the paper's is
        its last one (our reading).
    """
    hits = [run.hits for run in runs.of(rule)]
    accuracy = np.array([row.mean() for row in hits])
    least = PAPER_ACCURACY[rule] - 2 * accuracy.std(ddof=1)
    if accuracy.mean() < least:
        return f"{rule} ends at {accuracy.mean():.4f}, below the least of {least:.4f}"
    errors = np.sqrt(accuracy * (1 - accuracy) / np.array([len(row) for row in hits]))
    at_chance = int((accuracy <= 0.5 + 2 * errors).sum())
    if at_chance:
        return f"{rule} is at chance in {at_chance} of {len(hits)} seeds"
    return ""
