"""Learning rates chosen by their loss on training rows that were held out, never on test rows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Grid:
    """Held-out losses of each rule at each rate: `rates[rule]` (k,), `losses[rule]` (k, trials); NaN where diverged."""

    rates: Mapping[str, np.ndarray]
    losses: Mapping[str, np.ndarray]

    def score(self, rule: str) -> np.ndarray:
        """Mean over trials for each rate (k,); infinite where any trial diverged."""
        mean = self.losses[rule].mean(1)
        return np.where(np.isfinite(mean), mean, np.inf)

    @property
    def best(self) -> dict[str, float]:
        """The rate with the lowest score, per rule; the larger of equals. RuntimeError where every rate diverged."""
        chosen = {}
        for rule, rates in self.rates.items():
            score = self.score(rule)
            if not np.isfinite(score).any():
                raise RuntimeError(
                    f"{rule} diverged at every rate of {', '.join(f'{r:g}' for r in rates)}: add smaller"
                )
            chosen[rule] = float(rates[np.flatnonzero(score == score.min()).max()])
        return chosen

    @property
    def at_edge(self) -> list[str]:
        """The rules whose best rate is the smallest or largest one tried, so that a better one may lie outside."""
        return [rule for rule, rate in self.best.items() if rate in (self.rates[rule].min(), self.rates[rule].max())]

    def __or__(self, other: "Grid") -> "Grid":
        return Grid({**self.rates, **other.rates}, {**self.losses, **other.losses})

    def draw(self, ax, band: Callable) -> None:
        """Draw every rule's held-out loss over the rate on `ax` with `band` (plots.band); a ring marks the best."""
        for rule, rates in self.rates.items():
            band(ax, rates, self.losses[rule].T, rule, marker=".")
            best = self.best[rule]
            ax.plot(best, np.median(self.losses[rule][rates == best]), "o", mfc="none", mec="0.2", ms=8)
        ax.set(xscale="log", xlabel="Learning rate")


def search(
    trial: Callable[[str, float, int], float], candidates: Mapping[str, Sequence[float]], seeds: Iterable[int]
) -> Grid:
    """Call `trial(rule, rate, seed)`, which returns a held-out loss (NaN after a divergence), for every combination."""
    seeds = list(seeds)
    rates = {rule: np.array(sorted(values), dtype=float) for rule, values in candidates.items()}
    losses = {
        rule: np.array([[trial(rule, float(rate), seed) for seed in seeds] for rate in values])  # (k, trials)
        for rule, values in rates.items()
    }
    return Grid(rates, losses)
