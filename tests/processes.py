"""Processes that tests start, and end by their id whatever happens."""

import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def started(command, **options):
    """A process for as long as the block runs."""
    process = subprocess.Popen([str(part) for part in command], **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr, process.stdin):
            if stream is not None:
                stream.close()


def wait_until(is_so, timeout_s=120.0):
    """Look again and again until something is so in another process, which does not tell of it."""
    until = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


def descendants_of(pid):
    """The ids of the processes that a process has started, and of those that these have."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[int(path.parent.name)] = int(parent)
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def is_running(pid):
    """Whether there is such a process that has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
