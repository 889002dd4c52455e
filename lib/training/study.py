"""A study: update rules compared on one data set by one protocol, run piece by piece and resumable.

Rates first, then paired seeds. Every run is saved when it ends and checkpointed before, so that a
killed study goes on where it was, bit for bit; `notebooks/protocol.md` states the protocol.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor, nn

from lib import files
from lib.budget import Budget
from lib.training import loop
from lib.training.batches import Batches
from lib.training.checkpoints import Checkpoints
from lib.training.compilation import compiled_or_eager
from lib.training.curves import Curve, Curves, digest, load
from lib.training.rules import RULES

TUNING_SEED = 100  # no curve uses it
QUARTER = 4  # half of the rates are dropped at this part of the horizon
EXTENSIONS = 2  # rates that are added beyond an edge of the grid, at most, one after the other
JUDGED = 4  # last evaluations whose mean held-out accuracy judges a trial
CHECKPOINT_EVERY = 500  # steps


@dataclass(frozen=True)
class Problem:
    """Network and data of a study, loaded.

    `build()` makes the network. `batches(seed, tuning)` are the training batches, without the
    held-out rows where `tuning`. `evaluate(seed, tuning)` is what is measured at the points of a
    run, `finish(seed)` what is measured once at its end, as arrays. `about` names network and data.
    """

    build: Callable[[], nn.Module]
    batches: Callable[[int, bool], Batches]
    evaluate: Callable[[int, bool], Callable[[nn.Module], Mapping[str, float]]]
    finish: Callable[[int], Callable[[nn.Module], Mapping[str, np.ndarray]]]
    about: Mapping
    loss: Callable[[nn.Module, tuple], Tensor] = loop.cross_entropy


@dataclass(frozen=True)
class Study:
    """What is compared, fixed before the runs.

    `rates` {rule: candidates}, SPS (whose rate is its cap) before SNGD. `targets` are training
    losses, the last one decides. A run ends at the first evaluation where `stop(found)` holds, or
    after `horizon` steps. `criterion` is "speed" (rates by the training loss) or "accuracy" (by
    held-out accuracy). `cap` is that of SNGD, None for the one that SPS chose. `loss_rows` divides
    a loss that is a sum.
    """

    name: str
    problem: Callable[[], Problem]
    rates: Mapping[str, tuple[float, ...]]
    horizon: int
    batch: int
    window: int
    targets: tuple[float, ...]
    stop: Callable[[Mapping[str, float]], bool]
    stop_words: str
    criterion: str = "speed"
    seeds: int = 5
    evaluations: int = 20
    cap: float | None = None
    loss_rows: int = 1
    compiled: bool = False
    walk: bool = False

    def __post_init__(self):
        if self.criterion not in ("speed", "accuracy"):
            raise ValueError(f'criterion must be "speed" or "accuracy", got {self.criterion!r}')
        if unknown := set(self.rates) - set(RULES):
            raise ValueError(
                f"rates names the rules {sorted(unknown)}; there is {', '.join(RULES)}"
            )

    @property
    def points(self) -> np.ndarray:
        """Numbers of steps after which a run is evaluated, the quarter among them."""
        every = np.linspace(0, self.horizon, self.evaluations + 1).astype(int)
        return np.unique([*every, self.quarter])

    @property
    def quarter(self) -> int:
        """The step at which half of the rates are dropped."""
        return self.horizon // QUARTER

    def configuration(self, about: Mapping) -> dict:
        """All that decides the runs, as plain values; `about` is the problem's."""
        plain = ("name", "horizon", "batch", "window", "criterion", "evaluations", "cap", "walk")
        values = {name: getattr(self, name) for name in plain}
        values |= {"rates": {rule: list(rates) for rule, rates in self.rates.items()}}
        values |= {"targets": list(self.targets), "stop": self.stop_words}
        values |= {"compiled": self.compiled, "tuning_seed": TUNING_SEED}
        values |= {"extensions": EXTENSIONS, "judged": JUDGED}
        return values | {"problem": dict(about)}


_WHO = ("part", "rule", "rate", "cap", "seed")


def _name(who: Mapping) -> str:
    return "-".join(str(who[key]) for key in _WHO if who[key] is not None)


def _early(whole: Path) -> Path:
    return whole.with_name(f"{whole.stem}-quarter.npz")


class OutOfTime(Exception):
    """The minutes are used up; `done` of the planned runs are finished."""


