"""The ledger of paper A (2402.05738): every statement's rows, in the true world or in a wrong one.

Three settings for a fixed head, all ours: "class means" and "antipodal" are Example 1 as in Figures
2 and 5; "high d" is Example 1 in Gaussian form, small and of such dimension that our sufficient
form of Assumption 1 holds on every draw. Three starts: "small" (Lemma 4), "opposite" (-W_mm), and
"local", the token SVM's solution of another selection, where the local theory (2308.16898) says
training may stay.
"""

from dataclasses import dataclass, replace

import numpy as np

from lib import dynamics, svm
from lib.attention import coordinates, tokens
from lib.companion.claims import Claim, at_least, at_most
from lib.companion.ledger import rows
from lib.dynamics import rules
from lib.dynamics.history import History
from lib.papers.a import curvature, data_and_starts, fixed_head, gradient_cone, joint_training
from lib.papers.wrong_worlds import Target, World
from lib.seeds import stream

DIRECTION = ("target rotated", "exponent off")
TRUE = World()


@dataclass(frozen=True)
class Sizes:
    """How large the ledger's problems are; the defaults are those of notebook 04 at demo scale."""

    seeds: int = 20
    n: int = 10
    T: int = 6
    d: int = 300
    signal: float = 3.0
    noise: float = 0.1
    start_norm: float = 0.3
    verified_d: int = 4000
    steps: int = 10_000
    ngd_step: float = 0.05
    joint_n: int = 8
    joint_d: int = 400
    joint_signal: float = 3.0
    joint_steps: int = 5000
    joint_step: float = 0.3
    draws: int = 200


SMALL = Sizes(seeds=3, steps=3000, joint_steps=3000, draws=40)


@dataclass(frozen=True)
class Setting:
    """One data set trained: its name, problem, the end point as the world has it, runs by start."""

    name: str
    problem: coordinates.Minimal
    target: Target
    runs: dict[str, dict[str, History]]


def problems(sizes: Sizes) -> dict[str, coordinates.Minimal]:
    """The three settings' data."""
    each, shape = range(sizes.seeds), (sizes.n, sizes.T, sizes.d, sizes.signal, sizes.noise)
    drawn = {
        "class means": tokens.class_mean_tokens(each, *shape),
        "antipodal": tokens.class_mean_tokens(each, *shape, antipodal=True),
        "high d": tokens.gaussian_tokens(each, n=4, T=3, d=sizes.verified_d),
    }
    return {name: coordinates.minimal(data) for name, data in drawn.items()}


def trained(name: str, problem, sizes: Sizes, world: World, loss: str = "exponential") -> Setting:
    """NGD, GD and Polyak from the three starts; GD's step is one over a bound on the smoothness."""
    each, data = range(sizes.seeds), problem.tokens
    true = svm.token_svm(data)
    local = svm.token_svm(data, data_and_starts.wrong_selection(data, each))
    target = world.target(svm.token_svm(data, world.selected(data, each)))
    std = sizes.start_norm / problem.token_basis.shape[1]
    starts = {
        "small": dynamics.gaussian_start(problem, std, each),
        "opposite": dynamics.Start(-true.W, np.zeros(sizes.seeds)),
        "local": dynamics.Start(local.W, np.zeros(sizes.seeds)),
    }
    gd = rules.gd(1 / fixed_head.smoothness(data).max())
    named = {"NGD": rules.ngd(sizes.ngd_step), "GD": gd, "Polyak": rules.polyak()}
    runs = {}
    for start, W in starts.items():
        histories = dynamics.train(
            world.problem(problem),
            {rule: world.rule(of) for rule, of in named.items()},
            sizes.steps,
            dynamics.log_spaced(sizes.steps, 120),
            start=W,
            targets={"W_mm": target.W, "local": local.W},
            loss=loss,
        )
        runs[start] = {rule: world.history(history) for rule, history in histories.items()}
    return Setting(name, problem, target, runs)


