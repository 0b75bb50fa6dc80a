"""How sure a rate is."""

from math import sqrt
from typing import NamedTuple

__all__ = ["Interval", "wilson"]

_Z_95 = 1.959964


class Interval(NamedTuple):
    """Between what and what something lies, with 95 % confidence."""

    low: float
    high: float


def wilson(successes: int, trials: int) -> Interval | None:
    """Wilson's interval of a rate, between 0 and 1; None when there was no trial. Unlike the usual one it is right for few trials and for rates of 0 and 1."""
    if trials == 0:
        return None
    rate, z2 = successes / trials, _Z_95**2
    middle = (rate + z2 / (2 * trials)) / (1 + z2 / trials)
    reach = _Z_95 * sqrt(rate * (1 - rate) / trials + z2 / (4 * trials**2)) / (1 + z2 / trials)
    return Interval(max(0.0, middle - reach), min(1.0, middle + reach))
