"""Save a figure with its numbers and provenance: <figures>/<scale>/<slug>.png, .svg, .json.

What is there stays as long as a run reproduces it. A run whose page or parameters nobody
committed saves below runs/custom/."""

import ast
import io
import json
import math
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from numbers import Integral
from pathlib import Path

import matplotlib as mpl
import numpy as np
from PIL import Image
from scipy import ndimage

from lib import files, provenance
from lib.companion import plots
from lib.companion.claims import Claim

SCALES = ("demo", "desk")
ENDS = (".png", ".svg", ".json")  # of a figure's files; the record is written last
SOURCES = {  # of data and weights, and how a reader would say it
    "data_dir": "real",
    "data": "real",
    "hub": "real, from the hub",
    "demo": "small embedded stand-in",
    "kept": "redrawn from kept curves",
    **{name: name for name in ("synthetic", "bert_dir", "package")},
}

# Pages and their parameters.


def origin(record: Mapping) -> str:
    """The letter of a figure's paper; "Ours" for pages 4x, beyond the papers."""
    return "Ours" if record["notebook"].startswith("4") else record["paper"]


def notebooks(names: Iterable[str] = ()) -> list[str]:
    """The notebooks that `names` (stems, unique beginnings, old names) stand for, all for none;
    ValueError for a name that is not one notebook's."""
    place = files.folder("notebooks")
    known = sorted(path.stem for path in place.glob("[0-9]*.py"))
    once = files.read_table(place / "renamed.toml")  # old name: the notebooks of its subject now
    if not known:
        raise ValueError(f"there is no notebook in {place}; name their folder by NOTEBOOKS_DIR")
    chosen = []
    for name in names:
        fits = [name] if name in known else [stem for stem in known if stem.startswith(name)]
        if len(fits) != 1 and name not in once:
            old = [stem for stem in once if stem.startswith(name)]
            words = ", ".join(fits or old or known)
            raise ValueError(f"{name!r} is not the name of one notebook; there are {words}")
        chosen += fits or once[name]
    return list(dict.fromkeys(chosen)) or known


def planned(notebook: str, scale: str, settings: Mapping) -> tuple[str, dict, dict, dict] | None:
    """A run to come: the page's text, what `scale` and `settings` change, all values,
    `_edited`; None without that scale. ValueError for a setting of another name or
    kind."""
    if (of_scale := _of_scale(notebook, scale)) is None:
        return None
    page, overrides = _page(notebook), {**of_scale, **settings}
    usual = _literals(page)
    _check_kinds(overrides, usual)
    values = usual | overrides
    return page, overrides, values, _edited(notebook, page, values)


def _check_kinds(overrides: Mapping, usual: Mapping) -> None:
    # papermill itself only logs a parameter that it does not know, and draws the default figure
    if unknown := ", ".join(sorted(overrides.keys() - usual.keys())):
        raise ValueError(f"there is no parameter {unknown}; there are {', '.join(usual)}")
    for name, value in overrides.items():
        kind, given = (list if isinstance(x, tuple) else type(x) for x in (usual[name], value))
        fits = given is kind or (kind is float and given is int)
        fits = fits and (kind not in (int, float) or math.isfinite(value))
        if kind in (bool, int, float, list) and not fits:
            raise ValueError(f"{name} is {usual[name]!r} by default; {value!r} is of another kind")


def _page(notebook: str) -> str:
    path = files.folder("notebooks") / f"{notebook}.py"
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}; name the folder of pages by NOTEBOOKS_DIR")
    return path.read_text(encoding="utf-8")


def _literals(page: str) -> dict:
    """What the one cell tagged "parameters" assigns; ValueError unless it needs literals alone."""
    cell, _ = _parted(page)
    values: dict = {"__builtins__": {}}
    try:
        exec(cell, values)
    except Exception as error:
        raise ValueError(f"its parameters cell is not name = literal: {error}") from None
    del values["__builtins__"]
    if "scale" not in values:
        raise ValueError("its parameters cell has no scale")
    return values


def _parted(page: str) -> tuple[str, str]:
    """The parameters cell of a percent notebook, and the rest."""
    cells = re.split(r"^# %%", page, flags=re.MULTILINE)
    tagged = [cell for cell in cells if re.match(r""".*["']parameters["']""", cell)]
    if len(tagged) != 1:
        raise ValueError(f"needs exactly one cell tagged parameters, has {len(tagged)}")
    return tagged[0].partition("\n")[2], "# %%".join(c for c in cells if c is not tagged[0])


