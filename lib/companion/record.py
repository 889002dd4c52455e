"""Save a figure with its numbers and provenance: <figures>/<scale>/<slug>.png, .pdf and .json.

A record that is there stays, and its picture with it, as long as a run reproduces it. A run whose
page or parameters nobody committed saves below runs/custom/, see `edited`.
"""

import ast
import io
import json
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from numbers import Integral
from pathlib import Path

from lib import files, provenance
from lib.companion import pictures, plots
from lib.companion.claims import Claim

SCALES = ("demo", "desk")
SOURCES = ("data_dir", "data", "hub", "demo", "synthetic", "bert_dir", "package", "kept")

# Pages and their parameters.


def page(notebook: str) -> str:
    """The .py of a notebook; FileNotFoundError where there is none."""
    path = files.folder("notebooks") / f"{notebook}.py"
    if not path.is_file():
        now = f"{words}; " if (words := renamed(notebook)) else ""
        raise FileNotFoundError(
            f"{now}there is no {path}, whose parameters cell says what this run's parameters are;"
            " set NOTEBOOKS_DIR to the folder of the .py files"
        )
    return path.read_text(encoding="utf-8")


def literals(text: str) -> dict:
    """The parameters of a percent notebook: the literals of its one cell tagged "parameters".

    Raises ValueError when there is no such cell, more than one, or anything but literals in it.
    """
    values = {}
    for node in ast.parse(_parted(text)[0]).body:
        try:
            value = ast.literal_eval(node.value)
            for target in getattr(node, "targets", None) or [node.target]:
                single = isinstance(target, ast.Name)
                pairs = [(target, value)] if single else zip(target.elts, value, strict=True)
                values |= {name.id: part for name, part in pairs}
        except (AttributeError, ValueError, TypeError):
            words = f"{ast.unparse(node)!r} in the parameters cell is not name = literal"
            raise ValueError(words) from None
    return values


def _parted(text: str) -> tuple[str, str]:
    """The parameters cell of a percent notebook, and the rest."""
    cells = re.split(r"^# %%", text, flags=re.MULTILINE)
    tagged = [cell for cell in cells if re.match(r""".*["']parameters["']""", cell)]
    if len(tagged) != 1:
        raise ValueError(f"needs exactly one cell tagged parameters, has {len(tagged)}")
    return tagged[0].partition("\n")[2], "# %%".join(c for c in cells if c is not tagged[0])


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
    """For every name that a notebook once had, the notebooks that hold its subject now."""
    return files.read_table(files.folder("notebooks") / "renamed.toml")


def renamed(beginning: str) -> str:
    """The new names of the notebooks whose old ones begin so, in words."""
    names = [(old, now) for old, now in names_now().items() if old.startswith(beginning)]
    return "; ".join(f"{old} is now {' and '.join(now)}" for old, now in names)


def differing(values: Mapping, usual: Mapping) -> dict:
    """Those of the `values` that are not the `usual` ones, as JSON has them."""
    values, usual = (json.loads(files.dumps(dict(each))) for each in (values, usual))
    return {name: x for name, x in values.items() if name not in usual or x != usual[name]}


def edited(notebook: str, text: str, values: Mapping) -> dict:
    """What nobody committed of a run with these parameter `values` of the page `text`.

    Values that the committed page does not have at the scale `values["scale"]` (all, where it is
    not offered), and "code" where the page's code, comments apart, is another. A page that git does
    not have counts as committed.
    """
    if "scale" not in values:
        raise ValueError(f"{notebook}: its parameters cell has no scale")
    path, committed = files.folder("notebooks") / f"{notebook}.py", None
    if path.is_relative_to(files.ROOT):
        committed = provenance.git("show", f"HEAD:./{path.relative_to(files.ROOT).as_posix()}")
    committed = committed or text
    scale = of_scale(notebook, values["scale"])
    changes = differing(values, {} if scale is None else literals(committed) | scale)
    code, known = (ast.dump(ast.parse(_parted(source)[1])) for source in (text, committed))
    return changes | ({} if code == known else {"code": files.sha256(code.encode())[:8]})


def custom_folder(notebook: str, changes: Mapping) -> Path:
    """The folder of a run with the `changes`; other values have another folder."""
    return files.folder("runs") / "custom" / f"{notebook}-{provenance.digest(changes)[:8]}"


