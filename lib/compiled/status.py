"""How a run ends: the codes that compiled loops write, and their names in a history."""

COMPLETED, STALLED, DIVERGED = range(3)
NAMES = ("completed", "stalled", "diverged")  # by code
# The log of the largest step, entry or slope of the loss that counts as finite.
LOG_LONGEST = 600.0
