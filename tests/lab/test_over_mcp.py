"""Runs over MCP: whatever is played comes out as it does over HTTP."""

import json

import msgspec
import pytest

from shelflife.cli import main
from shelflife.lab.arms import ARMS
from shelflife.lab.spec import PLAIN, Conduct
from tests.lab.played_runs import attempts_of, played, recorded

OVER_MCP = Conduct(over="mcp")
FIGURES = (
    "completed first_try_episodes retries mended stale_injections stale_executions misapplied evictions"
    " eviction_precision restamps compliance"
).split()


def figures(*how, **more):
    score = played(*how, **more)
    return {name: getattr(score, name) for name in FIGURES} | {"tokens": score.tokens.total}


def told(*how, **more):
    """What was asked of the server, and what it said."""
    return [
        (one.status, json.loads(one.request), json.loads(one.answer))
        for one in attempts_of(recorded(*how, **more))
    ]


@pytest.mark.parametrize(
    ("stream", "arm"),
    [
        *(("drifted", arm) for arm in ("A0", "A1", "A2", "A2D", "exact")),
        *(("rules", arm) for arm in ARMS if arm.startswith("A2D")),
    ],
)
def test_the_ladder_is_the_same_over_mcp(stream, arm):
    assert figures(stream, arm, OVER_MCP) == figures(stream, arm)


@pytest.mark.parametrize("stream", ["drifted", "recipes"])
def test_a_server_is_asked_and_says_the_same_over_mcp(stream):
    assert told(stream, "A2D", OVER_MCP) == told(stream, "A2D")


@pytest.mark.parametrize(
    "conduct",
    [
        Conduct(precondition=True),
        Conduct(form="compact", precondition=True),
        Conduct(fresh="check"),
        Conduct(trust=True, fresh="check"),
        Conduct(disclose="aliases"),
        Conduct(agents=2),
    ],
    ids=lambda conduct: " ".join(conduct.words),
)
def test_so_is_what_goes_beyond_the_paper(conduct):
    over = msgspec.structs.replace(conduct, over="mcp")
    assert figures("drifted", "exact", over, consume="apply") == figures(
        "drifted", "exact", conduct, consume="apply"
    )


@pytest.mark.parametrize("level", [0, 1, 4])
def test_so_is_each_level(level):
    assert figures("drifted", "A2D", OVER_MCP, level=level) == figures("drifted", "A2D", PLAIN, level=level)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("organic-zones", "the stream organic-zones, whose API is no MCP server, is played over HTTP"),
        ("bumping", "the stream bumping, on which the server bumps, is played over HTTP: leave --over out"),
        ("drifted --workers 2", "--workers is played over HTTP: leave --over out"),
        ("drifted --fresh feed", "--fresh feed is played over HTTP: leave --over out"),
    ],
)
def test_what_is_played_over_http_alone_is_refused_in_one_sentence(arguments, told, capsys):
    assert main(f"lab run {arguments} --arm A2D --over mcp".split()) == 1
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
