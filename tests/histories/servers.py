"""Real providers behind real apps, without sockets: workers that share a log, and what can happen to both.

What every state held is kept beside it, so that whoever judges a history need not ask the code under test.
"""

import asyncio
import json
import sqlite3
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import NamedTuple

import msgspec

from shelflife.client import Reply
from shelflife.client.event_stream import EventStream
from shelflife.server import Disclosure, Provider, Signing
from shelflife.server.errors import LogError
from shelflife.server.log import InProcessLog
from shelflife.server.sqlite_log import SqliteLog
from shelflife.server.state import new_log
from tests.client.wires import KEY
from tests.histories.shop import FIRST, OPERATION, REQUESTS, TABLES, Content, policies, says
from tests.open_contract import openly

ORIGIN = "http://shop:80"
VALID_S = 3600
WHO = {"authorization": "Bearer somebody"}
_SPARE_TURNS = 8


class AtOnce(ThreadPoolExecutor):
    """Runs what is handed to a thread right here: a history is the same each time that it is played."""

    def submit(self, function, /, *arguments, **options):
        done = Future()
        try:
            done.set_result(function(*arguments, **options))
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits
            done.set_exception(error)
        return done


class Gate:
    """What lies between one worker and the log: the worker hears of nothing by itself, and may lose the log."""

    def __init__(self, log):
        self.log = log
        self.is_reached = True
        self._is_ended = threading.Event()

    def __getattr__(self, verb):
        return getattr(self.log, verb)

    def append(self, *arguments):
        self._check()
        return self.log.append(*arguments)

    def read(self, number, digest):
        if self._is_ended.is_set():
            return ()
        self._check()
        return self.log.read(number, digest)

    def wait(self, timeout_s):
        self._is_ended.wait()

    def end(self):
        self._is_ended.set()

    def _check(self):
        if not self.is_reached:
            raise LogError("the log is out of reach")


class Worker:
    """One process: a provider, its app, and the code that it runs."""

    def __init__(self, log, declared, code, options):
        self.code = code
        self.gate = Gate(log)
        self.provider = Provider(declared.tables, declared.rules, log=self.gate, **options)
        for policy in policies(code):
            self.provider.policy(policy)
        self.app = openly(self._operation, self.provider, fixes=[OPERATION], operations=[OPERATION])
        self.provider.be_ready()
        self.listeners = []

    @property
    def state(self):
        return self.provider.registry.state

    async def _operation(self, scope, receive, send):
        message = await receive()
        self.provider.check(json.loads(message["body"]))
        body = b'{"success": true}'
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def end(self):
        for listener in list(self.listeners):
            listener.end()
        self.gate.end()
        self.provider.close()


class Served(NamedTuple):
    """A reply, and what only an onlooker knows of it."""

    reply: Reply
    made_at: int
    position: str
    """Where its worker was."""

    is_from_end: bool
    """Whether it was made from the end of the log that everybody uses, and could say so."""

    @property
    def tells_loss(self):
        """Whether it says that what was named is not in the log."""
        return any(b'"unknown":"%s"' % how in self.reply.body for how in (b"ahead", b"foreign"))


class Listener:
    """Somebody who hears the feed of a worker."""

    def __init__(self, servers, worker, at, who):
        self.at, self.worker = at, worker
        self.told = []
        """What has come and was not heard yet, each with the time and the worker's position."""

        self._servers, self._stream = servers, EventStream()
        self._is_gone = asyncio.Event()
        headers = {"accept": "text/event-stream", "contract-at": at, **who}
        scope = _scope("GET", "/contract/changes", headers)
        self._task = servers.loop.create_task(worker.app(scope, self._receive, self._send))
        worker.listeners.append(self)
        servers.pump()

    async def _receive(self):
        await self._is_gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        for told in self._stream.told(message.get("body", b"")):
            if told:
                self.told.append(self._servers.seen(self.worker, Reply(200, told)))

    def end(self):
        if self in self.worker.listeners:
            self.worker.listeners.remove(self)
            self._is_gone.set()
            self._servers.loop.run_until_complete(self._task)


