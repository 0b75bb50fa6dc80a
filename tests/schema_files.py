"""The checked-in JSON Schemas; run as a program it writes them anew."""

import json
from pathlib import Path

from shelflife.contract.schemas import message_schema, message_types

FOLDER = Path(__file__).parents[1] / "docs" / "schemas"


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
