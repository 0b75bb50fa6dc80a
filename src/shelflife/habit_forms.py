"""What gaps between changes may follow: forms, at a scale of 1."""

import math

__all__ = [
    "ALONE",
    "AT_RANDOM",
    "BEHIND",
    "BY_THE_CLOCK",
    "SPREADS",
    "STRAY",
    "AtRandom",
    "Bursts",
    "ByTheClock",
    "Form",
    "Regular",
    "mass_of",
]

STRAY = 0.08
"""How many gaps of what is regular come as they will."""

_INFINITE = 700.0
"""As a logarithm: what cannot be."""


class Form:
    """What the gaps between changes may follow, at a scale of 1."""

    mean: float

    def hazard(self, gap: float) -> float:
        """The negative logarithm of how likely it is that a gap is longer."""
        raise NotImplementedError

    def scales(self, usual: float) -> list[float]:
        """Those that may come into question, where gaps are usually so long. Each is as close to the next as can make a difference."""
        raise NotImplementedError

    def ending(self, least: float, most: float, scale: float) -> float:
        """The logarithm of how likely it is that a gap ends between the two."""
        before = self.hazard(least / scale)
        more = self.hazard(most / scale) - before
        return math.log(-math.expm1(-more)) - before if more > 0 else -_INFINITE


class AtRandom(Form):
    """Gaps after Weibull. At 1 they are without memory; above it, a little more even."""

    def __init__(self, shape: float = 1.0) -> None:
        self.shape = shape
        self.mean = math.gamma(1 + 1 / shape)

    def hazard(self, gap: float) -> float:
        if gap >= _INFINITE:  # to the power of the shape it might be too much for a number
            return _INFINITE
        return min(_INFINITE, float(gap**self.shape)) if gap > 0 else 0.0

    def scales(self, usual: float) -> list[float]:
        return [usual * 2 ** (step / 2) for step in range(-6, 7)]


class Regular(AtRandom):
    """All gaps are about the same, but for some that come as they will."""

    def hazard(self, gap: float) -> float:
        if gap <= 0:
            return 0.0
        still = (1 - STRAY) * math.exp(-super().hazard(gap)) + STRAY * math.exp(-gap)
        return -math.log(still)

    def scales(self, usual: float) -> list[float]:
        return [usual * 2 ** (step / self.shape) for step in range(-8, 9)]


class Bursts(Form):
    """Some gaps are short, and all others long."""

    def __init__(self, share: float, ratio: float) -> None:
        self.share, self.ratio = share, ratio
        self.mean = share * ratio + 1 - share

    def hazard(self, gap: float) -> float:
        if gap <= 0:
            return 0.0
        still = self.share * math.exp(-gap / self.ratio) + (1 - self.share) * math.exp(-gap)
        return -math.log(still) if still > 0 else _INFINITE

    def scales(self, usual: float) -> list[float]:
        return [usual * 2 ** (step / 2) for step in range(-4, 11)]


class ByTheClock(Form):
    """Changes come at even times, each a little early or late, and the next one is due whenever the last one was."""

    mean = 1.0

    def __init__(self, spread: float) -> None:
        self.spread = spread

    def hazard(self, gap: float) -> float:
        if gap <= 0:
            return 0.0
        still = (1 - STRAY) * mass_of(gap - 1, math.inf, self.spread) + STRAY * math.exp(-gap)
        return -math.log(still) if still > 0 else _INFINITE


def mass_of(least: float, most: float, spread: float) -> float:
    """How much of the bell of this spread around 0 is between the two."""
    unit = spread * math.sqrt(2)
    return (math.erf(most / unit) - math.erf(least / unit)) / 2


AT_RANDOM = AtRandom()
REGULAR = tuple(Regular(shape) for shape in (5.0, 10.0, 20.0, 40.0))
BURSTS = tuple(Bursts(share, ratio) for share in (0.5, 0.67, 0.8) for ratio in (0.01, 0.03, 0.1))
ALONE: tuple[tuple[Form, float], ...] = (
    (AT_RANDOM, 0.4),
    (AtRandom(1.5), 0.08),
    (AtRandom(2.5), 0.08),
    *((form, 0.14 / len(REGULAR)) for form in REGULAR),
    *((form, 0.16 / len(BURSTS)) for form in BURSTS),
)
"""The forms of something that goes by itself, each with how likely it is beforehand."""

BEHIND: tuple[tuple[Form, float], ...] = ((AT_RANDOM, 0.4), (AtRandom(2.5), 0.3), (Regular(10.0), 0.3))
"""Of the time by which one follows another."""

SPREADS = (0.005, 0.015, 0.04, 0.1)
BY_THE_CLOCK = 0.2
"""How likely it is beforehand that something goes by the clock."""
