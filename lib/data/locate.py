"""Where real data sets are found, in a fixed order, and always with the name of the place they came
from.

The order is `$DATA_DIR/<name>`, `data/<name>`, the hub at a pinned revision, and last a small
stand-in, embedded in a package or generated. A place that is named but broken is an error; only a
set that is nowhere gives way to its stand-in. What is read from the files is the business of
`lib.images` and `lib.texts`.
"""

import hashlib
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import lib

ROOT = Path(lib.__file__).resolve().parent.parent
PROBE_SECONDS = 3.0  # longest wait for the hub's first answer
ANSWER_SECONDS = 60.0  # for which an answer, or its lack, is taken to last
_ANSWERS: dict[
    str, tuple[float, bool]
] = {}  # of each endpoint: when it was asked, and whether it answered

Source = TypeVar("Source")  # an `images.ImageSource` or a `texts.TextSource`


@dataclass(frozen=True)
class HubFile:
    """One parquet file of a hub repository: which split it holds, its path there, and its SHA-256."""

    split: str
    path: str
    sha256: str


def known(name: str, sources: Mapping[str, Source], kind: str) -> Source:
    """The source called `name` out of `sources`; ValueError, with the names there are, for any other."""
    if name not in sources:
        raise ValueError(f"unknown {kind} set {name!r}; there is {', '.join(sources)}")
    return sources[name]


def hub_reachable(timeout: float = PROBE_SECONDS) -> bool:
    """Whether the hub answers within `timeout` seconds, name lookup and connection included.

    False at once under HF_HUB_OFFLINE=1. A proxy (HTTPS_PROXY) and a mirror (HF_ENDPOINT) are used
    where set.
    """
    if any(
        os.environ.get(key, "").upper() in {"1", "ON", "YES", "TRUE"}
        for key in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
    ):
        return False
    # A notebook asks once for each set and for the weights; a silent hub would cost it the wait
    # each time.
    endpoint = _endpoint()
    asked, answer = _ANSWERS.get(endpoint, (-ANSWER_SECONDS, False))
    if time.monotonic() - asked >= ANSWER_SECONDS:
        answer = _answers(endpoint, timeout)
        _ANSWERS[endpoint] = time.monotonic(), answer
    return answer


def _answers(endpoint: str, timeout: float) -> bool:
    answers = []

    def ask():
        try:
            with urllib.request.urlopen(
                urllib.request.Request(endpoint, method="HEAD"), timeout=timeout
            ):
                answers.append(True)
        except urllib.error.HTTPError as error:
            answers.append(error.code < 500)
        except (OSError, ValueError):
            answers.append(False)

    # A socket's own timeout bounds neither the name lookup nor a server that sends one byte now and
    # then.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(timeout)
    return bool(answers and answers[0])


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


def place(source, demo: bool) -> tuple[str, Path | None]:
    """(data_dir | data | hub | demo, folder) of a set, downloaded if that is where it is.

    `source` is an `images.ImageSource` or `texts.TextSource`. A stand-in that nobody asked for by
    `demo` is announced.
    """
    where, folder = locate(source, demo)
    if where == "hub":
        try:
            folder = _download(source)
        except OSError as error:
            where, folder = "demo", None
            _announce(source, f"the download broke off ({type(error).__name__})")
    elif where == "demo" and not demo:
        _announce(source, "the hub gave no answer")
    return where, folder


def locate(source, demo: bool) -> tuple[str, Path | None]:
    """(place, folder): the first place of the module's order that has the set."""
    if os.environ.get("DATA_DIR"):
        return "data_dir", _data_dir(source.name, source.splits)
    folder = ROOT / "data" / source.name
    if folder.is_dir():
        return "data", folder
    if demo:
        return "demo", None
    folder = _cached(source)
    return ("hub", folder) if folder or hub_reachable() else ("demo", None)


def _data_dir(name: str, splits: tuple[str, str]) -> Path:
    """The folder of `name` under `$DATA_DIR`; a relative path counts from here, else from the repository."""
    given = Path(os.environ["DATA_DIR"]).expanduser()
    places = [place for place in (given.absolute(), ROOT / given) if place.is_dir()]
    if not places:
        raise FileNotFoundError(
            f"DATA_DIR={given} is not a folder; point it at the folder that holds {name}/, or unset it"
        )
    for place in places:
        if (place / name).is_dir():
            return place / name
    raise FileNotFoundError(
        f"DATA_DIR={given} has no folder {name}/; put {name}/{splits[0]}-*.parquet and {name}/{splits[1]}-*.parquet"
        " there (data/README.md says which), or unset DATA_DIR"
    )


def parquet_files(folder: Path, split: str) -> list[Path]:
    """The parquet files of `split` under `folder`, every shard that their names promise."""
    files = sorted(folder.rglob(f"{split}-*.parquet"))
    promised = (
        int(files[0].stem.rpartition("-of-")[2])
        if files and "-of-" in files[0].stem
        else len(files)
    )
    if not files or len(files) != promised:
        found = ", ".join(f.name for f in files) or "none"
        raise FileNotFoundError(
            f"{folder} lacks files {split}-*.parquet (found {found}); data/README.md says how to get them"
        )
    return files


def open_parquet(path: Path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(
            f"{path} is not a readable parquet file, perhaps cut off: fetch it again ({error})"
        ) from error


def identify(source, where: str, folder: Path | None) -> dict:
    if where == "hub":
        return {
            "name": source.name,
            "source": where,
            "revision": source.revision,
            "rows": source.rows,
        }
    digest, rows = hashlib.sha256(), 0
    for split in source.splits:
        for path in parquet_files(folder, split):
            with open_parquet(path) as file:
                rows += file.metadata.num_rows
            with path.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    return {"name": source.name, "source": where, "revision": digest.hexdigest()[:16], "rows": rows}


def _cached(source) -> Path | None:
    """The folder of the pinned revision in the hub's own cache, if every file is there."""
    from huggingface_hub import try_to_load_from_cache

    found = [
        try_to_load_from_cache(
            source.repository, file.path, revision=source.revision, repo_type="dataset"
        )
        for file in source.files
    ]
    return Path(found[0]).parent if all(isinstance(path, str) for path in found) else None


def _download(source) -> Path:
    """Fetch the pinned files through the hub's cache and check them; their folder, or OSError."""
    from huggingface_hub import hf_hub_download

    for file in source.files:
        path = Path(
            hf_hub_download(
                source.repository,
                file.path,
                revision=source.revision,
                repo_type="dataset",
                endpoint=_endpoint(),
            )
        )
        with path.open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != file.sha256:
                raise ValueError(
                    f"{path} is not the file that was pinned (SHA-256 differs): delete it and run again"
                )
    return path.parent


def _announce(source, why: str) -> None:
    print(
        f"{source.name} is missing: DATA_DIR is not set, data/{source.name} does not exist and {why};"
        f" on a connected machine `{source.command}` fetches it; {source.stand_in} run instead."
    )
