"""When does joint training from zero reach (u_mm, W_mm)? One dimension, decided exactly.

Tokens are numbers, T = 2, the query is the opt token. With a_i = y_i x_{i,opt} > 0 and b_i = y_i
x_{i,other} < a_i both SVMs have solutions, (u_mm, W_mm) > 0. Training moves u by the sign of S =
sum_i l_i (p_i a_i + (1 - p_i) b_i) and W by the sign of u. So from zero, with short steps, u keeps
the sign of sum_i (a_i + b_i): positive reaches (u_mm, W_mm), negative misses it for ever.

`POSTCARD` is the smallest in integers that is missed. `verify` checks it in rational numbers.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import NamedTuple

import numpy as np

from lib.attention.token_sets import TokenSet, token_set
from lib.companion.claims import Claim
from lib.dynamics.gradient_descent import train
from lib.dynamics.rules import GradientRule
from lib.seeds import stream
from papers.beyond.tolerances import near

Pairs = Sequence[tuple[int, int]]  # (a_i, b_i) per sample
POSTCARD: Pairs = ((1, 0), (1, -3))
LONGEST = Fraction(1, 6)  # steps of u for which the proof below holds


class _Fact(NamedTuple):
    """One step of the proof in words, and whether rational arithmetic confirms it."""

    statement: str
    holds: bool


def _exp_below(x, bound, terms=20):
    """Whether e^x < bound is proved by the series with its remainder, 0 <= x < `terms`."""
    total, term = _series(x, terms)
    return total + term / (1 - x / (terms + 1)) < bound


def _exp_above(x, bound, terms=20):
    """Whether e^x > bound is proved by the series cut off, x >= 0."""
    return _series(x, terms)[0] > bound


def _series(x, terms):
    """The sum of the first `terms` terms of e^x, and the next term."""
    total, term = Fraction(0), Fraction(1)
    for k in range(1, terms + 1):
        total, term = total + term, term * x / k
    return total, term


def _selections(pairs):
    """|u| of the head SVM of every selection that has one; 0 in a selection is the opt token."""
    sizes = {}
    for chosen in product((0, 1), repeat=len(pairs)):
        kept = [Fraction(pair[c]) for pair, c in zip(pairs, chosen, strict=True)]
        if all(x > 0 for x in kept) or all(x < 0 for x in kept):
            sizes[chosen] = max(1 / abs(x) for x in kept)
    return sizes


def _missed(pairs):
    """Whether the opt selection has the largest margin of all, and training from zero misses it."""
    opt, sizes = (0,) * len(pairs), _selections(pairs)
    best = all(sizes[opt] < size for chosen, size in sizes.items() if chosen != opt)
    return best and sum(a + b for a, b in pairs) < 0


def _smallest(largest, n=2):
    """Every missed problem of n samples with entries up to `largest`, samples in order."""
    samples = [(a, b) for a in range(1, largest + 1) for b in range(-largest, a)]
    ordered = (p for p in product(samples, repeat=n) if list(p) == sorted(p, reverse=True))
    return [p for p in ordered if _missed(p)]


def verify() -> list[_Fact]:
    """The proof that POSTCARD is missed, step by step in rational numbers.

    Logits of sample i differ by c_i W with c_i = (a_i - b_i) a_i, so p_i <= 1/2 where W <= 0. As
    the bracket s_i = p_i a_i + (1 - p_i) b_i is linear in p_i, its ends are at p_i = 0 and 1/2.
    """
    half, (first, second) = Fraction(1, 2), POSTCARD
    s_1, s_2 = ([(p * a + (1 - p) * b) for p in (0, half)] for a, b in (first, second))
    ratio = -max(s_2) / max(s_1)  # least |s_2| over the largest s_1
    speed = max(s_1) - min(s_2)  # l_1/l_2 = e^{k (s_1 - s_2)} at u = -k
    u_mm = max(Fraction(1, a) for a, _ in POSTCARD)
    W_mm = max(Fraction(1, (a - b) * a) for a, b in POSTCARD)
    grown = [Fraction(a * 7 + b, 8) for a, b in POSTCARD]  # s_i at p_i = 7/8
    return [
        _Fact(f"u_mm = {u_mm}, W_mm = {W_mm}", u_mm == 1 and W_mm == 1),
        _Fact("no other selection classifies both samples", set(_selections(POSTCARD)) == {(0, 0)}),
        _Fact("u_mm scores both opt tokens higher", all(u_mm * (a - b) > 0 for a, b in POSTCARD)),
        _Fact(
            "the loss can vanish: at u = W = c >= 2 both p_i > 7/8, both f_i >= c/2",
            _exp_above(Fraction(2), Fraction(7)) and min(grown) >= half,
        ),
        _Fact("the first step moves u down", sum(a + b for a, b in POSTCARD) < 0),
        _Fact("at u = 0, W <= 0 it moves down", max(s_1) + max(s_2) < 0),
        _Fact("at u < 0 it moves W down", all((a - b) * a > 0 for a, b in POSTCARD)),
        _Fact(
            f"u moves up only from u < -{LONGEST}: e^({speed}/6) < {ratio}",
            _exp_below(speed * LONGEST, ratio),
        ),
        _Fact("so u <= 0 and f_1 = u s_1 <= 0: the loss stays at 1/2 or more", min(s_1) >= 0),
        _Fact("no integers below 3 do it", _smallest(2) == [] and POSTCARD in _smallest(3)),
        _Fact("one sample does it with no integers up to 9", _smallest(9, n=1) == []),
    ]


def problem(pairs: Pairs, labels: Sequence[int] | None = None) -> TokenSet:
    """The problem as tokens, the opt token first; x = y a, y b, labels default +1."""
    y = np.ones(len(pairs)) if labels is None else np.asarray(labels, float)
    X = y[:, None, None] * np.asarray(pairs, float)[:, :, None]  # (n, 2, 1)
    return token_set(X, y, u=np.zeros(1), opt=np.zeros(len(pairs), int))


def random_problems(
    count: int, largest: int = 9, longest: int = 5, seed: int = 0
) -> list[TokenSet]:
    """Random problems with n = 1 ... `longest` samples, entries up to `largest`, sums not zero."""
    draw, problems = stream(seed, "problems"), []
    while len(problems) < count:
        n = int(draw.integers(1, longest + 1))
        a = draw.integers(1, largest + 1, n)
        b = np.array([draw.integers(-largest, top) for top in a])
        if (a + b).sum():
            problems.append(problem(list(zip(a, b, strict=True)), draw.choice((-1, 1), n)))
    return problems


def end(tokens: TokenSet, rule: GradientRule, steps: int) -> tuple[int, float]:
    """Sign of u at the end, 0 unless W has it too; and the least loss on the way."""
    record = np.unique(np.geomspace(1, steps, 100).astype(int))
    history = train(tokens, rule, steps, np.r_[0, record], head="joint")
    last = np.flatnonzero(np.isfinite(history.norm[0]))[-1]  # a stuck sample's gradient underflows
    # Both in units of a positive feature: y (x_opt - x_other) and (x_opt - x_other) x_opt.
    both = np.append(history.score_gaps[0, last], history.margins[0, last])
    sign = int((both > 0).all()) - int((both < 0).all())
    return sign, float(np.exp(np.nanmin(history.log_gap[0])))


def agreement(problems: Sequence[TokenSet], rule: GradientRule, steps: int) -> Claim:
    """The share of problems that end where the sign of sum_i (a_i + b_i) says."""
    right = [
        end(data, rule, steps)[0] == np.sign((data.y[0, :, None, None] * data.X[0]).sum())
        for data in problems
    ]
    text = f"d = 1: share of {len(problems)} random problems that end where the sum's sign says"
    return near("global.line", text, np.mean(right), 1.0)
