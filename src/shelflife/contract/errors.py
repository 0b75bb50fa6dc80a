"""The errors of the protocol. `shelflife.errors` draws the whole tree."""

from shelflife.errors import ShelflifeError

__all__ = ["BadMessage", "BadName", "ContractError"]


class ContractError(ShelflifeError, ValueError):
    """Something that is not a valid piece of the protocol. The message is one sentence."""


class BadName(ContractError):
    """A table, relation or version that the wire cannot carry."""


class BadMessage(ContractError):
    """A message, a header or a query that does not have its documented form."""
