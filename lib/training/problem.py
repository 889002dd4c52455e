"""The interface to a study's network and data, with one method per measurement."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import Tensor, nn

from lib.training.batches import Batches
from lib.training.loop import cross_entropy


class Problem(ABC):
    """The network and the data of a study, loaded.

    A subclass defines how the network is built, on which data it is trained, and what
    is measured. The argument `tuning` of a method says whether a rate is being tried.
    If a problem holds rows out, then during tuning these rows are used in place of the
    test rows.

    Attributes
    ----------
    about : mapping
        A description of the network and the data, in words and numbers. It is stored in
        files of curves.
    summed : bool
        Whether `loss` is the sum over a batch instead of the mean.

    Examples
    --------
    A network of one layer learns which of two points an input is:

    >>> import torch
    >>> from lib.networks.measures import classification
    >>> from lib.training import Batches, Problem, Study, race
    >>> class TwoPoints(Problem):
    ...     def __init__(self, batch):
    ...         self.inputs = torch.eye(2).repeat(8, 1)
    ...         self.labels = torch.arange(2).repeat(8)
    ...         self.batch = batch
    ...         self.about = {"data": "two points", "rows": 16}
    ...
    ...     def build(self):
    ...         return torch.nn.Linear(2, 2)
    ...
    ...     def batches(self, seed, tuning):
    ...         return Batches(self.inputs, self.labels, self.batch, seed)
    ...
    ...     def clock(self, model):
    ...         return classification(self.inputs, self.labels, name="clock")(model)
    >>> study = Study(
    ...     name="two points",
    ...     problem=TwoPoints,
    ...     rates={"SGD": [0.1, 1.0]},
    ...     horizon=16,
    ...     batch=4,
    ...     window=2,
    ...     targets=[0.5],
    ...     clock=2,
    ...     seeds=1,
    ...     extensions=0,
    ... )
    >>> curves = race(study, say=lambda sentence: None)
    >>> curves.rates(), curves.runs("SGD")[0].steps_to(0.5)
    ({'SGD': 1.0}, 4.0)
    """

    about: Mapping[str, Any]
    summed: bool = False

    @abstractmethod
    def build(self) -> nn.Module:
        """Build the network with random weights from torch's generator.

        Returns
        -------
        torch.nn.Module
            The network.
        """

    @abstractmethod
    def batches(self, seed: int, tuning: bool) -> Batches:
        """Return the batches on which a run is trained.

        Parameters
        ----------
        seed : int
            The seed of the shuffling.
        tuning : bool
            Whether a rate is being tried. If so, no batch may contain a row that is
            held out.

        Returns
        -------
        Batches
            The batches.
        """

    @abstractmethod
    def clock(self, model: nn.Module) -> Mapping[str, float]:
        """Measure the loss on fixed training rows.

        Parameters
        ----------
        model : torch.nn.Module
            The network, in evaluation mode.

        Returns
        -------
        mapping of str to float
            "clock_loss" and possibly other metrics, which are not recorded.
        """

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Compute the loss that training minimises. Default: mean cross-entropy.

        Parameters
        ----------
        model : torch.nn.Module
            The network.
        batch : tuple of Tensor
            Inputs and targets.

        Returns
        -------
        Tensor ()
            The loss.
        """
        return cross_entropy(model, batch)

    def evaluate(
        self, model: nn.Module, seed: int, tuning: bool
    ) -> Mapping[str, float]:
        """Measure a network at the points of a run. Default: nothing.

        Parameters
        ----------
        model : torch.nn.Module
            The network, in evaluation mode.
        seed : int
            The seed of the run, from which the initial network can be built again.
        tuning : bool
            Whether a rate is being tried.

        Returns
        -------
        mapping of str to float
            Metrics by name.
        """
        return {}

    def closing(self, model: nn.Module) -> Mapping[str, float]:
        """Take the expensive measurements at the last points of a run. Default: none.

        These are the last points of the whole horizon, so that a run that ends earlier
        may have no such measurements.

        Parameters
        ----------
        model : torch.nn.Module
            The network, in evaluation mode.

        Returns
        -------
        mapping of str to float
            Metrics by name.
        """
        return {}

    def finish(self, model: nn.Module, seed: int) -> Mapping[str, np.ndarray]:
        """Measure a network at the end of a judged run. Default: nothing.

        Parameters
        ----------
        model : torch.nn.Module
            The network, in evaluation mode.
        seed : int
            The seed of its run.

        Returns
        -------
        mapping of str to ndarray
            Arrays by name.
        """
        return {}

    def baselines(self) -> Mapping[str, Callable[[], np.ndarray]]:
        """Return the plain classifiers that the network should beat. Default: none.

        Returns
        -------
        mapping of str to callable
            For each name, a function without arguments that fits the classifier and
            returns whether it classifies each test row correctly, an ndarray of bool
            (test rows,).
        """
        return {}
