"""The ledger rows of the atlas under practical conditions, at small size.

Each claim must fail if its metric is replaced by the identity. A claim listed in
FAILS_IF must fail in the altered copy (wrong world) that is named there instead.
"""

from collections.abc import Iterable, Iterator
from functools import cache

from companion import ledger
from companion.claims import Claim
from lib import dynamics
from lib.attention import TokenSet, tokens
from papers.atlas import atlas, atlas_rules, atlas_used

Size = tuple[int, int]  # samples, tokens
SMALL: Size = 5, 4
SEEDS = 100, 101  # no run on a page uses these seeds
STEPS = 200_000  # at most
IDENTITY = "identity for the metric"
OFF = "constant off"
ANCHOR = "variance reduction left out"
_OFF = "decay.norm.GD", "decay.law.GD", "gauge.GD", "gauge.NGD", "gauge.polar_steps"
_ANCHOR = "own.NGD_variance_reduced", "lower.NGD_variance_reduced"
# The altered copies in which these claims must fail. The metric of these claims is
# already the identity, so that replacing it would change nothing.
FAILS_IF = {f"atlas.{id}": OFF for id in _OFF} | {
    f"atlas.{id}": ANCHOR for id in _ANCHOR
}


@cache
def _problem(n: int, T: int) -> tuple[TokenSet, atlas.BestMargins]:
    """Return tokens and their token SVMs."""
    data = tokens.unit_tokens(SEEDS, n=n, T=T, d=6)
    return data, atlas.BestMargins(data)


@cache
def _path(size: Size, rule: dynamics.Rule, steps: int) -> dynamics.History:
    steps = min(steps, STEPS)
    return dynamics.train(
        _problem(*size)[0], rule, steps, record=[0, steps // 2, steps]
    )


def _rows(claims: Iterable[Claim]) -> Iterator[Claim]:
    for claim in claims:
        fails_if = (FAILS_IF.get(claim.id, IDENTITY),)
        yield from ledger.rows("as used", "small", len(SEEDS), claim, fails_if=fails_if)


def _decay(size: Size) -> Iterator[Claim]:
    """Check where runs under weight decay stop moving."""
    _, best = _problem(*size)
    ends = {}
    for name, row in atlas_used.decay_rows().items():
        path = _path(size, row.rule, row.longest)
        ends[name] = atlas_used.at_rest(row, path, best)
    yield from _rows(atlas_used.decay_claims(ends))


def _own_norms(size: Size) -> Iterator[Claim]:
    """Check rules that have their own norm, on three samples of three tokens."""
    data, best = _problem(3, 3)
    own = {}
    residuals = {}
    by_rule = {}
    for name in atlas_used.OWN_SOURCES:
        row = atlas_rules.rows()[name]
        path = _path((3, 3), row.rule, row.longest)
        by_rule[name] = atlas.ratios(path, best)
        own[name], residuals[name] = atlas_used.own_ratios(
            data, name, path, by_rule[name]
        )
    yield from _rows(atlas_used.own_claims(own, by_rule, residuals))


def _others(size: Size) -> Iterator[Claim]:
    """Check variance reduction on single samples, and OLion."""
    _, best = _problem(*size)
    table = atlas_used.other_rows()
    by_rule = {}
    for name, row in table.items():
        by_rule[name] = atlas.ratios(_path(size, row.rule, row.longest), best)
    yield from _rows(atlas_rules.predictions(table, by_rule)[1:])


def _gauge(size: Size) -> Iterator[Claim]:
    """Check that training from (K R, Q R) leads to the same W as training from (K, Q)
    if R is orthogonal.
    """
    data, _ = _problem(*size)
    moved = atlas_used.turned_back(data, SEEDS, 200)
    yield from _rows(atlas_used.gauge_claims(moved))


SECTIONS = {
    "decay": _decay,
    "own norms": _own_norms,
    "others": _others,
    "gauge": _gauge,
}
