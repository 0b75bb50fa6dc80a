"""`shelflife proxy`: a reverse proxy in front of an API, which adds a contract from a file."""

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from shelflife.cli.errors import CommandError, needing
from shelflife.cli.helping import WithDefaults
from shelflife.cli.serve import listener_on

if TYPE_CHECKING:
    from shelflife.server import Provider

__all__ = ["add_to"]


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "proxy",
        help="add a contract to an API without touching it",
        description="Hand requests on to an API, and add the contract from a file, until interrupted.",
        formatter_class=WithDefaults,
    )
    parser.add_argument("contract", metavar="FILE", help="a Python file with a Provider called provider")
    parser.add_argument("--upstream", required=True, metavar="URL", help="the address of the API")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    parser.add_argument("--port", type=int, default=8080, help="the port to listen on; 0 takes a free one")
    parser.add_argument(
        "--as-caller",
        metavar="REQUEST",
        help="a request such as 'GET /me' that the API answers with success for callers whom it knows",
    )
    parser.add_argument(
        "--enforce",
        action="store_true",
        help="the policies come first, for callers known by --as-caller; else the API does",
    )
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="SECONDS", help="how long the API may be silent"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Hand requests on until interrupted."""
    with needing("server"):
        import uvicorn

        from shelflife.server import UsageError
    with needing("httpx2"):
        from shelflife.integrations.proxying import proxy_app
    if not 0 < options.timeout < 86_400:
        raise CommandError("--timeout is a number of seconds above 0, and a day at most")
    if options.enforce and options.as_caller is None:
        raise CommandError(
            'to enforce policies, say by which request the API tells whom it lets pass: --as-caller "GET /me"'
        )
    provider = _provider_in(Path(options.contract))
    try:
        app = proxy_app(
            provider,
            options.upstream,
            as_caller=options.as_caller,
            enforce=options.enforce,
            timeout_s=options.timeout,
        )
    except UsageError as error:
        raise CommandError(str(error)) from error
    with listener_on(options.host, options.port) as listener:
        host, port = listener.getsockname()[:2]
        what = "Enforces" if options.enforce else "Explains"
        print(
            f"{what} {options.contract} on http://{f'[{host}]' if ':' in host else host}:{port}", flush=True
        )
        print(f"In front of {options.upstream}. Ctrl-C ends it.", flush=True)
        config = uvicorn.Config(
            app,
            lifespan="on",
            log_level="warning",
            timeout_graceful_shutdown=3,
            server_header=False,
            date_header=False,
            proxy_headers=False,  # whom a request comes from is told on, and not believed
            ws="none",
        )
        uvicorn.Server(config).run(sockets=[listener])


def _provider_in(path: Path) -> "Provider":
    """The provider that a file makes. It may import what stands beside it."""
    with needing("server"):
        from shelflife.server import Provider
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise CommandError(f"there is no Python file {path}")
    sys.path.insert(0, str(path.parent.absolute()))
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise CommandError(f"{path} does not run: {type(error).__name__}: {error}") from error
    found = getattr(module, "provider", None)
    if not isinstance(found, Provider):
        raise CommandError(f"{path} has no Provider called provider")
    return found
