"""Processes that tests start, and end by their id whatever happens."""

import subprocess
import time
from contextlib import contextmanager


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


def wait_until(is_so, timeout_s=30.0):
    """Look again and again until something is so in another process, which does not tell of it."""
    until = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)
