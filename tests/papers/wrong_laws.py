"""Wrong worlds of the laws and of the atlas: small falsehoods that their claims must notice.

Each world changes what one thing, a run beside its law, predicts or measured.
"""

from copy import copy
from dataclasses import replace
from functools import partial

import numpy as np

from papers.beyond import constant_map, joint_law, margin_law


def caught(true, wrong):
    """Per wrong world the ids of the claims that hold in the true one and fail in it."""
    holding = {claim.id for claim in true if claim.holds}
    return {
        world: [claim.id for claim in claims if not claim.holds and claim.id in holding]
        for world, claims in wrong.items()
    }


def caught_after(things, claims_of, changes):
    """`caught` for claims on a list of things, in worlds that each change every thing."""
    wrong = {world: claims_of([change(t) for t in things]) for world, change in changes.items()}
    return caught(claims_of(things), wrong)


def but(record, **changes):
    """A copy of nested records with parts changed: but(c, law__norm=2.0), or by a function."""
    changed = copy(record)
    for path, change in changes.items():
        name, _, rest = path.partition("__")
        part = getattr(changed, name)
        new = but(part, **{rest: change}) if rest else change(part) if callable(change) else change
        vars(changed)[name] = new  # of a copy: the record itself may be frozen
    return changed


def _again(c, duals=None, log_slopes=None):
    duals = c.law.duals if duals is None else duals
    slopes = c.log_slopes if log_slopes is None else log_slopes
    K = margin_law.gram(c.tokens, c.selected)
    law = margin_law.from_duals(K, duals, c.solution.margins, slopes)
    return but(c, law=law, log_slopes=slopes, solution__duals=duals)


def _raised(c, values, change):
    """`values` (1, n, T-1), changed on the pair that moves C least: dC = coefficient/C."""
    weight = np.where(c.law.support, np.abs(c.law.coefficients), np.inf)
    pair = np.arange(weight.size).reshape(weight.shape) == weight.argmin()
    return np.where(pair, change(values), values)


def dual_off(c, by=0.01):
    """One dual is larger by the share `by`: that of the support pair on which C depends least."""
    return _again(c, duals=_raised(c, c.law.duals, lambda dual: dual * (1 + by)))


def duals_alike(c):
    """Every pair on the support carries the same."""
    duals = c.law.duals
    return _again(c, duals=np.where(duals > 0, duals.sum() / (duals > 0).sum(), 0.0))


def no_score_gaps(c):
    """kappa forgets head and loss: the offsets are -log beta, as for a linear classifier."""
    return _again(c, log_slopes=np.zeros_like(c.log_slopes))


def _other_loss(c):
    loss = "logistic" if c.setting.loss == "exponential" else "exponential"
    return _again(c, log_slopes=margin_law.saturated_slopes(c.tokens, c.selected, loss))


MARGINS = {
    "one dual 1 % high": dual_off,
    "one offset 0.01 high": lambda c: _again(
        c, log_slopes=_raised(c, c.log_slopes, lambda slope: slope + 0.01)
    ),
    "all offsets of the wrong sign": lambda c: but(
        c, law__offsets=np.negative, law__coefficients=np.negative
    ),
    "‖W_mm‖ 1 % high": lambda c: but(c, law__norm=1.01 * c.law.norm),
    "error ~ t^-0.9": lambda c: but(
        c,
        measured__error=lambda error: (
            error * (c.measured.iterations / c.measured.iterations[-1]) ** 0.1
        ),
    ),
    "kappa without head and loss": no_score_gaps,
    "kappa of the other loss": _other_loss,
    # what the start and the transients leave off the support's span is forgotten
    "nothing outside the span": lambda c: but(c, measured__outside=0.0),
    # it does not cancel in a difference of iterates
    "a 10^-4 of the residual stays": lambda c: but(
        c,
        measured__difference_error=c.measured.difference_error + 1e-4 * c.measured.error[-1],
        measured__difference_gap=c.measured.difference_gap + 1e-4 * c.measured.error[-1],
    ),
}


def _with_duals(runs, duals):
    law, tokens = runs.law, runs.law.problem.tokens
    W_law = joint_law._law_of_W(tokens, law.W, duals, margin_law.score_gaps(tokens, law.head.W))
    head_law = joint_law._law_of_head(joint_law._opt_tokens(tokens), duals, law.head.margins)
    return but(runs, law__W_law=W_law, law__head__duals=duals, law__head_law=head_law)


def _share(runs, k):
    return runs.iterations / runs.iterations[k]


JOINT = {
    # kappa without the head's duals: every |l'_i| alike
    "every sample pulls alike": lambda runs: _with_duals(runs, np.ones_like(runs.law.head.duals)),
    # that of the first sample
    "one head dual 20 % high": lambda runs: _with_duals(
        runs, runs.law.head.duals * np.where(np.arange(runs.law.head.duals.shape[1]), 1, 1.2)
    ),
    "error ~ t^-(1-p)/2": lambda runs: but(
        runs, error=runs.error * _share(runs, -1) ** ((1 - runs.rule.decay) / 2)
    ),
    # as Theorem 3 bounds it
    "error ~ 1/log t": lambda runs: but(
        runs, error=runs.error[:, -1:] * np.log(runs.iterations[-1]) / np.log(runs.iterations)
    ),
    # as Lemma 3 (iii) allows
    "curvature ~ t^2/3": lambda runs: but(
        runs, curvature=runs.curvature[:, :1] * _share(runs, 0) ** (2 / 3)
    ),
    # the first step leaves less off the opt tokens' span, and that part moves on
    "another frozen part": lambda runs: but(
        runs, law__frozen=0.9 * runs.law.frozen, outside=runs.outside * np.array([1.0, 1.01])
    ),
}


