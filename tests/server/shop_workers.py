"""Processes of one shop over one log."""

from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2

WORKER = Path(__file__).with_name("shop_worker.py").read_text("utf-8")
ADMIN = {"Authorization": "Bearer t"}
ORDER = {"plan": "growth"}


class Worker:
    """A process that was started, and a connection to it."""

    def __init__(self, process, release):
        self.process, self.release = process, release
        address = process.stdout.readline().strip()
        assert address
        self.client = httpx2.Client(base_url=address, trust_env=False, timeout=60)

    def reload(self, **change):
        return self.client.post("/admin/reload-table", json=change, headers=ADMIN)

    def rows(self):
        return self.client.get("/rows").json()

    def refusal(self):
        """What it says to an order without a code."""
        return self.client.post("/orders", json=ORDER, headers={"Contract-At": "*"}).json()

    def end(self):
        self.client.close()
        self.process.stdin.close()
        self.process.wait()

    def kill(self):
        self.process.kill()
        self.process.wait()


@contextmanager
def shop_workers(nursery, path):
    """Gives what starts workers, at the same time if there are several, until the block ends."""
    with ExitStack() as stack:

        def start(*releases, code="SUMMER"):
            processes = [
                stack.enter_context(nursery.forked(WORKER, path, release, code)) for release in releases
            ]
            for process in processes:
                assert process.stdout.readline() == "loaded\n"
            for process in processes:
                process.stdin.write("\n")
                process.stdin.flush()
            workers = [Worker(*started) for started in zip(processes, releases, strict=True)]
            for worker in workers:
                stack.callback(worker.client.close)
            return workers

        yield start
