"""A store in PostgreSQL: shared by agents on any number of machines. It needs the extra `postgres`.

A look is one statement, and so of one moment. A write is one transaction, which begins with the revision of its root: whoever comes second
waits for that, and then finds another one.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from shelflife.client.entries import Entry, Root, Shape
from shelflife.client.near import Message, News
from shelflife.client.remote import LONGEST_VERB_S, Look, RemoteStore, Told
from shelflife.client.stores import Filed, StoreError, Write, Written
from shelflife.extras import needing
from shelflife.sqlite_files import Kind

with needing("postgres"):
    import psycopg

    from shelflife.postgres_databases import Connection, Database

__all__ = ["PostgresStore"]

_SCHEMA = """
create table roots (
    number bigint generated always as identity primary key, namespace text not null, root text not null,
    revision bigint not null, knowledge bytea not null, uses bigint not null default 0,
    held bigint not null default 0, unique (namespace, root)
);
create table shapes (
    root bigint, operation text, shape text, entries bigint not null, primary key (root, operation, shape)
);
create table entries (
    root bigint, id bytea, place bytea not null, slot text not null, operation text not null,
    shape text not null, used bigint not null, tags bigint[] not null, learned_at float8 not null,
    entry bytea not null, primary key (root, id)
);
create index entries_by_place on entries (root, place);
create index entries_by_use on entries (root, used);
create index entries_by_tag on entries using gin (tags) with (fastupdate = off);
"""

_KIND = Kind("memory", StoreError, 0x5348_4C4D, 1, _SCHEMA, begins_anew=True)
"""A fix that is lost with an older format costs one request."""

_LOOK = """
select r.revision, case when r.revision <> ? then r.knowledge end,
    case when ? and (r.revision <> ? or ?) then array(
        select shape from {schema}.shapes s where s.root = r.number and s.operation = ? order by shape
    ) end,
    array(
        select (select count(*) from {schema}.entries where tags @> array[asked.tag])
        from unnest(?::bigint[]) with ordinality as asked (tag, number) order by asked.number
    ),
    e.id, e.place, e.learned_at, e.entry
from {schema}.roots r left join {schema}.entries e on e.root = r.number
    and e.place = any(case when r.revision <> ? then ?::bytea[] else ?::bytea[] end)
