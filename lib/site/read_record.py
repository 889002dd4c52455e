"""Figure records as readers get them: a damaged one, or one of another schema, is no error.

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
OPTIONAL = {
    "alt": str,
    "setting": dict,
    "statements": dict,
}  # statements: of a ledger, {number: {says, why}}
OF_CLAIM = {"id", "statement", "source", "measured", "bound", "holds"}


def read(path: Path) -> tuple[dict, list[str]]:
    """The record with every key of KINDS and OPTIONAL, and what is wrong with it."""
    name = f"figures/{path.parent.name}/{path.name}"
    empty = {key: kind() for key, kind in (KINDS | OPTIONAL).items()}
    if not path.exists():
        return empty, [f"There is no record {name}; running its notebook makes it."]
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        return empty, [f"The record {name} cannot be read: {type(error).__name__}."]
    if not isinstance(held, dict):
        return empty, [f"The record {name} is not a record."]
    sound = {key: held[key] for key in empty if isinstance(held.get(key), type(empty[key]))}
    record, lacking = empty | sound, [key for key in KINDS if key not in sound]
    for key, readable in (("claims", _is_claim), ("data", _is_data)):
        rows = record[key]
        record[key] = [row for row in rows if readable(row)]
        if record[key] != rows:
            lacking.append(f"{len(rows) - len(record[key])} of {len(rows)} {key}")
    for part, readable in (("numbers", _is_number), ("statements", _is_statement)):
        rows = record[part]
        record[part] = {key: row for key, row in rows.items() if readable(row)}
        lacking += [key for key in rows if key not in record[part]]
    return record, _troubles(name, held.get("schema", "none"), lacking)


def _troubles(name, schema, lacking):
    other = f", not {SCHEMA}" if schema != SCHEMA else ""
    gone = f"; missing or unreadable: {', '.join(lacking)}" if lacking else ""
    return [f"The record {name} has schema {schema}{other}{gone}."] if other or gone else []


def _plain(value):
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _is_claim(row):
    if not (isinstance(row, dict) and OF_CLAIM <= row.keys() and _plain(row["measured"])):
        return False
    texts = ("id", "statement", "source", "bound", "kind", "setting", "number", "remark", "verdict")
    lists = [row.get(name) or [] for name in ("catches", "fails_if", "interval")]
    return (
        all(isinstance(row.get(name, ""), str) for name in texts)
        and all(isinstance(values, list) for values in lists)
        and all(isinstance(word, str) for words in lists[:2] for word in words)
        and all(map(_plain, lists[2]))
    )


def _is_data(row):
    return isinstance(row, dict) and all(isinstance(row.get(k), str) for k in ("name", "source"))


def _is_statement(row):
    return isinstance(row, dict) and all(isinstance(text, str) for text in row.values())


def _is_number(row):
    return isinstance(row, dict) and _plain(row.get("value", "")) and _plain(row.get("tolerance"))