# Numbers, and what a record is refused for.


@dataclass(frozen=True)
class Number:
    """A quoted number; a rerun reproduces it when |new - value| ≤ tolerance, in its units.

    `value` None stands for a quantity without a value, such as the loss of a diverged run.
    """

    value: float | None
    tolerance: float


def finite(value: float, tolerance: float) -> Number:
    """The `Number` of a measured value, without a value where that is NaN or infinite."""
    return Number(float(value) if math.isfinite(value) else None, tolerance)


def _number(table: Mapping, name: str, value: float | Number) -> Number:
    """`value` with the first tolerance of `table` that fits its name."""
    if isinstance(value, Number):
        return value
    for pattern, tolerance in table.items():
        if fnmatchcase(name, pattern):
            if isinstance(tolerance, str):
                size = abs(value) if math.isfinite(value) else 1.0
                tolerance = float(tolerance.removesuffix(" %")) / 100 * size
            whole = isinstance(value, Integral)
            return Number(value, tolerance) if whole else finite(value, tolerance)
    raise ValueError(f"notebooks/records.toml has no tolerance for {name}")


def _check(slug: str, numbers: Mapping[str, Number], data: Iterable[Mapping]) -> None:
    if not re.fullmatch(r"[a-z0-9_]+", slug):
        raise ValueError(f"slug {slug!r}: use lower-case letters, digits and underscores only")
    for name, number in numbers.items():
        finite = isinstance(number, Number) and math.isfinite(number.value or 0)
        if not (finite and 0 <= number.tolerance < math.inf):
            advice = "give record.Number(value, tolerance), both finite, None for no value"
            raise ValueError(f"number {name!r} is {number!r}; {advice}")
    for row in data:
        if "name" not in row or row.get("source") not in SOURCES:
            advice = f"needs a name and a source out of {', '.join(SOURCES)}"
            raise ValueError(f"data {dict(row)}: {advice}")


# A run, from its start to its saved figures.


def start(notebook: str, paper: str, variables: Mapping, counted: str | None = "seeds") -> "Run":
    """The run of `notebook` that begins now, right after its parameters cell.

    `variables` is the notebook's `globals()`: the run takes from it the names that the parameters
    cell of the .py assigns, among them `scale` and the one that `counted` names, the number k of
    its seeds 0 ... k - 1, if any. Raises ValueError for a name that is not there and for a number
    of seeds that is not one, FileNotFoundError where there is no such notebook.
    """
    text = page(notebook)
    names = literals(text)

    def state() -> dict:
        if missing := [name for name in names if name not in variables]:
            raise ValueError(f"run the parameters cell first: there is no {', '.join(missing)}")
        values = {name: variables[name] for name in names}
        count = values[counted] if counted else 1
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"{counted} = {count!r}; it is a number of runs, at least 1")
        changes = edited(notebook, text, values)
        seeds = range(count) if counted else ()
        return dict(scale=values["scale"], parameters=values, seeds=seeds, changes=changes)

    plots.set_style()
    return Run(notebook, paper, **state(), state=state)


