"""What you need to test against the contract yourself."""

from shelflife.testing.serving import ServingError, serving

__all__ = ["ServingError", "serving"]