def fixed_head_rows(sizes: Sizes, world: World = TRUE) -> list[Claim]:
    """Theorems 1, 5-7, Lemmas 1, 5, 7, 10, Eq. 12, Remark 1, footnote 5 and Section 3.1."""
    found = []
    for name, problem in problems(sizes).items():
        setting = trained(name, problem, sizes, world)
        found += _from_small_start(setting, sizes)
        for start in setting.runs:
            found += _from_start(setting, start, sizes)
        left = fixed_head.leaves(list(setting.runs["local"].values()), "local")
        where = f"{name}, start local"
        why = "it names no W_mm and no rate; a run would have to end elsewhere"
        found += rows("Section 3.1", where, sizes.seeds, left, fails_if=(), remark=why)
    return found


def _from_small_start(of: Setting, sizes: Sizes) -> list[Claim]:
    ngd, gd, polyak = (of.runs["small"][rule] for rule in ("NGD", "GD", "Polyak"))
    late, where, seeds = sizes.steps / 10, f"{of.name}, start small", sizes.seeds
    name = {"antipodal": lambda _: "Footnote 5"}.get(of.name, lambda statement: statement)
    data, target, step = of.problem.tokens, of.target, sizes.ngd_step
    slope = fixed_head.margin_growth(ngd, "NGD", step / target.norm, late)
    polyak_slope = fixed_head.margin_growth(polyak, "Polyak", np.full(seeds, 0.5), late)
    still = fixed_head.still_falls(gd, "GD", "W_mm", late, "Theorem 6")
    table = [
        ("Theorem 5", DIRECTION, fixed_head.theorem5(ngd, "W_mm", step, data, target)),
        ("Theorem 6", ("exponent off",), still),
        ("Theorem 6", ("target rotated",), fixed_head.gradient_direction(gd, "GD", "W_mm")),
        ("Theorem 7", ("exponent off",), fixed_head.growth(polyak, "Polyak", late, "Theorem 7")),
        ("Theorem 7", ("step off", "norm off"), fixed_head.polyak_step_norm(polyak, target)),
        ("Theorem 7", ("step off",), polyak_slope),
        ("Theorem 7", ("norm off",), fixed_head.polyak_gap(polyak, target, late)),
        ("Lemma 1", ("exponent off",), fixed_head.saturation(ngd, late)),
        ("Lemma 10", ("norm off", "step off"), slope),
        ("Eq. 12", ("exponent off",), fixed_head.growth(ngd, "NGD", late, "Eq. 12")),
    ]
    for rule, history in of.runs["small"].items():
        table += [
            ("Lemma 5", ("label turned",), claim) for claim in fixed_head.lemma5(history, rule)
        ]
    table += [("Lemma 7", ("step off",), c) for c in fixed_head.lemma7(ngd, sizes.ngd_step)]
    return [
        row
        for statement, families, claim in table
        for row in rows(name(statement), where, seeds, claim, fails_if=families)
    ]


def _from_start(of: Setting, start: str, sizes: Sizes) -> list[Claim]:
    where, found = f"{of.name}, start {start}", []
    anywhere = "Footnote 5" if of.name == "antipodal" else "Remark 1"
    for rule, history in of.runs[start].items():
        claim = fixed_head.remark1(history, "W_mm", rule, start)
        found += rows(anywhere, where, sizes.seeds, claim, fails_if=("target rotated",))
    for statement, rule in (("Theorem 1", "NGD"), ("Theorem 7", "Polyak")):
        history = of.runs[start][rule]
        rates = fixed_head.direction(history, rule, "W_mm", sizes.steps / 10, statement)
        found += rows(statement, where, sizes.seeds, *rates, fails_if=DIRECTION)
    return found


def figure_5_rows(sizes: Sizes, world: World = TRUE) -> list[Claim]:
    """Lemma 5 on Figure 5's own data and steps: n = 20, T = 10, antipodal means, 20 seeds always."""
    drawn = tokens.class_mean_tokens(range(20), 20, 10, 300, 3.0, 0.1, antipodal=True)
    problem = coordinates.minimal(drawn)
    named = {"GD": rules.gd(1.0), "NGD": rules.ngd(0.025), "Polyak": rules.polyak()}
    histories = dynamics.train(
        world.problem(problem),
        named,
        1000,
        dynamics.log_spaced(1000, 200),
        start=dynamics.gaussian_start(problem, 1e-3, range(20)),
    )
    why = "class means are not nearly orthogonal: the other class pulls one sample's weight down"
    return [
        row
        for rule, history in histories.items()
        for claim in fixed_head.lemma5(history, rule)
        for row in rows(
            "Lemma 5",
            "Figure 5's data",
            20,
            claim,
            fails_if=("label turned",),
            remark="" if claim.holds else why,
        )
    ]


