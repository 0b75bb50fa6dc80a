"""The contract in the OpenAPI document of a FastAPI app.

What is the same in every app is in two files beside this one: `openapi.json` has the endpoints, and `openapi_schemas.json` has the messages, as
`make schemas` writes them from the types. All names have a prefix that no Python name can have: an app may have an `Account` of its own.
"""

import json
from pathlib import Path
from typing import Any

from shelflife.server import Level, Provider
from shelflife.server.admin import AdminEndpoints

__all__ = ["endpoints_described", "show_contract"]

_FOLDER = Path(__file__).parent


def endpoints_described() -> dict[str, Any]:
    """The contract's own endpoints, as a part of an OpenAPI document. Whoever asks may write into it."""
    described: dict[str, Any] = json.loads((_FOLDER / "openapi.json").read_bytes())
    return described


def show_contract(document: dict[str, Any], provider: Provider) -> None:
    """Write the contract into the app's document, which anybody may read: nothing in it is of the tables."""
    if provider.level == Level.PLAIN_TEXT:
        return
    described = endpoints_described()
    components, paths = document.setdefault("components", {}), document.get("paths", {})
    schemas = components.setdefault("schemas", {})
    paths |= {path: paths.pop(path) for path in described["paths"] if path in paths}  # after the app's own
    for path in paths.keys() - described["paths"].keys():
        for operation in paths[path].values():
            if isinstance(operation, dict) and "responses" in operation:
                _show_answers(operation, schemas)
    schemas |= json.loads((_FOLDER / "openapi_schemas.json").read_bytes())
    for kind, named in described["components"].items():
        components[kind] = components.get(kind, {}) | named
    admin = AdminEndpoints(provider).by_path  # without those of the operator's page, which are for that alone
    paths |= {path: described["paths"][path] for path in admin if path in described["paths"]}


def _show_answers(operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Say what an operation of the app answers to clients that know the contract."""
    operation.setdefault("parameters", []).append(_ref("ContractAt", "parameters"))
    responses = operation["responses"]
    for status, response in responses.items():
        media = response.get("content", {}).get("application/json")
        if media and status.startswith("2") and _is_object(media["schema"], schemas):
            media["schema"] = {"allOf": [media["schema"], _ref("ContractStamps")]}
    if "requestBody" in operation:
        refused = responses.setdefault("422", {})
        refused["description"] = "The request is malformed, or violates a policy"
        content = refused.setdefault("content", {})
        malformed = [media["schema"]] if (media := content.get("application/json")) else []
        rejected = [_ref("Rejection"), _ref("CompactRejection"), *malformed]
        content["application/json"] = {"schema": {"anyOf": rejected}}
        problem = [_ref("Problem"), _ref("CompactRejection")]
        content["application/problem+json"] = {"schema": {"anyOf": problem}}


def _is_object(schema: dict[str, Any], schemas: dict[str, Any]) -> bool:
    if "$ref" in schema:
        schema = schemas.get(schema["$ref"].rpartition("/")[2], {})
    return schema.get("type") == "object"


def _ref(name: str, kind: str = "schemas") -> dict[str, str]:
    return {"$ref": f"#/components/{kind}/shelflife.{name}"}
