"""The README's table of figures: one finding in words per figure, whose numbers are always those of its record."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from lib import files

ROW = re.compile(r"\| \[`(?P<slug>\w+)`\]\(figures/(?P<scale>\w+)/\w+\.png\)")
# A number, perhaps in percent, and the name under which the record holds it.
QUOTED = re.compile(r"(?P<shown>[-−]?\d+(?:\.\d+)?)(?P<percent> %)? \(`(?P<name>\w+)`\)")


@dataclass(frozen=True)
class Finding:
    """One row of the table; command and minutes are those of its notebook, also where the row says "the same"."""

    slug: str
    scale: str
    command: str
    minutes: str
    text: str

    @property
    def names(self) -> list[str]:
        """The numbers of the record that the text quotes, in its order."""
        return list(dict.fromkeys(match["name"] for match in QUOTED.finditer(self.text)))

    def sentence(self, record: Mapping) -> str:
        """The text with each quoted number as `record` has it, at the precision of the README and
        without its name.

        The count of claims at the end is left out: whoever shows the sentence counts them.
        """
        numbers = record.get("numbers", {})
        text = QUOTED.sub(lambda match: _value(match, numbers), self.text)
        text = re.sub(
            r"\[([^]]*)\]\((?!https?:)[^)]*\)", r"\1", text
        )  # links into the repository lead nowhere else
        return re.sub(r"[;,.]?\s*\**\d+/\d+(?: claims hold)?\**$", "", text).strip()


def precisely(value: float, shown: str, percent: bool) -> str:
    """`value`, in percent if asked, with as many decimals as the text `shown` has."""
    places = -Decimal(shown.replace("−", "-")).as_tuple().exponent
    return f"{round(Decimal(repr(float(value))) * (100 if percent else 1), places):f}"


def _value(match, numbers):
    value = numbers.get(match["name"], {}).get("value")
    if value is None:
        return f"no value of {match['name']}"
    return precisely(value, match["shown"], bool(match["percent"])) + (match["percent"] or "")


def read(text: str | None = None) -> list[Finding]:
    """The rows of the README's table of figures, in its order; none where there is no README."""
    path = files.ROOT / "README.md"
    if text is None:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
    found, command, minutes = [], "", ""
    for line in text.splitlines():
        if match := ROW.match(line):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            command, minutes = (
                (cells[2], cells[3]) if cells[2] != "the same" else (command, minutes)
            )
            found.append(Finding(match["slug"], match["scale"], command, minutes, cells[4]))
    return found
