"""What a server puts on the wire. Levels 2 and 3 are the client's and change no byte."""

from enum import IntEnum

__all__ = ["Level"]


class Level(IntEnum):
    """A wire level; each adds only its own fields to the one below."""

    PLAIN_TEXT = 0
    """A plain-text error: nothing to keep."""

    STAMPS = 1
    """Typed suggestions with `cache_hint` and `table`, and `table_versions` on responses."""

    VECTORS = 4
    """Adds `tables` to a suggestion, and beyond the paper `rows`, `rules`, `when` and `unless`."""

    GRAPH = 5
    """Adds the graph, and `affected_downstream` to reload reports and changes."""

    FINGERPRINT = 6
    """Adds `rules_version` to them."""
