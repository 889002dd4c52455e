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
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from lib import files, provenance
from lib.companion import figure_text, parameters, reproduction
from lib.companion.claims import Claim

SCALES = ("demo", "desk")
SOURCES = ("data_dir", "data", "hub", "demo", "synthetic", "bert_dir", "package", "kept")


@dataclass(frozen=True)
class Number:
    """A quoted number; a rerun reproduces it when |new - value| ≤ tolerance.

    The tolerance is in the units of the value.

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


_NUMBER = r"(\d+(?:,\d{3})*(?:\.\d+)?)"


def contradictions(record: Mapping) -> list[str]:
    """Where the caption of a record names other n, T, d, k or seeds than its setting, in words."""
    caption, found = record["caption"], []
    for name, used in {**record["parameters"], **record.get("setting", {})}.items():
        said = (
            re.findall(rf"(?<![\w\\]){name}\s*=\s*{_NUMBER}", caption) if name in {*"nTdk"} else []
        )
        values = used if isinstance(used, list | tuple) else [used]
        if said and not {float(text.replace(",", "")) for text in said} & {*map(float, values)}:
            found.append(f"the caption has {name} = {', '.join(said)}, the setting {used}")
    seeds, count = list(record["seeds"]), len(record["seeds"])
    listed = re.findall(r"\bseeds? (\d+|\[[\d, ]+\])", caption)
    numbers = re.findall(r"(\d+) (?:paired |fresh )*seeds", caption)
    if numbers and str(count) not in numbers:
        found.append(f"the caption has {' and '.join(numbers)} seeds, the record {count}")
    if listed and not numbers and str(seeds) not in [f"[{text.strip('[]')}]" for text in listed]:
        found.append(f"the caption has seed {', '.join(listed)}, the record {count} of them")
    return found


def _draw(figure, stamp: dict) -> tuple[bytes, bytes]:
    """The figure as PNG and PDF, without a date: the same figure gives the same bytes."""
    figure.draw_without_rendering()  # a constrained layout settles on its first drawing
    png, pdf = io.BytesIO(), io.BytesIO()
    figure.savefig(
        png, format="png", metadata={"Title": stamp["slug"], "Description": json.dumps(stamp)}
    )
    figure.savefig(pdf, format="pdf", metadata={"Title": stamp["slug"], "CreationDate": None})
    return png.getvalue(), pdf.getvalue()


@dataclass(frozen=True)
class _Begun:
    """What held when a run began; code and parameters may be edited while a long run goes on."""

    parts: Mapping
    commit: str | None = field(default_factory=provenance.commit)
    clock: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class Run:
    """One run of a notebook, as `start` gives it: its clock starts with it.

    `notebook` is the stem of the .py, `paper` "A", "B" or "C"; `changes` are the parameters that
    are not those of the scale, and the code that is not the committed one. With a `source` of
    parameters `save` reads them again, without one they stay; `counted` names the one that counts
    the seeds, None where the runs name their own. An unknown scale raises ValueError.
    """

    notebook: str
    paper: str
    scale: str
    parameters: Mapping
    seeds: Sequence[int] = ()
    changes: Mapping = field(default_factory=dict)
    source: parameters.ParameterSource | None = field(default=None, repr=False, compare=False)
    counted: str | None = "seeds"
    begun: _Begun | None = field(default=None, repr=False, compare=False)

    def __post_init__(self):
        if self.scale not in SCALES:
            raise ValueError(f"scale {self.scale!r}: choose one of {', '.join(SCALES)}")
        if self.begun is None:
            begun = _Begun(provenance.fingerprint(self.notebook, self.parameters))
            object.__setattr__(self, "begun", begun)

    @property
    def folder(self) -> Path:
        """Where the figures go: <figures>/<scale>/, with changes below runs/custom/."""
        if self.changes:
            custom = parameters.custom_folder(self.notebook, self.changes)
            return custom / "figures" / self.scale
        return files.folder("figures") / self.scale

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
        setting: Mapping | None = None,
        device: str = "cpu",
        dtype: str = "float64",
    ) -> Path:
        """Write picture and record, all or nothing; return the path of the record.

        The parameters are read again: a cell may have been run again since the start. What this run
        reproduces stays as it is; how the run went is then in runs/latest/<scale>/. `number` is the
        figure's number in the paper ("Figure 2"); `data` rows need name and source; `statements`
        are those of the paper that the claims of a ledger name (`ledger.statements`); `setting` has
        what this figure was made with where the notebook's parameters say otherwise, "seeds" as
        their list or number among it. Says where caption and setting disagree. Raises
        ValueError for a bad slug, a number that is not finite, a data row without name or source,
        or a parameter that is gone.
        """
        numbers = dict(numbers or {})
        _check(slug, numbers, data)
        data = json.loads(files.dumps([dict(row) for row in data]))
        run = self._now()
        own = dict(setting or {})
        seeds = own.pop("seeds", run.seeds)
        stamp = run._stamp(slug, data)
        png, pdf = _draw(figure, stamp)
        record = {
            "schema": 1,
            "slug": slug,
            "paper": self.paper,
            "figure": number,
            "caption": caption,
            "alt": figure_text.describe(figure),
            "notebook": self.notebook,
            "scale": run.scale,
            "parameters": dict(run.parameters),
            "seeds": list(range(seeds) if isinstance(seeds, int) else seeds),
            "data": data,
            "claims": [claim.as_dict() for claim in claims],
            "numbers": {name: asdict(value) for name, value in numbers.items()},
            "provenance": self._provenance(stamp, device, dtype),
        }
        if own:
            record["setting"] = own
        if statements:
            record["statements"] = dict(statements)
        if wrong := contradictions(record):
            print(
                f"{slug}: {'; '.join(wrong)}; name what is this figure's own in save(setting=...)"
            )
        content = {".png": png, ".pdf": pdf, ".json": files.dumps(record).encode()}
        return run._keep(slug, content)

    def _now(self) -> "Run":
        """This run with the parameters that the notebook has now.

        Those that are not the start's count as changes, even where they are the scale's own: it is
        not known with which of the two the figure was computed.
        """
        if self.source is None:
            return self
        start = self.begun.parts["parameters"]
        found, changes = self.source.now(start)
        if moved := parameters.differing(found, start):
            print(f"Changed since record.start: {', '.join(moved)}; run the notebook from there on")
        seeds = range(found[self.counted]) if self.counted else ()
        return replace(self, scale=found["scale"], parameters=found, seeds=seeds, changes=changes)

    def _stamp(self, slug: str, data: Sequence[Mapping]) -> dict:
        # As JSON has the parameters, in which a numpy number is a number.
        own = {"parameters": json.loads(files.dumps(dict(self.parameters))), "data": data}
        fingerprint = provenance.digest({**self.begun.parts, **own})
        return {"slug": slug, "commit": self.begun.commit, "fingerprint": fingerprint}

    def _keep(self, slug: str, content: Mapping[str, bytes]) -> Path:
        path = self.folder / f"{slug}.json"
        if self.changes:
            names = ", ".join(f"{name} = {value}" for name, value in self.changes.items())
            print(f"Not the {self.scale} scale's own ({names}); saved in {path.parent}")
        else:
            latest = files.folder("runs") / "latest" / self.scale / path.name
            files.write(latest, content[".json"])
        record = json.loads(content[".json"])
        if not reproduction.reproduces(record, content[".png"], path):
            files.write_all({path.with_suffix(end): data for end, data in content.items()})
        return files.Quiet(path)

    def _provenance(self, stamp: Mapping, device: str, dtype: str) -> dict:
        return {
            "commit": stamp["commit"],
            "fingerprint": stamp["fingerprint"],
            "versions": provenance.versions(),
            "device": device,
            "dtype": dtype,
            "threads": int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1),
            "seconds": round(time.monotonic() - self.begun.clock, 1),
            "peak_memory_mb": provenance.peak_memory_mb(),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }


def start(notebook: str, paper: str, variables: Mapping, counted: str | None = "seeds") -> Run:
    """The run of `notebook` that begins now, right after its parameters cell.

    `variables` is the notebook's `globals()`: the run takes from it the names that the parameters
    cell of the .py assigns, among them `scale` and the one that `counted` names, the number k of
    its seeds 0 ... k - 1, if any. With other values than the scale's own, as last committed,
    whatever is saved goes below runs/custom/. Raises ValueError for a name that is not there and
    for a number of seeds that is none, FileNotFoundError where there is no such notebook.
    """
    path = files.folder("notebooks") / f"{notebook}.py"
    if not path.is_file():
        now = parameters.renamed(notebook)
        raise FileNotFoundError(
            (f"{now}; " if now else "")
            + f"there is no {path}, whose parameters cell says what this run's parameters are; "
            "set NOTEBOOKS_DIR to the folder of the notebooks' .py files"
        )
    text = path.read_text(encoding="utf-8")
    reference = parameters.reference(notebook, text)
    source = parameters.ParameterSource(notebook, text, reference, variables)
    found, changes = source.now()
    many = found[counted] if counted else 1
    if isinstance(many, bool) or not isinstance(many, int) or many < 1:
        raise ValueError(f"{counted} = {many!r}; it is a number of runs, at least 1")
    return Run(
        notebook,
        paper,
        scale=found["scale"],
        parameters=found,
        seeds=range(many) if counted else (),
        changes=changes,
        source=source,
        counted=counted,
    )
