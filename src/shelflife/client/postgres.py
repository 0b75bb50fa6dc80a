"""A store in PostgreSQL: shared by agents on any number of machines. It needs the extra `postgres`.

A look is one call, and so of one moment. So is a write: it begins with the revision of its root, and whoever comes second waits for
that, and then finds another one. What these do is in `postgres_schema`.
"""

import hashlib
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from shelflife.client.diary import KEPT_HOURS, Noted
from shelflife.client.entries import Entry, Root, Shape
from shelflife.client.near import Message, News
from shelflife.client.postgres_schema import SCHEMA
from shelflife.client.remote import LONGEST_VERB_S, RemoteStore
from shelflife.client.seen import Age, Look, Told, entry_of, stored_of
from shelflife.client.stores import Filed, StoreError, Write, Written
from shelflife.extras import needing
from shelflife.sqlite_files import Kind

with needing("postgres"):
    import psycopg

    from shelflife.postgres_databases import Database

__all__ = ["PostgresStore"]

_KIND = Kind("memory", StoreError, 0x5348_4C4D, 4, SCHEMA, begins_anew=True)
"""A fix that is lost with an older format costs one request."""

_LOOK = "select {schema}.look($1, $2, $3, $4, $5, $6, $7, $8)"
_WRITE = "select {schema}.write($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"
_NOTE = "select {schema}.note($1, $2, $3)"
_BEGUN = "select distinct hour from diary where namespace = ? and hour = any(?::bigint[])"
_OLDER = """
delete from diary where namespace = ? and hour < (
    select distinct hour from diary where namespace = ? order by hour desc limit 1 offset ?
)
"""
_ADD_TO_DIARY = """
insert into diary (namespace, hour, root, what, times)
select ?, (one ->> 0)::bigint, one ->> 1, one ->> 2, (one ->> 3)::bigint from json_array_elements(?::json) as one
on conflict (namespace, hour, md5(root), what) do update set times = diary.times + excluded.times
"""
_DIARY = "select hour, root, what, times from {schema}.diary where namespace = $1 and hour >= $2::bigint"
_TAGGED = "select to_json(learned_at), told from {schema}.entries where tags && $1::bigint[]"
_ROOTS = "select root from {schema}.roots where namespace = $1"
_ALL = """
select encode(e.id, 'hex'), e.root, to_json(e.learned_at), e.told
from {schema}.entries e join {schema}.roots r on r.number = e.root
where r.namespace = $1 and (e.id, e.root) > (decode($2, 'hex'), $3::bigint) order by e.id, e.root limit 1000
"""

_BYTES = r"\x"
_LISTED_BYTES = r"\\x"

_Kept = tuple[str, str, str, Entry]
"""Of an entry: its id, its place, its slot, and what it is."""

_Looked = tuple[int, str | None, list[str] | None, list[int], list[tuple[Age, _Kept]]]
_Written = tuple[
    list[tuple[list[int], Age, _Kept]], list[tuple[int, Age, _Kept]], list[tuple[Age, _Kept]], list[int]
]

_encode = msgspec.json.Encoder().encode
_decode_age = msgspec.json.Decoder(Age).decode
_decode_kept = msgspec.json.Decoder(_Kept).decode
_decode_looked = msgspec.json.Decoder(_Looked).decode
_decode_written = msgspec.json.Decoder(_Written).decode
_decode_shape = msgspec.json.Decoder(Shape).decode
_decode_message = msgspec.json.Decoder(Message).decode


