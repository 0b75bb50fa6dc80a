"""`shelflife key`: the keys that sign states."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from shelflife.cli.errors import CommandError, needing

if TYPE_CHECKING:
    from shelflife.integrations.ed25519 import SigningKey

__all__ = ["add_to"]


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "key",
        help="make and look at keys that sign states",
        description="Keys with which a server vouches for its states, and which its clients pin.",
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    new = verbs.add_parser("new", help="draw a key", description="Draw a key, and print what clients pin.")
    new.add_argument("file", type=Path, metavar="FILE", help="where to write it; must not be there yet")
    new.set_defaults(run=_new)

    show = verbs.add_parser("show", help="print what clients pin", description="Print the public key.")
    show.add_argument("file", type=Path, metavar="FILE", help="the file with the key")
    show.set_defaults(run=_show)

    endorse = verbs.add_parser(
        "endorse",
        help="let a new key take the place of an old one",
        description="Print an endorsement of the new key by the old one. Given to the server with the new key, clients that"
        " have pinned the old key follow, and then accept nothing from the old one.",
    )
    endorse.add_argument("old", type=Path, metavar="OLD", help="the file with the key that goes")
    endorse.add_argument("new", type=Path, metavar="NEW", help="the file with the key that comes")
    endorse.set_defaults(run=_endorse)


def _new(options: argparse.Namespace) -> None:
    with _signing_keys() as signing_key:
        key = signing_key.new()
        key.write(options.file)
    print(key.key)


def _show(options: argparse.Namespace) -> None:
    with _signing_keys() as signing_key:
        print(signing_key.from_file(options.file).key)


def _endorse(options: argparse.Namespace) -> None:
    with _signing_keys() as signing_key:
        new = signing_key.from_file(options.new).key
        endorsement = signing_key.from_file(options.old).endorse(new)
    print(msgspec.json.encode(endorsement).decode())


@contextmanager
def _signing_keys() -> "Iterator[type[SigningKey]]":
    with needing("signed"):
        from shelflife.integrations.ed25519 import KeyFileError, SigningKey
    try:
        yield SigningKey
    except KeyFileError as error:
        raise CommandError(str(error)) from error
