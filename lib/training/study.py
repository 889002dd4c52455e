"""A study: update rules compared on one data set by one protocol. Rates first, then paired seeds.

`Study` declares one, `Work` runs it; `notebooks/protocol.md` states the protocol.
"""

import contextlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import Tensor, nn

from lib import files
from lib.training import loop
from lib.training.batches import Batches
from lib.training.curves import STEPWISE, Curve, Curves, code, load, made
from lib.training.measures import Evaluate, correctness, cross_entropy
from lib.training.rules import RULES

TUNING_SEED = 100  # no judged run has it
LAST = 4  # evaluations whose mean held-out accuracy judges a trial
ROUNDS = 8  # equal parts of the horizon, after each of which a race looks at its runs
RECENT = 10  # readings of the clock whose mean and deviation compare two runs on their way
# Standard deviations by which a run must be worse to be dropped.
ERRORS = 2.0
# How rates are judged, what may end a run, and whether it does so below or above `stop_at`.
CRITERIA = {
    "speed": ("recent_loss", -1, f"mean loss of {loop.RECENT} steps at most"),
    "accuracy": ("training_accuracy", 1, "training accuracy of 2,500 reviews at least"),
}
CLOCK = ("clock", -1, "mean training loss of the clock's last three readings at most")


@dataclass(frozen=True)
class Problem:
    """Network and data of a study, loaded; rows are held out where `tuning`.

    `evaluate(model, seed, tuning)` is measured at the points of a run, `finish(model, seed)` once
    at its end, as arrays. `clock` measures "clock_loss", the training loss on fixed rows; each of
    `baselines` fits a plain classifier and says which test rows it has right.
    """

    build: Callable[[], nn.Module]
    batches: Callable[[int, bool], Batches]
    evaluate: Callable[[nn.Module, int, bool], Mapping[str, float]]
    finish: Callable[[nn.Module, int], Mapping[str, np.ndarray]]
    about: Mapping
    loss: Callable[[nn.Module, tuple], Tensor] = cross_entropy
    clock: Evaluate | None = None
    baselines: Mapping[str, Callable[[], np.ndarray]] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """What is compared, fixed before the runs; ValueError for values that cannot be.

    `problem(batch=, **options)` loads network and data. `rates` {rule: candidates}, SPS before
    SNGD, whose `cap` is the rate of SPS where it is None; at most `extensions` are added beyond an
    edge. `criterion` "speed" judges them by the steps to the last of the training losses `targets`,
    "accuracy" by held-out rows. A run ends where what `CRITERIA` names is past `stop_at`.
    `loss_rows` divides a loss that is a sum. A `clock`, steps between its readings, is the second
    protocol: losses are its readings, rates race, and plain classifiers are fitted.
    """

    name: str
    problem: Callable[..., Problem]
    rates: Mapping[str, Sequence[float]]
    horizon: int
    batch: int
    window: int
    targets: Sequence[float]
    options: Mapping = field(default_factory=dict)
    stop_at: float | None = None
    criterion: str = "speed"
    seeds: int = 5
    first_seed: int = 0
    evaluations: int = 20
    extensions: int = 2
    cap: float | None = None
    loss_rows: int = 1
    walk: bool = False
    clock: int = 0

    def __post_init__(self):
        if self.criterion not in CRITERIA:
            names = ", ".join(CRITERIA)
            raise ValueError(f"criterion must be one of {names}, got {self.criterion!r}")
        if unknown := set(self.rates) - set(RULES):
            names = ", ".join(RULES)
            raise ValueError(f"rates names the rules {sorted(unknown)}; there is {names}")
        given = [r for rates in self.rates.values() for r in rates]
        given += [] if self.cap is None else [self.cap]
        if bad := [r for r in given if type(r) not in (int, float) or not 0 < r < math.inf]:
            raise ValueError(f"a rate must be a number above 0 and finite, got {bad[0]}")
        for name in ("horizon", "batch", "window", "seeds", "evaluations", "loss_rows"):
            if (given := getattr(self, name)) < 1:
                raise ValueError(f"{name} must be 1 or more, got {given}")

    @property
    def points(self) -> np.ndarray:
        """After how many steps a run is evaluated; the quarter of the horizon is among them."""
        every = np.linspace(0, self.horizon, self.evaluations + 1).astype(int)
        return np.unique([*every, self.horizon // 4])

    @property
    def stopping(self) -> tuple[str, int, str]:
        """What may end a run: its name, its sign, and words for the record."""
        return CLOCK if self.clock and self.criterion == "speed" else CRITERIA[self.criterion]

    def stop(self, metrics: Mapping[str, float]) -> bool:
        """True where a run with these `metrics` ends."""
        name, sign, _ = self.stopping
        return self.stop_at is not None and sign * metrics[name] >= sign * self.stop_at

    def score(self, trial: Curve) -> tuple[float, float]:
        """How good a trial is, the smaller the better."""
        if trial.diverged:
            return math.inf, math.inf
        if self.criterion == "accuracy":
            return 0.0, -float(np.mean(trial.metrics["test_accuracy"][-LAST:]))
        if self.clock:
            return trial.steps_to(self.targets[-1], 0), float(trial.readings()[-1])
        target = self.targets[-1] * self.loss_rows
        return trial.steps_to(target, self.window), float(trial.smooth(self.window)[-1])

    def going_on(self, trials: Mapping[float, Curve], part: int) -> list[float]:
        """The rates of `trials` that go on in a race after this part of the horizon.

        They did not diverge, nor are they, from the second part on, worse than the best by more
        than `ERRORS` deviations: of the clock's last `RECENT` readings, or binomial ones.
        """
        levels = {}
        for rate, trial in trials.items():
            if trial.diverged:
                continue
            if self.criterion == "accuracy":
                p = float(trial.metrics["test_accuracy"][-1])
                levels[rate] = -p, math.sqrt(p * (1 - p) / self.options["held_out"])
            else:
                last = trial.clock["loss"][-RECENT:].astype(float)
                levels[rate] = float(last.mean()), float(last.std())
        if part == 1 or not levels:
            return list(levels)
        best, error = min(levels.values())
        return [r for r, (m, e) in levels.items() if m - best <= ERRORS * math.hypot(e, error)]

    def decided(self, trials: Mapping[float, Curve], alive: list[float], steps: int) -> bool:
        """Whether a race for speed is over after so many steps, with these rates `alive`: two have
        reached the last target, or one has and no other is left, or twice its steps are over."""
        if self.criterion == "accuracy":
            return False
        needed = {rate: self.score(trial)[0] for rate, trial in trials.items()}
        first, second = sorted([*needed.values(), math.inf, math.inf])[:2]
        waiting = any(math.isinf(needed[rate]) for rate in alive)
        return first < math.inf and (second < math.inf or not waiting or 2 * first <= steps)


class OutOfTime(Exception):
    """The minutes are used up; the text says how many of the planned runs are finished."""


class Work:
    """Runs a `study` in `folder`/<name>-<digest> until its end, or until `minutes` are over.

    Its runs are <run>.npz, those under way <run>.pt beside it; several processes share a study.
    ValueError for minutes not above 0, or a loss summed over a batch that processes share.
    """

    def __init__(self, study: Study, folder: Path, minutes=math.inf, say=print, cpu: bool = False):
        if not minutes > 0:
            raise ValueError(f"minutes must be above 0, got {minutes:g}")
        self.study, self.say, self.cpu = study, say, cpu
        end = time.monotonic() + 60 * minutes
        self.spent = lambda step=0: time.monotonic() >= end
        # Sums are split over threads, and another split rounds differently.
        torch.set_num_threads(1)
        self.machine = loop.accelerator(cpu)
        if study.loss_rows > 1 and self.machine.num_processes > 1:
            raise ValueError(f"{study.name} sums its loss over a batch: one process must train it")
        self.problem = study.problem(batch=study.batch, **study.options)
        apart = ("problem", "options", "stop_at", "seeds", "first_seed", "loss_rows")
        values = {f.name: getattr(study, f.name) for f in fields(study) if f.name not in apart}
        stop = "never" if study.stop_at is None else f"{study.stopping[2]} {study.stop_at:g}"
        values |= dict(stop=stop, tuning_seed=TUNING_SEED, problem=dict(self.problem.about))
        self.configuration = json.loads(files.dumps(values))
        self.key = Curves(study.name, self.configuration, ()).digest
        self.folder = Path(folder) / f"{study.name}-{self.key}"

    def run(self) -> Curves:
        """Run the trials, then the judged runs, and return all of them; raises OutOfTime."""
        study, rates, cap = self.study, {}, self.study.cap
        plain = self.problem.baselines if study.clock else ()
        self.all_of([a_run("baseline", name, 0.0, None, 0) for name in plain])
        for rule in study.rates:
            rates[rule] = self.best(rule, cap)
            cap = rates[rule] if rule == "SPS" and study.cap is None else cap
        seeds = range(study.first_seed, study.first_seed + study.seeds)
        judged = [a_run("curve", rule, rates[rule], cap, s) for s in seeds for rule in rates]
        self.all_of(judged)
        return self.collected()

    def best(self, rule: str, cap: float | None) -> float:
        """The rate at which `rule` is judged, out of the study's candidates; one alone is taken.

        Half of them are dropped at a quarter of the horizon; with a clock they race. While the best
        lies at an edge of the grid, one more rate beyond is tried, as far as the others ran.
        ValueError, with the rates, where every one diverged.
        """

        def trials(rates: list[float], until: int) -> dict[float, Curve]:
            runs = [a_run("trial", rule, rate, cap, TUNING_SEED) for rate in rates]
            trained = self.all_of(runs, until if until < study.horizon else None)
            # Of a trial that has gone on since, the start: who goes on chooses the same rates.
            return {rate: trial.until(until) for rate, trial in zip(rates, trained)}

        study, rates = self.study, sorted(self.study.rates[rule])
        if len(rates) == 1:
            return rates[0]
        if study.clock:
            outcomes, alive = {}, rates
            for part in range(1, ROUNDS + 1):
                end = study.horizon * part // ROUNDS
                outcomes |= (running := trials(alive, end))
                alive = study.going_on(running, part)
                if not alive or study.decided(outcomes, alive, end):
                    break
        else:
            early, end = trials(rates, study.horizon // 4), study.horizon
            order = sorted(rates, key=lambda rate: study.score(early[rate]))
            outcomes = trials(order[: (len(rates) + 1) // 2], end)
        for extension in range(study.extensions + 1):
            scores = {rate: study.score(trial) for rate, trial in outcomes.items()}
            best = min(scores, key=lambda rate: (scores[rate], -rate))
            if outcomes[best].diverged:
                dead = ", ".join(f"{rate:g}" for rate in sorted(outcomes))
                raise ValueError(
                    f"{study.name}: every rate of {rule} diverged that was not dropped: {dead};"
                    " give the study lower rates"
                )
            tried = sorted({*outcomes, *rates})
            beside = {tried[0]: tried[1], tried[-1]: tried[-2]}.get(best)
            # A cap of SPS that is never reached is as good as a larger one.
            free = best == tried[-1] and outcomes[best].end.get("capped", 1) < 0.01
            if beside is None or free or extension == study.extensions:
                return best
            outcomes |= trials([float(f"{best * best / beside:.3g}")], end)

    def all_of(self, runs: list[dict], until: int | None = None) -> list[Curve]:
        """The curves of `runs`, up to the step `until` at least; what another process works on is
        left to it, and taken up where it was killed."""
        while None in (curves := [self.one(who, until) for who in runs]):
            if loop.agreed(self.spent()):
                raise OutOfTime(f"the rest is another process's; {self.left()}")
            time.sleep(0.2)
        return curves

    def one(self, who: dict, until: int | None = None) -> Curve | None:
        """The curve of one run, from its file or trained; None while another process has it.

        ValueError for a file of other code or another device; OutOfTime for a run that is left.
        """
        name = "-".join(str(value) for value in who.values() if value is not None)
        self.folder.mkdir(parents=True, exist_ok=True)
        # A name may end in a rate, so suffixes are added to it and never replaced.
        path, checkpoint = self.folder / f"{name}.npz", self.folder / f"{name}.pt"
        lock = FileLock(self.folder / f".{name}.lock")
        try:
            if self.machine.is_main_process:
                with contextlib.suppress(Timeout):
                    lock.acquire(blocking=False)
            if not loop.agreed(lock.is_locked):
                return None
            curve = self._finished(path) if path.exists() else None
            if curve and (not curve.paused or len(curve.loss) >= (until or math.inf)):
                return curve
            make = self._fitted if who["part"] == "baseline" else self._trained
            curve, words = make(who, checkpoint, until)
            curve = replace(curve, **who, made=made(self.machine.device.type))
            if self.machine.is_main_process:
                Curves(self.study.name, self.configuration, (curve,)).save(path)
                self.say(f"{name}: {curve.status}, {words}, {curve.seconds:.0f} processor seconds")
                if not curve.paused:
                    checkpoint.unlink(missing_ok=True)
            return curve
        finally:
            lock.release()

    def _finished(self, path: Path) -> Curve:
        (curve,) = load(path).curves
        device, theirs = self.machine.device.type, curve.made
        if (theirs["code"], theirs["device"]) != (code(), device):
            raise ValueError(
                f"{path} was made by the code of commit {theirs['commit']} on {theirs['device']},"
                f" this code would run on {device}: move it away, or use another --state"
            )
        return curve

    def _fitted(self, who: dict, checkpoint: Path, until: int | None) -> tuple[Curve, str]:
        begin, none = time.process_time(), np.zeros(0)
        hits = self.problem.baselines[who["rule"]]()
        end, seconds = correctness(torch.from_numpy(hits)), time.process_time() - begin
        curve = Curve("finished", none, none, none, none, seconds=seconds, end=end)
        return curve, f"{hits.mean():.4f} of the test rows right"

    def _trained(self, who: dict, checkpoint: Path, until: int | None) -> tuple[Curve, str]:
        study, problem, seed = self.study, self.problem, who["seed"]
        trial, tuning = who["part"] == "trial", seed == TUNING_SEED
        model = loop.initialised(problem.build, seed)
        curve = loop.train(
            model,
            RULES[who["rule"]](model.parameters(), who["rate"], who["cap"]),
            problem.batches(seed, tuning and study.criterion == "accuracy"),
            study.horizon,
            problem.loss,
            evaluate=lambda model: problem.evaluate(model, seed, tuning),
            at=study.points,
            stop=study.stop,
            walk=study.walk and not trial,
            clock=problem.clock,
            tick=study.clock,
            cpu=self.cpu,
            checkpoint=checkpoint,
            key=f"{self.key} {code()} {checkpoint.stem}",
            until=until,
            pause=self.spent,
        )
        if curve.paused and len(curve.loss) != until:
            raise OutOfTime(f"{study.name}: {checkpoint.stem} {curve.status}; {self.left()}")
        end, last = {}, (curve.smooth(study.window)[-1:] / study.loss_rows).round(4)
        if who["rule"] == "SPS":  # the share of steps that the cap held
            end["capped"] = np.mean(curve.step_size >= who["rate"] * (1 - 1e-6))
        small = {n: getattr(curve, n).astype(np.float32) for n in STEPWISE[:3]}
        if trial:  # its loss and what chooses the rate are kept
            none = np.zeros(0, np.float32)
            small |= dict(step_size=none, gradient_norm=none, weight_norms={}, walked={})
            small["loss"] = curve.loss.clip(max=6e4).astype(np.float16)  # which ends at 65,504
        else:
            end |= problem.finish(model.eval(), seed)
        end = {key: np.asarray(values) for key, values in end.items()}
        clock = {key: values.astype(np.float32) for key, values in curve.clock.items()}
        return replace(curve, **small, clock=clock, end=end), f"loss {last}"

    def collected(self) -> Curves:
        """All trials and judged runs so far."""
        paths = [p for p in self.folder.glob("*.npz") if not p.name.startswith("one-")]
        curves = tuple(self._finished(path) for path in sorted(paths))
        return Curves(self.study.name, self.configuration, curves)

    def left(self) -> str:
        """How far the study is, in words."""
        done = [curve.part for curve in self.collected().curves if not curve.paused]
        planned = self.study.seeds * len(self.study.rates)
        trials, curves = done.count("trial"), done.count("curve")
        return f"{trials} trials and {curves} of {planned} judged runs are finished"


def a_run(part: str, rule: str, rate: float, cap: float | None, seed: int) -> dict:
    """A run by the names of `Curve`; rules other than SNGD have no cap."""
    limit = cap if rule == "SNGD" else None
    return {"part": part, "rule": rule, "rate": rate, "cap": limit, "seed": seed}
