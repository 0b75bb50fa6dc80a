"""Processes that tests start, and end by their id whatever happens."""

import subprocess
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
