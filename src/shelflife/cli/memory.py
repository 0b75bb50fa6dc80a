"""`shelflife memory`: look into a memory, and make it forget."""

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from shelflife.cli.errors import CommandError
from shelflife.cli.tables import print_table
from shelflife.client import Entry, Event, Memory, SqliteStore, StoreError
from shelflife.client.entries import is_below, origin_of
from shelflife.client.events import StoreFailed

__all__ = ["add_to"]

_SHORT_ID = 12
_LONGEST_CELL = 60


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "memory", help="look into a memory, and make it forget", description="Work with a memory file."
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    def verb(name: str, help: str, run: Callable[[argparse.Namespace], None]) -> argparse.ArgumentParser:
        one = verbs.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
        one.add_argument("file", help="the memory: a file, or its URL (sqlite:///memory.db)")
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
    _add_choice(verb("export", "write every fix as a line of JSON", _export))
    one = verb("forget", "drop fixes: all that match", _forget)
    _add_choice(one)
    one.add_argument("--id", help="only the one with this id, or those whose id begins so")
    one.add_argument("--all", action="store_true", help="really everything, when nothing else is said")


def _add_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--root",
        type=_root,
        help="only those of one server, or of one API below a path of it: https://api.example/v1",
    )
    parser.add_argument("--operation", help="only those for one operation, e.g. 'POST /subscriptions'")
    parser.add_argument("--type", help="only those of one type")


def _root(url: str) -> str:
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
            _printable(entry.root),
            _printable(entry.operation),
            _printable(entry.type),
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
            print(f"  {count:>8}  {_printable(name)}")


def _show(options: argparse.Namespace) -> None:
    with _opened(options.file, read_only=True) as store:
        found = [entry for entry in store.entries() if entry.id.startswith(options.id)]
    if len(found) != 1:
        raise CommandError(
            f"{len(found) or 'no'} remembered fixes have an id that begins with {options.id!r}"
        )
    [entry] = found
    if options.json:
        print(json.dumps(_as_json(entry)))
        return
    learned = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(entry.learned_at))
    for name, value in (_as_json(entry) | {"learned_at": learned}).items():
        print(f"{name:<11} {_printable(value) if isinstance(value, str) else json.dumps(value)}")


def _export(options: argparse.Namespace) -> None:
    with _reading(options) as entries:
        for entry in entries:
            print(json.dumps(_as_json(entry)))


def _forget(options: argparse.Namespace) -> None:
    if not (options.all or options.id or options.root or options.operation or options.type):
        raise CommandError("say what to forget with --id, --root, --operation or --type, or --all")
    with _opened(options.file, read_only=False) as store:
        events: list[Event] = []
        memory = Memory(store, on_event=events.append)
        roots = {entry.root for entry in store.entries() if _is_of(entry, options)}
        roots |= {options.root} if options.root else set()  # which may be known without any fix
        count = sum(
            memory.forget(root, options.operation, options.type, id=options.id) for root in sorted(roots)
        )
    for event in events:
        if isinstance(event, StoreFailed):
            raise CommandError(f"{event.why}; {count} forgotten")
    print(f"{count} forgotten")


@contextmanager
def _opened(file: str, *, read_only: bool) -> Iterator[SqliteStore]:
    scheme, separator, path = file.partition("://")
    if not separator:
        path = file
    elif scheme == "sqlite" and path.startswith("/") and len(path) > 1:
        path = unquote(path[1:])
    else:
        raise CommandError(f"{file!r} is not a memory; give a file, or sqlite:/// and its path")
    if not Path(path).is_file():
        raise CommandError(f"{path} is a folder" if Path(path).is_dir() else f"there is no file {path}")
    try:
        if not read_only:
            SqliteStore(path, read_only=True).close()  # a file that is not there is not to be made
        store = SqliteStore(path, read_only=read_only)
    except StoreError as error:
        raise CommandError(str(error)) from error
    try:
        yield store
    except StoreError as error:
        raise CommandError(str(error)) from error
    finally:
        store.close()


@contextmanager
def _reading(options: argparse.Namespace) -> Iterator[Iterable[Entry]]:
    with _opened(options.file, read_only=True) as store:
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


def _printable(text: str) -> str:
    """A text that came from a server, so that it cannot give orders to the terminal or reorder what is on it."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "…"