class Runner:
    """Runs a `study` in `folder`/<name>-<digest> until its end, or until `budget` is spent."""

    def __init__(self, study: Study, folder: Path, budget: Budget, say: Callable = print):
        self.study, self.budget, self.say = study, budget, say
        self.problem = study.problem()
        self.configuration = study.configuration(self.problem.about)
        self.folder = Path(folder) / f"{study.name}-{digest(study.name, self.configuration)}"

    def run(self, only: Sequence[str] = (), backwards: bool = False) -> Curves:
        """Trials, then curves; the curves so far. Raises OutOfTime, ValueError where every rate of
        a rule diverged.

        `only` some of the rules, and the seeds `backwards`: so several processes share one study,
        each run being
        worked on by one of them.
        """
        rates, cap = {}, self.study.cap
        for rule in self.study.rates:
            wanted = not only or rule in only
            shared = rule == "SPS" and self.study.cap is None
            if not (wanted or shared and "SNGD" in only):
                continue
            rate = self.choose(rule, cap)
            rates |= {rule: rate} if wanted else {}
            cap = rate if shared else cap
        for seed in sorted(range(self.study.seeds), reverse=backwards):
            for rule, rate in rates.items():
                self.one("curve", rule, rate, cap, seed)
        return self.collected()

    def choose(self, rule: str, cap: float | None) -> float:
        """The rate of `rule`: half dropped at a quarter, the best of the rest at the horizon, the
        grid extended
        while the best rate is at its edge."""
        rates = sorted(self.study.rates[rule])
        early = {
            rate: self.score(self.one("trial", rule, rate, cap, TUNING_SEED, True))
            for rate in rates
        }
        kept = sorted(rates, key=early.get)[: (len(rates) + 1) // 2]
        dropped = [rate for rate in rates if rate not in kept]
        trials = {rate: self.one("trial", rule, rate, cap, TUNING_SEED) for rate in kept}
        for extension in range(EXTENSIONS + 1):
            scores = {rate: self.score(trial) for rate, trial in trials.items()}
            if all(trial.diverged for trial in trials.values()):
                tried = ", ".join(f"{rate:g}" for rate in sorted([*trials, *dropped]))
                raise ValueError(f"{self.study.name}: every rate of {rule} diverged: {tried}")
            best = min(scores, key=lambda rate: (scores[rate], -rate))
            beyond = self.beyond(rule, best, sorted([*trials, *dropped]), trials[best])
            if beyond is None or extension == EXTENSIONS:
                break
            trials[beyond] = self.one("trial", rule, beyond, cap, TUNING_SEED)
        return best

    def beyond(self, rule: str, best: float, tried: list[float], trial: Curve) -> float | None:
        """The next rate beyond the edge of `tried` at which `best` lies, None if it lies inside."""
        if len(tried) < 2 or best not in (tried[0], tried[-1]):
            return None
        if best == tried[0]:
            return float(f"{best * tried[0] / tried[1]:.3g}")
        if rule == "SPS" and trial.end.get("capped", 1.0) < 0.01:
            return None  # a cap that is never reached is as good as a larger one
        return float(f"{best * tried[-1] / tried[-2]:.3g}")

    def score(self, trial: Curve) -> tuple[float, float]:
        """How good a trial is, the smaller the better; (inf, inf) if it diverged."""
        if trial.diverged:
            return math.inf, math.inf
        if self.study.criterion == "accuracy":
            return 0.0, -float(np.mean(trial.metrics["test_accuracy"][-JUDGED:]))
        target = self.study.targets[-1] * self.study.loss_rows
        loss = float(trial.smooth(self.study.window)[-1])
        return trial.steps_to(target, self.study.window), loss

    def one(
        self, part: str, rule: str, rate: float, cap: float | None, seed: int, quarter: bool = False
    ) -> Curve:
        """One run, from its file where it is finished, else from its checkpoint on; with `quarter`
        up to there.
        """
        cap = cap if rule == "SNGD" else None
        who = {"part": part, "rule": rule, "rate": rate, "cap": cap, "seed": seed}
        whole = self.folder / f"{_name(who)}.npz"
        with self.alone(whole):
            found = self.finished(whole, quarter)
            return found or self.work(who, whole, quarter)

    def finished(self, whole: Path, quarter: bool) -> Curve | None:
        """The run that was saved as `whole`, or with `quarter` up to there; None if it is still to
        do.
        """
        for path in (whole, _early(whole)) if quarter else (whole,):
            if path.exists():
                return load(path, self.configuration).curves[0]
        return None

    @contextmanager
    def alone(self, whole: Path) -> Iterator[None]:
        """Wait until no other process works on this run; the lock of a killed one is free."""
        import fcntl  # which Windows lacks; there one process at a time

        self.folder.mkdir(parents=True, exist_ok=True)
        with open(whole.with_suffix(".lock"), "w") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if self.budget.spent():
                        raise OutOfTime(
                            f"{whole.stem} is another process's; {self.left()}"
                        ) from None
                    time.sleep(1)
            yield

    def work(self, who: Mapping, whole: Path, quarter: bool) -> Curve:
        """Train one run, up to a quarter or to its end, and save it."""
        early, name = _early(whole), whole.stem
        begin = time.process_time()
        model, history = self.train(who, whole.with_suffix(".pt"), quarter)
        paused = history.status.startswith("paused")
        at_quarter = paused and quarter and history.status.endswith(f" {self.study.quarter}")
        spent = time.process_time() - begin + self.before(whole)
        self.note_time(whole, spent)
        if paused and not at_quarter:
            raise OutOfTime(f"{self.study.name}: {name} {history.status}; {self.left()}")
        path = early if at_quarter else whole
        end = self.end(model, history, who) if path == whole else {}
        curve = Curve.of(history, who, end, spent)
        Curves(self.study.name, self.configuration, (curve,)).save(path)
        if path == whole:
            early.unlink(missing_ok=True)
            for suffix in (".pt", ".seconds"):  # the lock stays: another process may wait on it
                whole.with_suffix(suffix).unlink(missing_ok=True)
        last = curve.smooth(self.study.window)[-1:] / self.study.loss_rows
        self.say(f"{name}: {curve.status}, loss {last.round(4)}, {spent:.0f} s of processor time")
        return curve

    def train(self, who: Mapping, checkpoint: Path, quarter: bool):
        study, problem, tuning = self.study, self.problem, who["part"] == "trial"
        model = loop.initialised(problem.build, who["seed"])
        batches = problem.batches(who["seed"], tuning and study.criterion == "accuracy")
        if study.compiled:
            compiled_or_eager(model, batches.batch(0), problem.loss, self.say)

        def pause(done: int) -> bool:
            return self.budget.spent() or (quarter and done == study.quarter)

        optimizer = RULES[who["rule"]](model.parameters(), who["rate"], who["cap"])
        history = loop.train(
            model,
            optimizer,
            batches,
            study.horizon,
            loss=problem.loss,
            evaluate=problem.evaluate(who["seed"], tuning),
            evaluate_at=study.points,
            stop=study.stop,
            pause=pause,
            walk=study.walk and not tuning,
            checkpoints=Checkpoints(checkpoint, CHECKPOINT_EVERY, self.configuration),
            label=f"{study.name} {who['rule']}",
        )
        return model, history

    def end(self, model: nn.Module, history, who: Mapping) -> dict[str, np.ndarray]:
        found = {}
        if who["rule"] == "SPS":
            steps = history.step_size[np.isfinite(history.step_size)]
            found["capped"] = np.array(np.mean(steps >= who["rate"] * (1 - 1e-6)))
        if who["part"] == "trial":
            return found
        model.eval()
        return found | {
            name: np.asarray(values)
            for name, values in self.problem.finish(who["seed"])(model).items()
        }

    def before(self, whole: Path) -> float:
        """Processor seconds that an unfinished run has taken before."""
        path = whole.with_suffix(".seconds")
        return float(path.read_text()) if path.exists() else 0.0

    def note_time(self, whole: Path, seconds: float) -> None:
        files.write(whole.with_suffix(".seconds"), f"{seconds:.3f}".encode())

    def left(self) -> str:
        """How far the study is, in words."""
        curves = len(list(self.folder.glob("curve-*.npz")))
        planned = self.study.seeds * len(self.study.rates)
        trials = len(list(self.folder.glob("trial-*.npz")))
        return f"{trials} trials and {curves} of {planned} curves are finished"

    def adopt(self, kept: Curves) -> None:
        """Take over finished runs kept elsewhere; ValueError for another configuration."""
        if kept.digest != digest(self.study.name, self.configuration):
            raise ValueError(f"the kept curves of {kept.name} are of another configuration")
        for curve in kept.curves:
            whole = self.folder / f"{_name({key: getattr(curve, key) for key in _WHO})}.npz"
            path = _early(whole) if curve.status.startswith("paused") else whole
            if not path.exists() and not whole.exists():
                Curves(kept.name, self.configuration, (curve,)).save(path)

    def collected(self) -> Curves:
        """All runs that are finished."""
        paths = sorted(self.folder.glob("*.npz"))
        curves = [load(path, self.configuration).curves[0] for path in paths]
        return Curves(self.study.name, self.configuration, tuple(curves))
