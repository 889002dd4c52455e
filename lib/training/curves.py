"""The kept curves of a study: one small file from which every claim and figure is recomputed.

An .npz of plain arrays, never pickled, with a schema number, the study's configuration and its
digest inside.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lib import files
from lib.representation import Shapes
from lib.training.checkpoints import differences, flat
from lib.training.history import (
    DAMAGE,
    TrainingHistory,
    flattened,
    grouped,
    packed,
    running_mean,
    steps_to_reach,
    unpacked,
)
from lib.training.rules import STEP_SIZED

SCHEMA = 1
LARGEST = 2_000_000  # bytes of a curve file
GROUPS = ("metrics", "weight_norms", "walked", "end")
STEPWISE = ("loss", "step_size", "gradient_norm")


@dataclass(frozen=True, repr=False)
class Curve(Shapes):
    """One run: who ran, what it did step by step, and what it ended with.

    `part` is "trial" for a run that chooses a rate, "curve" for one that is judged. `loss`,
    `step_size`, `gradient_norm` (steps,) end where the run ended; the last two are kept for rules
    whose step size changes. `metrics`, `weight_norms`, `walked` {name: (points,)} at
    `evaluated_at`; `end` {name: array} at the end. `seconds` is processor time.
    """

    part: str
    rule: str
    rate: float
    cap: float | None
    seed: int
    status: str
    seconds: float
    loss: np.ndarray
    step_size: np.ndarray
    gradient_norm: np.ndarray
    evaluated_at: np.ndarray
    metrics: Mapping[str, np.ndarray] = field(default_factory=dict)
    weight_norms: Mapping[str, np.ndarray] = field(default_factory=dict)
    walked: Mapping[str, np.ndarray] = field(default_factory=dict)
    end: Mapping[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(cls, history: TrainingHistory, who: Mapping, end: Mapping, seconds: float) -> "Curve":
        """The curve of a `history`; `who` has part, rule, rate, cap and seed."""
        trial = who["part"] == "trial"
        done = int(np.isfinite(history.loss).sum())
        kept = slice(0, done if not trial and who["rule"] in STEP_SIZED else 0)
        points = np.asarray(history.evaluated_at)
        seen = points <= done
        groups = {
            name: {key: np.asarray(values)[seen] for key, values in getattr(history, name).items()}
            for name in GROUPS[:3]
        }
        if trial:
            groups["weight_norms"], groups["walked"] = {}, {}
        return cls(
            **who,
            status=history.status,
            seconds=seconds,
            loss=_narrow(history.loss[:done], trial),
            step_size=history.step_size[kept].astype(np.float32),
            gradient_norm=history.gradient_norm[kept].astype(np.float32),
            evaluated_at=points[seen],
            **groups,
            end=dict(end),
        )

    @property
    def diverged(self) -> bool:
        """Whether the loss stopped being finite."""
        return self.status.startswith("diverged")

    @property
    def hits(self) -> np.ndarray:
        """Which test rows the end of the run classifies correctly: bool (rows,)."""
        count = int(self.end["test_rows"])
        return np.unpackbits(self.end["test_correct"], count=count).astype(bool)

    def smooth(self, window: int) -> np.ndarray:
        """The running mean of the loss over `window` steps: (steps,)."""
        return running_mean(self.loss.astype(float), window)

    def steps_to(self, target: float, window: int) -> float:
        """First step at which the running mean over `window` is ≤ `target`; inf if it never is."""
        return float(steps_to_reach(self.loss.astype(float)[None], target, window)[0])


@dataclass(frozen=True)
class Curves:
    """All runs of one study: `name`, its `configuration`, and its `curves`."""

    name: str
    configuration: Mapping
    curves: tuple[Curve, ...]

    @property
    def digest(self) -> str:
        """A short hash of name and configuration."""
        return digest(self.name, self.configuration)

    def rates(self) -> dict[str, float]:
        """The rate at which each rule was judged, in the study's order."""
        judged = {curve.rule: curve.rate for curve in self.curves if curve.part == "curve"}
        return {rule: judged[rule] for rule in self.configuration["rates"] if rule in judged}

    def runs(self, rule: str) -> list[Curve]:
        """The judged runs of `rule` on the seeds that every rule has run, in the order of seeds."""
        kept = self.seeds()
        found = [c for c in self.curves if c.part == "curve" and c.rule == rule and c.seed in kept]
        return sorted(found, key=lambda curve: curve.seed)

    def seeds(self) -> list[int]:
        """Seeds that every rule has run."""
        judged = [curve for curve in self.curves if curve.part == "curve"]
        rules = {curve.rule for curve in judged}
        seeds = {curve.seed for curve in judged}
        have = {(curve.rule, curve.seed) for curve in judged}
        return sorted(seed for seed in seeds if all((rule, seed) in have for rule in rules))

    def trials(self, rule: str) -> list[Curve]:
        """The trials of `rule`, in the order of their rates."""
        found = [c for c in self.curves if c.part == "trial" and c.rule == rule]
        return sorted(found, key=lambda curve: curve.rate)

    def hours(self) -> float:
        """Processor hours of all runs together."""
        return sum(curve.seconds for curve in self.curves) / 3600

    def save(self, path: Path) -> None:
        """Write them all to `path`, atomically; ValueError if the file would exceed `LARGEST`."""
        rows, arrays = [], {}
        for k, curve in enumerate(self.curves):
            rows.append({key: getattr(curve, key) for key in _PLAIN})
            own = flattened(curve, (*STEPWISE, "evaluated_at"), GROUPS)
            arrays |= {f"{k}/{key}": values for key, values in own.items()}
        head = {"schema": SCHEMA, "name": self.name, "digest": self.digest}
        head |= {"configuration": dict(self.configuration), "curves": rows}
        content = packed(head, arrays)
        if len(content) > LARGEST:
            raise ValueError(f"{path} would take {len(content):,} bytes, at most {LARGEST:,}")
        files.write(Path(path), content)


