"""Save a figure with its numbers and provenance, and read records back.

A figure is a file <slug>.png with its record <slug>.json beside it. A page that is run
by the batch writes into the folder that the batch names. A page that is run by hand
draws its figures and checks them in the same way, but writes nothing.
"""

import io
import json
import math
import os
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from numbers import Integral
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from companion import headlines, pages, plots, sources
from companion.claims import Claim
from companion.page_table import read_pages
from companion.pages import SCALES as SCALES
from lib import files, provenance

ENDS = (".png", ".json")  # endings of a figure's files; the record is written last
# the environment variable in which a batch names the folder of a run's figures
TOLD = "RUN_FIGURES_DIR"
SOURCES = {  # sources of data and weights, and how they are called in texts
    "data_dir": "real",
    "data": "real",
    "hub": "real, from the hub",
    "demo": "small embedded stand-in",
    "kept": "redrawn from kept curves",
    "synthetic": "synthetic",
    "bert_dir": "bert_dir",
    "package": "package",
}


def origin(record: Mapping) -> str:
    """Return which paper a figure belongs to.

    Parameters
    ----------
    record : mapping
        The record of the figure.

    Returns
    -------
    str
        The letter of the figure's paper; "Ours" for pages 4x, which go beyond the
        papers.

    Examples
    --------
    >>> from companion import record
    >>> record.origin({"notebook": "10_fixed_decoder", "paper": "A"})
    'A'
    >>> record.origin({"notebook": "44_atlas", "paper": "A"})
    'Ours'
    """
    if record["notebook"].startswith("4"):
        return "Ours"
    return record["paper"]


# Where the results of a page are.

MARKER = "made-of.json"  # a file beside a page's results that lists their inputs


def results_folder(notebook: str, scale: str) -> Path:
    """Return the folder of the last successful run of a page.

    Parameters
    ----------
    notebook : str
        The stem of the page's .py.
    scale : str
        One of `SCALES`.

    Returns
    -------
    Path
        The folder of the page's figures, records and executed notebook. It need not
        exist.
    """
    return files.folder("runs") / "figures" / scale / notebook


# Numbers, and checks of the content of a record.


@dataclass(frozen=True)
class Number:
    """A quoted number; a rerun reproduces it if |new - value| ≤ tolerance.

    Parameters
    ----------
    value : float or None
        The number. It is None for a quantity without a value, such as the loss of a
        diverged run.
    tolerance : float
        The tolerance, in the units of the value. It is finite and at least 0.

    Examples
    --------
    >>> from companion import record
    >>> record.Number(0.25, tolerance=0.01)
    Number(value=0.25, tolerance=0.01)
    """

    value: float | None
    tolerance: float


def finite(value: float, tolerance: float) -> Number:
    """Make the `Number` of a measured value that may be NaN or infinite.

    Parameters
    ----------
    value : float
        The measured value.
    tolerance : float
        The tolerance of the number.

    Returns
    -------
    Number
        The number. It has no value if the measured value is NaN or infinite.

    Examples
    --------
    >>> from companion import record
    >>> record.finite(float("inf"), 0.1)
    Number(value=None, tolerance=0.1)
    """
    return Number(float(value) if math.isfinite(value) else None, tolerance)


def _number(tolerances: Mapping, name: str, value: float | Number) -> Number:
    """Return a value with the first tolerance whose pattern fits the name.

    A tolerance such as "2 %" is a share of the value, or of 1 if the value is not
    finite. A `Number` keeps its own tolerance. The function raises ValueError if no
    pattern fits.
    """
    if isinstance(value, Number):
        return value
    for pattern, tolerance in tolerances.items():
        if fnmatchcase(name, pattern):
            if isinstance(tolerance, str):
                size = abs(value) if math.isfinite(value) else 1.0
                tolerance = float(tolerance.removesuffix(" %")) / 100 * size
            if isinstance(value, Integral):
                return Number(value, tolerance)
            return finite(value, tolerance)
    raise ValueError(
        f"no tolerance for {name}: add one to `within` of its record in "
        "notebooks/pages.toml"
    )


