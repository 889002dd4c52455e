"""How a run ends: the codes that compiled loops write, and their names in a history."""

COMPLETED, STALLED, DIVERGED = range(3)
NAMES = ("completed", "stalled", "diverged")  # by code
LONGEST = (
    600.0  # log of the longest step, entry or slope of the loss that counts as finite
)
