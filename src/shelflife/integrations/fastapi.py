"""The contract on a FastAPI app, in one call, with OpenAPI that shows it."""

from typing import Any

from fastapi import FastAPI

from shelflife.contract import Level
from shelflife.contract.schemas import schema_components
from shelflife.integrations.asgi import ContractMiddleware
from shelflife.server import Provider
from shelflife.server.endpoints import (
    CHANGES_PATH,
    FIXES_PATH,
    GRAPH_PATH,
    RELOAD_RULES_PATH,
    RELOAD_TABLE_PATH,
    SIGNED_PATH,
    STATE_PATH,
)

__all__ = ["install"]

_METHODS = {"get", "put", "post", "delete", "options", "patch", "trace"}


def install(app: FastAPI, provider: Provider) -> None:
    """Give the app the contract: its endpoints, its stamps on every response, and its answer to `provider.check`."""
    left_alone = {app.openapi_url} if app.openapi_url else set()
    app.add_middleware(ContractMiddleware, provider=provider, left_alone=left_alone)
    plain_openapi = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            _show_contract(plain_openapi(), provider)
        return plain_openapi()

    app.openapi = openapi  # type: ignore[method-assign]


def _show_contract(document: dict[str, Any], provider: Provider) -> None:
    """Write the contract into the app's OpenAPI document."""
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for path in document.get("paths", {}).values():
        for method, operation in path.items():
            if method in _METHODS:
                _show_answers(operation, provider, schemas)
    if provider.level == Level.PLAIN_TEXT:
        return
    for name, schema in schema_components().items():
        schemas.setdefault(name, schema)
    document["paths"].update(_public_paths(provider))
    if provider.admin_token is not None:
        components.setdefault("securitySchemes", {})["AdminToken"] = {"type": "http", "scheme": "bearer"}
        document["paths"].update(_admin_paths(provider))


def _show_answers(operation: dict[str, Any], provider: Provider, schemas: dict[str, Any]) -> None:
    responses = operation.setdefault("responses", {})
    if provider.level == Level.PLAIN_TEXT:
        if "requestBody" in operation:
            _content(responses, "422", "The request violates a policy")["text/plain"] = {
                "schema": {"type": "string"}
            }
        return
    for status, response in responses.items():
        media = response.get("content", {}).get("application/json")
        if media and status.startswith("2") and _is_object(media.get("schema", {}), schemas):
            media["schema"] = {"allOf": [media["schema"], _ref("ContractState")]}
    if "requestBody" in operation:
        content = _content(responses, "422", "The request is malformed, or violates a policy")
        malformed = content.get("application/json", {}).get("schema")
        either = {"anyOf": [_ref("Rejection"), malformed]} if malformed else _ref("Rejection")
        content["application/json"] = {"schema": either}
        content["application/problem+json"] = {"schema": _ref("Problem")}


def _is_object(schema: dict[str, Any], schemas: dict[str, Any]) -> bool:
    if "$ref" in schema:
        schema = schemas.get(schema["$ref"].rpartition("/")[2], {})
    return schema.get("type") == "object"


def _content(responses: dict[str, Any], status: str, description: str) -> dict[str, Any]:
    response = responses.setdefault(status, {})
    response["description"] = description
    content: dict[str, Any] = response.setdefault("content", {})
    return content