def _check(slug: str, numbers: Mapping[str, Number], data: Iterable[Mapping]) -> None:
    """Raise ValueError if a part of a record is not valid.

    The message names this part.
    """
    if not re.fullmatch(r"[a-z0-9_]+", slug):
        raise ValueError(
            f"slug {slug!r}: use lower-case letters, digits and underscores only"
        )
    for name, number in numbers.items():
        is_finite = isinstance(number, Number) and math.isfinite(number.value or 0)
        if not (is_finite and 0 <= number.tolerance < math.inf):
            advice = (
                "give record.Number(value, tolerance), both finite, None for no value"
            )
            raise ValueError(f"number {name!r} is {number!r}; {advice}")
    for row in data:
        if "name" not in row or row.get("source") not in SOURCES:
            raise ValueError(
                f"data {dict(row)}: expected a name, and a source that is one of "
                f"{', '.join(SOURCES)}"
            )


# A run, from its start to its saved figures.


def start(
    notebook: str, paper: str, variables: Mapping, counted: str | None = "seeds"
) -> "Run":
    """Begin the run of a page and set the style of its figures.

    Parameters
    ----------
    notebook : str
        The stem of the page's .py.
    paper : str
        "A", "B" or "C".
    variables : mapping
        The notebook's ``globals()``. When a figure is saved, the variables that the
        parameters cell assigns are read from them; `scale` must be one of these.
    counted : str, optional
        The name of the parameter that gives the number k of seeds, which are 0, ..., k
        - 1. It is None for a page without seeds.

    Returns
    -------
    Run
        The run. Its clock has started.

    Raises
    ------
    ValueError
        If a parameter is missing, the number of seeds is not a whole number of at least
        1, or the scale is unknown.
    KeyError
        If `variables` lacks the parameter that `counted` names.
    FileNotFoundError
        If there is no such notebook.

    Examples
    --------
    A page starts its run after its parameters cell, and saves each figure with it::

        run = record.start("10_fixed_decoder", "A", globals())
        run.keep(figure, slug, "Direction error of three rules", checked, numbers)
    """
    plots.set_style()
    return Run(notebook, paper, variables, counted)


