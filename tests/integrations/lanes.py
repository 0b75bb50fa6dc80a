"""Agents and workers with a wire between them, on which anything can be held, delayed, repeated, reordered and lost.

All of it is real but the wire: apps with their providers, logs in files, memories, and the transports that people use.
"""

import asyncio
import functools
import itertools
import json
import shutil
import threading
from collections.abc import Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import NamedTuple

import httpx
import httpx2

from shelflife.client import Guard, InProcessStore, Memory, SqliteStore
from shelflife.client.events import Evicted, LogLost
from shelflife.contract.positions import AT_HEADER
from shelflife.server.sqlite_log import SqliteLog
from tests.client.agents import Clock
from tests.integrations.followers import position_of, set_code, shop, shop_app
from tests.integrations.transports import async_memory_transport

ADDRESS = "http://shop"
OPERATION = "POST /s"
CODES = {"a": "A0", "b": "B0"}
NONE = "none"
"""A plan that wants no code: a request for it teaches nothing."""

LIBRARIES = {"httpx2": httpx2, "httpx": httpx}
LONGEST_STORY_S = 120


def played(story):
    """A test of a story in which requests, replies and questions are under way at the same time."""

    @functools.wraps(story)
    def test(*arguments, **options):
        async def in_time():
            async with asyncio.timeout(LONGEST_STORY_S):
                await story(*arguments, **options)

        asyncio.run(in_time())

    return test


class WatchedLog:
    """The log in a file. It notes how it is used, and whoever follows it hears nothing: he lags until he looks himself."""

    def __init__(self, path):
        self._log = SqliteLog(path)
        self._is_over = threading.Event()
        self.read_count = 0
        self.wait_count = 0
        self._is_answering = threading.Event()
        self._is_answering.set()
        self.open, self.append, self.declared = self._log.open, self._log.append, self._log.declared
        self.note, self.workers = self._log.note, self._log.workers

    def read(self, number, digest):
        self.read_count += 1
        self._is_answering.wait()
        return self._log.read(number, digest)

    def wait(self, timeout_s):
        self.wait_count += 1
        self._is_over.wait()

    def close(self):
        self._log.close()

    def let_go(self):
        """Of whoever follows."""
        self._is_over.set()

    @contextmanager
    def not_answering(self):
        """For as long as the block runs, whoever reads waits."""
        self._is_answering.clear()
        try:
            yield
        finally:
            self._is_answering.set()


class Worker:
    """A process that serves the shop; without the path of a log, with one of its own that is gone when it ends."""

    def __init__(self, path=None, codes=None, **options):
        rows = {plan: {"code": code} for plan, code in (codes or CODES).items()}
        self.log = None if path is None else WatchedLog(path)
        self.provider = shop(rows, log=self.log, **{"stale_for_s": LONGEST_STORY_S, **options})
        self.app = shop_app(self.provider)
        self.provider.be_ready()

    @property
    def position(self):
        return position_of(self.provider)

    def sets(self, **codes):
        for plan, code in codes.items():
            set_code(self.provider, plan, code)

    def close(self):
        if self.log is not None:
            self.log.let_go()
        self.provider.close()


