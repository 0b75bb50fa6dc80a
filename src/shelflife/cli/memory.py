"""`shelflife memory`: look into a memory, and make it forget."""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from shelflife.cli.errors import CommandError
from shelflife.cli.memory_report import report_page
from shelflife.cli.memory_top import show_top
from shelflife.cli.tables import counted, print_table, printable
from shelflife.cli.worth import Looking
from shelflife.client import Entry, Event, Knowledge, Memory, SqliteStore, Store, StoreError
from shelflife.client.entries import Vouched, is_below, origin_of
from shelflife.client.events import StoreFailed
from shelflife.client.opening import Closeable, is_file, store_at
from shelflife.client.remote import RemoteStore
from shelflife.client.strategies import EVERYTHING
from shelflife.sqlite_files import SqliteFile

__all__ = ["add_to", "opened", "root_in"]

_SHORT_ID = 12
_LONGEST_CELL = 60


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "memory",
        help="look into a memory, and make it forget",
        description="Work with a memory: a file, or one in PostgreSQL or Valkey.",
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    def verb(name: str, help: str, run: Callable[[argparse.Namespace], None]) -> argparse.ArgumentParser:
        one = verbs.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
        one.add_argument(
            "memory",
            help="where it lives: a file, sqlite:///memory.db, postgresql://host/db or redis://host/0",
        )
        one.add_argument("--namespace", help="which of those that share an engine; default by default")
        one.set_defaults(run=run)
        return one

    for name, help, run in (
        ("list", "list the remembered fixes", _list),
        ("stats", "count what is remembered", _stats),
    ):
        one = verb(name, help, run)
        _add_choice(one)
        one.add_argument("--json", action="store_true", help="for programs")
    one = verb("show", "show one fix and what it rests on", _show)
    one.add_argument("id", help="its id, or the beginning of it")
    one.add_argument("--json", action="store_true", help="for programs")
    one = verb("why", "say of each remembered fix why it is used for a request, or is not", _why)
    one.add_argument("root", type=root_in, help="the server, as https://api.example")
    one.add_argument("request", help="""the request, as 'POST /orders {"plan": "basic"}'""")
    one.add_argument(
        "--body", help="a file with the fields of the request, in place of those above; - for the input"
    )
    one.add_argument("--json", action="store_true", help="for programs")
    one = verb("top", "watch what it holds and does, until Ctrl-C", _top)
    one.add_argument("--json", action="store_true", help="for programs: once, as it is now")
    one = verb("report", "write one page of HTML on what it was worth over time", _report)
    one.add_argument(
        "--out", type=Path, default=Path("memory-report.html"), help="the file; memory-report.html by default"
    )
    _add_choice(verb("export", "write every fix as a line of JSON", _export))
    one = verb("forget", "drop fixes: all that match", _forget)
    _add_choice(one)
    one.add_argument("--id", help="only the one with this id, or those whose id begins so")
    one.add_argument("--all", action="store_true", help="really everything, when nothing else is said")


def _add_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--root",
        type=root_in,
        help="only those of one server, or of one API below a path of it: https://api.example/v1",
    )
    parser.add_argument("--operation", help="only those for one operation, e.g. 'POST /subscriptions'")
    parser.add_argument("--type", help="only those of one type")


def root_in(url: str) -> str:
    """A root as a memory spells it."""
    try:
        return origin_of(url) + urlsplit(url).path.rstrip("/")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _is_of(entry: Entry, options: argparse.Namespace) -> bool:
    return options.root is None or is_below(entry.root, options.root)


def _list(options: argparse.Namespace) -> None:
    with _reading(options) as entries:
        chosen = list(entries)
    if options.json:
        print(json.dumps([_as_json(entry) for entry in chosen]))
        return
    rows = [
        (
            entry.id[:_SHORT_ID],
            printable(entry.root),
            printable(entry.operation),
            printable(entry.type),
            _short(entry.parameters),
            _short(entry.condition.when),
            "suspect" if entry.is_suspect else "",
        )
        for entry in chosen
    ]
    print_table(("id", "root", "operation", "type", "sets", "when", ""), rows)
    print(f"{len(rows)} remembered")


def _stats(options: argparse.Namespace) -> None:
    with _reading(options) as entries:
        chosen = list(entries)
    counts = {
        "entries": len(chosen),
        "roots": dict(Counter(entry.root for entry in chosen)),
        "operations": dict(Counter(entry.operation for entry in chosen)),
        "types": dict(Counter(entry.type for entry in chosen)),
        "tables": dict(Counter(table for entry in chosen for table in entry.grounds.tables)),
    }
    if options.json:
        print(json.dumps(counts))
        return
    print(f"{len(chosen)} remembered")
    for what in ("roots", "operations", "types", "tables"):
        print(f"\nby {what.removesuffix('s')}")
        for name, count in sorted(counts[what].items()):  # type: ignore[attr-defined]
            print(f"  {count:>8}  {printable(name)}")