class Run:
    """One run of a notebook; its clock starts when it is created.

    Parameters
    ----------
    notebook : str
        The stem of the page's .py.
    paper : str
        "A", "B" or "C".
    variables : mapping
        The notebook's ``globals()``. When a figure is saved, the variables that the
        parameters cell assigns are read from them; `scale` must be one of these.
    counted : str, optional
        The name of the parameter that gives the number k of seeds, which are 0, ..., k
        - 1. It is None for a page without seeds.

    Raises
    ------
    ValueError
        If a parameter is missing, the number of seeds is not a whole number of at least
        1, or the scale is unknown.
    KeyError
        If `variables` lacks the parameter that `counted` names.
    FileNotFoundError
        If there is no such notebook.
    """

    def __init__(
        self,
        notebook: str,
        paper: str,
        variables: Mapping,
        counted: str | None = "seeds",
    ) -> None:
        self.notebook = notebook
        self.paper = paper
        self._text = pages.text(notebook)
        self._variables = variables
        self._counted = counted
        self._clock = time.monotonic()
        parameters, _ = self._now()
        self.scale = parameters["scale"]
        # We keep the state at the start, because files may change while a long page
        # runs.
        self._begun = sources.fingerprint(notebook, parameters)
        self._commit = provenance.commit()

    def _now(self) -> tuple[dict, Sequence[int]]:
        """Return the current parameters and seeds of the notebook.

        The method raises ValueError in the cases that the class lists.
        """
        names = pages.parameters(self._text)
        if missing := [name for name in names if name not in self._variables]:
            raise ValueError(
                f"run the parameters cell first: there is no {', '.join(missing)}"
            )
        parameters = {name: self._variables[name] for name in names}
        if parameters["scale"] not in SCALES:
            raise ValueError(
                f"scale {parameters['scale']!r}: choose one of {', '.join(SCALES)}"
            )
        if not self._counted:
            return parameters, range(0)
        count = self._variables[self._counted]
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(
                f"{self._counted} = {count!r}: expected a number of runs, at least 1"
            )
        return parameters, range(count)

    def keep(
        self,
        figure: Figure,
        slug: str,
        caption: str,
        claims: Iterable[Claim] = (),
        numbers: Mapping[str, float | Number] | None = None,
        data: Sequence[Mapping] | None = None,
        **more: Any,
    ) -> None:
        """Save a figure of this page, with what notebooks/pages.toml says about it.

        The table gives the figure's number in the paper, its data and its tolerances.
        Unless a row of data says otherwise, the data are synthetic and drawn with all
        seeds. The entry `rows` of a row may be the name of a parameter. `within` gives
        the tolerance of each number, as a number or as a share of the value such as "2
        %". Its names may contain * and ?; the first name that fits counts.

        Parameters
        ----------
        figure : Figure
            The matplotlib figure.
        slug : str
            The figure's short name, of lower-case letters, digits and underscores.
        caption : str
            What the figure shows.
        claims : iterable of Claim, optional
            The claims that were checked on the figure's numbers.
        numbers : mapping of str to float or Number, optional
            The measured values by name.
        data : sequence of mapping, optional
            Rows that replace those of the table. They have no defaults.
        **more : Any
            Further arguments of `save`.

        Raises
        ------
        ValueError
            If the table lacks the figure or a tolerance, and in the cases in which
            `save` raises it.
        OSError
            In the cases in which `save` raises it.
        """
        table = read_pages()
        if self.notebook not in table or slug not in table[self.notebook].records:
            section = f"[{self.notebook}.records.{slug}]"
            raise ValueError(f"add {section} to notebooks/pages.toml, which lacks it")
        facts = table[self.notebook].records[slug]
        if data is None:
            if "data" not in facts:
                raise ValueError(
                    f"add the data of {slug} to notebooks/pages.toml, which lacks them"
                )
            usual = self._usual_row(more.get("setting") or {})
            data = [usual | row for row in facts["data"]]
        within = facts.get("within", {})
        self.save(
            figure,
            slug,
            number=facts["figure"],
            caption=caption,
            claims=claims,
            numbers={
                name: _number(within, name, x) for name, x in (numbers or {}).items()
            },
            data=[self._filled(row) for row in data],
            **more,
        )

    def _usual_row(self, setting: Mapping) -> dict:
        """Return the entries that a row of data has unless the table says otherwise."""
        seeds = self._seeds(setting)
        drawn = f"seeds {seeds[0]}-{seeds[-1]}" if seeds else ""
        return {"source": "synthetic", "revision": drawn}

    def _seeds(self, setting: Mapping) -> list[int]:
        """Return the seeds in a figure's setting or, if it has none, those of the page.

        A setting may list the seeds, or say how many there are.
        """
        seeds = setting.get("seeds", self._now()[1])
        if isinstance(seeds, int):
            return list(range(seeds))
        return list(seeds)

    def _filled(self, row: Mapping) -> dict:
        """Return a row of data with names of parameters replaced by their values.

        The entry `rows` may be the name of a parameter, and `revision` may have fields
        such as {name}. Empty entries are left out.
        """
        parameters, _ = self._now()
        filled = dict(row)
        filled["rows"] = parameters.get(row.get("rows"), row.get("rows"))
        filled["revision"] = row.get("revision", "").format(**parameters)
        return {key: value for key, value in filled.items() if value not in ("", None)}

    def save(
        self,
        figure: Figure,
        slug: str,
        number: str,
        caption: str,
        *,
        claims: Iterable[Claim] = (),
        numbers: Mapping[str, Number] | None = None,
        data: Sequence[Mapping] = (),
        statements: Mapping[str, Mapping] | None = None,
        setting: Mapping | None = None,
        dtype: str = "float64",
    ) -> None:
        """Write picture and record into the folder that the batch names.

        Without a batch (in Jupyter, or in a test of the page) nothing is written. With
        or without a batch, the arguments are checked and the figure gets its heading.

        Parameters
        ----------
        figure : Figure
            The matplotlib figure.
        slug : str
            The figure's short name, of lower-case letters, digits and underscores.
        number : str
            The figure's number in the paper, such as "Figure 2".
        caption : str
            What the figure shows.
        claims : iterable of Claim, optional
            The claims that were checked on the figure's numbers.
        numbers : mapping of str to Number, optional
            The numbers that texts quote from the figure, by name.
        data : sequence of mapping, optional
            The data sets and weights, as rows with a name and a source, which is one of
            `SOURCES`.
        statements : mapping of str to mapping, optional
            The statements to which the claims of a ledger refer.
        setting : mapping, optional
            Settings of this figure that differ from the page's parameters. The entry
            "seeds" is a list of seeds, or the number of seeds.
        dtype : str, optional
            The type in which the numbers were computed.

        Raises
        ------
        ValueError
            If the slug is not valid, a number or a parameter is not finite, a row of
            data has no name or no source, or the headline quotes a number that the
            record lacks.
        OSError
            If the folder cannot be written into. The message names the path.
        """
        numbers = dict(numbers or {})
        setting = dict(setting or {})
        _check(slug, numbers, data)

        # The content of the record.
        parameters, _ = self._now()
        seeds = self._seeds(setting)
        setting.pop("seeds", None)
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
            "seeds": seeds,
            "data": [dict(row) for row in data],
            "claims": [claim.as_dict() for claim in claims],
            "numbers": {name: asdict(value) for name, value in numbers.items()},
            "provenance": {},
        }
        if setting:
            record["setting"] = setting
        if statements:
            record["statements"] = dict(statements)
        # In JSON a numpy number becomes a plain number.
        record = json.loads(files.dumps(record))

        # The place of the files.
        told = os.environ.get(TOLD)
        plots.heading(figure, *headlines.above(slug, record))
        if not told:
            return

        # The picture, which names its run, and the rest of the record.
        parts = self._begun | {
            "parameters": record["parameters"],
            "data": record["data"],
        }
        stamp = {"commit": self._commit, "fingerprint": provenance.digest(parts)}
        picture = _drawn(figure, "png", {"slug": slug, **stamp})
        record["panels"] = plots.boxes(figure)
        record["lines"] = _kinds_of_line(figure, slug)
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
        files.write(Path(told, f"{slug}.png"), picture)
        files.write(Path(told, f"{slug}.json"), files.dumps(record).encode())