def _public_paths(provider: Provider) -> dict[str, Any]:
    signed = {
        SIGNED_PATH: {
            "get": {
                "operationId": "contract_signed",
                "tags": ["contract"],
                "summary": "The signed state",
                "parameters": [
                    {
                        "name": "since",
                        "in": "query",
                        "description": "The number of the last statement that is known",
                        "schema": {"type": "integer", "minimum": 0, "maximum": 10**18 - 1},
                    },
                ],
                "responses": {
                    "200": _answer("The statements", "SignedStates"),
                    "400": _error("A malformed query"),
                    "503": _error("The state file cannot be written"),
                },
            }
        }
    }
    return (signed if provider.lineage else {}) | {
        STATE_PATH: {
            "get": {
                "operationId": "contract_state",
                "tags": ["contract"],
                "summary": "The current versions",
                "parameters": [
                    _parameter("If-None-Match", "header", "The ETag of the state that is known"),
                    _parameter("known", "query", "Its epoch"),
                ],
                "responses": {
                    "200": _answer("The versions", "ContractState"),
                    "304": {"description": "Nothing has moved"},
                },
            }
        },
        CHANGES_PATH: {
            "get": {
                "operationId": "contract_changes",
                "tags": ["contract"],
                "summary": "What changed since versions that a client holds",
                "parameters": [
                    {
                        "name": "since",
                        "in": "query",
                        "description": "table:version, once for each table",
                        "schema": {"type": "array", "items": {"type": "string", "pattern": "^[^:]+:.+$"}},
                    },
                    _parameter("rules", "query", "The rules_version that is known"),
                ],
                "responses": {"200": _answer("The changes", "Changes"), "400": _error("A malformed query")},
            }
        },
        FIXES_PATH: {
            "post": {
                "operationId": "contract_fixes",
                "tags": ["contract"],
                "summary": "What would be suggested for a request",
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": _ref("AskFixes")}},
                },
                "responses": {
                    "200": _answer("The suggestions", "Rejection"),
                    "400": _error("Malformed JSON"),
                    "413": _error("Too large"),
                    "422": _error("Not a question"),
                },
            }
        },
    }


def _admin_paths(provider: Provider) -> dict[str, Any]:
    def admin(summary: str, answer: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        operation: dict[str, Any] = {
            "operationId": summary.lower().replace(" ", "_"),
            "tags": ["admin"],
            "summary": summary,
            "security": [{"AdminToken": []}],
            "responses": {"200": _answer("Done", answer), "401": _error("A wrong token")},
        }
        if body:
            operation["requestBody"] = {
                "required": True,
                "content": {"application/json": {"schema": body}},
            }
            operation["responses"] |= {
                "400": _error("Malformed JSON"),
                "404": _error("No such table"),
                "409": _error("The version stands for other content"),
                "413": _error("Too large"),
                "422": _error("Not what a table or rule may be"),
                "429": _error("Too many reloads"),
                "503": _error("The state file cannot be written"),
            }
        return operation

    tables = [{"properties": {"table": {"enum": sorted(provider.state.tables)}}}]
    if provider.disclosure is not None:
        tables = []  # the document is for anybody
    reload_table = {"allOf": [_ref("ReloadTable"), *tables, _either("rows", "set", "remove")]}
    reload_rules = {"allOf": [_ref("ReloadRules"), _either("rules", "add", "remove")]}
    paths = {
        RELOAD_TABLE_PATH: {"post": admin("Reload a table", "ReloadReport", reload_table)},
        RELOAD_RULES_PATH: {"post": admin("Reload the rules", "RulesReport", reload_rules)},
    }
    if provider.level >= Level.GRAPH:
        paths[GRAPH_PATH] = {"get": admin("Show the graph", "Graph")}
    return paths


def _either(whole: str, *change: str) -> dict[str, Any]:
    """Either the member with the whole, or at least one of those with a change."""
    return {
        "oneOf": [{"required": [whole]}, {"anyOf": [{"required": [member]} for member in change]}],
    }


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _answer(description: str, message: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": _ref(message)}}}


def _error(description: str) -> dict[str, Any]:
    return {
        "description": description,
        "content": {
            "application/json": {"schema": _ref("ErrorMessage")},
            "application/problem+json": {"schema": _ref("Problem")},
        },
    }


def _parameter(name: str, place: str, description: str) -> dict[str, Any]:
    return {"name": name, "in": place, "description": description, "schema": {"type": "string"}}
