"""Tolerances of the laws: what a run must show before it is judged by them."""

from papers.ours import BOUNDS

# Numbers that count as zero
TIGHT = 1e-7  # a margin of at most 1 + TIGHT is 1
SAME_SOLUTION = 1e-6  # between the solution's margins and those of its duals
SMALLEST_DUAL = 1e-9  # of the run's largest
INDEPENDENT = 1e-10  # smallest eigenvalue of the Gram matrix of A_m of length 1
SHARE = 1e-12  # of the pull: a share below this leaves for zero
TILT = 1e-6  # ||V|| ||grad G(rho_perp)||
APART = 1e-3  # an idle pair without pull has a slope of 1 + APART at least

# Premises of a run; what is left of wrong offsets differs by what runs of that kind can
# reach
SATURATED = 5.0  # least margin of a made selection: other weights are below e^-5
SETTLED = 1e-7  # largest e^{-rate a} left of wrong offsets
SETTLED_HEADS = 1e-6  # the same with several heads
SETTLED_JOINT = 1e-4  # the same with a trained head, where levels grow like t^{1/3}
SETTLED_IDLE = (
    0.01  # a_t^{-rate} left of the offsets of idle pairs: a power, no exponential
)
AT_REST = 1e-7  # largest move of an offset in one step
AT_REST_LP = (
    0.01  # and between the last records of l_p descent, whose levels grow like a power
)
ROUNDING = (
    64  # a move of so many units in the last place of the margins is rest as well
)
UNRESOLVED = 0.01  # share of the l_p residual on entries less than ten times it

# Cycles: a move of an offset at rest, and one that is a cycle
# over the last records, from a start at rest
QUIET = BOUNDS["law.short"]
LOUD = BOUNDS["law.long"]
QUIET_LP = BOUNDS["lp.rests"]  # in one step of l_p descent, which never comes to rest