class PostgresStore(RemoteStore):
    """Entries in a schema of a PostgreSQL database: `postgresql://user@host/database?schema=agents`, by default `shelflife_memory`."""

    failures = (psycopg.Error,)

    def __init__(
        self, url: str, *, namespace: str = "default", near: bool = False, read_only: bool = False
    ) -> None:
        """What is only read is not made where there is none."""
        self._database = Database(
            url,
            _KIND,
            schema="shelflife_memory",
            longest_silence_s=LONGEST_VERB_S,
            read_only=read_only,
        )
        self._statements = {
            statement: statement.format(schema=f'"{self._database.schema}"')
            for statement in (_LOOK, _WRITE, _NOTE, _TAGGED, _ROOTS, _ALL, _DIARY)
        }
        super().__init__(self._database.name, namespace=namespace, near=near)
        of = hashlib.blake2b(f"{self._database.schema} {namespace}".encode(), digest_size=8)
        self._news = f"shelflife_{of.hexdigest()}"

    def _once(self, statement: str, *values: str | bytes | None, done: str = "read") -> list[tuple[Any, ...]]:
        return self._database.once(self._statements[statement], values, done=done, until=self._moment.until)

    def _look(self, look: Look) -> Told:
        operation, tags = look.operation, self._tags(look.root, look.tags)
        asked = self.namespace, look.root, str(look.revision), operation, str(look.lacks_shapes)
        ((told,),) = self._once(_LOOK, *asked, _ids(look.missing), _ids(look.held), tags)
        if told is None:
            return Told(0, b"", () if operation is not None else None, {}, [0] * len(look.tags))
        revision, knowledge, shapes, counts, found = _decode_looked(told)
        entries: dict[str, list[Entry]] = {}
        for age, kept in found:
            entries.setdefault(kept[1], []).append(_entry(age, kept))
        return Told(
            revision,
            None if knowledge is None else knowledge.encode(),
            None if shapes is None else tuple(map(_decode_shape, shapes)),
            entries,
            counts,
        )

    def _written(
        self,
        root: Root,
        revisions: tuple[int, int],
        write: Write,
        used: Sequence[str],
        counted: Sequence[str],
    ) -> tuple[Written, Sequence[int]] | None:
        ((told,),) = self._once(
            _WRITE,
            *(self.namespace, root, *map(str, revisions), f"{_BYTES}{_encode(write.knowledge).hex()}"),
            *(_ids(used), self._tags(root, write.drop), _ids(write.drop_ids), self._filed(root, write.put)),
            *(None if write.capacity is None else str(write.capacity), self._tags(root, counted), self._news),
            done="written",
        )
        if told is None:
            return None
        gone, others, trimmed, counts = _decode_written(told)
        names = {self.tag(root, tag): tag for tag in write.drop}
        dropped = []
        for tags, age, kept in gone:
            reason = next((names[tag] for tag in names if tag in tags), kept[0])
            dropped.append((_entry(age, kept), reason))
        dropped += ((_entry(age, kept), "") for number, age, kept in others if not number)
        before = {number: _entry(age, kept) for number, age, kept in others}
        stored = stored_of(write.put, [before.get(number) for number, _ in enumerate(write.put, start=1)])
        return Written(dropped, [_entry(age, kept) for age, kept in trimmed], stored), counts

    def _filed(self, root: Root, put: Sequence[Filed]) -> str:
        filed = []
        for one in put:
            entry = one.entry
            shape, tags = (
                _encode(entry.condition.shape).decode(),
                sorted({self.tag(root, tag) for tag in one.tags}),
            )
            kept = entry.learned_at, _encode((entry.id, entry.place, entry.slot, entry)).decode()
            filed.append((entry.id, entry.place, one.slot, entry.operation, shape, tags, *kept))
        return _encode(filed).decode()

    def _tags(self, root: Root, tags: Iterable[str]) -> str:
        return f"{{{','.join(str(self.tag(root, tag)) for tag in tags)}}}"

    def _tagged(self, root: Root, tags: Sequence[str]) -> list[Entry]:
        rows = self._once(_TAGGED, self._tags(root, tags))
        return [_entry(_decode_age(age), _decode_kept(kept)) for age, kept in rows]

    def _known_roots(self) -> list[Root]:
        return [root.decode() for (root,) in self._once(_ROOTS, self.namespace)]

    def _entries(self) -> Iterator[Entry]:
        last: tuple[bytes, bytes] = (b"", b"0")
        while rows := self._database.once(self._statements[_ALL], (self.namespace, *last)):
            for id, number, age, kept in rows:
                last = id, number
                yield _entry(_decode_age(age), _decode_kept(kept))

    def _note(self, root: Root, used: Sequence[str]) -> None:
        self._once(_NOTE, self.namespace, root, _ids(used), done="written")

    def _add_to_diary(self, noted: Sequence[Noted]) -> None:
        hours = sorted({one.hour for one in noted})
        # A transaction, and not `once`: what is given up is not carried out, for it is added again. Only where nothing is heard of the commit
        # itself may it have been: then it counts twice.
        with self._database.noting(self._moment.until) as connection:
            begun = connection.execute(_BEGUN, (self.namespace, hours)).fetchall()
            connection.execute(_ADD_TO_DIARY, (self.namespace, _encode(noted).decode()))
            if len(begun) < len(hours):
                connection.execute(_OLDER, (self.namespace, self.namespace, KEPT_HOURS - 1))

    def _diary(self, since: int) -> list[Noted]:
        rows = self._once(_DIARY, self.namespace, str(since))
        return [
            Noted(int(hour), root.decode(), what.decode(), int(times)) for hour, root, what, times in rows
        ]

    def _clear(self) -> None:
        with self._database.writing() as connection:
            # First the roots: it waits for whoever writes one, and who comes later finds none.
            gone = connection.execute(
                "delete from roots where namespace = ? returning number", (self.namespace,)
            )
            numbers = [number for (number,) in gone]
            for name in ("entries", "shapes", "tags", "left_behind"):
                connection.execute(f"delete from {name} where root = any(?)", (numbers,))  # noqa: S608
            connection.execute("delete from diary where namespace = ?", (self.namespace,))
            nothing = _encode(("", "0", "0", "", [], [])).decode()
            connection.execute("select pg_notify(?, ?)", (self._news, nothing))

    def tag(self, root: Root, tag: str) -> int:
        """A tag of a root, in short."""
        return _tag(self.namespace, root, tag)

    def _listening(self) -> "_Notified":
        return _Notified(self._database, self._news)

    def _disconnect(self) -> None:
        self._database.close()


class _Notified:
    """What PostgreSQL tells about writes, over a connection of its own."""

    def __init__(self, database: Database, channel: str) -> None:
        self._database = database
        self._signs = f"{channel}_{secrets.token_hex(8)}"
        """A channel for signs, which are for nobody else. PostgreSQL tells of all channels in one order."""
        self._connection = database.listening(channel, self._signs)

    def wait(self, timeout_s: float) -> list[News | str]:
        told = self._connection.notifies(timeout=timeout_s, stop_after=1)
        return [
            one.payload if one.channel == self._signs else News.from_message(_decode_message(one.payload))
            for one in told
        ]

    def ask(self, sign: str) -> None:
        until = time.monotonic() + LONGEST_VERB_S
        self._database.once("select pg_notify($1, $2)", (self._signs, sign), until=until)

    def close(self) -> None:
        self._database.end(self._connection)


def _ids(ids: Iterable[str]) -> str:
    """As PostgreSQL writes a list of them."""
    return f"{{{','.join(f'{_LISTED_BYTES}{id}' for id in ids)}}}"


def _entry(age: Age, kept: _Kept) -> Entry:
    id, place, slot, entry = kept
    return entry_of(entry, age, id, place, slot)


@lru_cache(maxsize=4096)
def _tag(namespace: str, root: Root, tag: str) -> int:
    """A tag as a number of 64 bits. Two that met would only drop an entry too many."""
    digest = hashlib.blake2b(f"{namespace} {root} {tag}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
