"""When a rerun reproduces a record: its numbers within tolerance, all that is fixed the same."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lib import files
from lib.companion import pictures


def read(path: Path) -> dict:
    """The record in a file; ValueError, with the file's name, where it holds anything else."""
    return checked(files.read_object(path), path)


def checked(record: Mapping, name: object) -> dict:
    """The record of the file `name`; ValueError where a part that is compared is of another kind.

    A record may have been edited by hand, cut off, or come from a merge that went wrong.
    """
    wrong = [key for key, kind in _KINDS.items() if not isinstance(record.get(key), kind)]
    for key, of_row in (("data", _is_data), ("claims", _is_claim)):
        wrong += (
            [] if key in wrong else [f"a row of {key}" for row in record[key] if not of_row(row)]
        )
    if "numbers" not in wrong:
        wrong += [f"number {key}" for key, row in record["numbers"].items() if not _is_number(row)]
    if wrong:
        raise ValueError(f"{name} is damaged: it lacks {', '.join(dict.fromkeys(wrong))}")
    return dict(record)


_KINDS = dict(notebook=str, parameters=dict, data=list, claims=list, numbers=dict, provenance=dict)


def _is_data(row) -> bool:
    return isinstance(row, dict) and isinstance(row.get("name"), str) and "source" in row


def _is_claim(row) -> bool:
    return (
        isinstance(row, dict)
        and isinstance(row.get("id"), str)
        and isinstance(row.get("holds"), bool)
    )


def _is_number(row) -> bool:
    if not isinstance(row, dict) or "value" not in row:
        return False
    value = 0.0 if row["value"] is None else row["value"]
    return all(
        isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x)
        for x in (value, row.get("tolerance"))
    )


@dataclass(frozen=True)
class Difference:
    """A number that a rerun did not reproduce; `new` is None when it has no value or is gone."""

    name: str
    new: float | None
    old: float | None
    tolerance: float

    def __str__(self) -> str:
        return f"{self.name} is {self.new}, committed {self.old} ± {self.tolerance}"


def compare(new: Mapping, old: Mapping) -> list[Difference]:
    """The numbers of `old` that `new` does not reproduce within the tolerance stated in `old`."""
    differences = []
    for name, row in old["numbers"].items():
        value, expected = new["numbers"].get(name, {}).get("value"), row["value"]
        if value is None or expected is None:
            same = value is expected and name in new["numbers"]
        else:
            same = abs(value - expected) <= row["tolerance"]
        if not same:
            differences.append(Difference(name, value, expected, row["tolerance"]))
    return differences


def reproduces(new: Mapping, picture: bytes, place: Path) -> bool:
    """Whether a run reproduces the figure of the record at `place`.

    `new` is the record that the run gave, `picture` its PNG. It does where numbers agree within
    tolerance, claims ask and find the same, parameters, data and words are those of before, and the
    pictures show the same. That of a smoke run on embedded data is not asked: single precision
    trains another network on each processor. A figure with a missing or damaged file is not
    reproduced.
    """
    if not all(place.with_suffix(end).is_file() for end in (".png", ".pdf", ".json")):
        return False
    try:
        old = read(place)
        return (
            all(new.get(key) == old.get(key) for key in _FIXED)
            and _measured(new["alt"]) == _measured(old["alt"])
            and _same_tolerances(new["numbers"], old["numbers"])
            and [_asked(claim) for claim in new["claims"]]
            == [_asked(claim) for claim in old["claims"]]
            and not compare(new, old)
            and (_smoke(new) or pictures.same(picture, place.with_suffix(".png").read_bytes()))
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


_FIXED = "schema paper figure caption notebook scale parameters setting seeds data".split()


def _smoke(record: Mapping) -> bool:
    return any(row["source"] == "demo" for row in record["data"])


def _measured(alt: str) -> str:
    """The words of a picture, in which a measured number of a title may move a little."""
    return re.sub(r"\d+\.\d\d+", "#", alt)


def _same_tolerances(new: Mapping, old: Mapping) -> bool:
    # Nearly, since one that is a share of its number moves a little with it.
    pairs = [(new[name]["tolerance"], old[name]["tolerance"]) for name in new.keys() & old.keys()]
    return new.keys() == old.keys() and all(math.isclose(*pair, rel_tol=0.1) for pair in pairs)


def _asked(claim: Mapping) -> tuple:
    words = tuple(claim[key] for key in ("id", "statement", "source", "bound", "holds"))
    remark = re.sub(r"[\d.]+", "#", claim.get("remark", ""))  # its numbers may move a little
    return *words, claim.get("kind"), claim.get("catches"), remark
