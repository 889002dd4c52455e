"""Store one run as arrays, and all runs of a study in an .npz file.

All statements about a study are recomputed from these files.
"""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from lib import files
from lib.representation import Shapes

SCHEMA = 2
STEPWISE = ("loss", "step_size", "gradient_norm", "evaluated_at")
GROUPS = ("metrics", "weight_norms", "walked", "clock", "end")
# This many readings of the clock are averaged before they are compared with a target.
READINGS = 3
NONE = np.zeros(0, np.float32)


def trailing_mean(readings: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return the mean of each reading and the `READINGS` - 1 before it.

    Parameters
    ----------
    readings : sequence of float (k,)
        Readings of the clock, in nats.

    Returns
    -------
    ndarray of float64 (k,)
        The means. The readings are first rounded to float32, as they are in a file. The
        first `READINGS` - 1 means are infinite, so that no target counts as reached
        there.

    Notes
    -----
    This function decides both when a run stops at a target and how many steps the run
    needed, because the two must round in the same way.

    Examples
    --------
    >>> import numpy as np
    >>> from lib.training.curves import trailing_mean
    >>> trailing_mean(np.array([3.0, 2.0, 1.0, 0.0]))
    array([inf, inf,  2.,  1.])
    """
    kept = np.asarray(readings, dtype=np.float32).astype(float)
    means = np.full(len(kept), np.inf)
    for k in range(READINGS - 1, len(kept)):
        means[k] = kept[k - READINGS + 1 : k + 1].sum() / READINGS
    return means


@dataclass(frozen=True, repr=False, eq=False)
class Curve(Shapes):
    """One run: its rule and seed, how it was made, its steps, and how it ended.

    Parameters
    ----------
    status : str
        "finished", or a text that says at which step the run stopped, paused or
        diverged, such as "stopped after step 50".
    loss : ndarray (steps,)
        The loss before each step, in float32. In the file of a trial, it is in float16.
    step_size : ndarray (steps,)
        The step sizes. The array is empty if the rule does not state them.
    gradient_norm : ndarray (steps,)
        The norms of the gradient. The array is empty if the rule does not state them.
    evaluated_at : ndarray (points,)
        The numbers of steps after which the run was evaluated.
    part : {"curve", "trial", "one", "baseline"}
        The purpose of the run: "curve" is a judged run, "trial" tries a rate, "one" is
        a single run that a user requested, and "baseline" is a plain classifier.
    rule : str
        The rule.
    rate : float
        The learning rate of the rule.
    cap : float, optional
        The cap on the step size of the rule.
    seed : int
        The seed.
    seconds : float
        The processor seconds that the run took.
    made : mapping
        The commit, the versions and the device with which the run was made.
    metrics : mapping of str to ndarray (points,)
        The metrics that the evaluations measured, by name.
    weight_norms : mapping of str to ndarray (points,)
        The norm of each weight at the evaluations.
    walked : mapping of str to ndarray (points,)
        For each weight, the sum of the squared lengths of its moves, at the
        evaluations.
    clock : mapping of str to ndarray (readings,)
        "loss" contains the readings of the loss on fixed rows, and "at" the numbers of
        steps after which they were taken.
    end : mapping of str to ndarray
        The arrays that were measured at the end of the run.
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
        """Whether some loss, step size or gradient norm was not finite."""
        return self.status.startswith("diverged")

    @property
    def paused(self) -> bool:
        """Whether the run was interrupted at a step from which it can continue."""
        return self.status.startswith("paused")

    @property
    def hits(self) -> np.ndarray:
        """Whether the network at the end is right on each test row: bool (rows,).

        For a run without hits, such as a trial, it raises KeyError.
        """
        count = int(self.end["test_rows"])
        return np.unpackbits(self.end["test_correct"], count=count).astype(bool)

    @staticmethod
    def packed(hits: Any) -> dict[str, np.ndarray]:
        """Pack hits into arrays for `end`, from which the property `hits` unpacks them.

        Parameters
        ----------
        hits : ndarray or Tensor of bool (rows,)
            Whether each test row is classified correctly.

        Returns
        -------
        dict of str to ndarray
            "test_correct" contains the hits as bits, and "test_rows" contains the
            number of test rows.

        Examples
        --------
        >>> import numpy as np
        >>> from lib.training.curves import Curve
        >>> run = Curve("finished", end=Curve.packed(np.array([True, False, True])))
        >>> run.hits
        array([ True, False,  True])
        """
        return {
            "test_correct": np.packbits(np.asarray(hits)),
            "test_rows": np.array(len(hits)),
        }

    def smooth(self, window: int) -> np.ndarray:
        """Return the running mean of the loss.

        Parameters
        ----------
        window : int
            Number of steps in a mean, 1 or more. The first means are taken over fewer
            steps.

        Returns
        -------
        ndarray of float64 (steps,)
            The mean of each loss and the `window` - 1 before it.

        Examples
        --------
        >>> import numpy as np
        >>> from lib.training.curves import Curve
        >>> Curve("finished", loss=np.array([4.0, 2.0, 0.0])).smooth(2)
        array([4., 3., 1.])
        """
        total = np.cumsum(self.loss, dtype=float)
        before = np.concatenate([np.zeros(window), total])[: len(total)]
        return (total - before) / np.minimum(np.arange(1, len(total) + 1), window)

    def until(self, steps: int) -> "Curve":
        """Return a trial as it was after `steps` steps.

        Losses, evaluations and readings of the clock are cut at this step. Everything
        else, such as `end`, stays as it is, since a trial has no other arrays to cut.

        Parameters
        ----------
        steps : int
            Number of steps.

        Returns
        -------
        Curve
            The first part of the trial. Its status is "paused", even if the trial ended
            at this step. If the trial has fewer steps, it is returned unchanged.
        """
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
        """Return, at each clock reading, the mean of the last `READINGS` readings.

        Returns
        -------
        ndarray (readings,)
            The means. The first means are infinite, see `trailing_mean`.

        Raises
        ------
        KeyError
            If the run has no clock.
        """
        return trailing_mean(self.clock["loss"])

    def steps_to(self, target: float) -> float:
        """Return the step at which a target was reached.

        Parameters
        ----------
        target : float
            The target.

        Returns
        -------
        float
            The step of the first mean in `readings` that is ≤ `target`, or inf if there
            is none.

        Raises
        ------
        KeyError
            If the run has no clock.
        """
        reached = self.readings() <= target
        if reached.any():
            return float(self.clock["at"][reached.argmax()])
        return np.inf


@dataclass(frozen=True)
class Curves:
    """All runs of one study, with the configuration of the study.

    Parameters
    ----------
    configuration : mapping
        The configuration of the study, which contains the name of the study.
    curves : tuple of Curve
        The runs.
    """

    configuration: Mapping
    curves: tuple[Curve, ...]

    def judged(self) -> list[Curve]:
        """Return all judged runs.

        Returns
        -------
        list of Curve
            The runs.
        """
        return [curve for curve in self.curves if curve.part == "curve"]

    def rates(self) -> dict[str, float]:
        """Return the learning rate at which each rule was judged.

        Returns
        -------
        dict of str to float
            The rates by rule, in the order of the study.
        """
        judged = {curve.rule: curve.rate for curve in self.judged()}
        return {
            rule: judged[rule] for rule in self.configuration["rates"] if rule in judged
        }

    def seeds(self) -> list[int]:
        """Return the seeds on which every judged rule has a judged run.

        Returns
        -------
        list of int
            The seeds, ascending. The list is empty if there are no judged runs.
        """
        judged = self.judged()
        have = [
            {c.seed for c in judged if c.rule == rule}
            for rule in {c.rule for c in judged}
        ]
        return sorted(set.intersection(*have)) if have else []

    def runs(self, rule: str) -> list[Curve]:
        """Return the judged runs of one rule on the seeds that `Curves.seeds` returns.

        Parameters
        ----------
        rule : str
            The rule.

        Returns
        -------
        list of Curve
            The runs, in the order of the seeds. The list is empty if the rule has none.
        """
        judged = {curve.seed: curve for curve in self.judged() if curve.rule == rule}
        return [judged[seed] for seed in self.seeds() if seed in judged]

    def trials(self, rule: str) -> list[Curve]:
        """Return the trials of one rule.

        Parameters
        ----------
        rule : str
            The rule.

        Returns
        -------
        list of Curve
            The trials, in the order of their rates.
        """
        trials = [c for c in self.curves if c.part == "trial" and c.rule == rule]
        return sorted(trials, key=lambda curve: curve.rate)

    def baselines(self) -> dict[str, float]:
        """Return the test accuracy of the plain classifiers on the rows of the study.

        Returns
        -------
        dict of str to float
            For each classifier, by name, the share of test rows that it classifies
            correctly.
        """
        return {
            c.rule: float(c.hits.mean()) for c in self.curves if c.part == "baseline"
        }

    def hours(self) -> float:
        """Return the processor hours of all runs together.

        Returns
        -------
        float
            The hours.
        """
        return sum(curve.seconds for curve in self.curves) / 3600

    def save(self, path: Path) -> None:
        """Write the configuration and all runs to a compressed npz file, atomically.

        Parameters
        ----------
        path : Path
            The file. Missing folders are created.

        Raises
        ------
        OSError
            If the file cannot be written. The message names the path or its folder.
        ValueError
            If a number in the configuration, or a scalar of a run such as its rate, is
            NaN or infinite.
        """
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
        # `load` takes all entries but the first, which is "json", for arrays.
        np.savez_compressed(
            content, json=files.dumps(head | {"curves": rows}), **arrays
        )
        files.write(Path(path), content.getvalue())


def load(path: Path) -> Curves:
    """Read the curves that `Curves.save` wrote.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    Curves
        The curves.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged, is not a file of curves, or has another schema.
    """
    if not Path(path).exists():
        raise FileNotFoundError(
            f"{path} is not there; `python -m lib.training` makes it"
        )
    try:
        # np.load rejects pickled objects. We open the file ourselves, because np.load
        # does not close a damaged file that it has opened.
        with open(path, "rb") as stream, np.load(stream) as file:
            head = json.loads(str(file["json"]))
            runs = [row | {group: {} for group in GROUPS} for row in head["curves"]]
            for place in file.files[1:]:  # the first entry is "json"
                k, *groups, name = place.split("/", 2)
                values = runs[int(k)]
                for group in groups:
                    values = values[group]
                values[name] = file[place]
        if head["schema"] != SCHEMA:
            raise ValueError(f"schema {head['schema']}, this code reads {SCHEMA}")
        return Curves(head["configuration"], tuple(Curve(**run) for run in runs))
    except Exception as error:  # the error's type depends on the damaged byte
        if isinstance(error, KeyError):
            what = f"there is no {error}"
        else:
            what = error
        words = f"{path} is not a curve file that can be read ({what})"
        raise ValueError(f"{words}; fetch it again or run the study") from error