class Servers:
    """One service: its log, its workers, and its past."""

    def __init__(self, setting, folder, loop, clock):
        self.setting, self.folder, self.loop, self.clock = setting, folder, loop, clock
        self.time = 0
        self._serial = 0
        self.who = WHO if setting.discloses else {}
        self._ended = {}
        self.contents = {}
        """What there is at each position, as the client knows it, and the versions there."""

        self.versions = {}
        """What each version of a table, or of the rules, holds."""

        self.is_whole = True
        """Whether the log has only ever grown."""

        self.content = self.declared = FIRST
        self.codes = {0}
        """All that have run."""

        self.copies = []
        """Copies of the log, with what was in it."""

        self.workers = []
        self.log = self._new_log()
        self._start()

    # Time and truth

    def serial(self):
        self._serial += 1
        return self._serial

    def says_now(self, request):
        return says(self.content, request)

    def with_any_code(self, content):
        """By versions nobody is told of a deploy: what any code says that has run may be taken for true."""
        codes = self.codes if self.setting.is_by_versions else [content.code]
        return [content._replace(code=code) for code in codes]

    def last_true_at(self, request, type, parameters):
        """When a fix was last what the end of the log says; -1 when it never was."""
        if any(says(one, request).get(type) == parameters for one in self.with_any_code(self.content)):
            return self.time
        return self._ended.get(_named(request, type, parameters), -1)

    def _note_end(self):
        """To be called before anything changes."""
        for request in REQUESTS:
            for content in self.with_any_code(self.content):
                for type, parameters in says(content, request).items():
                    self._ended[_named(request, type, parameters)] = self.time
        self.time += 1

    def content_at(self, versions):
        """What there is at these versions, as far as they are known."""
        named = {**versions.tables, "rules": versions.rules}
        held = dict(self.versions[part, version] for part, version in named.items() if version is not None)
        rules = held.pop("rules", ())
        return Content({table: held.get(table, {}) for table in TABLES}, rules, 0)

    def position_of(self, worker):
        return str(worker.provider.face(worker.state, self.who).position)

    def _note(self, worker):
        """The worker that has just changed something is at the end of the log."""
        self.end = self._note_content(worker, self.content)

    def _note_content(self, worker, content):
        """What there is where a worker is; tells where."""
        face = worker.provider.face(worker.state, self.who)
        versions = face.versions
        self.contents[str(face.position)] = content, versions
        for table, rows in content.tables.items():
            alias = self._alias(table)
            self.versions[alias, versions.table_versions[alias]] = table, rows
        self.versions["rules", versions.rules_version] = "rules", content.rules
        return str(face.position)

    def _alias(self, table):
        if not self.setting.discloses:
            return table
        disclosure = self._options["disclosure"]
        return disclosure.aliases(disclosure.client(self.who)).table(table)

    # The log and its workers

    @property
    def _options(self):
        options = {}
        if self.setting.has_keys:
            options["signing"] = Signing(signer=KEY, valid_s=VALID_S, clock=self.clock)
        if self.setting.discloses:
            options["disclosure"] = Disclosure(
                secret="a secret of more than 16 bytes",
                client=lambda headers: headers.get("authorization", ""),
                sees_diffs=lambda client: self.setting.discloses == "diffs",
            )
        return options

    def _new_log(self, state=None):
        if not self.setting.has_file:
            return InProcessLog(state)
        return SqliteLog(self.folder / f"log{self.serial()}.db")

    def _start(self, code=None):
        """Workers begin on the log; the first brings its policies."""
        code = self.content.code if code is None else code
        self.content = self.content._replace(code=code)
        for _ in range(self.setting.worker_count):
            self.workers.append(Worker(self.log, self.declared, code, self._options))
            self._note(self.workers[-1])

    def stop(self):
        for worker in self.workers:
            worker.end()
        self.workers.clear()

    def reload(self, worker, content):
        """A worker is told another content; it first takes in what there is."""
        if not self.is_writing(worker) or content == self.content._replace(code=content.code):
            return
        self._note_end()
        registry = worker.provider.registry
        for table, rows in content.tables.items():
            if rows != self.content.tables[table]:
                self.content = self.content.setting(table, rows)
                registry.reload_table(table, rows)
                self._note(worker)
        if content.rules != self.content.rules:
            self.content = self.content._replace(rules=content.rules)
            registry.reload_rules(content.rules)
            self._note(worker)

    def bump(self, worker, table):
        """Another version of the same rows."""
        if self.is_writing(worker):
            registry = worker.provider.registry
            registry.reload_table(table, self.content.tables[table], version=f"bumped-{self.serial()}")
            self._note(worker)

    def deploy(self, index, code):
        """One worker is started anew with other code, and says so in the log."""
        if self.workers[index].gate.is_reached:
            self._note_end()
            self.workers[index].end()
            self.content = self.content._replace(code=code)
            self.codes.add(code)
            self.workers[index] = Worker(self.log, self.declared, code, self._options)
            self._note(self.workers[index])

    def redeploy(self, index):
        """A worker is started anew with the code that the log has."""
        self.workers[index].end()
        self.workers[index] = Worker(self.log, self.declared, self.content.code, self._options)

    def restart(self, declared):
        """All workers end, and begin again on the same log. Rows that are declared otherwise are set anew."""
        self._note_end()
        self.stop()
        for table, rows in declared.tables.items():
            before, now = self.declared.tables[table], dict(self.content.tables[table])
            for key in {*before, *rows}:
                if key not in rows:
                    now.pop(key, None)
                elif before.get(key) != rows[key]:
                    now[key] = rows[key]
            self.content = self.content.setting(table, now)
        self.declared = declared
        if self.setting.has_file:
            self.log = SqliteLog(self.log.path)
        self._start()

    def begin_anew(self, declared):
        """All workers end, and the log is lost."""
        self._note_end()
        self.is_whole = False
        self.stop()
        self.declared = self.content = declared._replace(code=self.content.code)
        self.log = self._new_log()
        self._start()

    def is_writing(self, worker):
        """Whether a worker can change what is in the log that everybody uses."""
        return worker.gate.is_reached and worker.gate.log is self.log

    def split(self, declared):
        """The last worker begins a log of its own; or comes back, if it has one."""
        worker = self.workers[-1]
        worker.end()
        if worker.gate.log is self.log:
            code = self.content.code
            self.workers[-1] = Worker(self._new_log(), declared, code, self._options)
            self._note_content(self.workers[-1], declared._replace(code=code))
        else:
            self.redeploy(len(self.workers) - 1)

    def copy_log(self):
        worker = self.workers[0]
        if worker.gate.is_reached:
            worker.provider.registry.catch_up()
            kept = worker.state
            if self.setting.has_file:
                kept = self.folder / f"copy{self.serial()}.db"
                _copied(self.log.path, kept)
            self.copies.append((kept, self.content, self.declared))

    def restore(self, back):
        """All workers end. A copy of the log, of any time, takes its place under a new id."""
        if not self.copies:
            return
        self._note_end()
        self.is_whole = False
        kept, content, declared = self.copies[back % len(self.copies)]
        code = self.content.code
        self.stop()
        self.content, self.declared = content, declared
        if self.setting.has_file:
            path = self.folder / f"log{self.serial()}.db"
            _copied(kept, path)
            self.log = SqliteLog(path)
            self.log.renew()
        else:
            log_id, digest = new_log(kept.digest)
            renewed = msgspec.structs.replace(kept, log_id=log_id, digest=digest, tail=(), faces={})
            self.log = InProcessLog(renewed)
        self._start(code)

    def heal(self):
        """Everything works, and everybody is at the end of the log."""
        for index, worker in enumerate(self.workers):
            worker.gate.is_reached = True
            if worker.code != self.content.code or worker.gate.log is not self.log:
                self.redeploy(index)
            self.workers[index].provider.registry.catch_up()

    # What is said

    def serve(self, worker, method, path, headers, body=b""):
        """What a worker replies."""
        self.time += 1
        sent = []

        async def receive():
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message):
            sent.append(message)

        scope = _scope(method, path, {**headers, **self.who})
        self.loop.run_until_complete(worker.app(scope, receive, send))
        found = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
        body = b"".join(message.get("body", b"") for message in sent[1:])
        return self.seen(worker, Reply(sent[0]["status"], body, found))

    def seen(self, worker, reply):
        """A reply of a worker, as an onlooker sees it."""
        position = self.position_of(worker)
        can_say = worker.gate.is_reached and worker.code == self.content.code
        return Served(reply, self.time, position, can_say and position == self.end)

    def pump(self):
        """Let everything happen that waits for its turn, or for a look at the log, which is taken in a thread."""
        for _ in range(_SPARE_TURNS):
            self.loop.run_until_complete(asyncio.sleep(0))
            for thread in threading.enumerate():
                if thread.name == "shelflife-look":
                    thread.join()


def _named(request, type, parameters):
    return json.dumps([request, type, parameters], sort_keys=True)


def _scope(method, path, headers):
    path, _, query = path.partition("?")
    return {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }


def _copied(source, target):
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)
