"""What to run: the notebooks asked for, their parameters at a scale, why they must run again."""

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lib import files, provenance
from lib.companion import record

FOLDERS = ("figures", "runs", "notebooks")


class UsageError(Exception):
    """A request that cannot be met; its text is one sentence for the person who asked."""


@dataclass(frozen=True, eq=False)
class Job:
    """One notebook at one scale, as whoever plans it sees it: a worker may have other defaults.

    `overrides` go to papermill; `parts` is its fingerprint without the data; `changes` is what
    nobody committed (`record.edited`). Its runs leave their files in `home`, finished figures in
    `figures`; `folders` has the environment variables that name the project's.
    """

    notebook: str
    scale: str
    overrides: Mapping
    text: str
    parts: Mapping
    changes: Mapping
    home: Path
    figures: Path
    folders: Mapping[str, str]

    @property
    def copy(self) -> Path:
        """The executed notebook."""
        return self.home.with_name(f"{self.home.name}.ipynb")

    @property
    def marker(self) -> Path:
        """The file that says a run has succeeded, and with what."""
        return self.home.with_name(f"{self.home.name}.json")


def plan(
    names: Sequence[str], scale: str, settings: Mapping, force: bool, store: bool
) -> tuple[list[Job], list[Job], list[str]]:
    """The jobs for `names` (all notebooks when there is none) at `scale` with other `settings`.

    Returns all of them, those that must run, longest first, and both in words. UsageError for a
    name, a parameter or a scale that is not there, or a table that cannot be read.
    """
    try:
        jobs = {name: _job(name, scale, settings) for name in _select(names)}
    except ValueError as error:
        raise UsageError(str(error)) from None
    absent = [name for name, job in jobs.items() if job is None]
    if absent and (names or len(absent) == len(jobs)):
        words = f"no section for scale {scale} in scales.toml, so not offered"
        raise UsageError(f"{', '.join(absent)}: {words}")
    offered = [job for job in jobs.values() if job is not None]
    reasons = {job: reason for job in offered if (reason := _reason(job, force, store))}
    # Longest first, so that none is left alone at the end; one never run may be the longest.
    seconds = _past_seconds(files.folder("figures") / scale)
    todo = sorted(reasons, key=lambda job: -seconds.get(job.notebook, math.inf))
    lines = [f"skip {name}: not offered at scale {scale}" for name in absent]
    lines += [f"run  {job.notebook}: {reasons[job]}" for job in todo]
    lines += [f"{len(offered) - len(todo)} up to date, {len(todo)} to run"]
    return offered, todo, lines


def _select(names: Sequence[str]) -> list[str]:
    """The notebooks that `names` (stems, unique beginnings, old names) stand for."""
    place = files.folder("notebooks")
    known, old = sorted(path.stem for path in place.glob("[0-9]*.py")), record.names_now()
    if not known:
        raise ValueError(f"there is no notebook in {place}; name their folder by NOTEBOOKS_DIR")
    chosen = []
    for name in names:
        fits = [name] if name in known else [stem for stem in known if stem.startswith(name)]
        if len(fits) != 1 and name not in old:
            now = "" if fits else record.renamed(name)
            hint = now or f"there are {', '.join(fits or known)}"
            raise ValueError(f"{name!r} is not the name of one notebook; {hint}")
        chosen += fits or old[name]
    return list(dict.fromkeys(chosen)) or known


def _job(notebook: str, scale: str, settings: Mapping) -> Job | None:
    """The job of a notebook; None where `scale` is not offered, ValueError naming the notebook."""
    if (of_scale := record.of_scale(notebook, scale)) is None:
        return None
    overrides = {**of_scale, **settings}
    try:
        text = record.page(notebook)
        defaults = record.literals(text)
        _check(overrides, defaults)
        values = {**defaults, **overrides}
        changes = record.edited(notebook, text, values)
        parts = provenance.fingerprint(notebook, values)
    except (ValueError, SyntaxError) as error:
        raise ValueError(f"{notebook}: {error}") from None
    folders = {f"{name.upper()}_DIR": str(files.folder(name)) for name in FOLDERS}
    home, figures = Path(folders["RUNS_DIR"], scale, notebook), Path(folders["FIGURES_DIR"])
    if changes:
        home = record.custom_folder(notebook, changes)
        figures = home / "figures"
    about = notebook, scale, overrides, text, parts, changes
    return Job(*about, home=home, figures=figures / scale, folders=folders)


def _check(overrides: Mapping, defaults: Mapping) -> None:
    # papermill itself only logs a parameter that it does not know, and draws the default figure
    if unknown := ", ".join(sorted(overrides.keys() - defaults.keys())):
        raise ValueError(f"there is no parameter {unknown}; there are {', '.join(defaults)}")
    for name, value in overrides.items():
        usual = defaults[name]
        kind, given = (list if isinstance(x, tuple) else type(x) for x in (usual, value))
        fits = given is kind or (kind is float and given is int)
        fits = fits and (kind not in (int, float) or math.isfinite(value))
        if kind in (bool, int, float, list) and not fits:
            raise ValueError(f"{name} is {usual!r} by default; {value!r} is of another kind")


def _reason(job: Job, force: bool, store: bool) -> str | None:
    """Why a job must run, against the marker of its last success; None when it is up to date."""
    if job.changes:
        return "custom code" if "code" in job.changes else "custom parameters"
    if force:
        return "forced"
    try:
        reasons = _changed(job, files.read_object(job.marker))
    except OSError:
        return "never run"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"damaged: {os.path.relpath(job.marker)}"
    if store and not job.copy.exists():
        reasons.append("no executed copy")
    return "; ".join(reasons) or None


def _changed(job: Job, marker: Mapping) -> list[str]:
    """What the last run drew on or made that is not as it was, in words."""
    paths = {name: job.figures / name for name in marker["figures"]}
    figures = {name: files.sha256(p.read_bytes()) for name, p in paths.items() if p.exists()}
    parts = {**job.parts, "figures": figures}
    reasons = ["source changed"] if parts.pop("source") != marker["source"] else []
    for part, now in parts.items():
        before = marker[part]
        names = record.differing(before, now).keys() | record.differing(now, before).keys()
        reasons += [f"{part} changed: {', '.join(sorted(names))}"] if names else []
    names = [row["name"] for row in marker["data"] if _data_changed(row, job.scale)]
    return reasons + ([f"data changed: {', '.join(names)}"] if names else [])


def _data_changed(row: Mapping, scale: str) -> bool:
    """Whether the data of a row of the last run are others today."""
    if row["source"] in ("synthetic", "kept"):
        return False
    from lib.data import places
    from lib.networks import bert  # here, since most notebooks need no real data

    name, demo = row.get("instead_of", row["name"]), scale == "demo"
    try:
        if row.get("kind") == "weights":
            now = bert.weights(demo=demo).as_row()
        else:
            now = places.identity(name, demo=demo)
    except (OSError, ValueError):  # the notebook itself reports it best
        return True
    return any(row.get(key) != now.get(key) for key in ("name", "source", "revision"))


def _past_seconds(figures: Path) -> dict[str, float]:
    """How long each notebook took when the figures in a folder were made."""
    seconds = {}
    for path in figures.glob("*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            saved = files.read_object(path)
            took, notebook = saved["provenance"]["seconds"], saved["notebook"]
            seconds[notebook] = max(seconds.get(notebook, 0.0), took)
    return seconds
