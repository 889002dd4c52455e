"""Paper A's language experiments: a BERT classifier under four update rules, rates chosen on held-out rows."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from lib import training
from lib.networks.bert import Tokens
from lib.training import bert_evaluation, comparison, step_sizes
from lib.training.record import TrainingHistory

# Rule -> optimiser from parameters, rate and cap η_max; SPS has only the cap.
RULES = {
    "SGD": lambda parameters, rate, cap: torch.optim.SGD(parameters, rate),
    "Adam": lambda parameters, rate, cap: torch.optim.Adam(parameters, rate),
    "SPS": lambda parameters, rate, cap: step_sizes.StochasticPolyak(parameters, cap),
    "SNGD": lambda parameters, rate, cap: step_sizes.NormalizedSGD(parameters, rate, cap),
}
GRID_POINTS = 4  # evaluations in the second half of a trial, whose mean is its score


@dataclass(frozen=True)
class Experiment:
    """One network and one training set for all rules: a seed fixes the head's start, the batches
    and dropout.

    `network()` builds the classifier; `precision` is "float32", or "bf16" for autocast with float32
    weights; `checkpoint_every` is in steps, 0 for none, where a run is short.
    """

    network: Callable[[], nn.Module]
    tokens: Tokens
    batch: int
    precision: str
    parts: comparison.Parts
    checkpoint_every: int = 0

    def train(
        self,
        rule: str,
        rate: float,
        cap: float,
        seed: int,
        steps: int,
        evaluate: Callable,
        points: Iterable[int],
    ) -> TrainingHistory:
        """The history of one run, from disk where it was finished before, else from its last checkpoint on."""

        every = self.checkpoint_every

        def run(checkpoint) -> TrainingHistory:
            model = training.initialised(self.network, seed)
            return training.train(
                model,
                RULES[rule](model.parameters(), rate, cap),
                bert_evaluation.batches(self.tokens, self.batch, seed),
                steps,
                evaluate=evaluate,
                evaluate_at=points,
                label=f"{rule} {rate:g}, seed {seed}",
                precision=self.precision,
                checkpoints=training.Checkpoints(checkpoint, every) if every else None,
            )

        return self.parts.get(f"{rule}-{rate:g}-{cap:g}-seed{seed}-{steps}", run)

    def curves(
        self,
        rates: Mapping[str, float],
        seeds: int,
        steps: int,
        evaluate: Callable,
        points: Iterable[int],
    ) -> dict[str, list[TrainingHistory]]:
        """Every rule at its rate, seeds 0 ... `seeds` - 1; the rate of SPS is the cap of both capped rules."""
        return {
            rule: [
                self.train(rule, rates[rule], rates["SPS"], seed, steps, evaluate, points)
                for seed in range(seeds)
            ]
            for rule in RULES
        }

    def grid(
        self, candidates: Mapping[str, list[float]], seed: int, steps: int, evaluate: Callable
    ) -> dict[str, dict[float, float]]:
        """Held-out loss of every rule and rate: the mean over the second half of `steps` steps, NaN
        if it diverged.

        SPS's candidates are caps. The best one is also SNGD's cap, as in the paper, so SPS comes
        before SNGD. `seed` must be one that no curve uses; `evaluate` must look at held-out
        training rows.
        """
        points = np.linspace(steps / 2, steps, GRID_POINTS).astype(int)
        losses, cap = {}, math.inf
        for rule in RULES:
            trials = {}
            for rate in candidates[rule]:
                limit = rate if rule == "SPS" else cap
                history = self.train(rule, rate, limit, seed, steps, evaluate, points)
                trials[rate] = float(np.mean(history.metrics.get("test_loss", np.nan)))
            losses[rule] = trials
            if rule == "SPS":
                cap = comparison.choose({rule: trials})[rule]
        return losses
