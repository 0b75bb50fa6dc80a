"""A server that forks its workers, before or after it loads the app: without a shared log each of them says so."""

import subprocess
import sys

import pytest

SHOP = """
from fastapi import FastAPI
from shelflife.integrations.fastapi import install
from shelflife.server import Provider

provider = Provider({"codes": {"growth": {"code": "SUMMER"}}}, log=LOG)
app = FastAPI()
install(app, provider)
"""

GUNICORN = """
import importlib
import os
import sys
from types import SimpleNamespace

import uvicorn


class Arbiter:
    # forks its workers from where it runs, and keeps its settings in `cfg`, as the real one does

    def __init__(self, workers, preload):
        self.cfg = SimpleNamespace(workers=workers)
        self.preload = preload

    def run(self):
        if self.preload:
            importlib.import_module("shop")
        children = [self.spawn_worker() for _ in range(self.cfg.workers)]
        for child in children:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    def spawn_worker(self):
        child = os.fork()
        if not child:
            shop = importlib.import_module("shop")
            server = uvicorn.Server(uvicorn.Config(shop.app, port=0, lifespan="on", log_level="warning"))
            server.should_exit = True  # it starts, and ends
            server.run()
            os._exit(0)
        return child


def main():
    if sys.argv[2] == "and it is used":
        importlib.import_module("shop").provider.be_ready()
    Arbiter(int(sys.argv[1]), sys.argv[2]).run()
"""


def told_by_workers(folder, workers, preload, log="None"):
    """What the processes of such a server say, until they have all started and ended."""
    (folder / "shop.py").write_text(SHOP.replace("LOG", log))
    (folder / "gunicorn.py").write_text(GUNICORN)
    command = [sys.executable, "-c", "import gunicorn; gunicorn.main()", str(workers), preload]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stderr.splitlines()


@pytest.mark.parametrize("preload", ["", "yes", "and it is used"])
def test_each_forked_worker_says_in_one_sentence_that_it_shares_no_log(tmp_path, preload):
    told = told_by_workers(tmp_path, 2, preload)
    assert len(told) == 2
    for sentence in told:
        assert (
            "one of 2 worker processes, and a reload reaches only one of them: give the provider a log"
            in sentence
        )


@pytest.mark.parametrize(("workers", "log"), [(1, "None"), (2, "'state.db'")])
def test_a_single_worker_and_those_that_share_a_log_have_nothing_to_say(tmp_path, workers, log):
    assert told_by_workers(tmp_path, workers, "yes", log) == []
