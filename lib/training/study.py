"""A study: update rules compared on one data set by one protocol.

The protocol is notebooks/protocol.md.
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
from lib.training.curves import Curve
from lib.training.problem import Problem
from lib.training.rules import RULES, Rule, identity, maker, optimiser

TUNING_SEED = 100  # the seed of the races between rates
# The same, with those of a second race; no judged run has one.
TUNING_SEEDS = (100, 101, 102)
# Evaluations whose mean accuracy judges a run; what `Problem.closing` says is measured
# there.
LAST = 4
ROUNDS = 8  # equal parts of the horizon, after each of which a race looks at its runs
TRAINED = "training_accuracy"  # the metric that ends a run judged by accuracy
# What may end a run, by criterion, in words that `stop_at` follows.
ENDS = {
    "speed": "mean training loss of the clock's last three readings at most",
    "accuracy": "training accuracy of 2,500 reviews at least",
}
# The whole numbers among the fields of a study, and the least that each may be.
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
    """What is compared, fixed before the runs.

    Parameters
    ----------
    name : str
        Name of the study.
    problem : type or callable
        ``problem(batch=batch, **options)`` is a `Problem`: it loads network and data.
    rates : mapping of str to sequence of float
        The candidate rates of each rule, SPS before SNGD. A rule is a key of `rules`,
        one of the papers' (`rules.RULES`), or an optimiser of torch.
    horizon : int
        The largest number of steps of a run.
    batch : int
        Number of rows per batch.
    window : int
        Number of steps over which the loss is averaged.
    targets : sequence of float
        Training losses; trials race to the last one. A study that holds out rows judges
        by the accuracy on these.
    clock : int
        Number of steps between readings of the clock. Losses are its readings.
    options : mapping
        Options of `problem`, among them the number of rows that are held out.
    stop_at : float, optional
        A run ends where what `ENDS` names is past it: for speed at the first such
        reading from the step `stop_from` on, for accuracy at an evaluation.
    seeds : int, default 5
        Number of judged runs per rule.
    first_seed : int, default 0
        The first of their seeds.
    evaluations : int, default 20
        Number of evaluations of a run after its start.
    extensions : int, default 2
        How many rates are added beyond an edge of the candidates at most.
    cap : float, optional
        The cap of SNGD. Default: the rate of SPS.
    walk : bool, default False
        Whether judged runs add up the squared moves of the weights.
    stop_from : int, default 0
        The first step at which a reading of the clock may end a run.
    rules : mapping of str to callable, optional
        A reader's own rules by name: a class of torch optimisers, or a function of
        (parameters by name, rate) that returns an optimiser (`rules.optimiser`).

    Raises
    ------
    ValueError
        For values that cannot be; the sentence says which are expected.
    TypeError
        If a rule of one's own is neither a class nor a function.

    Notes
    -----
    A study is a grid: every rule at its candidate rates on one seed, of which `Race`
    finds the best, then every rule at its best rate on `seeds` seeds. `Work` runs it.

    Examples
    --------
    A study is a value; another one is made of it by `dataclasses.replace`:

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
        self._check_rules()
        self._check_numbers()
        for seed in TUNING_SEEDS:
            if seed in self.judged_seeds:
                raise ValueError(
                    f"seed {seed} is that of the trials: no judged run may have it"
                )

    def _check_rules(self) -> None:
        """Raise an error for a rule that there is not, or that cannot be one."""
        for name, rule in self.rules.items():
            if name in RULES:
                raise ValueError(
                    f"{name!r} is a rule of the papers; give yours another name"
                )
            if not name or "/" in name:
                raise ValueError(f"a rule is named in files, so not {name!r}")
            identity(rule)  # refuses what is neither a class nor a function
        for rule in self.rates:
            if rule not in self.rules:
                maker(rule)  # refuses an unknown name

    def _check_numbers(self) -> None:
        """Raise ValueError for a number that cannot be."""
        numbers = [*self.targets]
        numbers += [x for x in (self.cap, self.stop_at) if x is not None]
        for rates in self.rates.values():
            numbers += rates
        for x in numbers:
            if type(x) not in (int, float) or not 0 < x < math.inf:
                raise ValueError(
                    f"rates, targets, cap, stop_at are finite and above 0, not {x!r}"
                )
        for name, minimum in WHOLE.items():
            seeds.whole_number(name, getattr(self, name), minimum)
        for name, value in self.options.items():
            if type(value) is int:
                seeds.whole_number(f"options.{name}", value, 1)

    @property
    def criterion(self) -> str:
        """By what rates are judged: "accuracy" on held-out rows, or "speed"."""
        if "held_out" in self.options:
            return "accuracy"
        return "speed"

    @property
    def points(self) -> np.ndarray:
        """After how many steps a run is evaluated."""
        return np.unique(np.linspace(0, self.horizon, self.evaluations + 1).astype(int))

    @property
    def rounds(self) -> list[int]:
        """After how many steps trials are compared."""
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
            The cap of SNGD. Default: none.

        Returns
        -------
        torch.optim.Optimizer
            The optimiser.
        """
        return optimiser(self.rules.get(rule, rule), network, rate, cap)

    def describe(self, problem: Problem) -> dict[str, Any]:
        """Say what is compared, as a file of curves keeps it.

        Parameters
        ----------
        problem : Problem
            The study's network and data.

        Returns
        -------
        dict
            What decides the runs, in numbers and words. The number of judged seeds does
            not: a study goes on to more of them.
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
        """Say whether a run ends that is judged by accuracy.

        Parameters
        ----------
        metrics : mapping of str to float
            The metrics of an evaluation.

        Returns
        -------
        bool
            Whether the accuracy that `stop_at` bounds has reached it.

        Raises
        ------
        ValueError
            If the study does not measure this accuracy.
        """
        if self.stop_at is None or self.criterion == "speed":
            return False
        if TRAINED not in metrics:
            raise ValueError(
                f"{self.name} does not measure {TRAINED}: it can have no stop_at"
            )
        return metrics[TRAINED] >= self.stop_at

    def reached(self, step: int, reading: float) -> bool:
        """Say whether a run ends that is judged by speed.

        Parameters
        ----------
        step : int
            The step.
        reading : float
            The mean reading of the clock there.

        Returns
        -------
        bool
            Whether it has come down to `stop_at`, at `stop_from` or later.
        """
        if self.stop_at is None or self.criterion == "accuracy":
            return False
        return step >= self.stop_from and reading <= self.stop_at

    def score(self, trial: Curve) -> tuple[float, float]:
        """Score a trial.

        Parameters
        ----------
        trial : Curve
            The trial.

        Returns
        -------
        tuple of (float, float)
            How good the trial is: the smaller the better.
        """
        if trial.diverged:
            return math.inf, math.inf
        if self.criterion == "accuracy":
            return 0.0, -float(np.mean(trial.metrics["test_accuracy"][-LAST:]))
        return trial.steps_to(self.targets[-1]), float(trial.readings()[-1])
