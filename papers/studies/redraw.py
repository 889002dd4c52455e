"""Draw every figure and verdict of the real-data studies from their stored runs.

The pictures show the runs with fresh seeds, with the verdicts that page 51 records.

`python -m papers.studies.redraw [STUDY ...] [--out FOLDER]` writes one PNG per picture
to runs/redrawn/ and prints each study's verdicts in words. It trains nothing. If all
studies are drawn, the command also prints the p values of all verdicts of the first
round. If a study has no stored curves, the command says so and leaves the study out.
"""

import argparse
import textwrap
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from companion import headlines, plots, record
from companion.claims import Claim, Table
from lib import files
from papers import verdicts
from papers.studies import judged_reviews, kept_curves, reviews, second_round, speed


def _recorded(study: second_round.Study) -> Table:
    """Return the verdicts that page 51 records on the claims of a study."""
    return study.claims


# For each picture, by study and then by slug: the function that returns its claims, and
# the function that draws it. Both take what `second_round.read` returns.
PICTURES: dict[str, dict[str, tuple[Callable, Callable]]] = {
    kept_curves.STUDIES[name]: {slug: (_recorded, second_round.draw)}
    for name, slug in second_round.FIGURES.items()
}


def _beside_larger(study: second_round.Study, kind: str) -> Figure:
    """Draw one kind of claims on reviews, with the network of the paper's size."""
    return judged_reviews.draw(study, kept_curves.kept("imdb_paper"), kind)


PICTURES[kept_curves.STUDIES["imdb"]] = {
    about.slug: (
        partial(judged_reviews.claims, kind=kind),
        partial(_beside_larger, kind=kind),
    )
    for kind, about in judged_reviews.KINDS.items()
}
# The short name of a study's figure, by the name of the study.
FIGURES = {study: figure for figure, study in kept_curves.STUDIES.items()}

# The reduced network's claims on film reviews belong to the family of 24, as its
# protocol says. The claims on the network of the paper's size ("imdb_paper") form a
# separate family of seven, which page 33 prints.
REVIEWS = kept_curves.STUDIES["imdb"]
REVIEW_TABLES = (
    reviews.accuracy_table,
    reviews.sparsity_table,
    reviews.attention_table,
)
# We read paper A's sentence "norms grow" as a claim only after the runs, so that this
# claim is in no family.
LATER = "fig7.grows."

# These claims were decided at first. We dropped them later, because the papers do not
# make them, or because the rule that they are about is no longer run.
GIVEN_UP = ("fig7.adam", "fig7.growth.sps", "vit.end")


# The claims of the first round, by study.
FIRST_ROUND: dict[str, list[Callable]] = {
    kept_curves.STUDIES[name]: [partial(speed.table, figure=name)]
    for name in speed.CLAIMED
}
FIRST_ROUND[kept_curves.STUDIES["vit"]] = [reviews.vision_table]
FIRST_ROUND[REVIEWS] = list(REVIEW_TABLES)


def _judged() -> dict[str, Claim]:
    """Return every claim of the first round that has a verdict, by id."""
    found = {}
    for study, tables in FIRST_ROUND.items():
        curves = kept_curves.kept(study)
        for table in tables:
            for claim in table(curves):
                if claim.verdict:
                    found[claim.id] = claim
    return found


def _family() -> dict[str, tuple[Claim, float]]:
    """Return every claim of the family with its p adjusted by Holm's rule, by id and in
    ascending order of p.

    A claim that was dropped, or could not be decided, enters Holm's rule with p = 1. So
    dropping it makes no other verdict easier to reach.
    """
    claims = {id: claim for id, claim in _judged().items() if not id.startswith(LATER)}
    p = dict.fromkeys(GIVEN_UP, 1.0)
    for name, claim in claims.items():
        p[name] = 1.0 if claim.p is None else claim.p
    adjusted = verdicts.holm(p)
    return {name: (claims[name], p) for name, p in adjusted.items() if name in claims}


def _family_table(claims: dict[str, tuple[Claim, float]]) -> str:
    """Write `_family` as a table: p, p within the family, claim and verdict."""
    lines = [f"{'p':>8} {'Holm':>8}  {len({*claims, *GIVEN_UP})} claims of the studies"]
    for name, (claim, p) in claims.items():
        alone = 1.0 if claim.p is None else claim.p
        lines.append(f"{alone:8.2g} {p:8.2g}  {name}: {claim.verdict}")
    return "\n".join(lines)


def _redraw(study: str, out: Path) -> list[str]:
    """Draw the pictures of `study` into the folder `out`, and return lines with their
    names and verdicts.
    """
    runs = second_round.read(FIGURES[study])
    lines = []
    for slug, (table, draw) in PICTURES[study].items():
        figure = draw(runs)
        path = files.ROOT / "figures" / "desk" / f"{slug}.json"
        if path.exists():  # the record says whether the headline is true
            plots.heading(figure, *headlines.above(slug, record.read(path)))
        figure.savefig(out / f"{slug}.png")
        lines += [slug, textwrap.indent(table(runs).words(), "  ")]
    return lines


def main(words: list[str] | None = None) -> int:
    """Run the command line; return 0, or 1 if a study could not be redrawn.

    `words` are the arguments, by default those of the process.
    """
    parser = argparse.ArgumentParser(
        prog="python -m papers.studies.redraw", description=__doc__
    )
    meaning = f"of {', '.join(PICTURES)}; default all"
    parser.add_argument("study", nargs="*", metavar="STUDY", help=meaning)
    parser.add_argument("--out", type=Path, default=files.folder("runs") / "redrawn")
    asked = parser.parse_args(words)
    if unknown := [name for name in asked.study if name not in PICTURES]:
        parser.error(f"{', '.join(unknown)}: none of {', '.join(PICTURES)}")
    asked.out.mkdir(parents=True, exist_ok=True)
    plots.set_style()
    began = time.perf_counter()
    missing = False
    for study in asked.study or PICTURES:
        try:
            print("\n".join(_redraw(study, asked.out)), flush=True)
        except (OSError, ValueError) as error:
            missing = True
            print(f"{study}: not redrawn: {error}", flush=True)
    if not (asked.study or missing):
        print(_family_table(_family()))
    print(f"{time.perf_counter() - began:.1f} s; pictures in {asked.out}")
    return int(missing)


if __name__ == "__main__":
    raise SystemExit(main())
