"""The errors of the protocol.

ContractError
├── BadName          a table, relation or version is spelled in a way the wire cannot carry
├── BadRow           a key or a row is not what a table may hold
├── BadRule          a rule contradicts another or names what is not there
└── BadMessage       a message, a header or a query does not have its documented form
"""

__all__ = ["BadMessage", "BadName", "BadRow", "BadRule", "ContractError"]


class ContractError(ValueError):
    """Something that is not a valid piece of the protocol. The message is one sentence."""


class BadName(ContractError):
    """A table, relation or version that the wire cannot carry."""


class BadRow(ContractError):
    """A key or a row that a table may not hold."""


class BadRule(ContractError):
    """A rule that contradicts another or names what is not there."""


class BadMessage(ContractError):
    """A message, a header or a query that does not have its documented form."""