@dataclass(frozen=True)
class Run:
    """One run of a notebook, as `start` gives it: its clock starts with it.

    `notebook` is the stem of the .py, `paper` "A", "B" or "C"; `changes` are parameters and code
    that nobody committed. `state` gives scale, parameters, seeds and changes anew at each save,
    `begun` has what held at the start. An unknown scale raises ValueError.
    """

    notebook: str
    paper: str
    scale: str
    parameters: Mapping
    seeds: Sequence[int] = ()
    changes: Mapping = field(default_factory=dict)
    state: Callable[[], Mapping] | None = field(default=None, repr=False, compare=False)
    begun: Mapping = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self):
        if self.scale not in SCALES:
            raise ValueError(f"scale {self.scale!r}: choose one of {', '.join(SCALES)}")
        if not self.begun:
            parts = provenance.fingerprint(self.notebook, self.parameters)
            begun = dict(parts=parts, commit=provenance.commit(), clock=time.monotonic())
            object.__setattr__(self, "begun", begun)

    def keep(
        self, figure, slug: str, caption: str, claims=(), numbers=None, data=None, **more
    ) -> Path:
        """`save` with what notebooks/records.toml says of the figure `slug` of this page.

        That is its number in the paper, its data (a row is synthetic with all seeds, and `rows` a
        parameter, unless it says otherwise; `data` takes their place), and `within`: the tolerance
        of each name of `numbers`, or its share of the value as "2 %"; of names with * and ? the
        first that fits. ValueError where the file lacks the figure or a tolerance.
        """
        facts = files.read_table(files.folder("notebooks") / "records.toml")
        facts = facts.get(self.notebook, {}).get(slug)
        if facts is None:
            raise ValueError(f"notebooks/records.toml has no [{self.notebook}.{slug}]")
        usual = {"source": "synthetic", "revision": f"seeds 0-{len(self.seeds) - 1}"}
        rows = [usual | row for row in facts["data"]] if data is None else data
        for row in rows:
            row["rows"] = self.parameters.get(row.get("rows"), row.get("rows"))
            row["revision"] = row.get("revision", "").format(**self.parameters)
        rows = [{key: each for key, each in row.items() if each not in ("", None)} for row in rows]
        within = facts.get("within", {})
        numbers = {name: _number(within, name, value) for name, value in (numbers or {}).items()}
        return self.save(figure, slug, facts["figure"], caption, claims, numbers, rows, **more)

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

        What this run reproduces stays as it is; how the run went is then in runs/latest/<scale>/.
        `number` is the figure's number in the paper ("Figure 2"); `data` rows need name and source;
        `statements` are those of the paper that the claims of a ledger name (`ledger.statements`);
        `setting` has what this figure was made with where the notebook's parameters say otherwise,
        "seeds" as their list or number among it. Raises ValueError for a bad slug, a number that is
        not finite, a data row without name or source, or a parameter that is gone.
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
        record |= {"setting": setting} if setting else {}
        record |= {"statements": dict(statements)} if statements else {}
        record = json.loads(files.dumps(record))  # in JSON a numpy number is a number
        parts = {**self.begun["parts"], "parameters": record["parameters"], "data": record["data"]}
        stamp = {"commit": self.begun["commit"], "fingerprint": provenance.digest(parts)}
        png, pdf = _draw(figure, {"slug": slug, **stamp})
        record["provenance"] = {
            **stamp,
            "versions": provenance.versions(),
            "device": device,
            "dtype": dtype,
            "threads": int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1),
            "seconds": round(time.monotonic() - self.begun["clock"], 1),
            "peak_memory_mb": provenance.peak_memory_mb(),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        text, path = files.dumps(record).encode(), Path(run.scale, f"{slug}.json")
        if run.changes:
            folder = custom_folder(self.notebook, run.changes) / "figures"
            names = ", ".join(f"{name} = {value}" for name, value in run.changes.items())
            print(f"Not the {run.scale} scale's own ({names}); saved in {folder / run.scale}")
        else:
            folder = files.folder("figures")
            files.write(files.folder("runs") / "latest" / path, text)
        path = folder / path
        if not reproduces(record, png, path):
            content = {".png": png, ".pdf": pdf, ".json": text}
            files.write_all({path.with_suffix(end): data for end, data in content.items()})
        return _Quiet(path)

    def _now(self) -> "Run":
        """This run with the parameters of now; those that are not the start's are changes.

        Even where they are the scale's own: with which of the two was the figure computed?
        """
        if self.state is None:
            return self
        run = replace(self, **self.state())
        if moved := differing(run.parameters, self.begun["parts"]["parameters"]):
            print(f"Changed since record.start: {', '.join(moved)}; run the notebook from there on")
        return replace(run, changes={**moved, **run.changes})


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

PARTS = ("notebook", "parameters", "data", "claims", "numbers", "provenance")


def read(path: Path, name: str = "") -> dict:
    """The record in a file; ValueError, with its `name` or path, where a part is missing."""
    record = files.read_object(path, name)
    if missing := [part for part in PARTS if part not in record]:
        raise ValueError(f"{name or path} is damaged: it lacks {', '.join(missing)}")
    return record


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

    `new` is the record that the run gave, `picture` its PNG. Numbers must agree within tolerance,
    claims ask and find the same, parameters, data and words be those of before, the pictures show
    the same (not of a smoke run on embedded data: single precision trains another network on each
    processor), and no file be missing or damaged.
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
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False  # a damaged record or picture


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
