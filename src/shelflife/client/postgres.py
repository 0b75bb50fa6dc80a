"""A store in PostgreSQL: shared by agents on any number of machines. It needs the extra `postgres`.

A look is one call, and so of one moment. So is a write: it begins with the revision of its root, and whoever comes second waits for
that, and then finds another one. What these do is in `postgres_schema`.
"""

import hashlib
from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec

from shelflife.client.entries import Entry, Root, Shape
from shelflife.client.near import Message, News
from shelflife.client.postgres_schema import SCHEMA
from shelflife.client.remote import LONGEST_VERB_S, RemoteStore
from shelflife.client.seen import Look, Told
from shelflife.client.stores import Filed, StoreError, Write, Written
from shelflife.extras import needing
from shelflife.sqlite_files import Kind

with needing("postgres"):
    import psycopg

    from shelflife.postgres_databases import Database

__all__ = ["PostgresStore"]

_KIND = Kind("memory", StoreError, 0x5348_4C4D, 2, SCHEMA, begins_anew=True)
"""A fix that is lost with an older format costs one request."""

_LOOK = "select * from {schema}.look(?, ?, ?, ?, ?, ?, ?, ?)"
_WRITE = "select * from {schema}.write(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_TAGGED = "select id, learned_at, entry from {schema}.entries where tags && ?::bigint[]"
_ALL = """
select e.id, e.root, e.learned_at, e.entry from {schema}.entries e join {schema}.roots r on r.number = e.root
where r.namespace = ? and (e.id, e.root) > (?, ?) order by e.id, e.root limit 1000
"""
_LONGEST_PUT_S = 0.002
"""A write that makes thousands of entries suspect is waited for so much longer for each."""

_BYTES = r"\\x"

_encode = msgspec.json.Encoder().encode
_decode_entry = msgspec.json.Decoder(Entry).decode
_decode_shape = msgspec.json.Decoder(Shape).decode
_decode_message = msgspec.json.Decoder(Message).decode


