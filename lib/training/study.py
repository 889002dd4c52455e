"""A study, declared: update rules compared on one data set by one protocol.

Rates first, then paired seeds. `runner` runs a study, `rate_choice` chooses its rates;
`notebooks/protocol.md` states the protocol.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from lib.training.batches import Batches
from lib.training.losses import Evaluate, cross_entropy
from lib.training.record import RECENT
from lib.training.rules import RULES

TUNING_SEED = 100  # no curve uses it
QUARTER = 4  # half of the rates are dropped at this part of the horizon
JUDGED = 4  # last evaluations whose mean held-out accuracy judges a trial


@dataclass(frozen=True)
class StudyProblem:
    """Network and data of a study, loaded.

    `build()` makes the network. `batches(seed, tuning)` are the training batches, without the
    held-out rows where `tuning`. `evaluate(seed, tuning)` is what is measured at the points of a
    run, `finish(seed)` what is measured once at its end, as arrays. `about` names network and data.
    """

    build: Callable[[], nn.Module]
    batches: Callable[[int, bool], Batches]
    evaluate: Callable[[int, bool], Evaluate]
    finish: Callable[[int], Callable[[nn.Module], Mapping[str, np.ndarray]]]
    about: Mapping
    loss: Callable[[nn.Module, tuple], Tensor] = cross_entropy


@dataclass(frozen=True)
class Study:
    """What is compared, fixed before the runs.

    `rates` {rule: candidates}, SPS (whose rate is its cap) before SNGD. `targets` are training
    losses, the last one decides. A run ends at the first evaluation where `stop(found)` holds, or
    after `horizon` steps. `criterion` is "speed" (rates by the training loss) or "accuracy" (by
    held-out accuracy). `cap` is that of SNGD, None for the one that SPS chose. `extensions` rates
    at most are added beyond an edge of the grid, one after the other; a single candidate is taken
    without a trial. Seeds are `first_seed` and the `seeds` - 1 after it. `loss_rows` divides a loss
    that is a sum.
    """

    name: str
    problem: Callable[[], StudyProblem]
    rates: Mapping[str, tuple[float, ...]]
    horizon: int
    batch: int
    window: int
    targets: tuple[float, ...]
    stop: Callable[[Mapping[str, float]], bool]
    stop_words: str
    criterion: str = "speed"
    seeds: int = 5
    first_seed: int = 0
    evaluations: int = 20
    extensions: int = 2
    cap: float | None = None
    loss_rows: int = 1
    compiled: bool = False
    walk: bool = False

    def __post_init__(self):
        if self.criterion not in ("speed", "accuracy"):
            raise ValueError(f'criterion must be "speed" or "accuracy", got {self.criterion!r}')
        if unknown := set(self.rates) - set(RULES):
            raise ValueError(
                f"rates names the rules {sorted(unknown)}; there is {', '.join(RULES)}"
            )

    @property
    def points(self) -> np.ndarray:
        """Numbers of steps after which a run is evaluated, ascending, the quarter among them."""
        every = np.linspace(0, self.horizon, self.evaluations + 1).astype(int)
        return np.unique([*every, self.quarter])

    @property
    def quarter(self) -> int:
        """The step at which half of the rates are dropped."""
        return self.horizon // QUARTER

    def configuration(self, about: Mapping) -> dict:
        """All that decides the runs, as plain values; `about` is the problem's."""
        plain = ("name", "horizon", "batch", "window", "criterion", "evaluations", "cap", "walk")
        values = {name: getattr(self, name) for name in plain}
        values |= {"rates": {rule: list(rates) for rule, rates in self.rates.items()}}
        values |= {"targets": list(self.targets), "stop": self.stop_words}
        values |= {"compiled": self.compiled, "tuning_seed": TUNING_SEED}
        values |= {"extensions": self.extensions, "judged": JUDGED}
        return values | {"problem": dict(about)}


def until_loss(level: float) -> dict:
    """The stopping rule of a `Study` whose runs end at a mean recent loss of at most `level`."""
    return {
        "stop": lambda found: found["recent_loss"] <= level,
        "stop_words": f"mean loss of {RECENT} steps at most {level:g}",
    }
