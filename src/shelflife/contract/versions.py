"""The versions of a state, where a server names no position."""

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["Versions"]


class Versions(NamedTuple):
    """Every table of a state with its version, and the fingerprint of its rules."""

    tables: Mapping[str, str]
    rules: str | None = None
    """None below Level 6, where rules have no version."""
