"""Rows of the atlas as optimisers are used, in the true or a wrong world, at small size.

The protocol asks that each fails with the identity in place of its metric, and where that is the
metric with another decay, another size of R, or without variance reduction.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from lib.attention import tokens
from lib.attention.token_sets import TokenSet
from lib.companion.claims import Claim
from lib.companion.ledger import rows
from papers.beyond import atlas, atlas_claims, atlas_rules, atlas_used, own_norms
from papers.beyond.engine import training
from papers.wrong_worlds import World

SMALL = 100, 101  # seeds, which no judged run uses
STEPS = 200_000  # at most
IDENTITY, OFF = ("identity for the metric",), ("constant off",)
ANCHOR = ("variance reduction left out",)
FAILS_IF = {  # of claims whose metric is the identity
    "atlas.decay.norm.GD": OFF,
    "atlas.decay.law.GD": OFF,
    "atlas.own.NGD_variance_reduced": ANCHOR,
    "atlas.lower.NGD_variance_reduced": ANCHOR,
    "atlas.gauge.GD": OFF,
    "atlas.gauge.NGD": OFF,
    "atlas.gauge.polar_steps": OFF,
}


@cache
def _data(seeds: tuple[int, ...]) -> TokenSet:
    return tokens.unit_tokens(seeds, n=3, T=3, d=6)


@cache
def _path(seeds, rule, steps):
    steps = min(steps, STEPS)
    return training.train(_data(seeds), rule, steps, record=[0, steps // 2, steps])


def _rows(claims):
    for claim in claims:
        fails_if = FAILS_IF.get(claim.id, IDENTITY)
        yield from rows("as used", "3 samples of 3 tokens", 2, claim, fails_if=fails_if)


def _decay(seeds, world: World) -> Iterator[Claim]:
    """Weight decay: Frobenius in place of the norm, or a decay that is another."""
    solutions, plain = atlas_used.Solutions(_data(seeds)), bool(world.of(*IDENTITY))
    ends = {
        name: atlas_used.at_rest(row, _path(seeds, row.rule, row.longest), solutions, plain)
        for name, row in atlas_used.decay_rows().items()
    }
    factor = 1 + world.of(*OFF)
    ends = {k: replace(v, size=factor * v.size, law=factor * v.law) for k, v in ends.items()}
    yield from _rows(atlas_used.decay_claims(ends))


def _own_norms(seeds, world: World) -> Iterator[Claim]:
    """Norms that adaptive rules have of their own: the identity in place of the metric."""
    best, own, found = atlas.BestMargins(_data(seeds)), {}, {}
    for name in own_norms.OWN:
        row = atlas_rules.rows()[name]
        path = _path(seeds, row.rule, row.longest)
        found[name] = atlas.ratios(path, best)
        identity = bool(world.of(*IDENTITY))
        own[name], _ = own_norms.own_ratios(_data(seeds), name, path, found[name], identity)
    yield from _rows(atlas_used.own_claims(own, found))


def _others(seeds, world: World) -> Iterator[Claim]:
    """Variance reduction and OLion: Frobenius for each norm, or the step without what it adds."""
    table, best, found = atlas_used.other_rows(), atlas.BestMargins(_data(seeds)), {}
    for name, row in table.items():
        rule = row.rule
        if world.of(*ANCHOR):
            rule = replace(rule, reduced=False)
        if world.of(*IDENTITY) and rule.signed:
            rule = replace(rule, signed=False)
        found[name] = atlas.ratios(_path(seeds, rule, row.longest), best)
    if world.of(*IDENTITY):
        found = atlas_used.in_frobenius({k: v for k, v in found.items() if k != "OLion"}) | {
            "OLion": found["OLion"]
        }
    yield from _rows(atlas_claims.predictions(table, found)[1:])


def _gauge(seeds, world: World) -> Iterator[Claim]:
    """(K R, Q R) in place of (K, Q): R = 1, or R orthogonal times a number off 1."""
    data, identity = _data(seeds), bool(world.of(*IDENTITY))
    moved = atlas_used.turned_back(data, seeds, 200, identity, 1 + world.of(*OFF))
    yield from _rows(atlas_used.gauge_claims(moved))


SECTIONS = {"decay": _decay, "own norms": _own_norms, "others": _others, "gauge": _gauge}
