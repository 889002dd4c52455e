"""The atlas as claims: what each rule was predicted to maximise, beside what it reached.

Criteria of notebooks/atlas_protocol.md: a norm is reached where the ratio is at least REACHED in
every run; a run that selects nothing fails.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from lib.companion.claims import Claim, at_least, at_most
from papers.beyond.atlas import NORMS, Ratios, column
from papers.beyond.atlas_rules import BATCHES, OURS, TENTH, Row

REACHED = 0.99
# of a ratio: the certified gap of a token SVM is at most 1e-7
ROUNDING = 1e-6
SOURCE = "ours, beyond paper A's Theorem 1"


def _claim(judge, what, name, statement, value, bound, why="", by=OURS):
    """The claim atlas.`what`.`name`; by: whose theorem predicted it, OURS where nobody else's."""
    source = SOURCE if by == OURS else f"ours, measured; predicted by {by}"
    return judge(f"atlas.{what}.{word(name)}", statement, source, value, bound, why=why)


def word(name: str) -> str:
    """A rule's name as part of a claim's id."""
    return "_".join("".join(c if c.isalnum() else " " for c in name).split())


def own(name: str, norm: str, reached: Ratios, by: str = OURS) -> Claim:
    """The least ratio of all runs in the rule's `norm`, at the last record."""
    text = f"{name}: margin over the largest in its own norm, {norm}; least of all runs"
    ratios = reached.value[..., column(norm)]
    why = "The ratio no longer rises in every run"
    if (ratios[:, -1] > ratios[:, -3:][:, 0]).all():
        why = f"The ratio still rises at the last step, {reached.iterations[-1]:,}"
    return _claim(at_least, "own", name, text, ratios[:, -1].min(), REACHED, why, by)


def _lower(name, norm, reached, by):
    """Every other norm's ratio is lower, in every run."""
    text = f"{name}: largest ratio in another norm less that in {norm}, largest of all runs"
    k = column(norm)
    excess = (np.delete(reached.last, k, 1).max(1) - reached.last[:, k]).max()
    return _claim(at_most, "lower", name, text, excess, -ROUNDING, by=by)


def _none_reached(name, reached):
    """No norm is reached: the largest over norms of the least ratio of all runs."""
    text = f"{name}: reaches no norm; its best least ratio of all runs"
    return _claim(at_most, "none", name, text, reached.last.min(0).max(), REACHED - ROUNDING)


def ranked(last: np.ndarray, norms: Sequence[str], norm: str) -> tuple[float, str]:
    """The share of runs whose largest ratio in `last` (runs, norms) is in `norm`; where all are."""
    largest = last[np.isfinite(last).all(1)].argmax(1)
    nearest_to = " and ".join(norms[k] for k in np.unique(largest)) or "no norm"
    return (largest == norms.index(norm)).sum() / len(last), nearest_to


def nearest(name: str, norm: str, reached: Ratios, by: str = OURS) -> Claim:
    """In at least half of the runs the largest ratio is that of `norm`."""
    text = f"{name}: share of runs whose largest ratio is in {norm}"
    share, nearest_to = ranked(reached.last, list(NORMS), norm)
    why = f"The prediction is refuted here: nearest to {nearest_to}"
    return _claim(at_least, "nearest", name, text, share, 0.5, why, by)


def memories(by_rule: Mapping[str, Ratios]) -> list[Claim]:
    """Adam by beta_2: with a short memory it is nearer to l_inf than with a long one."""
    statement = "Adam: ratio in l_inf at beta_2 = 0.99 less that at 0.9999, least of all runs"
    excess = (by_rule["0.99"].last - by_rule["0.9999"].last)[:, column("l_inf")].min()
    return [at_least("atlas.memory", statement, SOURCE, excess, 0.1)]


def growing(rows: Mapping[str, Row], by_rule: Mapping[str, Ratios]) -> list[Claim]:
    """With growing steps, the least ratio of all runs in the own norm: reached by one rule only."""
    claims = []
    for name, row in rows.items():
        lowest = by_rule[name].last[:, column(row.highest)].min()
        text = f"{name}, steps like t^(1/2): least ratio of all runs in {row.highest}"
        judge, bound = (at_least, REACHED) if row.reached else (at_most, REACHED - ROUNDING)
        claims.append(_claim(judge, "growing", name, text, lowest, bound, _why(by_rule[name])))
    return claims


def batches(reached: Mapping[str, Mapping[int, Ratios]], norms: Mapping[str, str]) -> list[Claim]:
    """The own norm needs all samples: it is not reached on fewer, and its ratio rises to them."""
    claims = []
    for name, by_size in reached.items():
        k, sizes = column(norms[name]), sorted(by_size)
        best = max(by_size[size].last[:, k].min() for size in sizes[:-1])
        rise = np.diff([np.median(by_size[size].last[:, k]) for size in sizes]).min()
        why, low = _why(by_size[sizes[0]]), REACHED - ROUNDING
        text = f"{name}: best least ratio in {norms[name]} on fewer than all samples a step"
        claims.append(_claim(at_most, "batch", name, text, best, low, why, BATCHES))
        text = f"{name}: least rise of the median ratio from one batch size to the next"
        claims.append(_claim(at_least, "rise", name, text, rise, 0.0, why))
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


def worlds(rows: Mapping[str, Row], by_rule: Mapping[str, Ratios]) -> dict[str, Mapping]:
    """Ratios in wrong worlds: best margins off, or a norm's rule judged by the next one's run."""
    names = [name for name, row in rows.items() if row.reached is not None]
    after = dict(zip(names, names[1:] + names[:1], strict=True))
    scaled = lambda by: {name: replace(one, value=by * one.value) for name, one in by_rule.items()}
    return {
        "best margins 2 % large": scaled(0.98),
        "best margins 2 % small": scaled(1.02),
        "rules exchanged": {name: by_rule[after.get(name, name)] for name in by_rule},
    }
