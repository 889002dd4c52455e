"""Figure records as readers get them: one that is missing, damaged or of another schema is never an
error.

What can be read is kept, and the troubles say in words what cannot.
"""

import json
from pathlib import Path

SCHEMA = 1
KINDS = {  # what a record of today's schema holds
    "paper": str,
    "figure": str,
    "caption": str,
    "notebook": str,
    "parameters": dict,
    "seeds": list,
    "data": list,
    "claims": list,
    "numbers": dict,
    "provenance": dict,
}
OF_CLAIM = ("id", "statement", "source", "measured", "bound", "holds")


def read(path: Path) -> tuple[dict, list[str]]:
    """The record with every key of KINDS, and what is wrong with it."""
    name = f"figures/{path.parent.name}/{path.name}"
    empty = {key: kind() for key, kind in KINDS.items()}
    if not path.exists():
        return empty, [f"There is no record {name}; running its notebook makes it."]
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return empty, [f"The record {name} cannot be read: {type(error).__name__}."]
    if not isinstance(held, dict):
        return empty, [f"The record {name} is not a record."]
    record = {
        key: held[key] if isinstance(held.get(key), kind) else kind() for key, kind in KINDS.items()
    }
    record["alt"] = held.get("alt") if isinstance(held.get("alt"), str) else ""
    lacking = [key for key, kind in KINDS.items() if not isinstance(held.get(key), kind)]
    troubles = []
    for key, readable in (("claims", _is_claim), ("data", _is_data)):
        whole = [row for row in record[key] if readable(row)]
        lacking += (
            [f"{len(record[key]) - len(whole)} of {len(record[key])} {key}"]
            if whole != record[key]
            else []
        )
        record[key] = whole
    whole = {name: row for name, row in record["numbers"].items() if _is_number(row)}
    lacking += [name for name in record["numbers"] if name not in whole]
    record["numbers"] = whole
    if held.get("schema") != SCHEMA or lacking:
        schema = f"schema {held.get('schema', 'none')}" + (
            "" if held.get("schema") == SCHEMA else f", not {SCHEMA}"
        )
        gone = f"; missing or unreadable: {', '.join(lacking)}" if lacking else ""
        troubles.append(f"The record {name} has {schema}{gone}.")
    return record, troubles


def _plain(value):
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _is_claim(row):
    return isinstance(row, dict) and all(key in row for key in OF_CLAIM) and _plain(row["measured"])


def _is_data(row):
    return isinstance(row, dict) and {"name", "source"} <= row.keys()


def _is_number(row):
    return isinstance(row, dict) and _plain(row.get("value", "")) and _plain(row.get("tolerance"))
