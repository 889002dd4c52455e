"""What stands in brackets behind a measured number, in words."""

from collections.abc import Iterable


def legend(claims: Iterable) -> str:
    """What the number and the brackets of `claims.shown` are, for those that the claims have."""
    kinds = {bool(claim.verdict) for claim in claims if claim.interval is not None}
    said = {
        False: "a [b, c]: the worst seed, or what the row names, and the mean over seeds less and"
        " plus two standard errors, so that a may lie outside",
        True: "a [b, c] of a row with a verdict: the median over seeds and their 95 % interval",
    }
    return "; ".join(said[kind] for kind in sorted(kinds))
