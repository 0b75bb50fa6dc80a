"""What you need to test against the contract yourself."""

from shelflife.testing.serving import serving

__all__ = ["serving"]
