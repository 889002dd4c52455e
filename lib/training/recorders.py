"""What a run records: steps, evaluations, readings of the clock, and the walk.

Each recorder keeps one kind of record. `Trainer` calls it when something is to be
recorded, saves its state with the run, restores this state, and puts its arrays into
the `Curve` of the run.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lib.training.curves import READINGS, trailing_mean
from lib.training.norms import norms
from lib.training.rules import GradientStep

Metrics = Mapping[str, float]


def measured(
    measure: Callable[..., Metrics], model: nn.Module, *place: int
) -> dict[str, float]:
    """Measure a network in evaluation mode, and then return it to training mode.

    Parameters
    ----------
    measure : callable
        A function that takes the network, and also `place` if it is given, and returns
        metrics by name.
    model : torch.nn.Module
        The network.
    *place : int
        The number of steps done, if `measure` takes it as a second argument; otherwise
        nothing. `Evaluations` passes this number, and `Clock` does not.

    Returns
    -------
    dict of str to float
        The metrics, which are computed without gradients.
    """
    model.eval()
    with torch.no_grad():
        metrics = {name: float(value) for name, value in measure(model, *place).items()}
    model.train()
    return metrics


class Steps:
    """The loss at each step; also step size and gradient norm, if the rule states them.

    Parameters
    ----------
    steps : int
        The number of steps of the whole run.
    optimizer : torch.optim.Optimizer
        The optimiser. A `GradientStep` states its step size and gradient norm.
    device : torch.device
        The device of the network. The recorded numbers stay on this device, so that no
        step has to wait for a transfer.
    """

    LOSS = 0
    STEP_SIZE = 1
    GRADIENT_NORM = 2

    def __init__(
        self, steps: int, optimizer: torch.optim.Optimizer, device: torch.device
    ) -> None:
        self.optimizer = optimizer
        rows = 3 if isinstance(optimizer, GradientStep) else 1
        self.log = torch.full((rows, steps), math.nan, device=device)

    def loss(self, step: int, value: Tensor) -> None:
        """Record the loss before a step.

        Parameters
        ----------
        step : int
            The step, from 0.
        value : Tensor ()
            The loss.
        """
        self.log[self.LOSS, step] = value

    def size(self, step: int) -> None:
        """Record the step size and gradient norm after a step, if the rule states them.

        Parameters
        ----------
        step : int
            The step, from 0.
        """
        if isinstance(self.optimizer, GradientStep):
            self.log[self.STEP_SIZE, step] = self.optimizer.last_step_size
            self.log[self.GRADIENT_NORM, step] = self.optimizer.last_gradient_norm

    def is_finite(self, step: int) -> bool:
        """Whether the loss before a step is finite. The call waits for the device.

        Parameters
        ----------
        step : int
            The step, from 0.

        Returns
        -------
        bool
            Whether the loss is finite.
        """
        return math.isfinite(self.log[self.LOSS, step])

    def state(self) -> dict[str, Any]:
        """Return the state that a checkpoint saves.

        Returns
        -------
        dict
            The numbers recorded so far.
        """
        return {"log": self.log}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state that a checkpoint saved.

        Parameters
        ----------
        state : mapping
            The state that `state` returned.
        """
        self.log.copy_(state["log"])

    def arrays(self) -> np.ndarray:
        """Return the record up to the first step with a number that is not finite.

        Returns
        -------
        ndarray of float32 (1 or 3, k)
            The rows are the loss and, if the rule states them, the step size and the
            gradient norm. The columns are the k steps before the first step that was
            not taken or has a number that is not finite.
        """
        record = self.log.cpu().numpy()
        finite = np.isfinite(record).all(axis=0)
        if finite.all():
            return record
        return record[:, : int(finite.argmin())]


