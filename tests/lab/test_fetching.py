"""Fetching releases: archives are read and never run, and whatever goes wrong is one sentence."""

import json
import re
import zipfile

import pytest

from shelflife.cli import main
from shelflife.lab.organic.fetching import fetch, versions_of
from shelflife.lab.organic.releases import Change, ReleasesError, read_releases

TAB = (
    "# comment\nBR\t-2332-04637\tAmerica/Sao_Paulo\tBrazil (southeast)\nGB\t+513030-0000731\tEurope/London\n"
)
TAB += "AU\t-3133+15905\tAustralia/Lord_Howe\n"


def compiled(rule):
    return b"TZif2 and what comes before its last line\n" + rule.encode() + b"\n"


def archived(folder, package, version, files):
    path = folder / "archives" / f"{package}-{version}-py3-none-any.whl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def zones(folder, version, rules, **more):
    files = {f"pytz/zoneinfo/{name}": compiled(rule) for name, rule in rules.items()}
    archived(folder, "pytz", version, {**files, "pytz/zoneinfo/zone.tab": TAB, **more})


def registers(folder, version, **files):
    named = {f"schwifty/bank_registry/{name}.json": content for name, content in files.items()}
    archived(folder, "schwifty", version, {"schwifty/__init__.py": "raise SystemExit('it was run')", **named})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where histories are fetched to, with no index to download anything from."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return tmp_path / "shelflife-organic"


def test_each_release_is_what_differs_from_the_one_before(folder):
    zones(folder, "1", {"America/Sao_Paulo": "<-03>3<-02>,M10.3.0/0,M2.3.0/0", "Etc/Gone": "GMT0"})
    zones(folder, "2", {"America/Sao_Paulo": "<-03>3<-02>,M10.3.0/0,M2.3.0/0"})
    zones(folder, "3", {"America/Sao_Paulo": "<-03>3"})
    fetch("zones", folder, ["1", "2", "3"])
    first, second, third = read_releases("zones")
    place = {"country": "BR", "coordinates": "-2332-04637", "comments": "Brazil (southeast)"}
    assert first.tables["zones"].set["America/Sao_Paulo"] == {
        "utc_offset": "-03:00",
        "dst_rule": "M10.3.0/0,M2.3.0/0",
        "abbreviations": "-03 -02",
        **place,
    }
    assert second.tables["zones"] == Change({}, ["Etc/Gone"])
    changed = {"utc_offset": "-03:00", "dst_rule": "none", "abbreviations": "-03", **place}
    assert third.tables["zones"] == Change({"America/Sao_Paulo": changed}, [])


@pytest.mark.parametrize(
    ("rule", "row"),
    [
        ("EST5EDT,M3.2.0,M11.1.0", {"utc_offset": "-05:00", "dst_rule": "M3.2.0,M11.1.0"}),
        ("<+0330>-3:30", {"utc_offset": "+03:30", "dst_rule": "none"}),
        (
            "<+1030>-10:30<+11>-11,M10.1.0,M4.1.0",
            {"utc_offset": "+10:30", "dst_rule": "+11:00,M10.1.0,M4.1.0"},
        ),
        ("IST-1GMT0,M10.5.0,M3.5.0/1", {"utc_offset": "+01:00", "dst_rule": "+00:00,M10.5.0,M3.5.0/1"}),
        ("", {}),
    ],
)
def test_a_zone_is_read_by_the_last_line_of_its_file(folder, rule, row):
    zones(folder, "1", {"Here": rule})
    fetch("zones", folder, ["1"])
    read = dict(read_releases("zones")[0].tables["zones"].set["Here"])
    read.pop("abbreviations", None)
    assert read == row


def test_a_link_is_an_alias_unless_it_is_a_place_of_its_own(folder):
    rules = dict.fromkeys(("Europe/London", "GB", "America/Sao_Paulo", "Brazil/East"), "GMT0")
    links = "# version 1\nL Europe/London GB\nL America/Sao_Paulo Brazil/East\nL Brazil/East Europe/London\n"
    zones(folder, "1", rules, **{"pytz/zoneinfo/tzdata.zi": links})
    fetch("zones", folder, ["1"])
    assert read_releases("zones")[0].tables["zone_aliases"].set == {
        "GB": {"zone": "Europe/London"},
        "Brazil/East": {"zone": "America/Sao_Paulo"},
    }


def bank(code, bic, **more):
    return {
        "country_code": "DE",
        "bank_code": code,
        "bic": bic,
        "name": f"Bank {code}",
        "short_name": "B",
        **more,
    }