where r.namespace = ? and r.root = ?
"""
_TAGGED = "select id, learned_at, entry from {schema}.entries where tags && ?::bigint[]"
_ALL = """
select e.root, e.id, e.learned_at, e.entry from {schema}.entries e join {schema}.roots r on r.number = e.root
where r.namespace = ? and (e.root, e.id) > (?, ?) order by e.root, e.id limit 1000
"""
_GONE = "returning id, place, operation, shape, used, tags, learned_at, entry"
_LONGEST_NEWS = 7000
"""PostgreSQL tells no more than 8000 bytes at once."""

_encode = msgspec.json.Encoder().encode
_decode_entry = msgspec.json.Decoder(Entry).decode
_decode_shape = msgspec.json.Decoder(Shape).decode
_decode_message = msgspec.json.Decoder(Message).decode


class _Row(NamedTuple):
    """An entry that has gone."""

    id: bytes
    place: bytes
    operation: str
    shape: str
    used: int
    tags: list[int]
    learned_at: float
    encoded: bytes

    @property
    def entry(self) -> Entry:
        return _entry(self.id, self.learned_at, self.encoded)


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
        self._look_statement, self._tagged_statement, self._all_statement = (
            statement.format(schema=f'"{self._database.schema}"') for statement in (_LOOK, _TAGGED, _ALL)
        )
        super().__init__(self._database.name, namespace=namespace, near=near)
        of = hashlib.blake2b(f"{self._database.schema} {namespace}".encode(), digest_size=8)
        self._news = f"shelflife_{of.hexdigest()}"

    def _look(self, look: Look) -> Told:
        missing, held = ([*map(bytes.fromhex, places)] for places in (look.missing, look.held))
        tags = [self.tag(look.root, tag) for tag in look.tags]
        revision, operation = look.revision, look.operation
        asked = revision, operation is not None, revision, look.lacks_shapes, operation, tags
        places = revision, [*missing, *held], missing
        rows = self._database.once(self._look_statement, (*asked, *places, self.namespace, look.root))
        if not rows:
            return Told(0, b"", () if operation is not None else None, {}, [0] * len(tags))
        entries: dict[str, list[Entry]] = {}
        for *_, id, place, learned_at, encoded in rows:
            if id is not None:
                entries.setdefault(place.hex(), []).append(_entry(id, learned_at, encoded))
        now, knowledge, shapes, counts, *_ = rows[0]
        decoded = None if shapes is None else tuple(_decode_shape(shape) for shape in shapes)
        return Told(now, knowledge, decoded, entries, counts)

    def _written(
        self, root: Root, revision: int, new_revision: int, write: Write, used: Sequence[str]
    ) -> Written | None:
        with self._database.writing() as connection:
            writing = _Writing.begun(self, connection, root, (revision, new_revision), write, used)
            if writing is None:
                return None
            written = writing.carried_out()
            self._tell(connection, root, revision, new_revision, write, written)
            return written

    def _tell(
        self, connection: Connection, root: Root, before: int, after: int, write: Write, written: Written
    ) -> None:
        """Tell those that listen, when all of it is done."""
        changed = [
            *(filed.entry for filed in write.put),
            *written.trimmed,
            *(entry for entry, _ in written.dropped),
        ]
        places, operations = ({getattr(one, name) for one in changed} for name in ("place", "operation"))
        known = _encode(write.knowledge).decode()
        message: Message = (root, str(before), str(after), known, [*places], [*operations])
        if len(_encode(message)) > _LONGEST_NEWS:
            message = (root, str(before), str(after), "", [], [])
        connection.execute("select pg_notify(?, ?)", (self._news, _encode(message).decode()))

    def _tagged(self, root: Root, tags: Sequence[str]) -> list[Entry]:
        rows = self._database.once(self._tagged_statement, ([self.tag(root, tag) for tag in tags],))
        return [_entry(*row) for row in rows]

    def _entries(self) -> Iterator[Entry]:
        last: tuple[int, bytes] = (0, b"")
        while rows := self._database.once(self._all_statement, (self.namespace, *last)):
            last = rows[-1][:2]
            yield from (_entry(*row[1:]) for row in rows)

    def _note(self, root: Root, used: Sequence[str]) -> None:
        with self._database.writing() as connection:
            statement = (
                "update roots set uses = uses + ? where namespace = ? and root = ? returning number, uses"
            )
            found = connection.execute(statement, (len(used), self.namespace, root)).fetchone()
            if found is not None:
                _note_use(connection, found[0], used, found[1] - len(used))

    def _clear(self) -> None:
        with self._database.writing() as connection:
            for name in ("entries", "shapes"):
                statement = f"delete from {name} where root in (select number from roots where namespace = ?)"  # noqa: S608
                connection.execute(statement, (self.namespace,))
            connection.execute("delete from roots where namespace = ?", (self.namespace,))
            nothing = _encode(("", "0", "0", "", [], [])).decode()
            connection.execute("select pg_notify(?, ?)", (self._news, nothing))

    def tag(self, root: Root, tag: str) -> int:
        """A tag of a root, in short."""
        return _tag(self.namespace, root, tag)

    def _listening(self) -> "_Notified":
        return _Notified(self._database.listening(self._news))

    def _disconnect(self) -> None:
        self._database.close()


class _Writing:
    """One write, in its transaction."""

    def __init__(
        self,
        store: PostgresStore,
        connection: Connection,
        root: tuple[int, Root],
        counts: tuple[int, int],
        write: Write,
    ) -> None:
        self._store = store
        self._execute = connection.execute
        self._number, self._root = root
        self._uses, self._held = counts
        """How often something of the root was used, without what is put, and how many were held."""
        self._write = write
        self._shapes: Counter[tuple[str, str]] = Counter()
        self._change = 0
        """How many more are held now."""

    @classmethod
    def begun(
        cls,
        store: PostgresStore,
        connection: Connection,
        root: Root,
        revisions: tuple[int, int],
        write: Write,
        used: Sequence[str],
    ) -> "_Writing | None":
        """Take the root to its next revision; None when it is not at the revision before any more."""
        before, after = revisions
        knowledge, use_count = _encode(write.knowledge), len(used) + len(write.put)
        if before == 0:
            statement = (
                "insert into roots (namespace, root, revision, knowledge, uses) values (?, ?, ?, ?, ?)"
                " on conflict do nothing returning number, uses, held"
            )
            found = connection.execute(statement, (store.namespace, root, after, knowledge, use_count))
        else:
            statement = (
                "update roots set revision = ?, knowledge = ?, uses = uses + ?"
                " where namespace = ? and root = ? and revision = ? returning number, uses, held"
            )
            values = after, knowledge, use_count, store.namespace, root, before
            found = connection.execute(statement, values)
        row = found.fetchone()
        if row is None:
            return None
        number, uses, held = row
        _note_use(connection, number, used, uses - use_count)
        return cls(store, connection, (number, root), (uses - len(write.put), held), write)

    def carried_out(self) -> Written:
        written = Written(self._dropped(), [], [])
        for number, filed in enumerate(self._write.put, start=1):
            self._put(filed, self._uses + number, written)
        written.trimmed.extend(self._trimmed())
        self._note_shapes()
        return written

    def _dropped(self) -> list[tuple[Entry, str]]:
        drop, drop_ids = tuple(self._write.drop), tuple(self._write.drop_ids)
        dropped: list[tuple[Entry, str]] = []
        if drop:
            numbers = {self._store.tag(self._root, tag): tag for tag in reversed(drop)}
            order = [*reversed(numbers)]
            rows = self._gone("tags && ?::bigint[]", order)
            dropped += ((row.entry, numbers[next(tag for tag in order if tag in row.tags)]) for row in rows)
        if drop_ids:
            rows = self._gone("root = ? and id = any(?)", self._number, [*map(bytes.fromhex, drop_ids)])
            dropped += ((row.entry, row.id.hex()) for row in rows)
        return dropped

    def _put(self, filed: Filed, use: int, written: Written) -> None:
        entry, operation = filed.entry, filed.entry.operation
        id, place, shape = (
            bytes.fromhex(entry.id),
            bytes.fromhex(entry.place),
            _encode(entry.condition.shape).decode(),
        )
        before: Entry | None = None
        for row in self._gone("root = ? and place = ? and slot = ?", self._number, place, filed.slot):
            if row.id == id:
                before, use = row.entry, row.used
                entry = msgspec.structs.replace(entry, learned_at=before.learned_at)
            else:
                written.dropped.append((row.entry, ""))
        tags = sorted({self._store.tag(self._root, tag) for tag in filed.tags})
        self._execute(
            "insert into entries values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                self._number,
                id,
                place,
                filed.slot,
                operation,
                shape,
                use,
                tags,
                entry.learned_at,
                _encode(entry),
            ),
        )
        self._shapes[operation, shape] += 1
        self._change += 1
        if before is None or entry.renews(before):
            written.stored.append(entry)

    def _trimmed(self) -> list[Entry]:
        """What there is no room for. How many are held is on record, for to count them takes long."""
        capacity, rows = self._write.capacity, list[_Row]()
        if capacity is not None and (excess := self._held + self._change - capacity) > 0:
            least = "(root, id) in (select root, id from entries where root = ? order by used limit ?)"
            rows = self._gone(least, self._number, excess)
        if self._change:
            self._execute("update roots set held = held + ? where number = ?", (self._change, self._number))
        return [row.entry for row in rows]

    def _gone(self, which: str, *values: Any) -> list[_Row]:
        statement = f"delete from entries where {which} {_GONE}"  # noqa: S608 - all are literals
        rows = [_Row._make(row) for row in self._execute(statement, values)]
        self._shapes.subtract((row.operation, row.shape) for row in rows)
        self._change -= len(rows)
        return rows

    def _note_shapes(self) -> None:
        """A shape goes with the last entry that has it."""
        for (operation, shape), change in self._shapes.items():
            if change:
                self._execute(
                    "insert into shapes values (?, ?, ?, ?) on conflict (root, operation, shape)"
                    " do update set entries = shapes.entries + excluded.entries",
                    (self._number, operation, shape, change),
                )
        if any(change < 0 for change in self._shapes.values()):
            self._execute("delete from shapes where root = ? and entries <= 0", (self._number,))


class _Notified:
    """What PostgreSQL tells about writes, over a connection of its own."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def wait(self, timeout_s: float) -> list[News]:
        told = self._connection.notifies(timeout=timeout_s, stop_after=1)
        return [News.from_message(_decode_message(one.payload)) for one in told]

    def catch_up(self) -> list[News]:
        self._connection.execute("select 1")  # what was told before is here before the answer is
        return self.wait(0)

    def close(self) -> None:
        self._connection.close()


def _note_use(connection: Connection, root: int, used: Sequence[str], uses: int) -> None:
    """That these were used, one after another, from this count on."""
    if used:
        connection.execute(
            "update entries set used = ? + noted.number from unnest(?::bytea[]) with ordinality as noted (id, number)"
            " where root = ? and entries.id = noted.id",
            (uses, [*map(bytes.fromhex, used)], root),
        )


def _entry(id: bytes, learned_at: float, encoded: bytes) -> Entry:
    entry = _decode_entry(encoded)
    if entry.learned_at != learned_at:
        entry = msgspec.structs.replace(entry, learned_at=learned_at)
    vars(entry)["id"] = id.hex()  # it is asked for next, and costs three digests
    return entry


@lru_cache(maxsize=4096)
def _tag(namespace: str, root: Root, tag: str) -> int:
    """A tag as a number of 64 bits. Two that met would only drop an entry too many."""
    digest = hashlib.blake2b(f"{namespace} {root} {tag}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
