"""A study, run piece by piece and resumable.

Every run is saved when it ends and checkpointed before, so that a killed study goes on where it
was, bit for bit. Several processes may share one study; each run is worked on by one of them.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from torch import nn

from lib.budget import Budget
from lib.training import loop, rate_choice
from lib.training.checkpoints import Checkpoints
from lib.training.compilation import compiled_or_eager
from lib.training.curves import Curve, Curves
from lib.training.history import TrainingHistory
from lib.training.rules import RULES
from lib.training.run_files import RunFiles, RunId, Taken
from lib.training.settings import Execution, Recording
from lib.training.study import TUNING_SEED, Study

CHECKPOINT_EVERY = 500  # steps


class OutOfTime(Exception):
    """The minutes are used up; the text says how many of the planned runs are finished."""


class Runner:
    """Runs a `study` in `folder`/<name>-<digest> until its end, or until `budget` is spent."""

    def __init__(self, study: Study, folder: Path, budget: Budget, say: Callable = print):
        self.study, self.budget, self.say = study, budget, say
        self.problem = study.problem()
        self.configuration = study.configuration(self.problem.about)
        self.files = RunFiles(folder, study.name, self.configuration)

    def run(self, only: Sequence[str] = (), backwards: bool = False) -> Curves:
        """Run the trials, then the curves, and return the curves so far.

        `only` names some of the rules, `backwards` takes the seeds from the last: so several
        processes share one study. Raises OutOfTime; ValueError where every rate of a rule diverged,
        or for a rule that the study lacks.
        """
        if unknown := [rule for rule in only if rule not in self.study.rates]:
            there = ", ".join(self.study.rates)
            raise ValueError(f"only names {', '.join(unknown)}; {self.study.name} has {there}")
        rates, cap = {}, self.study.cap
        for rule in self.study.rates:
            wanted = not only or rule in only
            shared = rule == "SPS" and self.study.cap is None
            if not (wanted or shared and "SNGD" in only):
                continue
            rate = self.choose(rule, cap)
            rates |= {rule: rate} if wanted else {}
            cap = rate if shared else cap
        first = self.study.first_seed
        for seed in sorted(range(first, first + self.study.seeds), reverse=backwards):
            for rule, rate in rates.items():
                self.one(_run_id("curve", rule, rate, cap, seed))
        return self.files.collected()

    def choose(self, rule: str, cap: float | None) -> float:
        """The rate of `rule`, by `rate_choice.choose`."""

        def trial(rate: float, quarter: bool) -> Curve:
            return self.one(_run_id("trial", rule, rate, cap, TUNING_SEED), quarter)

        return rate_choice.choose(self.study, rule, trial)

    def one(self, run: RunId, quarter: bool = False) -> Curve:
        """The curve of one run: from its file if it is finished, else trained from its checkpoint.

        With `quarter` the run goes up to the quarter only. Raises OutOfTime.
        """
        try:
            with self.files.alone(run, self.budget.spent):
                return self.files.finished(run, quarter) or self.work(run, quarter)
        except Taken as error:
            raise OutOfTime(f"{error}; {self.left()}") from None

    def work(self, run: RunId, quarter: bool) -> Curve:
        """Train one run, up to a quarter or to its end, and save it.

        Raises OutOfTime, with what is left to do, where the budget ended before the run did.
        """
        begin = time.process_time()
        model, history = self.train(run, quarter)
        at_quarter = quarter and history.status == f"paused after step {self.study.quarter}"
        spent = time.process_time() - begin + self.files.seconds(run)
        self.files.note_seconds(run, spent)
        if history.paused and not at_quarter:
            raise OutOfTime(f"{self.study.name}: {run} {history.status}; {self.left()}")
        end = {} if at_quarter else self.end(run, model, history)
        curve = Curve.of(history, vars(run), end, spent)
        self.files.keep(run, curve, whole=not at_quarter)
        last = curve.smooth(self.study.window)[-1:] / self.study.loss_rows
        self.say(f"{run}: {curve.status}, loss {last.round(4)}, {spent:.0f} s of processor time")
        return curve

    def train(self, run: RunId, quarter: bool) -> tuple[nn.Module, TrainingHistory]:
        """Model and history of one run, from its checkpoint on."""
        study, problem, tuning = self.study, self.problem, run.part == "trial"
        model = loop.initialised(problem.build, run.seed)
        batches = problem.batches(run.seed, tuning and study.criterion == "accuracy")
        if study.compiled:
            compiled_or_eager(model, batches.batch(0), problem.loss, self.say)

        def pause(done: int) -> bool:
            return self.budget.spent() or (quarter and done == study.quarter)

        path = self.files.checkpoint(run)
        recording = Recording(
            evaluate=problem.evaluate(run.seed, tuning),
            at=study.points,
            stop=study.stop,
            walk=study.walk and not tuning,
            label=f"{study.name} {run.rule}",
        )
        history = loop.train(
            model,
            RULES[run.rule](model.parameters(), run.rate, run.cap),
            batches,
            study.horizon,
            problem.loss,
            recording,
            Execution(checkpoints=Checkpoints(path, CHECKPOINT_EVERY, self.configuration, pause)),
        )
        return model, history

    def end(self, run: RunId, model: nn.Module, history: TrainingHistory) -> dict[str, np.ndarray]:
        """What is measured once, when a run has ended: arrays by name, by `StudyProblem.finish`.

        For SPS also "capped", the share of its steps that the cap held; a trial has nothing else.
        """
        found = {}
        if run.rule == "SPS":
            steps = history.step_size[np.isfinite(history.step_size)]
            found["capped"] = np.array(np.mean(steps >= run.rate * (1 - 1e-6)))
        if run.part == "trial":
            return found
        model.eval()
        measured = self.problem.finish(run.seed)(model)
        return found | {name: np.asarray(values) for name, values in measured.items()}

    def left(self) -> str:
        """How far the study is, in words."""
        planned = self.study.seeds * len(self.study.rates)
        trials, curves = self.files.count("trial"), self.files.count("curve")
        return f"{trials} trials and {curves} of {planned} curves are finished"


def _run_id(part: str, rule: str, rate: float, cap: float | None, seed: int) -> RunId:
    return RunId(part, rule, rate, cap if rule == "SNGD" else None, seed)  # others have no cap
