"""Tolerances of the laws: the conditions that a run must meet before we compare it with
a law.
"""

from papers.ours import BOUNDS

# Numbers below these count as zero.
TIGHT = 1e-7  # a margin of at most 1 + TIGHT counts as 1
# Largest difference between the solution's margins and those computed from its duals.
SAME_SOLUTION = 1e-6
# The smallest dual that counts as positive, divided by the run's largest dual.
SMALLEST_DUAL = 1e-9
# The least eigenvalue of the Gram matrix of the A_m/||A_m|| that counts as positive.
INDEPENDENT = 1e-10
SHARE = 1e-12  # a pair with a smaller share of the pull counts as a pair without pull
TILT = 1e-6  # largest ||V|| ||grad G(rho_perp)|| of a true rho_perp
APART = 1e-3  # the slope of an idle pair without pull must be at least 1 + APART

# Premises of a run. How small the errors of the offsets must be differs between kinds
# of runs, because some kinds converge more slowly. The least margin of a clear
# selection: the other tokens' weights are below e^-5.
SATURATED = 5.0
SETTLED = 1e-7  # largest e^{-rate a}, the fraction of an offset's error that remains
SETTLED_HEADS = 1e-6  # SETTLED for several heads
SETTLED_JOINT = 1e-4  # SETTLED for a trained head, where levels grow like t^{1/3}
# For idle pairs this fraction is a_t^{-rate}, a power instead of an exponential.
SETTLED_IDLE = 0.01
# An offset has stopped moving if it moves by at most this in one step.
AT_REST = 1e-7
# AT_REST for l_p descent: the most that an offset may move between the last two
# records. In l_p descent, levels grow like a power of t.
AT_REST_LP = 0.01
# A move by at most this many units in the last place of the margins is rounding.
ROUNDING = 64
# At most this share of the l_p residual may lie on entries where |W_mm| is less than
# ten times the residual of that entry.
UNRESOLVED = 0.01

# Cycles: the largest move of an offset that counts as converged, and the least move of
# an offset that counts as cycling. Moves are measured over the last records of a run
# that starts from converged offsets.
QUIET = BOUNDS["law.short"]
LOUD = BOUNDS["law.long"]
# The bound QUIET for one step of l_p descent, whose offsets never stop exactly.
QUIET_LP = BOUNDS["lp.rests"]
