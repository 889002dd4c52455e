"""From a run that succeeded to figures/<scale>/: all of its figures or none, then its marker."""

import os
import shutil
from dataclasses import dataclass

from lib import files
from lib.batch.job import Job, Outcome, in_words
from lib.companion import reproduction
from lib.companion.notebook_cells import KERNEL, without_widget


@dataclass(frozen=True)
class Published:
    """What became of a job that ran: why it failed, if it did, and what else there is to say."""

    outcome: Outcome
    error: str | None
    note: str = ""

    @property
    def line(self) -> str:
        """The job's line for the screen."""
        name, seconds = self.outcome.job.notebook, self.outcome.seconds
        verdict, why = ("FAIL", f": {self.error}") if self.error else ("ok  ", "")
        return f"{verdict} {name}  {seconds:.1f} s{why}{self.note}"


def publish(outcome: Outcome) -> Published:
    """Publish the figures of a run that succeeded.

    A disk that refuses them makes the job a failed one.
    """
    job = outcome.job
    copy = f"  ({os.path.relpath(job.copy)})"
    if outcome.error or job.custom:
        return Published(outcome, outcome.error, copy)
    try:
        if _stand_in(outcome):
            staged = os.path.relpath(outcome.staged.parent)
            note = f"  (embedded data, not the real ones: the figures stay in {staged})"
            return Published(outcome, None, note)
        return Published(outcome, None, "" if _move(outcome) else "  (no figure saved)")
    except (OSError, ValueError) as error:
        staged = os.path.relpath(outcome.staged.parent)
        why = f"not published, {in_words(error)}"
        return Published(outcome, why, f"  (the figures stay in {staged})")


def _stand_in(outcome: Outcome) -> bool:
    """Whether a figure of a larger scale was made from embedded data, for want of the real ones.

    Such a figure must not take the place of the real one: it stays staged, and the job never counts
    as up to date.
    """
    rows = [
        row for path in outcome.staged.glob("*.json") for row in reproduction.read(path)["data"]
    ]
    return outcome.job.scale != "demo" and any(row["source"] == "demo" for row in rows)


def _move(outcome: Outcome) -> list[str]:
    """Write the staged figures that reproduce none that is there, and the marker behind them.

    Return the names of all.
    """
    job, made, data, content = outcome.job, {}, [], {}
    staged = [path for path in outcome.staged.glob("*") if not path.name.startswith(".")]
    for path in sorted(staged, key=lambda p: (p.stem, p.suffix == ".json", p.suffix)):
        content[job.figures / path.name] = path.read_bytes()
        if path.suffix == ".json":
            saved = reproduction.read(path)
            data += [row for row in saved["data"] if row not in data]
            made[path.stem] = saved["provenance"]
    kept = {
        slug
        for slug in made
        if reproduction.reproduces(
            reproduction.read(outcome.staged / f"{slug}.json"),
            content.get(job.figures / f"{slug}.png", b""),
            job.figures / f"{slug}.json",
        )
    }
    written = {
        path: new for path, new in content.items() if path.stem not in kept or not path.exists()
    }
    hashes = {path.name: files.sha256(written.get(path) or path.read_bytes()) for path in content}
    marker = {**job.parts, "data": data, "figures": hashes, "seconds": round(outcome.seconds, 1)}
    text = files.dumps({**marker, "made": made})
    files.remove_leftovers([*content, job.marker])  # of batches that were killed: ours is the lock
    files.write_all({**written, job.marker: text.encode()})
    shutil.rmtree(outcome.work, ignore_errors=True)
    return list(hashes)


def store(job: Job) -> None:
    """Write the executed cells of the demo run, with outputs, into the .ipynb beside the .py.

    OSError or ValueError where a file cannot be read or written.
    """
    import jupytext
    import nbformat

    from lib.companion import colab_cell

    source = jupytext.reads(job.text, fmt="py:percent")
    executed = nbformat.read(job.copy, as_version=4)
    notebook = nbformat.v4.new_notebook(
        metadata={"kernelspec": KERNEL, "language_info": {"name": "python"}}
    )
    for cell, ran in zip(source.cells, executed.cells, strict=True):
        cell.metadata = {"tags": cell.metadata["tags"]} if cell.metadata.get("tags") else {}
        if cell.cell_type == "code":
            cell.outputs = [without_widget(output) for output in ran.outputs]
            cell.execution_count = ran.execution_count
        notebook.cells.append(cell)
    notebook.cells = colab_cell.installing(notebook.cells)
    nbformat.validate(notebook)
    path = job.notebooks_folder / f"{job.notebook}.ipynb"
    files.write(path, (nbformat.writes(notebook) + "\n").encode())
