"""What came of earlier runs, so that an interrupted one goes on where it was: a line per verdict.

A swap's verdict counts as long as neither its file nor its killer has changed; a killer's run
without a swap, as long as neither it nor the library has.
"""

import hashlib
import json
from pathlib import Path

from tests.mutations.swaps import Swap


class Remembered:
    """The verdicts in the file `path` {key: row}, for the sources under `root`."""

    def __init__(self, path: Path, root: Path):
        self.path, self.root, self.rows = path, root, {}
        if path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    row = json.loads(line)
                    self.rows[row["key"]] = row
                except (ValueError, KeyError, TypeError):
                    continue  # a line that an interrupt cut: its swap runs again
        names = sorted(path for room in ("lib", "papers") for path in (root / room).rglob("*.py"))
        self._library = b"".join(name.read_bytes() for name in names)

    def of_swap(self, swap: Swap) -> str:
        """The key of a swap."""
        sources = self._bytes(swap.file), self._bytes(swap.killer)
        return _key(swap.file, swap.killer, swap.old, swap.new, *sources)

    def of_killer(self, killer: str) -> str:
        """The key of a killer without a swap."""
        return _key(killer, self._bytes(killer), self._library)

    def _bytes(self, name: str) -> bytes:
        return (self.root / name.split("::")[0]).read_bytes()

    def add(self, row: dict) -> dict:
        """Keep a row, on the disk at once."""
        self.rows[row["key"]] = row
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")
        return row


def _key(*parts) -> str:
    hashed = [part if isinstance(part, bytes) else part.encode() for part in parts]
    whole = b"".join(hashlib.sha256(part).digest() for part in hashed)
    return hashlib.sha256(whole).hexdigest()[:16]
