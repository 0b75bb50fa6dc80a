"""`shelflife log`: what an operator does with the log of a server."""

import argparse
from contextlib import closing
from pathlib import Path

from shelflife.cli.errors import CommandError, needing

__all__ = ["add_to"]


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "log", help="work with the log of a server", description="Work with the log of Provider(log=...)."
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    renew = verbs.add_parser(
        "renew",
        help="make a copy that was put back another log",
        description="Give a log another name. Do it when you have put back a copy, before servers run on it: nothing that was"
        " said of the log since the copy was made is then taken for news. Clients ask about what they remember, and lose nothing"
        " that is still true.",
    )
    renew.add_argument(
        "log", metavar="LOG", help="the file, or a URL as in postgresql://user@host/database?schema=shop"
    )
    renew.set_defaults(run=_renew)


def _renew(options: argparse.Namespace) -> None:
    with needing("server"):
        from shelflife.server import LogError
        from shelflife.server.logs import is_file, log_at
    try:
        path = is_file(options.log)
        if path is not None and not Path(path).exists():
            raise CommandError(f"there is no file {path}")
        with needing("postgres"), closing(log_at(options.log)) as log:
            log.renew()
    except LogError as error:
        raise CommandError(str(error)) from None
    print(f"{log.name} is another log now.")
