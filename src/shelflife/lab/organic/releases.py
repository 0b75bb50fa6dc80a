"""The release history of real reference data, as a file: what each release of a package changed in its tables."""

import gzip
import tomllib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from shelflife.errors import ShelflifeError
from shelflife.lab.whole_files import write_whole

__all__ = [
    "FETCHED",
    "Change",
    "Release",
    "ReleasesError",
    "Rows",
    "file_name_of",
    "file_of",
    "history_of",
    "read_releases",
    "released_on",
    "write_releases",
]

Rows = dict[str, dict[str, Any]]
"""Of a table, by key."""

FETCHED = Path("shelflife-organic")
"""The folder into which histories are fetched, and in which they are looked for first."""

_DAYS = resources.files("shelflife.lab.organic") / "days.toml"
_SHIPPED = resources.files("shelflife.lab.organic") / "histories"


class ReleasesError(ShelflifeError):
    """The history of a source cannot be had: one sentence for people."""


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a release changed in a table."""

    set: Rows = {}
    remove: list[str] = []


class Release(msgspec.Struct, frozen=True):
    """One release, as what differs from the one before. The first differs from nothing."""

    version: str
    tables: dict[str, Change]


def history_of(versions: Iterable[tuple[str, Mapping[str, Rows]]]) -> Iterator[Release]:
    """The releases of a package, given what the tables have in each of its versions."""
    before: Mapping[str, Rows] = {}
    for version, tables in versions:
        yield Release(version, {name: _change(before.get(name, {}), rows) for name, rows in tables.items()})
        before = tables


def _change(before: Rows, rows: Rows) -> Change:
    return Change(
        {key: row for key, row in sorted(rows.items()) if before.get(key) != row},
        sorted(before.keys() - rows.keys()),
    )


def write_releases(path: Path, releases: Iterable[Release]) -> None:
    """Write a history. The same history is always the same bytes."""
    lines = b"".join(msgspec.json.encode(release) + b"\n" for release in releases)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, gzip.compress(lines, 9, mtime=0))


def read_releases(name: str) -> list[Release]:
    """The history of a source by its name, or why there is none."""
    path = file_of(name)
    try:
        lines = gzip.decompress(path.read_bytes()).splitlines()
        if not lines:
            raise EOFError("it is empty")
        return [msgspec.json.decode(line, type=Release) for line in lines]
    except FileNotFoundError:
        raise ReleasesError(
            f"the releases of {name} have not been fetched into {FETCHED}: fetch them with shelflife lab fetch {name}"
        ) from None
    except (OSError, EOFError, zlib.error, msgspec.MsgspecError) as error:
        raise ReleasesError(
            f"{path} holds no releases ({error}): fetch them anew with shelflife lab fetch {name}"
        ) from error


def released_on(name: str, versions: Sequence[str]) -> list[date]:
    """On which days these were released. `ReleasesError` where that is not known."""
    days: dict[str, date] = tomllib.loads(_DAYS.read_text("utf-8")).get(name, {})
    unknown = [version for version in versions if version not in days]
    if unknown:
        raise ReleasesError(f"it is not known on which day {name} {unknown[0]} was released")
    return [days[version] for version in versions]


def file_name_of(name: str) -> str:
    """What the file of a history is called."""
    return f"{name}.jsonl.gz"


def file_of(name: str) -> Path:
    """Where the history of a source is: where it was fetched to, else where it would come with the package."""
    fetched = FETCHED / file_name_of(name)
    return fetched if fetched.exists() else Path(str(_SHIPPED / fetched.name))
