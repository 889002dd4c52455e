"""Store runs on disk one by one, so that an interrupted map of many runs can resume."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from companion.sources import closure
from lib import files
from lib.attention.token_sets import TokenSet
from lib.compiled import threads
from lib.dynamics import History, Rule, train


def train_kept(
    tokens: TokenSet,
    rules: Mapping[str, Rule],
    steps: int,
    record: Sequence[int],
    folder: Path,
) -> dict[str, History]:
    """Train by every rule from W_0 = 0, and store each run in a file under `folder`.

    A run that is already on disk is read instead of trained. The name of its file is a
    hash of the tokens, the settings of the rule, the number of steps, the recorded
    iterations and the code of the training loop. A run whose file is damaged is trained
    again. Runs of a rule that `lib` does not define, or that has a setting other than a
    number or a string, are not stored, because the name would not change with the code
    of such a rule. The function returns the histories by the names of `rules`, with one
    run per data set. It raises OSError if a file cannot be written.
    """
    folder = Path(folder)
    kept: dict[tuple[str, int], History] = {}
    with tqdm(desc="runs", total=len(rules) * len(tokens.X)) as bar:
        for name, rule in rules.items():
            if not _is_named_by_settings(rule):
                histories = train(tokens, rule, steps, record=record)
                for run in range(len(tokens.X)):
                    kept[name, run] = _apart(histories, run)
                    bar.update()
                continue
            places = [
                _place(tokens.run(run), rule, steps, record, folder)
                for run in range(len(tokens.X))
            ]
            missing = []
            for run, place in enumerate(places):
                try:
                    kept[name, run] = History.load(place)
                    bar.update()
                except (OSError, ValueError):  # the file is missing or damaged
                    missing.append(run)
            # An interrupt loses at most the runs that are trained together, one per
            # thread.
            for first in range(0, len(missing), threads.count()):
                now = missing[first : first + threads.count()]
                histories = train(tokens.take(now), rule, steps, record=record)
                for k, run in enumerate(now):
                    kept[name, run] = _apart(histories, k)
                    kept[name, run].save(places[run])
                    bar.update()
    return {
        name: _together([kept[name, run] for run in range(len(tokens.X))])
        for name in rules
    }


def _is_named_by_settings(rule: Rule) -> bool:
    """Return whether the `repr` of a rule and the code of `lib` determine its steps."""
    in_lib = type(rule).__module__.split(".")[0] == "lib"
    settings = [getattr(rule, setting.name) for setting in fields(rule)]
    return in_lib and all(isinstance(value, Real | str) for value in settings)


def _place(tokens: TokenSet, rule: Rule, steps: int, record: Any, folder: Path) -> Path:
    """Return the path of the file that holds the run on `tokens`, which have a single
    run.
    """
    arrays = [tokens.X, tokens.y, tokens.z, tokens.u, tokens.opt]
    if tokens.mask is not None:
        arrays.append(tokens.mask)
    key = repr((_code(), rule, steps, list(map(int, record)))).encode()
    content = key + b"".join(array.tobytes() for array in arrays)
    return folder / f"{files.sha256(content)}.npz"


@cache
def _code() -> str:
    """Return a hash of the code on which a trained path depends."""
    sources = closure("from lib.dynamics.in_coordinates import loop, training")
    return files.sha256(b"".join(path.read_bytes() for path in sources))


def _together(histories: Sequence[Any]) -> Any:
    """Join histories of one run each, with the same iterations, into one history of all
    runs.
    """
    first = histories[0]
    arrays = {}
    for name in (field.name for field in fields(first)):
        values = [getattr(history, name) for history in histories]
        if name == "iterations":
            arrays[name] = values[0]
        elif is_dataclass(values[0]):
            arrays[name] = _together(values)
        elif isinstance(values[0], dict):
            arrays[name] = {
                key: np.concatenate([value[key] for value in values])
                for key in values[0]
            }
        else:
            arrays[name] = np.concatenate(values)
    return type(first)(**arrays)


def _apart(history: Any, run: int) -> Any:
    """Extract the history of one run from a history of several."""
    row = slice(run, run + 1)
    arrays = {}
    for name in (field.name for field in fields(history)):
        value = getattr(history, name)
        if name == "iterations":
            arrays[name] = value
        elif is_dataclass(value):
            arrays[name] = _apart(value, run)
        elif isinstance(value, dict):
            arrays[name] = {key: each[row] for key, each in value.items()}
        else:
            arrays[name] = value[row]
    return type(history)(**arrays)
