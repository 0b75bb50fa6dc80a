"""What is in the SQLite file of a memory: its tables, how entries and tags are written there, and the statements that are used often."""

# ruff: noqa: S608 - all statements are made of literals

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import repeat

import msgspec

from shelflife.client.entries import Entry, Knowledge, Root, Shape, blake2b, digest_in_bytes
from shelflife.client.stores import StoreError
from shelflife.client.strategies import broader
from shelflife.sqlite_files import Kind

__all__ = [
    "AT",
    "AT_NOW",
    "IDS_AT",
    "IDS_OF_ALL_AT",
    "INSERT",
    "KIND",
    "KNOW",
    "MOST_TALLIED",
    "ORDER_BY_USE",
    "PUT_DOWN",
    "ROOT",
    "TAG",
    "TAGGED",
    "TAG_SIZE",
    "THERE",
    "FiledRow",
    "decode_knowledge",
    "decode_shape",
    "decode_tags",
    "encode",
    "encode_tags",
    "entry_in",
    "implied",
    "key_of_shape",
    "narrowest",
    "number_of",
    "path_of",
    "rows_of",
    "span",
]

TAG_SIZE = 8
MOST_TALLIED = 2 * TAG_SIZE
"""So long are the paths of tables, of rules and of policies. What bears one may be most of the file, so it is written down how much it is."""

_MANY_LAYERS = 500
"""More than there are in what a server can have given, and fewer than a decoder fails at."""

_LAST = b"\xff" * 64
"""After all that may follow a tag."""

_SCHEMA = """
create table roots (
    number integer primary key, root text not null, revision integer not null, knowledge_at integer not null, shapes_at integer not null,
    entries_at integer not null, held integer not null, gone integer not null, line integer not null, tallies blob not null,
    shapes blob not null
);
create table knowledge (number integer primary key, knowledge blob not null);
create table shapes (
    root text, operation text, shape blob, held integer, primary key (root, operation, shape)
) without rowid;
create table entries (
    number integer primary key, id blob not null, root blob not null, place blob not null, slot text not null,
    used integer not null, tags blob not null, entry blob not null
);
create index entries_by_place on entries (place);
create table tags (tag blob, number integer, shared integer not null, primary key (tag, number)) without rowid;
create table gone (root blob, number integer, primary key (root, number)) without rowid;
"""

KIND = Kind("memory", StoreError, 0x5348_4C4D, 11, _SCHEMA, begins_anew=True, page_size=2048)
"""A fix that is lost with an older format costs one request. A put touches a few hundred bytes in each of seven pages."""

KNOW = "insert or replace into knowledge values (?, ?)"
PUT_DOWN = "insert or replace into roots values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
ORDER_BY_USE = "create index if not exists entries_by_use on entries (root, used)"
"""It is made when the room is first found to be too small: until then nobody asks for that order, and each put would pay for it."""

TAG = "insert into tags values (?, ?, ?)"
INSERT = "insert into entries values (?, ?, ?, ?, ?, ?, ?, ?)"
ROOT = """
select revision, knowledge_at, shapes_at, entries_at, held, gone, line, tallies, shapes from roots where number = ? and root = ?
"""
THERE = "not exists (select 1 from gone where gone.root = entries.root and gone.number = entries.number)"
TAGGED = f"where number in (select number from tags where tag between ? and ?) and {THERE}"
AT = f"select place, id, entry from entries where place = ? and {THERE}"
IDS_OF_ALL_AT = "select id, entry from entries where place = ?"
IDS_AT = f"{IDS_OF_ALL_AT} and {THERE}"
AT_NOW = f"""
select id, entry, revision, knowledge_at, shapes_at, entries_at from roots left join entries on place = ? and (roots.gone = 0 or {THERE})
where roots.number = ? and roots.root = ?
"""
"""What is at a place, and how far its root has come, both of one moment: at least one row, if there is anything of the root."""

encode = msgspec.json.Encoder().encode
encode_tags = msgspec.msgpack.Encoder().encode
decode_knowledge = msgspec.json.Decoder(Knowledge).decode
decode_tags = msgspec.msgpack.Decoder(list[bytes]).decode
decode_shape = msgspec.json.Decoder(Shape).decode
_decode_entry = msgspec.json.Decoder(Entry).decode


class FiledRow(msgspec.Struct, frozen=True):
    """An entry as it is in the file."""

    number: int
    id: bytes
    place: bytes
    used: int
    tags: bytes
    entry: bytes


def entry_in(place: bytes, id: bytes, encoded: bytes) -> Entry:
    """An entry, with the texts of it that are asked for next, and cost three digests."""
    try:
        entry = _decode_entry(encoded)
    except RecursionError:
        # Else whoever asks is at the end of the stack, which is no fault of the file.
        if encoded.count(b"[") + encoded.count(b"{") > _MANY_LAYERS:
            raise ValueError("an entry in it is nested too deep") from None
        raise
    kept = entry.__dict__
    # so, and not as `id.hex()`: whatever else somebody has written there is a TypeError, and in the end a sentence about this file
    kept["id"] = bytes.hex(id)
    kept["place"] = bytes.hex(place)
    return entry


@lru_cache(maxsize=1024)
def number_of(root: Root) -> int:
    """A number for a root. It leads to the row of the root by one page less than a name would."""
    return int.from_bytes(path_of(root, ""), "big") >> 1


@lru_cache(maxsize=4096)
def path_of(root: Root, tag: str) -> bytes:
    """A tag as 8 bytes below those of the tags that are broader. So it stands for these too: all that is below one begins as it does.

    Two that met would only drop an entry too many.
    """
    above = broader(tag)
    digest = blake2b(f"{root} {tag}".encode(), digest_size=TAG_SIZE).digest()
    return digest if above is None else path_of(root, above) + digest


@lru_cache(maxsize=1024)
def key_of_shape(operation: str, shape: Shape) -> bytes:
    """Tells the shapes of a root from each other."""
    return digest_in_bytes(operation, shape)


def implied(tags: Iterable[bytes]) -> set[bytes]:
    """The broader ones of these tags."""
    return {tag[:end] for tag in tags for end in range(TAG_SIZE, len(tag), TAG_SIZE)}


def narrowest(root: Root, tags: Iterable[str]) -> list[bytes]:
    """These tags as they are written, in order, without those that follow from others: a broader one stands right before what is below it."""
    found: list[bytes] = []
    before = _LAST
    for tag in sorted(map(path_of, repeat(root), tags)):
        if tag.startswith(before):
            found[-1] = tag
        else:
            found.append(tag)
        before = tag
    return found


def rows_of(tags: Sequence[bytes], number: int | None) -> list[tuple[bytearray, int | None, int]]:
    """The rows for these, which are in order: each with how much of it is the same as of the one before, and so has been counted already.

    They are bytearrays because Python asks of all other bytes that go into a statement whether somebody would have them written otherwise.
    """
    rows, before = [], b""
    for tag in tags:
        end = TAG_SIZE
        while end <= len(tag) and tag[:end] == before[:end]:
            end += TAG_SIZE
        rows.append((bytearray(tag), number, end - TAG_SIZE))
        before = tag
    return rows


def span(tag: bytes) -> tuple[bytes, bytes]:
    """All tags that are this one, or below it."""
    return tag, tag + _LAST
