"""The command line. Errors are one sentence and an exit status that is not 0."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress

from shelflife import __version__
from shelflife.cli import demo, forecast, key, lab, log, memory, proxy, serve, table
from shelflife.cli.errors import CommandError

__all__ = ["command_parser", "main"]


def command_parser() -> argparse.ArgumentParser:
    """What reads the arguments of `shelflife`."""
    parser = argparse.ArgumentParser(
        prog="shelflife", description="Every fix an API hands to an agent carries its shelf life."
    )
    parser.add_argument("--version", action="version", version=f"shelflife {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    demo.add_to(commands)
    serve.add_to(commands)
    proxy.add_to(commands)
    memory.add_to(commands)
    forecast.add_to(commands)
    key.add_to(commands)
    log.add_to(commands)
    table.add_to(commands)
    lab.add_to(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status is what is returned."""
    options = command_parser().parse_args(arguments)
    try:
        options.run(options)
        sys.stdout.flush()
    except CommandError as error:
        print(f"shelflife: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except OSError as error:  # the disk is full, or the terminal is gone
        print(f"shelflife: {error}", file=sys.stderr)
        with suppress(OSError):
            sys.stdout.close()
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
