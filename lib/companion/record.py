"""Save a figure with its numbers and provenance: <figures>/<scale>/<slug>.png, .pdf and .json.

A record that is there stays, and its picture with it, as long as a run reproduces it. A run with
other code or parameters than the committed page has at its scale is a reader's own, `Page.own`: it
saves below runs/custom/.
"""

import ast
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
from lib.companion import pictures
from lib.companion.claims import Claim

SCALES = ("demo", "desk")
SOURCES = ("data_dir", "data", "hub", "demo", "synthetic", "bert_dir", "package", "kept")
INSTALLS = "# Only where the project is not installed"  # how the installing cell begins

# Pages: their parameters, and what of a run is a reader's own.


def literals(text: str) -> dict:
    """The parameters of a percent notebook: the literals of its one cell tagged "parameters".

    Raises ValueError when there is no such cell, more than one, or anything but literals in it.
    """
    tagged = [body for header, body in _cells(text) if _PARAMETERS.search(header)]
    if len(tagged) != 1:
        raise ValueError(f"needs exactly one cell tagged parameters, has {len(tagged)}")
    values = {}
    for node in ast.parse(tagged[0]).body:
        try:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            value = ast.literal_eval(node.value)
            for target in targets:
                single = isinstance(target, ast.Name)
                pairs = [(target, value)] if single else zip(target.elts, value, strict=True)
                values |= {name.id: part for name, part in pairs}
        except (AttributeError, ValueError, TypeError):
            raise ValueError(
                f"{ast.unparse(node)!r} in the parameters cell is not name = literal"
            ) from None
    return values


_PARAMETERS = re.compile(r"""["']parameters["']""")


def _cells(text: str) -> list[tuple[str, str]]:
    """The cells of a percent notebook: what stands behind the mark, and the body."""
    cells = (cell.partition("\n") for cell in re.split(r"^# %%", text, flags=re.MULTILINE)[1:])
    return [(header, body) for header, _, body in cells]


def _code(text: str) -> list[str]:
    """The cells of code as Python reads them, without comments, layout and parameters."""
    cells = [(header, body) for header, body in _cells(text) if "[markdown]" not in header]
    return [_parsed(body) for header, body in cells if not _PARAMETERS.search(header)]


def _parsed(cell: str) -> str:
    try:
        return ast.dump(ast.parse(cell))
    except SyntaxError:  # a magic command
        return cell.strip()


def of_scale(notebook: str, scale: str) -> dict | None:
    """What `scale` changes in the parameters of `notebook`; None if it has no such scale."""
    if scale == "demo":
        return {}
    path = files.folder("notebooks") / "scales.toml"
    sections = files.read_table(path).get(notebook, {})
    section = sections.get(scale) if isinstance(sections, dict) else sections
    if not isinstance(section, dict | None):
        raise ValueError(f"{path}: {notebook} is not a table of scales, each a table of values")
    return None if section is None else {"scale": scale, **section}


def names_now() -> dict[str, list[str]]:
    """For every name that a notebook once had, what holds its subject now."""
    path = files.folder("notebooks") / "renamed.toml"
    table = files.read_table(path)
    for old, now in table.items():
        if not isinstance(now, list) or not all(isinstance(name, str) for name in now):
            raise ValueError(f"{path}: {old} is not a list of names")
    return table


def renamed(beginning: str) -> str:
    """What old names that begin so are now, in words; empty where there is none."""
    table = names_now().items()
    return "; ".join(
        f"{old} is now {' and '.join(now)}" for old, now in table if old.startswith(beginning)
    )


def differing(values: Mapping, usual: Mapping) -> dict:
    """Those of the `values` that are not the `usual` ones, as JSON has them."""
    values, usual = (json.loads(files.dumps(dict(each))) for each in (values, usual))
    return {name: x for name, x in values.items() if name not in usual or x != usual[name]}


