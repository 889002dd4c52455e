"""The atlas as optimisers are used: weight decay, variance reduction, keys and queries turned.

Decoupled decay lambda keeps N(W) <= 1/lambda, N the norm of the rule's step, and a run rests where
log sum_m kappa_m e^{-g_m} is least in that ball, g_m the margins and kappa as in `margin_law`. By
duality that is the largest sum_m pi_m log(kappa_m / pi_m) - N*(sum_m pi_m A_m) / lambda over
probabilities pi, which tend to beta / sum beta, beta the duals of the token SVM in N. So g_m =
gamma_N / lambda + a_m, a_m = log(kappa_m / beta_m) less its beta-weighted mean, and 1 - ratio =
-min_m a_m lambda / gamma_N to first order (ours).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lib import svm
from lib.attention.token_sets import TokenSet
from lib.companion.claims import Claim, at_least, at_most, remarked
from lib.seeds import stream
from papers.beyond import factored_atlas, margin_law
from papers.beyond.atlas import NORMS, Ratios, column, least_margins, selected
from papers.beyond.atlas_claims import word
from papers.beyond.atlas_rules import BATCHES, GAMMA, GROWTH, OURS, TENTH, Row, step
from papers.beyond.engine import factored
from papers.beyond.engine import optimisers as o
from papers.beyond.engine.training import Path

ADAMW = "arXiv 2404.04454, any loss"  # Xie and Li
LION_K = "arXiv 2506.15054, any loss"  # Chen, Li and Liu
GAUGE = "arXiv 2605.07067 for polar steps and Adam"
OWN_SOURCES = {  # of the norms in `own_norms`
    "Adam, 0.999, per sample": "ours, measured; predicted by arXiv 2510.26303 for linear models",
    "AdaGrad": "ours, measured; predicted by arXiv 1906.03559 for linear models",
    "Shampoo, sums": "ours",
    "SOAP": "ours",
}
QUICK = 2 * GROWTH  # growth of margins a step with weight decay
ALLOWED = (1, 3, 10, 30, 100)  # gamma_N / lambda, for the typical gamma_N
SLOW = "AdamW, 0.999, 100"  # the roots of its second moments forget 0.0005 a step
ASKED = dict(slow=0.9, norm=1e-4, shortfall=0.05, own=0.98, largest=0.9, kept=1e-9, turned=0.01)


@dataclass(frozen=True)
class _Decayed:
    """A rule under decay: its steps' norm, whose theorem, the rule for a step size, how slow."""

    norm: str
    source: str
    of: Callable[[float], o.Optimiser]
    slower: int = 1

    def row(self, allowed: float) -> Row:
        """The rule, its decay allowing margins of `allowed`, until the start is forgotten."""
        gamma = GAMMA[self.norm]
        rule = o.decayed(self.of(QUICK / self.slower / gamma), gamma / allowed)
        steps = self.slower * max(5_000, int(12 * allowed / QUICK))
        return Row(rule, None, self.norm, steps, self.source)


DECAYED = {
    "GD": _Decayed("Frobenius", OURS, lambda eta: o.steepest(2, eta)),
    "sign": _Decayed("l_inf", LION_K, lambda eta: o.steepest(np.inf, eta)),
    "Signum": _Decayed("l_inf", LION_K, o.signum),
    "Lion": _Decayed("l_inf", LION_K, o.lion, 4),
    "AdamW": _Decayed("l_inf", ADAMW, lambda eta: o.adam(eta, memory=0.95), 2),
    "Muon": _Decayed("spectral", LION_K, o.muon),
}


def decay_rows() -> dict[str, Row]:
    """Every rule of DECAYED at every allowed margin, under "rule, allowed", and SLOW."""
    rows = {f"{k}, {m}": rule.row(m) for k, rule in DECAYED.items() for m in ALLOWED}
    return rows | {SLOW: _Decayed("l_inf", ADAMW, o.adam).row(ALLOWED[-1])}


def other_rows() -> dict[str, Row]:
    """Variance reduction on single samples, and the sign after orthogonalisation."""
    rules = {"NGD": ("Frobenius", 2), "sign": ("l_inf", np.inf), "polar": ("spectral", "spectral")}
    rows = {}
    for name, (norm, p) in rules.items():
        rule = o.variance_reduced(o.on_batches(o.steepest(p, step(norm) / 4), 1))
        rows[f"{name}, variance reduced"] = Row(rule, norm, norm, TENTH, BATCHES)
    return rows | {"OLion": Row(o.olion(step("l_inf")), None, "l_inf", TENTH)}


