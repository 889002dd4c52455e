"""The ledger of paper A (2402.05738): every statement's rows, in the true or in a wrong world."""

from dataclasses import fields, replace
from functools import cache

import numpy as np

from lib import attention, dynamics, svm
from lib.attention import coordinates, tokens
from lib.companion import ledger
from lib.companion.claims import Claim, remarked
from lib.companion.ledger import rows
from lib.dynamics import rules
from papers.a import data_and_starts, fixed_head, gradient_cone, phase_diagram
from papers.a.ledger_joint import joint_rows
from papers.a.ledger_settings import (
    DIRECTION,
    SMALL,
    LedgerSetting,
    Sizes,
    problems,
    setting,
    solutions,
    tabled,
)
from papers.wrong_worlds import TRUE, World

__all__ = ["SECTIONS", "SMALL", "Sizes"]


SLOW = "Finite horizon: ||W|| grows like log t, and the share of the start falls like 1/log t"


def fixed_head_rows(sizes: Sizes, world: World = TRUE) -> list[Claim]:
    """Theorems 1, 5-7, Lemmas 1, 5, 7, 10, Eq. 12, Remark 1, footnote 5 and Section 3.1."""
    found = []
    for name in problems(sizes):
        of = setting(sizes, name, world)
        found += _from_small_start(of, sizes)
        for start in of.runs:
            found += _from_start(of, start, sizes)
        if "local" not in of.runs:
            continue
        named = "W_mm", "exchanged"
        named = named[::-1] if world.of("selection exchanged") else named
        left = fixed_head.leaves(list(of.runs["local"].values()), ("local", named[1]), named[0])
        where, world_of = f"{name}, start local", ("selection exchanged",)
        found += rows("Section 3.1", where, sizes.seeds, left, fails_if=world_of)
    return found


def _from_small_start(of: LedgerSetting, sizes: Sizes) -> list[Claim]:
    ngd, gd, polyak = (of.runs["small"][rule] for rule in ("NGD", "GD", "Polyak"))
    late, where, seeds = sizes.steps / 10, f"{of.name}, start small", sizes.seeds
    data, target, step = of.problem.tokens, of.target, sizes.ngd_step
    slope = fixed_head.margin_growth(ngd, "NGD", step / target.norm, late)
    polyak_slope = fixed_head.margin_growth(polyak, "Polyak", np.full(seeds, 0.5), late)
    table = [
        ("Theorem 5", DIRECTION, fixed_head.theorem5(ngd, "W_mm", step, data, target)),
        ("Theorem 6", ("target rotated",), fixed_head.gradient_direction(gd, "GD", "W_mm")),
        ("Theorem 7", ("exponent off",), fixed_head.growth(polyak, "Polyak", late, "Theorem 7")),
        ("Theorem 7", ("step off", "norm off"), fixed_head.polyak_step_norm(polyak, target)),
        ("Theorem 7", ("step off",), polyak_slope),
        ("Theorem 7", ("norm off",), fixed_head.polyak_gap(polyak, target, late)),
        ("Lemma 1", ("exponent off",), fixed_head.saturation(ngd, late)),
        ("Lemma 10", ("norm off", "step off"), slope),
        ("Eq. 12", ("exponent off",), fixed_head.growth(ngd, "NGD", late, "Eq. 12")),
        ("Lemma 7", ("step off",), fixed_head.lemma7(ngd, step)),
    ]
    for rule, history in of.runs["small"].items():
        table += [("Lemma 5", ("label turned",), own) for own in fixed_head.lemma5(history, rule)]
    if of.name == "antipodal":
        table = [("Footnote 5", families, claim) for _, families, claim in table]
    return tabled(table, where, sizes)


def _from_start(of: LedgerSetting, start: str, sizes: Sizes) -> list[Claim]:
    where, found = f"{of.name}, start {start}", []
    anywhere = "Footnote 5" if of.name == "antipodal" else "Remark 1"
    for rule, history in of.runs[start].items():
        claim = remarked(fixed_head.remark1(history, "W_mm", rule, start), SLOW)
        found += rows(anywhere, where, sizes.seeds, claim, fails_if=("target rotated",))
    for statement, rule in (("Theorem 1", "NGD"), ("Theorem 7", "Polyak")):
        history = of.runs[start][rule]
        rates = fixed_head.direction(history, rule, "W_mm", sizes.steps / 10, statement)
        kept = rates if start == "small" else rates[:1]  # from afar 1/t sets in later
        found += rows(statement, where, sizes.seeds, *kept, fails_if=DIRECTION)
    return found


