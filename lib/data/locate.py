"""Where real data sets are found, in a fixed order, and always with the place's name.

The order is `$DATA_DIR/<name>`, `data/<name>`, the hub at a pinned revision, and last a small
stand-in, embedded in a package or generated. A place that is named but broken is an error; only a
set that is nowhere gives way to its stand-in. What is read from the files is the business of
`images` and `texts`.
"""

import hashlib
import os
from pathlib import Path

from lib.data import hub, parquet
from lib.data.sources import Source
from lib.files import ROOT


def place(source: Source, demo: bool) -> tuple[str, Path | None]:
    """(data_dir | data | hub | demo, folder) of a set, downloaded if that is where it is.

    A stand-in that nobody asked for by `demo` is announced.
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


def locate(source: Source, demo: bool) -> tuple[str, Path | None]:
    """(place, folder): the first place of the module's order that has the set."""
    if os.environ.get("DATA_DIR"):
        return "data_dir", _data_dir(source.name, source.splits)
    folder = ROOT / "data" / source.name
    if folder.is_dir():
        return "data", folder
    if demo:
        return "demo", None
    folder = _cached(source)
    return ("hub", folder) if folder or hub.reachable() else ("demo", None)


def _data_dir(name: str, splits: tuple[str, str]) -> Path:
    """The folder of `name` under `$DATA_DIR`.

    A relative path counts from the working folder, else from the repository.
    """
    given = Path(os.environ["DATA_DIR"]).expanduser()
    places = [place for place in (given.absolute(), ROOT / given) if place.is_dir()]
    if not places:
        raise FileNotFoundError(
            f"DATA_DIR={given} is not a folder; point it at the folder that holds {name}/,"
            " or unset it"
        )
    for place in places:
        if (place / name).is_dir():
            return place / name
    wanted = " and ".join(f"{name}/{split}-*.parquet" for split in splits)
    raise FileNotFoundError(
        f"DATA_DIR={given} has no folder {name}/; put {wanted}"
        " there (data/README.md says which), or unset DATA_DIR"
    )


def identify(source: Source, where: str, folder: Path | None) -> dict:
    """{name, source, revision, rows} of a set in its place; no row of a file is read.

    `revision` is the first 16 hex digits of the SHA-256 of local files, the hub's revision, or the
    hash of a stand-in's rows; a stand-in says in `instead_of` what it stands for.
    """
    if where == "demo":
        return source.stand_in.identity() | {"instead_of": source.name}
    if where == "hub":
        revision, rows = source.revision, source.rows
    else:
        digest, rows = hashlib.sha256(), 0
        for split in source.splits:
            for path in parquet.files(folder, split):
                rows += parquet.count(path)
                digest.update(bytes.fromhex(hub.sha256(path)))
        revision = digest.hexdigest()[:16]
    return {"name": source.name, "source": where, "revision": revision, "rows": rows}


def _cached(source: Source) -> Path | None:
    """The folder of the pinned revision in the hub's own cache, if every file is there."""
    options = {"revision": source.revision, "repo_type": "dataset"}
    found = hub.cached(source.repository, source.files, **options)
    return found[0].parent if found else None


def _download(source: Source) -> Path:
    """Fetch the pinned files through the hub's cache and check them; their folder, or OSError."""
    options = {"revision": source.revision, "repo_type": "dataset"}
    paths = hub.fetch(source.repository, source.files, **options)
    hub.check(dict(zip(paths, source.files.values(), strict=True)))
    return paths[0].parent


def _announce(source: Source, why: str) -> None:
    print(
        f"{source.name} is missing: DATA_DIR is not set, data/{source.name} does not exist and"
        f" {why}; on a connected machine `{source.command}` fetches it; {source.stand_in.about}"
        " run instead."
    )
