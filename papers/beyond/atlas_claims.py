"""The atlas as claims: what each rule was predicted to maximise, beside what it reached.

Criteria of notebooks/atlas_protocol.md: a norm is reached where the ratio is at least REACHED in
every run. A run that selects nothing has no ratio, and fails what it is asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from lib.companion.claims import Claim, at_least, at_most, remarked
from papers.beyond.atlas import NORMS, Ratios, column
from papers.beyond.atlas_rules import BATCHES, OURS, TENTH, Row

REACHED = 0.99
JUDGED_AT = 1_000_000  # steps
ROUNDING = 1e-6  # of a ratio: the certified gap of a token SVM is at most 1e-7
SOURCE = "ours, beyond paper A's Theorem 1"


def _source(by):
    """The source of a row's claims: whose theorem predicted it, or that nobody else's did."""
    return SOURCE if by == OURS else f"ours, measured; predicted by {by}"


def word(name: str) -> str:
    """A rule's name as part of a claim's id."""
    return "_".join("".join(c if c.isalnum() else " " for c in name).split())


def own(name: str, norm: str, reached: Ratios, by: str = OURS) -> Claim:
    """The least ratio of all runs in the rule's `norm`, at the last record."""
    statement = f"{name}: margin over the largest in its own norm, {norm}; least of all runs"
    ratios = reached.value[..., column(norm)]  # (runs, records)
    lowest, rises = ratios[:, -1].min(), (ratios[:, -1] > ratios[:, -3:][:, 0]).all()
    why = f"The ratio still rises at the last step, {reached.iterations[-1]:,}"
    claim = at_least(f"atlas.own.{word(name)}", statement, _source(by), lowest, REACHED)
    return remarked(claim, why if rises else "The ratio no longer rises in every run")


def _lower(name, norm, reached, by):
    """Every other norm's ratio is lower, in every run."""
    statement = f"{name}: largest ratio in another norm less that in {norm}, largest of all runs"
    k = column(norm)
    excess = (np.delete(reached.last, k, 1).max(1) - reached.last[:, k]).max()
    return at_most(f"atlas.lower.{word(name)}", statement, _source(by), excess, -ROUNDING)


def _none_reached(name, reached):
    """No norm is reached: the largest over norms of the least ratio of all runs."""
    statement = f"{name}: reaches no norm; its best least ratio of all runs"
    best = reached.last.min(0).max()
    return at_most(f"atlas.none.{word(name)}", statement, SOURCE, best, REACHED - ROUNDING)


def ranked(last: np.ndarray, norms: Sequence[str], norm: str) -> tuple[float, str]:
    """The share of runs whose largest ratio in `last` (runs, norms) is in `norm`; where all are.

    A run without ratios counts against.
    """
    largest = last[np.isfinite(last).all(1)].argmax(1)
    nearest_to = " and ".join(norms[k] for k in np.unique(largest)) or "no norm"
    return (largest == norms.index(norm)).sum() / len(last), nearest_to


def nearest(name: str, norm: str, reached: Ratios, by: str = OURS) -> Claim:
    """In at least half of the runs the largest ratio is that of `norm`."""
    statement = f"{name}: share of runs whose largest ratio is in {norm}"
    share, nearest_to = ranked(reached.last, list(NORMS), norm)
    claim = at_least(f"atlas.nearest.{word(name)}", statement, _source(by), share, 0.5)
    return remarked(claim, f"The prediction is refuted here: nearest to {nearest_to}")


def memories(found: Mapping[str, Ratios]) -> list[Claim]:
    """Adam by beta_2: with a short memory it is nearer to l_inf than with a long one."""
    statement = "Adam: ratio in l_inf at beta_2 = 0.99 less that at 0.9999, least of all runs"
    excess = (found["0.99"].last - found["0.9999"].last)[:, column("l_inf")].min()
    return [at_least("atlas.memory", statement, SOURCE, excess, 0.1)]


