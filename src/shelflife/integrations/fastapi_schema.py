"""The contract in the OpenAPI document of a FastAPI app."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from shelflife.contract.positions import Account
from shelflife.server import Level, Provider, endpoints
from shelflife.server.schemas import schema_components

__all__ = ["ENDPOINTS", "show_contract"]

_STATUSES = {
    "304": "Nothing has moved",
    "400": "Malformed",
    "401": "A wrong token",
    "404": "There is no such table, or no such operation whose fixes are told",
    "409": "The version stands for other content",
    "413": "Too large",
    "422": "The body does not fit",
    "429": "Too many reloads",
    "503": "The log cannot be reached",
}
_RELOAD_ERRORS = "400 401 404 409 413 422 429 503"


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _any_of(*names: str) -> dict[str, Any]:
    return {"anyOf": [_ref(name) for name in names]} if len(names) > 1 else _ref(*names)


_IN_EITHER_FORM = msgspec.Meta(extra_json_schema={"items": _any_of("CompactSuggestion", "Suggestion")})


class ContractStamps(msgspec.Struct, kw_only=True):
    """What a response says of the contract. To a client that names a position, `at` takes the place of the versions."""

    table_versions: dict[str, str] | UnsetType = UNSET
    rules_version: str | UnsetType = UNSET
    at: str | Account | UnsetType = UNSET


class CompactFeedback(msgspec.Struct, kw_only=True):
    """All the fixes for one rejected request, in the compact form where they say what they rest on."""

    suggestions: Annotated[tuple[Any, ...], _IN_EITHER_FORM]


class CompactRejection(ContractStamps, kw_only=True):
    """The body of a request that a policy refused, for a client that names positions."""

    success: Literal[False]
    recovery_feedback: CompactFeedback


def show_contract(document: dict[str, Any], provider: Provider) -> None:
    """Write the contract into the app's document, which anybody may read: nothing in it is of the tables."""
    if provider.level == Level.PLAIN_TEXT:
        return
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    paths = document.get("paths", {})
    paths |= {path: paths.pop(path) for path in ENDPOINTS if path in paths}  # after the app's own
    for path in paths.keys() - ENDPOINTS.keys():
        for operation in paths[path].values():
            if isinstance(operation, dict) and "responses" in operation:
                _show_answers(operation, schemas)
    for name, schema in schema_components(CompactRejection, ContractStamps).items():
        schemas.setdefault(name, schema)
    for path, endpoint in endpoints.AdminEndpoints(provider).by_path.items():
        if path != endpoints.GRAPH_PATH or provider.level >= Level.GRAPH:
            operation = {**ENDPOINTS[path], "security": [{"AdminToken": []}]}
            paths[path] = {endpoint.methods[0].lower(): operation}
            components.setdefault("securitySchemes", {})["AdminToken"] = {"type": "http", "scheme": "bearer"}


def _show_answers(operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    operation.setdefault("parameters", []).append(_CONTRACT_AT)
    responses = operation["responses"]
    for status, response in responses.items():
        media = response.get("content", {}).get("application/json")
        if media and status.startswith("2") and _is_object(media["schema"], schemas):
            media["schema"] = {"allOf": [media["schema"], _ref("ContractStamps")]}
    if "requestBody" in operation:
        refused = responses.setdefault("422", {})
        refused["description"] = "The request is malformed, or violates a policy"
        content = refused.setdefault("content", {})
        malformed = content.get("application/json", {}).get("schema")
        either = _any_of("Rejection", "CompactRejection")
        either["anyOf"] += [malformed] if malformed else []
        content |= _media("application/json", either)
        content |= _media("application/problem+json", _any_of("Problem", "CompactRejection"))


def _is_object(schema: dict[str, Any], schemas: dict[str, Any]) -> bool:
    if "$ref" in schema:
        schema = schemas.get(schema["$ref"].rpartition("/")[2], {})
    return schema.get("type") == "object"


def _media(form: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {form: {"schema": schema}}


def _parameter(name: str, description: str, place: str = "query", **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "description": description, "schema": {"type": "string", **schema}}


def _parameters(*parameters: dict[str, Any]) -> dict[str, Any]:
    return {"parameters": [*parameters]}


def _body(schema: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": _media("application/json", schema)}}


def _reload(message: str, whole: str, *change: str) -> dict[str, Any]:
    """A message with either the member that is the whole, or at least one of those that are a change."""
    is_change = {"anyOf": [{"required": [member]} for member in change]}
    return _body({"allOf": [_ref(message), {"oneOf": [{"required": [whole]}, is_change]}]})


def _operation(path: str, summary: str, answers: str, others: str, asked: dict[str, Any]) -> dict[str, Any]:
    """An endpoint of the contract's own, by what it answers with, other statuses that it may have, and what
    it is asked with."""
    content = _media("application/json", _any_of(*answers.split()))
    responses = {"200": {"description": summary, "content": content}}
    for status in others.split():
        responses[status] = {"description": _STATUSES[status]}
        if status >= "400":
            responses[status]["content"] = _media("application/json", _ref("ErrorMessage")) | _PROBLEM
    _, tag, name = path.split("/")
    operation_id = f"{tag}_{name.replace('-', '_')}"
    return {"operationId": operation_id, "tags": [tag], "summary": summary, "responses": responses, **asked}


_PROBLEM = _media("application/problem+json", _ref("Problem"))
_VERSION = {"type": "string", "pattern": "^[^:]+:.+$"}
_STATE = _parameters(_parameter("If-None-Match", "The ETag of the state that is known", "header"))
_KNOWN = "The position that is known, with the mark of the client, or *"
_CONTRACT_AT = _parameter("Contract-At", _KNOWN, "header")
_FROM, _NONCE = _parameter("from", _KNOWN), _parameter("nonce", "Repeated in the answer")
_SINCE = _parameter("since", "table:version, once for each table", type="array", items=_VERSION)
_CHANGES = _parameters(_SINCE, _parameter("rules", "The rules_version that is known"), _FROM, _NONCE)
_POSITION = _parameters(_FROM | {"required": True}, _NONCE)
_ASK_FIXES = _body(_ref("AskFixes")) | _parameters(_CONTRACT_AT)
_FIXES = "Rejection CompactRejection"
_RELOAD_TABLE = _reload("ReloadTable", "rows", "set", "remove")
_RELOAD_RULES = _reload("ReloadRules", "rules", "add", "remove")

ENDPOINTS = {
    described[0]: _operation(*described)
    for described in (
        (endpoints.STATE_PATH, "The current versions", "ContractState", "304", _STATE),
        (endpoints.CHANGES_PATH, "What has changed since then", "Changes Account", "400 503", _CHANGES),
        (endpoints.FIXES_PATH, "The fixes of a request", _FIXES, "400 404 413 422 503", _ASK_FIXES),
        (endpoints.SIGNED_PATH, "Where the log is, signed", "SignedStatement", "400 503", _POSITION),
        (endpoints.RELOAD_TABLE_PATH, "Reload a table", "ReloadReport", _RELOAD_ERRORS, _RELOAD_TABLE),
        (endpoints.RELOAD_RULES_PATH, "Reload the rules", "RulesReport", _RELOAD_ERRORS, _RELOAD_RULES),
        (endpoints.GRAPH_PATH, "Show the graph", "Graph", "401", {}),
    )
}
"""The contract's own endpoints, by path, as OpenAPI operations."""
