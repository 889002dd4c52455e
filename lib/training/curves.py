"""One run as arrays, and the .npz of a study's runs, from which every claim is
recomputed.
"""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from lib import files
from lib.representation import Shapes

SCHEMA = 2
STEPWISE = ("loss", "step_size", "gradient_norm", "evaluated_at")
GROUPS = ("metrics", "weight_norms", "walked", "clock", "end")
READINGS = 3  # of the clock whose mean is compared with a target
NONE = np.zeros(0, np.float32)


def trailing_mean(readings: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return the mean of each reading and the `READINGS` - 1 before it.

    Parameters
    ----------
    readings
        Readings of the clock, (k,), in nats.

    Returns
    -------
    numpy.ndarray
        Means, (k,). Where fewer than `READINGS` have been taken the mean is infinite, so
        that no target counts as reached. One function serves the run that stops at a
        target and whoever counts its steps: both must round alike.

    Examples
    --------
    >>> trailing_mean(np.array([3.0, 2.0, 1.0, 0.0]))
    array([inf, inf,  2.,  1.])
    """
    kept = np.asarray(readings, dtype=np.float32).astype(float)
    means = np.full(len(kept), np.inf)
    for k in range(READINGS - 1, len(kept)):
        means[k] = kept[k - READINGS + 1 : k + 1].sum() / READINGS
    return means


@dataclass(frozen=True, repr=False)
class Curve(Shapes):
    """One run: who ran and where, what it did step by step, and what it ended with.

    `status` is "finished", or stopped, paused or diverged at a step. `loss`, and of
    rules whose step size changes `step_size` and `gradient_norm`, are (steps,);
    `metrics`, `weight_norms`, `walked` {name: (points,)} at `evaluated_at`; `clock`
    {"at", "loss": (readings,)} on fixed rows. `part` is "trial" (of a rate), "curve"
    (judged), "one" (alone) or "baseline" (a plain classifier).
    """

    status: str
    loss: np.ndarray = field(default_factory=NONE.copy)
    step_size: np.ndarray = field(default_factory=NONE.copy)
    gradient_norm: np.ndarray = field(default_factory=NONE.copy)
    evaluated_at: np.ndarray = field(default_factory=NONE.copy)
    part: str = "curve"
    rule: str = ""
    rate: float = 0.0
    cap: float | None = None
    seed: int = 0
    seconds: float = 0.0
    made: Mapping = field(default_factory=dict)
    metrics: Mapping[str, np.ndarray] = field(default_factory=dict)
    weight_norms: Mapping[str, np.ndarray] = field(default_factory=dict)
    walked: Mapping[str, np.ndarray] = field(default_factory=dict)
    clock: Mapping[str, np.ndarray] = field(default_factory=dict)
    end: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def diverged(self) -> bool:
        """Whether the loss stopped being finite."""
        return self.status.startswith("diverged")

    @property
    def paused(self) -> bool:
        """Whether the run was left where it can go on."""
        return self.status.startswith("paused")

    @property
    def hits(self) -> np.ndarray:
        """Which test rows the end of the run classifies correctly: bool (rows,)."""
        count = int(self.end["test_rows"])
        return np.unpackbits(self.end["test_correct"], count=count).astype(bool)

    @staticmethod
    def packed(hits) -> dict[str, np.ndarray]:
        """What `hits` unpacks out of `end`: bool (rows,) as bits, and how many."""
        return {
            "test_correct": np.packbits(np.asarray(hits)),
            "test_rows": np.array(len(hits)),
        }

    def smooth(self, window: int) -> np.ndarray:
        """The running mean of the loss over `window` steps, fewer at the start:
        (steps,).
        """
        total = np.cumsum(self.loss, dtype=float)
        before = np.concatenate([np.zeros(window), total])[: len(total)]
        return (total - before) / np.minimum(np.arange(1, len(total) + 1), window)

    def until(self, steps: int) -> "Curve":
        """A trial as it was after `steps` steps, itself if it was shorter."""
        if len(self.loss) < steps:
            return self
        early = self.evaluated_at <= steps
        return replace(
            self,
            status="paused",
            loss=self.loss[:steps],
            evaluated_at=self.evaluated_at[early],
            metrics={name: values[early] for name, values in self.metrics.items()},
            clock={
                name: v[self.clock["at"] <= steps] for name, v in self.clock.items()
            },
        )

    def readings(self) -> np.ndarray:
        """The mean of the last `READINGS` readings at each of them; at first
        infinite.
        """
        return trailing_mean(self.clock["loss"])

    def steps_to(self, target: float) -> float:
        """Step of the first of `readings` that is ≤ `target`, or inf."""
        reached = self.readings() <= target
        if reached.any():
            return float(self.clock["at"][reached.argmax()])
        return np.inf


@dataclass(frozen=True)
class Curves:
    """All runs of one study, with its configuration, in which its name is."""

    configuration: Mapping
    curves: tuple[Curve, ...]

    def judged(self) -> list[Curve]:
        """All judged runs."""
        return [curve for curve in self.curves if curve.part == "curve"]

    def rates(self) -> dict[str, float]:
        """The rate at which each rule was judged, in the study's order."""
        judged = {curve.rule: curve.rate for curve in self.judged()}
        return {
            rule: judged[rule] for rule in self.configuration["rates"] if rule in judged
        }

    def seeds(self) -> list[int]:
        """Seeds that every rule has run."""
        judged = self.judged()
        have = [
            {c.seed for c in judged if c.rule == rule}
            for rule in {c.rule for c in judged}
        ]
        return sorted(set.intersection(*have)) if have else []

    def runs(self, rule: str) -> list[Curve]:
        """The judged runs of `rule` on the seeds that every rule has run, in their
        order.
        """
        judged = {curve.seed: curve for curve in self.judged() if curve.rule == rule}
        return [judged[seed] for seed in self.seeds() if seed in judged]

    def trials(self, rule: str) -> list[Curve]:
        """The trials of `rule`, in the order of their rates."""
        trials = [c for c in self.curves if c.part == "trial" and c.rule == rule]
        return sorted(trials, key=lambda curve: curve.rate)

    def baselines(self) -> dict[str, float]:
        """Test accuracy of the plain classifiers on the same rows, by name."""
        return {
            c.rule: float(c.hits.mean()) for c in self.curves if c.part == "baseline"
        }

    def hours(self) -> float:
        """Processor hours of all runs together."""
        return sum(curve.seconds for curve in self.curves) / 3600

    def save(self, path: Path) -> None:
        """Write them all to `path`, atomically."""
        rows = []
        arrays = {}
        for k, curve in enumerate(self.curves):
            row = dict(vars(curve))
            arrays |= {f"{k}/{name}": row.pop(name) for name in STEPWISE}
            for group in GROUPS:
                arrays |= {
                    f"{k}/{group}/{name}": v for name, v in row.pop(group).items()
                }
            rows.append(row)
        study = self.configuration
        head = {"schema": SCHEMA, "name": study["name"], "configuration": study}
        content = io.BytesIO()
        np.savez_compressed(
            content, json=files.dumps(head | {"curves": rows}), **arrays
        )
        files.write(Path(path), content.getvalue())


def load(path: Path) -> Curves:
    """The curves that `Curves.save` wrote; FileNotFoundError where there are none,
    ValueError for a file that is damaged, no curve file, or of another schema.
    """
    if not Path(path).exists():
        raise FileNotFoundError(
            f"{path} is not there; `python -m lib.training` makes it"
        )
    try:
        # np.load refuses pickled objects, and leaves a damaged file open that it opened
        # itself.
        with open(path, "rb") as stream, np.load(stream) as file:
            head = json.loads(str(file["json"]))
            runs = [row | {group: {} for group in GROUPS} for row in head["curves"]]
            for place in file.files[1:]:  # after json
                k, *groups, name = place.split("/", 2)
                values = runs[int(k)]
                for group in groups:
                    values = values[group]
                values[name] = file[place]
        if head["schema"] != SCHEMA:
            raise ValueError(f"schema {head['schema']}, this code reads {SCHEMA}")
        return Curves(head["configuration"], tuple(Curve(**run) for run in runs))
    except Exception as error:  # which one depends on the byte that is wrong
        if isinstance(error, KeyError):
            what = f"there is no {error}"
        else:
            what = error
        words = f"{path} is not a curve file that can be read ({what})"
        raise ValueError(f"{words}; fetch it again or run the study") from error
