"""Where the project's folders are, and files written whole or not at all."""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import lib

ROOT = Path(lib.__file__).resolve().parent.parent


def folder(name: str) -> Path:
    """The folder "figures", "runs" or "notebooks": $FIGURES_DIR and so on, else the repository's own."""
    return Path(os.environ.get(f"{name.upper()}_DIR") or ROOT / name).resolve()


def sha256(content: bytes) -> str:
    """First 16 hex digits of the SHA-256 of `content`."""
    return hashlib.sha256(content).hexdigest()[:16]


def dumps(value) -> str:
    """Strict JSON; numpy scalars and arrays become plain, NaN and infinity raise ValueError."""

    def plain(x):
        return x.tolist() if hasattr(x, "tolist") else str(x)

    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False, default=plain) + "\n"


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A stream whose content becomes `path` at the end, so that `path` holds the old bytes or all
    of the new.

    Whatever interrupts, a power cut included: the bytes are on the disk before the name points to
    them.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)  # mkstemp gives 0600, which would reach git and shared folders
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write(path: Path, content: bytes) -> None:
    """Write `content` to `path` through `replacing`."""
    with replacing(path) as stream:
        stream.write(content)
