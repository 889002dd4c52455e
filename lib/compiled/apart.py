"""Compilation in a process of its own: LLVM never gives back the up to 450 MB it took."""

import inspect
import os
import pickle
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import numba


def call(function, *values):
    """`function(*values)`, compiled by another process into numba's cache.

    function: at the top level of a module, `numba.njit(cache=True)`. No process begins where
    it was compiled here or the cache has it; where that is stale, or the process fails,
    the call compiles it here."""
    if function.signatures or _kept(function):
        return function(*values)
    # a default has a type of its own
    defaults = list(inspect.signature(function.py_func).parameters.values())[len(values) :]
    omitted = (numba.types.Omitted(left.default) for left in defaults)
    task = function.__module__, function.__name__, (*map(numba.typeof, values), *omitted)
    seen = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    # -P: a folder `lib` where the caller works is not this one
    command = [sys.executable, "-P", "-m", "lib.compiled.apart"]
    with suppress(OSError):
        subprocess.run(command, input=pickle.dumps(task), env=seen, capture_output=True)
    return function(*values)


def _kept(function) -> bool:
    name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"  # as numba names it
    return any(Path(function.stats.cache_path).glob(f"{name}-*.nbi"))


if __name__ == "__main__":
    module, name, types = pickle.load(sys.stdin.buffer)
    getattr(import_module(module), name).compile(types)
