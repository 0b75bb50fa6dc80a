"""JSON Schemas of every message, made from the types."""

from typing import Any

import msgspec

from shelflife.contract import Rule, messages
from shelflife.contract.compact import CompactSuggestion
from shelflife.contract.positions import Account
from shelflife.contract.signed import SignedStatement, Statement

__all__ = ["message_types", "schema_components"]


def message_types() -> dict[str, type[msgspec.Struct]]:
    """Every message by name."""
    others = (Account, CompactSuggestion, Rule, SignedStatement, Statement)
    named = {name: getattr(messages, name) for name in messages.__all__}
    return named | {one.__name__: one for one in others}


def schema_components(*others: type[msgspec.Struct]) -> dict[str, dict[str, Any]]:
    """The schemas of all messages and of other types, for the components of an OpenAPI document."""
    _, components = msgspec.json.schema_components(
        [*message_types().values(), *others], schema_hook=None, ref_template="#/components/schemas/{name}"
    )
    return components
