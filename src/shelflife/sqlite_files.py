"""A SQLite file of our own: known by its signs, opened when it is needed, used by one thread at a time, whole or not at all.

What was deleted or replaced is let go of, for other processes are at the one that is there now. No connection crosses a fork: in the
child SQLite would count on locks that only the parent has, and the first process to end would take the journal away from the others.
"""

import logging
import math
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from os import PathLike
from typing import Any, TypeVar
from weakref import finalize, ref

import msgspec

from shelflife.errors import ShelflifeError
from shelflife.forks import Locking
from shelflife.wal_index import Head, head_of, is_out_of_reach

__all__ = ["CHECKPOINT_BYTES", "Kind", "SqliteFile"]

_log = logging.getLogger("shelflife")

Result = TypeVar("Result")

_JOURNAL, _INDEX = "-wal", "-shm"
_LOOK_AGAIN_S = 0.01
_LONGEST_END_S = 1.0
"""So long the end of a program waits for a thread that is still at a file."""

_MOST_LINKS = 40
_LONGEST_TICK_S = 3.0
"""So far apart at most are two times that a file system can tell from each other: on the oldest ones, two seconds."""

_TICK_S = 0.1
"""The same for one that notes times more finely than to a hundredth of a second: a tick of the system, and some more. A file system of another
machine, whose clock is further behind, is no place for a file of SQLite."""

_HUNDREDTH_NS = 10_000_000
_STAMPING_CLOCK = 5
"""By which Linux stamps files, and for which Python has no name. The time of day is ahead of it while a virtual machine is kept waiting."""

_CACHED_KIBIBYTES = 2 * 1024
"""A page that is in no cache of ours is in one of the system, a microsecond away. And when another process has written, all of ours is
dropped, page by page."""

CHECKPOINT_BYTES = 16_384_000
"""The journal is carried over into the file when it is so long: rarely enough that the waits for the disk are spread thin."""

_SIGNS = "select * from pragma_application_id, pragma_user_version, (select count(*) from sqlite_master)"
"""What a file is, of which format, and how much there is in it."""

_FAILURES = (sqlite3.Error, msgspec.MsgspecError, ShelflifeError, TypeError, ValueError)
"""All but the first where somebody has edited the file, or a text is not Unicode."""


class Kind(msgspec.Struct, frozen=True):
    """What a file is for."""

    name: str
    """As in "the memory … cannot be read"."""

    error: type[ShelflifeError]
    """What is raised, with one sentence, when the file cannot be used."""

    application_id: int
    format: int
    schema: str
    begins_anew: bool = False
    """Whether a file of an older format is emptied. Else it is refused."""

    page_size: int = 4096
    """Of a new file. Each page that is touched is written whole, into the journal and from there into the file."""

    is_missed: bool = False
    """Whether only `open` makes the file. One that goes while it is in use is then missed until it is back; else another one is begun."""


_Files = tuple[object, object, object]
_Names = tuple[str, str, str]
"""Of a file, of its journal, and of the index to that."""


class _Open:
    """A connection, and which file, journal and index it has opened."""

    __slots__ = ("__weakref__", "connection", "cursor", "end", "files", "folder", "looks_at_folder_from")

    def __init__(
        self, connection: sqlite3.Connection, files: _Files | None, names: _Names, file: "SqliteFile"
    ) -> None:
        self.connection = connection
        self.end = finalize(self, _end, connection, files, names, ref(file))
        """Closes it. Else Python would, at the end of the program or once nobody has the file any more, whatever has become of it."""
        self.cursor = connection.cursor()
        """For what gives nothing back: to make one each time takes a microsecond."""
        self.files = files
        """None when that cannot be told."""
        self.folder: tuple[int, int, int] | None = None
        """The folder, and when it was last changed, if the files were looked at long after that."""
        self.looks_at_folder_from = 0.0
        """In a folder that is changed all the time, looking at that first would only be one look more."""


