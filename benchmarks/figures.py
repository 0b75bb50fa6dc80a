"""A measured figure: what, how much, how it scattered, and what it should be."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec

__all__ = [
    "Figure",
    "Subject",
    "Target",
    "at_least",
    "at_most",
    "median_figure",
    "quantity",
    "shown",
    "worst_of_a_hundred_figure",
]

_LARGE = 100
_MIDDLING = 10
_WORDS = ((1_000_000, "million"), (1_000, "thousand"))


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What a figure should be."""

    bound: Literal["at least", "at most"]
    value: float

    def is_met_by(self, measured: float) -> bool:
        """Whether the figure is on the right side of the bound."""
        return measured >= self.value if self.bound == "at least" else measured <= self.value


def at_least(value: float) -> Target:
    """A target that more is better for."""
    return Target(bound="at least", value=value)


def at_most(value: float) -> Target:
    """A target that less is better for."""
    return Target(bound="at most", value=value)


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the results."""

    subject: str
    what: str
    """What was measured, as a reader without the code would say it."""

    measured: float
    unit: str
    """Empty for a ratio."""

    low: float | None = None
    """The lower quartile of the samples, where the figure is their median."""

    high: float | None = None
    """The upper quartile."""

    sample_count: int = 1
    target: Target | None = None
    mark: Target | None = None
    """What others have measured elsewhere, on a machine of the same kind: to be beaten, but no target."""

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        return None if self.target is None else self.target.is_met_by(self.measured)


Subject = Callable[[bool], Iterator[Figure]]
"""Measures one thing, figure by figure; True asks for a smoke run of a second or two."""


def median_figure(
    subject: str,
    what: str,
    samples: Sequence[float],
    unit: str = "",
    target: Target | None = None,
    mark: Target | None = None,
) -> Figure:
    """The median of two or more samples, with its quartiles."""
    quartiles = statistics.quantiles(samples, n=4, method="inclusive")
    return Figure(
        subject=subject,
        what=what,
        measured=statistics.median(samples),
        unit=unit,
        low=quartiles[0],
        high=quartiles[-1],
        sample_count=len(samples),
        target=target,
        mark=mark,
    )


def worst_of_a_hundred_figure(
    subject: str,
    what: str,
    samples: Sequence[float],
    unit: str,
    target: Target | None = None,
    mark: Target | None = None,
) -> Figure:
    """The 99th percentile of many samples."""
    return Figure(
        subject=subject,
        what=f"{what}, 99th percentile",
        measured=statistics.quantiles(samples, n=100, method="inclusive")[-1],
        unit=unit,
        sample_count=len(samples),
        target=target,
        mark=mark,
    )


def quantity(count: int) -> str:
    """A count in words: `10 thousand`, `1 million`."""
    for size, word in _WORDS:
        if count >= size and count % size == 0:
            return f"{count // size} {word}"
    return f"{count:,}"


def shown(value: float, unit: str) -> str:
    """A value with as many digits as it deserves; a ratio keeps three."""
    if not unit:
        return f"{value:.3f}"
    if abs(value) >= _LARGE:
        return f"{value:,.0f} {unit}"
    if abs(value) >= _MIDDLING:
        return f"{value:.1f} {unit}"
    return f"{value:.2f} {unit}" if abs(value) >= 1 else f"{value:.3f} {unit}"