@dataclass(frozen=True)
class Page:
    """The .py of a notebook as it is, and as last committed (as it is, where no commit has it)."""

    notebook: str
    text: str
    committed: str

    @classmethod
    def read(cls, notebook: str) -> "Page":
        """The page of this name; OSError where there is none, ValueError where it is not UTF-8."""
        path = files.folder("notebooks") / f"{notebook}.py"
        text, committed = path.read_text(encoding="utf-8"), None
        if path.is_relative_to(files.ROOT):
            name = path.relative_to(files.ROOT).as_posix()
            committed = provenance.git("show", f"HEAD:./{name}")
        return cls(notebook, text, committed or text)

    def own(self, values: Mapping, ran: Iterable[str] = ()) -> dict:
        """What is a reader's own in a run with these parameter `values`; empty where nothing is.

        Values that the committed page does not have at the scale `values["scale"]` (all, where it
        is not offered), and "code": cells of the .py, or those that a kernel `ran`, that nobody
        committed. Comments and layout do not count.
        """
        if "scale" not in values:
            raise ValueError(f"{self.notebook}: its parameters cell has no scale")
        scale, usual = of_scale(self.notebook, values["scale"]), literals(self.committed)
        changes = differing(values, {} if scale is None else usual | scale)
        code, known = _code(self.text), _code(self.committed)
        if code != known:
            changes["code"] = files.sha256(json.dumps(code).encode())[:8]
        elif any(_parsed(cell) not in known and not _harmless(cell, usual) for cell in ran):
            changes["code"] = "own cells"
        return changes


def _harmless(cell: str, parameters: Mapping) -> bool:
    """Whether a cell sets parameters only, does nothing, or installs the project."""
    try:
        return literals(f'# %% "parameters"\n{cell}').keys() <= parameters.keys()
    except (ValueError, SyntaxError):
        return cell.startswith(INSTALLS)


def custom_folder(notebook: str, changes: Mapping) -> Path:
    """The folder of a run with the `changes`; other values have another folder."""
    return files.folder("runs") / "custom" / f"{notebook}-{provenance.digest(changes)[:8]}"


# Numbers, and what a record is refused for.


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
    caption, wrong = record["caption"], []
    settings = {**record["parameters"], **record.get("setting", {})}
    for name in sorted(settings.keys() & {*"nTdk"}):
        used = settings[name]
        stated = re.findall(rf"(?<![\w\\]){name}\s*=\s*{_NUMBER}", caption)
        values = used if isinstance(used, list | tuple) else [used]
        if stated and not {float(x.replace(",", "")) for x in stated} & {*map(float, values)}:
            wrong.append(f"the caption has {name} = {', '.join(stated)}, the setting {used}")
    seeds, count = list(record["seeds"]), len(record["seeds"])
    listed = re.findall(r"\bseeds? (\d+|\[[\d, ]+\])", caption)
    numbers = re.findall(r"(\d+) (?:paired |fresh )*seeds", caption)
    if numbers and str(count) not in numbers:
        wrong.append(f"the caption has {' and '.join(numbers)} seeds, the record {count}")
    if listed and not numbers and str(seeds) not in [f"[{text.strip('[]')}]" for text in listed]:
        wrong.append(f"the caption has seed {', '.join(listed)}, the record {count} of them")
    return wrong


# A run, from its start to its saved figures.


def start(notebook: str, paper: str, variables: Mapping, counted: str | None = "seeds") -> "Run":
    """The run of `notebook` that begins now, right after its parameters cell.

    `variables` is the notebook's `globals()`: the run takes from it the names that the parameters
    cell of the .py assigns, among them `scale` and the one that `counted` names, the number k of
    its seeds 0 ... k - 1, if any. What is a reader's own, `Page.own`, goes below runs/custom/.
    Raises ValueError for a name that is not there and for a number of seeds that is not one,
    FileNotFoundError where there is no such notebook.
    """
    try:
        page = Page.read(notebook)
    except FileNotFoundError as error:
        now = renamed(notebook)
        raise FileNotFoundError(
            f"{now}; " * bool(now) + f"there is no {error.filename}, whose parameters cell says "
            "what this run's parameters are; set NOTEBOOKS_DIR to the folder of the .py files"
        ) from None
    values = _values(page, variables)
    many = values[counted] if counted else 1
    if isinstance(many, bool) or not isinstance(many, int) or many < 1:
        raise ValueError(f"{counted} = {many!r}; it is a number of runs, at least 1")
    return Run(
        notebook,
        paper,
        scale=values["scale"],
        parameters=values,
        seeds=range(many) if counted else (),
        changes=page.own(values, variables.get("In", ())),
        counted=counted,
        page=page,
        variables=variables,
    )


def _values(page: Page, variables: Mapping) -> dict:
    """The parameters of a page as they are now in a notebook's `globals()`."""
    names = literals(page.text)
    missing = [name for name in names if name not in variables]
    if missing:
        raise ValueError(f"run the parameters cell first: there is no {', '.join(missing)}")
    return {name: variables[name] for name in names}