def _narrow(loss: np.ndarray, trial: bool) -> np.ndarray:
    """The loss as it is kept: float32, for a trial float16, whose largest number is 65,504."""
    return loss.clip(max=6e4).astype(np.float16) if trial else loss.astype(np.float32)


_PLAIN = ("part", "rule", "rate", "cap", "seed", "status", "seconds")


def digest(name: str, configuration: Mapping) -> str:
    """A short hash of a study's `name` and `configuration`."""
    plain = json.loads(files.dumps({"name": name, "configuration": dict(configuration)}))
    return files.sha256(json.dumps(plain, sort_keys=True).encode())


def load(path: Path, configuration: Mapping | None = None) -> Curves:
    """The curves that `Curves.save` wrote to `path`.

    Raises FileNotFoundError where there is none; ValueError for a file that is truncated or no
    curve file, for another schema, and for another `configuration`, naming what differs.
    """
    if not Path(path).exists():
        raise FileNotFoundError(f"{path} is not there; `python -m lib.training study` makes it")
    try:
        head, arrays = unpacked(path)
        schema, stated = head["schema"], head["digest"]
        if schema == SCHEMA:
            curves = tuple(_curves(head["curves"], arrays))
            found = Curves(head["name"], head["configuration"], curves)
    except (OSError, *DAMAGE) as error:
        what = f"there is no {error}" if isinstance(error, KeyError) else error
        raise ValueError(
            f"{path} is not a curve file that can be read ({what}); fetch it again or run the study"
        ) from error
    if schema != SCHEMA:
        raise ValueError(
            f"{path} has schema {schema}, this code reads {SCHEMA}; check out the commit that "
            "wrote it or run the study again"
        )
    if found.digest != stated:
        raise ValueError(f"{path} does not have the configuration that its digest states")
    if configuration is not None:
        expected = json.loads(files.dumps(dict(configuration)))
        if unlike := differences(flat(found.configuration), flat(expected)):
            raise ValueError(f"{path} is of another configuration: {'; '.join(unlike[:5])}")
    return found


def _curves(rows, arrays):
    for k, row in enumerate(rows):
        mine = {
            name.split("/", 1)[1]: values
            for name, values in arrays.items()
            if name.split("/", 1)[0] == str(k)
        }
        yield Curve(**row, **grouped(mine, GROUPS))


FEWEST = 3  # seeds below which there is no verdict


def kept(name: str, needed: bool = False) -> Curves | None:
    """The committed curves of the study `name`.

    None, with one printed sentence, where there are none or fewer than `FEWEST` seeds are finished;
    where they are `needed` FileNotFoundError or ValueError.
    """
    path = files.ROOT / "figures" / "desk" / f"{name}.npz"
    command = f"python -m lib.training study {name}"
    if not path.exists() and not needed:
        print(f"the study {name} has no committed curves yet: {command}")
        return None
    found = load(path)
    if len(found.seeds()) >= FEWEST:
        return found
    done = sum(curve.part == "curve" for curve in found.curves)
    words = f"the study {name} is unfinished, {done} judged runs so far"
    words += f": {command} --adopt figures/desk goes on"
    if needed:
        raise ValueError(words)
    print(words)
    return None
