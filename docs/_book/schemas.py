"""The messages of the protocol, from their JSON Schemas."""

import json
from typing import Any

from _book.outside import ROOT

__all__ = ["messages"]

_FOLDER = ROOT / "docs" / "reference" / "schemas"


def messages(_: str) -> str:
    """A section for each message, and for each part of one that has a name, with its members."""
    files = [json.loads(file.read_text("utf-8")) for file in sorted(_FOLDER.glob("*.json"))]
    found = {part["title"]: part for file in files for part in file.get("$defs", {}).values()}
    found |= {file["title"]: file for file in files}
    return "\n".join(_section(schema) for _, schema in sorted(found.items()))


def _section(schema: dict[str, Any]) -> str:
    name, required = schema["title"], schema.get("required", [])
    lines = [f"## {name}", "", schema.get("description", ""), ""]
    if members := schema.get("properties", {}):
        lines += ["| member | is | |", "| --- | --- | --- |"]
        lines += [
            f"| `{member}` | {_kind(of)} | {'' if member in required else 'may be absent'} |"
            for member, of in members.items()
        ]
    if "$schema" in schema:
        lines += ["", f"{{download}}`{name}.json <schemas/{name}.json>`"]
    return "\n".join([*lines, ""])


def _kind(of: dict[str, Any]) -> str:
    """What a member holds, in words."""
    if "$ref" in of:
        name = of["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in of:
        return " or ".join(dict.fromkeys(map(_kind, of["anyOf"])))
    if "enum" in of:
        return " or ".join(f"`{json.dumps(value)}`" for value in of["enum"])
    if of.get("type") == "array":
        return f"list of {_kind(of['items'])}" if of.get("items") else "list"
    if of.get("type") == "object":
        inner = of.get("additionalProperties")
        return f"object of {_kind(inner)}" if inner else "object"
    return str(of.get("type", "anything"))