class PostgresStore(RemoteStore):
    """Entries in a schema of a PostgreSQL database: `postgresql://user@host/database?schema=agents`, by default `shelflife_memory`."""

    failures = (psycopg.Error,)

    def __init__(self, url: str, *, namespace: str = "default", near: bool = False) -> None:
        self._database = Database(
            url,
            _KIND,
            schema="shelflife_memory",
            longest_silence_s=LONGEST_VERB_S,
        )
        self._look_statement, self._write_statement, self._tagged_statement, self._all_statement = (
            statement.format(schema=f'"{self._database.schema}"')
            for statement in (_LOOK, _WRITE, _TAGGED, _ALL)
        )
        super().__init__(self._database.name, namespace=namespace, near=near)
        of = hashlib.blake2b(f"{self._database.schema} {namespace}".encode(), digest_size=8)
        self._news = f"shelflife_{of.hexdigest()}"

    def _look(self, look: Look) -> Told:
        operation = look.operation
        asked = self.namespace, look.root, look.revision, operation, look.lacks_shapes
        places = _ids(look.missing), _ids(look.held)
        rows = self._database.once(self._look_statement, (*asked, *places, self._tags(look.root, look.tags)))
        if not rows:
            return Told(0, b"", () if operation is not None else None, {}, [0] * len(look.tags))
        entries: dict[str, list[Entry]] = {}
        for *_, id, place, learned_at, encoded in rows:
            if id is not None:
                entries.setdefault(place.hex(), []).append(_entry(id, learned_at, encoded, place.hex()))
        now, knowledge, shapes, counts, *_ = rows[0]
        decoded = None if shapes is None else tuple(_decode_shape(shape) for shape in shapes)
        return Told(int(now), knowledge, decoded, entries, counts or ())

    def _written(
        self,
        root: Root,
        revisions: tuple[int, int],
        write: Write,
        used: Sequence[str],
        counted: Sequence[str],
    ) -> tuple[Written, Sequence[int]] | None:
        drop, drop_ids = tuple(write.drop), tuple(write.drop_ids)
        values = (
            *(self.namespace, root, *revisions, _encode(write.knowledge), _ids(used)),
            *(
                self._tags(root, drop),
                _ids(drop_ids),
                self._filed(root, write.put),
                write.capacity,
                self._tags(root, counted),
                self._news,
            ),
        )
        longer_s = _LONGEST_PUT_S * len(write.put)
        rows = self._database.once(self._write_statement, values, done="written", longer_s=longer_s)
        if not rows:
            return None
        gone: dict[str, list[tuple[int, list[int], Entry]]] = {}
        for what, number, id, place, tags, learned_at, encoded in rows[:-1]:
            gone.setdefault(what, []).append((number, tags, _entry(id, learned_at, encoded, place.hex())))
        names = {self.tag(root, tag): tag for tag in reversed(drop)}
        order = [*reversed(names)]
        dropped = [
            (entry, next((names[tag] for tag in order if tag in tags), entry.id))
            for _, tags, entry in gone.get("dropped", ())
        ]
        dropped += ((entry, "") for *_, entry in gone.get("replaced", ()))
        before = {number: entry for number, _, entry in gone.get("before", ())}
        stored = []
        for number, filed in enumerate(write.put, start=1):
            entry, was = filed.entry, before.get(number)
            if was is not None:
                entry = msgspec.structs.replace(entry, learned_at=was.learned_at)
            if was is None or entry.renews(was):
                stored.append(entry)
        counts = rows[-1][4]
        return Written(dropped, [entry for *_, entry in gone.get("trimmed", ())], stored), counts

    def _filed(self, root: Root, put: Sequence[Filed]) -> str:
        filed = []
        for one in put:
            entry = one.entry
            shape, tags = (
                _encode(entry.condition.shape).decode(),
                sorted({self.tag(root, tag) for tag in one.tags}),
            )
            kept = entry.learned_at, msgspec.Raw(_encode(entry))
            filed.append((entry.id, entry.place, one.slot, entry.operation, shape, tags, *kept))
        return _encode(filed).decode()

    def _tags(self, root: Root, tags: Sequence[str]) -> str:
        return f"{{{','.join(str(self.tag(root, tag)) for tag in tags)}}}"

    def _tagged(self, root: Root, tags: Sequence[str]) -> list[Entry]:
        rows = self._database.once(self._tagged_statement, ([self.tag(root, tag) for tag in tags],))
        return [_entry(*row) for row in rows]

    def _entries(self) -> Iterator[Entry]:
        last: tuple[bytes, int] = (b"", 0)
        while rows := self._database.once(self._all_statement, (self.namespace, *last)):
            last = rows[-1][:2]
            yield from (_entry(id, learned_at, encoded) for id, _, learned_at, encoded in rows)

    def _note(self, root: Root, used: Sequence[str]) -> None:
        with self._database.writing() as connection:
            statement = (
                "update roots set uses = uses + ? where namespace = ? and root = ? returning number, uses"
            )
            found = connection.execute(statement, (len(used), self.namespace, root)).fetchone()
            if found is not None:
                connection.execute(
                    "update entries set used = ? + noted.number from unnest(?::bytea[]) with ordinality as noted (id, number)"
                    " where root + 0 = ? and entries.id = noted.id",
                    (found[1] - len(used), _ids(used), found[0]),
                )

    def _clear(self) -> None:
        with self._database.writing() as connection:
            for name in ("entries", "shapes", "tags", "left_behind"):
                statement = f"delete from {name} where root in (select number from roots where namespace = ?)"  # noqa: S608
                connection.execute(statement, (self.namespace,))
            connection.execute("delete from roots where namespace = ?", (self.namespace,))
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
        self._connection = database.listening(channel)

    def wait(self, timeout_s: float) -> list[News]:
        told = self._connection.notifies(timeout=timeout_s, stop_after=1)
        return [News.from_message(_decode_message(one.payload)) for one in told]

    def catch_up(self) -> list[News]:
        self._connection.execute("select 1")  # what was told before is here before the answer is
        return self.wait(0)

    def close(self) -> None:
        self._database.end(self._connection)


def _ids(ids: Sequence[str]) -> str:
    """As PostgreSQL writes a list of them: to find out what is in a list of Python's takes longer than all else."""
    return f"{{{','.join(f'{_BYTES}{id}' for id in ids)}}}"


def _entry(id: bytes, learned_at: float, encoded: bytes, place: str | None = None) -> Entry:
    entry = _decode_entry(encoded)
    if entry.learned_at != learned_at:
        entry = msgspec.structs.replace(entry, learned_at=learned_at)
    vars(entry)["id"] = id.hex()  # it is asked for next, and costs three digests
    if place is not None:
        vars(entry)["place"] = place
    return entry


@lru_cache(maxsize=4096)
def _tag(namespace: str, root: Root, tag: str) -> int:
    """A tag as a number of 64 bits. Two that met would only drop an entry too many."""
    digest = hashlib.blake2b(f"{namespace} {root} {tag}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