class Walk:
    """The walk of each weight: the sum of the squared lengths of its moves.

    Parameters
    ----------
    parameters : list of Tensor
        The weights, which training changes in place.
    """

    def __init__(self, parameters: list[Tensor]) -> None:
        self.parameters = parameters
        self.total = norms(parameters) * 0  # zeros in float64, on the device
        self.before: list[Tensor] = []

    def start_step(self) -> None:
        """Remember the weights before a step."""
        self.before = [parameter.clone() for parameter in self.parameters]

    def end_step(self) -> None:
        """Add the squared move of each weight since `start_step`.

        The norm of a move is computed in the precision of the weight, and the sum in
        float64.
        """
        moves = torch._foreach_norm(torch._foreach_sub(self.parameters, self.before))
        self.total.add_(torch.stack(moves).to(self.total) ** 2)

    def state(self) -> dict[str, Any]:
        """Return the state that a checkpoint saves.

        Returns
        -------
        dict
            The sums so far.
        """
        return {"walked": self.total}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state that a checkpoint saved.

        Parameters
        ----------
        state : mapping
            The state that `state` returned.
        """
        self.total.copy_(state["walked"])


class Clock:
    """Readings of the loss on fixed rows, taken every few steps.

    Parameters
    ----------
    measure : callable
        A function of the network that returns metrics. Only the metric "clock_loss" is
        recorded.
    every : int
        Number of steps between readings. The first reading is at step 0. If `every` is
        0, there are no readings.
    reached : callable, optional
        A function of the step and of the mean of the last three readings that returns
        whether the run ends here. Before there are three readings, the mean is inf (see
        `curves.trailing_mean`). Default: the clock never ends a run.

    Examples
    --------
    >>> from lib.training import Clock
    >>> clock = Clock(lambda model: {"clock_loss": 1.0}, every=50)
    >>> [step for step in range(101) if clock.is_due(step)]
    [0, 50, 100]
    """

    def __init__(
        self,
        measure: Callable[[nn.Module], Metrics],
        every: int,
        reached: Callable[[int, float], bool] | None = None,
    ) -> None:
        self.measure = measure
        self.every = every
        self.reached = reached
        self.start()

    def start(self) -> None:
        """Forget the previous run, since a trainer begins a new one."""
        self.readings: list[float] = []

    def is_due(self, step: int) -> bool:
        """Whether a reading is due after `step` steps.

        Parameters
        ----------
        step : int
            Number of steps done.

        Returns
        -------
        bool
            Whether a reading is due.
        """
        return bool(self.every) and step % self.every == 0

    def read(self, model: nn.Module, step: int) -> bool:
        """Take a reading, and return whether it ends the run.

        Parameters
        ----------
        model : torch.nn.Module
            The network.
        step : int
            Number of steps done.

        Returns
        -------
        bool
            The value that `reached` returns, or False if there is no such function.

        Raises
        ------
        ValueError
            If `measure` does not return "clock_loss".
        """
        metrics = measured(self.measure, model)
        if "clock_loss" not in metrics:
            raise ValueError(
                f"the clock measures {list(metrics)}: its function must return "
                "clock_loss, the loss on fixed rows"
            )
        self.readings.append(metrics["clock_loss"])
        if self.reached is None:
            return False
        return self.reached(step, float(trailing_mean(self.readings[-READINGS:])[-1]))

    def state(self) -> dict[str, Any]:
        """Return the state that a checkpoint saves.

        Returns
        -------
        dict
            The readings so far.
        """
        return {"readings": self.readings}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state that a checkpoint saved.

        Parameters
        ----------
        state : mapping
            The state that `state` returned.
        """
        self.readings = [float(reading) for reading in state["readings"]]

    def arrays(self, end: int) -> dict[str, np.ndarray]:
        """Return the readings after at most `end` steps.

        Parameters
        ----------
        end : int
            Number of steps.

        Returns
        -------
        dict of str to ndarray (readings,)
            "at", the numbers of steps, and "loss", the readings, both in float32. If
            `every` is 0, the dict is empty.
        """
        if not self.every:
            return {}
        return {
            "at": np.arange(0, end + 1, self.every).astype(np.float32),
            "loss": np.array(self.readings[: end // self.every + 1], np.float32),
        }


class Evaluations:
    """Metrics and norms of the weights at chosen steps and at the end.

    Parameters
    ----------
    measure : callable
        A function of the network and the number of steps done that returns metrics by
        name. If only some evaluations return a metric, it is NaN at all other
        evaluations.
    at : iterable of int
        The numbers of steps after which there is an evaluation. A trainer adds an
        evaluation after the last step, or when its clock ends the run.
    stop : callable, optional
        A function of the metrics of an evaluation that returns whether the run ends
        here. Default: an evaluation never ends a run.

    Examples
    --------
    >>> from lib.training import Evaluations
    >>> evaluations = Evaluations(lambda model, step: {"share": 0.5}, at=[0, 100])
    >>> sorted(evaluations.at)
    [0, 100]
    """

    def __init__(
        self,
        measure: Callable[[nn.Module, int], Metrics],
        at: Iterable[int] = (),
        stop: Callable[[Metrics], bool] | None = None,
    ) -> None:
        self.measure = measure
        self.at = {int(step) for step in at}
        self.stop = stop
        self.start()

    def start(self) -> None:
        """Forget the previous run, since a trainer begins a new one."""
        self.rows: list[dict[str, Any]] = []

    def evaluate(
        self,
        model: nn.Module,
        step: int,
        weights: Mapping[str, Tensor],
        walk: Walk | None,
    ) -> None:
        """Take an evaluation.

        Parameters
        ----------
        model : torch.nn.Module
            The network.
        step : int
            Number of steps done.
        weights : mapping of str to Tensor
            The weights whose norms are recorded.
        walk : Walk or None
            The walk of these weights, in the same order. With None, no walk is
            recorded.
        """
        metrics = measured(self.measure, model, step)
        lengths = norms(list(weights.values())).cpu().tolist()
        walked: dict[str, float] = {}
        if walk is not None:
            walked = dict(zip(weights, walk.total.cpu().tolist(), strict=True))
        self.rows.append(
            {
                "at": step,
                "metrics": metrics,
                "weight_norms": dict(zip(weights, lengths, strict=True)),
                "walked": walked,
            }
        )

    def ends_run(self) -> bool:
        """Whether the last evaluation ends the run.

        Returns
        -------
        bool
            The value that `stop` returns for its metrics, or False if there is no such
            function.
        """
        return self.stop is not None and self.stop(self.rows[-1]["metrics"])

    def state(self) -> dict[str, Any]:
        """Return the state that a checkpoint saves.

        Returns
        -------
        dict
            The evaluations so far.
        """
        return {"rows": self.rows}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state that a checkpoint saved.

        Parameters
        ----------
        state : mapping
            The state that `state` returned.
        """
        self.rows = [
            {
                "at": int(row["at"]),
                "metrics": dict(row["metrics"]),
                "weight_norms": dict(row["weight_norms"]),
                "walked": dict(row["walked"]),
            }
            for row in state["rows"]
        ]

    def arrays(self, end: int) -> dict[str, Any]:
        """Return the evaluations after at most `end` steps, under the names of `Curve`.

        Parameters
        ----------
        end : int
            Number of steps.

        Returns
        -------
        dict
            "evaluated_at" is an ndarray of int (points,). Each of "metrics",
            "weight_norms" and "walked" is a dict of arrays of float64 (points,) by
            name.
        """
        rows = [row for row in self.rows if row["at"] <= end]
        arrays: dict[str, Any] = {
            "evaluated_at": np.array([row["at"] for row in rows], dtype=int)
        }
        for group in ("metrics", "weight_norms", "walked"):
            names = dict.fromkeys(name for row in rows for name in row[group])
            arrays[group] = {
                name: np.array([row[group].get(name, math.nan) for row in rows])
                for name in names
            }
        return arrays
