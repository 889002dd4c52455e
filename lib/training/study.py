"""A study: update rules compared on one data set by one protocol.

The protocol is notebooks/protocol.md.
"""

import contextlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import Tensor, nn

from lib import files, provenance, seeds
from lib.training import loop
from lib.training.batches import Batches
from lib.training.curves import NONE, Curve, Curves, load
from lib.training.rules import maker

ROOMS = ("training", "networks", "data")  # of the library, whose code decides a run
TUNING_SEED = 100  # of the races between rates
# The same, with those of a second race; no judged run has one
TUNING_SEEDS = (
    100,
    101,
    102,
)
# Evaluations whose mean accuracy judges a run; what `Problem.closing` says is measured
# there.
LAST = 4
ROUNDS = 8  # equal parts of the horizon, after each of which a race looks at its runs
RECENT = (
    10  # readings of the clock whose mean and deviation compare two runs on their way
)
ERRORS = 2.0  # standard deviations by which a run must be worse to be dropped
TRAINED = "training_accuracy"  # the metric that ends a run judged by accuracy
# What may end a run, by criterion, in words that `stop_at` follows.
ENDS = {
    "speed": "mean training loss of the clock's last three readings at most",
    "accuracy": "training accuracy of 2,500 reviews at least",
}
# Whole numbers from here on.
WHOLE = {"horizon": ROUNDS, "first_seed": 0, "extensions": 0, "stop_from": 0}
WHOLE |= dict.fromkeys(("batch", "window", "seeds", "evaluations", "clock"), 1)


@dataclass(frozen=True)
class Problem:
    """Network and data of a study, loaded.

    If a function has the argument `tuning`, it says whether rows are held out.

    Parameters
    ----------
    build : callable
        A function without arguments that returns the network.
    batches : callable
        The batches, of (seed, tuning).
    evaluate : callable
        From (model, seed, tuning) to metrics, measured at the points of a run.
    finish : callable
        From (model, seed) to arrays, measured at the end of a run.
    about : mapping
        Network and data in words and numbers.
    clock : callable
        From a model to "clock_loss", the loss on fixed training rows.
    baselines : mapping of str to callable
        Functions without arguments that return which test rows a plain classifier has
        right.
    loss : callable
        From model and batch to the loss. Default: mean cross-entropy.
    summed : bool, default False
        Whether `loss` is a batch's sum, not its mean.
    closing : callable
        From a model to metrics that are dear, and are measured besides only at the last
        `LAST` points of a judged run. Default: none.
    """

    build: Callable[[], nn.Module]
    batches: Callable[[int, bool], Batches]
    evaluate: Callable[[nn.Module, int, bool], Mapping[str, float]]
    finish: Callable[[nn.Module, int], Mapping[str, np.ndarray]]
    about: Mapping
    clock: loop.Evaluate
    baselines: Mapping[str, Callable[[], np.ndarray]]
    loss: Callable[[nn.Module, tuple], Tensor] = loop.cross_entropy
    summed: bool = False
    closing: loop.Evaluate = lambda model: {}