def _of_scale(notebook: str, scale: str) -> dict | None:
    """What `scale` changes in the parameters of `notebook`; None if it has no such scale."""
    if scale == "demo":
        return {}
    scales = files.read_table(files.folder("notebooks") / "scales.toml").get(notebook, {})
    return {"scale": scale, **scales[scale]} if scale in scales else None


def _edited(notebook: str, page: str, values: Mapping) -> dict:
    """What nobody committed of a run of the text `page`: parameter `values` that the committed
    page has not at their scale, and "code" where its code is another."""
    path, committed = files.folder("notebooks") / f"{notebook}.py", None
    if path.is_relative_to(files.ROOT):
        committed = provenance.git("show", f"HEAD:./{path.relative_to(files.ROOT).as_posix()}")
    committed = committed or page
    of_scale = _of_scale(notebook, values["scale"])
    changes = _differing(values, {} if of_scale is None else _literals(committed) | of_scale)
    code, known = (ast.dump(ast.parse(_parted(text)[1])) for text in (page, committed))
    return changes | ({} if code == known else {"code": files.sha256(code.encode())[:8]})


def _differing(values: Mapping, usual: Mapping) -> dict:
    """Those of the `values` that are not the `usual` ones, as JSON has them."""
    values, usual = (json.loads(files.dumps(dict(each))) for each in (values, usual))
    return {name: x for name, x in values.items() if name not in usual or x != usual[name]}


def custom_folder(notebook: str, changes: Mapping) -> Path:
    """The folder of a run with the `changes`; other values have another folder."""
    return files.folder("runs") / "custom" / f"{notebook}-{provenance.digest(changes)[:8]}"


# Numbers, and what a record is refused for.


@dataclass(frozen=True)
class Number:
    """A quoted number, None for a quantity without a value, such as the loss of a diverged
    run; a rerun reproduces it when |new - value| ≤ tolerance, in its units."""

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
    """ValueError, with its name, for a part that no record may have."""
    if not re.fullmatch(r"[a-z0-9_]+", slug):
        raise ValueError(f"slug {slug!r}: use lower-case letters, digits and underscores only")
    for name, number in numbers.items():
        finite = isinstance(number, Number) and math.isfinite(number.value or 0)
        if not (finite and 0 <= number.tolerance < math.inf):
            advice = "give record.Number(value, tolerance), both finite, None for no value"
            raise ValueError(f"number {name!r} is {number!r}; {advice}")
    for row in data:
        if "name" not in row or row.get("source") not in SOURCES:
            raise ValueError(f"data {dict(row)}: a name and a source of {', '.join(SOURCES)}")


# A run, from its start to its saved figures.


def start(notebook: str, paper: str, variables: Mapping, counted: str | None = "seeds") -> "Run":
    """The run of `notebook` that begins now, after its parameters cell; sets the style."""
    plots.set_style()
    return Run(notebook, paper, variables, counted)


