"""The runs of a study in a folder: each is trained once, stored, and resumable.

`race` runs a small study in one call. `Work` runs a study that takes long.
"""

import contextlib
import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import nn

from lib import files, provenance
from lib.training import loop
from lib.training.checkpoints import Checkpoint
from lib.training.curves import NONE, Curve, Curves, load
from lib.training.loop import Trainer
from lib.training.racing import Race
from lib.training.recorders import Clock, Evaluations
from lib.training.rules import Rule
from lib.training.study import LAST, TUNING_SEED, TUNING_SEEDS, Study

# The packages of the library whose code determines a run, together with lib/seeds.py.
ROOMS = ("training", "networks", "data")
WAIT = 0.2  # seconds between two checks of a run that another process trains
HELD = 1 - 1e-6  # SPS counts as capped if its step size is at least this times its cap
LARGEST = 6e4  # losses of trials are stored in half precision, whose maximum is 65,504


class OutOfTime(Exception):
    """Error that the minutes are used up, which says how many runs are finished."""


@dataclass(frozen=True)
class Run:
    """One run of a study, described by the same fields as in `Curve`.

    Parameters
    ----------
    part : {"trial", "curve", "one", "baseline"}
        What the run is for.
    rule : str
        The rule.
    rate : float
        The learning rate of the rule.
    cap : float or None
        The cap on the step size of SNGD; None for every other rule.
    seed : int
        The seed.

    Examples
    --------
    >>> from lib.training.work import Run
    >>> Run.of("one", "SGD", 0.1, cap=2.0, seed=0)
    Run(part='one', rule='SGD', rate=0.1, cap=None, seed=0)
    >>> Run.of("curve", "SNGD", 0.1, cap=2.0, seed=0).name
    'curve-SNGD-0.1-2.0-0'
    """

    part: str
    rule: str
    rate: float
    cap: float | None
    seed: int

    @classmethod
    def of(
        cls, part: str, rule: str, rate: float, cap: float | None, seed: int
    ) -> "Run":
        """Return the Run of these settings; only SNGD keeps the cap.

        Parameters
        ----------
        part : {"trial", "curve", "one", "baseline"}
            What the run is for.
        rule : str
            The rule.
        rate : float
            The learning rate of the rule.
        cap : float or None
            The cap on the step size of SNGD. For every other rule it is dropped.
        seed : int
            The seed.

        Returns
        -------
        Run
            The run.
        """
        if rule != "SNGD":
            cap = None
        return cls(part=part, rule=rule, rate=rate, cap=cap, seed=seed)

    @property
    def name(self) -> str:
        """The name of the run's files, without a suffix."""
        values = asdict(self).values()
        return "-".join(str(value) for value in values if value is not None)


@cache
def made_on(device: str) -> dict[str, Any]:
    """Return by which code and on which machine runs are made.

    The result is computed once per process.

    Parameters
    ----------
    device : str
        The kind of device, such as "cpu" or "cuda".

    Returns
    -------
    dict
        The entries are "commit"; "code", a short hash of the source files of `ROOMS`
        and of lib/seeds.py; "torch", the version of torch; "device"; "processor", the
        name of the GPU or the instruction set of the CPU; "threads", the number of
        threads; and "products", the precision of matrix products.
    """
    if device == "cuda":
        processor = torch.cuda.get_device_name()
    else:
        processor = torch.backends.cpu.get_cpu_capability()
    lib = files.ROOT / "lib"
    sources = [lib / "seeds.py"]
    for room in ROOMS:
        sources += (lib / room).rglob("*.py")
    code = b"".join(path.read_bytes() for path in sorted(sources))
    return {
        "commit": provenance.commit(),
        "code": files.sha256(code),
        "torch": torch.__version__,
        "device": device,
        "processor": processor,
        "threads": torch.get_num_threads(),
        # With "high" a GPU rounds to TF32.
        "products": torch.get_float32_matmul_precision(),
    }