class SqliteFile(Locking):
    """A file of some kind. It is opened with its first use, and anew after a fork or when it was deleted or replaced."""

    def __init__(
        self,
        path: str | PathLike[str],
        kind: Kind,
        *,
        busy_timeout_s: float,
        durable: bool,
        read_only: bool = False,
    ) -> None:
        from pathlib import (
            Path,  # a tenth of the import of the client, and whoever has a file has mostly imported it
        )

        self.path: Path = Path(path)
        self.kind = kind
        self._file = self.path.absolute()
        self._names = self._all_names(str(self._file))
        self._folder = str(self._file.parent)
        self._busy_timeout_s = busy_timeout_s
        self._synchronous = "full" if durable else "normal"
        self._is_read_only = read_only
        self._open: _Open | None = None
        self.reading = _Access(self, "read")
        """The lock, for as long as something is read. What goes wrong meanwhile is an error of this kind of file."""
        self._writing = _Access(self, "written")
        super().__init__(threading.RLock)

    def before_fork(self) -> None:
        super().before_fork()
        self.close()

    def open(self) -> None:
        """Open it now, and make it where there is none."""
        with _Access(self, "opened"):
            self.connection(is_made=True)

    def close(self) -> None:
        """Let go of it, until the next use."""
        with self._lock, suppress(sqlite3.Error):
            opened, self._open = self._open, None
            if opened is not None:
                opened.end()

    def connection(self, *, is_to_be_there: bool = False, is_made: bool = False) -> sqlite3.Connection:
        """The open file; another one where that is to be the one that is there, and has been deleted or replaced.

        A transaction ends with the file that it has begun with. `is_made` makes a file where there is none, also if one would be missed.
        """
        opened = self._open
        if opened is not None:
            if not is_to_be_there:
                return opened.connection
            folder = opened.folder
            if (folder is not None and folder == _changed_at(self._folder)) or self._is_there(opened):
                return opened.connection
        self.close()
        file = _identity(self._names[0])
        is_made = is_made or not self.kind.is_missed
        if file is None and not is_made:
            raise ValueError("it was moved or deleted while it was in use; put it back, or start anew")
        connection = self._connect(is_made=is_made)
        self._names = self._all_names(str(self._file.resolve()))
        if is_out_of_reach(self._names[2]):
            _leave(connection, self._names[1])
            raise ValueError(
                f"{self._names[2]} was deleted, and something else in this process still has it open"
            )
        files = _files_at(self._names)
        # one that is made now, or replaced in this moment, may not be the one that was opened: it is opened once more
        self._open = _Open(connection, files if files[0] == file is not None else None, self._names, self)
        self._open.looks_at_folder_from = 0.0 if self._is_in_one_folder() else math.inf
        return connection

    def head(self) -> Head | None:
        """The head of the index to the journal of the open file, which is another one after each write; None where it cannot be told."""
        opened = self._open
        return (
            None if opened is None or opened.files is None else head_of(self._names[1].removesuffix(_JOURNAL))
        )

    def _is_there(self, opened: _Open) -> bool:
        if opened.connection.in_transaction:
            return True
        if opened.folder is None and time.monotonic() < opened.looks_at_folder_from:
            return self._are_there(opened)
        # A file that is deleted or replaced is so by a change of its folder: one look instead of two, if both are in the same.
        folder = _changed_at(self._folder)
        if folder is not None and folder == opened.folder:
            return True
        opened.folder = None
        if not self._are_there(opened):
            return False
        # Two race here: this look at the files, and whoever replaces one. A change within the same tick of the folder's clock could
        # not be told from the one before, so the folder is believed only when it has not been changed for longer than a tick takes.
        left_s = _LONGEST_TICK_S if folder is None else _left_of_tick_s(folder[2])
        if left_s < 0:
            opened.folder = folder
        else:
            opened.looks_at_folder_from = time.monotonic() + min(left_s, _LONGEST_TICK_S)
        return True

    def _is_in_one_folder(self) -> bool:
        """Whether the file, its journal, and all links by which these are found are in the same, of which the time of its last change can be
        told."""
        folder, step = _changed_at(self._folder), str(self._file)
        for _ in range(_MOST_LINKS):
            if folder is None or _changed_at(os.path.dirname(step)) != folder:  # noqa: PTH120 - as all that is asked of the system here
                return False
            if not os.path.islink(step):  # noqa: PTH114
                return os.name == "posix"
            step = os.path.join(os.path.dirname(step), os.readlink(step))  # noqa: PTH115, PTH118, PTH120
        return False

    def _are_there(self, opened: _Open) -> bool:
        before, now = opened.files, _files_at(self._names)
        if before == now:
            return True
        is_journal_left = before is not None and before[1] == now[1] is not None
        is_replaced = before is not None and before[0] != now[0] is not None
        # If another folder has the name now, the journal is where it belongs.
        if is_replaced and is_journal_left and self._names == self._all_names(str(self._file.resolve())):
            raise ValueError(f"it was replaced, and {self._names[1]} is of the one before: remove that")
        return False

    def _all_names(self, real: str) -> _Names:
        return str(self._file), f"{real}{_JOURNAL}", f"{real}{_INDEX}"

    def fail(self, error: BaseException, what: str) -> None:
        """Raise what has gone wrong with it, if that is an error of this kind of file."""
        kind = self.kind
        if isinstance(error, _FAILURES) and not isinstance(error, kind.error):
            is_locked = isinstance(error, sqlite3.Error) and "locked" in str(error)
            reason = "another process has kept it locked for too long" if is_locked else str(error)
            raise kind.error(f"the {kind.name} {self.path} cannot be {what}: {reason}") from error

    def snapshot(self) -> AbstractContextManager[sqlite3.Connection]:
        """The file as it is at one moment, to read more than once."""
        return self._transaction(self.reading, "begin deferred")

    def writing(self) -> AbstractContextManager[sqlite3.Connection]:
        """The file, to be written by nobody else meanwhile: whole, or with an error not at all."""
        return self._transaction(self._writing, "begin immediate")

    def write(self, carry_out: Callable[..., Result], *values: Any) -> Result:
        """Have something written as in `writing`: each put comes by here, and a generator costs more."""
        try:
            with self._lock:
                connection, opened = self.connection(is_to_be_there=True), self._open
                execute = connection.execute if opened is None else opened.cursor.execute
                execute("begin immediate")
                try:
                    result = carry_out(connection, *values)
                    execute("commit")
                except BaseException:
                    with suppress(sqlite3.Error):  # a commit that failed may have rolled back already
                        execute("rollback")
                    raise
                return result
        except BaseException as error:
            self.fail(error, "written")
            raise

    @contextmanager
    def noting(self) -> Iterator[sqlite3.Connection]:
        """As `writing`, for what need not survive a crash: the disk is not waited for."""
        with self._writing:
            connection = self.connection(is_to_be_there=True)
            connection.execute("pragma synchronous = normal")
            try:
                with self.writing():
                    yield connection
            finally:
                connection.execute(f"pragma synchronous = {self._synchronous}")

    @contextmanager
    def _transaction(self, access: "_Access", begin: str) -> Iterator[sqlite3.Connection]:
        with access:
            connection, opened = self.connection(is_to_be_there=True), self._open
            execute = connection.execute if opened is None else opened.cursor.execute
            execute(begin)
            try:
                yield connection
                execute("commit")
            except BaseException:
                with suppress(sqlite3.Error):  # a commit that failed may have rolled back already
                    execute("rollback")
                raise

    def _connect(self, *, is_made: bool) -> sqlite3.Connection:
        mode = "ro" if self._is_read_only else "rwc" if is_made else "rw"
        where = f"{self._file.as_uri()}?mode={mode}"
        connection = sqlite3.connect(
            where, timeout=self._busy_timeout_s, isolation_level=None, check_same_thread=False, uri=True
        )
        try:
            connection.execute(f"pragma cache_size = -{_CACHED_KIBIBYTES}")
            if not self._is_read_only:
                connection.execute(f"pragma page_size = {self.kind.page_size}")
                self._begin_journal(connection)
                (page_size,) = connection.execute("pragma page_size").fetchone()
                connection.execute(f"pragma wal_autocheckpoint = {CHECKPOINT_BYTES // page_size}")
                connection.execute(f"pragma synchronous = {self._synchronous}")
                if is_made:
                    self._make(connection)
            self._check(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _begin_journal(self, connection: sqlite3.Connection) -> None:
        """Have the file written ahead. Where another process is just about to do so, SQLite fails at once and does not wait."""
        until = time.monotonic() + self._busy_timeout_s
        while True:
            try:
                connection.execute("pragma journal_mode = wal")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
                time.sleep(_LOOK_AGAIN_S)

    def _make(self, connection: sqlite3.Connection) -> None:
        """Make the tables of a file that is empty, or to begin anew."""
        if not self._is_to_be_made(connection):
            return
        connection.execute("begin immediate")
        with connection:
            if self._is_to_be_made(connection):  # processes race for it, and another may have been first
                tables = connection.execute("select name from sqlite_master where type = 'table'").fetchall()
                for (table,) in tables:
                    connection.execute(f"drop table {table}")
                if tables:
                    _log.warning(
                        "the %s %s was of an older format and has started anew", self.kind.name, self.path
                    )
                for statement in self.kind.schema.split(";"):
                    connection.execute(statement)
                connection.execute(f"pragma application_id = {self.kind.application_id}")
                connection.execute(f"pragma user_version = {self.kind.format}")

    def _is_to_be_made(self, connection: sqlite3.Connection) -> bool:
        application_id, format, table_count = connection.execute(_SIGNS).fetchone()
        is_older = application_id == self.kind.application_id and 1 <= format < self.kind.format
        return (self.kind.begins_anew and is_older) or (application_id, table_count) == (0, 0)

    def _check(self, connection: sqlite3.Connection) -> None:
        kind = self.kind
        found_id, found_format, _ = connection.execute(_SIGNS).fetchone()
        if found_id != kind.application_id:
            raise kind.error(f"{self.path} is a database, but not a {kind.name}")
        if found_format != kind.format:
            raise kind.error(
                f"the {kind.name} {self.path} has format {found_format}; this version of shelflife reads {kind.format}"
            )


class _Access:
    """The lock of a file, under which what SQLite raises is an error of its kind. Each recall enters it, and a generator would cost more."""

    __slots__ = ("_file", "_what")

    def __init__(self, file: SqliteFile, what: str) -> None:
        self._file = file
        self._what = what

    def __enter__(self) -> None:
        self._file._lock.acquire()

    def __exit__(self, kind: object, error: BaseException | None, trace: Any) -> None:
        self._file._lock.release()
        if error is not None:
            self._file.fail(error, self._what)


def _end(connection: sqlite3.Connection, files: _Files | None, names: _Names, of: "ref[SqliteFile]") -> None:
    """Close a connection to what is there, or leave what is not. Whoever uses the file after that, as others do who end later, opens it anew."""
    file = of()
    is_held = file is not None and file._lock.acquire(timeout=_LONGEST_END_S)
    try:
        if file is not None and file._open is not None and file._open.connection is connection:
            file._open = None
        with suppress(sqlite3.Error):
            if files == _files_at(names):
                connection.close()
            else:
                _leave(connection, names[1])
    finally:
        if file is not None and is_held:
            file._lock.release()


def _leave(connection: sqlite3.Connection, journal: str) -> None:
    """Close what is not there any more, and leave alone what is.

    SQLite takes whoever closes a file last for the one to carry the journal over, and to delete it by its name. By the index of one
    that was deleted that would be done without what others have written since. So it is interrupted, and the journal has another name
    meanwhile, by which it is put back.
    """
    kept = f"{journal}-{os.getpid()}"
    with suppress(OSError):  # there is none
        os.link(journal, kept)
    connection.interrupt()
    connection.close()
    with suppress(OSError):  # it is still there
        os.link(kept, journal)
    with suppress(OSError):
        os.unlink(kept)  # noqa: PTH108 - as all that is asked of the system here


def _files_at(names: _Names) -> _Files:
    """The file that is there now, the journal, and its index: all stay for as long as anybody has them open."""
    file, journal, index = names
    return _identity(file), _identity(journal), _identity(index)


def _changed_at(folder: str) -> tuple[int, int, int] | None:
    """Tells a folder from another, and from itself after something in it was made, replaced or deleted. Nobody can set this time back."""
    try:
        status = os.stat(folder)  # noqa: PTH116 - as below
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns


def _left_of_tick_s(changed_ns: int) -> float:
    """For how long a later change may still be stamped with this time; less than nothing where it is over."""
    if sys.platform == "linux" and changed_ns % _HUNDREDTH_NS:
        with suppress(OSError):  # of what is only like Linux, and has no such clock
            return _TICK_S - (time.clock_gettime_ns(_STAMPING_CLOCK) - changed_ns) / 1e9
    return _LONGEST_TICK_S - (time.time_ns() - changed_ns) / 1e9


def _identity(path: str) -> tuple[int, int] | None:
    """Tells a file from another that is later in its place; None when there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - each recall does this, and a path would make it a fifth longer
    except OSError:
        return None
    return status.st_dev, status.st_ino
