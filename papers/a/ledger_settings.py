"""The settings of paper A's ledger: data, starts, trained runs, in the true or in a wrong world.

Three settings for a fixed head, all ours: "class means" and "antipodal" are those of our Figures 2
and 5, which Assumption 1 as we read it excludes; "high d" is Example 1 in Gaussian form, small and
of such dimension that our sufficient form of Assumption 1 holds on every draw. Three starts:
"small" (Lemma 4), "opposite" (-W_mm), and "local", the token SVM's solution of another selection,
where the local theory (2308.16898) says training may stay.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from lib import dynamics, svm
from lib.attention import coordinates, token_sets, tokens
from lib.companion import ledger
from lib.companion.claims import Claim
from lib.dynamics import rules
from lib.dynamics.history import History
from lib.seeds import stream
from lib.svm import MaxMargin
from papers.a import data_and_starts, fixed_head
from papers.wrong_worlds import TRUE, World, around

DIRECTION = ("target rotated", "exponent off")


@dataclass(frozen=True)
class Sizes:
    """How large the ledger's problems are; the defaults are those of notebook 19 at demo scale."""

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


SMALL = Sizes(seeds=2, steps=4000, draws=40)


def tabled(table: Iterable[tuple], where: str, sizes: Sizes) -> list[Claim]:
    """The rows of a table of (statement, families of wrong worlds, claim) in one setting."""
    found = []
    for statement, families, claim in table:
        found += ledger.rows(statement, where, sizes.seeds, claim, fails_if=families)
    return found


@dataclass(frozen=True)
class LedgerSetting:
    """One data set trained: its name, problem, the end point as the world has it, runs by start."""

    name: str
    problem: coordinates.Minimal
    target: MaxMargin
    runs: dict[str, dict[str, History]]


@cache
def problems(sizes: Sizes) -> dict[str, coordinates.Minimal]:
    """The three settings' data."""
    each, shape = range(sizes.seeds), (sizes.n, sizes.T, sizes.d, sizes.signal, sizes.noise)
    drawn = {
        "class means": tokens.class_mean_tokens(each, *shape),
        "antipodal": tokens.class_mean_tokens(each, *shape, antipodal=True),
        "high d": tokens.gaussian_tokens(each, n=4, T=3, d=sizes.verified_d),
    }
    return {name: coordinates.minimal(data) for name, data in drawn.items()}


@cache
def solutions(sizes: Sizes, name: str) -> tuple[MaxMargin, MaxMargin, MaxMargin]:
    """The token SVM of a setting's opt tokens, and of two selections of other tokens.

    The first of these two is random in every sample, the second in one sample alone.
    """
    data = problems(sizes)[name].tokens
    other = data_and_starts.wrong_selection(data, range(sizes.seeds))
    nearest = np.where(np.arange(data.shape[1]) == 0, other, data.opt)
    return tuple(svm.token_svm(data, selected) for selected in (data.opt, other, nearest))


@cache
def trained(sizes: Sizes, name: str, start: str, world: World, loss: str) -> dict[str, History]:
    """NGD, GD and Polyak from one of three starts; NGD alone for another loss than the exponential.

    GD's step is one over a bound on the smoothness.
    """
    problem, (true, local, nearest) = problems(sizes)[name], solutions(sizes, name)
    std = sizes.start_norm / problem.token_basis.shape[1]
    starts = {
        "small": lambda: dynamics.gaussian_start(problem, std, range(sizes.seeds)),
        "opposite": lambda: dynamics.Start(-true.W, np.zeros(sizes.seeds)),
        "local": lambda: dynamics.Start(local.W, np.zeros(sizes.seeds)),
    }
    gd = rules.gd(1 / fixed_head.smoothness(problem.tokens).max())
    named = {"NGD": rules.ngd(sizes.ngd_step), "GD": gd, "Polyak": rules.polyak()}
    named = named if loss == "exponential" else {"NGD": named["NGD"]}
    return dynamics.train(
        world.problem(problem),
        {rule: world.rule(of) for rule, of in named.items()},
        sizes.steps,
        dynamics.log_spaced(sizes.steps, 120),
        start=starts[start](),
        targets=around("W_mm", true) | {"local": local.W, "exchanged": nearest.W},
        loss=loss,
    )


def setting(sizes: Sizes, name: str, world: World, loss: str = "exponential") -> LedgerSetting:
    """A setting in a world, from every start.

    From the small one alone where it trains otherwise, or with another loss than the exponential.
    """
    every = world.trained() == TRUE and loss == "exponential"
    starts = ("small", "opposite", "local") if every else ("small",)
    runs = {
        start: {
            rule: world.history(history)
            for rule, history in trained(sizes, name, start, world.trained(), loss).items()
        }
        for start in starts
    }
    target = world.target(solutions(sizes, name)[0])
    return LedgerSetting(name, problems(sizes)[name], target, runs)


@dataclass(frozen=True)
class TrainedHead:
    """Joint training: data in minimal coordinates, the head's end point, histories by decay p."""

    data: token_sets.TokenSet
    head: MaxMargin
    by_decay: dict[float, History]


def joint_training_run(data, sizes: Sizes, world: World, decays, u_std: float = 0.0) -> TrainedHead:
    """Eq. 13 with steps eta (t+1)^-p from zero, or from u and W Gaussian of entry size u_std."""
    problem, each = coordinates.minimal(data), range(sizes.seeds)
    recorded = dynamics.log_spaced(sizes.joint_steps, 60)
    pairs = np.union1d(recorded, np.minimum(recorded + 1, sizes.joint_steps))  # for Lemma 3
    true, true_head = svm.token_svm(problem.tokens), svm.head_svm(problem.tokens)
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
        targets=around("W_mm", true),
        head="joint",
        head_targets=around("u_mm", true_head),
    )
    found = {p: world.history(history) for p, history in histories.items()}
    return TrainedHead(problem.tokens, world.target(true_head), found)
