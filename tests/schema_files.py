"""The checked-in JSON Schemas; run as a program it writes them anew."""

import json
from pathlib import Path

import msgspec

from shelflife.server.schemas import message_types

FOLDER = Path(__file__).parents[1] / "docs" / "schemas"


def message_schema(name):
    """One message's schema as a document of its own."""
    _, components = msgspec.json.schema_components(
        [message_types()[name]], schema_hook=None, ref_template="#/$defs/{name}"
    )
    own = components.pop(name)
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": name, **own}
    return {**document, "$defs": components} if components else document


def schema_texts():
    """Each schema file and what it should hold."""
    return {
        FOLDER / f"{name}.json": json.dumps(message_schema(name), indent=2, ensure_ascii=False) + "\n"
        for name in message_types()
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file in FOLDER.glob("*.json"):
        file.unlink()
    for file, text in schema_texts().items():
        file.write_text(text, "utf-8")
