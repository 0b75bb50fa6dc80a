"""Fetching the releases of real reference data, and making their history of them."""

import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from pathlib import Path

from shelflife.lab.organic.archives import SOURCES, Source, tables_in
from shelflife.lab.organic.releases import ReleasesError, Rows, file_name_of, history_of, write_releases

__all__ = ["fetch", "versions_of"]

_VERSIONS = resources.files("shelflife.lab.organic") / "versions.toml"


def versions_of(name: str) -> list[str]:
    """The releases of which a history is made."""
    versions: list[str] = tomllib.loads(_VERSIONS.read_text("utf-8"))[name]
    return versions


def fetch(
    name: str,
    folder: Path,
    versions: Sequence[str] | None = None,
    *,
    on_release: Callable[[], None] = lambda: None,
) -> Path:
    """Download what is not there yet of the releases of a source, and write their history into the folder.

    `ReleasesError` where that cannot be done. What was downloaded stays, and is not downloaded again.
    """
    source, archives = SOURCES[name], folder / "archives"

    def tables() -> Iterator[tuple[str, dict[str, Rows]]]:
        for version in versions_of(name) if versions is None else versions:
            yield version, tables_in(_archive(source, version, archives), source)
            on_release()

    path = folder / file_name_of(name)
    try:
        write_releases(path, history_of(tables()))
    except OSError as error:
        raise ReleasesError(f"cannot write into {folder}: {error.strerror}") from error
    return path


def _archive(source: Source, version: str, folder: Path) -> Path:
    """The wheel of a release. An archive of source code would be run to be understood, so none is taken."""
    pattern = f"{source.package}-{version}-*.whl"
    if not any(folder.glob(pattern)):
        folder.mkdir(parents=True, exist_ok=True)
        _download(f"{source.package}=={version}", folder)
    found = next(folder.glob(pattern), None)
    if found is None:
        raise ReleasesError(
            f"pip has downloaded {source.package} {version}, and there is no {pattern} in {folder}"
        )
    return found


def _download(requirement: str, folder: Path) -> None:
    options = ("--no-deps", "--only-binary", ":all:", "--quiet", "--disable-pip-version-check")
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), requirement],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = [
            line.removeprefix("ERROR: ")
            for line in done.stderr.splitlines()
            if not line.startswith("WARNING")
        ]
        raise ReleasesError(
            f"pip cannot download {requirement} ({said[-1] if said else 'it does not say why'});"
            " the same command goes on from here once it can"
        )
