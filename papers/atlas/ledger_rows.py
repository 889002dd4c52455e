"""The ledger rows of the atlas under practical conditions, at small size.

Each row fails with the identity in place of its metric, or in the world of FAILS_IF.
"""

from dataclasses import replace
from functools import cache

from companion import ledger
from lib import dynamics
from lib.attention import tokens
from papers.atlas import atlas, atlas_rules, atlas_used

SMALL = 5, 4  # samples and tokens; the seeds are used by no judged run
SEEDS = 100, 101
STEPS = 200_000  # at most
IDENTITY = "identity for the metric"
OFF = "constant off"
ANCHOR = "variance reduction left out"
_OFF = "decay.norm.GD", "decay.law.GD", "gauge.GD", "gauge.NGD", "gauge.polar_steps"
_ANCHOR = "own.NGD_variance_reduced", "lower.NGD_variance_reduced"
# The world in which a claim fails; these claims have the identity as their metric.
FAILS_IF = {f"atlas.{id}": OFF for id in _OFF} | {
    f"atlas.{id}": ANCHOR for id in _ANCHOR
}


@cache
def _problem(n: int, T: int):
    """Return tokens and their token SVMs, which all worlds share."""
    data = tokens.unit_tokens(SEEDS, n=n, T=T, d=6)
    return data, atlas.BestMargins(data)


@cache
def _path(size, rule, steps):
    steps = min(steps, STEPS)
    return dynamics.train(
        _problem(*size)[0], rule, steps, record=[0, steps // 2, steps]
    )


def _rows(claims):
    for claim in claims:
        fails_if = (FAILS_IF.get(claim.id, IDENTITY),)
        yield from ledger.rows("as used", "small", len(SEEDS), claim, fails_if=fails_if)


def _decay(size, world):
    """Judge weight decay; the wrong world has the Frobenius norm, or another decay."""
    ends = {}
    factor = 1 + world.of(OFF)
    for name, row in atlas_used.decay_rows().items():
        path = _path(size, row.rule, row.longest)
        identity = bool(world.of(IDENTITY))
        end = atlas_used.at_rest(row, path, _problem(*size)[1], identity)
        ends[name] = replace(end, size=factor * end.size, law=factor * end.law)
    yield from _rows(atlas_used.decay_claims(ends))


def _own_norms(size, world):
    """Judge norms of a rule's own; the wrong world has the Frobenius norm in their
    place.
    """
    data, best = _problem(3, 3)
    own = {}
    by_rule = {}
    for name in atlas_used.OWN_SOURCES:
        row = atlas_rules.rows()[name]
        path = _path((3, 3), row.rule, row.longest)
        by_rule[name] = atlas.ratios(path, best)
        identity = bool(world.of(IDENTITY))
        own[name], _ = atlas_used.own_ratios(data, name, path, by_rule[name], identity)
    yield from _rows(atlas_used.own_claims(own, by_rule))


def _others(size, world):
    """Judge variance reduction and OLion.

    The wrong world measures in the Frobenius norm, or lacks the variance reduction.
    OLion lacks its sign.
    """
    table = atlas_used.other_rows()
    plain = bool(world.of(IDENTITY))
    by_rule = {}
    for name, row in table.items():
        rule = replace(row.rule, signed=row.rule.signed and not plain)
        rule = replace(rule, reduced=rule.reduced and not world.of(ANCHOR))
        ends = {name: atlas.ratios(_path(size, rule, row.longest), _problem(*size)[1])}
        by_rule |= atlas_used.in_frobenius(ends) if plain and rule.reduced else ends
    yield from _rows(atlas_rules.predictions(table, by_rule)[1:])


def _gauge(size, world):
    """Judge that (K R, Q R) trains like (K, Q) if R is orthogonal.

    The wrong world has R = 1, or an orthogonal R times a number other than 1.
    """
    wrong = bool(world.of(IDENTITY)), 1 + world.of(OFF)
    moved = atlas_used.turned_back(_problem(*size)[0], SEEDS, 200, *wrong)
    yield from _rows(atlas_used.gauge_claims(moved))


SECTIONS = {
    "decay": _decay,
    "own norms": _own_norms,
    "others": _others,
    "gauge": _gauge,
}
