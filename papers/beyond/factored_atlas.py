"""The atlas with (K, Q) trained: rules, the norms that they were predicted to maximise, claims.

Predictions and words are those of notebooks/networks_protocol.md, written before the runs that
judge them. Steps make the margins of K Q^T grow by about GROWTH a step: factors whose norms are
2 eta sqrt(t) have a product of norm 4 eta^2 t.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lib.attention.token_sets import TokenSet
from lib.companion.claims import Claim, at_least, at_most, remarked
from papers.beyond import atlas, atlas_rules, factor_norms
from papers.beyond.atlas_claims import ranked, word
from papers.beyond.engine import factored, training
from papers.beyond.engine import optimisers as o
from papers.beyond.engine.optimisers import Optimiser
from papers.beyond.factor_norms import NORMS, SIGN

COLUMNS = 10  # of K and Q
GROWTH = 0.02
GAMMA = {"nuclear": 0.19, "spectral": 0.65, SIGN: 1.3 * COLUMNS}  # typical largest margins
SOURCE = "ours, beyond 2308.16898, Section 3"
ROUNDING = 1e-6


@dataclass(frozen=True)
class FactorRow:
    """A rule on K and on Q, its prediction, and the same rule on W alone.

    norm: whose ratio was predicted to be the largest, in every run where `always`, else in half of
    them; least: the predicted bound on that ratio; alone_norm: the norm predicted for `alone`.
    """

    rule: Optimiser
    norm: str
    always: bool
    least: float
    alone: Optimiser
    alone_norm: str


def step(norm: str) -> float:
    """eta_0 of eta_t = eta_0 (t+1)^{-1/2} on each factor, by the norm that is maximised."""
    return float(np.sqrt(GROWTH / (4 * GAMMA[norm])))


def rows() -> dict[str, FactorRow]:
    """The rows of the map."""
    return {
        "gradient descent": _steepest("Frobenius", "nuclear", 0.9),
        "sign descent": _steepest("l_inf", SIGN, 0.75),
        "polar steps": _steepest("spectral", "spectral", 0.9),
        "Adam, 0.99": _adam(0.99, atlas_rules.step("l_inf") / 10),
        "Adam, 0.999": _adam(0.999, atlas_rules.step("l_inf") / 50),
    }


def _steepest(alone_norm, norm, least):
    """Steepest descent in `alone_norm` on each factor, predicted to maximise `norm`."""
    rule = o.steepest(atlas.NORMS[alone_norm], step(norm), 0.5)
    alone = atlas_rules.steepest_rows()[f"steepest, {alone_norm}"].rule
    return FactorRow(
        rule=rule, norm=norm, always=True, least=least, alone=alone, alone_norm=alone_norm
    )


def _adam(memory, of_W):
    """Adam on each factor; `of_W`: its step on W alone."""
    rule, alone = o.adam(step(SIGN) / 2, memory=memory, decay=0.5), o.adam(of_W, memory=memory)
    return FactorRow(rule=rule, norm=SIGN, always=False, least=0.7, alone=alone, alone_norm="l_inf")


@dataclass(frozen=True)
class Ends:
    """Last ratios (runs, NORMS) of a rule's runs; NaN for a run that selects nothing.

    steady (runs,) as in `Ratios`.
    """

    last: np.ndarray
    steady: np.ndarray


def run(
    tokens: TokenSet, table: Mapping[str, FactorRow], steps: int, seeds: Sequence[int]
) -> tuple[dict[str, Ends], dict[str, Ends], float]:
    """Every rule on (K, Q) from small starts and on W from zero, and the largest SVM gap."""
    best, sign_best = atlas.BestMargins(tokens), factor_norms.SignMargins(tokens)
    K, Q = factored.small_start(tokens, seeds, COLUMNS)
    record = [steps // 2, steps]
    both = factored.train(tokens, {n: r.rule for n, r in table.items()}, K, Q, record)
    alone = training.train(tokens, {n: r.alone for n, r in table.items()}, steps, record=record)

    def ends(path):
        found = atlas.ratios(path, best)
        return Ends(factor_norms.last_ratios(path, found, sign_best), found.steady)

    first, second = ({n: ends(path) for n, path in ran.items()} for ran in (both, alone))
    return first, second, max(best.gap, sign_best.gap)


def predictions(
    table: Mapping[str, FactorRow], both: Mapping[str, Ends], alone: Mapping[str, Ends]
) -> list[Claim]:
    """What the protocol's part 1 says of every rule, judged."""
    ratios = [ends.last for ran in (both, alone) for ends in ran.values()]
    largest = "(K, Q) and W: largest ratio of all rules, norms and runs"
    claims = [at_most("factors.bounded", largest, SOURCE, np.nanmax(ratios), 1 + ROUNDING)]
    for name, row in table.items():
        own, asked = both[name], 1.0 if row.always else 0.5
        text = f"(K, Q) by {name}: share of runs whose largest ratio is in the norm {row.norm}"
        share, nearest = ranked(own.last, NORMS, row.norm)
        claim = at_least(f"factors.norm.{word(name)}", text, SOURCE, share, asked)
        claims.append(remarked(claim, f"The prediction is refuted: nearest to {nearest}"))
        text = f"(K, Q) by {name}: least ratio of all runs in the norm {row.norm}"
        least = own.last[:, NORMS.index(row.norm)].min()
        claim = at_least(f"factors.above.{word(name)}", text, SOURCE, least, row.least)
        claims.append(remarked(claim, "The bound was read off two pilots of up to 4e5 steps"))
        text = f"W alone by {name}: share of runs whose largest ratio is in {row.alone_norm}"
        share, nearest = ranked(alone[name].last, NORMS, row.alone_norm)
        claim = at_least(f"factors.alone.{word(name)}", text, SOURCE, share, 0.5)
        claims.append(remarked(claim, f"W alone ends nearest to {nearest}"))
    return claims


def worlds(
    table: Mapping[str, FactorRow], both: Mapping[str, Ends], alone: Mapping[str, Ends]
) -> dict[str, tuple[Mapping[str, Ends], Mapping[str, Ends]]]:
    """(K, Q) and W runs as wrong worlds have them, for `predictions`."""
    names = list(table)
    turned = {n: both[m] for n, m in zip(names, names[1:] + names[:1], strict=True)}
    small = {n: Ends(1.1 * ends.last, ends.steady) for n, ends in both.items()}
    return {
        "rules exchanged": (turned, alone),
        "W trained in place of (K, Q)": (alone, both),
        "best margins 10 % small": (small, alone),
    }