def figure_5_rows(sizes: Sizes, world: World = TRUE) -> list[Claim]:
    """Lemma 5 on Figure 5's own data and steps: n = 20, T = 10, antipodal means, 100 seeds."""
    count, at_once = 100, 25  # in about one draw of a hundred a weight falls; all take 400 MB
    named = {"GD": rules.gd(1.0), "NGD": rules.ngd(0.025), "Polyak": rules.polyak()}
    parts = []
    for first in range(0, count, at_once):
        some, recorded = range(first, first + at_once), dynamics.log_spaced(1000, 200)
        drawn = tokens.class_mean_tokens(some, 20, 10, 300, 3.0, 0.1, antipodal=True)
        problem = coordinates.minimal(drawn)
        start = dynamics.gaussian_start(problem, 1e-3, some)
        histories = dynamics.train(world.problem(problem), named, 1000, recorded, start=start)
        parts.append([own for rule in named for own in fixed_head.lemma5(histories[rule], rule)])
    worst = [  # what fails comes first, so that no NaN is lost
        min(own, key=lambda one: (one.holds, one.measured)) for own in zip(*parts, strict=True)
    ]
    worst = [remarked(claim, gradient_cone.NOT_ORTHOGONAL) for claim in worst]
    return rows("Lemma 5", "Figure 5's data", count, *worst, fails_if=("label turned",))


def data_rows(sizes: Sizes, world: World = TRUE) -> list[Claim]:
    """Definition 1, Assumptions 1 and 2, Example 1, Lemmas 4, 8, 11 and 14."""
    each, many, found = range(sizes.seeds), range(sizes.draws), []
    tilt = ("inner products raised",)
    class_means = sizes.n, sizes.T, sizes.d, sizes.signal, sizes.noise
    settings = {
        "class means": tokens.class_mean_tokens(many, *class_means),
        "high d": tokens.gaussian_tokens(many, n=4, T=3, d=sizes.verified_d),
    }
    for name, drawn in settings.items():
        seen = world.tokens(drawn)
        one = data_and_starts.definition1(seen)
        found += rows("Definition 1", name, sizes.draws, one, fails_if=("label turned",))
        near, equal, least = data_and_starts.lemma8(seen)
        why = "a class shares its opt token, so that opt tokens are parallel"
        remark = why if name == "class means" else ledger.room(least, "d is large for it")
        found += rows("Assumption 1", name, sizes.draws, least, fails_if=tilt, remark=remark)
        found += rows("Assumption 2", name, sizes.draws, equal, fails_if=tilt)
        if name == "high d":
            found += rows("Example 1", name, sizes.draws, near, fails_if=tilt)
            both = (replace(near, id="lemma8.orthogonal"), replace(equal, id="lemma8.scores"))
            found += rows("Lemma 8", name, sizes.draws, *both, fails_if=tilt)
    turned = "inner product turned"
    two = phase_diagram.two_samples(1.0 if world.of(turned) else -1.0)
    named = {"NGD": rules.ngd(sizes.ngd_step), "GD": rules.gd(1 / fixed_head.smoothness(two).max())}
    away = phase_diagram.assumption1_needed(two, named, sizes.steps)
    found += rows("Assumption 1", "two samples of two tokens", 1, *away, fails_if=(turned,))
    found += _start_rows(sizes, world.of("sigma off"))
    drawn = world.tokens(tokens.two_token_gaussian(many, sizes.joint_n, 2, sizes.joint_d, 3.0))
    for claim in data_and_starts.lemma11(drawn, 3.0, sizes.joint_d**-0.5):
        why = ledger.room(claim, "a union bound by exponential tails, attained by no law")
        found += rows("Lemma 11", "(DM)", sizes.draws, claim, fails_if=tilt, remark=why)
    draw = lambda seeds, d: tokens.two_token_gaussian(seeds, sizes.joint_n, 2, d, 3.0)
    both = data_and_starts.lemma11_exponents(draw, 60, 3.0, world.of("exponent off"))
    found += rows("Lemma 11", "(DM), d = 400 to 6400", 60, *both, fails_if=("exponent off",))
    few_tokens = tokens.two_token_gaussian(each, sizes.joint_n, 2, sizes.joint_d, 3.0)
    head = world.target(svm.head_svm(few_tokens))
    opt, mixed = data_and_starts.lemma14(world.tokens(few_tokens), head)
    found += rows("Lemma 14", "(DM)", sizes.seeds, mixed, fails_if=("label turned",))
    off = ("target rotated", "norm off")
    return found + rows("Lemma 14", "(DM)", sizes.seeds, opt, fails_if=off)


