"""Taking in what a server says: the one place where a memory decides, asks and writes."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import assert_never
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import msgspec

from shelflife.client.asking import LEAST_FAILURE, Exchange, Fields, Question, Reply, Steps
from shelflife.client.entries import Entry, Knowledge, Root, below_root, is_below
from shelflife.client.events import Distrusted, Event, Ignored, LogLost
from shelflife.client.foresight import Lookout
from shelflife.client.pauses import Pauses
from shelflife.client.positions import (
    Adopted,
    Current,
    Doubted,
    Forward,
    OldNews,
    Place,
    Verdict,
    judged,
    new_mark,
)
from shelflife.client.reading import OF_NO_STATE, Contract, read_account, read_contract, read_state
from shelflife.client.shelf import MOST_TRIES, SPLIT_S, Dealing, Shelf
from shelflife.client.steps import (
    Answer,
    Disposal,
    Distrust,
    New,
    Told,
    Unmoved,
    answered,
    body_of,
    dispose,
    follow,
)
from shelflife.client.stores import Known, StoreError, Write
from shelflife.client.writing import Writing
from shelflife.contract import AskFixes, BadMessage
from shelflife.contract.names import shown
from shelflife.contract.positions import AT_HEADER, NOWHERE, ROOT_HEADER, Account
from shelflife.contract.preconditions import verdict_in
from shelflife.contract.versions import Versions
from shelflife.forks import Forked, mind_forks

__all__ = ["NOTHING", "About", "Observing"]

_log = logging.getLogger("shelflife.memory")

_MOST_ASKED = 3
"""So often at most is a server asked about one reply: others may raise doubts meanwhile."""

_PAUSES = Pauses(1.0, 300.0)
_MOST_LOCKS = 1_000
_MOST_LEFT = 8
_MOST_LOSSES = 3
"""When a log is lost once more within the time in which one may come back, several answer."""

_NO_SUCH_ENDPOINT = (400, 404, 405)
_NOT_TOLD = (401, 403, 404, 405)
_NO_CONTRACT = "a reply has said that a contract lives there, and none answers"
_OF_NO_STATE = "the reply suggests something, and does not say of which state of the server that is"
_encode = msgspec.json.Encoder().encode
_TOO_MANY = "too many others are writing to the memory at the same time"


class About(msgspec.Struct, frozen=True):
    """Of a reply that is the answer to a revalidation: the suspects that were asked about, and what was known before."""

    suspects: Sequence[Entry] = ()
    knowledge: Knowledge | None = None
    """As long as that is all that is known, nothing is later than the answer."""


NOTHING = About()


class _Taken(msgspec.Struct, frozen=True):
    """What was made of a position that a server has named, and where the memory stands since."""

    verdict: Verdict
    place: Place


_Dealing = Callable[[list[Event], bool], Steps[None]]
"""Deals with something that a server has said, notes what has happened, and is told whether the server was in doubt."""


class _BackOff:
    """When a server that does not answer questions may be asked again: after a second, then ever later."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._silent: dict[Root, tuple[float, float]] = {}

    def may_ask(self, root: Root) -> bool:
        """Whether enough time has passed."""
        since, pause_s = self._silent.get(root, (0.0, 0.0))
        return not 0 <= self._clock() - since < pause_s

    def note(self, root: Root, *, has_answered: bool) -> None:
        """It was asked."""
        if has_answered:
            self._silent.pop(root, None)
        else:
            _, pause_s = self._silent.get(root, (0.0, 0.0))
            self._silent[root] = self._clock(), _PAUSES.after(pause_s)


