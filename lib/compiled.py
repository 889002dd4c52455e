"""The cache of compiled functions, told when a function that stands in another file changes."""

import zlib
from pathlib import Path


def stamp(*modules: str) -> int:
    """A number that changes with the source of the named modules of `lib`.

    numba keeps compiled functions on disk by the file they stand in and by their signature. As the default of an
    argument that nobody passes, the stamp makes what a function calls in other files part of its signature.
    """
    folder = Path(__file__).parent
    return zlib.crc32(b"".join((folder / f"{module}.py").read_bytes() for module in modules))
