"""The cache of compiled functions, told when a function that stands in another file changes."""

import zlib
from pathlib import Path


def stamp(caller: str) -> int:
    """A number that changes with any source file of this folder and of the folder of `caller`.

    `caller` is a module's `__file__`. numba keeps compiled functions on disk by the file they stand
    in and by their signature. As the default of an argument that nobody passes, the stamp makes
    what a function calls in other files part of its signature.
    """
    folders = {Path(__file__).parent, Path(caller).parent}
    return zlib.crc32(
        b"".join(
            path.read_bytes() for folder in sorted(folders) for path in sorted(folder.glob("*.py"))
        )
    )
