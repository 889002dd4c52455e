"""How a run ends: the codes that compiled loops write, and their names in a history."""

COMPLETED, STALLED, DIVERGED = range(3)
NAMES = ("completed", "stalled", "diverged")  # by code
# A step, an entry or a slope of the loss counts as finite if its log is at most this.
LOG_LONGEST = 600.0