class Run:
    """One run of a notebook; its clock starts with it.

    `notebook` is the stem of the .py, `paper` "A", "B" or "C", `variables` the notebook's
    `globals()`, of which a save takes what the parameters cell assigns, among them `scale`
    and `counted`, the number k of its seeds 0 ... k - 1, if any. ValueError for a name that
    is not there, a number of seeds that is not one and an unknown scale, FileNotFoundError
    where there is no such notebook."""

    def __init__(
        self, notebook: str, paper: str, variables: Mapping, counted: str | None = "seeds"
    ):
        self.notebook, self.paper, self._text = notebook, paper, _page(notebook)
        self._variables, self._counted, self._clock = variables, counted, time.monotonic()
        parameters, _ = self._now()
        self.scale = parameters["scale"]
        self._begun = provenance.fingerprint(notebook, parameters)
        self._commit = provenance.commit()

    def _now(self) -> tuple[dict, Sequence[int]]:
        """The parameters and the seeds, as the notebook has them now."""
        names, variables = _literals(self._text), self._variables
        if missing := [name for name in names if name not in variables]:
            raise ValueError(f"run the parameters cell first: there is no {', '.join(missing)}")
        if variables["scale"] not in SCALES:
            raise ValueError(f"scale {variables['scale']!r}: choose one of {', '.join(SCALES)}")
        count = variables[self._counted] if self._counted else 0
        if self._counted and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
            raise ValueError(f"{self._counted} = {count!r}; it is a number of runs, at least 1")
        return {name: variables[name] for name in names}, range(count)

    def keep(
        self, figure, slug: str, caption: str, claims=(), numbers=None, data=None, **more
    ) -> Path:
        """`save` with what notebooks/records.toml says of the figure `slug` of this page.

        That is its number in the paper, its data (by default synthetic with all seeds, and
        `rows` a parameter; `data` takes their place), and `within`: the tolerance of each
        of `numbers`, or its share of the value as "2 %"; of names with * and ? the first
        that fits. ValueError where the file lacks the figure or a tolerance."""
        facts = files.read_table(files.folder("notebooks") / "records.toml")
        facts = facts.get(self.notebook, {}).get(slug)
        if facts is None:
            raise ValueError(f"notebooks/records.toml has no [{self.notebook}.{slug}]")
        parameters, seeds = self._now()
        usual = {"source": "synthetic", "revision": f"seeds 0-{len(seeds) - 1}"}
        rows = [usual | row for row in facts["data"]] if data is None else data
        for row in rows:
            row["rows"] = parameters.get(row.get("rows"), row.get("rows"))
            row["revision"] = row.get("revision", "").format(**parameters)
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
        dtype: str = "float64",
    ) -> Path:
        """Write picture and record, all or nothing; return the path of the record.

        What this run reproduces stays as it is; how it went is in runs/latest/<scale>/.
        `number` is the figure's in the paper ("Figure 2"); `statements` are those that the
        claims of a ledger name; `setting` what this figure was made with where the
        parameters say otherwise, "seeds" as their list or number. ValueError for a bad
        slug, a number that is not finite, a data row without name or source."""
        numbers, setting = dict(numbers or {}), dict(setting or {})
        _check(slug, numbers, data)
        parameters, counted = self._now()
        seeds = setting.pop("seeds", counted)
        record = {
            "schema": 1,
            "slug": slug,
            "paper": self.paper,
            "figure": number,
            "caption": caption,
            "words": _words(figure),
            "notebook": self.notebook,
            "scale": parameters["scale"],
            "parameters": parameters,
            "seeds": list(range(seeds) if isinstance(seeds, int) else seeds),
            "data": [dict(row) for row in data],
            "claims": [claim.as_dict() for claim in claims],
            "numbers": {name: asdict(value) for name, value in numbers.items()},
            "provenance": {},
        }
        record |= {"setting": setting} if setting else {}
        record |= {"statements": dict(statements)} if statements else {}
        record = json.loads(files.dumps(record))  # in JSON a numpy number is a number
        parts = self._begun | {"parameters": record["parameters"], "data": record["data"]}
        stamp = {"commit": self._commit, "fingerprint": provenance.digest(parts)}
        png, svg = _draw(figure, {"slug": slug, **stamp})
        record["provenance"] = {
            **stamp,
            "versions": provenance.versions(),
            "device": "cpu",
            "dtype": dtype,
            "threads": int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1),
            "seconds": round(time.monotonic() - self._clock, 1),
            "peak_memory_mb": provenance.peak_memory_mb(),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        text = files.dumps(record).encode()
        path = Path(record["scale"], f"{slug}.json")
        # What is not the start's is a change, even where it is the scale's own: with which of
        # the two was the figure computed?
        if moved := _differing(parameters, self._begun["parameters"]):
            print(f"Changed since record.start: {', '.join(moved)}; run the notebook from there on")
        if changes := moved | _edited(self.notebook, self._text, parameters):
            path = custom_folder(self.notebook, changes) / "figures" / path
            names = ", ".join(f"{name} = {value}" for name, value in changes.items())
            print(f"Not the {record['scale']} scale's own ({names}); saved in {path.parent}")
        else:
            files.write(files.folder("runs") / "latest" / path, text)
            path = files.folder("figures") / path
        if not reproduces(record, png, path):
            files.write_all(dict(zip(map(path.with_suffix, ENDS), (png, svg, text))))
        return _Quiet(path)


