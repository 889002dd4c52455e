"""The statements of a paper and the claims that check them, read from
`statements.toml`.

A table with a topic is a statement. Each of the statement's `rows` is a claim, with
these entries: the id, the bound, the source, the altered copies in which the claim must
fail, the text, a remark, and the remark to give if the claim fails. "{room}" at the end
of a remark is replaced by how much tighter the bound could be. An empty source means
that the claim is the paper's. The source "our constant" means that we check the paper's
sentence with a constant of our own. The source "ours, beside" means that the claim is a
sharper statement of our own. If the file has a text under NAME at its top, this text
replaces <NAME> everywhere in the file. `same_as` in a statement's table maps a row's id
to the id of the row whose measurement it repeats (`companion.ledger.measurements`).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from companion import claims, ledger
from companion.claims import Claim
from companion.ledger import Statement
from lib.files import read_table


class Stated:
    """The `statements` of a paper by number, and the claims that its file lists."""

    def __init__(self, paper: str, path: Path) -> None:
        self.paper = paper
        self._rows: dict[str, tuple[str, ...]] = {}
        self._same_as: dict[str, str] = {}
        self.statements: dict[str, Statement] = {}
        tables: dict[str, Any] = read_table(path)
        texts: dict[str, str] = {}

        def whole(text: str):
            return " ".join(
                re.sub("<([A-Z]+)>", lambda name: texts[name[1]], text).split()
            )

        for number, known in tables.items():
            if isinstance(known, str):
                texts[number] = known
                continue
            if "topic" in known:
                says, why = (whole(known.get(part, "")) for part in ("says", "why"))
                self.statements[number] = Statement(
                    topic=known["topic"], says=says, why=why
                )
            for id, *row in known.get("rows", []):
                self._rows[id] = number, *map(whole, row)
            self._same_as |= known.get("same_as", {})

    def claim(
        self,
        id: str,
        values: Any,
        *names: str | float,
        say: Sequence[Any] = (),
        number: str = "",
        bound: str = "",
        **more: Any,
    ) -> Claim:
        """Check `values` against the bound of the claim `id`.

        `values` is one number, or an array with one number per seed. For an array the
        claim is about the worst number, and also states the interval of the mean.
        `names` are appended to the id. `names` and `say` fill the gaps "{}" in the text
        of the claim. `number` and `bound` replace the statement's number and the bound
        in the file. `more` is passed to `companion.claims.bounded`. The method raises
        KeyError if the file does not list the id.
        """
        home, asked, source, _, words, *remarks = self._rows[id]
        paper = f"paper {self.paper}, {number or home}"
        if np.ndim(values):
            more["interval"] = claims.interval(values)
        if source.startswith("our "):
            source = f"{paper} ({source})"
        if source == "ours, beside":
            source = f"{source} {paper}"
        else:
            source = source or paper
        more = dict(zip(("remark", "why"), remarks, strict=False)) | more
        more.setdefault("same_as", self._same_as.get(id, ""))
        short = []
        for name in names:
            if not isinstance(name, str):
                name = f"{name:g}"
            short.append(name)
        text = words.format(*short, *say)
        made = claims.bounded(
            ".".join((id, *short)), text, source, bound or asked, values, **more
        )
        room = f"room: the bound could be {claims.number(made.margin)} times as tight"
        return replace(made, remark=made.remark.replace("{room}", room))

    def mean(self, id: str, values: np.ndarray, **more: Any) -> Claim:
        """Check the mean of `values` (repeats,) against the claim `id`, with the
        interval of the mean.

        If there is only one value, there is no interval.
        """
        if np.size(values) > 1:
            ends = claims.interval(values)
        else:
            ends = None
        return self.claim(id, np.mean(values), interval=ends, **more)

    def claims(self, values: Mapping[str, Any], *names: str | float) -> list[Claim]:
        """Check several claims, given their values by id."""
        return [self.claim(id, value, *names) for id, value in values.items()]

    def rows(
        self, setting: str, seeds: int | None, made: Iterable[Claim], number: str = ""
    ) -> Iterator[Claim]:
        """Yield the claims as rows of the ledger.

        Each row is under the statement of its claim or, if `number` is given, under
        that statement.
        """
        for claim in made:
            parts = claim.id.split(".")
            starts = (".".join(parts[:k]) for k in range(len(parts), 0, -1))
            home, _, _, worlds, *_ = next(
                self._rows[id] for id in starts if id in self._rows
            )
            families = tuple(filter(None, worlds.split(", ")))
            about = dict(fails_if=families, remark=claim.remark)
            yield from ledger.rows(number or home, setting, seeds, claim, **about)
