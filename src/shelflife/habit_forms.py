"""What gaps between changes may follow: forms, at a scale of 1."""

import math
from collections.abc import Sequence

__all__ = [
    "ALONE",
    "AT_RANDOM",
    "BEHIND",
    "BY_THE_CLOCK",
    "SPREADS",
    "STRAY",
    "WITHOUT_MEMORY",
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

    def hazard(self, gap: float) -> float:
        if gap <= 0:
            return 0.0
        still = self.share * math.exp(-gap / self.ratio) + (1 - self.share) * math.exp(-gap)
        return -math.log(still) if still > 0 else _INFINITE

    def scales(self, usual: float) -> list[float]:
        return [usual * 2 ** (step / 2) for step in range(-4, 11)]

    def looked_through(self, looks: Sequence[tuple[float, float]], scale: float) -> tuple[float, "Bursts"]:
        """How likely it is, as a logarithm, that nothing comes for some time, then something within the next, and so on; and what goes on then.

        Within a burst several changes may lie between two looks. So it is followed how likely a gap is to be a short one: over time in
        which nothing comes, and over time in which something does, however often.
        """
        fast, slow = 1 / (self.ratio * scale), 1 / scale
        ends, begins = fast * (1 - self.share), slow * self.share
        usually = short = begins / (ends + begins)  # at any time, where nothing is known yet
        log = 0.0
        for quiet, width in looks:
            still_short, still_long = short * math.exp(-fast * quiet), (1 - short) * math.exp(-slow * quiet)
            until = still_short + still_long
            if until <= 0:
                return -_INFINITE, self
            short = still_short / until
            some_short = -short * math.expm1(-fast * width)
            within = some_short - (1 - short) * math.expm1(-slow * width)
            if within <= 0:
                return -_INFINITE, self
            log += math.log(until) + math.log(within)
            then_short = some_short + (short - usually) * math.expm1(-(ends + begins) * width)
            short = min(1.0, max(0.0, then_short / within))
        return log, Bursts(short, self.ratio)


class ByTheClock(Form):
    """Changes come at even times, each a little early or late, and the next one is due whenever the last one was."""

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
BURSTS = tuple(
    Bursts(1 - 1 / changes, ratio) for changes in (2, 4, 8, 16) for ratio in (0.01, 0.03, 0.1, 0.3)
)
ALONE: tuple[tuple[AtRandom, float], ...] = (
    (AtRandom(1.5), 0.08),
    (AtRandom(2.5), 0.08),
    *((form, 0.14 / len(REGULAR)) for form in REGULAR),
)
"""The forms of something that goes by itself, each with how likely it is beforehand."""

WITHOUT_MEMORY: tuple[tuple[Bursts, float], ...] = (
    (Bursts(0.0, 1.0), 0.36),
    *((form, 0.2 / len(BURSTS)) for form in BURSTS),
)
"""Those of which several may come between two looks: at random, and in bursts."""

BEHIND: tuple[tuple[AtRandom, float], ...] = ((AT_RANDOM, 0.4), (AtRandom(2.5), 0.3), (Regular(10.0), 0.3))
"""Of the time by which one follows another."""

SPREADS = (0.005, 0.015, 0.04, 0.1)
BY_THE_CLOCK = 0.2
"""How likely it is beforehand that something goes by the clock."""
