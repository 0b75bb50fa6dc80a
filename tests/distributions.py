"""The wheel and the source distribution, as `make dist` builds them: `make test-dist` runs this. Each is installed into an empty environment,
without any extra, and the tutorials are followed there, from their first command on."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.tutorials import Reader, set_up_of

FOLDER = Path(__file__).parents[1]
LONGEST_S = 600


def run(*command, folder=None):
    done = subprocess.run(
        [*map(str, command)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    return done.returncode, done.stdout


def built(*arguments, folder=FOLDER):
    assert run(sys.executable, "-m", "hatchling", "build", *arguments, folder=folder)[0] == 0


def environment_with(folder, *requirements):
    """The programs of an environment that has these alone, and what they need."""
    assert run(sys.executable, "-m", "venv", "--without-pip", folder)[0] == 0
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--quiet"]
    status, said = run(*pip, "--disable-pip-version-check", *requirements)
    assert status == 0, said
    return folder / "bin"


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    built("--directory", folder)
    return folder


@pytest.fixture(scope="module")
def wheel(dist):
    [found] = dist.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory, wheel):
    """An environment with the wheel, and no extra."""
    return environment_with(tmp_path_factory.mktemp("plain") / "venv", wheel)


def test_the_command_is_there_without_any_extra(plain):
    assert run(plain / "shelflife", "--version") == (0, "shelflife 0.1.0\n")
    assert run(plain / "shelflife", "demo", "--help")[0] == 0
    status, said = run(plain / "shelflife", "serve", "acme")
    assert (status, said.count("\n")) == (1, 1)
    assert "pip install 'shelflife[server]'" in said


def test_a_memory_works_without_any_extra(plain, tmp_path):
    program = "from shelflife.client import Memory; print(Memory.at('m.db').recall('https://a.example', 'POST /x', {}))"
    assert run(plain / "python", "-c", program, folder=tmp_path) == (0, "[]\n")
    assert run(plain / "shelflife", "memory", "list", "m.db", folder=tmp_path)[0] == 0


def test_the_source_distribution_gives_the_same_wheel(dist, wheel, tmp_path):
    [source] = dist.glob("*.tar.gz")
    assert source.stat().st_size < 2_000_000
    assert run("tar", "-xzf", source, "-C", tmp_path)[0] == 0
    [unpacked] = tmp_path.iterdir()
    built("--target", "wheel", "--directory", tmp_path / "again", folder=unpacked)
    [again] = (tmp_path / "again").glob("*.whl")
    names = [set(zipfile.ZipFile(path).namelist()) for path in (wheel, again)]
    assert names[0] == names[1]


@pytest.mark.parametrize("tutorial", ["provider.md", "agent.md"])
def test_a_tutorial_can_be_followed_from_nothing(tutorial, wheel, tmp_path):
    [installs] = [command for command in set_up_of(tutorial) if command.startswith("pip install ")]
    requirements = installs.removeprefix("pip install ").replace("'", "").split()
    programs = environment_with(
        tmp_path / "venv", *(one.replace("/path/to/shelflife", str(wheel)) for one in requirements)
    )
    (tmp_path / "tutorial").mkdir()
    Reader(tmp_path / "tutorial", programs).follow(tutorial)
