"""A job of a batch: a page at a scale, its results, and whether it has to run again."""

import json
import os
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from companion import pages, record, sources
from lib import files, provenance


@dataclass(frozen=True, eq=False, kw_only=True)
class Job:
    """One page at one scale, as the process that plans the batch sees it.

    A worker may see the project's folders under other paths.

    Parameters
    ----------
    notebook : str
        The stem of the page's .py.
    scale : str
        One of `pages.SCALES`.
    page : str
        The text of the page's .py.
    overrides : mapping
        The parameters that papermill sets: those of the scale and of `settings`.
    settings : mapping
        The values of --set. A run with such values has its own folder, and no
        reference.
    inputs : mapping
        Everything that the results depend on: the fingerprint, and the places of real
        data.
    work : Path
        The folder of a run that has not finished, or that failed.
    results : Path
        The folder of the last run that succeeded.
    reference : Path
        The folder of the committed figures and records of this scale.
    folders : mapping of str to str
        The project's folders, by environment variable.
    """

    notebook: str
    scale: str
    page: str
    overrides: Mapping
    settings: Mapping
    inputs: Mapping
    work: Path
    results: Path
    reference: Path
    folders: Mapping[str, str]

    @property
    def executed(self) -> str:
        """The name of the executed notebook in the folder of a run."""
        return f"{self.notebook}.ipynb"

    @property
    def lock(self) -> Path:
        """The lock file of the process that runs this job."""
        return self.work.with_suffix(".lock")


def jobs(asked: Namespace) -> dict[Job, str]:
    """Plan a batch.

    Parameters
    ----------
    asked : Namespace
        The options of the command: names, scale, settings, force, update.

    Returns
    -------
    dict of Job to str
        The jobs, each with the reason why it must run. The reason is empty if the job
        is up to date.

    Raises
    ------
    ValueError
        If a name, a page, a table or a setting cannot be used. The message is one
        sentence.
    """
    planned = {name: _job(name, asked) for name in pages.notebooks(asked.names)}
    absent = [name for name, job in planned.items() if job is None]
    if absent and (asked.names or len(absent) == len(planned)):
        words = f"no scale {asked.scale} in pages.toml, so not offered"
        raise ValueError(f"{', '.join(absent)}: {words}")
    for name in absent:
        print(f"skip {name}: not offered at scale {asked.scale}")
    return {job: reason(job, asked) for job in planned.values() if job is not None}


def _job(notebook: str, asked: Namespace) -> Job | None:
    """Return the job of a notebook, or None if the notebook does not offer the scale.

    The function raises ValueError, with the notebook's name, if the job cannot be
    planned.
    """
    try:
        plan = pages.planned(notebook, asked.scale, asked.settings)
        if plan is None:
            return None
        inputs = sources.fingerprint(notebook, plan.values)
    except (ValueError, SyntaxError) as error:
        raise ValueError(f"{notebook}: {error}") from None
    except OSError as error:
        raise ValueError(f"{notebook}: {files.sentence(error)}") from None
    local_sets = sorted(map(str, (files.ROOT / "data").glob("*/")))
    inputs["places"] = [os.environ.get("DATA_DIR"), *local_sets]

    # The folders of the job.
    folders = {
        f"{name.upper()}_DIR": files.folder(name)
        for name in ("figures", "runs", "notebooks")
    }
    runs = folders["RUNS_DIR"]
    name = notebook
    results = record.results_folder(notebook, asked.scale)
    if asked.settings:
        digest = provenance.digest(json.loads(files.dumps(asked.settings)))
        name = f"{notebook}-{digest[:8]}"
        results = runs / "set" / asked.scale / name
    return Job(
        notebook=notebook,
        scale=asked.scale,
        page=plan.page,
        overrides=plan.overrides,
        settings=asked.settings,
        inputs=inputs,
        work=runs / "work" / asked.scale / name,
        results=results,
        reference=folders["FIGURES_DIR"] / asked.scale,
        folders={variable: str(path) for variable, path in folders.items()},
    )


# The inputs of a run.