def _other_normalisation(runs):
    norm = np.ones_like(runs.norm) if runs.common else runs.law.norm
    return but(runs, norm=norm * runs.norm[:1] / norm[:1])


def _high(values, head):
    """`values` (H, runs) with those of one head 3 % larger."""
    return values * np.where(np.arange(len(values)) == head, 1.03, 1.0)[:, None]


HEADS = {
    # norms as the other normalisation would leave them
    "the other normalisation": _other_normalisation,
    "no head has a mean of its own": lambda runs: but(runs, law__mean=0 * runs.law.mean),
    "one SVM norm 3 % high": lambda runs: but(runs, law__norm=_high(runs.law.norm, 1)),
    # of the third head, which shares opt tokens
    "one C_h 3 % high": lambda runs: but(runs, law__constant=_high(runs.law.constant, 2)),
}


def _changed(world):
    return lambda p: p if p.refusal else replace(p, comparison=world(p.comparison))


MAP = {
    "one dual 20 % high": _changed(partial(dual_off, by=0.2)),
    # one of a thousand duals is no share of C
    "all duals alike": _changed(duals_alike),
    "kappa without head and loss": _changed(no_score_gaps),
    "C ~ 1/noise": _changed(
        lambda c: but(c, measured__residual=c.measured.residual * np.abs(c.tokens.z).max())
    ),
}


END = {
    "C with the copies": lambda pair: pair._replace(
        predicted=pair.predicted * constant_map.BASE["T"] ** 0.5
    )
}
ONSET = {"margins rise half as fast": lambda at: replace(at, level=at.level / 2)}


GLOBAL = {
    "alpha 25 % larger": lambda grid: replace(grid, alphas=1.25 * grid.alphas),
    "first steps of other seeds": lambda grid: replace(grid, first=grid.first[..., ::-1]),
    "one seed never arrives": lambda grid: replace(
        grid, reached=grid.reached & (np.arange(grid.reached.shape[-1])[::-1] > 0)
    ),
}


LP = {
    # the divergence falls with Lemma 29's exponent and not with its double
    "Lemma 29 met once": lambda run: but(
        run, error=run.error[-1] * (run.norm / run.norm[-1]) ** (max(-1.0, 1 - run.law.p) / 2)
    ),
    "constant 5 % high": lambda run: but(run, law__constant=1.05 * run.law.constant),
}


LP_STEPS = {
    # decaying steps fare no better than constant ones
    "decay is no help": lambda run: but(
        run, moved=np.array([run.moved[0], run.constant, run.moved[2]])
    ),
    # decaying steps or not
    "twice the rise settles": lambda run: but(
        run, moved=run.moved[[0, 0, 1]], constant=float(run.moved[0])
    ),
    "another pace": lambda run: but(run, pace=run.pace * (run.law.p - 1)),
    "constant of lp 5 % high": lambda run: but(run, error=run.error / 1.05),
}


def _log_shift(r, shift):
    return but(r, law__constants=r.law.constants + np.log(shift))


ZEROS = {
    # each idle pair by itself: y_k = 1/Q_kk, as if it were the only one
    "idle pairs do not meet": lambda r: _log_shift(r, r.law.duals * r.law.lengths),
    "offsets settle": lambda r: but(r, offsets=np.broadcast_to(r.offsets[0], r.offsets.shape)),
    "no drift": lambda r: but(r, residual=np.full_like(r.residual, r.residual[0])),
}
ZERO = {
    "the offset settles": ZEROS["offsets settle"],
    # ||d_k|| is left out of the constant
    "d_k of length 1": lambda r: _log_shift(r, r.law.duals),
}


LEFT = {
    # pairs off the support do not feel what they left: the first-order sum is exact
    "pulls without reaction": lambda run: run._replace(
        predicted=np.full(len(run.predicted), run.first)
    ),
    # the flow is as far off at any step
    "the step does not matter": lambda run: run._replace(
        measured=run.predicted * (run.measured[-1] / run.predicted[-1])
    ),
    "a bound fifty times lower": lambda run: run._replace(bound=run.bound / 50),
}
# of runs in which the sum is a bound
BOUND = {"first order without its main pair": lambda run: run._replace(first=run.first / 10)}


def of_the_atlas(rows, by_rule):
    """Ratios in wrong worlds: best margins off, or a norm's rule judged by the next one's run."""
    names = [name for name, row in rows.items() if row.reached is not None]
    after = dict(zip(names, names[1:] + names[:1], strict=True))
    scaled = lambda by: {
        name: replace(ratios, value=by * ratios.value) for name, ratios in by_rule.items()
    }
    return {
        "best margins 2 % large": scaled(0.98),
        "best margins 2 % small": scaled(1.02),
        "rules exchanged": {name: by_rule[after.get(name, name)] for name in by_rule},
    }
