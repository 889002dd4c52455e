"""When a rerun reproduces a record: its numbers within tolerance, all that is fixed the same."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lib import files
from lib.companion import drawn_data


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


def reproduces(new: Mapping, place: Path) -> bool:
    """Whether the run that gave the record `new` reproduces the figure of the record at `place`.

    It does where numbers agree within tolerance, claims ask and find the same, and parameters,
    data, words and drawn data are those of before. A figure with a missing or damaged file is not
    reproduced.
    """
    if not all(place.with_suffix(end).is_file() for end in (".png", ".pdf", ".json")):
        return False
    try:
        old = files.read_object(place)
        return (
            all(new[key] == old.get(key) for key in _FIXED)
            and _tolerances(new) == _tolerances(old)
            and [_asked(claim) for claim in new["claims"]]
            == [_asked(claim) for claim in old["claims"]]
            and not compare(new, old)
            and drawn_data.same(new["drawn"], old.get("drawn"))
        )
    except (ValueError, KeyError, TypeError):
        return False


_FIXED = "schema paper figure caption alt notebook scale parameters seeds data".split()


def _tolerances(record: Mapping) -> dict[str, str]:
    # In one digit, since one that is a share of its number moves a little with it.
    return {name: f"{row['tolerance']:.0e}" for name, row in record["numbers"].items()}


def _asked(claim: Mapping) -> tuple:
    words = tuple(claim[key] for key in ("id", "statement", "source", "bound", "holds"))
    remark = re.sub(r"[\d.]+", "#", claim.get("remark", ""))  # its numbers may move a little
    return *words, claim.get("kind"), claim.get("catches"), remark
