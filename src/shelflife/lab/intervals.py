"""How far a rate, a difference or a mean may be off, with a confidence of 95 %."""

from collections.abc import Sequence
from math import hypot, sqrt
from statistics import NormalDist, fmean, stdev
from typing import NamedTuple

from shelflife.lab.scores import FirstTry

__all__ = ["Interval", "difference_interval", "mean_interval", "rate_interval", "wilson"]

_CONFIDENCE = 0.95
_Z = NormalDist().inv_cdf(0.5 + _CONFIDENCE / 2)
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Student's t at 97.5 %, by degrees of freedom from one."""


class Interval(NamedTuple):
    """Between what and what something lies."""

    low: float
    high: float


def wilson(successes: int, trials: int) -> Interval | None:
    """Wilson's interval of a rate, between 0 and 1; None when there was no trial.

    Unlike the usual one it is right for few trials, and for rates of 0 and 1.
    """
    if trials == 0:
        return None
    rate, z2 = successes / trials, _Z**2
    middle = (rate + z2 / (2 * trials)) / (1 + z2 / trials)
    reach = _Z * sqrt(rate * (1 - rate) / trials + z2 / (4 * trials**2)) / (1 + z2 / trials)
    return Interval(max(0.0, middle - reach), min(1.0, middle + reach))


def rate_interval(rate: FirstTry) -> Interval:
    """The same of a first-try rate, in percent."""
    of_one = wilson(rate.first_try, rate.episodes)
    if of_one is None:
        raise ValueError("a rate over no episode has no interval")
    return Interval(100 * of_one.low, 100 * of_one.high)


def difference_interval(of: FirstTry, against: FirstTry) -> Interval:
    """Newcombe's interval of a difference of two rates, in points, from the Wilson intervals of both."""
    left, right = rate_interval(of), rate_interval(against)
    high, low = 100 * of.first_try / of.episodes, 100 * against.first_try / against.episodes
    return Interval(
        high - low - hypot(high - left.low, right.high - low),
        high - low + hypot(left.high - high, low - right.low),
    )


def mean_interval(values: Sequence[float]) -> Interval | None:
    """Student's t interval of a mean over seeds; None for fewer than two that differ, of which it can say nothing."""
    if len(set(values)) < 2:
        return None
    t = _T[len(values) - 2] if len(values) - 2 < len(_T) else _Z
    reach = t * stdev(values) / sqrt(len(values))
    return Interval(fmean(values) - reach, fmean(values) + reach)
