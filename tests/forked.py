"""Runs the tests in several processes, forked off the one that has collected them: `--workers=5`.

What is imported and collected is there once, for all. The one that has collected hands out the units of `tests/distribution.py`
in their order, and tells what it hears as if it had run the tests itself.

A test whose worker dies has failed, and another worker goes on with the rest of its unit.
"""

import gc
import os
import signal
import tempfile
import threading
import time
import traceback
import warnings
from collections import deque
from contextlib import suppress
from itertools import count
from multiprocessing import Pipe
from multiprocessing.connection import wait

import pytest
from _pytest.unraisableexception import collect_unraisable

from tests.distribution import unit_of

_LONGEST_END_S = 20.0


def pytest_addoption(parser):
    parser.addoption("--workers", type=int, default=0, metavar="N", help="run the tests in N processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    option = session.config.option
    if not option.workers or option.collectonly or option.usepdb:
        return None
    if session.testsfailed and not option.continue_on_collection_errors:
        raise session.Interrupted("errors during collection")
    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    assert not others, f"no worker would have these threads, which run once all is collected: {others}"
    _Run(session).to_the_end()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


class _Worker:
    """A worker as the one that hands out sees it."""

    def __init__(self, number, pid, connection):
        self.number, self.pid, self.connection = number, pid, connection
        self.unit = deque()
        self.running = self.broken = None


class _Run:
    """What is left to hand out, and to whom."""

    def __init__(self, session):
        self._session, self._hook = session, session.config.hook
        units = {}
        for index, item in enumerate(session.items):
            units.setdefault(unit_of(item.nodeid), deque()).append(index)
        self._units = deque(units.values())
        self._workers, self._numbers = {}, count()
        self._folder = session.config._tmp_path_factory.getbasetemp()
        if reporter := session.config.pluginmanager.get_plugin("terminalreporter"):
            reporter.showfspath = False  # files take turns
            reporter.flush()

    def to_the_end(self):
        try:
            for _ in range(min(self._session.config.option.workers, len(self._units))):
                self._start_one()
            while self._workers:
                for connection in wait(list(self._workers)):
                    self._hear(self._workers[connection])
        finally:
            self._end_all()

    def _start_one(self):
        number = next(self._numbers)
        connection, its = Pipe()
        # What a test forks must not keep a connection open: where that ends, one side knows that the other is gone.
        os.register_at_fork(after_in_child=connection.close)
        pid = os.fork()
        if not pid:
            os.register_at_fork(after_in_child=its.close)
            _work(self._session, its, self._folder / f"worker-{number}")
        its.close()
        self._workers[connection] = _Worker(number, pid, connection)
        self._give(self._workers[connection])

    @property
    def _is_to_stop(self):
        return self._session.shouldfail or self._session.shouldstop

    def _give(self, worker):
        worker.unit = self._units.popleft() if self._units and not self._is_to_stop else deque()
        with suppress(BrokenPipeError):  # of its end is heard next
            worker.connection.send(list(worker.unit))

    def _hear(self, worker):
        try:
            kind, told = worker.connection.recv()
        except (EOFError, ConnectionResetError):
            self._has_ended(worker)
            return
        if kind == "runs":
            worker.running = told
            if told is not None and worker.unit:
                worker.unit.popleft()
        elif kind == "asks":
            self._give(worker)
        elif kind == "report":
            self._tell(self._hook.pytest_report_from_serializable(config=self._session.config, data=told))
        elif kind == "warning":
            _tell_warning(self._hook, **told)
        else:
            worker.broken = told

    def _tell(self, report):
        went_on = not self._is_to_stop
        self._hook.pytest_runtest_logreport(report=report)
        if went_on and self._is_to_stop:
            for worker in self._workers.values():
                self._give(worker)

    def _has_ended(self, worker):
        del self._workers[worker.connection]
        worker.connection.close()
        status = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
        how = f"worker {worker.number} has ended with status {status}"
        if worker.broken or (status and worker.running is None):
            raise RuntimeError(f"{how}, in no test\n{worker.broken or ''}")
        if worker.running is not None:
            item = self._session.items[worker.running]
            what = {
                "keywords": {},
                "outcome": "failed",
                "longrepr": f"{how}, in {item.nodeid}",
                "when": "call",
            }
            self._tell(pytest.TestReport(item.nodeid, item.location, **what))
            if worker.unit:
                self._units.appendleft(worker.unit)
            if self._units and not self._is_to_stop:
                self._start_one()

    def _end_all(self):
        """Those that are still there when something has gone wrong, or at Ctrl-C."""
        for worker in self._workers.values():
            os.kill(worker.pid, signal.SIGINT)
            worker.connection.close()
        until = time.monotonic() + _LONGEST_END_S
        for worker in self._workers.values():
            while not os.waitpid(worker.pid, os.WNOHANG)[0]:
                if time.monotonic() > until:
                    os.kill(worker.pid, signal.SIGKILL)
                time.sleep(0.01)


def _tell_warning(hook, name, text, filename, lineno, **where):
    category = type(name, (Warning,), {})  # its module may be one that only the worker has imported
    hook.pytest_warning_recorded.call_historic(
        kwargs={"warning_message": warnings.WarningMessage(text, category, filename, lineno), **where}
    )


class _Telling:
    """What a worker's pytest tells instead of writing it."""

    def __init__(self, config):
        self._config, self.connection = config, None

    def pytest_runtest_logreport(self, report):
        told = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self.connection.send(("report", told))

    def pytest_warning_recorded(self, warning_message, when, nodeid, location):
        if self.connection is None:  # what was recorded before is known
            return
        told = {"name": warning_message.category.__name__, "text": str(warning_message.message)}
        told |= {"filename": warning_message.filename, "lineno": warning_message.lineno}
        self.connection.send(("warning", told | {"when": when, "nodeid": nodeid, "location": location}))


def _work(session, connection, folder):
    """Run what is given, in a process of its own, which ends here."""
    status = 1
    try:
        _settle(session.config, connection, folder)
        _run_what_is_given(session, connection)
        status = 0
    except BaseException:  # noqa: BLE001 - it is told, and nobody else can
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # one is enough
        with suppress(OSError):
            connection.send(("broken", traceback.format_exc()))
        session._setupstate.teardown_exact(None)
    finally:
        os._exit(status)  # libraries wait for their threads where Python is taken down, some for seconds


def _settle(config, connection, folder):
    """Share nothing with the other workers that one of them changes."""
    folder.mkdir(mode=0o700)
    config._tmp_path_factory._basetemp = folder
    if config.option.capture == "fd":
        captured = config.pluginmanager.get_plugin("capturemanager")._global_capturing
        for one in (captured.out, captured.err):  # some libraries hold on to these from their import on
            with tempfile.TemporaryFile() as its_own:
                os.dup2(its_own.fileno(), one.tmpfile.fileno(), inheritable=False)
    if reporter := config.pluginmanager.get_plugin("terminalreporter"):
        config.pluginmanager.unregister(reporter)
    telling = _Telling(config)
    config.pluginmanager.register(telling)
    telling.connection = connection


def _run_what_is_given(session, connection):
    item = None
    while (unit := connection.recv()) and not (session.shouldfail or session.shouldstop):
        for index, following in zip(unit, [*unit[1:], None], strict=True):
            if connection.poll() or session.shouldfail or session.shouldstop:
                break
            item = session.items[index]
            # Whatever comes after a unit, what is there for the whole session stays.
            after = session if following is None else session.items[following]
            connection.send(("runs", index))
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            connection.send(("runs", None))
        connection.send(("asks", None))
    if item:
        ended = pytest.CallInfo.from_call(lambda: _end_session(session), when="teardown")
        if ended.excinfo:
            report = pytest.TestReport.from_item_and_call(item, ended)
            session.config.hook.pytest_runtest_logreport(report=report)


def _end_session(session):
    session._setupstate.teardown_exact(None)
    gc.collect()
    collect_unraisable(session.config)
