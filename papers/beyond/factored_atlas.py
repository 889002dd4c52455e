"""The atlas with (K, Q) trained: rules, the norms that they were predicted to maximise, claims.

Predictions and words are those of notebooks/networks_protocol.md. Steps make the margins of K Q^T
grow by about GROWTH a step: factors of norm 2 eta sqrt(t) have a product of norm 4 eta^2 t.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib.attention.token_sets import TokenSet
from lib.companion.claims import Claim, at_least, at_most
from papers.beyond import atlas, atlas_rules, factor_norms
from papers.beyond.atlas import Ratios
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
PILOTS = "The bound was read off two pilots of up to 4e5 steps"


@dataclass(frozen=True)
class FactorRow:
    """A rule on K and on Q, its prediction, and the same rule on W alone.

    norm: whose ratio was predicted to be the largest, in every run where `always`, else in half of
    them, and at `least` this; alone_norm: the norm predicted for `alone`.
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
    """The rows of the map: steepest descents, and Adam, on W alone in slower steps."""

    def steepest(alone_norm, norm, least):
        rule = o.steepest(atlas.NORMS[alone_norm], step(norm), 0.5)
        alone = atlas_rules.steepest_rows()[f"steepest, {alone_norm}"].rule
        return FactorRow(rule, norm, True, least, alone, alone_norm)

    def adam(memory, slower):
        rule = o.adam(step(SIGN) / 2, memory=memory, decay=0.5)
        alone = o.adam(atlas_rules.step("l_inf") / slower, memory=memory)
        return FactorRow(rule, SIGN, False, 0.7, alone, "l_inf")

    return {
        "gradient descent": steepest("Frobenius", "nuclear", 0.9),
        "sign descent": steepest("l_inf", SIGN, 0.75),
        "polar steps": steepest("spectral", "spectral", 0.9),
        "Adam, 0.99": adam(0.99, 10),
        "Adam, 0.999": adam(0.999, 50),
    }


def run(
    tokens: TokenSet, table: Mapping[str, FactorRow], steps: int, seeds: Sequence[int]
) -> tuple[dict[str, Ratios], dict[str, Ratios], float]:
    """Last ratios of every rule on (K, Q) from small starts and on W from zero; largest SVM gap."""
    best, sign_best = atlas.BestMargins(tokens), factor_norms.SignMargins(tokens)
    K, Q = factored.small_start(tokens, seeds, COLUMNS)
    record = [steps // 2, steps]
    both = factored.train(tokens, {n: r.rule for n, r in table.items()}, K, Q, record)
    alone: Any = training.train(
        tokens, {n: r.alone for n, r in table.items()}, steps, record=record
    )
    read = lambda path: factor_norms.last_ratios(path, best, sign_best)
    on_both = {name: read(path) for name, path in both.items()}
    on_W = {name: read(alone[name]) for name in table}
    return on_both, on_W, max(best.gap, sign_best.gap)


def predictions(
    table: Mapping[str, FactorRow], both: Mapping[str, Ratios], alone: Mapping[str, Ratios]
) -> list[Claim]:
    """What the protocol's part 1 says of every rule, judged."""
    ratios = [ends.last for runs in (both, alone) for ends in runs.values()]
    largest = "(K, Q) and W: largest ratio of all rules, norms and runs"
    claims = [at_most("factors.bounded", largest, SOURCE, np.nanmax(ratios), 1 + ROUNDING)]

    def judge(what, text, value, bound, why):
        id = f"factors.{what}.{word(name)}"
        claims.append(at_least(id, text, SOURCE, value, bound, why=why))

    largest = "share of runs whose largest ratio is in"
    for name, row in table.items():
        share, nearest = ranked(both[name].last, NORMS, row.norm)
        text = f"(K, Q) by {name}: {largest} the norm {row.norm}"
        why = f"The prediction is refuted: nearest to {nearest}"
        judge("norm", text, share, 1.0 if row.always else 0.5, why)
        ratio = both[name].last[:, NORMS.index(row.norm)].min()
        text = f"(K, Q) by {name}: least ratio of all runs in the norm {row.norm}"
        judge("above", text, ratio, row.least, PILOTS)
        share, nearest = ranked(alone[name].last, NORMS, row.alone_norm)
        text = f"W alone by {name}: {largest} {row.alone_norm}"
        judge("alone", text, share, 0.5, f"W alone ends nearest to {nearest}")
    return claims
