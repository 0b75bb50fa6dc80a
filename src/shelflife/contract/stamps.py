"""Stamps in headers, for responses whose body is not a JSON object the server may add to.

`Contract-Tables` is a List of Strings (RFC 9651), each with its version as parameter `v`; `Contract-Rules` and
`Contract-State` are one String each.
"""

import re
from collections.abc import Mapping

import msgspec

from shelflife.contract.errors import BadMessage

__all__ = [
    "RULES_HEADER",
    "STATE_HEADER",
    "TABLES_HEADER",
    "quoted",
    "state_name",
    "table_versions_from_header",
    "table_versions_header",
    "unquoted",
]

TABLES_HEADER = "Contract-Tables"
RULES_HEADER = "Contract-Rules"
STATE_HEADER = "Contract-State"

_NAME_LENGTH = 16
_encode = msgspec.json.Encoder(order="sorted").encode

_STRING = r'"(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*"'
_MEMBER = rf"({_STRING});v=({_STRING})"
_LIST = rf"(?:\s*+{_STRING};v={_STRING}\s*+(?:,|\Z))*+"


def state_name(table_versions: Mapping[str, str], rules_version: str | None) -> str:
    """What `Contract-State` calls the state that these versions make up."""
    import hashlib  # brings OpenSSL along, and is a twentieth of the import of the client

    members = {"table_versions": table_versions} | ({"rules_version": rules_version} if rules_version else {})
    return hashlib.sha256(_encode(members)).hexdigest()[:_NAME_LENGTH]


def quoted(text: str) -> str:
    """A String of RFC 9651; the text is printable ASCII."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def unquoted(string: str) -> str:
    """The text of a String of RFC 9651."""
    string = string.strip()
    if not re.fullmatch(_STRING, string):
        raise BadMessage("a stamp header is not a quoted string")
    return re.sub(r"\\(.)", r"\1", string[1:-1])


def table_versions_header(table_versions: Mapping[str, str]) -> str:
    """The value of `Contract-Tables`."""
    return ", ".join(f"{quoted(table)};v={quoted(version)}" for table, version in table_versions.items())


def table_versions_from_header(value: str) -> dict[str, str]:
    """What a `Contract-Tables` header says."""
    if not re.fullmatch(_LIST, value):  # `re` keeps what it has compiled: an import need not
        raise BadMessage(f"{TABLES_HEADER} is not a list of quoted names with a version each")
    return {unquoted(table): unquoted(version) for table, version in re.findall(_MEMBER, value)}