@dataclass(frozen=True)
class Study:
    """What is compared, fixed before the runs.

    Parameters
    ----------
    name : str
        Name of the study.
    problem : callable
        ``problem(batch=batch, **options)`` loads network and data.
    rates : mapping of str to sequence of float
        The candidate rates of each rule, SPS before SNGD.
    horizon : int
        The largest number of steps of a run.
    batch : int
        Number of rows per batch.
    window : int
        Number of steps over which the loss is averaged.
    targets : sequence of float
        Training losses; trials race to the last one. A study that holds out rows judges
        by the accuracy on these.
    clock : int
        Number of steps between readings of the clock. Losses are its readings.
    options : mapping
        Options of `problem`, among them the number of rows that are held out.
    stop_at : float, optional
        A run ends where what `ENDS` names is past it: for speed at the first such
        reading from the step `stop_from` on, for accuracy at an evaluation.
    seeds : int, default 5
        Number of judged runs per rule.
    first_seed : int, default 0
        The first of their seeds.
    evaluations : int, default 20
        Number of evaluations of a run after its start.
    extensions : int, default 2
        How many rates are added beyond an edge of the candidates at most.
    cap : float, optional
        The cap of SNGD. Default: the rate of SPS.
    walk : bool, default False
        Whether judged runs add up the squared moves of the weights.
    stop_from : int, default 0
        The first step at which a reading of the clock may end a run.

    Raises
    ------
    ValueError
        For values that cannot be.
    """

    name: str
    problem: Callable[..., Problem]
    rates: Mapping[str, Sequence[float]]
    horizon: int
    batch: int
    window: int
    targets: Sequence[float]
    clock: int
    options: Mapping = field(default_factory=dict)
    stop_at: float | None = None
    seeds: int = 5
    first_seed: int = 0
    evaluations: int = 20
    extensions: int = 2
    cap: float | None = None
    walk: bool = False
    stop_from: int = 0

    def __post_init__(self) -> None:
        numbers = [x for x in (self.cap, self.stop_at) if x is not None]
        for rule, rates in self.rates.items():
            maker(rule)
            numbers += rates
        for x in (*numbers, *self.targets):
            if type(x) not in (int, float) or not 0 < x < math.inf:
                raise ValueError(
                    f"rates, targets, cap, stop_at are finite and above 0, not {x!r}"
                )
        for name, minimum in WHOLE.items():
            seeds.whole_number(name, getattr(self, name), minimum)
        for name, value in self.options.items():
            if type(value) is int:
                seeds.whole_number(f"options.{name}", value, 1)
        judged = range(self.first_seed, self.first_seed + self.seeds)
        for seed in TUNING_SEEDS:
            if seed in judged:
                raise ValueError(
                    f"seed {seed} is that of the trials: no judged run may have it"
                )

    @property
    def criterion(self) -> str:
        """By what rates are judged: "accuracy" on held-out rows, or "speed"."""
        if "held_out" in self.options:
            return "accuracy"
        return "speed"

    @property
    def points(self) -> np.ndarray:
        """After how many steps a run is evaluated."""
        return np.unique(np.linspace(0, self.horizon, self.evaluations + 1).astype(int))

    @property
    def rounds(self) -> list[int]:
        """After how many steps trials are compared."""
        return [self.horizon * part // ROUNDS for part in range(1, ROUNDS + 1)]

    def stop(self, metrics: Mapping[str, float]) -> bool:
        """Say whether a run ends that is judged by accuracy.

        Parameters
        ----------
        metrics : mapping of str to float
            The metrics of an evaluation.

        Returns
        -------
        bool
            Whether the accuracy that `stop_at` bounds has reached it.

        Raises
        ------
        ValueError
            If the study does not measure this accuracy.
        """
        if self.stop_at is None or self.criterion == "speed":
            return False
        if TRAINED not in metrics:
            raise ValueError(
                f"{self.name} does not measure {TRAINED}: it can have no stop_at"
            )
        return metrics[TRAINED] >= self.stop_at

    def reached(self, step: int, reading: float) -> bool:
        """Say whether a run ends that is judged by speed.

        Parameters
        ----------
        step : int
            The step.
        reading : float
            The mean reading of the clock there.

        Returns
        -------
        bool
            Whether it has come down to `stop_at`, at `stop_from` or later.
        """
        if (
            self.stop_at is None
            or self.criterion == "accuracy"
            or step < self.stop_from
        ):
            return False
        return reading <= self.stop_at

    def score(self, trial: Curve) -> tuple[float, float]:
        """Score a trial.

        Parameters
        ----------
        trial : Curve
            The trial.

        Returns
        -------
        tuple of (float, float)
            How good the trial is: the smaller the better.
        """
        if trial.diverged:
            return math.inf, math.inf
        if self.criterion == "accuracy":
            return 0.0, -float(np.mean(trial.metrics["test_accuracy"][-LAST:]))
        return trial.steps_to(self.targets[-1]), float(trial.readings()[-1])

    def going_on(
        self, trials: Mapping[float, Curve], last: list[float], steps: int
    ) -> list[float]:
        """Choose the rates of the last round that go on.

        Parameters
        ----------
        trials : mapping of float to Curve
            All trials so far, by rate.
        last : list of float
            The rates of the last round.
        steps : int
            Number of steps done.

        Returns
        -------
        list of float
            Those that did not diverge and, from the second round on, are not worse than
            the best by more than `ERRORS` deviations. There are none if two have
            reached the last target, or if one has and no other is left, or twice its
            steps are over.
        """
        levels = {
            rate: self._level(trials[rate])
            for rate in last
            if not trials[rate].diverged
        }
        alive = list(levels)
        if alive and steps > self.rounds[0]:
            best, error = min(levels.values())

            def near(level: float, e: float) -> bool:
                return level - best <= ERRORS * math.hypot(e, error)

            alive = [rate for rate in alive if near(*levels[rate])]
        if self.criterion == "accuracy":
            return alive
        needed = {rate: self.score(trial)[0] for rate, trial in trials.items()}
        first, second = sorted([*needed.values(), math.inf, math.inf])[:2]
        waiting = any(math.isinf(needed[rate]) for rate in alive)
        over = second < math.inf or not waiting or 2 * first <= steps
        return [] if first < math.inf and over else alive

    def _level(self, trial: Curve) -> tuple[float, float]:
        """Say how good a trial is by now, and its deviation.

        The smaller the level, the better.
        """
        if self.criterion == "accuracy":
            # One reading of a run jumps by several points, so the last few are
            # averaged, and their own deviation counts beside the sampling error of the
            # held-out rows.
            recent = trial.metrics["test_accuracy"][-LAST:].astype(float)
            p = float(recent.mean())
            sampling = math.sqrt(p * (1 - p) / self.options["held_out"])
            return -p, math.hypot(float(recent.std()), sampling)
        recent = trial.clock["loss"][-RECENT:].astype(float)
        return float(recent.mean()), float(recent.std())


@cache
def _made(device: str) -> dict:
    """Say where a run is made; `code` is a short hash of the code of `ROOMS`."""
    capability = torch.backends.cpu.get_cpu_capability()
    sources = (
        path for room in ROOMS for path in (files.ROOT / "lib" / room).rglob("*.py")
    )
    return {
        "commit": provenance.commit(),
        "code": files.sha256(b"".join(path.read_bytes() for path in sorted(sources))),
        "torch": torch.__version__,
        "device": device,
        "processor": torch.cuda.get_device_name() if device == "cuda" else capability,
        "threads": torch.get_num_threads(),
        # "high": a GPU rounds to TF32
        "products": torch.get_float32_matmul_precision(),
    }


class OutOfTime(Exception):
    """The minutes are used up.

    The text says how many of the planned runs are finished.
    """


def a_run(part: str, rule: str, rate: float, cap: float | None, seed: int) -> dict:
    """Describe a run by the names of `Curve`.

    Parameters
    ----------
    part : {"trial", "curve", "one", "baseline"}
        What the run is for.
    rule : str
        The rule.
    rate : float
        Its rate.
    cap : float or None
        The cap of SNGD; other rules have none.
    seed : int
        The seed.

    Returns
    -------
    dict
        The keys are part, rule, rate, cap and seed.

    Examples
    --------
    >>> from lib.training.study import a_run
    >>> a_run("one", "SGD", 0.1, cap=2.0, seed=0)
    {'part': 'one', 'rule': 'SGD', 'rate': 0.1, 'cap': None, 'seed': 0}
    """
    return dict(
        part=part, rule=rule, rate=rate, cap=cap if rule == "SNGD" else None, seed=seed
    )


class Work:
    """The runs of a study in a folder, until its end or until the minutes are over.

    Processes may share it.

    Parameters
    ----------
    study : Study
        The study.
    folder : Path
        The runs are kept in `folder`/<name>-<digest>.
    minutes : float, optional
        How long to work. Default: to the end.
    say : callable
        What is called with a sentence on each run. Default: `print`.
    cpu : bool, default False
        Whether to stay on the CPU.

    Raises
    ------
    ValueError
        If the minutes are not above 0, or if processes share a batch over which the
        loss is summed.
    """

    def __init__(
        self,
        study: Study,
        folder: Path,
        minutes: float = math.inf,
        say: Callable[[str], None] = print,
        cpu: bool = False,
    ) -> None:
        if not minutes > 0:
            raise ValueError(f"minutes must be above 0, got {minutes:g}")
        last = time.monotonic() + 60 * minutes
        self.study = study
        self.say = say
        self.cpu = cpu
        self.spent = lambda: time.monotonic() >= last
        # Sums are split over threads, and another split rounds differently.
        torch.set_num_threads(1)
        self.machine = loop.Accelerator(cpu=cpu)
        self.made = _made(self.machine.device.type)
        self.problem = study.problem(batch=study.batch, **study.options)
        if self.problem.summed and self.machine.num_processes > 1:
            raise ValueError(
                f"{study.name} sums its loss over a batch: one process must train it"
            )
        for tuning in (
            False,
            True,
        ):  # sizes that do not fit are refused before anything is written
            self.problem.batches(0, tuning).on("cpu", (0, self.machine.num_processes))
        apart = ("problem", "options", "stop_at", "stop_from", "seeds", "first_seed")
        values = {
            f.name: getattr(study, f.name) for f in fields(study) if f.name not in apart
        }
        if study.stop_at is None:
            stop = "never"
        else:
            stop = f"{ENDS[study.criterion]} {study.stop_at:g}"
        if study.stop_from:
            stop += f", from step {study.stop_from} on"
        values |= dict(criterion=study.criterion, stop=stop, tuning_seed=TUNING_SEED)
        values["problem"] = dict(self.problem.about)
        self.configuration = json.loads(files.dumps(values))
        self.key = provenance.digest(self.configuration)
        self.folder = Path(folder) / f"{study.name}-{self.key}"

    def run(self) -> Curves:
        """Run the trials, then the judged runs.

        Returns
        -------
        Curves
            All of them.

        Raises
        ------
        OutOfTime
            If the minutes end before.
        """
        study = self.study
        rates = {}
        cap = self.study.cap
        self.all_of(
            [a_run("baseline", name, 0.0, None, 0) for name in self.problem.baselines]
        )
        for rule in study.rates:
            rates[rule] = self.best(rule, cap)
            if rule == "SPS" and study.cap is None:
                cap = rates[rule]
            else:
                cap = cap
        judged = range(study.first_seed, study.first_seed + study.seeds)
        self.all_of(
            [
                a_run("curve", rule, rates[rule], cap, s)
                for s in judged
                for rule in rates
            ]
        )
        return self.collected()

    def best(self, rule: str, cap: float | None) -> float:
        """Find the rate at which a rule is judged.

        One candidate alone is taken. While the best lies at an edge of the grid, one
        more beyond is tried.

        Parameters
        ----------
        rule : str
            The rule.
        cap : float or None
            The cap of SNGD.

        Returns
        -------
        float
            The rate.

        Raises
        ------
        ValueError
            If every rate diverged.
        OutOfTime
            If the minutes end before.
        """

        def trials(rates: list[float], steps: int) -> dict[float, Curve]:
            runs = [a_run("trial", rule, rate, cap, TUNING_SEED) for rate in rates]
            # Of a trial that has gone on since, the start: who goes on chooses the same
            # rates.
            return {
                trial.rate: trial.until(steps) for trial in self.all_of(runs, steps)
            }

        study = self.study
        grid = sorted(self.study.rates[rule])
        outcomes = {}
        alive = grid
        if len(grid) == 1:
            return grid[0]
        for steps in study.rounds:
            outcomes = outcomes | trials(alive, steps)
            alive = study.going_on(outcomes, alive, steps)
            if not alive:
                break
        for extension in range(study.extensions + 1):
            scores = {rate: study.score(trial) for rate, trial in outcomes.items()}
            best = min(scores, key=lambda rate: (scores[rate], -rate))
            if outcomes[best].diverged:
                dead = ", ".join(f"{rate:g}" for rate in sorted(outcomes))
                words = (
                    f"{study.name}: every rate of {rule} diverged that was not "
                    f"dropped: {dead}"
                )
                raise ValueError(f"{words}; give the study lower rates")
            beside = {grid[0]: grid[1], grid[-1]: grid[-2]}.get(best)
            # A cap of SPS that is never reached is as good as a larger one.
            free = best == grid[-1] and outcomes[best].end.get("capped", 1) < 0.01
            if beside is None or free or extension == study.extensions:
                break
            beyond = float(f"{best * best / beside:.3g}")
            outcomes = outcomes | trials([beyond], steps)
            grid = sorted([*grid, beyond])
        return best

    def all_of(self, runs: list[dict], until: float = math.inf) -> list[Curve]:
        """Return the curves of runs, whichever process trains them.

        Parameters
        ----------
        runs : list of dict
            The runs, as `a_run` describes them.
        until : float, optional
            The step that each has to reach at least. Default: the end.

        Returns
        -------
        list of Curve
            The curves, in the order of `runs`.

        Raises
        ------
        OutOfTime
            If the minutes end before.
        """
        while True:
            curves = [self.one(who, until) for who in runs]
            done = [curve for curve in curves if curve is not None]
            if len(done) == len(runs):
                return done
            if loop.agreed(self.spent()):
                raise OutOfTime(self.left())
            time.sleep(0.2)

    def one(self, who: dict, until: float = math.inf) -> Curve | None:
        """Return the curve of one run, from its file or trained.

        Parameters
        ----------
        who : dict
            The run, as `a_run` describes it.
        until : float, optional
            The step that it has to reach at least. Default: the end.

        Returns
        -------
        Curve or None
            The curve; None while another process has the run.

        Raises
        ------
        OutOfTime
            If the minutes end before.
        ValueError
            If its file was made by other code or on another device.
        """
        name = "-".join(str(value) for value in who.values() if value is not None)
        self.folder.mkdir(parents=True, exist_ok=True)
        # A name may end in a rate, so suffixes are added to it and never replaced.
        path = self.folder / f"{name}.npz"
        checkpoint = self.folder / f"{name}.pt"
        lock = FileLock(self.folder / f".{name}.lock")
        first = self.machine.is_main_process
        try:
            with contextlib.suppress(Timeout):
                lock.acquire(blocking=False) if first else None
            if first and path.exists():
                curve = self._finished(path)
            else:
                curve = None
            if curve and curve.paused and len(curve.loss) < until:
                curve = None
            # Whoever holds the lock: a run that came far enough may be taken further
            # meanwhile.
            curve, mine = loop.agreed((curve, lock.is_locked))
            if curve or not mine:
                return curve
            curve = replace(
                self._trained(who, checkpoint, until), **who, made=self.made
            )
            if first:
                Curves(self.configuration, (curve,)).save(path)
                if curve.clock:
                    loss = f", loss {curve.readings()[-1]:.4f}"
                else:
                    loss = ""
                self.say(
                    f"{name}: {curve.status}{loss}, "
                    f"{curve.seconds:.0f} processor seconds"
                )
                if not curve.paused:
                    checkpoint.unlink(missing_ok=True)
            return curve
        finally:
            lock.release()

    def _finished(self, path: Path) -> Curve:
        """Read the curve of a finished run; raise ValueError if other code made it."""
        (curve,) = load(path).curves
        made = curve.made
        device = self.made["device"]
        if (made["code"], made["device"]) != (self.made["code"], device):
            origin = f"the code of commit {made['commit']} on {made['device']}"
            words = f"{path} was made by {origin}, not by this one on {device}"
            raise ValueError(f"{words}: use another --state")
        return curve

    def _trained(self, who: dict, checkpoint: Path, until: float) -> Curve:
        """Train one run, up to the step `until`."""
        study = self.study
        problem = self.problem
        seed = who["seed"]
        trial = who["part"] == "trial"
        tuning = seed in TUNING_SEEDS
        closing = () if trial else study.points[-LAST:]
        if who["part"] == "baseline":
            begin = time.process_time()
            hits = problem.baselines[who["rule"]]()
            took = time.process_time() - begin
            return Curve("finished", end=Curve.packed(hits), seconds=took)
        model = loop.initialised(problem.build, seed)

        def measured(model: nn.Module, step: int) -> Mapping[str, float]:
            metrics = problem.evaluate(model, seed, tuning)
            if step in closing:
                return {**metrics, **problem.closing(model)}
            return metrics

        curve = loop.train(
            model,
            maker(who["rule"])(list(model.parameters()), who["rate"], who["cap"]),
            problem.batches(seed, tuning),
            study.horizon,
            problem.loss,
            evaluate=measured,
            at=study.points,
            stop=study.stop,
            reached=study.reached,
            walk=study.walk and not trial,
            clock=problem.clock,
            tick=study.clock,
            cpu=self.cpu,
            checkpoint=checkpoint,
            key=f"{self.key} {self.made['code']} {checkpoint.stem}",
            pause=lambda step: step == until or self.spent(),
        )
        if curve.paused and len(curve.loss) != until:
            raise OutOfTime(self.left())
        if trial:
            end = {}
        else:
            end = dict(problem.finish(model.eval(), seed))
        if who["rule"] == "SPS":  # the share of steps that the cap held
            held = curve.step_size.astype(float) >= who["rate"] * (1 - 1e-6)
            end["capped"] = np.array(held.mean())
        if not trial:
            return replace(curve, end=end)
        # its loss, in numbers up to 65,504, and what chooses the rate
        loss = curve.loss.clip(max=6e4).astype(np.float16)
        less = dict(step_size=NONE, gradient_norm=NONE, weight_norms={}, walked={})
        return replace(curve, end=end, loss=loss, **less)

    def collected(self) -> Curves:
        """Return all trials and judged runs so far.

        Returns
        -------
        Curves
            The runs.
        """
        paths = [p for p in self.folder.glob("*.npz") if not p.name.startswith("one-")]
        return Curves(self.configuration, tuple(map(self._finished, sorted(paths))))

    def left(self) -> str:
        """Say how far the study is.

        Returns
        -------
        str
            The numbers of finished trials and judged runs, in words.
        """
        done = [curve.part for curve in self.collected().curves if not curve.paused]
        planned = self.study.seeds * len(self.study.rates)
        trials = done.count("trial")
        curves = done.count("curve")
        return f"{trials} trials and {curves} of {planned} judged runs are finished"
