"""What you need to test against the contract yourself: a real server on loopback, and a policy on the bench."""

from shelflife.testing.examining import Examined, check_record, examine
from shelflife.testing.serving import ServingError, serving

__all__ = ["Examined", "ServingError", "check_record", "examine", "serving"]
