"""A study: update rules compared on one data set by one protocol. Rates first, then paired seeds.

`Study` declares one, `Work` runs it, piece by piece: every run is saved when it ends and
checkpointed before, and several processes share one study. `notebooks/protocol.md` states the
protocol.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import Tensor, nn

from lib.budget import Budget
from lib.training import loop
from lib.training.batches import Batches
from lib.training.curves import Curve, Curves, code, digest, load, made
from lib.training.measures import Evaluate, correctness, cross_entropy
from lib.training.rate_choice import choose
from lib.training.rules import RULES

TUNING_SEED = 100  # no judged run has it
CHECKPOINT_EVERY = 500  # steps
QUARTER = 4  # half of the rates are dropped at this part of the horizon
STOPS = {  # what may end a run, and whether it ends below or above the level
    "recent_loss": (f"mean loss of {loop.RECENT} steps at most", -1),
    "clock": ("mean training loss of the clock's last three readings at most", -1),
    "training_accuracy": ("training accuracy of 2,500 reviews at least", 1),
}


@dataclass(frozen=True)
class Problem:
    """Network and data of a study, loaded.

    `build()` makes the network. `batches(seed, tuning)` are the training batches, without the
    held-out rows where `tuning`. `evaluate(seed, tuning)` is what is measured at the points of a
    run, `finish(seed)` what is measured once at its end, as arrays. `about` names network and data.
    `clock` measures "clock_loss", the training loss on fixed rows; `baselines` {name: fit} are the
    plain classifiers, `fit()` says which test rows one classifies correctly, (rows,) bool.
    """

    build: Callable[[], nn.Module]
    batches: Callable[[int, bool], Batches]
    evaluate: Callable[[int, bool], Evaluate]
    finish: Callable[[int], Callable[[nn.Module], Mapping[str, np.ndarray]]]
    about: Mapping
    loss: Callable[[nn.Module, tuple], Tensor] = cross_entropy
    clock: Evaluate | None = None
    baselines: Mapping[str, Callable[[], np.ndarray]] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """What is compared, fixed before the runs.

    `problem(batch=, **options)` loads network and data. `rates` {rule: candidates}, SPS (whose rate
    is its cap) before SNGD; a single candidate is taken without a trial. `targets` are training
    losses, the last one decides. A run ends at the first evaluation where `stop_by`, a key of
    `STOPS`, is past `stop_at`, or after `horizon` steps. `criterion` is "speed" (rates by the
    training loss) or "accuracy" (by held-out accuracy). `cap` is that of SNGD, None for the one
    that SPS chose. `extensions` rates at most are added beyond an edge of the grid. Seeds are
    `first_seed` and the `seeds` - 1 after it. `loss_rows` divides a loss that is a sum. With a
    `clock`, steps between its readings, targets are on these, rates are raced (`rate_choice`), and
    plain classifiers are fitted to the same rows: the second protocol.
    """

    name: str
    problem: Callable[..., Problem]
    rates: Mapping[str, tuple[float, ...]]
    horizon: int
    batch: int
    window: int
    targets: tuple[float, ...]
    options: Mapping = field(default_factory=dict)
    stop_by: str = "recent_loss"
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
    precision: str = "float32"

    def __post_init__(self):
        for name, allowed in (
            ("criterion", ("speed", "accuracy")),
            ("stop_by", STOPS),
            ("precision", ("float32", "bf16")),
        ):
            if (given := getattr(self, name)) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {given!r}")
        if unknown := set(self.rates) - set(RULES):
            raise ValueError(
                f"rates names the rules {sorted(unknown)}; there is {', '.join(RULES)}"
            )
        given = [r for rates in self.rates.values() for r in rates]
        given += [] if self.cap is None else [self.cap]
        if bad := [r for r in given if type(r) not in (int, float) or not 0 < r < math.inf]:
            raise ValueError(f"a rate must be a number above 0 and finite, got {bad[0]}")
        for name in ("horizon", "batch", "window", "seeds", "evaluations", "loss_rows"):
            if (given := getattr(self, name)) < 1:
                raise ValueError(f"{name} must be 1 or more, got {given}")

    @property
    def quarter(self) -> int:
        """The step at which half of the rates are dropped."""
        return self.horizon // QUARTER

    @property
    def points(self) -> np.ndarray:
        """Numbers of steps after which a run is evaluated, ascending, the quarter among them."""
        every = np.linspace(0, self.horizon, self.evaluations + 1).astype(int)
        return np.unique([*every, self.quarter])

    def stop(self, found: Mapping[str, float]) -> bool:
        """Whether a run ends where this was `found`."""
        sign = STOPS[self.stop_by][1]
        return self.stop_at is not None and sign * found[self.stop_by] >= sign * self.stop_at

    def configuration(self, about: Mapping) -> dict:
        """All that decides the runs, as plain values; `about` is the problem's."""
        plain = ("name", "horizon", "batch", "window", "criterion", "evaluations", "cap", "walk")
        values = {name: getattr(self, name) for name in (*plain, "extensions", "precision")}
        if self.clock:
            values |= {"clock": self.clock, "first_seed": self.first_seed}
        words = "never" if self.stop_at is None else f"{STOPS[self.stop_by][0]} {self.stop_at:g}"
        values |= {"rates": {rule: list(rates) for rule, rates in self.rates.items()}}
        values |= {"targets": list(self.targets), "stop": words, "tuning_seed": TUNING_SEED}
        return values | {"problem": dict(about)}