def data_rows(sizes: Sizes, world: World = TRUE) -> list[Claim]:
    """Definition 1, Assumptions 1 and 2, Example 1, Lemmas 2, 4, 6, 8, 9, 11, 14 and Section 3.2."""
    each, many, found = range(sizes.seeds), range(sizes.draws), []
    data = {name: problem.tokens for name, problem in problems(sizes).items()}
    for name in ("class means", "high d"):
        seen = world.tokens(data[name])
        one = data_and_starts.definition1(seen)
        found += rows("Definition 1", name, sizes.seeds, one, fails_if=("label turned",))
        near, equal, least = data_and_starts.lemma8(seen)
        why = "a class shares its opt token, so that opt tokens are parallel"
        remark = why if name == "class means" else ""
        tilt = ("tokens tilted",)
        found += rows("Assumption 1", name, sizes.seeds, least, fails_if=tilt, remark=remark)
        found += rows("Assumption 2", name, sizes.seeds, equal, fails_if=tilt)
        if name == "high d":
            found += rows("Example 1", name, sizes.seeds, near, fails_if=tilt)
            both = (replace(near, id="lemma8.orthogonal"), replace(equal, id="lemma8.scores"))
            found += rows("Lemma 8", name, sizes.seeds, *both, fails_if=tilt)
        solution = world.target(svm.token_svm(data[name]))
        attained = gradient_cone.lemma6(data[name], solution)
        found += rows(
            "Lemma 6", name, sizes.seeds, attained, fails_if=("target rotated", "norm off")
        )
    few = 1 if sizes.seeds < 20 else 3
    second, ninth = gradient_cone.lemma2(data["high d"], solution, few, (10, 30, 100), few)
    found += rows("Lemma 2", "high d", few, second, fails_if=("target rotated",))
    found += rows("Lemma 9", "high d", few, ninth, fails_if=("target rotated",))
    found += _start_rows(sizes, world, many)
    drawn = world.tokens(tokens.two_token_gaussian(many, sizes.joint_n, 2, sizes.joint_d, 3.0))
    close = data_and_starts.lemma11(drawn, 3.0, sizes.joint_d**-0.5)
    found += rows("Lemma 11", "(DM)", sizes.draws, *close, fails_if=("tokens tilted",))
    few_tokens = tokens.two_token_gaussian(each, sizes.joint_n, 2, sizes.joint_d, 3.0)
    head = world.target(svm.head_svm(few_tokens))
    separable = data_and_starts.lemma14(few_tokens, head)
    return found + rows(
        "Lemma 14", "(DM)", sizes.seeds, separable, fails_if=("target rotated", "norm off")
    )


def _start_rows(sizes, world, many):
    shape = sizes.n, sizes.T, sizes.d, sizes.signal, sizes.noise
    wide = coordinates.minimal(tokens.class_mean_tokens(many, *shape))
    size = data_and_starts.start_size(wide.tokens)
    start = dynamics.gaussian_start(wide, size * (1 + world.of("sigma off")), many)
    both = data_and_starts.lemma4(wide.tokens, start, size, sizes.d)
    return rows("Lemma 4", "class means", sizes.draws, *both, fails_if=("sigma off",))


def other_loss_rows(sizes: Sizes, world: World = TRUE) -> list[Claim]:
    """Section 3.2: Theorem 1 and Lemma 10's slope for the logistic loss."""
    setting = trained("class means", problems(sizes)["class means"], sizes, world, "logistic")
    ngd, late = setting.runs["small"]["NGD"], sizes.steps / 10
    rates = fixed_head.direction(ngd, "NGD", "W_mm", late, "Section 3.2")
    slope = fixed_head.margin_growth(ngd, "NGD", sizes.ngd_step / setting.target.norm, late)
    where = "class means, logistic loss"
    found = rows("Section 3.2", where, sizes.seeds, *rates, fails_if=DIRECTION)
    return found + rows("Section 3.2", where, sizes.seeds, slope, fails_if=("norm off", "step off"))


