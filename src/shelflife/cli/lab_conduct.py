"""How agents and server of a run have agreed to go about it, as flags of `shelflife lab run`."""

import argparse
import math
from typing import get_args

from shelflife.lab.spec import (
    ADDRESSES,
    PLAIN,
    Disclose,
    Form,
    Fresh,
    Guarding,
    LogKind,
    Match,
    Over,
    Reads,
    StoreKind,
)

__all__ = ["add_conduct", "add_defences", "positive"]


def add_conduct(parser: argparse.ArgumentParser) -> None:
    """How agents and server go about it."""
    parser.add_argument(
        "--wire",
        dest="form",
        choices=get_args(Form),
        default=PLAIN.form,
        help="the form of the contract: in every response, or only what the client does not know yet",
    )
    parser.add_argument(
        "--fresh",
        choices=get_args(Fresh),
        default=PLAIN.fresh,
        help="how the memory hears of drift before it fails: not, by asking before each episode, by the change feed, by asking before"
        " each use, or only where a change may be due: after a tenth of the time that has passed (heuristic), or by a forecast",
    )
    parser.add_argument(
        "--stale-costs",
        type=_costs,
        default=PLAIN.stale_costs,
        metavar="N",
        help="how many questions a stale use is worth to --fresh forecast",
    )
    parser.add_argument(
        "--precondition",
        action="store_true",
        help="requests that carry remembered values are refused when these have gone stale, and are mended",
    )
    parser.add_argument(
        "--agents",
        type=positive,
        default=PLAIN.agents,
        metavar="N",
        help="so many play each episode in turn, over one memory",
    )
    parser.add_argument(
        "--workers",
        type=positive,
        default=PLAIN.workers,
        metavar="N",
        help="the server has so many processes over one log; each request comes to any of them",
    )
    parser.add_argument(
        "--log",
        choices=get_args(LogKind),
        default=PLAIN.log,
        help=f"where these processes keep it; the address of PostgreSQL is in ${ADDRESSES['postgres']}",
    )
    parser.add_argument(
        "--store",
        choices=get_args(StoreKind),
        default=PLAIN.store,
        help="where the agents keep their memory: locally (in process, several in a file), or in an engine; that of"
        f" Valkey is in ${ADDRESSES['valkey']}",
    )
    parser.add_argument(
        "--match",
        choices=get_args(Match),
        default=PLAIN.match,
        help="at --level 1 or 4, with the paper's members alone, no fix says what it is for: which requests it is taken to be for",
    )
    parser.add_argument(
        "--reads",
        choices=get_args(Reads),
        default=PLAIN.reads,
        help="what a planner reads of an answer: all of it, or what it needs, without what only the memory reads",
    )
    parser.add_argument(
        "--over",
        choices=get_args(Over),
        default=PLAIN.over,
        help="what agents and server speak: HTTP, or MCP, where a request is the call of a tool",
    )


def add_defences(parser: argparse.ArgumentParser) -> None:
    """What agents and server do against those who mean them harm."""
    parser.add_argument(
        "--guard",
        choices=get_args(Guarding),
        default=PLAIN.guard,
        help="what remembered fixes may set: all but credentials and addresses, also nothing about money,"
        " or the fields of the stream alone",
    )
    parser.add_argument(
        "--bound",
        type=positive,
        metavar="N",
        help="evict so many entries an hour; the others are suspect, and the server is asked before they are used",
    )
    parser.add_argument(
        "--trust",
        action="store_true",
        help="the server signs its states for ten episodes at a time, and the memory believes nothing else",
    )
    parser.add_argument(
        "--disclose",
        choices=get_args(Disclose),
        default=PLAIN.disclose,
        help="what the server shows of its tables: names and keys, aliases, or aliases and no diffs",
    )


def _costs(text: str) -> float:
    try:
        costs = float(text)
    except ValueError:
        costs = 0.0
    if not 0 < costs < math.inf:
        raise argparse.ArgumentTypeError("must be a number above 0")
    return costs


def positive(text: str) -> int:
    """A whole number from 1 on, as an option has it."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError("must be a whole number, 1 at least")
    return int(text)