def worst_weights_rows(sizes: Sizes, world: World = TRUE) -> list[Claim]:
    """Lemma 6 at the worst W, Lemmas 2 and 9 at the worst of large opt weights: a search."""
    found, few = [], 1 if sizes.seeds < 20 else 3
    for name in ("class means", "high d"):
        data, solution = problems(sizes)[name].tokens, world.target(solutions(sizes, name)[0])
        attained, off = gradient_cone.lemma6(data, solution), ("target rotated", "norm off")
        found += rows("Lemma 6", name, sizes.seeds, attained, fails_if=off)
    second, ninth = gradient_cone.lemma2(data, solution, few, (10, 30, 100), few)
    found += rows("Lemma 2", "high d", few, second, fails_if=("target rotated",))
    return found + rows("Lemma 9", "high d", few, ninth, fails_if=("target rotated",))


@cache
def _start_rows(sizes, off):
    """Lemma 4, the entries of its start off by the share `off`."""
    shape = sizes.n, sizes.T, sizes.d, sizes.signal, sizes.noise
    seen, units = [], []
    for first in range(0, 1000, 100):  # a quantile of fewer draws is too rough for 5 %
        some = range(first, first + 100)  # the tokens of all, before they are reduced, are 140 MB
        problem = coordinates.minimal(tokens.class_mean_tokens(some, *shape))
        seen.append(problem.tokens)
        units.append(dynamics.gaussian_start(problem, 1.0, some))
    wide, unit = _joined(seen), _joined(units)
    size = data_and_starts.start_size(wide)
    std = size * (1 + off)
    start = dynamics.Start(std * unit.inside, std * unit.outside)
    both = data_and_starts.lemma4(wide, start, size, sizes.d)
    return rows("Lemma 4", "class means", len(wide.y), *both, fails_if=("sigma off",))


def _joined(parts):
    """One record of the runs of all parts, a TokenSet or a Start each."""
    names = [field.name for field in fields(parts[0])]
    return type(parts[0])(*(np.concatenate([getattr(p, name) for p in parts]) for name in names))


def other_loss_rows(sizes: Sizes, world: World = TRUE) -> list[Claim]:
    """Section 3.2: Theorem 1 and Lemma 10's slope for every loss but the exponential one."""
    found, late = [], sizes.steps / 10
    for loss in attention.LOSSES:
        if loss == "exponential":
            continue
        of = setting(sizes, "class means", world, loss)
        ngd, where = of.runs["small"]["NGD"], f"class means, {loss} loss"
        rates = fixed_head.direction(ngd, "NGD", "W_mm", late, "Section 3.2")
        slope = fixed_head.margin_growth(ngd, "NGD", sizes.ngd_step / of.target.norm, late)
        found += rows("Section 3.2", where, sizes.seeds, *rates, fails_if=DIRECTION)
        off = ("norm off", "step off")
        found += rows("Section 3.2", where, sizes.seeds, slope, fails_if=off)
    return found


SECTIONS = {
    "fixed head": fixed_head_rows,
    "Figure 5": figure_5_rows,
    "data": data_rows,
    "worst W": worst_weights_rows,
    "other loss": other_loss_rows,
    "joint": joint_rows,
}
