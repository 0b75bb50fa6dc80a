"""`shelflife serve`: a reference API on a port."""

import argparse
import json
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shelflife.cli.errors import CommandError, needing
from shelflife.cli.helping import WithDefaults

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import FastAPI

    from shelflife.apis.acme.gateway import Gateway
    from shelflife.integrations.ed25519 import SigningKey
    from shelflife.server import Provider

__all__ = ["add_to", "listener_on", "worker_app"]

_TOKEN_VARIABLE = "SHELFLIFE_ADMIN_TOKEN"  # noqa: S105
_STRIPE_VARIABLE = "STRIPE_API_KEY"
_PORT = 8000
_OPTIONS_VARIABLE = "SHELFLIFE_SERVE_OPTIONS"
"""What the processes of several workers are told by the first."""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "serve",
        help="serve a reference API",
        description="Serve a reference API until interrupted.",
        formatter_class=WithDefaults,
    )
    parser.add_argument("api", choices=["acme", "meetings", "payouts", "recipes"], help="which one")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    parser.add_argument(
        "--port",
        type=int,
        help="the port to listen on; 0 takes a free one (default: 8000, and none with --mcp)",
    )
    parser.add_argument(
        "--mcp",
        action="store_true",
        help="serve it as an MCP server: on standard input and output, or with --port at /mcp beside the API",
    )
    parser.add_argument("--level", type=int, default=6, choices=[0, 1, 4, 5, 6], help="the wire level")
    parser.add_argument(
        "--admin-token",
        metavar="TOKEN",
        help=f"turns the admin endpoints on; better given in ${_TOKEN_VARIABLE}, where nobody sees it",
    )
    parser.add_argument(
        "--state",
        metavar="LOG",
        help="a file, or a URL as in postgresql://user@host/database: a log there, so that reloads survive a restart",
    )
    parser.add_argument(
        "--workers", type=int, default=1, metavar="N", help="so many processes; several need --state"
    )
    parser.add_argument(
        "--signing-key", metavar="FILE", help="sign states with this key (see shelflife key); needs --state"
    )
    parser.add_argument(
        "--endorsement",
        action="append",
        metavar="FILE",
        help="an endorsement of the signing key by the one before; may be repeated",
    )
    parser.add_argument("--errors", choices=["json", "problem"], default="json", help="the form of errors")
    parser.add_argument(
        "--gateway",
        choices=["in-process", "stripe"],
        default="in-process",
        help=f"where acme carries subscriptions out; stripe takes its key from ${_STRIPE_VARIABLE}",
    )
    parser.add_argument("--stripe-address", metavar="URL", help="a server that speaks Stripe's API")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Serve until interrupted."""
    with needing("server"):
        import uvicorn

        from shelflife.testing.workers import run_workers
    if options.workers < 1:
        raise CommandError("there is at least one worker")
    if options.workers > 1 and options.mcp:
        raise CommandError("--mcp serves from one process: leave --workers out")
    if options.workers > 1 and options.state is None:
        raise CommandError("--workers needs --state: without a shared log a reload reaches only one of them")
    if options.mcp:
        _run_mcp(options)
        return
    app, provider = _app_of(options)
    signer = None if provider.signing is None else provider.signing.signer
    settings: dict[str, Any] = {"log_level": "warning", "timeout_graceful_shutdown": 3}
    try:
        with listener_on(options.host, _PORT if options.port is None else options.port) as listener:
            admin = "on" if provider.admin_token else "off: no admin token"
            print(f"{app.title} on {_address_of(listener)}", flush=True)
            if signer is not None:
                print(f"States are signed by {signer.key}", flush=True)
            print(
                f"Level {options.level}, admin endpoints {admin}; docs at /docs. Ctrl-C ends it.", flush=True
            )
            if options.workers == 1:
                uvicorn.Server(uvicorn.Config(app, lifespan="off", **settings)).run(sockets=[listener])
                return
            provider.close()
            chosen = {name: value for name, value in vars(options).items() if name != "run"}
            os.environ[_OPTIONS_VARIABLE] = json.dumps(chosen)
            run_workers(f"{__name__}:{worker_app.__name__}", options.workers, listener, **settings)
    finally:
        provider.close()


def _run_mcp(options: argparse.Namespace) -> None:
    """Serve it as an MCP server. What is said at the start goes where no client reads."""
    with needing("mcp"):
        from shelflife.apis.acme.tools import acme_tools
        from shelflife.apis.recipes.tools import recipes_tools
    app, provider = _app_of(options)
    try:
        if options.api == "acme":
            server = acme_tools(provider, _gateway(options))
        elif options.api == "recipes":
            server = recipes_tools(provider)
        else:
            raise CommandError("only acme and recipes are MCP servers too")
        if options.port is None:
            print(f"{app.title} as an MCP server on standard input and output.", file=sys.stderr, flush=True)
            server.run("stdio")
            return
        import uvicorn

        served = server.streamable_http_app(host=options.host)
        served.mount("/", app)  # so that an operator can reload what the tools are checked by
        with listener_on(options.host, options.port) as listener:
            address = _address_of(listener)
            print(f"{app.title} on {address}", flush=True)
            print(f"As an MCP server at {address}/mcp. Ctrl-C ends it.", flush=True)
            config = uvicorn.Config(served, log_level="warning", timeout_graceful_shutdown=3)
            uvicorn.Server(config).run(sockets=[listener])
    finally:
        provider.close()


def _address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def worker_app() -> "FastAPI":
    """The app of one of several processes, with what the first was told."""
    from shelflife.testing.workers import end_with_parent

    end_with_parent()
    return _app_of(argparse.Namespace(**json.loads(os.environ[_OPTIONS_VARIABLE])))[0]


def _app_of(options: argparse.Namespace) -> "tuple[FastAPI, Provider]":
    with needing("server"):
        from shelflife.apis.acme import acme_app, acme_provider
        from shelflife.apis.meetings import meetings_app, meetings_provider
        from shelflife.apis.payouts import payouts_app, payouts_provider
        from shelflife.apis.recipes import recipes_app, recipes_provider
        from shelflife.server import ServerError, Signing, WireFormat
    signer = _signer(options)
    settings: dict[str, Any] = {
        "admin_token": options.admin_token or os.environ.get(_TOKEN_VARIABLE),
        "log": options.state,
        "wire": WireFormat(level=options.level, errors=options.errors),
        "signing": Signing(signer=signer) if signer else None,
    }
    try:
        if options.api == "acme":
            gateway = _gateway(options)
            with needing("postgres"):
                provider = acme_provider(**settings)
            return acme_app(provider, gateway), provider
        if options.gateway != "in-process":
            raise CommandError("only acme has a gateway")
        others: dict[str, tuple[Callable[..., Provider], Callable[[Provider], FastAPI]]] = {
            "meetings": (meetings_provider, meetings_app),
            "payouts": (payouts_provider, payouts_app),
            "recipes": (recipes_provider, recipes_app),
        }
        provider_of, app_of = others[options.api]
        with needing("postgres"):
            provider = provider_of(**settings)
        return app_of(provider), provider
    except ServerError as error:
        raise CommandError(str(error)) from error


def _signer(options: argparse.Namespace) -> "SigningKey | None":
    if options.signing_key is None:
        if options.endorsement:
            raise CommandError("an endorsement needs the key that it is of: give --signing-key too")
        return None
    if options.state is None:
        raise CommandError("--signing-key needs --state: signed states are numbered across restarts")
    with needing("signed"):
        import msgspec

        from shelflife.contract.signed import Endorsement
        from shelflife.integrations.ed25519 import KeyFileError, SigningKey
    endorsements = []
    for path in options.endorsement or ():
        try:
            endorsements.append(msgspec.json.decode(Path(path).read_bytes(), type=Endorsement))
        except OSError as error:
            raise CommandError(f"cannot read {path}: {os.strerror(error.errno or 0)}") from error
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise CommandError(f"{path} holds no endorsement: {error}") from error
    try:
        return SigningKey.from_file(options.signing_key, endorsements)
    except KeyFileError as error:
        raise CommandError(str(error)) from error


def _gateway(options: argparse.Namespace) -> "Gateway":
    from shelflife.apis.acme.gateway import GatewayDown, InProcessGateway, StripeGateway

    if options.gateway == "in-process":
        return InProcessGateway()
    address = options.stripe_address
    if address and not address.startswith(("http://", "https://")):
        raise CommandError(f"the address of a Stripe server starts with http:// or https://, not {address!r}")
    key = os.environ.get(_STRIPE_VARIABLE)
    if not key:
        raise CommandError(f"the Stripe gateway needs an API key in ${_STRIPE_VARIABLE}")
    try:
        return StripeGateway(key, address)
    except GatewayDown as error:
        raise CommandError(str(error)) from error


def listener_on(host: str, port: int) -> socket.socket:
    """A socket that listens there, or one sentence why it cannot."""
    from shelflife.testing.serving import listening_on

    try:
        return listening_on(host, port)
    except (OSError, OverflowError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise CommandError(
            f"cannot listen on {host} port {port}: {reason}; --port 0 takes a free one"
        ) from error
