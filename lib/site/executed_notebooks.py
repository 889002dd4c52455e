"""The notebooks as they ran, by scale, and what speaks against each run."""

from dataclasses import dataclass
from pathlib import Path

from lib import files
from lib.companion import record
from lib.files import folder


@dataclass(frozen=True)
class ExecutedNotebook:
    """One notebook with its outputs: its file, its scale and in words what is wrong with it."""

    notebook: str
    scale: str
    path: Path
    committed: bool
    troubles: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """How its page is called, without its ending."""
        return f"{self.notebook}-{self.scale}"


def find() -> list[ExecutedNotebook]:
    """Every notebook at every scale at which it ran; at demo scale else the committed .ipynb."""
    found = []
    for source in sorted(folder("notebooks").glob("*.py")):
        for scale in record.SCALES:
            path = folder("runs") / scale / f"{source.stem}.ipynb"
            if path.exists():
                troubles = tuple(_unfinished(path, source))
                found.append(ExecutedNotebook(source.stem, scale, path, False, troubles))
            elif scale == "demo":
                path = source.with_suffix(".ipynb")
                found.append(ExecutedNotebook(source.stem, scale, path, True))
    return found


def _unfinished(path: Path, source: Path) -> list[str]:
    """What the marker beside an executed notebook says against it."""
    try:
        marker = files.read_object(path.with_suffix(".json"))
    except (OSError, ValueError):
        return ["This run did not finish: there is no mark of success beside it."]
    changed = marker.get("source") != files.sha256(source.read_bytes())
    return ["The notebook has changed since this run."] if changed else []