def _show(options: argparse.Namespace) -> None:
    with opened(options, read_only=True) as store:
        found = [entry for entry in store.entries() if entry.id.startswith(options.id)]
    if len(found) != 1:
        raise CommandError(
            f"{len(found) or 'no'} remembered fixes have an id that begins with {options.id!r}"
        )
    [entry] = found
    if options.json:
        print(json.dumps(_as_json(entry)))
        return
    learned = _told(entry.learned_at, "%Y-%m-%d %H:%M:%S %Z", time.localtime)
    for name, value in (_as_json(entry) | {"learned_at": learned}).items():
        print(f"{name:<11} {printable(value) if isinstance(value, str) else json.dumps(value)}")


def _told(at: float, form: str, parts_of: Callable[[float], time.struct_time]) -> str:
    """A time as people write it; as it is where no calendar has it, because somebody has edited it."""
    try:
        return time.strftime(form, parts_of(at))
    except (OSError, OverflowError, ValueError):  # which of them depends on the system
        return f"{at} seconds from 1970 on"


def _as_filed(store: Store, root: str, operation: str) -> str:
    """An operation below a path of its server: transports file it by the whole path, and its server knows the rest."""
    method, _, path = operation.partition(" ")
    whole = f"{method} {urlsplit(root).path}{path}"
    filed = {entry.operation for entry in store.entries() if entry.root == root}
    return whole if operation not in filed and whole in filed else operation


def _why(options: argparse.Namespace) -> None:
    operation, request = _request(options)
    with opened(options, read_only=True) as store:
        memory = Memory(store)
        _, _, path = operation.partition(" ")
        root = options.root if urlsplit(options.root).path else memory.root_of(options.root + path)
        operation = _as_filed(store, root, operation)
        found = memory.why(root, operation, request)
        known = _known(store.known(root).knowledge)
        roots = Counter(entry.root for entry in store.entries())
    of_it = [one for one in found if one.entry.operation == operation]
    of_it.sort(key=lambda one: one.why_not is not None)  # those that are used first
    if options.json:
        fixes = [
            {**_as_json(one.entry), "is_used": one.why_not is None, "why_not": one.why_not} for one in found
        ]
        print(
            json.dumps(
                {"root": root, "operation": operation, "request": request, "known": known, "fixes": fixes}
            )
        )
        return
    used_count = sum(one.why_not is None for one in of_it)
    if of_it:
        print(f"{used_count} of {len(of_it)} remembered for {printable(operation)} would be used now.")
    else:
        print(f"Nothing is remembered for {printable(operation)}.")
    print(f"Of {printable(root)} {known}.")
    for one in of_it:
        becomes = "used" if one.why_not is None else "not used"
        print(
            f"\n{one.entry.id[:_SHORT_ID]}  {printable(one.entry.type)} sets {_short(one.entry.parameters)}: {becomes}"
        )
        if one.why_not is not None:
            print(f"  {printable(one.why_not)}")
    if not of_it:
        _print_elsewhere("operation", "of this server", Counter(one.entry.operation for one in found))
        _print_elsewhere("server", "in this memory", roots - Counter({root: roots[root]}))
    print(
        "\nThis is with the default guard. Keys that an agent has pinned, and what it doubts by itself, are not in it."
    )


def _print_elsewhere(what: str, where: str, counts: Mapping[str, int]) -> None:
    if counts:
        print(f"\nThere is something for another {what} {where}:")
        for name, count in sorted(counts.items()):
            print(f"  {count:>8}  {printable(name)}")


def _known(knowledge: Knowledge) -> str:
    """What is known of a server, as the rest of a sentence."""
    if knowledge.place.at is not None:
        return f"the position {knowledge.place.at} is known{_vouched(knowledge.vouched)}"
    if knowledge.versions.tables:
        return (
            f"the versions of {counted(len(knowledge.versions.tables), 'table')} are known, and no position"
        )
    return "nothing is known: no reply with a contract was seen, or all was forgotten"


def _vouched(vouched: Vouched | None) -> str:
    if vouched is None:
        return ""
    until = _told(vouched.expires_at, "%Y-%m-%d %H:%M:%S UTC", time.gmtime)
    is_over = vouched.expires_at <= time.time()
    return f"; a key has vouched for it until {until}{', and counts no longer' if is_over else ''}"


