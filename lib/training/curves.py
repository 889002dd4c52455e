"""One run as arrays, and the file of a study's runs, from which every claim is recomputed.

An .npz of plain arrays, never pickled, with the study's configuration, where each run was made, and
a digest of all of it inside. A run under way and a whole study are kept in the same form.
"""

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from lib import files, provenance
from lib.representation import Shapes

SCHEMA = 2
LARGEST = 2_000_000  # bytes of a curve file
ROOMS = ("training", "networks", "data")  # of the library, whose code decides a run
FEWEST = 3  # seeds below which there is no verdict
PLAIN = ("part", "rule", "rate", "cap", "seed", "status", "seconds", "made")
STEPWISE = ("loss", "step_size", "gradient_norm", "evaluated_at")
GROUPS = ("metrics", "weight_norms", "walked", "clock", "end")
READINGS = 3  # of the clock whose mean is compared with a target
# What reading a damaged file raises depends on the byte that is wrong.
DAMAGE = (OSError, ValueError, LookupError, TypeError, EOFError, RuntimeError, zlib.error)


@dataclass(frozen=True, repr=False)
class Curve(Shapes):
    """One run: who ran and where, what it did step by step, and what it ended with.

    `part` is "trial" for a run that chooses a rate, "curve" for one that is judged, "one" for one
    that was asked for alone, "baseline" for a plain classifier, of which there is an `end` alone.
    `loss`, `step_size`, `gradient_norm` (steps,) end where the run ended;
    the last two are of rules whose step size changes. `metrics`, `weight_norms`, `walked` {name:
    (points,)} at `evaluated_at`; `clock` {"at", "loss": (readings,)} is the training loss on fixed
    rows, if it was read; `end` {name: array} at the end. `seconds` is processor time.
    `status` is "finished", "stopped after step k", "paused after step k" or "diverged at step k".
    `made`: commit, code, torch, device, processor, threads.
    """

    status: str
    loss: np.ndarray
    step_size: np.ndarray
    gradient_norm: np.ndarray
    evaluated_at: np.ndarray
    part: str = "curve"
    rule: str = ""
    rate: float = 0.0
    cap: float | None = None
    seed: int = 0
    seconds: float = 0.0
    made: Mapping = field(default_factory=dict)
    metrics: Mapping[str, np.ndarray] = field(default_factory=dict)
    weight_norms: Mapping[str, np.ndarray] = field(default_factory=dict)
    walked: Mapping[str, np.ndarray] = field(default_factory=dict)
    clock: Mapping[str, np.ndarray] = field(default_factory=dict)
    end: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def diverged(self) -> bool:
        """Whether the loss stopped being finite."""
        return self.status.startswith("diverged")

    @property
    def paused(self) -> bool:
        """Whether the run was left where it can go on."""
        return self.status.startswith("paused")

    @property
    def hits(self) -> np.ndarray:
        """Which test rows the end of the run classifies correctly: bool (rows,)."""
        count = int(self.end["test_rows"])
        return np.unpackbits(self.end["test_correct"], count=count).astype(bool)

    def smooth(self, window: int) -> np.ndarray:
        """The running mean of the loss over `window` steps, over fewer at the start: (steps,)."""
        total = np.cumsum(self.loss, dtype=float)
        before = np.concatenate([np.zeros(window), total])[: len(total)]
        return (total - before) / np.minimum(np.arange(1, len(total) + 1), window)

    def readings(self) -> np.ndarray:
        """The mean of the clock's last `READINGS` readings at each of them; at first infinite."""
        loss = np.asarray(self.clock["loss"], dtype=float)
        parts = [np.full(min(len(loss), READINGS - 1), np.inf)]
        if len(loss) >= READINGS:
            parts.append(np.convolve(loss, np.full(READINGS, 1 / READINGS), "valid"))
        return np.concatenate(parts)

    def steps_to(self, target: float, window: int) -> float:
        """First step at which the mean over `window` steps is ≤ `target`; inf if it never is.

        With a clock: the first reading whose mean with the two before it is.
        """
        if self.clock:
            reached = self.readings() <= target
            return float(self.clock["at"][reached.argmax()]) if reached.any() else np.inf
        reached = self.smooth(window) <= target
        reached[: window - 1] = False  # a mean over fewer entries is noisier
        return reached.argmax() + 1.0 if reached.any() else np.inf


