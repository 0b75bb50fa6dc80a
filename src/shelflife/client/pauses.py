"""How long is waited before something is tried again that has failed: twice as long each time, up to a bound."""

import msgspec

__all__ = ["Pauses", "apart"]


class Pauses(msgspec.Struct, frozen=True):
    """The pauses between tries."""

    first_s: float
    longest_s: float

    def after(self, pause_s: float) -> float:
        """The next one, where this was not enough; 0 is for none."""
        return min(max(2 * pause_s, self.first_s), self.longest_s)


def apart(pause_s: float) -> float:
    """A pause that is a bit longer, so that not all who wait come back at once."""
    import random  # a millisecond of every import of this package, for what few use

    return pause_s * random.uniform(1, 2)  # noqa: S311
