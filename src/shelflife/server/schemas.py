"""JSON Schemas of every message, made from the types."""

from typing import Any

import msgspec

from shelflife.contract import Rule, messages
from shelflife.contract.signed import SignedStatement, Statement

__all__ = ["message_types", "schema_components"]


def message_types() -> dict[str, type[msgspec.Struct]]:
    """Every message by name."""
    named = {name: getattr(messages, name) for name in messages.__all__}
    return {**named, "Rule": Rule, "SignedStatement": SignedStatement, "Statement": Statement}


def schema_components() -> dict[str, dict[str, Any]]:
    """The schemas of all messages, for the components of an OpenAPI document."""
    _, components = msgspec.json.schema_components(
        message_types().values(), schema_hook=None, ref_template="#/components/schemas/{name}"
    )
    return components
