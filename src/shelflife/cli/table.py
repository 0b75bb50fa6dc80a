"""`shelflife table`: what an operator asks a running API about its tables."""

import argparse
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

from shelflife.cli.errors import CommandError
from shelflife.cli.tables import print_table

__all__ = ["add_to"]

_TOKEN_VARIABLE = "SHELFLIFE_ADMIN_TOKEN"  # noqa: S105
_LONGEST_WAIT_S = 60
_NO_SUCH_ENDPOINT = (404, 405)


class _Here(urllib.request.HTTPRedirectHandler):
    """Goes nowhere else: the token is for one address alone."""

    def redirect_request(self, *redirection: Any) -> None:
        return None


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "table",
        help="ask a running API about its tables",
        description="Ask a running API about its tables.",
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    def verb(
        name: str, help: str, run: Callable[[argparse.Namespace], None], what: str
    ) -> argparse.ArgumentParser:
        one = verbs.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
        one.add_argument("address", help="where the contract lives, as in http://127.0.0.1:8000")
        one.add_argument("what", metavar=what, help="as in carriers:DHL" if ":" in what else "its name")
        one.add_argument(
            "--admin-token", metavar="TOKEN", help=f"better given in ${_TOKEN_VARIABLE}, where nobody sees it"
        )
        one.add_argument("--json", action="store_true", help="for programs")
        one.set_defaults(run=run)
        return one

    verb("resting", "tell which policies and fixes rest on a row", _resting, "TABLE:KEY")
    refresh = verb("refresh", "have a table read again from its source", _refresh, "TABLE")
    refresh.add_argument(
        "--wait", type=float, metavar="SECONDS", help="until all workers have it, for so long at most"
    )


def _resting(options: argparse.Namespace) -> None:
    query = urllib.parse.urlencode({"row": options.what})
    try:
        answer = _asked(options, f"/admin/resting?{query}")
    except CommandError as error:
        if ":" in options.what or "no table called" not in str(error):
            raise
        raise CommandError(f"{error}; for a row, write TABLE:KEY") from None
    if options.json:
        print(json.dumps(answer))
    elif (
        not answer["policies"]
        and ":" in options.what
        and _asked(options, f"/admin/row?{query}")["value"] is None
    ):
        raise CommandError(f"there is no row {options.what}, and no fix that was given of late rests on that")
    elif not answer["policies"]:
        print(f"No fix that was given of late rests on {options.what}.")
    else:
        print_table(
            ("policy", "fixes", "has read"),
            [(name, str(one["fixes"]), _read(one["columns"])) for name, one in answer["policies"].items()],
        )
        print(f"Fixes in all: {answer['fixes']:,}.")


def _read(columns: list[str] | None) -> str:
    return "all of it" if columns is None else ", ".join(columns) or "whether it is there"


def _refresh(options: argparse.Namespace) -> None:
    asked = {"table": options.what} | ({} if options.wait is None else {"wait_s": options.wait})
    report = _asked(options, "/admin/refresh-table", asked)
    workers = report.get("workers")
    if options.json:
        print(json.dumps(report))
    elif report["old_version"] == report["new_version"]:
        print(f"{options.what} has not changed.")
    else:
        counts = ", ".join(f"{len(report[name])} {name}" for name in ("added", "removed", "changed"))
        print(f"{options.what} is at version {report['new_version']}: {counts}.")
    if options.wait is None or options.json:
        return
    if workers is None:
        raise CommandError("whether all workers have it could not be found out")
    if workers["behind"]:
        raise CommandError(f"{workers['behind']} of {workers['live']} workers do not have it yet")
    print(f"All workers have it ({workers['live']}).")


def _asked(options: argparse.Namespace, path: str, body: Any = None) -> Any:
    """What an API answers to its operator."""
    token = options.admin_token or os.environ.get(_TOKEN_VARIABLE)
    if not token:
        raise CommandError(f"give the admin token of the API, in ${_TOKEN_VARIABLE} or with --admin-token")
    if not options.address.startswith(("http://", "https://")):
        raise CommandError(f"{options.address} is no address; give one as in http://127.0.0.1:8000")
    request = urllib.request.Request(  # noqa: S310 - only http and https come as far as this
        options.address.rstrip("/") + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.build_opener(_Here()).open(request, timeout=_LONGEST_WAIT_S) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            raise CommandError(_refusal(options.address, error)) from None
    except urllib.error.URLError as error:
        reason = getattr(error.reason, "strerror", None) or error.reason
        raise CommandError(f"{options.address} cannot be reached: {reason}") from None
    except (OSError, ValueError) as error:
        raise CommandError(
            f"{options.address} does not answer as an API with the contract: {error}"
        ) from None


def _refusal(address: str, error: urllib.error.HTTPError) -> str:
    """What an API says, or that it has no such endpoint: then its framework answers, in words of its own."""
    try:
        answer = json.load(error)
        sentence = str(answer.get("error") or answer["detail"])
    except (ValueError, KeyError, AttributeError, OSError):
        sentence = f"status {error.code}"
    if error.code in _NO_SUCH_ENDPOINT and sentence in (f"status {error.code}", error.reason):
        return f"{address} has no admin endpoints: its contract lives elsewhere, or has no admin token"
    return f"the API refuses: {sentence}"