class Solutions:
    """The token SVM of each run, selection and norm, solved once."""

    def __init__(self, tokens: TokenSet):
        self.tokens, self.known = tokens, {}

    def of(self, run: int, selection: np.ndarray, norm: str) -> svm.MaxMargin:
        """The solution of one run's selection (n,), norm by its name in NORMS."""
        key = run, norm, *map(int, selection)
        if key not in self.known:
            self.known[key] = svm.token_svm(self.tokens.run(run), selection[None], NORMS[norm])
        return self.known[key]


@dataclass(frozen=True)
class AtRest:
    """Runs under one decay: N(W) decay; 1 - ratio, and the law's; selections, gamma_N / decay.

    (runs,) each, selection (runs, n). NaN where a run selects nothing; the law's too where a token
    on the support scores at least what the selected one does, on which no run rests.
    """

    size: np.ndarray
    missing: np.ndarray
    law: np.ndarray
    selection: np.ndarray
    allowed: np.ndarray


def at_rest(row: Row, path: Path, solutions: Solutions, identity: bool = False) -> AtRest:
    """How a row of `decay_rows` ended; in the Frobenius norm with the identity as the metric."""
    tokens, W, decay = solutions.tokens, path.W[:, -1], row.rule.weight_decay
    norm = "Frobenius" if identity else row.highest
    selection, size = selected(tokens, W), svm.norm_of(W, NORMS[norm])
    least = least_margins(tokens, selection, W[:, None])[:, 0]
    missing, law, allowed = np.full((3, len(W)), np.nan)
    for run in np.flatnonzero((least > 0) & (path.status == "completed")):
        solution = solutions.of(run, selection[run], norm)
        slopes = margin_law.saturated_slopes(tokens.run(run), selection[run : run + 1])[0]
        on = solution.support[0] & (solution.duals[0] > 0)
        offsets, _ = margin_law.log_ratios(slopes[on], solution.duals[0][on])
        missing[run] = 1 - least[run] * solution.norm[0] / size[run]
        law[run] = -offsets.min() * decay * solution.norm[0]
        allowed[run] = 1 / (solution.norm[0] * decay)
    return AtRest(size * decay, missing, law, selection, allowed)


def decay_claims(ends: Mapping[str, AtRest]) -> list[Claim]:
    """Norm times decay at every decay, and the shortfall at the weakest beside the law's."""
    claims = []
    for name, rule in DECAYED.items():
        runs, source = [ends[f"{name}, {m}"] for m in ALLOWED], f"ours, measured; {rule.source}"
        off = max(np.abs(one.size - 1).max() for one in runs)
        text = f"{name} with decay: |{rule.norm} norm times decay - 1|, largest of all decays, runs"
        claim = at_most(f"atlas.decay.norm.{word(name)}", text, source, off, ASKED["norm"])
        why = f"A step of {name} can be longer than one, so that 1/decay is no bound of its norm"
        claims.append(remarked(claim, why))
        off, bound = np.abs(runs[-1].missing / runs[-1].law - 1), ASKED["shortfall"]
        text = f"{name} with decay that allows margins of 100: |shortfall / the law's - 1|, largest"
        claim = at_most(f"atlas.decay.law.{word(name)}", text, "ours", off.max(), bound)
        why = f"Only to first order: {(off <= bound).sum()} of {len(off)} runs keep to the bound"
        claims.append(remarked(claim, why))
    text = f"{SLOW} allowed: l_inf norm times decay, largest of all runs"
    largest = ends[SLOW].size.max()
    return [*claims, at_most("atlas.decay.slow", text, "ours", largest, ASKED["slow"])]


def forbidden(ends: Mapping[str, AtRest]) -> dict[str, int]:
    """By row, in how many runs the decay leaves no margin of 1 or no selection at all."""
    counts = {name: int((~(one.allowed >= 1)).sum()) for name, one in ends.items()}
    return {name: count for name, count in counts.items() if count}


def in_frobenius(by_rule: Mapping[str, Ratios]) -> dict[str, Ratios]:
    """Every norm's ratio that in Frobenius: what the identity as the metric shows."""
    k = column("Frobenius")
    return {
        name: replace(one, value=np.repeat(one.value[..., k : k + 1], len(NORMS), -1))
        for name, one in by_rule.items()
    }