def _drawn(figure: Figure, kind: str, stamp: Mapping) -> bytes:
    """Return a figure as the bytes of a PNG or an SVG.

    The bytes contain no date, so that the same figure always gives the same bytes.
    """
    figure.draw_without_rendering()  # The first drawing computes a constrained layout.
    content = io.BytesIO()
    metadata = {"Title": stamp["slug"], "Description": json.dumps(stamp), "Date": None}
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": stamp["slug"]}):
        figure.savefig(content, format=kind, metadata=metadata)
    return content.getvalue()


def _words(figure: Figure) -> list[str]:
    """Return titles, labels and legends of a figure.

    Numbers with two or more decimals are measured and may change; they are replaced by
    "#".
    """
    words = []
    for axes in figure.axes:
        words += [axes.get_title(place) for place in ("left", "center", "right")]
    for axes in figure.axes:
        words += [axes.get_xlabel(), axes.get_ylabel()]
    for legend in [*figure.legends, *(axes.get_legend() for axes in figure.axes)]:
        if legend:
            words += [entry.get_text() for entry in legend.get_texts()]
    return [re.sub(r"\d+\.\d\d+", "#", text) for text in words if text]


def _kinds_of_line(figure: Figure, slug: str) -> list[str]:
    """Return which of "dashed" and "dotted" lines a figure has, sorted.

    A line is dotted if its dashes are shorter than its gaps. With this result, a test
    can check what the texts of the figure say about its lines.
    """
    # The SVG contains the dashes of everything that is drawn. Matplotlib's own objects
    # do not reveal these dashes.
    drawing = _drawn(figure, "svg", {"slug": slug}).decode()
    dashes = re.findall(r"stroke-dasharray: ([\d.]+),? ?([\d.]+)", drawing)
    return sorted(
        {"dotted" if float(on) < float(off) else "dashed" for on, off in dashes}
    )