@dataclass(frozen=True)
class Joint:
    """Joint training: data in minimal coordinates, the two end points, histories by decay p."""

    data: tokens.TokenSet
    attention: Target
    head: Target
    by_decay: dict[float, History]


def joint_training_run(data, sizes: Sizes, world: World, decays, u_std: float = 0.0) -> Joint:
    """Eq. 13 with steps eta (t+1)^-p from zero, or from u and W Gaussian of entry size u_std."""
    problem, each = coordinates.minimal(data), range(sizes.seeds)
    recorded = dynamics.log_spaced(sizes.joint_steps, 60)
    pairs = np.union1d(recorded, np.minimum(recorded + 1, sizes.joint_steps))  # for Lemma 3
    attention = world.target(svm.token_svm(problem.tokens))
    head = world.target(svm.head_svm(problem.tokens))
    seen, start = world.problem(problem), None
    if u_std:
        u = [u_std * stream(s, "draws").standard_normal(seen.tokens.u.shape[1]) for s in each]
        seen = replace(seen, tokens=replace(seen.tokens, u=np.stack(u)))
        start = dynamics.gaussian_start(problem, u_std, each)
    named = {p: world.rule(rules.ngd(sizes.joint_step, decay=p)) for p in decays}
    histories = dynamics.train(
        seen,
        named,
        sizes.joint_steps,
        pairs,
        start=start,
        targets={"W_mm": attention.W},
        head="joint",
        head_targets={"u_mm": head.value},
    )
    found = {p: world.history(history) for p, history in histories.items()}
    return Joint(problem.tokens, attention, head, found)


def joint_rows(sizes: Sizes, world: World = TRUE) -> list[Claim]:
    """Theorems 2-4 and 8-10, Lemmas 3, 12, 13 and 15, Remarks 3 and 4, Eq. 13, Sections 4.1 and 4.2."""
    each, late, step = range(sizes.seeds), sizes.joint_steps / 10, sizes.joint_step
    two = tokens.two_token_gaussian(each, sizes.joint_n, 2, sizes.joint_d, sizes.joint_signal)
    run = joint_training_run(two, sizes, world, (0, 1 / 2, 2 / 3, 4 / 5))
    eq13, head, data = run.by_decay[2 / 3], run.head, run.data
    loss, norm, head_norm = joint_training.growth(eq13, "Eq. 13", 1 / 3, late)
    bound, sharp = joint_training.theorem2(eq13, step, head, late)
    third = joint_training.theorem3(eq13, "W_mm", late)
    quarter, margin = joint_training.theorem4(eq13, data, head, since=1)
    towards = joint_training.head_direction(eq13, "u_mm", late)
    gradient, segment, curved = curvature.lemma3(eq13, data, head, since=100)
    rate, sizes_off = ("exponent off",), ("norm off", "step off")
    table = [
        ("Theorem 2", rate, loss),
        ("Theorem 2", (*sizes_off, "exponent off"), bound),
        ("Theorem 3", DIRECTION, third[0]),
        ("Theorem 3", DIRECTION, third[1]),
        ("Theorem 4", ("norm off", "label turned"), quarter),
        ("Theorem 4", DIRECTION, towards),
        ("Theorem 8", sizes_off, sharp),
        ("Theorem 9", rate, norm),
        ("Theorem 10", ("norm off",), margin),
        ("Lemma 3", ("norm off", "label turned"), gradient),
        ("Lemma 3", ("step off", "label turned"), segment),
        ("Lemma 3", ("label turned",), curved),
        ("Lemma 12", ("step off",), joint_training.lemma12(eq13, step)),
        ("Lemma 12", rate, head_norm),
        ("Lemma 15", ("label turned",), curvature.lemma15(eq13, data)),
        ("Remark 4", ("norm off",), curvature.remark4(eq13, head, since=late)),
    ]
    lemma13 = joint_training.lemma13(eq13, data, late)
    table += zip(
        ["Lemma 13"] * 3, (rate, ("label turned",), ("label turned",)), lemma13, strict=True
    )
    found = _rows("(DM)", sizes, table)
    return found + _decay_rows(run, two, sizes, world) + _beyond_rows(sizes, world)


