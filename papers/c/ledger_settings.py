"""The settings of paper C's ledger: sizes, data, and the selections that training finds."""

from dataclasses import dataclass, replace
from functools import cache

from lib.attention import token_sets, tokens
from papers.c import cones, rates
from papers.wrong_worlds import World


@dataclass(frozen=True)
class Sizes:
    """How large the ledger's problems are; the defaults are those of notebook 39 at demo scale."""

    seeds: int = 8
    n: int = 6
    T: int = 8
    d: int = 10
    find_steps: int = 4000
    rate_exponents: tuple[float, ...] = (1.5, 1.75, 2, 2.5, 3)
    rate_steps: int = 40_000
    rate_step: float = 0.03
    exponents: tuple[float, ...] = (1.3, 1.75, 2, 3)
    steps: int = 4000
    draws: int = 300
    path_seeds: int = 3


SMALL = Sizes(seeds=4, rate_steps=20_000, steps=1000, draws=100, path_seeds=1)


@cache
def data(seeds: int, n: int, T: int, d: int) -> token_sets.TokenSet:
    """Paper C's data, our seeds."""
    return tokens.unit_tokens(range(seeds), n, T, d)


@cache
def selections(sizes: Sizes, p: float) -> cones.Selection:
    """The locally optimal selections that training with p finds from random starts."""
    drawn = data(sizes.seeds, sizes.n, sizes.T, sizes.d)
    return rates.found_selections(drawn, range(sizes.seeds), p, sizes.find_steps)


def seen(sizes: Sizes, p: float, world: World) -> cones.Selection:
    """`selections` with their direction and labels as the world names them."""
    of = selections(sizes, p)
    return replace(of, tokens=world.tokens(of.tokens), solution=world.target(of.solution))
