"""What to run: the notebooks asked for, their parameters at a scale, why they must run again."""

import contextlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lib import files, provenance
from lib.batch import staleness
from lib.batch.job import Job
from lib.companion import parameters
from lib.files import folder


class UsageError(Exception):
    """A request that cannot be met; its text is one sentence for the person who asked."""


@dataclass(frozen=True)
class Plan:
    """The jobs asked for: those `todo`, longest first, each with its reason, and those up to date.

    `skipped` are the notebooks left out because they are not offered at the scale; `renamed` says
    what the old names among those asked for stand for.
    """

    jobs: tuple[Job, ...]
    todo: tuple[Job, ...]
    reasons: Mapping[str, str]
    skipped: tuple[str, ...]
    renamed: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The plan in words."""
        return [
            *self.renamed,
            *(f"skip {name}: not offered at scale {self.jobs[0].scale}" for name in self.skipped),
            *(f"run  {job.notebook}: {self.reasons[job.notebook]}" for job in self.todo),
            f"{len(self.jobs) - len(self.todo)} up to date, {len(self.todo)} to run",
        ]


def plan(names: Iterable[str], scale: str, settings: Mapping, force: bool, store: bool) -> Plan:
    """The plan for `names` (all notebooks when there is none) at `scale` with own `settings`.

    Raises UsageError for a name, a parameter or a scale that is not there, or a table of notebooks
    that cannot be read.
    """
    try:
        return _plan(names, scale, settings, force, store)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _plan(names, scale, settings, force, store):
    known = sorted(path.stem for path in folder("notebooks").glob("*.py"))
    if not known:
        place = folder("notebooks")
        raise UsageError(f"there is no notebook in {place}; name their folder by --notebooks DIR")
    if "scale" in settings:
        raise UsageError("choose the scale with --scale, not with --set")
    names, renamed = _by_todays_names(names, known)
    wanted = {name: _job(name, scale, settings) for name in select(names, known)}
    skipped = tuple(name for name, job in wanted.items() if job is None)
    jobs = tuple(job for job in wanted.values() if job is not None)
    if skipped and (names or not jobs):
        raise UsageError(
            f"{', '.join(skipped)}: no section for scale {scale} in scales.toml, so not offered"
        )
    reasons = {job.notebook: why for job in jobs if (why := _why(job, force, store))}
    past = _past_seconds(jobs)
    # Longest first, so that none is left alone at the end; one never run may be the longest.
    todo = sorted(
        (job for job in jobs if job.notebook in reasons),
        key=lambda job: -past.get(job.notebook, float("inf")),
    )
    return Plan(jobs, tuple(todo), reasons, skipped, renamed)


def _by_todays_names(names, known):
    """The names with old ones replaced by what holds their subject now, and the hints, in words."""
    table, found, hints = parameters.names_now(), [], []
    for name in names:
        if name in table and name not in known:
            hints.append(parameters.renamed(name))
            found += table[name]
        else:
            found.append(name)
    return found, tuple(hints)


def select(names: Iterable[str], known: list[str]) -> list[str]:
    """The notebooks that `names` (stems or unique prefixes) stand for; all of them without a name.

    Raises UsageError for a name that fits none or more than one.
    """
    chosen = []
    for name in names:
        fits = [name] if name in known else [stem for stem in known if stem.startswith(name)]
        if len(fits) != 1:
            trouble = "fits more than one notebook" if fits else "is not a notebook"
            if not fits and (now := parameters.renamed(name)):
                raise UsageError(f"{name!r} {trouble} any more: {now}")
            raise UsageError(f"{name!r} {trouble}; there are {', '.join(fits or known)}")
        chosen += [fits[0]] if fits[0] not in chosen else []
    return chosen or known


def _job(notebook: str, scale: str, settings: Mapping) -> Job | None:
    """The job of a notebook; None where `scale` is not offered."""
    own = parameters.of_scale(notebook, scale)
    if own is None:
        return None
    try:
        text = (folder("notebooks") / f"{notebook}.py").read_text(encoding="utf-8")
        literals = parameters.literals(text)
        overrides = {**own, **settings}
        _check(overrides, literals)
        found = {**literals, **overrides}
        parts = provenance.fingerprint(notebook, found)
        committed = parameters.reference(notebook, text)
        changes = parameters.changed(notebook, committed, found)
        changes |= parameters.own_code(text, committed)
    except (ValueError, SyntaxError) as error:
        raise UsageError(f"{notebook}: {error}") from None
    return Job(notebook, scale, overrides, text, parts=parts, changes=changes)


def _check(changes: Mapping, known: Mapping) -> None:
    # papermill itself only logs a parameter that it does not know, and the default figure would
    # come out.
    unknown = sorted(changes.keys() - known.keys())
    if unknown:
        raise ValueError(
            f"there is no parameter {', '.join(unknown)}; there are {', '.join(known)}"
        )
    for key, value in changes.items():
        if isinstance(known[key], bool):
            right, what = isinstance(value, bool), "true or false"
        elif isinstance(known[key], int):
            right = isinstance(value, int) and not isinstance(value, bool)
            what = f"a whole number such as {known[key]}"
        elif isinstance(known[key], float):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            right, what = number and math.isfinite(value), f"a number such as {known[key]}"
        else:
            continue
        if not right:
            raise ValueError(f"{key} is {what}, not {value!r}")


def _why(job: Job, force: bool, store: bool) -> str | None:
    if job.custom:
        return "custom code" if "code" in job.changes else "custom parameters"
    if force:
        return "forced"
    why = staleness.reason(job)
    return "no executed copy" if why is None and store and not job.copy.exists() else why


def _past_seconds(jobs: Iterable[Job]) -> dict[str, float]:
    """How long each notebook took when its present figures were made."""
    seconds = {}
    records = {
        path for job in jobs for path in job.figures_folder.joinpath(job.scale).glob("*.json")
    }
    for path in records:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            saved = files.read_object(path)
            took, notebook = saved["provenance"]["seconds"], saved["notebook"]
            seconds[notebook] = max(seconds.get(notebook, 0.0), took)
    return seconds
