"""Where the project's folders are, and files written whole or not at all."""

import hashlib
import json
import os
import tomllib
import uuid
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def folder(name: str) -> Path:
    """Return the folder "figures", "runs" or "notebooks".

    It is $FIGURES_DIR, $RUNS_DIR or $NOTEBOOKS_DIR, else the repository's own.
    """
    given = os.environ.get(f"{name.upper()}_DIR")
    if given:
        return Path(given).resolve()
    return ROOT / name


def sha256(content: bytes) -> str:
    """First 16 hex digits of the SHA-256 of `content`."""
    return hashlib.sha256(content).hexdigest()[:16]


def dumps(value) -> str:
    """Strict JSON; numpy values become plain, NaN and infinity raise ValueError."""
    plain = lambda x: x.tolist() if hasattr(x, "tolist") else str(x)
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False, default=plain) + "\n"


def read_object(path: Path) -> dict:
    """The JSON object in a file; ValueError, with its path, where it holds another."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # not JSON, or not UTF-8
        raise ValueError(f"{path} is damaged: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} is damaged: it holds no JSON object")
    return value


def read_table(path: Path) -> dict:
    """The tables of a TOML file, none without a file; ValueError with the file's name."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except ValueError as error:  # not TOML, or not UTF-8
        raise ValueError(f"{path} cannot be read: {error}") from None


def write(path: Path, content: bytes) -> None:
    """Write a file whole: whatever interrupts, it holds the old bytes or all of the new."""
    write_all({path: content})


def write_all(contents: Mapping[Path, bytes]) -> None:
    """Write several files or, where one of them fails, none: what was there before comes back."""
    waiting, before = {}, {}
    try:
        # A full or read-only disk shows here, before any name points to new bytes.
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            waiting[path] = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
            with open(waiting[path], "xb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())  # a power cut must not leave a name without bytes
        for path, temporary in waiting.items():
            old = path.read_bytes() if path.is_file() else None
            os.replace(temporary, path)
            before[path] = old
    except BaseException:
        for temporary in waiting.values():
            temporary.unlink(missing_ok=True)
        for path, old in before.items():
            path.unlink(missing_ok=True) if old is None else write(path, old)
        raise


def sentence(error: Exception) -> str:
    """An error without its number: what the system said, and of which file."""
    name = getattr(error, "filename", None)
    return f"{getattr(error, 'strerror', None) or error}{f': {name}' if name else ''}"