def _draw(figure, stamp: Mapping) -> tuple[bytes, bytes]:
    """The figure as PNG and SVG, without a date: the same figure gives the same bytes."""
    figure.draw_without_rendering()  # a constrained layout settles on its first drawing
    png, svg = io.BytesIO(), io.BytesIO()
    about = {"Title": stamp["slug"], "Description": json.dumps(stamp), "Date": None}
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": stamp["slug"]}):  # text as text
        for file, kind in ((png, "png"), (svg, "svg")):
            figure.savefig(file, format=kind, metadata=about)
    return png.getvalue(), svg.getvalue()


class _Quiet(type(Path())):
    """A path that prints nothing as the last value of a notebook's cell."""

    def _ipython_display_(self) -> None:
        pass


# Records that are there, and when a run reproduces them.

PARTS = ("notebook", "parameters", "data", "claims", "numbers", "provenance")


def read(path: Path) -> dict:
    """The record in a file; ValueError, with its path, where a part is missing."""
    record = files.read_object(path)
    if missing := [part for part in PARTS if part not in record]:
        raise ValueError(f"{path} is damaged: it lacks {', '.join(missing)}")
    return record


def compare(new: Mapping, old: Mapping) -> list[str]:
    """The numbers of `old` that `new` misses by more than their tolerance, in words."""
    differences = []
    for name, row in old["numbers"].items():
        value, expected = new["numbers"].get(name, {}).get("value"), row["value"]
        same = value is expected and name in new["numbers"]
        if value is not None and expected is not None:
            same = abs(value - expected) <= row["tolerance"]
        if not same:
            differences.append(f"{name} is {value}, committed {expected} ± {row['tolerance']}")
    return differences


_FIXED = "schema paper figure caption words notebook scale parameters setting seeds data statements"


def reproduces(new: Mapping, picture: bytes, place: Path) -> bool:
    """Whether a run, its record `new` and PNG `picture`, reproduces the record at `place`: numbers
    within tolerance, `_FIXED` and claims as before, no file missing and the same picture, but
    for a smoke run, whose network is another on each processor."""
    if not all(place.with_suffix(end).is_file() for end in ENDS):
        return False
    old = read(place)
    smoke = any(row["source"] == "demo" for row in new["data"])
    within = [{k: row["tolerance"] for k, row in each["numbers"].items()} for each in (new, old)]
    # Nearly, since one that is a share of its number moves a little with it.
    like = lambda name: math.isclose(*(each[name] for each in within), rel_tol=0.1)
    return (
        all(new.get(key) == old.get(key) for key in _FIXED.split())
        and within[0].keys() == within[1].keys()
        and all(map(like, within[0]))
        and list(map(_asked, new["claims"])) == list(map(_asked, old["claims"]))
        and not compare(new, old)
        and (smoke or _same_picture(picture, place.with_suffix(".png").read_bytes()))
    )


def _words(figure) -> list[str]:
    """Titles, labels and legends of a figure; a decimal in them is a measured one and may move."""
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes)]
    words = [axes.get_title(loc) for axes in figure.axes for loc in ("left", "center", "right")]
    words += [text for axes in figure.axes for text in (axes.get_xlabel(), axes.get_ylabel())]
    words += [text.get_text() for legend in legends if legend for text in legend.get_texts()]
    return [re.sub(r"\d+\.\d\d+", "#", text) for text in words if text]


def _asked(claim: Mapping) -> tuple:
    words = tuple(claim[key] for key in ("id", "statement", "source", "bound", "holds"))
    remark = re.sub(r"[\d.]+", "#", claim.get("remark", ""))  # its numbers may move a little
    return *words, claim.get("kind"), claim.get("catches"), remark


# Whether two drawings of a figure show the same, from the pictures themselves.

BLUR = 8  # pixels: what moves by less hardly changes a picture that is blurred so far
SEEN = 0.055  # of the difference between white and a full colour


def _same_picture(picture: bytes, other: bytes) -> bool:
    """Whether two PNGs show the same figure in the same style, up to what rounding on
    another processor moves: a line, by a pixel or two. So both are blurred, and a mark
    thinner than a black line of one pixel is held by the record's numbers alone."""
    new, old = (_blurred(png) for png in (picture, other))
    return new.shape == old.shape and bool((abs(new - old) < SEEN).all())


def _blurred(png: bytes) -> np.ndarray:
    """The colours of a picture, each smoothed, (height, width, 3), in [0, 1]."""
    with Image.open(io.BytesIO(png)) as picture:
        colours = np.asarray(picture.convert("RGB"), np.float32) / 255
    return ndimage.gaussian_filter(colours, (BLUR, BLUR, 0))