def test_registers_are_read_in_both_their_forms(folder):
    several = {
        "country_code": "DK",
        "bank_codes": ["1", "2"],
        "bic": "EXMPDK00",
        "name": "N",
        "short_name": "",
    }
    registers(
        folder,
        "1",
        generated_de=json.dumps(
            [bank("10", "EXMPDE00XXX", checksum_algo="09"), bank("20", ""), bank("", "X")]
        ),
        **{"manual_dk.v2": json.dumps({"entries": [several]})},
    )
    fetch("banks", folder, ["1"])
    assert read_releases("banks")[0].tables["banks"].set == {
        "DE:10": {"bic": "EXMPDE00XXX", "name": "Bank 10", "short_name": "B", "check_method": "09"},
        "DE:20": {"name": "Bank 20", "short_name": "B"},
        "DK:1": {"bic": "EXMPDK00", "name": "N"},
        "DK:2": {"bic": "EXMPDK00", "name": "N"},
    }


def test_a_code_with_several_bics_is_left_out_and_the_primary_entry_speaks_for_the_others(folder):
    entries = [bank("10", "EXMPDE00XXX"), bank("10", "EXMPDE01XXX")]
    entries += [bank("20", "", name="Second"), bank("20", "EXMPDE02XXX", name="First", primary=True)]
    registers(folder, "1", generated_de=json.dumps(entries))
    fetch("banks", folder, ["1"])
    assert read_releases("banks")[0].tables["banks"].set == {
        "DE:20": {"bic": "EXMPDE02XXX", "name": "First", "short_name": "B"}
    }


def test_a_register_that_does_not_parse_has_no_banks_in_that_release(folder):
    """As happened in 2023.11.1: its banks vanish, and return with the next."""
    german, swedish = (
        json.dumps([bank("10", "EXMPDE00")]),
        json.dumps([bank("20", "EXMPSE00", country_code="SE")]),
    )
    registers(folder, "1", generated_de=german, generated_se=swedish)
    registers(folder, "2", generated_de=german, generated_se=swedish[:-5])
    registers(folder, "3", generated_de=german, generated_se=swedish)
    fetch("banks", folder, ["1", "2", "3"])
    _, second, third = read_releases("banks")
    assert second.tables["banks"] == Change({}, ["SE:20"])
    assert list(third.tables["banks"].set) == ["SE:20"]


def test_a_history_is_the_same_bytes_each_time(folder):
    zones(folder, "1", {"Here": "GMT0"})
    assert fetch("zones", folder, ["1"]).read_bytes() == fetch("zones", folder, ["1"]).read_bytes()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "cannot be read (File is not a zip file): remove it and fetch again"),
        (b"PK and nothing else", "cannot be read (File is not a zip file): remove it and fetch again"),
    ],
)
def test_an_archive_that_is_broken_is_told(folder, content, told):
    zones(folder, "1", {"Here": "GMT0"})
    broken = folder / "archives" / "pytz-2-py3-none-any.whl"
    broken.write_bytes(content)
    with pytest.raises(ReleasesError, match=re.escape(f"{broken} {told}")):
        fetch("zones", folder, ["1", "2"])


@pytest.mark.parametrize(
    ("source", "package", "files"),
    [
        (
            "zones",
            "pytz",
            {"pytz/zoneinfo/zone.tab": "only one column\n", "pytz/zoneinfo/Here": b"TZif2\nGMT0\n"},
        ),
        ("zones", "pytz", {"pytz/__init__.py": ""}),
        ("banks", "schwifty", {"schwifty/bank_registry/generated_de.json": '{"banks": []}'}),
        ("banks", "schwifty", {"schwifty/bank_registry/generated_de.json": "[1]"}),
        ("banks", "schwifty", {"schwifty/bank_registry/generated_de.json": "[]"}),
    ],
)
def test_an_archive_of_something_else_is_told(folder, source, package, files):
    path = archived(folder, package, "1", files)
    with pytest.raises(ReleasesError, match=re.escape(f"{path} is not as the releases of {package} are")):
        fetch(source, folder, ["1"])


def test_where_nothing_can_be_downloaded_the_command_says_so_and_that_it_goes_on(folder, capsys):
    zones(folder, versions_of("zones")[0], {"Here": "GMT0"})
    assert main(["lab", "fetch", "zones"]) == 1
    told = capsys.readouterr().err
    assert re.search(
        r"pip cannot download pytz==2014\.10 \(.+\); the same command goes on from here once it can\n$", told
    )
    assert not (folder / "zones.jsonl.gz").exists()


def test_a_folder_that_cannot_be_written_is_told(folder, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["lab", "fetch", "zones", "--out", "file"]) == 1
    assert "cannot write into file: Not a directory" in capsys.readouterr().err


def test_the_command_says_where_the_history_is(folder, capsys):
    for version in versions_of("banks"):
        registers(folder, version, generated_de=json.dumps([bank("10", "EXMPDE00")]))
    assert main(["lab", "fetch", "banks"]) == 0
    assert (
        capsys.readouterr().out == "banks: 61 releases of schwifty are in shelflife-organic/banks.jsonl.gz\n"
    )
    assert main(["lab", "run", "organic-banks-enriched"]) == 1
    assert "rows of banks are to be drawn from 0" in capsys.readouterr().err
