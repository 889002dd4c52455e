"""The files of a study's runs: finished curves, checkpoints, locks, seconds used so far."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from lib import files
from lib.training.curves import Curve, Curves, digest, load


@dataclass(frozen=True)
class RunId:
    """Which run of a study: `part` "trial" or "curve", rule, rate, SNGD's cap, seed."""

    part: str
    rule: str
    rate: float
    cap: float | None
    seed: int

    @classmethod
    def of(cls, curve: Curve) -> "RunId":
        """The run that left `curve`."""
        return cls(curve.part, curve.rule, curve.rate, curve.cap, curve.seed)

    def __str__(self) -> str:
        return "-".join(str(value) for value in vars(self).values() if value is not None)


class Taken(Exception):
    """Another process works on the run."""


class RunFiles:
    """The folder `folder`/<name>-<digest> of the study `name` with this `configuration`.

    A finished run is <run>.npz; one that was left at a quarter is <run>-quarter.npz, with its
    checkpoint <run>.pt beside it.
    """

    def __init__(self, folder: Path, name: str, configuration: Mapping):
        self.name, self.configuration = name, configuration
        self.folder = Path(folder) / f"{name}-{digest(name, configuration)}"

    def checkpoint(self, run: RunId) -> Path:
        """The file of an unfinished run."""
        return self.folder / f"{run}.pt"

    def finished(self, run: RunId, quarter: bool) -> Curve | None:
        """The curve of a run that has ended, or with `quarter` has come so far; else None."""
        for path in (self._whole(run), self._early(run)) if quarter else (self._whole(run),):
            if path.exists():
                return load(path, self.configuration).curves[0]
        return None

    def keep(self, run: RunId, curve: Curve, whole: bool) -> None:
        """Save the curve of a run, the `whole` of it or its first quarter."""
        path = self._whole(run) if whole else self._early(run)
        Curves(self.name, self.configuration, (curve,)).save(path)
        if whole:  # the lock stays: another process may wait on it
            for done in (self._early(run), self.checkpoint(run), self._seconds(run)):
                done.unlink(missing_ok=True)

    def alone(self, run: RunId, give_up: Callable[[], bool]) -> AbstractContextManager:
        """Wait until no other process works on this run; the lock of a killed one is free.

        `Taken` if `give_up()` holds while another one has it.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.folder / f"{run}.lock")
        try:
            return lock.acquire(poll_interval=1, cancel_check=give_up)
        except Timeout:
            raise Taken(f"{run} is another process's") from None

    def seconds(self, run: RunId) -> float:
        """Processor seconds that an unfinished run has taken before."""
        path = self._seconds(run)
        return float(path.read_text()) if path.exists() else 0.0

    def note_seconds(self, run: RunId, seconds: float) -> None:
        """Remember the processor seconds of an unfinished run."""
        files.write(self._seconds(run), f"{seconds:.3f}".encode())

    def count(self, part: str) -> int:
        """How many runs of `part` are finished."""
        return len(list(self.folder.glob(f"{part}-*.npz")))

    def adopt(self, kept: Curves) -> None:
        """Take over finished runs kept elsewhere; ValueError for another configuration."""
        if kept.digest != digest(self.name, self.configuration):
            raise ValueError(f"the kept curves of {kept.name} are of another configuration")
        for curve in kept.curves:
            run = RunId.of(curve)
            path = self._early(run) if curve.status.startswith("paused") else self._whole(run)
            if not path.exists() and not self._whole(run).exists():
                Curves(kept.name, self.configuration, (curve,)).save(path)

    def collected(self) -> Curves:
        """All runs that are finished."""
        paths = sorted(self.folder.glob("*.npz"))
        curves = [load(path, self.configuration).curves[0] for path in paths]
        return Curves(self.name, self.configuration, tuple(curves))

    def _whole(self, run: RunId) -> Path:
        return self.folder / f"{run}.npz"

    def _early(self, run: RunId) -> Path:
        return self.folder / f"{run}-quarter.npz"

    def _seconds(self, run: RunId) -> Path:
        return self.folder / f"{run}.seconds"