# Reading records.

PARTS = {  # the entries of every record, and their types in JSON
    "notebook": str,
    "parameters": dict,
    "data": list,
    "claims": list,
    "numbers": dict,
    "provenance": dict,
}


def read(path: Path) -> dict:
    """Read a record and check that it is one.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    dict
        The record.

    Raises
    ------
    ValueError
        If the file cannot be read, or if a part of the record is missing or has the
        wrong type. The message names the path.

    Examples
    --------
    Read the claims that a figure was checked by::

        saved = record.read(Path("figures/demo/atlas_map.json"))
        claims.Table(map(claims.Claim.of, saved["claims"]))
    """
    record = files.read_object(path)
    if fault := _fault(record):
        raise ValueError(f"{path} is damaged: {fault}")
    return record


def _fault(record: Mapping) -> str:
    """Return in words why a record is not valid, or an empty text if it is valid."""
    if missing := [part for part in PARTS if part not in record]:
        return f"it lacks {', '.join(missing)}"
    for part, kind in PARTS.items():
        if not isinstance(record[part], kind):
            return f"its {part} are {record[part]!r}"
    for row in record["data"]:
        if (
            not isinstance(row, dict)
            or "name" not in row
            or row.get("source") not in SOURCES
        ):
            return f"a row of its data is {row!r}"
    for claim in record["claims"]:
        if not _is_claim(claim):
            return f"a claim is {claim!r}"
    for name, number in record["numbers"].items():
        if not _is_number(number):
            return f"its number {name} is {number!r}"
    return ""


def _is_claim(claim: object) -> bool:
    """Return whether an object is a claim as a record stores it."""
    if not isinstance(claim, dict):
        return False
    try:
        known = Claim.of(claim)
    except (TypeError, ValueError):
        # A field is missing, superfluous, or of another type.
        return False
    words = (
        known.id,
        known.statement,
        known.source,
        known.bound,
        known.remark,
        known.verdict,
    )
    ends = known.interval
    has_ends = isinstance(ends, tuple) and len(ends) == 2
    return (
        all(isinstance(word, str) for word in words)
        and isinstance(known.holds, bool)
        and isinstance(known.measured, int | float)
        and (ends is None or (has_ends and all(map(_is_real, ends))))
        and (known.p is None or _is_finite(known.p))
        and (known.seeds is None or isinstance(known.seeds, int))
    )


