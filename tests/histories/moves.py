"""What can happen: moves of servers, of agents and of the network between them."""

import json
import sqlite3
from contextlib import closing

from shelflife.client import Exchange, Guard, Question
from shelflife.client.sending import Call, sending
from shelflife.contract.positions import AT_HEADER, Named
from tests.histories.clues import Asked, Clues
from tests.histories.servers import ORIGIN, VALID_S, Listener
from tests.histories.shop import CODES, FIRST, OPERATION, REQUESTS, RULES, TABLES, says
from tests.positions.histories import Broken

SERVERS = (
    *["reload"] * 5,
    *["reload_rules"] * 2,
    *["catch_up"] * 2,
    *["copy_log"] * 2,
    *["restore"] * 2,
    *["begin_anew"] * 2,
    "go_back",
    "bump",
    "lose_log",
    "deploy",
    "redeploy",
    "restart",
)
AGENTS = (*["exchange"] * 8, "refresh", "revalidate", "wait")
NETWORK = (*["serve"] * 5, *["deliver"] * 6, *["replay"] * 3, *["lose"] * 2, "cancel")
FEED = ("listen", "listen", *["hear"] * 4, "miss")


def verbs_of(setting):
    """What can happen where histories are played with these."""
    verbs = SERVERS + AGENTS + ("break_store",) * (3 if setting.has_flaky_store else 0)
    if setting.form != "mixed":  # a reply that names no position is believed by who knows none
        verbs += ("forget",)
    if not (setting.is_by_versions and setting.loses_answers):
        verbs += ("call",) * 4 + NETWORK
    if setting.has_feed:
        verbs += FEED
    if setting.splits:
        verbs += ("split",) * 3
    if setting.has_keys:
        verbs += ("expire",) * 2
    if setting.keeps_file:
        verbs += ("back_up", "set_back")
    return verbs


