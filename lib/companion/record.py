"""Save a figure with its numbers and provenance: <figures>/<scale>/<slug>.png, .pdf and .json.

A record that is there stays, and its picture with it, as long as a run reproduces it.
"""

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
from lib.companion import drawn_data, figure_text, parameters, reproduction
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


def _check(slug: str, numbers: Mapping[str, Number], data: Iterable[Mapping]) -> None:
    if not re.fullmatch(r"[a-z0-9_]+", slug):
        raise ValueError(f"slug {slug!r}: use lower-case letters, digits and underscores only")
    for name, number in numbers.items():
        if not isinstance(number, Number):
            raise ValueError(f"number {name!r} is {number!r}; give record.Number(value, tolerance)")
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
    """The figure as PNG and PDF; neither carries a date, so the same figure gives the same
    bytes.
    """
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

    `notebook` is the stem of the .py, `paper` "A", "B" or "C"; `changes` are the parameters that
    are not those of the scale. An unknown scale raises ValueError.
    """

    notebook: str
    paper: str
    scale: str
    parameters: Mapping
    seeds: Sequence[int] = ()
    changes: Mapping = field(default_factory=dict)
    _start: float = field(default_factory=time.monotonic, init=False, repr=False)
    _parts: dict = field(init=False, repr=False)
    _commit: str | None = field(default_factory=provenance.commit, init=False, repr=False)

    def __post_init__(self):
        if self.scale not in SCALES:
            raise ValueError(f"scale {self.scale!r}: choose one of {', '.join(SCALES)}")
        # The code as it is now, at the start: it may be edited while a long run goes on.
        object.__setattr__(self, "_parts", provenance.fingerprint(self.notebook, self.parameters))

    def parts_folder(self, data: Sequence[Mapping] = ()) -> Path:
        """A folder under runs/ for finished parts of a long run; other code, parameters or `data`
        have another.
        """
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
        """Write picture and record, all or nothing; return the path of the record.

        What this run reproduces stays as it is; how the run went is then in runs/latest/<scale>/.
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
        png, pdf = _draw(figure, stamp)
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
            "drawn": drawn_data.summary(figure),
            "provenance": self._provenance(stamp, device, dtype),
        }
        if statements:
            record["statements"] = dict(statements)
        content = {".png": png, ".pdf": pdf, ".json": files.dumps(record).encode()}
        return self._keep(slug, content)

    def _keep(self, slug: str, content: Mapping[str, bytes]) -> Path:
        base = files.folder("figures") / self.scale
        path = base / f"{slug}.json"
        if self.changes:
            names = ", ".join(f"{name} = {value}" for name, value in self.changes.items())
            print(f"Not the {self.scale} scale's own parameters ({names}); saved in {base}")
        else:
            latest = files.folder("runs") / "latest" / self.scale / path.name
            files.write(latest, content[".json"])
        if not reproduction.reproduces(json.loads(content[".json"]), path):
            files.write_all({path.with_suffix(end): data for end, data in content.items()})
        return path

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
    With other values than the scale's own, whatever is saved goes below runs/custom/.
    Raises ValueError for a name that is not there, FileNotFoundError where there is no such
    notebook.
    """
    path = files.folder("notebooks") / f"{notebook}.py"
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no {path}, whose parameters cell says what the parameters of this run are; "
            "set NOTEBOOKS_DIR to the folder of the notebooks' .py files"
        )
    text = path.read_text(encoding="utf-8")
    found = parameters.values(text, variables)
    changes = parameters.changed(notebook, text, found)
    run = Run(
        notebook,
        paper,
        scale=found["scale"],
        parameters=found,
        seeds=range(found["seeds"]),
        changes=changes,
    )
    place = parameters.custom_folder(notebook, changes) / "figures" if changes else None
    files.redirect("figures", place)
    return run