def growing(rows: Mapping[str, Row], found: Mapping[str, Ratios]) -> list[Claim]:
    """With growing steps, the least ratio of all runs in the own norm: reached by one rule only."""
    claims = []
    for name, row in rows.items():
        lowest = found[name].last[:, column(row.highest)].min()
        statement = f"{name}, steps like t^(1/2): least ratio of all runs in {row.highest}"
        judge, bound = (at_least, REACHED) if row.reached else (at_most, REACHED - ROUNDING)
        claim = judge(f"atlas.growing.{word(name)}", statement, SOURCE, lowest, bound)
        claims.append(remarked(claim, _why(found[name])))
    return claims


def batches(reached: Mapping[str, Mapping[int, Ratios]], norms: Mapping[str, str]) -> list[Claim]:
    """The own norm needs all samples: it is not reached on fewer, and its ratio rises to them."""
    claims = []
    for name, by_size in reached.items():
        k, sizes = column(norms[name]), sorted(by_size)
        best = max(by_size[size].last[:, k].min() for size in sizes[:-1])
        statement = f"{name}: best least ratio in {norms[name]} on fewer than all samples a step"
        id = f"atlas.batch.{word(name)}"
        low = at_most(id, statement, _source(BATCHES), best, REACHED - ROUNDING)
        rise = np.diff([np.median(by_size[size].last[:, k]) for size in sizes]).min()
        statement = f"{name}: least rise of the median ratio from one batch size to the next"
        rises = at_least(f"atlas.rise.{word(name)}", statement, SOURCE, rise, 0.0)
        claims += [remarked(claim, _why(by_size[sizes[0]])) for claim in (low, rises)]
    return claims


def _why(ratios):
    if ratios.iterations[-1] < TENTH:
        return f"The protocol judges after {TENTH:,} steps"
    return "The prediction is refuted here"


def bounded(reached: Mapping[str, Ratios]) -> Claim:
    """No ratio of any run at any time is above 1: the best margins are the best."""
    statement = "largest ratio of all rules, norms, runs and times"
    largest = max(np.nanmax(ratios.value) for ratios in reached.values())
    return at_most("atlas.bounded", statement, SOURCE, largest, 1 + ROUNDING)


def predictions(rows: Mapping[str, Row], reached: Mapping[str, Ratios]) -> list[Claim]:
    """What the protocol says of every row, judged."""
    claims = [bounded(reached)]
    for name, row in rows.items():
        if row.reached is not None:
            claims.append(own(name, row.reached, reached[name], row.source))
            claims.append(_lower(name, row.reached, reached[name], row.source))
        else:
            claims.append(_none_reached(name, reached[name]))
            claims.append(nearest(name, row.highest, reached[name], row.source))
    return claims


def _scaled(reached, factor):
    return {name: replace(ratios, value=factor * ratios.value) for name, ratios in reached.items()}


def _exchanged(reached, rows):
    """Every rule that was to reach a norm is judged by the run of the next such rule."""
    names = [name for name, row in rows.items() if row.reached is not None]
    turned = dict(zip(names, names[1:] + names[:1], strict=True))
    return {name: reached[turned.get(name, name)] for name in reached}


def worlds(rows: Mapping[str, Row], found: Mapping[str, Ratios]) -> dict[str, Mapping]:
    """Ratios as wrong worlds have them: the best margins off, the rules exchanged."""
    return {
        "best margins 2 % large": _scaled(found, 0.98),
        "best margins 2 % small": _scaled(found, 1.02),
        "rules exchanged": _exchanged(found, rows),
    }


def verdicts(rows: Mapping[str, Row], found: Mapping[str, Ratios]) -> str:
    """A line per rule: what was predicted, and the least and the median ratio in every norm."""
    lines = []
    for name, row in rows.items():
        last = found[name].last
        cells = "  ".join(
            f"{norm} {np.min(last[:, k]):.3f}/{np.median(last[:, k]):.3f}"
            for k, norm in enumerate(NORMS)
        )
        claims = predictions({name: row}, {name: found[name]})[1:]
        said = ", ".join("as predicted" if claim.holds else "NOT as predicted" for claim in claims)
        lines.append(f"{name:34} {cells}  [{said}]")
    return "\n".join(lines)