def selection_claims(by_rule: Mapping[tuple, tuple]) -> list[Claim]:
    """Where strong decay selects other tokens, their largest margin is the larger one."""
    runs, larger = (sum(counts[k] for counts in by_rule.values()) for k in (2, 3))
    text = f"share of {runs} runs whose stronger decay selects other tokens that gain margin by it"
    share = larger / runs if runs else np.nan
    why = f"Refuted: {runs - larger} of these runs select tokens of less margin; why is not shown"
    return [remarked(at_least("atlas.decay.selection", text, "ours", share, ASKED["largest"]), why)]


def chosen(ends: Mapping[str, AtRest]) -> dict[tuple, tuple]:
    """By rule and allowed margin, where the decay is stronger than the weakest.

    (samples, of how many, whose token is another than under the weakest decay; runs with such, in
    how many of them the strong decay's selection has the larger gamma_N).
    """
    counts = {}
    for name in DECAYED:
        weak = ends[f"{name}, {ALLOWED[-1]}"]
        for m in ALLOWED[:-1]:
            strong = ends[f"{name}, {m}"]
            other = (strong.selection != weak.selection) & np.isfinite(strong.allowed)[:, None]
            larger = strong.allowed * (ALLOWED[-1] / m) > weak.allowed
            runs = other.any(1) & np.isfinite(weak.allowed)
            counts[name, m] = (
                int(other.sum()),
                other.size,
                int(runs.sum()),
                int(larger[runs].sum()),
            )
    return counts


def turned_back(
    tokens: TokenSet, seeds: Sequence[int], steps: int, identity: bool = False, size: float = 1.0
) -> dict[str, np.ndarray]:
    """||W' - W|| / ||W|| after `steps`, (runs,), W' trained from (K R, Q R), by rule on K and on Q.

    R `size` times an orthogonal matrix, drawn, or the identity where asked.
    """
    K, Q = factored.small_start(tokens, seeds, factored_atlas.COLUMNS, size=1.0)
    drawn = [stream(seed, "draws").standard_normal(2 * K.shape[-1:]) for seed in seeds]
    R = size * np.stack([np.eye(len(M)) if identity else np.linalg.qr(M)[0] for M in drawn])
    rules = {name: row.rule for name, row in factored_atlas.rows().items()}
    plain = {"GD": o.steepest(2, 0.05, normalised=False), "NGD": rules.pop("gradient descent")}
    starts = (K, Q), (K @ R, Q @ R)
    W, turned = (factored.train(tokens, plain | rules, *start, [steps]) for start in starts)
    length = lambda W: np.linalg.norm(W[:, -1], axis=(1, 2))
    return {name: length(turned[name].W - W[name].W) / length(W[name].W) for name in W}


def gauge_claims(moved: Mapping[str, np.ndarray]) -> list[Claim]:
    """W is the same from turned (K, Q) under GD, NGD and polar steps; under sign and Adam not."""
    claims = []
    for name, change in moved.items():
        judge, value, bound = at_least, change.min(), ASKED["turned"]
        if name in ("GD", "NGD", "polar steps"):
            judge, value, bound = at_most, change.max(), ASKED["kept"]
        text = f"(K, Q) turned, {name}: relative change of W"
        source = f"ours, measured; predicted by {GAUGE}"
        claim = judge(f"atlas.gauge.{word(name)}", text, source, value, bound)
        why = f"{change.min():.0e} in the best run: rounding grows along some runs"
        claims.append(remarked(claim, why))
    return claims


def own_claims(own: Mapping[str, np.ndarray], by_rule: Mapping[str, Ratios]) -> list[Claim]:
    """Adam on single samples reaches its own norm; the others' has the largest ratio of the row."""
    claims = []
    for name, value in own.items():
        steps = by_rule[name].iterations[-1]
        if "per sample" in name:
            text = f"{name}: margin over the largest in its fixed point's norm, least of all runs"
            measured, bound = value.min(), ASKED["own"]
            why = f"{(value >= bound).sum()} of {len(value)} runs reach it"
        else:
            above = value > by_rule[name].last.max(1)
            text = f"{name}: share of runs whose ratio in the rule's own norm is above all others"
            measured, bound = above.mean(), ASKED["largest"]
            why = f"In {(~above).sum()} of {len(above)} runs one of the seven norms is above it"
        why += f", after {steps:,} steps"
        id = f"atlas.own_norm.{word(name)}"
        claims.append(remarked(at_least(id, text, OWN_SOURCES[name], measured, bound), why))
    return claims