class OutOfTime(Exception):
    """The minutes are used up; the text says how many of the planned runs are finished."""


class Work:
    """Runs a `study` in `folder`/<name>-<digest> until its end, or until `budget` is spent.

    ValueError for a study of real data that is nowhere. Its runs are <run>.npz, those under way
    <run>.pt beside it.
    """

    def __init__(self, study: Study, folder: Path, budget: Budget, say=print, cpu: bool = False):
        self.study, self.budget, self.say, self.cpu = study, budget, say, cpu
        torch.set_num_threads(1)  # sums are split over threads, another split rounds differently
        self.machine = loop.accelerator(cpu)
        if study.loss_rows > 1 and self.machine.num_processes > 1:
            raise ValueError(f"{study.name} sums its loss over a batch: one process must train it")
        self.problem = study.problem(batch=study.batch, **study.options)
        self.configuration = study.configuration(self.problem.about)
        self.key = digest(study.name, self.configuration)
        self.folder = Path(folder) / f"{study.name}-{self.key}"

    def run(self) -> Curves:
        """Run the trials, then the judged runs, and return all of them.

        Raises OutOfTime; ValueError where every rate of a rule diverged, or for a run of other
        code or another device.
        """
        study, rates, cap = self.study, {}, self.study.cap
        plain = self.problem.baselines if study.clock else ()
        self.all_of([a_run("baseline", name, 0.0, None, 0) for name in plain])
        for rule in study.rates:

            def trials(chosen: Sequence[float], until: int | None, rule=rule, cap=cap):
                return self.all_of(
                    [a_run("trial", rule, r, cap, TUNING_SEED) for r in chosen], until
                )

            rates[rule] = choose(study, rule, trials)
            cap = rates[rule] if rule == "SPS" and study.cap is None else cap
        seeds = range(study.first_seed, study.first_seed + study.seeds)
        self.all_of([a_run("curve", rule, rates[rule], cap, s) for s in seeds for rule in rates])
        return self.collected()

    def all_of(self, runs: list[dict], until: int | None = None) -> list[Curve]:
        """The curves of `runs`, up to the step `until` at least.

        A run that another process works on is left to it, and taken up where that one was killed.
        """
        found = {}
        while len(found) < len(runs):
            before = len(found)
            for place, who in enumerate(runs):
                if place not in found and (curve := self.one(who, until)):
                    found[place] = curve
            if len(found) == before:
                if loop.agreed(self.machine, self.budget.spent()):
                    raise OutOfTime(f"the rest is another process's; {self.left()}")
                time.sleep(0.2)
        return [found[place] for place in range(len(runs))]

    def one(self, who: dict, until: int | None = None) -> Curve | None:
        """The curve of one run, from its file or trained; None while another process has it."""
        name, first = _name(who), self.machine.is_main_process
        self.folder.mkdir(parents=True, exist_ok=True)
        lock, mine = FileLock(self.folder / f".{name}.lock"), True
        try:
            if first:
                lock.acquire(blocking=False)
        except Timeout:
            mine = False
        try:
            if not loop.agreed(self.machine, mine):
                return None
            found = self.finished(self.folder / f"{name}.npz")
            if found and (not found.paused or len(found.loss) >= (until or math.inf)):
                return found
            return self.fitted(who) if who["part"] == "baseline" else self.trained(who, until)
        finally:
            lock.release()

    def finished(self, path: Path) -> Curve | None:
        """The run in a file; ValueError for one of other code, whose bits would be mixed."""
        if not path.exists():
            return None
        (curve,) = load(path).curves
        device, theirs = self.machine.device.type, curve.made
        if (theirs["code"], theirs["device"]) != (code(), device):
            raise ValueError(
                f"{path} was made by the code of commit {theirs['commit']} on {theirs['device']},"
                f" this code would run on {device}: move it away, or use another --state"
            )
        return curve

    def fitted(self, who: dict) -> Curve:
        """Fit a plain classifier, save which test rows it has right, and say so."""
        begin = time.process_time()
        hits = self.problem.baselines[who["rule"]]()
        empty, where = np.zeros(0), made(self.machine.device.type)
        curve = Curve("finished", empty, empty, empty, empty, **who, made=where)
        spent = time.process_time() - begin
        curve = replace(curve, seconds=spent, end=correctness(torch.from_numpy(hits)))
        path = self.folder / f"{_name(who)}.npz"
        Curves(self.study.name, self.configuration, (curve,)).save(path)
        self.say(f"{who['rule']}: {hits.mean():.4f} of the test rows right, {spent:.0f} s")
        return curve

    def trained(self, who: dict, until: int | None) -> Curve:
        """Train one run from its checkpoint on, save it, and say so.

        Raises OutOfTime, with what is left to do, where the budget ended before the run did.
        """
        study, problem, name, seed = self.study, self.problem, _name(who), who["seed"]
        trial, tuning = who["part"] == "trial", seed == TUNING_SEED
        checkpoint = self.folder / f"{name}.pt"
        model = loop.initialised(problem.build, seed)
        curve = loop.train(
            model,
            RULES[who["rule"]](model.parameters(), who["rate"], who["cap"]),
            problem.batches(seed, tuning and study.criterion == "accuracy"),
            study.horizon,
            problem.loss,
            evaluate=problem.evaluate(seed, tuning),
            at=study.points,
            stop=study.stop,
            walk=study.walk and not trial,
            clock=problem.clock,
            tick=study.clock,
            cpu=self.cpu,
            precision=study.precision,
            checkpoint=checkpoint,
            every=CHECKPOINT_EVERY,
            key=f"{self.key} {code()} {name}",
            pause=lambda step: step == until or self.budget.spent(),
            label=f"{study.name} {who['rule']}",
        )
        if curve.paused and curve.status != f"paused after step {until}":
            raise OutOfTime(f"{study.name}: {name} {curve.status}; {self.left()}")
        end = {}
        if who["rule"] == "SPS":  # the share of steps that the cap held
            end["capped"] = np.mean(curve.step_size >= who["rate"] * (1 - 1e-6))
        if trial:
            nothing = np.zeros(0, np.float32)
            # float16 ends at 65,504
            small = {"loss": curve.loss.clip(max=6e4).astype(np.float16), "step_size": nothing}
            small |= {"gradient_norm": nothing, "weight_norms": {}, "walked": {}}
        else:
            end |= problem.finish(seed)(model.eval())
            names = ("loss", "step_size", "gradient_norm")
            small = {name: getattr(curve, name).astype(np.float32) for name in names}
        device = self.machine.device.type
        end = {key: np.asarray(values) for key, values in end.items()}
        small["clock"] = {key: values.astype(np.float32) for key, values in curve.clock.items()}
        curve = replace(curve, **who, **small, end=end, made=made(device))
        if self.machine.is_main_process:
            path = self.folder / f"{name}.npz"
            Curves(study.name, self.configuration, (curve,)).save(path)
            if not curve.paused:
                checkpoint.unlink(missing_ok=True)
            last = (curve.smooth(study.window)[-1:] / study.loss_rows).round(4)
            self.say(
                f"{name}: {curve.status}, loss {last}, {curve.seconds:.0f} s of processor time"
            )
        return curve

    def collected(self) -> Curves:
        """All trials and judged runs so far."""
        kinds = ("baseline", "trial", "curve")
        paths = [path for kind in kinds for path in self.folder.glob(f"{kind}-*.npz")]
        curves = tuple(self.finished(path) for path in sorted(paths))
        return Curves(self.study.name, self.configuration, curves)

    def left(self) -> str:
        """How far the study is, in words."""
        done = [curve.part for curve in self.collected().curves if not curve.paused]
        planned = self.study.seeds * len(self.study.rates)
        trials, curves = done.count("trial"), done.count("curve")
        return f"{trials} trials and {curves} of {planned} judged runs are finished"


def a_run(part: str, rule: str, rate: float, cap: float | None, seed: int) -> dict:
    """A run by the names of `Curve`; rules other than SNGD have no cap."""
    own = cap if rule == "SNGD" else None
    return {"part": part, "rule": rule, "rate": rate, "cap": own, "seed": seed}


def _name(who: Mapping) -> str:
    # A name may end in a rate, so suffixes are added to it and never replaced.
    return "-".join(str(value) for value in who.values() if value is not None)
