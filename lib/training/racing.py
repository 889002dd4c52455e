"""The race between the candidate learning rates of one rule."""

import math
from collections.abc import Callable, Mapping

from lib.training.curves import Curve
from lib.training.study import Study

# Unfinished runs are compared by the mean and the standard deviation of their last
# RECENT readings.
RECENT = 10
ERRORS = 2.0  # a run that is worse than the best by more deviations is dropped
# If the cap of SPS limits a smaller share of the steps than this, the cap counts as not
# reached.
UNREACHED = 0.01

# A function that takes rates and a number of steps. It returns the trials at these
# rates, each of which has run for at least this number of steps.
Trials = Callable[[list[float], int], Mapping[float, Curve]]


class Race:
    """Find the learning rate at which a rule is judged, by trials that race.

    The rules of the race:

    1. If there is only one candidate rate, it wins without a trial.
    2. All candidates are run on one seed, the seed of the trials. The race is divided
       into rounds, and each round is an eighth of the horizon long.
    3. After a round, trials that diverged are dropped. From the second round on, a
       trial is also dropped if its cost exceeds the lowest cost by more than two
       standard deviations of the difference. The cost is the mean of the last ten
       readings of the clock. If rows are held out, the cost is minus the accuracy on
       these rows, averaged over the last four evaluations. Its standard deviation then
       includes the sampling error of the rows.
    4. A race for speed ends once two trials have reached the last target. Once one
       trial has reached it, the race also ends when no other trial is still running, or
       after twice the steps that this trial needed.
    5. The winner is the trial that reached the last target in the fewest steps. If
       several trials needed the same number of steps, or if none reached the target,
       the trial with the lowest last reading (a mean of three) wins. If rows are held
       out, the winner is the trial with the lowest cost of rule 3. If trials are still
       tied, the largest rate wins.
    6. While the winner is the smallest or the largest rate of the grid, one more rate
       beyond it is tried: the winner times its ratio to the neighbouring rate, rounded
       to three digits. The new trial runs as long as the race did. The grid grows by at
       most `Study.extensions` rates. If the largest cap of SPS wins but limited less
       than 1 % of its steps, no larger cap is tried.

    Parameters
    ----------
    study : Study
        The study.
    rule : str
        The rule.
    trials : callable
        A function that takes rates and a number of steps, and returns the trials by
        rate, as they were after this number of steps. If a trial has already run
        further, it is cut at this number of steps, so that an interrupted race chooses
        the same rates.
    """

    def __init__(self, study: Study, rule: str, trials: Trials) -> None:
        self.study = study
        self.rule = rule
        self.trials = trials
        self.outcomes: dict[float, Curve] = {}

    def best(self) -> float:
        """Run the race.

        Returns
        -------
        float
            The rate at which the rule is judged.

        Raises
        ------
        ValueError
            If every rate diverged.
        """
        grid = sorted(self.study.rates[self.rule])
        if len(grid) == 1:
            return grid[0]
        steps = self._rounds(grid)
        for _ in range(self.study.extensions):
            winner = self._winner()
            beyond = self._beyond(winner, grid)
            if beyond is None:
                return winner
            self.outcomes |= self.trials([beyond], steps)
            grid = sorted([*grid, beyond])
        return self._winner()

    def _rounds(self, rates: list[float]) -> int:
        """Run the rounds, and return the number of steps after which the race ended."""
        racing = rates
        steps = 0
        for steps in self.study.rounds:
            self.outcomes |= self.trials(racing, steps)
            racing = self.going_on(racing, steps)
            if not racing:
                break
        return steps

    def going_on(self, racing: list[float], steps: int) -> list[float]:
        """Choose the learning rates that continue after a round.

        Parameters
        ----------
        racing : list of float
            The rates of this round, whose trials are in `outcomes`.
        steps : int
            Number of steps done.

        Returns
        -------
        list of float
            The rates that remain by rules 3 and 4. The list is empty if the race is
            over.
        """
        alive = [rate for rate in racing if not self.outcomes[rate].diverged]
        if alive and steps > self.study.rounds[0]:
            alive = self._near_the_best(alive)
        if self.study.criterion == "speed" and self._is_decided(alive, steps):
            return []
        return alive

    def _near_the_best(self, rates: list[float]) -> list[float]:
        """Return the rates that are not much worse than the best one, by rule 3."""
        costs = {rate: self._cost(self.outcomes[rate]) for rate in rates}
        best, error = min(costs.values())
        near = []
        for rate, (cost, deviation) in costs.items():
            if cost - best <= ERRORS * math.hypot(deviation, error):
                near.append(rate)
        return near

    def _is_decided(self, alive: list[float], steps: int) -> bool:
        """Return whether a race for speed is over, by rule 4."""
        needed = {
            rate: self.study.score(trial)[0] for rate, trial in self.outcomes.items()
        }
        first, second = sorted([*needed.values(), math.inf, math.inf])[:2]
        if math.isinf(first):
            return False
        is_waiting = any(math.isinf(needed[rate]) for rate in alive)
        return math.isfinite(second) or not is_waiting or 2 * first <= steps

    def _cost(self, trial: Curve) -> tuple[float, float]:
        """Return the cost of a trial so far, and its standard deviation, by rule 3."""
        if self.study.criterion == "accuracy":
            # The accuracy jumps by several percentage points between evaluations. So we
            # average the last few evaluations, and combine their deviation with the
            # sampling error of the held-out rows.
            recent = self.study.last_accuracies(trial)
            p = float(recent.mean())
            sampling = math.sqrt(p * (1 - p) / self.study.options["held_out"])
            return -p, math.hypot(float(recent.std()), sampling)
        recent = trial.clock["loss"][-RECENT:].astype(float)
        return float(recent.mean()), float(recent.std())

    def _winner(self) -> float:
        """Return the best rate of all trials so far, by rule 5.

        Raises ValueError if every trial diverged.
        """

        def order(rate: float) -> tuple[bool, tuple[float, float], float]:
            trial = self.outcomes[rate]
            # A trial that was dropped before its third reading has an infinite score,
            # too, but comes before the trials that diverged.
            return trial.diverged, self.study.score(trial), -rate

        best = min(self.outcomes, key=order)
        if self.outcomes[best].diverged:
            dead = ", ".join(f"{rate:g}" for rate in sorted(self.outcomes))
            raise ValueError(
                f"{self.study.name}: every rate of {self.rule} diverged: {dead}; give "
                "the study lower rates"
            )
        return best

    def _beyond(self, winner: float, grid: list[float]) -> float | None:
        """Return the rate beyond the edge at which the winner lies, by rule 6, or None.

        The result is None if the winner does not lie at an edge, or needs no larger
        cap.
        """
        if winner == grid[0]:
            neighbour = grid[1]
        elif winner == grid[-1]:
            neighbour = grid[-2]
        else:
            return None
        # Rules other than SPS have no cap that could be out of reach.
        share_capped = self.outcomes[winner].end.get("capped", 1)
        if winner == grid[-1] and share_capped < UNREACHED:
            return None
        return float(f"{winner * winner / neighbour:.3g}")
