"""The command line, from its parser."""

import argparse
import re
from collections.abc import Iterator

from shelflife.cli import command_parser

__all__ = ["commands"]


def commands(_: str) -> str:
    """A section for each command, and one below that for each of its own."""
    return "\n".join(_sections(command_parser(), 1))


def _sections(parser: argparse.ArgumentParser, depth: int) -> Iterator[str]:
    if depth > 1:
        yield f"{'#' * depth} {parser.prog}\n"
        yield f"{parser.description or ''}\n"
        yield f"```text\n{_usage(parser)}\n```\n"
    options = [action for action in parser._actions if not isinstance(action, argparse._SubParsersAction)]
    shown = [action for action in options if action.help != argparse.SUPPRESS and action.dest != "help"]
    if shown:
        yield "| argument | |\n| --- | --- |"
        yield "".join(f"| {_spelled(action)} | {_cell(_help(parser, action))} |\n" for action in shown)
    if parser.epilog and depth > 1:
        yield f"{parser.epilog}\n"
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in dict.fromkeys(action.choices.values()):
                yield from _sections(one, depth + 1)


def _usage(parser: argparse.ArgumentParser) -> str:
    return parser.format_usage().removeprefix("usage: ").strip()


def _spelled(action: argparse.Action) -> str:
    """How it is written, with what follows it."""
    formatter = argparse.HelpFormatter("")
    if not action.option_strings:
        return f"`{formatter._format_args(action, action.dest)}`"
    value = formatter._format_args(action, action.dest.upper()) if action.nargs != 0 else ""
    return ", ".join(f"`{name} {value}`" if value else f"`{name}`" for name in action.option_strings)


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """As `--help` has it, without the defaults that are none."""
    told = parser._get_formatter()._expand_help(action) if action.help else ""
    return re.sub(r" \(default: (?:None|False)\)$", "", told)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("\n", " ")
