"""Minutes that a command may use: what is not done by then waits for the next time."""

import argparse
import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Budget:
    """Minutes of wall-clock time from now; None for no end. ValueError for a number not above 0."""

    minutes: float | None = None
    begin: float = field(default_factory=time.monotonic)

    def __post_init__(self):
        if self.minutes is not None and not self.minutes > 0:
            raise ValueError(f"minutes must be above 0, got {self.minutes:g}")

    def spent(self, _step: int = 0) -> bool:
        """Whether the minutes are over."""
        return self.minutes is not None and time.monotonic() - self.begin >= 60 * self.minutes


def minutes(text: str) -> float:
    """An option's value: a number of minutes above 0, else argparse's error."""
    try:
        return Budget(float(text)).minutes
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"minutes must be above 0, got {text}") from error
