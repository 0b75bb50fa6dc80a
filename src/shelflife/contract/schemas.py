"""JSON Schemas of every message, made from the types."""

from typing import Any

import msgspec

from shelflife.contract import messages
from shelflife.contract.rules import Rule
from shelflife.contract.signed import SignedStates, Statement

__all__ = ["SCHEMA_DIALECT", "message_schema", "message_types", "schema_components"]

SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def message_types() -> dict[str, type[msgspec.Struct]]:
    """Every message by name."""
    named = {name: getattr(messages, name) for name in messages.__all__ if name != "CacheHint"}
    return {**named, "Rule": Rule, "SignedStates": SignedStates, "Statement": Statement}


def schema_components(ref_template: str = "#/components/schemas/{name}") -> dict[str, dict[str, Any]]:
    """The schemas of all messages, referring to each other by the template."""
    _, components = msgspec.json.schema_components(
        message_types().values(), schema_hook=None, ref_template=ref_template
    )
    return components


def message_schema(name: str) -> dict[str, Any]:
    """One message's schema as a document of its own."""
    _, components = msgspec.json.schema_components(
        [message_types()[name]], schema_hook=None, ref_template="#/$defs/{name}"
    )
    own = components.pop(name)
    document = {"$schema": SCHEMA_DIALECT, "title": name, **own}
    return {**document, "$defs": components} if components else document