class Moves:
    """What each move does to a history; every move is the method of its name."""

    def _worker(self, move):
        workers = self.servers.workers
        return workers[move.worker % len(workers)]

    # Moves of servers

    def do_reload(self, move):
        """Something becomes something else, or is what it was."""
        content, key = self.servers.content, "ab"[move.key]
        self.servers.reload(self._worker(move), _changed(content, key, move.value, move.back))

    def do_reload_rules(self, move):
        rules = RULES[(move.key + 2 * (move.value % 2)) % len(RULES)]
        self.servers.reload(self._worker(move), self.servers.content._replace(rules=rules))

    def do_go_back(self, move):
        """A table is again what it was at some time."""
        pasts = list(self.servers.contents.values())
        past, table = pasts[move.back % len(pasts)][0], TABLES[move.value % len(TABLES)]
        content = self.servers.content
        self.servers.reload(self._worker(move), content.setting(table, past.tables[table]))

    def do_bump(self, move):
        self.servers.bump(self._worker(move), TABLES[move.value % len(TABLES)])

    def do_catch_up(self, move):
        worker = self._worker(move)
        if worker.gate.is_reached:
            worker.provider.registry.catch_up()

    def do_lose_log(self, move):
        gate = self._worker(move).gate
        gate.is_reached = not gate.is_reached

    def do_deploy(self, move):
        self.servers.deploy(move.worker % len(self.servers.workers), move.value % 3)

    def do_redeploy(self, move):
        self.servers.redeploy(move.worker % len(self.servers.workers))

    def do_restart(self, move):
        """With what was declared before, or with something otherwise."""
        declared = self.servers.declared
        if move.value:
            declared = _changed(declared, "ab"[move.key], move.value, move.back)
        self.servers.restart(declared)

    def do_begin_anew(self, move):
        """With what was declared, or with what is there now, or with something else."""
        declared = (FIRST, self.servers.content, _changed(FIRST, "ab"[move.key], 1, 0))[move.value]
        self.servers.begin_anew(declared)

    def do_split(self, move):
        content, key = self.servers.content, "ab"[move.key]
        self.servers.split(_changed(content, key, move.value, move.back))

    def do_copy_log(self, move):
        self.servers.copy_log()

    def do_restore(self, move):
        self.servers.restore(move.back)

    # Moves of agents

    def begin_call(self, who, request):
        call = Call(
            ORIGIN,
            OPERATION,
            request,
            guard=Guard(),
            conditional=self.setting.conditional,
            compact=self._is_compact(who),
        )
        return self.begin(who, sending(self.memories[who], call))

    def _is_compact(self, who):
        """In the mixed form one agent names positions, and the other does not once the memory knows one."""
        is_placed = self.knowledge.place.at is not None
        return self.setting.form == "compact" or (self.setting.form == "mixed" and not (who and is_placed))

    def do_call(self, move):
        """A request is under way."""
        self.pending.append(self.begin_call(move.who, _request(move)))

    def do_exchange(self, move):
        """A request, and all that is asked for it; questions may be lost."""
        loses = self.setting.loses_answers and move.back == 3
        self.finish(self.begin_call(move.who, _request(move)), self._worker(move), loses)

    def do_refresh(self, move):
        loses = self.setting.loses_answers and move.back == 3
        self.memories[move.who].refresh(ORIGIN, self.answering(move.who, self._worker(move), loses))
        self.settle()

    def do_revalidate(self, move):
        memory = self.memories[move.who]
        pending = self.begin(move.who, memory.revalidating(ORIGIN, OPERATION, _request(move), None))
        if pending is not None and move.value and self.setting.loses_answers:
            self.pending.append(pending)
        else:
            self.finish(pending, self._worker(move))

    def do_forget(self, move):
        if move.back == 1 and not self.stores[move.who].fails:  # seldom
            self.memories[move.who].forget(ORIGIN)
            self.clues = Clues(self.servers.serial())

    def do_break_store(self, move):
        """For one agent; or it works again, and a moment has passed."""
        store = self.stores[move.who]
        store.fails = "" if store.fails else ("write", "everything")[move.key]
        self.clock.now += 10

    def do_wait(self, move):
        self.clock.now += (2.0, 700.0, 20.0)[move.value]

    def do_expire(self, move):
        """The word of all keys ends that has been given so far."""
        self.clock.now += VALID_S + 1
        self.clues.note("expired", self.servers.time)

    def do_back_up(self, move):
        path = self.folder / "backup.db"
        with (
            closing(sqlite3.connect(self.folder / "memory.db")) as memory,
            closing(sqlite3.connect(path)) as copy,
        ):
            memory.backup(copy)
        self.backup = path, self.clues.copy()

    def do_set_back(self, move):
        if self.backup is not None:
            self.set_back()

    # Moves of the network

    def _pending(self, move):
        return self.pending[max(0, len(self.pending) - 1 - move.back % 4)] if self.pending else None

    def served_send(self, worker, step):
        """A worker replies to a request. If it carries it out, nothing in it may be stale there."""
        headers = {"content-type": "application/json", **step.headers}
        served = self.servers.serve(worker, "POST", "/x", headers, json.dumps(step.request).encode())
        if step.is_conditional and served.reply.status == 200:
            content = self.servers.contents[served.position][0]
            for entry in step.carried:
                if says(content, step.without).get(entry.type) != entry.parameters:
                    raise Broken(f"C: {entry.type} {entry.parameters} is carried out at {served.position}")
        return served

    def do_serve(self, move):
        pending = self._pending(move)
        if pending is not None:
            self.serve(pending, self._worker(move))

    def do_deliver(self, move):
        """The last or an earlier reply to something comes."""
        pending = self._pending(move)
        if pending is not None and pending.served:
            served = pending.served[move.value % len(pending.served)]
            if self.advance(pending, served) and not self.setting.loses_answers:
                self.finish(pending, self._worker(move))

    def do_lose(self, move):
        pending = self._pending(move)
        if pending is not None and (self.setting.loses_answers or not isinstance(pending.step, Question)):
            self.advance(pending, None)

    def do_cancel(self, move):
        """Whoever waits for something does so no longer."""
        pending = self._pending(move)
        if pending is not None:
            pending.steps.close()
            self.pending.remove(pending)

    def do_replay(self, move):
        """A reply of any time comes again, as that to its own request or to the last one."""
        if not self.replies:
            return
        step, asked, served = self.replies[move.back * 2 % len(self.replies)]
        at = step.headers.get(AT_HEADER)
        if move.value == 2:
            at = self.replies[-1][0].headers.get(AT_HEADER)
        memory = self.memories[move.who]
        exchange = Exchange(ORIGIN, OPERATION, step.request, served.reply, at)
        self.note_delivery(move.who, asked._replace(known_since=-1), served)
        pending = self.begin(move.who, memory.observing(exchange))
        self.settle()
        if pending is not None and move.key and self.setting.loses_answers:
            self.pending.append(pending)
        else:
            self.finish(pending, self._worker(move))

    # Moves of the feed

    def do_listen(self, move):
        self.do_miss(move)
        worker, memory = self._worker(move), self.memories[move.who]
        at = memory.contract_at(ORIGIN, asking=True)
        self.listener = Listener(self.servers, worker, at, self.servers.who)
        self.heard_since = self.clues.known_since

    def do_hear(self, move):
        """One event that has come is heard, by whoever listens."""
        listener = self.listener
        if listener is None or not listener.told:
            return
        served, memory = listener.told.pop(0), self.memories[0]
        mark = self.knowledge.place.mark
        self.note_delivery(0, _asked_by(listener, self.heard_since), served)
        self.heard_since = -1
        loses = self.setting.loses_answers and move.back == 3
        ask = self.answering(0, self._worker(move), loses)
        memory.hear(ORIGIN, served.reply.body, ask, at=listener.at)
        self.settle()
        if self.knowledge.place.mark != mark:
            self.do_miss(move)  # the server would go on from what the memory knew before

    def do_miss(self, move):
        """The connection is lost, and what has come by it."""
        if self.listener is not None:
            self.listener.end()
            self.listener = None


def _request(move):
    return REQUESTS[(move.key * 3 + move.value) % len(REQUESTS)]


def _changed(content, key, value, kind):
    """The content with one thing otherwise, maybe one that no policy looks at."""
    tables = content.tables
    codes, promos, sizes = dict(tables["codes"]), dict(tables["promos"]), dict(tables["sizes"])
    regions = dict(tables["regions"])
    row = codes.get(key, FIRST.tables["codes"][key])
    match kind:
        case 0 | 1:
            codes[key] = row | {"code": CODES[value]}
        case 2:
            codes[key] = row | {"note": value, "alt": CODES[value]}
        case 3:
            codes.pop(key) if key in codes else codes.setdefault(key, row)
        case 4:
            promos.pop(CODES[value]) if CODES[value] in promos else promos.setdefault(CODES[value], {})
        case 5:
            name = "amz"[value]
            regions.pop(name) if name in regions else regions.setdefault(name, {})
        case _:
            sizes[key] = {"size": value, "note": len(regions)}
    return content._replace(tables={"codes": codes, "promos": promos, "sizes": sizes, "regions": regions})


def _asked_by(listener, known_since):
    named = Named.from_header(listener.at)
    return Asked(named if known_since >= 0 else named._replace(nonce=""), False, False, known_since)
