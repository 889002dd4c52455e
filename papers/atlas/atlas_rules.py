"""The rules of the atlas, each with its step size, the norm that is predicted for it,
and its claims.

Predictions and criteria are those of notebooks/atlas_protocol.md. The function `step`
returns the step size with which a step in the direction of the largest margin raises
the smallest margin by GROWTH, on unit tokens with n = 6, T = 8, d = 10. On such tokens
the largest margin of a W with norm 1 is about GAMMA.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as File
from typing import Any

import numpy as np

from companion.claims import Claim
from lib import dynamics
from lib.attention.token_sets import TokenSet
from lib.dynamics import History
from papers.atlas.atlas import NORMS, Ratios, Reached, column
from papers.atlas.kept_paths import train_kept
from papers.ours import BOUNDS, ROWS, claim

REACHED = BOUNDS["atlas.own"]
GROWTH = 0.02
OURS = "ours"
MULTICLASS = "arXiv 2502.04664 for linear models"  # Fan, Schmidt and Thrampoulidis
BATCHES = "arXiv 2602.11557 for linear models"  # Li, Tang and Zou
ADAM = "arXiv 2406.10650 for linear models"  # Zhang, Zou and Cao
PER_SAMPLE = "arXiv 2510.26303 for linear models"  # Baek, Song and Yun
RESCALING = "arXiv 2311.14387 for linear models"  # Wang, Min and Wu
MIRROR = "paper C for attention"
TENTH = 119_378  # the first record after one tenth of a run of 10^6 steps
GAMMA = {"l_1": 0.067, "nuclear": 0.19, "Frobenius": 0.34, "l_3": 0.64}
GAMMA |= {"spectral": 0.65, "l_inf": 2.3, "head-wise": 0.8}


@dataclass(frozen=True)
class Row:
    """A rule with its predictions.

    The protocol predicts that the rule reaches the largest margin in the norm
    `reached`, or in no norm if this is None. It also predicts that, in at least half of
    the runs, the ratio in the norm `highest` is larger than the ratios in all other
    norms.
    """

    rule: dynamics.Rule
    reached: str | None
    highest: str
    # The largest number of steps. The number is limited by the cost of a step, or by
    # the range of floats if the norm grows fast.
    longest: int = 1_000_000
    source: str = OURS  # who predicts the norm: a paper with a theorem, or we


def step(norm: str, growth: float = GROWTH) -> float:
    """Return the length, in a norm, of a step that can raise all margins by `growth`.

    The step raises them in the direction of the largest margin, which is about GAMMA. A
    step of the same length in another direction raises the smallest margin by less.
    """
    return growth / GAMMA[norm]


def steepest_rows(decay: float = 0.0, growth: float = GROWTH) -> dict[str, Row]:
    """Return steepest descent in every norm of the atlas except "head-wise".

    Each rule is predicted to reach the largest margin in its own norm. The step sizes
    of a rule fall like t^-decay, and the first of them is `step(name, growth)`.
    """
    return {
        f"steepest, {name}": Row(
            dynamics.SteepestDescent(norm, step(name, growth), decay=decay),
            reached=name,
            highest=name,
            source=MULTICLASS,
        )
        for name, norm in NORMS.items()
        if name != "head-wise"  # The rule of this norm acts on blocks; it is in `rows`.
    }


def rows() -> dict[str, Row]:
    """Return every row of the map.

    The norm "head-wise" is the larger of the spectral norms of the upper and the lower
    half of W.
    """
    sign, polar, frobenius, by_head = map(
        step, ("l_inf", "spectral", "Frobenius", "head-wise")
    )
    # With the step size `slow`, margins grow by 0.0004 per step. That is slower than
    # the decay of sqrt(v), which with the memory 0.999 decays by a factor of e^-0.0005
    # per step.
    few = sign / 10
    slow = sign / 50
    heads = "head-wise"
    by_trace = dynamics.NaturalGradient(
        frobenius, damping=0.1, relative=True, normalised=True
    )
    grown = dynamics.SteepestDescent(2, 1.0, radius=10.0, growth=1.2, every=200)
    newton = dynamics.Muon(polar, nesterov=True, newton_schulz=5)
    alone = {
        "steepest, Frobenius": Row(
            dynamics.SteepestDescent(2, frobenius / 10), None, "Frobenius"
        ),
        "Signum, 0.99": Row(
            dynamics.Signum(few, momentum=0.99), "l_inf", "l_inf", source=PER_SAMPLE
        ),
        "Adam, 0.999": Row(dynamics.Adam(few / 5), None, "Frobenius"),
    }
    return {
        **steepest_rows(),
        "Muon": Row(dynamics.Muon(polar), "spectral", "spectral", source=MULTICLASS),
        "Muon, Newton-Schulz": Row(newton, None, "spectral"),
        "Signum": Row(dynamics.Signum(sign), "l_inf", "l_inf", source=MULTICLASS),
        "Lion": Row(dynamics.Lion(few), "l_inf", "l_inf"),
        "RMSprop, 0.99": Row(dynamics.RMSprop(few), "l_inf", "l_inf"),
        "Adam, 0.999": Row(dynamics.Adam(slow), None, "l_inf", source=ADAM),
        "Adam, 0.999, epsilon": Row(dynamics.Adam(slow, epsilon=1e-8), None, "l_inf"),
        "AdaGrad": Row(dynamics.AdaGrad(sign), None, "l_inf"),
        "Shampoo, 0.9": Row(
            dynamics.Shampoo(polar, memory=0.9), "spectral", "spectral", TENTH
        ),
        "Shampoo, sums": Row(
            dynamics.Shampoo(polar, summed=True), None, "spectral", TENTH
        ),
        "SOAP": Row(dynamics.SOAP(slow), None, "spectral"),
        **{
            f"{k}, per sample": replace(v, rule=replace(v.rule, batch_size=1))
            for k, v in alone.items()
        },
        "steepest, head-wise": Row(
            dynamics.SteepestDescent("spectral", by_head, blocks=2), heads, heads, TENTH
        ),
        "Muon, head-wise": Row(dynamics.Muon(by_head, blocks=2), heads, heads, TENTH),
        "mirror, l_3": Row(dynamics.MirrorDescent(3, 0.3), "l_3", "l_3", source=MIRROR),
        "natural, undamped": Row(
            dynamics.NaturalGradient(frobenius, normalised=True), None, "nuclear", TENTH
        ),
        "natural, damped": Row(
            dynamics.NaturalGradient(0.05, damping=0.01), None, "Frobenius"
        ),
        "natural, damped by trace": Row(by_trace, "Frobenius", "Frobenius", TENTH),
        "AdaGrad, full matrix": Row(
            dynamics.FullAdaGrad(frobenius), None, "Frobenius", 2_000
        ),
        "rescaled, Frobenius": Row(grown, "Frobenius", "Frobenius", 20_000, RESCALING),
    }


def growing_rows() -> dict[str, Row]:
    """Return steepest descent with step sizes that grow like t^{1/2}.

    From iteration 2,500 on, each step raises the margins by at least 1.
    """

    def kept(row: Row):
        return "Frobenius" if row.reached == "Frobenius" else None

    return {
        name: replace(row, reached=kept(row), longest=TENTH, source=OURS)
        for name, row in steepest_rows(-0.5).items()
    }


def batch_rows(sizes: Sequence[int]) -> dict[str, dict[int, Row]]:
    """Return the rows of four rules with several batch sizes each, by rule and then by
    batch size.

    A rule is predicted to reach the largest margin in its own norm only if its batch
    has all samples. So none of these rows has a norm in `reached`.
    """
    rules = {
        "normalised GD": (dynamics.SteepestDescent(2, step("Frobenius")), "Frobenius"),
        "sign": (dynamics.SignDescent(step("l_inf")), "l_inf"),
        "polar": (dynamics.SteepestDescent("spectral", step("spectral")), "spectral"),
        "Adam, 0.99": (dynamics.Adam(step("l_inf") / 5, memory=0.99), "l_inf"),
    }
    return {
        what: {
            size: Row(replace(rule, batch_size=size), None, name, TENTH, BATCHES)
            for size in sizes
        }
        for what, (rule, name) in rules.items()
    }


def trained(
    tokens: TokenSet,
    rows: Mapping[str, Row],
    steps: int,
    times: np.ndarray,
    folder: File,
) -> dict[str, History]:
    """Train every row for `steps` steps, or for its `longest` if that is less.

    `times` are the iterations to record. Iterations after the last step of a row are
    left out, and the last step is always recorded. Finished runs are stored in
    `folder`, and are read from there next time. The function returns the histories by
    the name of the row.
    """
    paths = {}
    ends = {name: min(steps, row.longest) for name, row in rows.items()}
    for end in sorted(set(ends.values())):
        ending = {name: row.rule for name, row in rows.items() if ends[name] == end}
        records = [*times[times < end].tolist(), end]
        paths |= train_kept(tokens, ending, end, records, folder)
    return {name: paths[name] for name in rows}


def _moved(rule: dynamics.Rule) -> str:
    """Write the direction D of a rule's step as a formula in G, M (a mean of G) and v
    (a mean of G^2).
    """
    if isinstance(rule, dynamics.SteepestDescent):
        return _steepest(rule.norm)
    if isinstance(rule, dynamics.Muon | dynamics.OLion):
        nesterov = isinstance(rule, dynamics.OLion) or rule.nesterov
        of = "M + (G - M) (1 - mu)" if nesterov else "M"
        return f"{_on_singular_values(rule)}, U S V^T = {of}"
    if isinstance(rule, dynamics.Adam | dynamics.RMSprop | dynamics.AdaGrad):
        summed = isinstance(rule, dynamics.AdaGrad)
        above = "M" if rule.momentum else "G"
        below = "sqrt(sum G^2)" if summed else "sqrt(v)"
        if rule.epsilon:
            below += f" + {rule.epsilon:g}"
        return f"{above} / ({below})"
    if isinstance(rule, dynamics.MirrorDescent):
        return f"G / |G|_q on sgn(W) |W|^{rule.p - 1:g}"
    if isinstance(rule, dynamics.Shampoo):
        kept = "sums" if rule.summed else "means"
        return f"P^(-1/4) G R^(-1/4), P and R {kept} of G G^T and G^T G"
    if isinstance(rule, dynamics.NaturalGradient):
        return f"(Fisher's F + damping I)^(-1) G{' / |.|' * rule.normalised}"
    return {
        dynamics.SignDescent: "sgn(G)",
        dynamics.Signum: "sgn(M)",
        dynamics.Lion: "sgn(M' + (G - M') 0.1), M' before G",
        dynamics.SOAP: "Adam's M / sqrt(v) in the eigenbases of Shampoo's P and R",
        dynamics.FullAdaGrad: "(sum vec(G) vec(G)^T)^(-1/2) vec(G)",
    }[type(rule)]


def _steepest(norm: float | str) -> str:
    """Write the direction of steepest descent in a norm as a formula."""
    named = {
        1: "sgn of the largest entry of G, there",
        2: "G / |G|",
        "frobenius": "G / |G|",
        np.inf: "sgn(G)",
        "spectral": "U V^T, U S V^T = G",
        "nuclear": "U_1 V_1^T, U S V^T = G",
    }
    if norm in named:
        return named[norm]
    return f"sgn(G) |G|^{1 / (norm - 1):g}, over its l_{norm:g} norm"


def _on_singular_values(rule: dynamics.Rule) -> str:
    """Write how Muon or OLion changes the singular values of U S V^T."""
    if isinstance(rule, dynamics.OLion):
        return "sgn(U V^T)"
    if rule.newton_schulz:
        return f"{rule.newton_schulz} Newton-Schulz steps on U S V^T"
    return "U V^T"


def _formula(rule: dynamics.Rule) -> str:
    """Write one step of a rule as a line: first how W changes, then how D, G and W are
    defined.
    """
    decays = getattr(rule, "weight_decay", 0.0)
    if decays:
        parts = ["W = (1 - eta lambda) W + eta D"]
    else:
        parts = ["W += eta D"]
    parts.append(f"D = {_moved(rule)}")
    if getattr(rule, "blocks", 1) > 1:
        parts.append(f"in each of {rule.blocks} blocks")
    if rule.batch_size:
        reduced = ", variance reduced" * rule.variance_reduced
        parts.append(f"G of {rule.batch_size} sample" + reduced)
    if getattr(rule, "radius", np.inf) < np.inf:
        parts.append(
            f"W in a ball that grows {rule.growth:g} times every {rule.every} steps"
        )
    return "; ".join(parts)


def listing(rows: Mapping[str, Row]) -> list[tuple[str, ...]]:
    """List for every row its name, its formula, its predicted norm, and who predicted
    it.
    """
    return [
        (
            name,
            _formula(row.rule),
            row.reached or f"none; nearest {row.highest}",
            row.source,
        )
        for name, row in rows.items()
    ]


def atlas_claim(
    id: str, values: Any, name: str, *say: str, by: str = OURS, **more: Any
) -> Claim:
    """Check the claim atlas.`id` for the rule `name`; `by` names who predicted it."""
    if by != OURS:
        more["source"] = f"ours, measured; predicted by {by}"
    return claim(f"atlas.{id}", values, word(name), name, *say, **more)


def word(name: str) -> str:
    """Write a rule's name as part of a claim's id."""
    letters_and_digits = re.findall(r"[^\W_]+", name)
    return "_".join(letters_and_digits)


def _norm_reached(name: str, row: Row, ratios: Ratios):
    """Check that a rule reaches the largest margin in its predicted norm: the last
    ratio in this norm is near 1, and the ratios in all other norms are lower.

    `row.reached` must be a norm. The function yields two claims. The second claim
    measures, for each run, the largest ratio in another norm minus the ratio in the
    predicted one.
    """
    at_end = ratios.value[..., column(row.reached)]
    rivals = np.delete(ratios.last, column(row.reached), 1).max(1)
    why = "The ratio no longer rises in every run"
    if (at_end[:, -1] > at_end[:, -3:][:, 0]).all():
        why = f"The ratio still rises at the last step, {ratios.iterations[-1]:,}"
    about = name, row.reached
    yield atlas_claim("own", at_end[:, -1], *about, by=row.source, why=why)
    yield atlas_claim("lower", rivals - at_end[:, -1], *about, by=row.source)


def ranked(last: np.ndarray, norms: Sequence[str], norm: str) -> tuple[float, str]:
    """Return the share of runs whose largest ratio is in `norm`, and, in words, the
    norms in which at least one run has its largest ratio.

    `last` (runs, norms) are the last ratios. A run with a NaN counts as a run that has
    its largest ratio in no norm.
    """
    largest = last[np.isfinite(last).all(1)].argmax(1)
    nearest_to = " and ".join(norms[k] for k in np.unique(largest)) or "no norm"
    return (largest == norms.index(norm)).sum() / len(last), nearest_to


def _none_reached(name: str, row: Row, ratios: Ratios):
    """Check that a rule reaches the largest margin in no norm, and that at least half
    of the runs have their largest ratio in the norm `highest`.

    The measured values are the smallest ratio over runs in each norm, and the share of
    runs whose largest ratio is in `highest`. The function yields the two claims.
    """
    yield atlas_claim("none", ratios.last.min(0), name)
    share, nearest_to = ranked(ratios.last, list(NORMS), row.highest)
    why = f"The prediction is refuted here: nearest to {nearest_to}"
    yield atlas_claim("nearest", share, name, row.highest, by=row.source, why=why)


def memories(by_rule: Reached) -> list[Claim]:
    """Check that Adam has a larger ratio in l_inf with a short memory than with a long
    one.

    `by_rule` has the ratios with the memories "0.99" and "0.9999". The measured values
    are the differences of the last ratios of each run.
    """
    excess = by_rule["0.99"].last - by_rule["0.9999"].last
    return [claim("atlas.memory", excess[:, column("l_inf")])]


def growing(rows: Mapping[str, Row], by_rule: Reached) -> list[Claim]:
    """Check the smallest ratio of each rule in its own norm, under growing step sizes.

    Only steepest descent in the Frobenius norm is predicted to reach the largest margin
    in its own norm.
    """
    claims = []
    for name, row in rows.items():
        lowest = by_rule[name].last[:, column(row.highest)].min()
        bound = ""  # that of the table
        if row.reached:
            bound = ROWS["atlas.own"][1]
        why = _why(by_rule[name])
        claims.append(
            atlas_claim("growing", lowest, name, row.highest, bound=bound, why=why)
        )
    return claims


def batches(
    reached: Mapping[str, Mapping[int, Ratios]], norms: Mapping[str, str]
) -> list[Claim]:
    """Check that a rule does not reach the largest margin in its norm if a step uses
    fewer than all samples, and that its ratio in this norm rises with the number of
    samples.

    `reached` has the ratios by rule and then by batch size, of which the largest must
    be all samples. `norms` has the norm of each rule. There are two kinds of measured
    values. The first is the last ratio of the worst run, at its largest over the
    smaller batches. The second is the rise of the median last ratio from one batch size
    to the next.
    """
    claims = []
    for name, by_size in reached.items():
        k = column(norms[name])
        sizes = sorted(by_size)
        # Unlike max, np.max is NaN if one of the values is. The claim then fails.
        best = np.max([by_size[size].last[:, k].min() for size in sizes[:-1]])
        rises = np.diff([np.median(by_size[size].last[:, k]) for size in sizes])
        why = _why(by_size[sizes[0]])
        claims.append(
            atlas_claim("batch", best, name, norms[name], by=BATCHES, why=why)
        )
        claims.append(atlas_claim("rise", rises, name, why=why))
    return claims


def _why(ratios: Ratios):
    """Say why a claim can fail: the runs are too short, or the prediction is wrong."""
    if ratios.iterations[-1] < TENTH:
        return f"The protocol judges after {TENTH:,} steps"
    return "The prediction is refuted here"


def predictions(rows: Mapping[str, Row], reached: Reached) -> list[Claim]:
    """Check what the protocol predicts about every row.

    The first claim is that no ratio exceeds 1.
    """
    largest = max(np.nanmax(ratios.value) for ratios in reached.values())
    claims = [claim("atlas.bounded", largest)]
    for name, row in rows.items():
        if row.reached is None:
            judged = _none_reached
        else:
            judged = _norm_reached
        claims += judged(name, row, reached[name])
    return claims
