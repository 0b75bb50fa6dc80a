"""Reading reference data out of the archives of packages. Nothing in an archive is ever run."""

import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from shelflife.lab.organic.releases import ReleasesError, Rows

__all__ = ["SOURCES", "Source", "tables_in"]

_ZONE_FILE = re.compile(r"pytz/zoneinfo/(?P<name>.+)")
_ABBREVIATION = r"<[^>]+>|[A-Za-z]{3,}"
_POSIX_RULE = re.compile(
    rf"(?P<standard>{_ABBREVIATION})(?P<offset>[-+]?[\d:]+)(?:(?P<summer>{_ABBREVIATION})(?P<shifted>[-+]?[\d:]+)?,(?P<days>.+))?"
)
_REGISTER_FILE = re.compile(r"schwifty/bank_registry/.+\.json")
_BIC = re.compile(r"[A-Z0-9]{8}([A-Z0-9]{3})?")
_CODE = re.compile(r"[A-Z0-9]{1,20}")


class Source(NamedTuple):
    """Where a history comes from."""

    package: str
    read: Callable[[zipfile.ZipFile], dict[str, Rows]]
    """The tables in one archive of the package."""


def tables_in(archive: Path, source: Source) -> dict[str, Rows]:
    """The tables of one release; `ReleasesError` where the archive cannot be read."""
    try:
        with zipfile.ZipFile(archive) as opened:
            tables = source.read(opened)
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:  # or it is encrypted
        raise ReleasesError(f"{archive} cannot be read ({error}): remove it and fetch again") from error
    except (UnicodeDecodeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReleasesError(f"{archive} is not as the releases of {source.package} are: {error!r}") from error
    if not any(tables.values()):
        raise ReleasesError(
            f"{archive} is not as the releases of {source.package} are: there is no row in it"
        )
    return tables


def _zones(archive: zipfile.ZipFile) -> dict[str, Rows]:
    """Of every zone the rule that holds from now on, and where it is."""
    zones: Rows = {}
    places: Rows = {}
    names: dict[str, str] = {}
    """Of links: the zone that each leads to. Archives before 2019.2 do not tell."""
    for entry in archive.namelist():
        if (found := _ZONE_FILE.fullmatch(entry)) is None:
            continue
        content = archive.read(entry)
        match found["name"]:
            case "zone.tab":
                places = dict(_places(content.decode()))
            case "tzdata.zi":
                lines = (line.split() for line in content.decode().splitlines())
                names = {line[2]: line[1] for line in lines if len(line) == 3 and line[0] == "L"}
            case name if content.startswith(b"TZif"):
                zones[name] = _rule(content)
    for name, place in places.items():
        if name in zones:
            zones[name] |= place
    # a place that has a line of its own goes by its name, whatever the rules of how many it shares
    aliases = {
        name: {"zone": target} for name, target in names.items() if name in zones and name not in places
    }
    return {"zones": zones, "zone_aliases": aliases}


def _places(table: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for line in table.splitlines():
        if not line.startswith("#"):
            country, coordinates, name, *comments = line.split("\t")
            place = {"country": country, "coordinates": coordinates}
            yield name, place | ({"comments": comments[0]} if comments else {})


def _rule(compiled: bytes) -> dict[str, Any]:
    """What the last line of a TZif file says. Without one, nobody can tell what holds from now on."""
    footer = compiled.rsplit(b"\n", 2)[-2].decode() if compiled.endswith(b"\n") else ""
    found = _POSIX_RULE.fullmatch(footer)
    if found is None:
        return {}
    offset = _minutes_east(found["offset"])
    dst_rule = found["days"] or "none"
    if found["shifted"]:  # clocks go forward by something else than an hour
        dst_rule = f"{_signed(_minutes_east(found['shifted']))},{dst_rule}"
    abbreviations = " ".join(name.strip("<>") for name in (found["standard"], found["summer"]) if name)
    return {"utc_offset": _signed(offset), "dst_rule": dst_rule, "abbreviations": abbreviations}


def _minutes_east(posix: str) -> int:
    """POSIX counts hours west of Greenwich."""
    hours, _, minutes = posix.lstrip("+-").partition(":")
    west = int(hours) * 60 + int(minutes or 0)
    return west if posix.startswith("-") else -west


def _signed(minutes: int) -> str:
    hours, rest = divmod(abs(minutes), 60)
    return f"{'-' if minutes < 0 else '+'}{hours:02}:{rest:02}"


def _banks(archive: zipfile.ZipFile) -> dict[str, Rows]:
    """Every bank code with what its register says of it. Codes with several BICs are left out.

    A register that does not parse has no banks in that release, as for everybody who used it.
    """
    entries: dict[str, list[dict[str, Any]]] = {}
    for name in sorted(filter(_REGISTER_FILE.fullmatch, archive.namelist())):
        try:
            register = json.loads(archive.read(name))
        except ValueError:
            continue
        for entry in _listed(register):
            if _CODE.fullmatch(entry.get("bank_code") or ""):
                entries.setdefault(f"{entry['country_code']}:{entry['bank_code']}", []).append(entry)
    banks = {key: _bank(same) for key, same in entries.items() if len(_bics(same)) < 2}
    return {"banks": banks}


def _listed(register: Any) -> Iterator[dict[str, Any]]:
    """The first form lists banks by code; in the second a bank lists its codes."""
    if isinstance(register, list):
        yield from register
    else:
        for entry in register["entries"]:
            yield from ({**entry, "bank_code": code} for code in entry["bank_codes"])


def _bics(entries: list[dict[str, Any]]) -> set[str]:
    return {entry["bic"] for entry in entries if _BIC.fullmatch(entry.get("bic") or "")}


def _bank(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """What is told of a bank code, by its primary entry where there are several."""
    entry = min(entries, key=lambda entry: (not entry.get("primary"), not entry.get("bic")))
    told = {
        "bic": next(iter(_bics(entries)), None),
        "name": entry.get("name"),
        "short_name": entry.get("short_name"),
        "check_method": entry.get("checksum_algo"),
    }
    return {column: value for column, value in told.items() if value}


SOURCES = {"zones": Source("pytz", _zones), "banks": Source("schwifty", _banks)}
"""By the name of the history."""
