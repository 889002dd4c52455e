"""The race between the candidate rates of one rule."""

import math
from collections.abc import Callable, Mapping

from lib.training.curves import Curve
from lib.training.study import LAST, Study

# Readings of the clock whose mean and deviation compare two runs on their way.
RECENT = 10
ERRORS = 2.0  # standard deviations by which a run must be worse to be dropped
# A cap of SPS that held in a smaller share of steps was never reached.
UNREACHED = 0.01

# From rates and a number of steps to the trials at these rates, run so far at least.
Trials = Callable[[list[float], int], Mapping[float, Curve]]


class Race:
    """Find the rate at which a rule is judged, by trials that race.

    The rules of the race:

    1. One candidate alone is taken, without a trial.
    2. All candidates are run on one seed, that of the trials, in rounds of an eighth of
       the horizon each.
    3. After a round, trials that diverged are dropped. From the second round on, a
       trial is dropped too if its level is worse than the best one's by more than two
       standard deviations of their difference. The level is the mean of the last ten
       readings of the clock. If rows are held out, it is the accuracy on them, averaged
       over the last four evaluations; its deviation includes the sampling error of
       these rows.
    4. A race for speed ends once two trials have reached the last target. It also ends
       if one has, and no other trial is left that has not, or twice its steps are over.
    5. The winner is the trial with the fewest steps to the last target, of equal ones
       that with the lower last reading; if rows are held out, that with the highest
       accuracy on them. Of equal ones the larger rate wins.
    6. While the winner lies at an edge of the grid, one more rate beyond it is tried,
       at the ratio of the last two. The grid grows by at most `Study.extensions` rates.
       A cap of SPS that was never reached needs no larger one.

    Parameters
    ----------
    study : Study
        The study.
    rule : str
        The rule.
    trials : callable
        From rates and a number of steps to the trials at these rates, by rate, as they
        were after so many steps. A trial that was taken further before is cut there, so
        that an interrupted race chooses the same rates.
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
        """Run the rounds; return the number of steps after which the race ended."""
        racing = rates
        steps = 0
        for steps in self.study.rounds:
            self.outcomes |= self.trials(racing, steps)
            racing = self.going_on(racing, steps)
            if not racing:
                break
        return steps

    def going_on(self, racing: list[float], steps: int) -> list[float]:
        """Choose the rates that go on after a round.

        Parameters
        ----------
        racing : list of float
            The rates of this round.
        steps : int
            Number of steps done.

        Returns
        -------
        list of float
            The rates by the rules 3 and 4; none if the race is over.
        """
        alive = [rate for rate in racing if not self.outcomes[rate].diverged]
        if alive and steps > self.study.rounds[0]:
            alive = self._near_the_best(alive)
        if self.study.criterion == "speed" and self._is_decided(alive, steps):
            return []
        return alive

    def _near_the_best(self, rates: list[float]) -> list[float]:
        """Keep the rates that are not worse than the best one beyond the error."""
        levels = {rate: self._level(self.outcomes[rate]) for rate in rates}
        best, error = min(levels.values())
        near = []
        for rate, (level, deviation) in levels.items():
            if level - best <= ERRORS * math.hypot(deviation, error):
                near.append(rate)
        return near

    def _is_decided(self, alive: list[float], steps: int) -> bool:
        """Whether a race for speed is over, by rule 4."""
        needed = {
            rate: self.study.score(trial)[0] for rate, trial in self.outcomes.items()
        }
        first, second = sorted([*needed.values(), math.inf, math.inf])[:2]
        if math.isinf(first):
            return False
        is_waiting = any(math.isinf(needed[rate]) for rate in alive)
        return math.isfinite(second) or not is_waiting or 2 * first <= steps

    def _level(self, trial: Curve) -> tuple[float, float]:
        """Say how good a trial is by now, the smaller the better, and its deviation."""
        if self.study.criterion == "accuracy":
            # One reading of a run jumps by several points, so the last few are
            # averaged, and their own deviation counts beside the sampling error of the
            # held-out rows.
            recent = trial.metrics["test_accuracy"][-LAST:].astype(float)
            p = float(recent.mean())
            sampling = math.sqrt(p * (1 - p) / self.study.options["held_out"])
            return -p, math.hypot(float(recent.std()), sampling)
        recent = trial.clock["loss"][-RECENT:].astype(float)
        return float(recent.mean()), float(recent.std())

    def _winner(self) -> float:
        """Return the best rate of all trials so far."""
        scores = {
            rate: self.study.score(trial) for rate, trial in self.outcomes.items()
        }
        best = min(scores, key=lambda rate: (scores[rate], -rate))
        if self.outcomes[best].diverged:
            dead = ", ".join(f"{rate:g}" for rate in sorted(self.outcomes))
            raise ValueError(
                f"{self.study.name}: every rate of {self.rule} diverged that was not "
                f"dropped: {dead}; give the study lower rates"
            )
        return best

    def _beyond(self, winner: float, grid: list[float]) -> float | None:
        """Return the rate beyond the edge at which the winner lies, by rule 6."""
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
