"""Tolerances of the laws: what a run must show before it is judged, how near a claim must come.

A bound stands under a claim's id without its setting; `notebooks/bends_protocol.md` says which
stood before the runs that they judge.
"""

from copy import copy

import numpy as np

from lib.companion import claims
from lib.companion.claims import Claim

# Numbers that count as zero
TIGHT = 1e-7  # a margin of at most 1 + TIGHT is 1
SAME_SOLUTION = 1e-6  # between the solution's margins and those of its duals
SMALLEST_DUAL = 1e-9  # of the run's largest
INDEPENDENT = 1e-10  # smallest eigenvalue of the Gram matrix of A_m of length 1
SHARE = 1e-12  # of the pull: a share below this leaves for zero
TILT = 1e-6  # ||V|| ||grad G(rho_perp)||
APART = 1e-3  # an idle pair without pull has a slope of 1 + APART at least

# Premises of a run; what is left of wrong offsets differs by what runs of that kind can reach
SATURATED = 5.0  # least margin of a made selection: other weights are below e^-5
SETTLED = 1e-7  # largest e^{-rate a} left of wrong offsets
SETTLED_HEADS = 1e-6  # the same with several heads, of 20,000 steps
SETTLED_JOINT = 1e-4  # the same with a trained head, where levels grow like t^{1/3}
SETTLED_IDLE = 0.01  # a_t^{-rate} left of the offsets of idle pairs: a power, no exponential
AT_REST = 1e-7  # largest move of an offset in one step
AT_REST_LP = 0.01  # and between the last records of l_p descent, whose levels grow like a power
ROUNDING = 64  # a move of so many units in the last place of the margins is rest as well
UNRESOLVED = 0.01  # share of the l_p residual on entries that are still smaller than it

# Cycles: a move of an offset at rest, and one that is a cycle
QUIET, LOUD = 1e-6, 1e-2  # over the last records, from a start at rest
QUIET_LP, LOUD_LP = 1e-3, 0.1  # in one step of l_p descent, which never comes to rest

BOUNDS = {
    "law.constant": 1e-6,  # of the direction error; SETTLED = 1e-7 times an offset's size is left
    "law.residual": 1e-6,
    "law.exponent": 1e-3,
    "law.lower_bound": 1e-5,  # a slope in t
    "law.offsets": 1e-6,
    "law.duals": 1e-5,
    "law.norm": 1e-6,
    "law.difference": 1e5,  # times nearer to W_mm than the iterate
    "law.certificate": 1e-9,
    "law.proved": 90 / 96,  # share of the runs
    "law.collapse": 1e-6,
    "law.unseen": 0.1,
    "law.settling": 0.02,  # a rate fitted over five decades
    "law.short": QUIET,
    "law.long": LOUD,
    "law.cycle": LOUD,
    "law.two_pairs": 0.0,  # of a theorem
    "law.gd_order": 0.06,  # an exponent fitted over four doublings
    "law.gain": 1e5,
    "law.long_run": 1e-6,
    "law.joint": 1e-3,  # falls like 1/t only: the head turns that slowly
    "law.joint_order": 0.02,
    "law.joint_head": 0.1,
    "joint.limit": 0.02,  # kappa moves like 1/a_u with the head
    "joint.level": 0.005,
    "joint.exponent": 0.02,
    "joint.head": 1e-3,
    "joint.frozen": 1e-9,
    "joint.rest": 1e-6,
    "joint.curvature": 0.01,
    "joint.curvature_power": 0.02,
    "heads.common": 0.02,  # the limit, from which means of 1/a_t are left
    "heads.level": 1e-4,
    "heads.each": 0.02,
    "heads.constant": 0.02,
    "map.constant": 0.01,
    "map.noise": 0.1,  # an exponent, opt tokens still count
    "map.switch": 0.01,
    "map.most": 2.0,  # times Cover's count
    "map.least": 1.0,
    "map.level": 0.1,  # came later, in the place of a claim that could not fail
    "map.time": 1.2,
    "map.stays": 1.0,
    "map.merged": 0.01,
    "start.outside": 1e-4,
    "zero.offset": 0.02,  # log a_t / a_t is left
    "zero.slope": 0.02,
    "zeros.offset": 0.02,
    "zeros.slope": 0.02,
    "zeros.residual": 0.005,
    "outside.flow": 0.01,  # at a fiftieth of the longest step
    "outside.order": 0.1,
    "outside.first": 1.0,
    "outside.bound": 1.0,
    "lp.rests": QUIET_LP,
    "lp.cycles": LOUD_LP,
    "lp.zero": 0.05,  # an exponent over the last decade of ||W||
    "lp.start": 0.05,
    "lp.constant": 0.02,
    "lp.steady": QUIET_LP,
    "lp.unsteady": LOUD_LP,
    "lp.same": LOUD_LP,
    "lp.pace": 0.01,
    "lp.settled": 0.02,
    "global.line": 0.0,
    "law.real_constant": 0.8,  # share of the runs within 1 % of C
    "law.real_kappa": 0.01,
}

BEYOND_1 = "ours, beyond paper A's Theorem 1"
BEYOND_3 = "ours, beyond paper A's Theorem 3"
SOURCES = {  # of the claims whose id begins so
    "joint.curvature": "ours, beside paper A, Lemma 3",
    "joint": BEYOND_3,
    "global": "ours, beside paper A's Theorem 3",
    "lp": "ours, beside paper C, Lemma 29",
}


def _about(id, text, setting):
    source = next((text for start, text in SOURCES.items() if id.startswith(start)), BEYOND_1)
    return f"{id}.{setting}" if setting else id, text, source


def near(id: str, text: str, values, expected: float = 0.0, setting: str = "", **more) -> Claim:
    """The claim that the furthest of `values` is within BOUNDS[id] of `expected`."""
    worst = claims.furthest(values, expected)
    return claims.close(*_about(id, text, setting), worst, expected, BOUNDS[id], **more)


def each_near(id: str, text: str, values, expected: float = 0.0, **more) -> Claim:
    """`near` for values one a seed, with the interval of their mean; `more` as there."""
    return near(id, text, values, expected, interval=claims.interval(values), **more)


def below(id: str, text: str, values, setting: str = "", **more) -> Claim:
    """The claim that the largest of `values` is at most BOUNDS[id]."""
    return claims.at_most(*_about(id, text, setting), np.max(values), BOUNDS[id], **more)


def above(id: str, text: str, values, setting: str = "", **more) -> Claim:
    """The claim that the smallest of `values` is at least BOUNDS[id]."""
    return claims.at_least(*_about(id, text, setting), np.min(values), BOUNDS[id], **more)


def but(record, **changes):
    """A copy of nested records with parts changed: but(c, law__norm=2.0), or by a function."""
    changed = copy(record)
    for path, change in changes.items():
        name, _, rest = path.partition("__")
        part = getattr(changed, name)
        new = but(part, **{rest: change}) if rest else change(part) if callable(change) else change
        vars(changed)[name] = new  # of a copy: the record itself may be frozen
    return changed
