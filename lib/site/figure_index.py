"""figures/index.toml: the notebooks in reading order, and what one sees in each of their figures.

Sentences there quote a record as {name:format}. Braces without a colon belong to a formula.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from lib import files

DATA = " DATA_DIR=..."
FIELD = re.compile(r"\{([^{}:]+):([^{}]*)\}")


@dataclass(frozen=True)
class Notebook:
    """One notebook: its stem, paper, the question it answers, minutes on 2 cores by scale."""

    name: str
    paper: str
    question: str
    minutes: Mapping[str, float | str]
    real_data: bool = False

    def command(self, scale: str) -> str:
        """What regenerates its figures at this scale."""
        data = DATA if self.real_data and scale != "demo" else ""
        chosen = "" if scale == "demo" else f"SCALE={scale} "
        return f"make figures {chosen}ARGS={self.name[:2]}{data}"


@dataclass(frozen=True)
class Entry:
    """One figure at its largest scale; `finding` or `failure` is its sentence in the README.

    `trains` names the study whose kept curves it draws, empty where its notebook computes it;
    `title` is its name, of no other figure.
    """

    notebook: Notebook
    slug: str
    scale: str
    sentence: str
    finding: str = ""
    failure: str = ""
    trains: str = ""
    title: str = ""

    @property
    def command(self) -> str:
        """What regenerates it; one that is drawn from kept curves needs no data."""
        command = self.notebook.command(self.scale)
        return command.removesuffix(DATA) if self.trains else command

    @property
    def names(self) -> list[str]:
        """The names that the sentence quotes, in its order."""
        return list(dict.fromkeys(name for name, _ in FIELD.findall(self.sentence)))


def quantities(record: Mapping) -> dict:
    """What a sentence may quote: numbers, else the setting, else the measured value of a claim.

    `claims` and `claims_that_hold` count the claims of the record; `<id>.p` is the p of a claim.
    """
    claims = record["claims"]
    return {
        **{claim["id"]: claim["measured"] for claim in claims},
        **{f"{claim['id']}.p": claim["p"] for claim in claims if "p" in claim},
        "claims": len(claims),
        "claims_that_hold": sum(claim["holds"] is True for claim in claims),
        **record["parameters"],
        **record.get("setting", {}),
        **{name: row["value"] for name, row in record["numbers"].items()},
    }


def filled(sentence: str, record: Mapping) -> str:
    """The sentence with the record's numbers: "{gap:.1%}" becomes "3.4 %".

    A quantity that the record lacks is named in its place, as "no value of gap".
    """
    known = quantities(record)

    def value(field):
        found = known.get(field[1])
        if found is None:
            return f"no value of {field[1]}"
        return format(found, field[2]).replace("%", " %")

    # Doubled braces, around a field that is an exponent, are one pair of a formula.
    return re.sub(r"\{\{([^{}]*)\}\}", r"{\1}", FIELD.sub(value, sentence))


def read(figures: Path) -> list[tuple[Notebook, list[Entry]]]:
    """Every notebook of the index in the folder `figures`, with the entries of its figures.

    None where there is no index. ValueError names the table that cannot be read.
    """
    found = []
    for name, table in files.read_table(figures / "index.toml").items():
        try:
            rows = table.pop("figure", [])
            notebook = Notebook(name, **table)
            found.append((notebook, [Entry(notebook, **row) for row in rows]))
            _check(notebook, found[-1][1])
        except (TypeError, AttributeError) as error:
            raise ValueError(f"figures/index.toml, [{name}]: {error}") from None
    return found


def _check(notebook: Notebook, rows: list[Entry]) -> None:
    """TypeError for a field of another kind than its class says."""
    for row in (notebook, *rows):
        for field in fields(row):
            value, text = getattr(row, field.name), field.type is str
            if text and not isinstance(value, str):
                raise TypeError(f"{field.name} is no text")
    if not isinstance(notebook.minutes, dict):
        raise TypeError("minutes is no table")


def entries(figures: Path) -> list[Entry]:
    """The entries of all figures, in reading order."""
    return [entry for _, found in read(figures) for entry in found]