@dataclass(frozen=True)
class Run:
    """One run of a notebook, as `start` gives it: its clock starts with it.

    `notebook` is the stem of the .py, `paper` "A", "B" or "C"; `changes` are a reader's own
    parameters and code. With a `page` and the kernel's `variables`, `save` reads the parameters
    again, else they stay; `counted` names the one that counts the seeds, None where the runs name
    their own. `begun` has what held at the start: code and parameters may be edited while a long
    run goes on. An unknown scale raises ValueError.
    """

    notebook: str
    paper: str
    scale: str
    parameters: Mapping
    seeds: Sequence[int] = ()
    changes: Mapping = field(default_factory=dict)
    counted: str | None = "seeds"
    page: Page | None = field(default=None, repr=False, compare=False)
    variables: Mapping | None = field(default=None, repr=False, compare=False)
    begun: Mapping | None = field(default=None, repr=False, compare=False)

    def __post_init__(self):
        if self.scale not in SCALES:
            raise ValueError(f"scale {self.scale!r}: choose one of {', '.join(SCALES)}")
        if self.begun is None:
            parts = provenance.fingerprint(self.notebook, self.parameters)
            begun = dict(parts=parts, commit=provenance.commit(), clock=time.monotonic())
            object.__setattr__(self, "begun", begun)

    @property
    def folder(self) -> Path:
        """Where the figures go: <figures>/<scale>/, with changes below runs/custom/."""
        if self.changes:
            return custom_folder(self.notebook, self.changes) / "figures" / self.scale
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
        run, setting = self._now(), dict(setting or {})
        seeds = setting.pop("seeds", run.seeds)
        record = {
            "schema": 1,
            "slug": slug,
            "paper": self.paper,
            "figure": number,
            "caption": caption,
            "words": _words(figure),
            "notebook": self.notebook,
            "scale": run.scale,
            "parameters": run.parameters,
            "seeds": list(range(seeds) if isinstance(seeds, int) else seeds),
            "data": [dict(row) for row in data],
            "claims": [claim.as_dict() for claim in claims],
            "numbers": {name: asdict(value) for name, value in numbers.items()},
            "provenance": {},
        }
        optional = {"setting": setting, "statements": dict(statements or {})}
        record |= {name: value for name, value in optional.items() if value}
        record = json.loads(files.dumps(record))  # in JSON a numpy number is a number
        used = {name: record[name] for name in ("parameters", "data")}
        stamp = {
            "slug": slug,
            "commit": self.begun["commit"],
            "fingerprint": provenance.digest({**self.begun["parts"], **used}),
        }
        png, pdf = _draw(figure, stamp)
        record["provenance"] = {
            "commit": stamp["commit"],
            "fingerprint": stamp["fingerprint"],
            "versions": provenance.versions(),
            "device": device,
            "dtype": dtype,
            "threads": int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1),
            "seconds": round(time.monotonic() - self.begun["clock"], 1),
            "peak_memory_mb": provenance.peak_memory_mb(),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        if wrong := contradictions(record):
            print(
                f"{slug}: {'; '.join(wrong)}; name what is this figure's own in save(setting=...)"
            )
        path = run.folder / f"{slug}.json"
        text = files.dumps(record).encode()
        if run.changes:
            names = ", ".join(f"{name} = {value}" for name, value in run.changes.items())
            print(f"Not the {run.scale} scale's own ({names}); saved in {path.parent}")
        else:
            files.write(files.folder("runs") / "latest" / run.scale / path.name, text)
        if not reproduces(record, png, path):
            content = {".png": png, ".pdf": pdf, ".json": text}
            files.write_all({path.with_suffix(end): data for end, data in content.items()})
        return _Quiet(path)

    def _now(self) -> "Run":
        """This run with the parameters that the notebook has now.

        Those that are not the start's count as changes, even where they are the scale's own: it is
        not known with which of the two the figure was computed.
        """
        if self.page is None or self.variables is None:
            return self
        values = _values(self.page, self.variables)
        moved = differing(values, self.begun["parts"]["parameters"])
        if moved:
            print(f"Changed since record.start: {', '.join(moved)}; run the notebook from there on")
        changes = moved | self.page.own(values, self.variables.get("In", ()))
        seeds = range(values[self.counted]) if self.counted else ()
        return replace(self, scale=values["scale"], parameters=values, seeds=seeds, changes=changes)


def _draw(figure, stamp: Mapping) -> tuple[bytes, bytes]:
    """The figure as PNG and PDF, without a date: the same figure gives the same bytes."""
    figure.draw_without_rendering()  # a constrained layout settles on its first drawing
    png, pdf = io.BytesIO(), io.BytesIO()
    title = {"Title": stamp["slug"]}
    figure.savefig(png, format="png", metadata=title | {"Description": json.dumps(stamp)})
    figure.savefig(pdf, format="pdf", metadata=title | {"CreationDate": None})
    return png.getvalue(), pdf.getvalue()


