"""Tolerances of the laws: what a run must show before it is compared with them."""

from papers.ours import BOUNDS

# Numbers below these count as zero.
TIGHT = 1e-7  # a margin of at most 1 + TIGHT counts as 1
# Largest difference between the solution's margins and those computed from its duals.
SAME_SOLUTION = 1e-6
SMALLEST_DUAL = 1e-9  # as a share of the run's largest dual
INDEPENDENT = 1e-10  # smallest eigenvalue of the Gram matrix of A_m of length 1
SHARE = 1e-12  # a pair with a smaller share of the pull is treated as having none
TILT = 1e-6  # largest ||V|| ||grad G(rho_perp)|| of a true rho_perp
APART = 1e-3  # the slope of an idle pair without pull must be at least 1 + APART

# Premises of a run. How small wrong offsets must be differs between kinds of runs,
# because some kinds converge more slowly.
SATURATED = 5.0  # least margin of a clear selection: other weights are below e^-5
SETTLED = 1e-7  # largest e^{-rate a}, the fraction that remains of wrong offsets
SETTLED_HEADS = 1e-6  # SETTLED for several heads
SETTLED_JOINT = 1e-4  # SETTLED for a trained head, where levels grow like t^{1/3}
# For idle pairs this fraction is a_t^{-rate}, a power instead of an exponential.
SETTLED_IDLE = 0.01
# An offset has stopped moving if it moves by at most this in one step.
AT_REST = 1e-7
# The bound AT_REST for l_p descent, between the last two records. In l_p descent,
# levels grow like a power of t.
AT_REST_LP = 0.01
# A move by at most this many units in the last place of the margins is rounding.
ROUNDING = 64
# Largest share of the l_p residual on entries of W_mm that are less than ten times the
# residual there.
UNRESOLVED = 0.01

# Cycles: the largest move of an offset that has converged, and the least move of one
# that cycles. Both are taken over the last records of a run that starts from converged
# offsets.
QUIET = BOUNDS["law.short"]
LOUD = BOUNDS["law.long"]
# The bound QUIET for one step of l_p descent, whose offsets never stop exactly.
QUIET_LP = BOUNDS["lp.rests"]
