"""What the plugin tells that runs tests in several processes."""

import os
import re
import signal
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PLAIN = """
import os, sys, threading, time, warnings
from pathlib import Path
import pytest

@pytest.fixture(scope="session")
def whole():
    yield
    Path(f"ended-{os.getpid()}").touch()

@pytest.fixture(scope="module")
def module(whole):
    yield
    assert not list(Path.cwd().glob(f"ended-{os.getpid()}"))
"""


@contextmanager
def started(folder, *options, **modules):
    for name, text in modules.items():
        (folder / f"test_{name}.py").write_text(PLAIN + textwrap.dedent(text))
    command = [sys.executable, "-m", "pytest", "-p", "tests.forked", "-c", os.devnull, "--rootdir", folder]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with subprocess.Popen(
        [*command, "--basetemp", folder / "temporary", "--workers=2", *options],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        yield process


def told(*options, **modules):
    with started(*options, **modules) as process:
        said = process.stdout.read()
    return process.returncode, said, re.sub(r" in [\d.]+s.*", "", said.splitlines()[-1])


ONE_OF_EACH = """
def test_passes(module, tmp_path):
    assert "worker-" in str(tmp_path)

def test_fails(module):
    print("said before")
    assert "apple" == "pear"

@pytest.mark.skip(reason="not now")
def test_is_skipped(): pass

def test_warns():
    warnings.warn("look out")

def test_passes_too(capfd):
    os.write(1, b"heard")
    assert capfd.readouterr().out == "heard"
"""


def test_all_is_told_as_by_one_process(tmp_path):
    status, said, last = told(tmp_path, "-q", "-rs", "--durations=3", one=ONE_OF_EACH, other=ONE_OF_EACH)
    assert (status, last) == (1, "2 failed, 6 passed, 2 skipped, 2 warnings")
    assert said.count("AssertionError: assert 'apple' == 'pear'") == 2
    assert said.count("UserWarning: look out") == said.count("said before\n") == 2
    assert "slowest 3 durations" in said
    assert len(list(tmp_path.glob("ended-*"))) == 2  # once in each worker


DIES = """
def test_before(): pass
def test_dies(): os.kill(os.getpid(), 9)
def test_after(): pass
"""


def test_a_worker_that_dies_has_failed_its_test_and_the_rest_of_the_module_is_run(tmp_path):
    status, said, last = told(tmp_path, "-q", one=DIES)
    assert (status, last) == (1, "1 failed, 2 passed")
    assert "worker 0 has ended with status -9, in test_one.py::test_dies" in said


def test_a_worker_that_gives_up_between_tests_is_an_error_of_the_run(tmp_path):
    status, said, _ = told(
        tmp_path, "-q", one="def test_exits(): pytest.exit('enough')\ndef test_after(): pass"
    )
    assert status == pytest.ExitCode.INTERNAL_ERROR
    assert "enough" in said


def test_what_was_started_for_all_and_does_not_end_well_is_an_error(tmp_path):
    whole = """
    @pytest.fixture(scope="session")
    def ends_badly():
        yield
        raise ValueError("not well")

    def test_passes(ends_badly): pass
    """
    status, said, last = told(tmp_path, "-q", one=whole)
    assert (status, last) == (1, "1 passed, 1 error")
    assert "ValueError: not well" in said


FAILS = "def test_fails(): assert 0\n"
LATER = "def test_later(): time.sleep(0.01)\n"


def test_after_as_many_failures_as_may_be_no_more_is_begun(tmp_path):
    many = "".join(LATER.replace("later", f"later_{number}") for number in range(500))
    status, said, last = told(tmp_path, "-q", "--maxfail=1", one=FAILS + many, other=many)
    assert status == 1
    assert "stopping after 1 failures" in said
    passed = re.fullmatch(r"1 failed(?:, (\d+) passed)?", last)
    assert passed
    assert int(passed[1] or 0) < 500


def test_ctrl_c_ends_all_and_what_they_have_started(tmp_path):
    waits = "def test_waits(whole): Path('waits').touch(); time.sleep(60)"
    with started(tmp_path, "-q", "-s", one=waits) as process:
        while not (tmp_path / "waits").exists():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        said = process.stdout.read()
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert "KeyboardInterrupt" in said
    assert len(list(tmp_path.glob("ended-*"))) == 1


def test_a_thread_that_no_worker_would_have_is_told(tmp_path):
    runs = """
    over = threading.Event()
    threading.Thread(target=over.wait, name="one of ours", daemon=True).start()
    def test_passes(): pass
    """
    status, said, _ = told(tmp_path, "-q", one=runs)
    assert status == pytest.ExitCode.INTERNAL_ERROR
    assert "one of ours" in said


def test_a_module_that_cannot_be_imported_ends_the_run(tmp_path):
    status, _, last = told(tmp_path, "-q", one="import nothing_of_the_kind", other=LATER)
    assert (status, last) == (pytest.ExitCode.INTERRUPTED, "1 error")
