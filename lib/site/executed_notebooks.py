"""The executed copies of the notebooks, by scale, and what speaks against them."""

import json
from dataclasses import dataclass
from pathlib import Path

from lib import files
from lib.companion import record
from lib.files import folder


@dataclass(frozen=True)
class Copy:
    """One executed copy of a notebook: its file, its scale and in words what is wrong with it."""

    notebook: str
    scale: str
    path: Path
    committed: bool
    troubles: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """How its page is called, without its ending."""
        return f"{self.notebook}-{self.scale}"


def copies() -> list[Copy]:
    """Every notebook at every scale at which it was run: from runs/, at demo scale else the committed .ipynb."""
    found = []
    for source in sorted(folder("notebooks").glob("*.py")):
        for scale in record.SCALES:
            path = folder("runs") / scale / f"{source.stem}.ipynb"
            if path.exists():
                found.append(
                    Copy(source.stem, scale, path, False, tuple(_unfinished(path, source)))
                )
            elif scale == "demo":
                found.append(Copy(source.stem, scale, source.with_suffix(".ipynb"), True))
    return found


def _unfinished(path: Path, source: Path) -> list[str]:
    """What the marker beside an executed copy says against it."""
    try:
        marker = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ["This run did not finish: there is no mark of success beside it."]
    now = files.sha256(source.read_bytes())
    changed = not isinstance(marker, dict) or marker.get("source") != now
    return ["The notebook has changed since this run."] if changed else []
