"""Worlds in which clients of a known kind work: a policy each, what is wanted of it, and how the fix gets into a request."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shelflife.contract.merging import merged
from shelflife.server import fix

Fields = dict[str, Any]
_FIRST = "keeps its first value"


@dataclass(frozen=True, kw_only=True)
class World:
    """A table `t`, a policy that reads it, and subjects that rest on its rows."""

    row: Callable[[int, int], Fields]
    """What a row holds, by its number and how often it has changed."""

    policy: Callable[..., Any]
    wanted: Callable[[int, int], Fields]
    """What a user wants, by the subject and the number of the task: never what passes."""

    merge: Callable[[Fields, Fields], Fields] = merged
    said: Callable[[Fields], Fields] = lambda told: told
    """How the client's language writes what it was told."""

    key: Callable[[int], str] = "r{}".format
    row_of: Callable[[int], int] = lambda subject: subject
    """The row that a subject rests on."""

    subjects: int = 4
    hides: tuple[str, ...] = ()
    """The kinds of clients that no server could tell here, for nothing that they do is refused, or all of it looks like another kind."""


def _by_equals(request, tables):
    code = tables.t[request["plan"]]["v"]
    return None if request.equals("code", code) else fix("USE", code=code)


def _by_get(request, tables):
    code = tables.t[request["plan"]]["v"]
    return fix("USE", code=code) if request.get("code") != code else None


def _renamed(request, tables):
    row = tables.t.get(request["plan"])
    return fix("RENAMED", plan=row["v"]) if row else None


def _rounded(request, tables):
    step = tables.t[request["plan"]]["v"]
    over = request["amount"] % step
    return fix("ROUND", amount=request["amount"] + step - over) if over else None


def _nested(request, tables):
    method, pay = tables.t[request["plan"]]["v"], request.get("pay")
    if pay is None or pay.get("method") != method:
        return fix("PAY", pay={"method": method})
    return None


def _listed(request, tables):
    tag = tables.t[request["plan"]]["v"]
    return None if tag in request.get("tags", []) else fix("TAG", tags=[tag])


def _by_region(request, tables):
    code = tables.t[request["customer"]["region"]]["v"]
    return None if request.equals("code", code) else fix("USE", code=code)


def _row(number, change):
    return {"v": f"v{number}-{change}"}


def _plan(subject, _task):
    return {"plan": f"r{subject}"}


def _with_own_tags(target, patch):
    return {**target, "tags": [*target.get("tags", []), *patch["tags"]]}


WORLDS = {
    "a field is missing": World(row=_row, policy=_by_equals, wanted=_plan),
    "a field is missing, and read": World(row=_row, policy=_by_get, wanted=_plan),
    "another wrong value each time": World(
        row=_row, policy=_by_equals, wanted=lambda i, n: {"plan": f"r{i}", "code": f"wrong {n}"}
    ),
    "one wrong value for each subject, and read": World(
        row=_row, policy=_by_get, wanted=lambda i, _: {"plan": f"r{i}", "code": f"wrong {i}"}
    ),
    "another wrong value each time, and read": World(
        row=_row,
        policy=_by_get,
        wanted=lambda i, n: {"plan": f"r{i}", "code": f"wrong {n}"},
        hides=("has no memory", "forgets all"),
    ),
    "renames": World(row=_row, policy=_renamed, wanted=_plan, subjects=6, hides=(_FIRST,)),
    "renames, two to one": World(
        row=lambda number, change: _row(number // 2, change),
        policy=_renamed,
        wanted=_plan,
        subjects=6,
        hides=(_FIRST,),
    ),
    "amounts are rounded up": World(
        row=lambda number, change: {"v": (5, 7)[(number + change) % 2]},
        policy=_rounded,
        wanted=lambda i, _: {"plan": f"r{i // 3}", "amount": 1011 + 1000 * (i % 3)},
        row_of=lambda subject: subject // 3,
        subjects=6,
        hides=(_FIRST,),
    ),
    "amounts are rounded up, some to the same": World(
        row=lambda number, change: {"v": (5, 7)[(number + change) % 2]},
        policy=_rounded,
        wanted=lambda i, _: {"plan": f"r{i // 3}", "amount": 11 + i % 3},
        merge=lambda target, patch: {**target, **patch},
        row_of=lambda subject: subject // 3,
        subjects=6,
        hides=(_FIRST, "overwrites"),
    ),
    "an object beside members that differ": World(
        row=_row, policy=_nested, wanted=lambda i, n: {"plan": f"r{i}", "pay": {"note": n}}
    ),
    "an object that is missing": World(row=_row, policy=_nested, wanted=_plan),
    "a list in place of another": World(
        row=_row, policy=_listed, wanted=lambda i, _: {"plan": f"r{i}", "tags": ["own", f"own {i}"]}
    ),
    "a member of a list": World(
        row=_row,
        policy=_listed,
        wanted=lambda i, _: {"plan": f"r{i}", "tags": [f"own {i}"]},
        merge=_with_own_tags,
    ),
    "whole numbers for others": World(
        row=lambda number, change: {"v": 100.0 + 10 * number + change},
        policy=_by_get,
        wanted=_plan,
        said=lambda told: {name: int(value) for name, value in told.items()},
    ),
    "a member of an object is read, beside others": World(
        row=_row,
        policy=_by_region,
        wanted=lambda i, n: {"customer": {"region": f"r{i}", "name": f"customer {n}"}},
    ),
}
