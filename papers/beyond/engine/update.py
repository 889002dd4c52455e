"""An update rule as frozen values, and as the numbers that the compiled loop reads.

The constructors, with their formulas, are in `optimisers`.
"""

import math
from dataclasses import dataclass

import numpy as np

ENTRYWISE, SPECTRAL, ADAPTIVE, SIGN, SHAMPOO, SOAP, MIRROR, NATURAL, FULL_ADAGRAD = range(9)
POLAR, LEADING, NEWTON_SCHULZ = range(3)  # what becomes of the singular values
# Places in the array of numbers that the compiled loop reads.
KIND, STEP, DECAY, P, NORMALISED, SHAPE, ITERATIONS, MOMENTUM, MEMORY, EPSILON, NESTEROV = range(11)
CORRECTED, SUMMED, FIRST_MIX, BATCH, BLOCKS, BY_COLUMNS, DAMPING, RELATIVE = range(11, 19)
EMPIRICAL, RADIUS, GROWTH, EVERY = range(19, 23)
NUMBERS = 23


@dataclass(frozen=True)
class Optimiser:
    """One update rule W_{t+1} = W_t + eta_t D_t; build it with a constructor of `optimisers`.

    kind, p, shape, iterations, normalised: which direction D; momentum, memory (beta_1, beta_2),
    first_mix, epsilon, nesterov, corrected, summed: as the constructors say; step_size eta and
    decay a; batch: samples per step, 0 for all, `shuffled` anew each epoch or cyclic; blocks: parts
    of W's rows or columns that move on their own; damping, relative, empirical: of the natural
    gradient; radius, growth, every: the norms that W is brought to.
    """

    kind: int
    step_size: float
    decay: float = 0.0
    p: float = 2.0
    normalised: bool = True
    shape: int = POLAR
    iterations: int = 0
    momentum: float = 0.0
    memory: float = 0.0
    epsilon: float = 0.0
    nesterov: bool = False
    corrected: bool = False
    summed: bool = False
    first_mix: float = 0.0
    batch: int = 0
    shuffled: bool = False
    blocks: int = 1
    by_columns: bool = False
    damping: float = 0.0
    relative: bool = False
    empirical: bool = False
    radius: float = math.inf
    growth: float = 1.0
    every: int = 1

    def __post_init__(self):
        if not 0 < self.step_size < math.inf:
            raise ValueError(f"step_size = {self.step_size}; it must be positive and finite")
        if not math.isfinite(self.decay):
            raise ValueError(f"decay = {self.decay}; it must be finite")
        for name in ("momentum", "memory", "first_mix"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}; it must be in [0, 1)")
        for name in ("epsilon", "damping"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(
                    f"{name} = {getattr(self, name)}; it must be finite, 0 or positive"
                )
        if self.batch != int(self.batch) or self.batch < 0:
            raise ValueError(f"batch = {self.batch}; it must be a whole number, 0 for all samples")
        for name in ("blocks", "every"):
            if getattr(self, name) != int(getattr(self, name)) or getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}; it must be a whole number >= 1")
        if not (self.radius > 0 and 1 <= self.growth < math.inf):
            raise ValueError(f"radius {self.radius}, growth {self.growth}; they need > 0 and >= 1")

    def numbers(self) -> np.ndarray:
        """The rule as the compiled loop takes it, (NUMBERS,)."""
        found = np.zeros(NUMBERS)
        found[[KIND, STEP, DECAY, P]] = self.kind, math.log(self.step_size), self.decay, self.p
        found[[NORMALISED, SHAPE, ITERATIONS]] = self.normalised, self.shape, self.iterations
        found[[MOMENTUM, MEMORY, FIRST_MIX]] = self.momentum, self.memory, self.first_mix
        found[[EPSILON, NESTEROV, BATCH]] = self.epsilon, self.nesterov, self.batch
        found[[CORRECTED, SUMMED]] = self.corrected, self.summed
        found[[BLOCKS, BY_COLUMNS]] = self.blocks, self.by_columns
        found[[DAMPING, RELATIVE, EMPIRICAL]] = self.damping, self.relative, self.empirical
        found[[RADIUS, GROWTH, EVERY]] = math.log(self.radius), math.log(self.growth), self.every
        return found