class Observing(Forked):
    """How one memory takes things in. Threads may share it."""

    def __init__(
        self,
        shelf: Shelf,
        writing: Writing,
        clock: Callable[[], float],
        lookout: Lookout | None = None,
    ) -> None:
        self._shelf = shelf
        self._writing = writing
        self._clock = clock
        self._lookout = lookout
        self._back_off = _BackOff(clock)
        self._begin_locks()
        mind_forks(self)

    def _begin_locks(self) -> None:
        self._locks: WeakValueDictionary[Root, threading.Lock] = WeakValueDictionary()
        """One for each root: a store may take long to write one, and nobody waits for another server's. Replies may send an agent to ever new
        servers, so one that is in no use goes, but for those that were made last."""
        self._last_made: deque[threading.Lock] = deque(maxlen=_MOST_LOCKS)
        self._making = threading.Lock()

    def after_fork_in_child(self) -> None:
        """A lock may have been held by a thread that is not there any more. What the store has is whole."""
        self._begin_locks()

    def _alone_with(self, root: Root) -> threading.Lock:
        lock = self._locks.get(root)
        if lock is None:
            with self._making:
                lock = self._locks.setdefault(root, threading.Lock())
                self._last_made.append(lock)
        return lock

    def observing(
        self, exchange: Exchange, about: About = NOTHING, *, is_answer: bool = False
    ) -> Steps[list[Event]]:
        """What a reply comes to. It is the answer about something, where that was asked for."""
        shelf, reply = self._shelf, exchange.reply
        events: list[Event] = []
        if exchange.conditional and _is_unjudged(reply):
            events = shelf.telling.tell_unjudged(exchange)
        try:
            contract = read_contract(reply, exchange.request, exchange.operation)
            rooted = (
                exchange
                if contract is None or exchange.path is None
                else self._rooted(exchange, exchange.path)
            )
        except BadMessage as error:
            if shelf.knows_of(exchange.root):
                shelf.doubts.add(exchange.root)
            return events + shelf.telling.tell([Ignored(exchange.root, str(error))])
        if contract is None:
            if self._lookout is not None and exchange.at is not None:
                self._note_silence(exchange, self._lookout)
            return events
        if contract is OF_NO_STATE and not shelf.is_placed(rooted.root):
            return events + shelf.telling.tell([Ignored(rooted.root, _OF_NO_STATE)])
        events += yield from self._heeding(rooted, contract, about)
        is_stale = exchange.conditional and verdict_in(reply.headers) == "failed"
        if contract.suggestions and not is_answer and not is_stale:
            shelf.telling.note_refused(exchange, contract.suggestions)
        if contract.account is None and contract.suggestions and not is_answer:
            events += yield from self._taking_up(rooted, contract)
        if len(rooted.root) < len(exchange.root):
            events += yield from self._looking_for(exchange.root)
        return events

    def asking_about(
        self,
        root: Root,
        operation: str,
        request: Fields,
        about: About = NOTHING,
        asked_as: str | None = None,
    ) -> Steps[list[Event] | None]:
        """Ask what a server would suggest for a request, which it does not carry out. None when it does not tell that of this operation."""
        knowledge = self._shelf.knowledge(root)
        headers = {}
        if knowledge is not None and knowledge.place.at is not None:
            headers[AT_HEADER] = knowledge.place.new_header()
        asked = AskFixes(operation=below_root(root, asked_as or operation), request=dict(request))
        reply = yield Question(f"{root}/contract/fixes", _encode(asked), headers)
        body = body_of(reply)
        if body is None:
            return None if reply is not None and reply.status in _NOT_TOLD else []
        told = Exchange.told(root, operation, request, body)._replace(at=headers.get(AT_HEADER))
        return (yield from self.observing(told, about, is_answer=True))

    def _taking_up(self, exchange: Exchange, contract: Contract) -> Steps[list[Event]]:
        """What a reply teaches that has only versions, of a server whose position is known, if it is of the state there.

        That it has the same versions does not say that its policies are those of the log. So the server is asked by the position. Where it
        does not tell the fixes of this operation, they are learned as of a server that has only versions.
        """
        root, happened = exchange.root, list[Event]()
        try:
            if self._position_of(root, contract) is None:
                return []
            events = yield from self.asking_about(root, exchange.operation, exchange.request)
            at = self._position_of(root, contract)
            if events is not None or at is None:
                return events or []
            account = Account(to=at)
            self._taken(exchange, msgspec.structs.replace(contract, account=account), account, None, happened)
        except StoreError as error:
            self._shelf.telling.store_failed(error, "write")
        return self._shelf.telling.tell(happened)

    def _position_of(self, root: Root, contract: Contract) -> str | None:
        """The position that is known of a server, if what a reply says in versions is the state there; None in doubt, and elsewhere."""
        knowledge, name = self._shelf.knowing(root), contract.state_name
        is_doubted = bool(knowledge.place.doubt) or root in self._shelf.doubts
        if is_doubted or name is None or name != knowledge.state_tag:
            return None
        return knowledge.place.at if self._shelf.word_about(root).is_its_own else None

    def _rooted(self, exchange: Exchange, path: str) -> Exchange:
        """The exchange with the contract that its reply is of. `BadMessage` when the reply speaks for another one."""
        told = exchange.reply.headers.get(ROOT_HEADER.lower(), "")
        try:
            root = urlsplit(told).path.rstrip("/")
        except ValueError:  # of a host that is none
            raise BadMessage(f"{ROOT_HEADER} is {shown(told)}, which is no address") from None
        if root and not is_below(path, root):
            raise BadMessage(f"the reply is of a contract at {shown(root)}, which the request was not for")
        return exchange._replace(root=self._shelf.root_told(exchange.root, path, root))

    def _looking_for(self, root: Root) -> Steps[list[Event]]:
        """Forget a root where no contract lives, or none any more. A reply had told of it, and one to a request below it is of another.

        What answers there may be a contract all the same, as one can live below another. Silence says nothing.
        """
        if not self._back_off.may_ask(root):
            return []
        reply = yield Question(f"{root}/contract/changes?from={NOWHERE}")
        self._back_off.note(root, has_answered=reply is not None)
        is_another = reply is not None and reply.status in (200, *_NO_SUCH_ENDPOINT)
        if not is_another or answered(reply, read_account) is not None:
            return []
        is_news = self._shelf.note_root(root, lives=False)
        return self._shelf.telling.tell([Ignored(root, _NO_CONTRACT)] if is_news else [])

    def _heeding(self, exchange: Exchange, contract: Contract, about: About) -> Steps[list[Event]]:
        """What follows from a contract, whatever comes of asking about it."""
        root, shelf = exchange.root, self._shelf
        is_placed = False
        if (
            contract.account is None or not contract.suggestions
        ):  # else there is something to learn, by its position
            try:
                known, knowledge = shelf.on_record(root, is_guess=True)
                is_known = about is NOTHING and self._is_known(root, contract, knowledge)
                # whatever else follows is settled by a write, or by asking the server
                is_to_be_so = is_known or (contract.account is None and knowledge.place.at is not None)
                if is_to_be_so and not shelf.is_still(root, known):
                    knowledge = shelf.knowing(root)
                    is_known = about is NOTHING and self._is_known(root, contract, knowledge)
                if is_known:
                    if self._lookout is not None:
                        self._lookout.note_look(root)
                    return []
                is_placed = knowledge.place.at is not None
            except StoreError as error:
                shelf.telling.store_failed(error, "read")
        faults: list[Event] = [Ignored(root, fault) for fault in contract.faults] if contract.faults else []
        by = self._by_position if contract.account is not None or is_placed else self._by_versions
        return (yield from self._dealt_with(root, partial(by, exchange, contract, about), faults))

    def _is_known(self, root: Root, contract: Contract, knowledge: Knowledge) -> bool:
        """Whether a reply is of the very state that is known, and there is nothing in it to learn. Most are: what follows is nothing."""
        shelf, place = self._shelf, knowledge.place
        if contract.suggestions or contract.faults or place.doubt or shelf.words:
            return False
        said, tag = contract.versions, contract.state_tag
        if contract.account is not None:
            is_known = contract.account.to == place.at
        elif place.at is not None:
            is_known = knowledge.state_tag is not None and contract.state_name == knowledge.state_tag
        elif said is None:
            is_known = tag is not None and tag == knowledge.state_tag
        else:
            is_known = bool(said.tables) and said == knowledge.versions and tag in (None, knowledge.state_tag)
        return is_known and root not in shelf.doubts

    def begin_anew(self, root: Root) -> None:
        """All of a server was forgotten: it may be asked at once, and what is held against it is told again."""
        self._back_off.note(root, has_answered=True)
        self._shelf.doubts.forget(root)

    def refreshing(self, root: Root) -> Steps[list[Event]]:
        """Ask a server where its log is, whether anything is in doubt or not."""

        def by_asking(happened: list[Event], is_doubted: bool) -> Steps[None]:
            if is_doubted:
                self._write(root, _doubting)
            yield from self._finding_place(root, happened, is_refresh=True)

        return (yield from self._dealt_with(root, by_asking, []))

    def _dealt_with(self, root: Root, by: _Dealing, happened: list[Event]) -> Steps[list[Event]]:
        """Deal with something that a server has said: unless that can be done, it is in doubt.

        What has happened is noted as soon as it is written. So it is told whatever becomes of the rest: the store may fail, a question may
        raise, and whoever drives these steps may leave in the middle.
        """
        doubts, telling = self._shelf.doubts, self._shelf.telling
        try:
            try:
                with Dealing(doubts, root) as is_doubted:
                    yield from by(happened, is_doubted)
            finally:
                telling.tell(happened)
        except StoreError as error:
            telling.store_failed(error, "write")
        except Distrust as distrust:
            # others, and a later process, must know too that a key is to be asked before anything is used
            self._shelf.rewrite(root, _lapsing)
            if doubts.is_news(root, str(distrust)):
                _log.warning("%s is not believed: %s", root, distrust)
                happened += telling.tell([Distrusted(root, str(distrust))])
        return happened

    def _finding_place(
        self, root: Root, happened: list[Event], *, is_refresh: bool = False, asks_state: bool = False
    ) -> Steps[None]:
        """Ask a server where its log is, until nothing is in doubt any more or it does not answer.

        One that does not answer is left alone for a while. Only a refresh asks all the same, and asks where there is no doubt.
        `asks_state`: ask, too, what replies that name no position call the state there.
        """
        word = self._shelf.word_about(root)
        for asked_count in range(_MOST_ASKED):
            is_first = asked_count == 0
            knowledge = self._shelf.knowing(root)
            is_open = bool(knowledge.place.doubt) or (is_first and knowledge.place.at is None)
            if not (is_first and is_refresh) and not (is_open and self._back_off.may_ask(root)):
                break
            named = knowledge.place.new_question(is_for_a_key=not word.is_its_own)
            question = word.question(named)
            reply = yield Question(f"{question}&state=1" if asks_state and word.is_its_own else question)
            try:
                answer = word.answer(reply, named, knowledge)
            except Distrust:
                self._back_off.note(root, has_answered=False)
                raise
            self._back_off.note(root, has_answered=answer is not None)
            if answer is None:
                if reply is not None and reply.status in _NO_SUCH_ENDPOINT and word.is_its_own:
                    yield from self._finding_versions(root, happened)
                break
            self._shelf.doubts.forget(root)
            told = Exchange.told(root, "", {}, b"")
            self._taken(told, Contract(), answer.account, named.header, happened, answer=answer)

    def _by_position(
        self, exchange: Exchange, contract: Contract, about: About, happened: list[Event], is_doubted: bool
    ) -> Steps[None]:
        """What a reply comes to whose server has a log."""
        root, said = exchange.root, contract.account
        taken: _Taken | None = None
        is_elsewhere = said is None and "age" not in exchange.reply.headers
        if is_doubted or (is_elsewhere and self._position_of(root, contract) is None):
            # What could not be dealt with before may have been newer than this. So may be what has other versions than the position.
            self._write(root, _doubting)
        if said is not None:
            taken = self._taken(exchange, contract, said, exchange.at, happened, checked=about.suspects)
        place = self._place(root) if taken is None else taken.place
        if place.doubt or place.at is None:
            yield from self._finding_place(root, happened, asks_state=said is None)
            if said is not None and taken is not None and not isinstance(taken.verdict, Current):
                self._look_again(exchange, contract, said, about, happened)
            if self._is_known_by_versions_alone(root):
                # no answer has told where its log is; by what is known of it the reply may still show that it has moved
                stamped = msgspec.structs.replace(contract, account=None)
                yield from self._by_versions(exchange, stamped, about, happened, is_doubted)

    def _is_known_by_versions_alone(self, root: Root) -> bool:
        knowledge = self._shelf.knowing(root)
        is_its_own_word = self._shelf.word_about(root).is_its_own
        return knowledge.place.at is None and bool(knowledge.versions.tables) and is_its_own_word

    def _look_again(
        self, exchange: Exchange, contract: Contract, said: Account, about: About, happened: list[Event]
    ) -> None:
        """What a reply comes to by which a doubt was raised, and about which the server was asked."""
        root = exchange.root
        place = self._place(root)
        if place.at == said.to:  # the answer has shown that the reply is of the very state that is known now
            self._taken(exchange, contract, said, None, happened, checked=about.suspects)
        elif not place.doubt and not self._shelf.word_about(root).is_its_own:
            why = "the reply is of another state than the signed one: it is late, or forged"
            happened.append(Ignored(root, why))

    def _taken(
        self,
        exchange: Exchange,
        contract: Contract,
        said: Account,
        sent: str | None,
        happened: list[Event],
        *,
        answer: Answer | None = None,
        checked: Sequence[Entry] = (),
    ) -> _Taken:
        """Decide what a position means, and write what follows, in one piece. Tells where the memory stands then.

        Threads of this process race for the store, and so do other processes. Between threads a lock decides, so that what was
        decided is still so when it is written. Between processes the revision does: a write that was decided on an older one is not carried
        out, and all is decided anew. An answer that a key vouches for is held to what it vouched for when that was asked for, so it counts
        only while that is still so.
        """
        root, shelf = exchange.root, self._shelf
        for tried_count in range(MOST_TRIES):
            with self._alone_with(root):
                now, (known, knowledge) = self._clock(), shelf.on_record(root, is_guess=not tried_count)
                if answer is not None and answer.vouched is not None:
                    answer = answer if answer.vouched_before == knowledge.vouched else None
                if shelf.words is None:
                    verdict, place = judged(knowledge.place, sent, said)
                else:
                    verdict, place = shelf.word_about(root).judged(knowledge, sent, said, answer)
                disposal = self._disposed(verdict, knowledge, place)
                if said.to == place.at and said.state not in ("", disposal.knowledge.state_tag):
                    disposal.knowledge = msgspec.structs.replace(disposal.knowledge, state_tag=said.state)
                if answer is not None and answer.vouched is not None and disposal.is_teaching:
                    disposal.knowledge = msgspec.structs.replace(disposal.knowledge, vouched=answer.vouched)
                if self._lookout is not None:
                    moved = verdict.moved if isinstance(verdict, Forward) else None
                    disposal.knowledge = self._lookout.with_history(root, disposal.knowledge, moved)
                about = checked if disposal.is_teaching else ()
                events = self._writing.carried_out(exchange, contract, known, disposal, about)
            if events is not None:
                after = disposal.knowledge
                if after.generation > knowledge.generation:
                    several = after.split_at is not None and after.split_at >= now
                    happened.append(LogLost(root, several=several))
                happened += events
                if self._lookout is not None and isinstance(verdict, Current | Forward | Adopted):
                    self._lookout.note_look(root)
                return _Taken(verdict, after.place)
        raise StoreError(_TOO_MANY)

    def _note_silence(self, exchange: Exchange, lookout: Lookout) -> None:
        """A server that has carried out a request has nothing to tell where that has named the position it is at."""
        with suppress(StoreError):  # then it is not known whether it is of what is known
            is_of_it = exchange.at == self._shelf.on_record(exchange.root, is_guess=True)[1].place.base
            if is_of_it and exchange.reply.status < LEAST_FAILURE:
                lookout.note_look(exchange.root)

    def may_ask(self, root: Root) -> bool:
        """Whether a server has not just left a question unanswered."""
        return self._back_off.may_ask(root)

    def note_asked(self, root: Root, *, has_answered: bool) -> None:
        """A server was asked before use. One that has not answered is left alone for a while."""
        self._back_off.note(root, has_answered=has_answered)

    def _disposed(self, verdict: Verdict, before: Knowledge, place: Place) -> Disposal:
        """What goes, and what is known then."""
        match verdict:
            case Forward(moved):
                knowledge = msgspec.structs.replace(before, place=place, state_tag=None)
                return follow(knowledge, moved, self._shelf.strategy)
            case Adopted(is_too_old):
                return Disposal(self._adopting(before, place, is_too_old=is_too_old))
            case Current():
                return Disposal(msgspec.structs.replace(before, place=place))
            case Doubted() | OldNews():
                return Disposal(msgspec.structs.replace(before, place=place), is_teaching=False)
            case _:
                assert_never(verdict)

    def _adopting(self, before: Knowledge, place: Place, *, is_too_old: bool) -> Knowledge:
        """What is known when a position takes the place of another from which it does not follow."""
        left_at, now = before.place.at, self._clock()
        if not (left_at or before.versions.tables or before.state_tag):
            return msgspec.structs.replace(before, place=place)  # nothing was known
        lately = [left for left, at in before.left if abs(now - at) < SPLIT_S]
        # A log that goes on while it is left comes back at another position. So many losses are no restarts either.
        are_several = not is_too_old and (place.at in lately or len(lately) >= _MOST_LOSSES)
        return msgspec.structs.replace(
            before,
            place=msgspec.structs.replace(place, mark=new_mark()),
            generation=before.generation + 1,
            left=(*before.left, *([(left_at, now)] if left_at and not is_too_old else []))[-_MOST_LEFT:],
            split_at=now if are_several else before.split_at,
            versions=Versions({}),
            state_tag=None,
            superseded={},
        )

    def _write(self, root: Root, decide: Callable[[Known], Write]) -> None:
        """Write what must not get lost; `StoreError` when that fails, so that the server is in doubt here at least."""
        if self._shelf.rewrite(root, decide) is None:
            raise StoreError("what a server has said could not be written")

    def _place(self, root: Root) -> Place:
        return self._shelf.knowing(root).place

    def _finding_versions(self, root: Root, happened: list[Event]) -> Steps[None]:
        """A server that names no positions any more is at versions."""
        versions = answered((yield Question(f"{root}/contract/state")), read_state)
        if versions is None:
            return

        def without_log(known: Known) -> Write:
            knowledge = known.knowledge
            place = Place(mark=new_mark())  # whatever position is taken up next, no moves have led there
            generation = knowledge.generation + 1
            return Write(
                msgspec.structs.replace(
                    knowledge, place=place, generation=generation, versions=versions, state_tag=None
                )
            )

        self._write(root, without_log)
        happened.append(LogLost(root, several=False))

    def _by_versions(
        self, exchange: Exchange, contract: Contract, about: About, happened: list[Event], is_doubted: bool
    ) -> Steps[None]:
        """What a reply comes to whose server has only versions. Decided and written in one piece, unless it must be asked in between."""
        root, shelf = exchange.root, self._shelf
        word = shelf.word_about(root)
        told: Told | None = None
        asked_with: Knowledge | None = None
        is_guess = True
        with shelf.doubts.withholding(root, at_once=False) as while_asking:
            for _ in range(MOST_TRIES):
                with self._alone_with(root):  # as in `_taken`
                    known, knowledge = shelf.on_record(root, is_guess=is_guess)
                    if knowledge.place.at is not None:
                        break  # somebody has found out meanwhile where its log is
                    is_latest = about.knowledge == knowledge and not is_doubted
                    # While the server is asked nobody is locked out, and another may learn of a movement meanwhile: then the
                    # answer is about a state that is not the known one any more, and it is asked again.
                    if told is None or knowledge != asked_with:
                        movement = word.moved(knowledge, contract, is_doubted=is_doubted, is_latest=is_latest)
                        told = Told(contract, movement) if isinstance(movement, (Unmoved, New)) else None
                    if told is not None:
                        disposal = dispose(knowledge, told, shelf.strategy)
                        is_answer = is_latest and told.contract.versions is not None
                        checked = about.suspects if is_answer else ()
                        events = self._writing.carried_out(exchange, told.contract, known, disposal, checked)
                        if events is not None:
                            happened += events
                            return
                        is_guess = False
                        continue
                if is_guess and not shelf.is_still(root, known, movement.parts):
                    is_guess = False
                    continue
                while_asking.begin()
                asked_with = knowledge
                told = yield from word.finding_out(knowledge, contract, movement, is_latest=is_latest)
            else:
                raise StoreError(_TOO_MANY)
        yield from self._by_position(exchange, contract, about, happened, is_doubted)


def _is_unjudged(reply: Reply) -> bool:
    """Whether a request may have been carried out though nobody has found its precondition to be met."""
    return not 400 <= reply.status < 500 and verdict_in(reply.headers) != "met"


def _doubting(known: Known) -> Write:
    return Write(msgspec.structs.replace(known.knowledge, place=known.knowledge.place.doubted()))


def _lapsing(known: Known) -> Write | None:
    lapsed = known.knowledge.lapsed
    return None if lapsed == known.knowledge else Write(lapsed)
