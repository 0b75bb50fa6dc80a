"""The wheel holds all that the package needs, and its command runs where nothing else is installed."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest

from shelflife import __version__

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [built] = folder.glob("*.whl")
    return built


def test_the_wheel_has_every_file_of_the_package(wheel):
    tracked = subprocess.run(
        ["git", "ls-files", "src/shelflife"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    there = {name for name in zipfile.ZipFile(wheel).namelist() if not name.startswith("shelflife-")}
    assert {name.removeprefix("src/") for name in tracked} <= there
    assert [name for name in there if not (ROOT / "src" / name).exists()] == []


def test_the_command_runs_in_an_environment_that_has_nothing_else(wheel, tmp_path):
    """Nothing is asked of an index: what it needs is copied."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], check=True)
    [packages] = tmp_path.glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(packages)
    shutil.copytree(Path(msgspec.__file__).parent, packages / "msgspec")
    program = "import sys; from shelflife.cli import main; sys.exit(main())"
    command = [tmp_path / "bin" / "python", "-I", "-c", program]
    for arguments, expected in ((["--version"], f"shelflife {__version__}\n"), (["demo", "--help"], None)):
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert expected in (None, done.stdout)
