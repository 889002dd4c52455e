"""One notebook at one scale, and where everything of it lies."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lib import files
from lib.companion import parameters
from lib.files import folder


@dataclass(frozen=True)
class Job:
    """One notebook at one scale.

    `overrides` go to papermill; `parts` is its fingerprint without the data; `changes` are the
    parameters that are not the scale's own. The folders are those of whoever plans the job; a
    worker on another machine may see other defaults.
    """

    notebook: str
    scale: str
    overrides: Mapping
    text: str
    parts: Mapping
    changes: Mapping = field(default_factory=dict)
    root: Path = files.ROOT
    figures_folder: Path = field(default_factory=lambda: folder("figures"))
    runs_folder: Path = field(default_factory=lambda: folder("runs"))
    notebooks_folder: Path = field(default_factory=lambda: folder("notebooks"))

    @property
    def custom(self) -> bool:
        """Whether this run is a reader's own, which never takes the place of a figure."""
        return bool(self.changes)

    @property
    def home(self) -> Path:
        """Folder of the staged figures and the kernel's log."""
        if self.custom:
            own = parameters.custom_folder(self.notebook, self.changes)
            return self.runs_folder / "custom" / own.name
        return self.runs_folder / self.scale / self.notebook

    @property
    def copy(self) -> Path:
        """The executed notebook."""
        return self.home / f"{self.notebook}.ipynb" if self.custom else self._beside(".ipynb")

    @property
    def marker(self) -> Path:
        """The file that says a run has succeeded, and with what."""
        return self._beside(".json")

    @property
    def lock(self) -> Path:
        """The file that whoever runs this notebook at this scale holds."""
        return self.runs_folder / "locks" / self.home.parent.name / f"{self.home.name}.lock"

    @property
    def figures(self) -> Path:
        """Where the finished figures of this job lie."""
        return (self.home / "figures" if self.custom else self.figures_folder) / self.scale

    def _beside(self, ending: str) -> Path:
        return self.home.with_name(self.home.name + ending)


@dataclass(frozen=True)
class Outcome:
    """How a job went: its seconds, why it failed, and the folder of what this run alone made."""

    job: Job
    seconds: float
    error: str | None = None
    work: Path | None = None

    @property
    def staged(self) -> Path:
        """The figures that wait to be published."""
        return (self.work or self.job.home) / "figures" / self.job.scale


def in_words(error: BaseException) -> str:
    """An error as one line: its kind and the first line of its text."""
    kind = getattr(error, "ename", None) or type(error).__name__
    text = str(getattr(error, "evalue", None) or error).strip()
    return f"{kind}: {text.splitlines()[0]}" if text else kind
