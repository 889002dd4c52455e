"""Save and load a figure with its numbers and provenance: <figures>/<scale>/<slug>.png, .pdf and .json."""

import io
import json
import math
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from lib import files, provenance
from lib.companion import figure_text, parameters
from lib.companion.claims import Claim

SCALES = ("demo", "desk", "paper")
SOURCES = ("data_dir", "data", "hub", "demo", "synthetic", "bert_dir", "package")


@dataclass(frozen=True)
class Number:
    """A quoted number; a rerun reproduces it when |new - value| ≤ tolerance, in the units of the
    value.

    `value` None stands for a quantity without a value, such as the loss of a diverged run.
    """

    value: float | None
    tolerance: float


def finite(value: float, tolerance: float) -> Number:
    """The `Number` of a measured value, without a value where that is NaN or infinite."""
    return Number(float(value) if math.isfinite(value) else None, tolerance)


@dataclass(frozen=True)
class Difference:
    """A number that a rerun did not reproduce; `new` is None when it has no value or is gone."""

    name: str
    new: float | None
    old: float | None
    tolerance: float

    def __str__(self) -> str:
        return f"{self.name} is {self.new}, committed {self.old} ± {self.tolerance}"


def compare(new: Mapping, old: Mapping) -> list[Difference]:
    """The numbers of record `old` that `new` does not reproduce within the tolerance that `old` states."""
    differences = []
    for name, row in old["numbers"].items():
        value, expected, tolerance = (
            new["numbers"].get(name, {}).get("value"),
            row["value"],
            row["tolerance"],
        )
        if value is None or expected is None:
            same = value is expected and name in new["numbers"]
        else:
            same = abs(value - expected) <= tolerance
        if not same:
            differences.append(Difference(name, value, expected, tolerance))
    return differences


def _check(slug: str, numbers: Mapping[str, Number], data: Iterable[Mapping]) -> None:
    if not re.fullmatch(r"[a-z0-9_]+", slug):
        raise ValueError(f"slug {slug!r}: use lower-case letters, digits and underscores only")
    for name, number in numbers.items():
        if not isinstance(number, Number):
            raise ValueError(
                f"number {name!r} is {number!r}; give results.Number(value, tolerance)"
            )
        if number.value is not None and not math.isfinite(number.value):
            raise ValueError(
                f"number {name!r} is {number.value}; give None for a run without a value"
            )
        if not (math.isfinite(number.tolerance) and number.tolerance >= 0):
            raise ValueError(
                f"number {name!r} has tolerance {number.tolerance}; it must be finite and ≥ 0"
            )
    for row in data:
        if "name" not in row or row.get("source") not in SOURCES:
            raise ValueError(
                f"data {dict(row)}: needs a name and a source out of {', '.join(SOURCES)}"
            )


def _draw(figure, stamp: dict) -> tuple[bytes, bytes]:
    """The figure as PNG and PDF; neither carries a date, so the same figure gives the same bytes."""
    figure.draw_without_rendering()  # a constrained layout settles on its first drawing
    png, pdf = io.BytesIO(), io.BytesIO()
    figure.savefig(
        png, format="png", metadata={"Title": stamp["slug"], "Description": json.dumps(stamp)}
    )
    figure.savefig(pdf, format="pdf", metadata={"Title": stamp["slug"], "CreationDate": None})
    return png.getvalue(), pdf.getvalue()