def _is_real(value: object) -> bool:
    """Return whether an object is a number; it may be infinite or NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_number(number: object) -> bool:
    """Return whether an object is a `Number` as a record stores it.

    Such an object has exactly two entries: a value, which is finite or null, and a
    tolerance, which is finite and at least 0.
    """
    if not isinstance(number, dict) or number.keys() != {"value", "tolerance"}:
        return False
    value = number["value"]
    tolerance = number["tolerance"]
    return (
        (value is None or _is_finite(value))
        and _is_finite(tolerance)
        and tolerance >= 0
    )


def _is_finite(value: object) -> bool:
    """Return whether an object is a finite number."""
    # This is False for NaN, too. `math.isfinite` would fail for an integer larger than
    # all floats.
    return _is_real(value) and abs(value) <= sys.float_info.max


# Comparing two records.


def compare(new: Mapping, old: Mapping) -> list[str]:
    """Compare the numbers of a run with the numbers of the reference.

    Parameters
    ----------
    new, old : mapping
        The records of the run and of the reference. The tolerances are those of the
        reference.

    Returns
    -------
    list of str
        The differences beyond tolerance, and the numbers that are in only one of the
        records, in words. The list is empty if all numbers are reproduced.

    Examples
    --------
    >>> from companion import record
    >>> old = {"numbers": {"gap": {"value": 0.50, "tolerance": 0.02}}}
    >>> new = {"numbers": {"gap": {"value": 0.53, "tolerance": 0.02}}}
    >>> record.compare(new, old)
    ['gap is 0.53, reference 0.5 ± 0.02']
    """
    differences = []
    for name, row in old["numbers"].items():
        expected = row["value"]
        tolerance = row["tolerance"]
        if name not in new["numbers"]:
            differences.append(f"{name} is missing, reference {expected} ± {tolerance}")
            continue
        value = new["numbers"][name]["value"]
        if value is None or expected is None:
            same = value is expected
        else:
            same = abs(value - expected) <= tolerance
        if not same:
            differences.append(f"{name} is {value}, reference {expected} ± {tolerance}")
    differences += [
        f"{name} is not in the reference"
        for name in new["numbers"]
        if name not in old["numbers"]
    ]
    return differences


def compare_claims(new: Mapping, old: Mapping) -> list[str]:
    """Compare the claims of a run with the claims of the reference.

    A claim is reproduced if it has the same bound and the same verdict as in the
    reference, and holds if and only if it holds in the reference. A bound may contain a
    computed number with four digits; this number may differ by a thousandth of its
    value.

    Parameters
    ----------
    new, old : mapping
        The records of the run and of the reference.

    Returns
    -------
    list of str
        The differences, in words. The list is empty if all claims are reproduced.

    Examples
    --------
    >>> from companion import record
    >>> old = {"claims": [{"id": "gap", "bound": "≤ 1", "holds": True}]}
    >>> new = {"claims": [{"id": "gap", "bound": "≤ 1", "holds": False}]}
    >>> record.compare_claims(new, old)
    ['gap held before']
    """
    of_run = {claim["id"]: claim for claim in new["claims"]}
    of_reference = {claim["id"]: claim for claim in old["claims"]}
    differences = []
    for name, claim in of_reference.items():
        if name not in of_run:
            differences.append(f"claim {name} is missing")
            continue
        mine = of_run[name]
        if not _same_bound(mine["bound"], claim["bound"]):
            differences.append(
                f"{name} is held to {mine['bound']}, reference {claim['bound']}"
            )
        if mine["holds"] != claim["holds"]:
            if claim["holds"]:
                word = "held before"
            else:
                word = "did not hold before"
            differences.append(f"{name} {word}")
        mine_word, word = (
            each.get("verdict") or "without verdict" for each in (mine, claim)
        )
        if mine_word != word:
            differences.append(f"{name} is {mine_word}, reference {word}")
    differences += [
        f"claim {name} is not in the reference"
        for name in of_run
        if name not in of_reference
    ]
    return differences


_DECIMAL = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def _same_bound(new: str, old: str) -> bool:
    """Return whether two bounds have the same text and nearly the same numbers.

    The numbers may differ by a thousandth, which is one unit in the fourth digit of
    1.000.
    """
    if _DECIMAL.sub("#", new) != _DECIMAL.sub("#", old):
        return False
    pairs = zip(_DECIMAL.findall(new), _DECIMAL.findall(old), strict=True)
    return all(
        math.isclose(float(one), float(other), rel_tol=1e-3) for one, other in pairs
    )