class _Quiet(type(Path())):
    """A path that prints nothing as the last value of a notebook's cell."""

    def _ipython_display_(self) -> None:
        pass


# Records that are there, and when a run reproduces them.


def read(path: Path) -> dict:
    """The record in a file; ValueError, with the file's name, where it holds anything else."""
    return checked(files.read_object(path), path)


_KINDS = dict(notebook=str, parameters=dict, data=list, claims=list, numbers=dict, provenance=dict)


def checked(record: Mapping, name: object) -> dict:
    """The record of the file `name`; ValueError where a part that is compared is of another kind.

    A record may have been edited by hand, cut off, or come from a merge that went wrong.
    """
    wrong = [key for key, kind in _KINDS.items() if not isinstance(record.get(key), kind)]
    for key, kinds in (
        ("data", dict(name=str, source=object)),
        ("claims", dict(id=str, holds=bool)),
    ):
        rows = [] if key in wrong else record[key]
        wrong += [f"a row of {key}" for row in rows if not _has(row, kinds)]
    rows = {} if "numbers" in wrong else record["numbers"]
    wrong += [f"number {name}" for name, row in rows.items() if not _is_number(row)]
    if wrong:
        raise ValueError(f"{name} is damaged: it lacks {', '.join(dict.fromkeys(wrong))}")
    return dict(record)


def _has(row, kinds: Mapping[str, type]) -> bool:
    return isinstance(row, dict) and all(
        key in row and isinstance(row[key], kind) for key, kind in kinds.items()
    )


def _is_number(row) -> bool:
    kinds = {"value": int | float | None, "tolerance": int | float}
    values = [row[key] for key in kinds] if _has(row, kinds) else [math.nan]
    return not any(isinstance(x, bool) or not math.isfinite(x or 0) for x in values)


def compare(new: Mapping, old: Mapping) -> list[str]:
    """The numbers of `old` that `new` misses by more than their tolerance in `old`, in words."""
    differences = []
    for name, row in old["numbers"].items():
        value, expected = new["numbers"].get(name, {}).get("value"), row["value"]
        if value is None or expected is None:
            same = value is expected and name in new["numbers"]
        else:
            same = abs(value - expected) <= row["tolerance"]
        if not same:
            differences.append(f"{name} is {value}, committed {expected} ± {row['tolerance']}")
    return differences


_FIXED = "schema paper figure caption notebook scale parameters setting seeds data".split()


def reproduces(new: Mapping, picture: bytes, place: Path) -> bool:
    """Whether a run reproduces the figure of the record at `place`.

    `new` is the record that the run gave, `picture` its PNG. It does where numbers agree within
    tolerance, claims ask and find the same, parameters, data and words are those of before, and the
    pictures show the same. That of a smoke run on embedded data is not asked: single precision
    trains another network on each processor. A figure with a missing or damaged file is not
    reproduced.
    """
    if not all(place.with_suffix(end).is_file() for end in (".png", ".pdf", ".json")):
        return False
    try:
        old = read(place)
        smoke = any(row["source"] == "demo" for row in new["data"])
        return (
            all(new.get(key) == old.get(key) for key in _FIXED)
            and old.get("words") in (None, new["words"])  # older records have none
            and _same_tolerances(new["numbers"], old["numbers"])
            and list(map(_asked, new["claims"])) == list(map(_asked, old["claims"]))
            and not compare(new, old)
            and (smoke or pictures.same(picture, place.with_suffix(".png").read_bytes()))
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _words(figure) -> list[str]:
    """Titles, labels and legends of a figure; a decimal in them is a measured one and may move."""
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes)]
    words = [axes.get_title(loc) for axes in figure.axes for loc in ("left", "center", "right")]
    words += [text for axes in figure.axes for text in (axes.get_xlabel(), axes.get_ylabel())]
    words += [text.get_text() for legend in legends if legend for text in legend.get_texts()]
    return [re.sub(r"\d+\.\d\d+", "#", text) for text in words if text]


def _same_tolerances(new: Mapping, old: Mapping) -> bool:
    # Nearly, since one that is a share of its number moves a little with it.
    pairs = [(new[name]["tolerance"], old[name]["tolerance"]) for name in new.keys() & old.keys()]
    return new.keys() == old.keys() and all(math.isclose(*pair, rel_tol=0.1) for pair in pairs)


def _asked(claim: Mapping) -> tuple:
    words = tuple(claim[key] for key in ("id", "statement", "source", "bound", "holds"))
    remark = re.sub(r"[\d.]+", "#", claim.get("remark", ""))  # its numbers may move a little
    return *words, claim.get("kind"), claim.get("catches"), remark