@dataclass(frozen=True)
class Run:
    """One run of a notebook, as `start` gives it: its clock starts with it.

    `notebook` is the stem of the .py, `paper` "A", "B" or "C"; an unknown scale raises ValueError.
    """

    notebook: str
    paper: str
    scale: str
    parameters: Mapping
    seeds: Sequence[int] = ()
    _start: float = field(default_factory=time.monotonic, init=False, repr=False)
    _parts: dict = field(init=False, repr=False)
    _commit: str | None = field(default_factory=provenance.commit, init=False, repr=False)

    def __post_init__(self):
        if self.scale not in SCALES:
            raise ValueError(f"scale {self.scale!r}: choose one of {', '.join(SCALES)}")
        # The code as it is now, at the start: it may be edited while a long run goes on.
        object.__setattr__(self, "_parts", provenance.fingerprint(self.notebook, self.parameters))

    def parts_folder(self, data: Sequence[Mapping] = ()) -> Path:
        """A folder under runs/ for finished parts of a long run; other code, parameters or `data` have another."""
        key = provenance.digest(self._parts | {"data": [dict(row) for row in data]})
        return files.folder("runs") / "parts" / f"{self.notebook}-{self.scale}-{key}"

    def save(
        self,
        figure,
        slug: str,
        number: str,
        caption: str,
        claims: Iterable[Claim] = (),
        numbers: Mapping[str, Number] | None = None,
        data: Sequence[Mapping] = (),
        statements: Mapping[str, Mapping] | None = None,
        device: str = "cpu",
        dtype: str = "float64",
    ) -> Path:
        """Write picture and record, each atomically and the record last; return the path of the
        record.

        `number` is the figure's number in the paper ("Figure 2"); `data` rows need name and source;
        `statements` are those of the paper that the claims of a ledger name (`ledger.statements`).
        Raises ValueError for a bad slug, a number that is not finite, or a data row without name or
        source.
        """
        numbers = dict(numbers or {})
        _check(slug, numbers, data)
        data = json.loads(files.dumps([dict(row) for row in data]))
        stamp = {
            "slug": slug,
            "commit": self._commit,
            "fingerprint": provenance.digest(self._parts | {"data": data}),
        }
        record = {
            "schema": 1,
            "slug": slug,
            "paper": self.paper,
            "figure": number,
            "caption": caption,
            "alt": figure_text.describe(figure),
            "notebook": self.notebook,
            "scale": self.scale,
            "parameters": dict(self.parameters),
            "seeds": list(self.seeds),
            "data": data,
            "claims": [claim.as_dict() for claim in claims],
            "numbers": {name: asdict(value) for name, value in numbers.items()},
            "provenance": self._provenance(stamp, device, dtype),
        }
        if statements:
            record["statements"] = dict(statements)
        text = files.dumps(
            record
        )  # before anything is written: a record that is not valid JSON leaves no picture
        png, pdf = _draw(figure, stamp)
        base = files.folder("figures") / self.scale
        for suffix, content in ((".png", png), (".pdf", pdf), (".json", text.encode())):
            files.write(base / f"{slug}{suffix}", content)
        return base / f"{slug}.json"

    def _provenance(self, stamp: Mapping, device: str, dtype: str) -> dict:
        return {
            "commit": stamp["commit"],
            "fingerprint": stamp["fingerprint"],
            "versions": provenance.versions(),
            "device": device,
            "dtype": dtype,
            "threads": int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1),
            "seconds": round(time.monotonic() - self._start, 1),
            "peak_memory_mb": provenance.peak_memory_mb(),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }


def start(notebook: str, paper: str, variables: Mapping) -> Run:
    """The run of `notebook` that begins now, right after its parameters cell.

    `variables` is the notebook's `globals()`: the run takes from it the names that the parameters
    cell of the .py assigns, among them `scale` and `seeds`, whose seeds are 0 ... `seeds` - 1.
    Raises ValueError for a name that is not there, FileNotFoundError where there is no such
    notebook.
    """
    text = (files.folder("notebooks") / f"{notebook}.py").read_text(encoding="utf-8")
    found = parameters.values(text, variables)
    return Run(notebook, paper, found["scale"], found, range(found["seeds"]))


def load(slug: str, scale: str = "demo") -> dict:
    """The record of a figure; FileNotFoundError, with the command that makes it, where there is none."""
    path = files.folder("figures") / scale / f"{slug}.json"
    if not path.exists():
        raise FileNotFoundError(
            f"no {scale} record of {slug}; `make figures SCALE={scale}` makes it"
        )
    return json.loads(path.read_text(encoding="utf-8"))
