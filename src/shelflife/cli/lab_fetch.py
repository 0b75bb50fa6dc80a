"""`shelflife lab fetch`: get the releases of real reference data that organic streams are made of."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from shelflife.cli.errors import CommandError
from shelflife.cli.progress import Progress
from shelflife.lab.organic.archives import SOURCES
from shelflife.lab.organic.fetching import fetch, versions_of
from shelflife.lab.organic.releases import FETCHED, ReleasesError

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["add_to"]


def add_to(verbs: "Verbs") -> None:
    """Add the verb to the parser."""
    parser = verbs.add_parser(
        "fetch",
        help="get the real releases that organic streams are made of",
        description="Download the releases of packages with real reference data, with pip and without running anything"
        " in them, and write down what each release changed. The time zones come with the lab.",
    )
    parser.add_argument(
        "sources", nargs="+", choices=list(SOURCES), metavar="SOURCE", help=" or ".join(SOURCES)
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=FETCHED,
        metavar="DIR",
        help=f"{FETCHED} by default, where streams look for it",
    )
    parser.set_defaults(run=_fetch)


def _fetch(options: argparse.Namespace) -> None:
    for name in dict.fromkeys(options.sources):
        versions = versions_of(name)
        try:
            with Progress(len(versions), "releases") as progress:
                path = fetch(name, options.out, versions, on_release=lambda: progress.advance(1))
        except ReleasesError as error:
            raise CommandError(str(error)) from error
        print(f"{name}: {len(versions)} releases of {SOURCES[name].package} are in {path}")
