"""`shelflife demo`: the story of one fix on the real Acme server, then the evaluation, the paper's numbers beside ours."""

import argparse
import json
import os
import secrets
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from shelflife.cli.errors import needing

__all__ = ["add_to"]

_WANTED = {
    "customer": "cus_ada",
    "plan": "plan_partner_growth",
    "amount": 12000,
    "currency": "usd",
    "payment_method_token": "acme_pm_visa_credit",
}

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Loopback needs no proxy, whatever the environment says."""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "demo",
        help="the story of one fix, then the paper's evaluation beside ours",
        description="Play the story of one fix on a real server, then whole streams on both APIs, and write a report.",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("shelflife-demo"), metavar="DIR", help="where the report goes"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Tell it."""
    with needing("lab"):
        from shelflife.apis.acme import ROTATED_CODES, acme_app, acme_provider
        from shelflife.cli.demo_ladder import make_room_for_the_report, show_the_ladder
        from shelflife.testing import serving
    make_room_for_the_report(options.out)
    token = secrets.token_urlsafe()
    provider = acme_provider(admin_token=token)
    with serving(acme_app(provider)) as address:
        _Story(address, token).tell(ROTATED_CODES)
    show_the_ladder(options.out)


class _Story:
    def __init__(self, address: str, token: str) -> None:
        self._address = address
        self._token = token
        self._is_colored = sys.stdout.isatty() and "NO_COLOR" not in os.environ

    def tell(self, rotated_codes: dict[str, Any]) -> None:
        self._title(f"Acme billing is running at {self._address}")

        self._chapter("An agent asks for a subscription, and is refused")
        refused = self._call("POST /subscriptions", _WANTED)
        suggestion = refused["recovery_feedback"]["suggestions"][0]
        self._say(
            "The answer is a typed fix, and says what the fix rests on:",
            ("type", suggestion["type"]),
            ("merge", suggestion["parameters"]),
            ("holds when", suggestion["when"]),
            ("unless", suggestion["unless"]),
            ("rests on", ", ".join(suggestion["rows"])),
        )

        self._chapter("It merges the fix and asks again")
        made = self._call("POST /subscriptions", {**_WANTED, **suggestion["parameters"]})
        self._say("", ("made", made["subscription"]["id"]), ("stamps", _moved(made, suggestion)))

        self._chapter("Acme's account team rotates the code")
        report = self._call(
            "POST /admin/reload-table", {"table": "active_csm_codes", "set": rotated_codes}, is_admin=True
        )
        self._say(
            "The server knows exactly what changed, and what lies downstream of it:",
            ("version", f"{report['old_version']} -> {report['new_version']}"),
            ("changed", ", ".join(report["changed"])),
            ("downstream", ", ".join(report["affected_downstream"])),
        )

        self._chapter("The agent uses the fix it has kept, and the stamp tells that it is stale")
        stale = self._call("POST /subscriptions", {**_WANTED, **suggestion["parameters"]})
        fresh = stale["recovery_feedback"]["suggestions"][0]
        self._say("", ("stamps", _moved(stale, suggestion)))

        self._chapter("It asks what changed since the version it holds")
        held = next(
            dependency["version"]
            for dependency in suggestion["tables"]
            if dependency["table"] == "active_csm_codes"
        )
        changes = self._call(f"GET /contract/changes?since=active_csm_codes:{held}")
        changed = changes["tables"]["active_csm_codes"]["changed"]
        self._say(
            "One row went stale. Everything else the agent remembers stays good:",
            ("forget", ", ".join(f"active_csm_codes:{key}" for key in changed)),
            ("keep", "all fixes that do not rest on it"),
            ("learn", fresh["parameters"]),
        )
        made = self._call("POST /subscriptions", {**_WANTED, **fresh["parameters"]})
        self._say("", ("made", made["subscription"]["id"]))
        self._title("A fix was kept exactly as long as it was true.")

    def _call(self, what: str, body: Any = None, *, is_admin: bool = False) -> Any:
        method, path = what.split(" ")
        request = urllib.request.Request(  # noqa: S310
            self._address + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"}
            | ({"Authorization": f"Bearer {self._token}"} if is_admin else {}),
        )
        try:
            with _DIRECT.open(request) as response:
                status, answer = response.status, json.load(response)
        except urllib.error.HTTPError as error:
            status, answer = error.code, json.load(error)
        color = "32" if status < 400 else "31"
        print(f"  {self._colored('1', what)}  {self._colored(color, str(status))}")
        return answer

    def _title(self, text: str) -> None:
        print(f"\n{self._colored('1', text)}")

    def _chapter(self, text: str) -> None:
        print(f"\n{self._colored('36', text)}")

    def _say(self, sentence: str, *facts: tuple[str, Any]) -> None:
        if sentence:
            print(f"  {sentence}")
        for name, value in facts:
            shown = value if isinstance(value, str) else json.dumps(value)
            print(f"    {name:<11} {shown}")

    def _colored(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._is_colored else text


def _moved(answer: Any, suggestion: Any) -> str:
    """How the stamps of an answer stand to those that a fix depends on."""
    moved = [
        f"{held['table']} {held['version']} -> {answer['table_versions'][held['table']]}"
        for held in suggestion["tables"]
        if answer["table_versions"][held["table"]] != held["version"]
    ]
    return ", ".join(moved) or "none has moved: the fix is still good"
