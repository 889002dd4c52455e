"""A study: update rules compared on one data set by one protocol.

The protocol is described in notebooks/protocol.md.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
from torch import nn

from lib import files, seeds
from lib.training.curves import READINGS, Curve
from lib.training.problem import Problem
from lib.training.rules import RULES, Rule, identity, maker, optimiser

TUNING_SEED = 100  # the seed of the races between rates
# The seeds of all races, including those of a second race. No judged run has one of
# these seeds.
TUNING_SEEDS = (100, 101, 102)
# A run is judged by its accuracy, averaged over the last LAST evaluations. At the last
# LAST points of the horizon, `Problem.closing` is measured as well.
LAST = 4
ROUNDS = 8  # equal parts of the horizon; after each part, a race compares its runs
TRAINED = "training_accuracy"  # the metric that ends a run judged by accuracy
JUDGED = "test_accuracy"  # the metric by which its trials are compared
# For each criterion, the condition that may end a run, in words. The value of `stop_at`
# follows these words.
ENDS = {
    "speed": "mean training loss of the clock's last three readings at most",
    "accuracy": "training accuracy of 2,500 reviews at least",
}
# Those fields of a study that are whole numbers, and the smallest value that each may
# have.
WHOLE = {
    "horizon": ROUNDS,
    "batch": 1,
    "window": 1,
    "seeds": 1,
    "evaluations": 1,
    "clock": 1,
    "first_seed": 0,
    "extensions": 0,
    "stop_from": 0,
}


@dataclass(frozen=True)
class Study:
    """The settings of a study that compares update rules, fixed before the runs.

    Parameters
    ----------
    name : str
        The name of the study.
    problem : type or callable
        A class or function for which ``problem(batch=batch, **options)`` returns a
        `Problem` with its network and data loaded.
    rates : mapping of str to sequence of float
        The candidate rates of each rule. They must be positive plain Python numbers,
        not numpy numbers. If `cap` is not given, SPS must come before SNGD. A rule is a
        key of the field `rules`, one of the papers' rules (`rules.RULES`), or the name
        of an optimiser of torch.
    horizon : int
        The largest number of steps of a run, at least `ROUNDS`. If the criterion is
        speed, it is at least twice `clock`, so that a trial has the three readings by
        whose mean it is judged.
    batch : int
        Number of rows per batch.
    window : int
        Number of steps over which the loss is averaged in figures.
    targets : sequence of float
        Values of the training loss that the clock reads. Trials race to the last one.
        If a study holds out rows, trials are judged by the accuracy on these rows
        instead.
    clock : int
        Number of steps between readings of the clock.
    options : mapping
        The options of `problem`. If there is an option "held_out", it is the number of
        rows that are held out, at least 1. The problem checks all other options.
    stop_at : float, optional
        A run ends once the quantity that `ENDS` names has passed this value. If the
        criterion is speed, the run ends at the first such reading of the clock from
        step `stop_from` on. If the criterion is accuracy, it ends at the first such
        evaluation. Default: a run ends at the horizon.
    seeds : int, default 5
        Number of judged runs per rule, one for each seed. All rules are run on the same
        seeds.
    first_seed : int, default 0
        The first seed of the judged runs.
    evaluations : int, default 20
        Number of evaluations per run, not counting the one before the first step.
    extensions : int, default 2
        The largest number of rates that a race may add beyond the smallest and the
        largest candidate.
    cap : float, optional
        The cap on the step size of SNGD. Default: the rate of SPS; if SPS is not
        compared, there is no cap.
    walk : bool, default False
        Whether judged runs add up the squared lengths of the moves of each weight.
    stop_from : int, default 0
        The first step at which a reading of the clock may end a run.
    rules : mapping of str to callable, optional
        Rules of your own by name. Each is a class of torch optimisers, or a function of
        (dict of parameters by name, rate) that returns an optimiser; see
        `rules.optimiser`.

    Raises
    ------
    ValueError
        If a value is not allowed. The message says which values are expected.
    TypeError
        If one of your own rules is neither a class nor a function.

    Notes
    -----
    A study has two parts. First, every rule is run at its candidate rates on one seed,
    and a `Race` finds the best rate. Then every rule is run at its best rate on `seeds`
    seeds. `Work` carries out both parts.

    Examples
    --------
    A study is a value, from which `dataclasses.replace` makes another study:

    >>> from dataclasses import replace
    >>> import torch
    >>> from lib.training import studies
    >>> rates = {"SGD": [0.1, 0.3], "mine": [1e-3, 3e-3]}
    >>> own = replace(
    ...     studies.DEMO["mnist"], rates=rates, rules={"mine": torch.optim.RMSprop}
    ... )
    >>> own.criterion, own.rounds[:2], list(own.judged_seeds)
    ('speed', [15, 30], [0, 1])
    """

    name: str
    problem: Callable[..., Problem]
    rates: Mapping[str, Sequence[float]]
    horizon: int
    batch: int
    window: int
    targets: Sequence[float]
    clock: int
    options: Mapping = field(default_factory=dict)
    stop_at: float | None = None
    seeds: int = 5
    first_seed: int = 0
    evaluations: int = 20
    extensions: int = 2
    cap: float | None = None
    walk: bool = False
    stop_from: int = 0
    rules: Mapping[str, Rule] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check_kinds()
        self._check_rules()
        self._check_numbers()
        for seed in TUNING_SEEDS:
            if seed in self.judged_seeds:
                raise ValueError(
                    f"seed {seed} is that of the trials: no judged run may have it"
                )

    def _check_kinds(self) -> None:
        """Raise ValueError if a field is not a mapping or a list, as it must be."""
        for name in ("rates", "options", "rules"):
            value = getattr(self, name)
            if not isinstance(value, Mapping):
                raise ValueError(f"{name} = {value!r}; it must be a dict by name")
        if not self.rates:
            raise ValueError(
                "rates is empty; give at least one rule, such as {'SGD': [0.1, 0.3]}"
            )
        for rule in [*self.rates, *self.rules]:
            if not isinstance(rule, str):
                raise ValueError(f"a rule has the name {rule!r}; it must be a string")
        if not isinstance(self.targets, list | tuple):
            raise ValueError(
                f"targets = {self.targets!r}; it must be a list of training losses"
            )

    def _check_rules(self) -> None:
        """Raise an error if a rule does not exist, or cannot be used as a rule.

        The error is a ValueError for a wrong name, and a TypeError for a rule of the
        wrong type.
        """
        for name, rule in self.rules.items():
            if name in RULES:
                raise ValueError(
                    f"{name!r} is a rule of the papers; give yours another name"
                )
            if not name or "/" in name:
                raise ValueError(f"a rule is named in files, so not {name!r}")
            identity(rule)  # raises if it is neither a class nor a function
        for rule in self.rates:
            if rule not in self.rules:
                maker(rule)  # raises if the name is unknown
        order = list(self.rates)
        if self.cap is None and {"SPS", "SNGD"} <= set(order):
            if order.index("SNGD") < order.index("SPS"):
                raise ValueError("put SPS before SNGD, whose cap is the rate of SPS")

    def _check_numbers(self) -> None:
        """Raise ValueError if a number is outside its range.

        Whole numbers are stored as ints, even if they were given as floats.
        """
        if self.criterion == "speed" and not len(self.targets):
            raise ValueError(
                "targets is empty; trials race to the last of them, so give at least "
                "one training loss"
            )
        numbers = [*self.targets]
        numbers += [x for x in (self.cap, self.stop_at) if x is not None]
        for rule, rates in self.rates.items():
            if not isinstance(rates, list | tuple) or not rates:
                raise ValueError(
                    f"rates[{rule!r}] = {rates!r}; it must be a list of one or more "
                    "rates"
                )
            numbers += rates
        for x in numbers:
            if type(x) not in (int, float) or not 0 < x < math.inf:
                raise ValueError(
                    f"rates, targets, cap, stop_at are finite and above 0, not {x!r}"
                )
        for name, minimum in WHOLE.items():
            number = seeds.whole_number(name, getattr(self, name), minimum)
            object.__setattr__(self, name, number)
        shortest = (READINGS - 1) * self.clock
        if self.criterion == "speed" and self.horizon < shortest:
            raise ValueError(
                f"horizon = {self.horizon!r}; with a clock of {self.clock} steps it "
                f"must be at least {shortest}, since trials are compared by the mean "
                f"of {READINGS} readings"
            )
        if self.criterion == "accuracy":
            seeds.whole_number("options.held_out", self.options["held_out"], 1)

    @property
    def criterion(self) -> str:
        """How rates are judged: by "accuracy" on held-out rows, or by "speed"."""
        if "held_out" in self.options:
            return "accuracy"
        return "speed"

    @property
    def points(self) -> np.ndarray:
        """The numbers of steps after which a run is evaluated."""
        return np.unique(np.linspace(0, self.horizon, self.evaluations + 1).astype(int))

    @property
    def rounds(self) -> list[int]:
        """The numbers of steps after which trials are compared."""
        return [self.horizon * part // ROUNDS for part in range(1, ROUNDS + 1)]

    @property
    def judged_seeds(self) -> range:
        """The seeds of the judged runs."""
        return range(self.first_seed, self.first_seed + self.seeds)

    def optimiser(
        self, rule: str, network: nn.Module, rate: float, cap: float | None = None
    ) -> torch.optim.Optimizer:
        """Make the optimiser of a run.

        Parameters
        ----------
        rule : str
            The rule.
        network : torch.nn.Module
            The network.
        rate : float
            The rate.
        cap : float, optional
            The cap on the step size of SNGD. The field `cap` of the study is not used.
            Default: no cap.

        Returns
        -------
        torch.optim.Optimizer
            The optimiser.

        Raises
        ------
        ValueError, TypeError
            In the cases that `optimiser` lists.
        """
        return optimiser(self.rules.get(rule, rule), network, rate, cap)

    def describe(self, problem: Problem) -> dict[str, Any]:
        """Return the settings of the study, in the form that a file of curves stores.

        Parameters
        ----------
        problem : Problem
            The study's network and data.

        Returns
        -------
        dict
            The settings that determine the runs, in numbers and words. In place of the
            options, `problem.about` is included. The judged seeds are not included, so
            that a study can be extended to more seeds.
        """
        apart = (
            "problem",
            "options",
            "stop_at",
            "stop_from",
            "seeds",
            "first_seed",
            "rules",
        )
        values: dict[str, Any] = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in apart
        }
        values["criterion"] = self.criterion
        if self.stop_at is None:
            values["stop"] = "never"
        else:
            values["stop"] = f"{ENDS[self.criterion]} {self.stop_at:g}"
        if self.stop_from:
            values["stop"] += f", from step {self.stop_from} on"
        values["tuning_seed"] = TUNING_SEED
        values["problem"] = dict(problem.about)
        if self.rules:
            values["rules"] = {
                name: identity(rule) for name, rule in self.rules.items()
            }
        return json.loads(files.dumps(values))

    def stop(self, metrics: Mapping[str, float]) -> bool:
        """Return whether a run that is judged by accuracy ends here.

        Parameters
        ----------
        metrics : mapping of str to float
            The metrics of an evaluation.

        Returns
        -------
        bool
            Whether the training accuracy has reached `stop_at`. It is False if there is
            no `stop_at`, and for a study that judges by speed.

        Raises
        ------
        ValueError
            If the study has a `stop_at`, but does not measure the training accuracy.
        """
        if self.stop_at is None or self.criterion == "speed":
            return False
        if TRAINED not in metrics:
            raise ValueError(
                f"{self.name} does not measure {TRAINED}: it can have no stop_at"
            )
        return metrics[TRAINED] >= self.stop_at

    def reached(self, step: int, reading: float) -> bool:
        """Return whether a run that is judged by speed ends here.

        Parameters
        ----------
        step : int
            Number of steps done.
        reading : float
            The mean of the clock's last readings at this step, as
            `curves.trailing_mean` returns it.

        Returns
        -------
        bool
            Whether the reading is at most `stop_at` and the step at least `stop_from`.
            It is False if there is no `stop_at`, and for a study that judges by
            accuracy.
        """
        if self.stop_at is None or self.criterion == "accuracy":
            return False
        return step >= self.stop_from and reading <= self.stop_at

    def last_accuracies(self, trial: Curve) -> np.ndarray:
        """Return the accuracies of a trial on held-out rows at its last evaluations.

        Parameters
        ----------
        trial : Curve
            The trial.

        Returns
        -------
        ndarray of float64 (`LAST` or fewer,)
            The accuracies.

        Raises
        ------
        ValueError
            If the study does not measure this accuracy.
        """
        if JUDGED not in trial.metrics:
            raise ValueError(
                f"{self.name} does not measure {JUDGED}: it can hold no rows out"
            )
        return trial.metrics[JUDGED][-LAST:].astype(float)

    def score(self, trial: Curve) -> tuple[float, float]:
        """Score a trial.

        Parameters
        ----------
        trial : Curve
            The trial.

        Returns
        -------
        tuple of (float, float)
            A pair that says how good the trial is. Pairs are compared in lexicographic
            order, and the smaller one is better. If the criterion is speed, the pair is
            (steps to the last target, mean of the last three readings). If it is
            accuracy, the pair is (0, minus the mean accuracy of the last `LAST`
            evaluations). For a trial that diverged, it is (inf, inf).

        Raises
        ------
        ValueError
            If the study holds rows out, but does not measure the accuracy on them.
        """
        if trial.diverged:
            return math.inf, math.inf
        if self.criterion == "accuracy":
            return 0.0, -float(np.mean(self.last_accuracies(trial)))
        return trial.steps_to(self.targets[-1]), float(trial.readings()[-1])