class Work:
    """Train the runs of a study in a folder, to the end or until time is up.

    A later `Work` with the same arguments continues where this one stopped. Several
    processes may share the folder: a lock file for each run makes sure that only one
    process at a time trains the run. Once a `Work` has been made, torch uses one thread
    in this process.

    Parameters
    ----------
    study : Study
        The study.
    folder : Path
        The runs are stored in `folder`/<name>-<digest>.
    minutes : float, optional
        How many minutes to work, counted from this call. Default: until all runs are
        finished.
    say : callable
        A function that is called with a sentence about each run. Default: `print`.
    cpu : bool, default False
        Whether to use the CPU even if there is a GPU.

    Raises
    ------
    ValueError
        If the minutes are not positive, if a batch does not fit the data, or if several
        processes would share a batch over which the loss is summed.
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
        self.last = time.monotonic() + 60 * minutes
        self.study = study
        self.say = say
        self.cpu = cpu

        # The machine. Sums are split among threads, and the rounding depends on the
        # split.
        torch.set_num_threads(1)
        self.machine = loop.Accelerator(cpu=cpu)
        self.made = made_on(self.machine.device.type)

        # Network and data. Sizes that do not fit raise an error before anything is
        # written.
        self.problem = study.problem(batch=study.batch, **study.options)
        processes = self.machine.num_processes
        if self.problem.summed and processes > 1:
            raise ValueError(
                f"{study.name} sums its loss over a batch: one process must train it"
            )
        for tuning in (False, True):
            self.problem.batches(0, tuning).on("cpu", (0, processes))

        # The folder is named after the settings that determine the runs.
        self.configuration = study.describe(self.problem)
        self.key = provenance.digest(self.configuration)
        self.folder = Path(folder) / f"{study.name}-{self.key}"

    def is_out_of_time(self) -> bool:
        """Whether the minutes are used up.

        Returns
        -------
        bool
            True if they are used up.
        """
        return time.monotonic() >= self.last

    def run(self) -> Curves:
        """Run the plain classifiers and the trials, and then the judged runs.

        Returns
        -------
        Curves
            The curves that `collected` returns: all of these runs, and the runs that
            were in the folder before.

        Raises
        ------
        OutOfTime
            If the minutes are used up first.
        ValueError
            If every rate of a rule diverged, or in the cases that `one` lists.
        """
        study = self.study
        self.all_of(
            [
                Run.of("baseline", name, 0.0, None, 0)
                for name in self.problem.baselines()
            ]
        )
        rates = {}
        cap = study.cap
        for rule in study.rates:
            rates[rule] = self.best(rule, cap)
            if rule == "SPS" and study.cap is None:
                cap = rates[rule]
        judged = []
        for seed in study.judged_seeds:
            for rule in rates:
                judged.append(Run.of("curve", rule, rates[rule], cap, seed))
        self.all_of(judged)
        return self.collected()

    def best(self, rule: str, cap: float | None) -> float:
        """Find, by a `Race`, the learning rate at which a rule is judged.

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
            If the minutes are used up first.
        """

        def trials(rates: list[float], steps: int) -> dict[float, Curve]:
            runs = [Run.of("trial", rule, rate, cap, TUNING_SEED) for rate in rates]
            # If a trial has run further in the meantime, cut it at `steps`, so that a
            # resumed race chooses the same rates.
            return {
                trial.rate: trial.until(steps) for trial in self.all_of(runs, steps)
            }

        return Race(self.study, rule, trials).best()

    def all_of(self, runs: Sequence[Run], until: float = math.inf) -> list[Curve]:
        """Return the curves of several runs, whichever process trains them.

        Parameters
        ----------
        runs : sequence of Run
            The runs.
        until : float, optional
            The step that each run must reach, unless it ends earlier. Default: the end
            of the run.

        Returns
        -------
        list of Curve
            The curves, in the order of `runs`. If a run was already trained further
            than `until`, its curve is not cut.

        Raises
        ------
        OutOfTime
            If the minutes are used up first.
        ValueError
            In the cases that `one` lists.
        """
        while True:
            curves = [self.one(run, until) for run in runs]
            done = [curve for curve in curves if curve is not None]
            if len(done) == len(runs):
                return done
            if loop.agreed(self.is_out_of_time()):
                raise OutOfTime(self.left())
            time.sleep(WAIT)

    def one(self, run: Run, until: float = math.inf) -> Curve | None:
        """Return the curve of one run: read it from its file, or train the run.

        Parameters
        ----------
        run : Run
            The run.
        until : float, optional
            The step that the run must reach, unless it ends earlier. Default: the end
            of the run.

        Returns
        -------
        Curve or None
            The curve, or None while another process trains the run.

        Raises
        ------
        OutOfTime
            If the minutes are used up first.
        ValueError
            If the file or the checkpoint of the run is damaged or was made by other
            code, or if the file was made on another device.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        # A name may end in a rate, which contains a dot. So suffixes are appended to
        # the name and never replaced.
        path = self.folder / f"{run.name}.npz"
        checkpoint = self.folder / f"{run.name}.pt"
        lock = FileLock(self.folder / f".{run.name}.lock")
        is_first = self.machine.is_main_process
        try:
            curve = None
            if is_first:
                with contextlib.suppress(Timeout):
                    lock.acquire(blocking=False)
                curve = self._from_file(path, until)
                if curve is not None and not curve.paused and lock.is_locked:
                    # Such a checkpoint remains if a process was killed after it had
                    # written the curve.
                    Checkpoint(checkpoint).remove()
            # A curve that reaches far enough is returned even if another process holds
            # the lock, which may be training the run further.
            curve, is_mine = loop.agreed((curve, lock.is_locked))
            if curve is not None or not is_mine:
                return curve
            trained = self._trained(run, checkpoint, until)
            curve = replace(trained, **asdict(run), made=self.made)
            if is_first:
                self._keep(curve, run, path, checkpoint)
            return curve
        finally:
            lock.release()

    def _from_file(self, path: Path, until: float) -> Curve | None:
        """Return the curve in a file, if it has ended or reaches `until`, or None."""
        if not path.exists():
            return None
        curve = self._finished(path)
        if curve.paused and len(curve.loss) < until:
            return None
        return curve

    def _keep(self, curve: Curve, run: Run, path: Path, checkpoint: Path) -> None:
        """Write the curve of a run to its file, and say how the run ended.

        If the run is not paused, its checkpoint is removed.
        """
        Curves(self.configuration, (curve,)).save(path)
        loss = ""
        if curve.clock:
            loss = f", loss {curve.readings()[-1]:.4f}"
        seconds = f"{curve.seconds:.0f} processor seconds"
        self.say(f"{run.name}: {curve.status}{loss}, {seconds}")
        if not curve.paused:
            Checkpoint(checkpoint).remove()

    def _finished(self, path: Path) -> Curve:
        """Return the curve of a stored run, which may be finished or paused.

        Raises ValueError if the curve was made by other code or on another device.
        """
        (curve,) = load(path).curves
        made = curve.made
        device = self.made["device"]
        if (made["code"], made["device"]) != (self.made["code"], device):
            origin = f"the code of commit {made['commit']} on {made['device']}"
            raise ValueError(
                f"{path} was made by {origin}, not by this one on {device}: use "
                "another --state"
            )
        return curve

    def _trained(self, run: Run, checkpoint: Path, until: float) -> Curve:
        """Train one run up to the step `until`, and return its curve.

        The curve of a trial contains only the quantities that a race compares. Raises
        OutOfTime if the minutes are used up first.
        """
        if run.part == "baseline":
            return self._baseline(run.rule)
        study = self.study
        model = loop.initialised(self.problem.build, run.seed)
        trainer = Trainer(
            model,
            study.optimiser(run.rule, model, run.rate, run.cap),
            self.problem.batches(run.seed, run.seed in TUNING_SEEDS),
            study.horizon,
            self.problem.loss,
            evaluations=self._evaluations(run),
            clock=Clock(self.problem.clock, study.clock, study.reached),
            walk=study.walk and run.part != "trial",
            checkpoint=Checkpoint(
                checkpoint, f"{self.key} {self.made['code']} {checkpoint.stem}"
            ),
            pause=lambda step: step == until or self.is_out_of_time(),
            cpu=self.cpu,
        )
        curve = trainer.run()
        if curve.paused and len(curve.loss) != until:
            raise OutOfTime(self.left())
        end: dict[str, Any] = {}
        if run.part != "trial":
            end = dict(self.problem.finish(model.eval(), run.seed))
        if run.rule == "SPS":  # the share of steps that the cap limited
            held = curve.step_size.astype(float) >= run.rate * HELD
            end["capped"] = np.array(held.mean())
        if run.part == "trial":
            curve = _what_chooses(curve)
        return replace(curve, end=end)

    def _evaluations(self, run: Run) -> Evaluations:
        """Return a recorder of the evaluations at the points of a run.

        `Problem.closing` is measured at the last `LAST` points, except in a trial.
        """
        closing_points = set()
        if run.part != "trial":
            closing_points = set(self.study.points[-LAST:].tolist())

        def measure(model: nn.Module, step: int) -> Mapping[str, float]:
            tuning = run.seed in TUNING_SEEDS
            metrics = self.problem.evaluate(model, run.seed, tuning)
            if step in closing_points:
                return {**metrics, **self.problem.closing(model)}
            return metrics

        return Evaluations(measure, at=self.study.points, stop=self.study.stop)

    def _baseline(self, name: str) -> Curve:
        """Fit a plain classifier, and return its hits in a finished Curve."""
        begin = time.process_time()
        hits = self.problem.baselines()[name]()
        seconds = time.process_time() - begin
        return Curve("finished", end=Curve.packed(hits), seconds=seconds)

    def collected(self) -> Curves:
        """Return all runs in the folder, except those that a user requested one by one.

        Returns
        -------
        Curves
            The plain classifiers, the trials (including paused ones) and the judged
            runs.

        Raises
        ------
        ValueError
            If a file is damaged, or was made by other code or on another device.
        """
        paths = [p for p in self.folder.glob("*.npz") if not p.name.startswith("one-")]
        return Curves(self.configuration, tuple(map(self._finished, sorted(paths))))

    def left(self) -> str:
        """Describe in words how far the study has come.

        Returns
        -------
        str
            A sentence with the numbers of trials and of judged runs that have ended. A
            trial that was dropped from a race does not count as ended.
        """
        done = [curve.part for curve in self.collected().curves if not curve.paused]
        planned = self.study.seeds * len(self.study.rates)
        trials = done.count("trial")
        curves = done.count("curve")
        return f"{trials} trials and {curves} of {planned} judged runs are finished"