class Said(NamedTuple):
    """A reply as it was made."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes

    @property
    def at(self):
        """What it says of its position."""
        return json.loads(self.body).get("at")


class Parcel:
    """A request or a question on the wire, and the reply to it."""

    def __init__(self, request):
        self.method, self.path, self.url = request.method, request.url.path, str(request.url)
        self.headers, self.body = request.headers.multi_items(), request.content
        self.said = None
        self.sending = None
        """The task of whoever has sent it."""
        self._arriving = asyncio.get_running_loop().create_future()

    @property
    def is_question(self):
        return self.path.startswith("/contract/")

    @property
    def promo(self):
        """The code that a request carries."""
        return json.loads(self.body).get("promo")

    @property
    def at(self):
        """What it names."""
        return dict(self.headers)[AT_HEADER.lower()]

    async def served_by(self, worker):
        """The reply is made, and does not arrive yet."""
        served = httpx2.Request(self.method, self.url, headers=self.headers, content=self.body)
        response = await httpx2.ASGITransport(worker.app).handle_async_request(served)
        self.said = Said(response.status_code, response.headers.multi_items(), await response.aread())
        return self.said

    def deliver(self, said=None):
        """A reply arrives: its own, or another one in its place."""
        self._arriving.set_result(said or self.said)

    def lose(self):
        self._arriving.set_exception(ConnectionError("lost on its way"))

    async def arrives(self, said=None):
        """A reply arrives, and whoever has waited for it is done with it, questions and all."""
        self.deliver(said)
        await self.sending

    async def arrived(self):
        return await self._arriving


class Wire:
    """What lies between agents and workers. What is not held is served at once, by the next worker in turn."""

    def __init__(self):
        self.parcels = []
        self.questions = asyncio.Queue()
        """Those that are held."""
        self.treats_questions = "at once"
        """Or `held`, or `lost`, or a reply that each of them gets from somebody in between."""
        self._held = []
        self._workers = itertools.cycle(())

    def goes_to(self, *workers):
        """From now on these serve, one after another."""
        self._workers = itertools.cycle(workers)

    def hold_next(self):
        """The next request, once it is under way."""
        self._held.append(asyncio.get_running_loop().create_future())
        return self._held[-1]

    async def carried(self, request):
        await request.aread()
        parcel = Parcel(request)
        self.parcels.append(parcel)
        if parcel.is_question and self.treats_questions != "at once":
            if self.treats_questions == "held":
                self.questions.put_nowait(parcel)
            elif self.treats_questions == "lost":
                parcel.lose()
            else:
                parcel.deliver(self.treats_questions)
        elif not parcel.is_question and self._held:
            self._held.pop(0).set_result(parcel)
        else:
            await parcel.served_by(next(self._workers))
            parcel.deliver()
        return await parcel.arrived()


def lane_of(wire, library):
    """A transport over the wire, for clients of a library."""

    class Lane(library.AsyncBaseTransport):
        async def handle_async_request(self, request):
            status, headers, body = await wire.carried(request)
            return library.Response(status, headers=headers, content=body)

    return Lane()


class Buyer:
    """An agent that asks for plans. Its memory watches, and puts codes into requests where it may."""

    def __init__(self, wire, library, store, clock, **options):
        self.wire = wire
        self.events = []
        self.memory = Memory(
            store, on_event=self.events.append, clock=clock, **{"most_evictions": None, **options}
        )
        self._clients = {
            is_guarded: library.AsyncClient(
                base_url=ADDRESS,
                transport=async_memory_transport(
                    self.memory, lane_of(wire, library), guard=Guard() if is_guarded else None
                ),
            )
            for is_guarded in (False, True)
        }
        self.root = self.memory.root_of(f"{ADDRESS}/s")

    async def calls(self, plan, *, is_guarded=False):
        """Ask for a plan; gives the reply as it came over the wire."""
        first = len(self.wire.parcels)
        await self._clients[is_guarded].post("/s", json={"plan": plan})
        return next(parcel for parcel in self.wire.parcels[first:] if not parcel.is_question)

    async def uses(self, plan):
        """The code that the memory puts into a request, having asked about it where it must."""
        return (await self.calls(plan, is_guarded=True)).promo

    async def sends(self, plan):
        """Ask for a plan; the request is under way, and the agent waits."""
        holding = self.wire.hold_next()
        sending = asyncio.create_task(self._clients[False].post("/s", json={"plan": plan}))
        parcel = await holding
        parcel.sending = sending
        return parcel

    async def gets_again(self, said, plan):
        """Ask for a plan, and get a reply of earlier."""
        parcel = await self.sends(plan)
        await parcel.arrives(said)

    async def learns(self, *plans):
        """Ask for plans, and remember their codes; what happens from then on is all that the events tell."""
        for plan in plans:
            await self.calls(plan)
            assert len(self.recalls(plan)) == 1
        self.events.clear()

    def recalls(self, plan):
        return [
            entry.parameters["promo"] for entry in self.memory.recall(self.root, OPERATION, {"plan": plan})
        ]

    @property
    def position(self):
        """Where its memory stands; None when it is not sure."""
        return self.memory.position(self.root)

    @property
    def held(self):
        """The codes that are in its memory, whether they may be used or not."""
        return sorted(entry.parameters["promo"] for entry in self.memory.store.entries())

    @property
    def is_in_doubt(self):
        return bool(self.memory.store.known(self.root).knowledge.place.doubt)

    @property
    def evicted(self):
        """The codes that were dropped, in order, each with the reason."""
        return [(one.entry.parameters["promo"], one.reason.name) for one in self.of(Evicted)]

    @property
    def losses(self):
        """Of each log that was found to be lost, whether several answer."""
        return [one.several for one in self.of(LogLost)]

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


class Lanes:
    """A place for stories: logs and memories in one folder, and a clock that goes only when it is told to."""

    def __init__(self, folder, library="httpx2", store="in process"):
        self.folder = folder
        self.clock = Clock()
        self._library = LIBRARIES[library]
        self._store = InProcessStore() if store == "in process" else None
        self._workers = []
        self._open = ExitStack()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        with self._open:
            for worker in self._workers:
                worker.close()

    def worker(self, log="log.db", **options):
        self._workers.append(Worker(None if log is None else self.folder / log, **options))
        return self._workers[-1]

    def buyer(self, *workers, wire=None, **options):
        """An agent; all of them share one memory. What it sends goes to these workers."""
        wire = wire or Wire()
        if workers:
            wire.goes_to(*workers)
        store = self._store or self._open.enter_context(closing(SqliteStore(self.folder / "memory.db")))
        return Buyer(wire, self._library, store, self.clock, **options)

    def backed_up(self, worker, log="log.db", **options):
        """Copy a log while nobody uses it, as the documents say; the worker that goes on with it."""
        worker.close()
        shutil.copy(self.folder / log, self.folder / f"copy of {log}")
        return self.worker(log, **options)

    def restored(self, worker, log="log.db", **options):
        """Put the copy in the place of a log that nobody uses any more; the worker that goes on with it."""
        worker.close()
        for leftover in self.folder.glob(f"{log}-*"):
            leftover.unlink()
        shutil.copy(self.folder / f"copy of {log}", self.folder / log)
        return self.worker(log, **options)