@dataclass(frozen=True)
class Curves:
    """All runs of one study: `name`, its `configuration`, and its `curves`."""

    name: str
    configuration: Mapping
    curves: tuple[Curve, ...]

    @property
    def digest(self) -> str:
        """A short hash of name and configuration."""
        return digest(self.name, self.configuration)

    def judged(self) -> list[Curve]:
        """The runs that are judged."""
        return [curve for curve in self.curves if curve.part == "curve"]

    def rates(self) -> dict[str, float]:
        """The rate at which each rule was judged, in the study's order."""
        judged = {curve.rule: curve.rate for curve in self.judged()}
        return {rule: judged[rule] for rule in self.configuration["rates"] if rule in judged}

    def seeds(self) -> list[int]:
        """Seeds that every rule has run."""
        have = {(curve.rule, curve.seed) for curve in self.judged()}
        rules, seeds = ({pair[k] for pair in have} for k in (0, 1))
        return sorted(seed for seed in seeds if all((rule, seed) in have for rule in rules))

    def runs(self, rule: str) -> list[Curve]:
        """The judged runs of `rule` on the seeds that every rule has run, in the order of seeds."""
        kept = self.seeds()
        found = [c for c in self.judged() if c.rule == rule and c.seed in kept]
        return sorted(found, key=lambda curve: curve.seed)

    def trials(self, rule: str) -> list[Curve]:
        """The trials of `rule`, in the order of their rates."""
        found = [c for c in self.curves if c.part == "trial" and c.rule == rule]
        return sorted(found, key=lambda curve: curve.rate)

    def baselines(self) -> dict[str, float]:
        """Test accuracy of the plain classifiers on the same rows, by name."""
        return {c.rule: float(c.hits.mean()) for c in self.curves if c.part == "baseline"}

    def hours(self) -> float:
        """Processor hours of all runs together."""
        return sum(curve.seconds for curve in self.curves) / 3600

    def save(self, path: Path) -> None:
        """Write them all to `path`, atomically; ValueError if the file would exceed `LARGEST`."""
        rows, arrays = [], {}
        for k, curve in enumerate(self.curves):
            rows.append({name: getattr(curve, name) for name in PLAIN})
            arrays |= {f"{k}/{name}": np.asarray(getattr(curve, name)) for name in STEPWISE}
            for group in GROUPS:
                values = getattr(curve, group).items()
                arrays |= {f"{k}/{group}/{name}": np.asarray(array) for name, array in values}
        head = {"schema": SCHEMA, "name": self.name, "configuration": dict(self.configuration)}
        head = json.loads(files.dumps(head | {"curves": rows}))
        content = io.BytesIO()
        np.savez_compressed(
            content, json=np.array(files.dumps(head | {"seal": _seal(head, arrays)})), **arrays
        )
        if len(content.getvalue()) > LARGEST:
            raise ValueError(f"{path} would take {len(content.getvalue()):,} bytes of {LARGEST:,}")
        files.write(Path(path), content.getvalue())


def digest(name: str, configuration: Mapping) -> str:
    """A short hash of a study's `name` and `configuration`."""
    plain = json.loads(files.dumps({"name": name, "configuration": dict(configuration)}))
    return files.sha256(json.dumps(plain, sort_keys=True).encode())


def _seal(head: Mapping, arrays: Mapping[str, np.ndarray]) -> str:
    """The SHA-256 of all that a curve file holds."""
    found = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    for name, values in sorted(arrays.items()):
        found.update(f"{name} {values.dtype} {values.shape}".encode() + values.tobytes())
    return found.hexdigest()


def load(path: Path) -> Curves:
    """The curves that `Curves.save` wrote to `path`.

    FileNotFoundError where there is none; ValueError for a file that is damaged, no curve file, or
    of another schema.
    """
    if not Path(path).exists():
        raise FileNotFoundError(f"{path} is not there; `python -m lib.training` makes it")
    try:
        # np.load refuses pickled objects, and leaves a damaged file open that it opened itself.
        with open(path, "rb") as stream, np.load(stream) as file:
            arrays = {name: file[name] for name in file.files if name != "json"}
            head = json.loads(str(file["json"]))
        seal, schema = head.pop("seal"), head["schema"]
        parts = [{group: {} for group in GROUPS} for _ in head["curves"]]
        for name, values in arrays.items():
            k, group, key = (*name.split("/", 2), None)[:3]
            place = parts[int(k)]
            if key is None:
                place[group] = values
            else:
                place[group][key] = values
        found = [Curve(**row, **part) for row, part in zip(head["curves"], parts, strict=True)]
        curves = Curves(head["name"], head["configuration"], tuple(found))
    except (*DAMAGE, zipfile.BadZipFile) as error:
        what = f"there is no {error}" if isinstance(error, KeyError) else error
        raise ValueError(
            f"{path} is not a curve file that can be read ({what}); fetch it again or run the study"
        ) from error
    if schema != SCHEMA:
        raise ValueError(f"{path} has schema {schema}, this code reads {SCHEMA}")
    if seal != _seal(head, arrays):
        raise ValueError(f"{path} is damaged: it does not hold what its digest states")
    return curves


def kept(name: str, needed: bool = False) -> Curves | None:
    """The committed curves of the study `name`.

    None, with one printed sentence, where there are none or fewer than `FEWEST` seeds are finished;
    where they are `needed` FileNotFoundError or ValueError.
    """
    path, command = (
        files.ROOT / "figures" / "desk" / f"{name}.npz",
        f"python -m lib.training {name}",
    )
    if not path.exists() and not needed:
        print(f"the study {name} has no committed curves yet: {command}")
        return None
    found = load(path)
    if len(found.seeds()) >= FEWEST:
        return found
    words = f"the study {name} is unfinished, {len(found.judged())} judged runs so far: {command}"
    if needed:
        raise ValueError(words)
    print(words)
    return None


@lru_cache
def code() -> str:
    """A short hash of the code that decides a run: lib/training, lib/networks, lib/data."""
    sources = (path for room in ROOMS for path in (files.ROOT / "lib" / room).rglob("*.py"))
    return files.sha256(b"".join(path.read_bytes() for path in sorted(sources)))


@lru_cache
def made(device: str) -> dict:
    """Where a run is made: commit, code, torch, device, processor, threads."""
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    return {
        "commit": provenance.commit(),
        "code": code(),
        "torch": torch.__version__,
        "device": device,
        "processor": torch.cuda.get_device_name() if device == "cuda" else capability,
        "threads": torch.get_num_threads(),
    }