def _what_chooses(trial: Curve) -> Curve:
    """Reduce a trial to its loss, in half precision, and what a race compares.

    The step sizes, the norms and the walks are left out to save space.
    """
    return replace(
        trial,
        loss=trial.loss.clip(max=LARGEST).astype(np.float16),
        step_size=NONE,
        gradient_norm=NONE,
        weight_norms={},
        walked={},
    )


def race(
    study: Study,
    rates: Mapping[str, Sequence[float]] | None = None,
    *,
    rules: Mapping[str, Rule] | None = None,
    folder: Path | None = None,
    say: Callable[[str], None] = print,
    **changes: Any,
) -> Curves:
    """Compare update rules for a network, each at its best candidate learning rate.

    During the call, torch uses one thread in this process.

    Parameters
    ----------
    study : Study
        The study, which determines the network, the data and the protocol. It can be
        one of `studies.DEMO`, which need no data and take seconds, one of
        `studies.STUDIES`, or a study of your own.
    rates : mapping of str to sequence of float, optional
        The candidate rates of each rule. A rule is one of the papers' rules such as
        "SGD" or "SNGD", the name of an optimiser of torch, or a key of `rules`. SPS
        must come before SNGD. Default: the candidate rates of the study.
    rules : mapping of str to callable, optional
        Rules of your own by name. Each is a class of torch optimisers, which is called
        with (list of parameters, rate), a `functools.partial` of such a class, or a
        function of (dict of parameters by name, rate) that returns an optimiser. Only
        rules that occur in `rates` are run.
    folder : Path, optional
        The folder in which the runs are stored. If the same call is made again, it
        continues from the stored runs. Default: the runs are not stored.
    say : callable
        A function that is called with a sentence about each run. Default: `print`.
    **changes : Any
        Other fields of `Study` to change, such as ``seeds=3`` or ``horizon=50``.

    Returns
    -------
    Curves
        The curves of the plain classifiers, and of the trials and the judged runs of
        every rule.

    Raises
    ------
    ValueError
        If there is no rule of a given name, if a value is not allowed, or if every rate
        of a rule diverged.
    TypeError
        If `study` is not a Study; if one of your own rules is neither a class nor a
        function, cannot be called as described, or does not return an optimiser; also
        if `changes` contains a name that is not a field of `Study`.

    Examples
    --------
    >>> import torch
    >>> from lib.training import race, studies
    >>> curves = race(
    ...     studies.DEMO["mnist"],
    ...     {"SGD": [0.1], "mine": [1e-3, 3e-3]},
    ...     rules={"mine": torch.optim.RMSprop},
    ...     seeds=1,
    ...     horizon=16,
    ...     say=lambda sentence: None,
    ... )
    >>> len(curves.runs("mine")[0].loss), sorted(curves.rates())
    (16, ['SGD', 'mine'])
    """
    if not isinstance(study, Study):
        raise TypeError(
            f"study must be a Study, such as studies.DEMO['mnist'], got {study!r}"
        )
    if rates is not None:
        changes["rates"] = rates
    if rules is not None:
        changes["rules"] = {**study.rules, **rules}
    changed = replace(study, **changes)
    threads = torch.get_num_threads()
    try:
        if folder is not None:
            return Work(changed, folder, say=say).run()
        with tempfile.TemporaryDirectory() as temporary:
            return Work(changed, Path(temporary), say=say).run()
    finally:
        torch.set_num_threads(threads)  # a Work sets them to one