def _request(options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """The operation, and the fields: those after it, or those in a file."""
    operation, brace, rest = options.request.partition(" {")
    body = brace.strip() + rest
    _, _, fields = operation.strip().partition(" ")[2].partition(" ")
    if "=" in fields:
        raise CommandError(
            f"""the fields of a request are a JSON object, as in 'POST /orders {{"plan": "basic"}}', and not {fields}"""
        )
    if options.request.lstrip().startswith(("{", "[")):
        raise CommandError("""an operation comes before the fields, as in 'POST /orders {"plan": "basic"}'""")
    if options.body is not None:
        if body:
            raise CommandError(
                "the fields of the request are given twice: after the operation, and with --body"
            )
        try:
            body = sys.stdin.read() if options.body == "-" else Path(options.body).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{options.body} cannot be read: {error}") from error
    try:
        return operation.strip(), msgspec.json.decode(body or "{}", type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CommandError(f"the fields of the request are no JSON object: {error}") from error


def _top(options: argparse.Namespace) -> None:
    with opened(options, read_only=True) as store:
        show_top(Looking(store), _name_of(store, options), is_json=options.json)


def _report(options: argparse.Namespace) -> None:
    with opened(options, read_only=True) as store:
        page = report_page(Looking(store)(), _name_of(store, options), time.time())
    try:
        options.out.write_text(page, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{options.out} cannot be written: {error.strerror}") from error
    print(f"Wrote {options.out}")


def _name_of(store: Store, options: argparse.Namespace) -> str:
    """Where the memory is, as it may be shown: an address may have a password in it."""
    return store.where if isinstance(store, RemoteStore) else options.memory


def _export(options: argparse.Namespace) -> None:
    with _reading(options) as entries:
        for entry in entries:
            print(json.dumps(_as_json(entry)))


def _forget(options: argparse.Namespace) -> None:
    if not (options.all or options.id or options.root or options.operation or options.type):
        raise CommandError("say what to forget with --id, --root, --operation or --type, or --all")
    events: list[Event] = []
    with opened(options, read_only=False) as store:
        roots = [root for root in store.roots() if options.root is None or is_below(root, options.root)]
        for root in roots:  # what cannot be read is told before anything is forgotten, or noted in the diary
            store.known(root)
            store.tagged(root, *EVERYTHING)
        with closing(Memory(store, on_event=events.append)) as memory:
            count = sum(memory.forget(root, options.operation, options.type, id=options.id) for root in roots)
    for event in events:
        if isinstance(event, StoreFailed):
            raise CommandError(f"{event.why}; {count} forgotten")
    print(f"{count} forgotten")


@contextmanager
def opened(options: argparse.Namespace, *, read_only: bool) -> Iterator[Store]:
    """The memory that the options name. One that cannot be read is told in one sentence."""
    try:
        path = is_file(options.memory)
        if path is not None and not Path(path).is_file():
            raise CommandError(f"{path} is a folder" if Path(path).is_dir() else f"there is no file {path}")
        if path is not None:
            SqliteStore(path, read_only=True).close()  # one that is not a memory is not to be touched
        store = store_at(options.memory, namespace=options.namespace, read_only=read_only)
    except StoreError as error:
        raise CommandError(f"{error}{_what_it_is(options.memory)}") from error
    except (ValueError, ModuleNotFoundError) as error:  # of which the last names the extra
        raise CommandError(str(error)) from error
    try:
        yield store
    except StoreError as error:
        raise CommandError(str(error)) from error
    finally:
        if isinstance(store, Closeable):
            store.close()


def _what_it_is(where: str) -> str:
    """What a file is that is no memory, as the end of a sentence, if that can be told."""
    path = is_file(where)
    if path is None or not Path(path).is_file():
        return ""
    try:
        from shelflife.server.sql_log import KIND
    except ModuleNotFoundError:  # where no server is installed
        return ""
    log = SqliteFile(path, KIND, busy_timeout_s=1.0, durable=False, read_only=True)
    try:
        log.open()
    except KIND.error:
        return ""
    finally:
        log.close()
    return ": it is the log of a server, for shelflife log and shelflife forecast"


@contextmanager
def _reading(options: argparse.Namespace) -> Iterator[Iterable[Entry]]:
    with opened(options, read_only=True) as store:
        yield (
            entry
            for entry in store.entries()
            if _is_of(entry, options)
            and options.operation in (None, entry.operation)
            and options.type in (None, entry.type)
        )


def _as_json(entry: Entry) -> dict[str, Any]:
    """An entry, with all that it rests on and holds for in one row of members."""
    members: dict[str, Any] = msgspec.to_builtins(entry)
    root, condition, grounds = (members.pop(name) for name in ("root", "condition", "grounds"))
    return {"id": entry.id, "root": root, **members, **condition, **grounds, "rows": entry.grounds.rows}


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "…"