def _rows(where, sizes, table):
    return [
        row
        for statement, families, claim in table
        for row in rows(statement, where, sizes.seeds, claim, fails_if=families)
    ]


def _decay_rows(run, two, sizes, world):
    """Remark 3 and Eq. 13: other exponents of the step, and the linear predictor on opt tokens."""
    late = sizes.joint_steps / 10
    same = {p: world.rule(rules.ngd(sizes.joint_step, decay=p)) for p in run.by_decay}
    linear = joint_training.linear_predictor(coordinates.minimal(two))
    of_linear = dynamics.train(linear, same, sizes.joint_steps, head="joint")
    table = []
    for p in (0, 1 / 2, 2 / 3):
        histories = {"attention": run.by_decay[p], "linear predictor": world.history(of_linear[p])}
        for name, history in histories.items():
            claim = joint_training.remark3(history, name, p, late)
            table.append(("Remark 3", ("exponent off",), claim))
    found = _rows("(DM)", sizes, table)
    last = {p: history.log_gap[:, -1] for p, history in run.by_decay.items()}
    ratio = {p: value / last[2 / 3] for p, value in last.items()}
    text, source = "last log L with (t+1)^-{} over that with (t+1)^-2/3", "paper A, Section 4.1"
    inside = at_most("eq13.inside", text.format("4/5"), source, ratio[4 / 5].max(), 1.0)
    outside = at_least("eq13.outside", text.format(0), "ours", ratio[0].min(), 1.0)
    why = "an order of two runs of one rule: no small world turns it round"
    found += rows("Eq. 13", "(DM)", sizes.seeds, inside, fails_if=(), remark=why)
    why = "the proof needs p ≥ 2/3, this problem does not; no small world turns the order round"
    return found + rows("Eq. 13", "(DM)", sizes.seeds, outside, fails_if=(), remark=why)


def _beyond_rows(sizes, world):
    """Section 4.1's small random start, and Section 4.2: T = 4, equal other tokens and nearly equal."""
    each, late = range(sizes.seeds), sizes.joint_steps / 10
    shape = sizes.joint_n, sizes.joint_d, sizes.joint_signal
    two = tokens.two_token_gaussian(each, shape[0], 2, *shape[1:])
    four = tokens.two_token_gaussian(each, shape[0], 4, *shape[1:])
    near = four.X.copy()
    for run, seed in enumerate(each):  # the other tokens differ by a tenth of their length
        size = 0.1 * np.linalg.norm(four.X[run], axis=-1, keepdims=True) / np.sqrt(shape[1])
        added = size * stream(seed, "draws").standard_normal(near[run].shape)
        kept = np.arange(4) == four.opt[run][:, None]
        near[run] += np.where(kept[..., None], 0.0, added)
    cases = {
        "(DM), u_0 and W_0 Gaussian, 0.01": ("Section 4.1", two, 0.01),
        "(DM), T = 4": ("Section 4.2", four, 0.0),
        "(DM), T = 4, other tokens 10 % apart": ("Section 4.2", replace(four, X=near), 0.0),
    }
    found = []
    for where, (statement, data, u_std) in cases.items():
        run = joint_training_run(data, sizes, world, (2 / 3,), u_std)
        eq13 = run.by_decay[2 / 3]
        loss, norm, _ = joint_training.growth(eq13, "Eq. 13", 1 / 3, late)
        towards = joint_training.theorem3(eq13, "W_mm", late)[1]
        margin = joint_training.theorem4(eq13, run.data, run.head, since=1)[1]
        table = [
            (statement, ("exponent off",), loss),
            (statement, ("exponent off",), norm),
            (statement, DIRECTION, towards),
            (statement, ("norm off",), margin),
        ]
        found += _rows(where, sizes, table)
    return found


SECTIONS = {
    "fixed head": fixed_head_rows,
    "Figure 5": figure_5_rows,
    "data": data_rows,
    "other loss": other_loss_rows,
    "joint": joint_rows,
}