@dataclass(frozen=True, kw_only=True)
class Marker:
    """The inputs from which the results of a run were made, and their hashes.

    Parameters
    ----------
    inputs : dict
        The job's inputs when it ran.
    data : list of dict
        The rows of data in the run's records.
    hashes : dict of str to str
        The hash of each file of the results, by its name.
    """

    inputs: dict
    data: list[dict]
    hashes: dict[str, str]

    @property
    def slugs(self) -> list[str]:
        """The figures of the run."""
        return sorted(
            name.removesuffix(".json") for name in self.hashes if name.endswith(".json")
        )

    def dumps(self) -> bytes:
        """Return the marker as the bytes of a file.

        Returns
        -------
        bytes
            The content of the file.
        """
        parts = {"inputs": self.inputs, "data": self.data, "files": self.hashes}
        return files.dumps(parts).encode()


def marker_of(folder: Path) -> Marker:
    """Read the marker in a folder of results.

    Parameters
    ----------
    folder : Path
        The folder.

    Returns
    -------
    Marker
        The marker.

    Raises
    ------
    ValueError
        If the file is missing or is not a marker. The message names its path.
    """
    path = folder / record.MARKER
    parts = files.read_object(path)
    inputs = parts.get("inputs")
    data = parts.get("data")
    hashes = parts.get("files")
    is_marker = (
        isinstance(inputs, dict)
        and isinstance(data, list)
        and all(isinstance(row, dict) for row in data)
        and isinstance(hashes, dict)
        and all(isinstance(value, str) for value in hashes.values())
    )
    if not is_marker:
        raise ValueError(f"{path} is damaged: it does not say what a run was made of")
    return Marker(inputs=inputs, data=data, hashes=hashes)


# Why a job must run.


def reason(job: Job, asked: Namespace) -> str:
    """Return why a job must run, in words.

    Parameters
    ----------
    job : Job
        The job.
    asked : Namespace
        The options force and update of the command.

    Returns
    -------
    str
        The reason in words. It is empty if the job's results are up to date.

    Raises
    ------
    ValueError
        If --update is given and a record of the results is damaged. The message names
        its path.
    """
    if job.settings:
        return "parameters of your own"
    if asked.force:
        return "forced"
    if not os.path.lexists(job.results):
        return "never run"
    try:
        marker = marker_of(job.results)
        if job.executed not in marker.hashes:  # Every run has that file.
            raise ValueError("the marker is of another page")
    except ValueError:
        return f"damaged: {os.path.relpath(job.results / record.MARKER)}"
    if job.scale != "demo" and any(row.get("source") == "demo" for row in marker.data):
        return "it ran on embedded data, not on the real ones"
    reasons = [*_changed_inputs(job, marker), *_changed_results(job, marker)]
    if not reasons and asked.update and _of_dirty_tree(job, marker):
        reasons.append("it ran on code that nobody committed")
    return "; ".join(reasons)


def _changed_inputs(job: Job, marker: Marker) -> list[str]:
    """Return, in words, the inputs that have changed since the results were made."""
    now = dict(job.inputs)
    before = dict(marker.inputs)
    if all(row.get("source") in ("synthetic", "kept") for row in marker.data):
        for inputs in (now, before):
            # If the results contain no real data, the places of real data do not
            # matter.
            inputs.pop("places", None)
    return [
        _changed(part, now.get(part), before.get(part))
        for part in now | before
        if now.get(part) != before.get(part)
    ]


def _changed(part: str, now: object, before: object) -> str:
    """Say that a part of the inputs has changed, and list the changed entries."""
    if not isinstance(now, dict) or not isinstance(before, dict):
        return f"{part} changed"
    entries = [name for name in now | before if now.get(name) != before.get(name)]
    return f"{part} changed: {', '.join(sorted(entries))}"


def _changed_results(job: Job, marker: Marker) -> list[str]:
    """Return, in words, the files of the results that have changed since the run.

    A missing file counts as changed. The list has at most one text.
    """
    changed = [
        name
        for name, old in marker.hashes.items()
        if hash_of(job.results / name) != old
    ]
    if changed:
        return [f"results changed: {', '.join(changed)}"]
    return []


def hash_of(path: Path) -> str | None:
    """Return the hash of a file.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    str or None
        The first 16 hex digits of the file's SHA-256, or None if the file cannot be
        read.
    """
    try:
        return files.sha256(path.read_bytes())
    # The file is missing or unreadable, or the path does not name a file.
    except (OSError, ValueError):
        return None


def _of_dirty_tree(job: Job, marker: Marker) -> bool:
    """Return whether a record of the results comes from uncommitted code."""
    records = [record.read(job.results / f"{slug}.json") for slug in marker.slugs]
    return any(
        str(saved["provenance"].get("commit")).endswith("-dirty") for saved in records
    )
