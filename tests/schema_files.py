"""The checked-in JSON Schemas; run as a program it writes them anew."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from shelflife.contract import Rule, messages
from shelflife.contract.compact import CompactSuggestion
from shelflife.contract.positions import Account
from shelflife.contract.signed import SignedStatement, Statement

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "reference" / "schemas"
OPENAPI = ROOT / "src" / "shelflife" / "integrations" / "openapi_schemas.json"
"""All of them as the components of an OpenAPI document, for the integration that shows them there."""

_OTHERS = (Account, CompactSuggestion, Rule, SignedStatement, Statement)
MESSAGES = {name: getattr(messages, name) for name in messages.__all__} | {
    one.__name__: one for one in _OTHERS
}
"""Every message by name."""

_COMPONENT = "#/components/schemas/shelflife.{name}"
_EITHER_FORM = [{"$ref": _COMPONENT.format(name=name)} for name in ("CompactSuggestion", "Suggestion")]


class ContractStamps(msgspec.Struct, kw_only=True):
    """What a response says of the contract. To a client that names a position, `at` takes the place of the versions."""

    table_versions: dict[str, str] | UnsetType = UNSET
    rules_version: str | UnsetType = UNSET
    at: str | Account | UnsetType = UNSET


class CompactFeedback(msgspec.Struct, kw_only=True):
    """All the fixes for one rejected request, in the compact form where they say what they rest on."""

    suggestions: Annotated[
        tuple[Any, ...], msgspec.Meta(extra_json_schema={"items": {"anyOf": _EITHER_FORM}})
    ]


class CompactRejection(ContractStamps, kw_only=True):
    """The body of a request that a policy refused, for a client that names positions."""

    success: Literal[False]
    recovery_feedback: CompactFeedback


def components_of(types, ref_template):
    """The schemas of these types, and of those that they refer to."""
    _, components = msgspec.json.schema_components(types, schema_hook=None, ref_template=ref_template)
    return components


def message_schema(name):
    """One message's schema as a document of its own."""
    components = components_of([MESSAGES[name]], "#/$defs/{name}")
    own = components.pop(name)
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": name, **own}
    return {**document, "$defs": components} if components else document


def openapi_schemas():
    """Every message, and what the app's own responses carry of the contract."""
    components = components_of([*MESSAGES.values(), CompactRejection, ContractStamps], _COMPONENT)
    return {f"shelflife.{name}": schema for name, schema in components.items()}


def schema_texts():
    """Each schema file and what it should hold."""
    documents = {FOLDER / f"{name}.json": message_schema(name) for name in MESSAGES}
    documents[OPENAPI] = openapi_schemas()
    return {
        path: json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        for path, document in documents.items()
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file in FOLDER.glob("*.json"):
        file.unlink()
    for file, text in schema_texts().items():
        file.write_text(text, "utf-8")
