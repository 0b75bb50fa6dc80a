"""Foreseeing at the agent: what is due to have changed is asked about before use, and nothing else is."""

from contextlib import closing
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.client import Call, Forecast, Guard, Memory, Question, Reply, exchange
from shelflife.habits import habit_of
from shelflife.histories import MOST_SEEN
from shelflife.testing import serving
from tests.acme_world import CONTROL, GOVERNED
from tests.client.agents import Clock

HOUR = 3600.0
PLAN = "plan_partner_growth"
CODES = ("SUMMERSALE25", "WINTERLAUNCH26")
ROW = f"active_csm_codes:{PLAN}"
NOTHING = (0, 0)
ASKED = (1, 0)
REFUSED = (0, 1)


class Using:
    """An agent that uses what it remembers, of a server where a code rotates."""

    def __init__(self, http, address, provider, foresight=None, where=None):
        self.http, self.origin, self.provider = http, address, provider
        self.clock = Clock()
        self.is_silent = False
        self.questions = self.refusals = 0
        settings = {"foresight": foresight or Forecast(), "clock": self.clock}
        self.memory = Memory(**settings) if where is None else Memory.at(where, **settings)

    def answer(self, step):
        if isinstance(step, Question):
            self.questions += 1
            if self.is_silent:
                return None
            sent = self.http.request(step.method, step.url, content=step.body, headers=dict(step.headers))
        else:
            sent = self.http.post(self.origin + "/subscriptions", json=step.request, headers=step.headers)
            self.refusals += sent.status_code == 422
        return Reply(sent.status_code, sent.content, sent.headers)

    def use(self, request=GOVERNED, *, hours=4.0):
        """A request, so long after the one before, until it is accepted. Tells how many questions and refusals that took."""
        self.clock.now += hours * HOUR
        self.questions = self.refusals = 0
        call = Call(self.origin, "POST /subscriptions", request, Guard())
        while exchange(self.memory, call, self.answer).status >= 400:
            assert self.refusals < 3
        return self.questions, self.refusals

    def rotate(self):
        registry = self.provider.registry
        [code] = {*CODES} - {registry.rows("active_csm_codes")[PLAN]["code"]}
        registry.reload_table("active_csm_codes", set={PLAN: {"code": code}})

    def live(self, days, *, uses=6):
        """So many uses a day, and after the last the code rotates. What the first use after each rotation took, and all others."""
        firsts, others = [], set()
        for _ in range(days):
            firsts.append(self.use(hours=24 / uses))
            others.update([self.use(hours=24 / uses) for _ in range(uses - 1)])
            self.rotate()
        return firsts, others

    @property
    def histories(self):
        return self.memory.store.known(self.origin).knowledge.histories


@pytest.fixture
def using(http, address, provider):
    return Using(http, address, provider)


def test_what_is_due_is_revalidated_before_use_and_the_new_fix_is_used_at_once(using):
    using.live(8)
    firsts, others = using.live(4)
    assert firsts == [ASKED] * 4
    assert others == {NOTHING}


def test_until_enough_was_seen_nothing_is_asked(using):
    firsts, others = using.live(3)
    assert firsts == [REFUSED] * 3
    assert others == {NOTHING}


def test_what_never_changes_is_not_asked_about_however_much_else_does(using):
    using.use(CONTROL)
    using.live(6)
    using.use(hours=0)
    assert [using.use(CONTROL, hours=hours) for hours in (1, 100, 10_000)] == [NOTHING] * 3


def test_where_there_is_no_pattern_it_says_so_and_asks_nothing_that_does_not_pay(http, address, provider):
    using = Using(http, address, provider, Forecast(stale_costs=1))
    chance, took = Random(0), []
    using.use()
    for _ in range(120):
        if chance.random() < 0.2:
            using.rotate()
        took.append(using.use(hours=1))
    assert habit_of(using.histories, ROW).kind == "no pattern"
    assert {questions for questions, _ in took} == {0}


def test_a_question_that_nobody_answers_costs_a_while_of_no_questions_and_nothing_else(using):
    using.live(6)
    using.is_silent = True
    assert using.use() == (1, 1)
    assert using.use(hours=0.0) == NOTHING
    using.live(1)
    using.is_silent = False
    assert using.use()[1] == 0


def test_a_server_that_does_not_tell_of_the_operation_is_asked_what_has_moved(using):
    using.live(6)
    answer = using.answer
    not_told = Reply(404, b"{}")
    asked = []

    def answering(step):
        if isinstance(step, Question):
            asked.append(step.url.removeprefix(using.origin).partition("?")[0])
            if step.body is not None:
                return not_told
        return answer(step)

    using.answer = answering
    assert (
        using.use()[1] == 1
    )  # the stale fix is dropped, and what took its place is learned as without a forecast
    assert asked[:2] == ["/contract/fixes", "/contract/changes"]


def test_what_was_seen_survives_in_a_file_and_is_bounded_there(http, address, provider, tmp_path):
    where = tmp_path / "memory.db"
    first = Using(http, address, provider, where=where)
    with closing(first.memory):
        first.live(MOST_SEEN + 2, uses=2)
        seen = first.histories
    assert len(seen.seen[ROW]) == MOST_SEEN
    later = Using(http, address, provider, where=where)
    later.clock.now = first.clock.now
    with closing(later.memory):
        assert later.histories == seen
        assert later.use(hours=8) == ASKED


def test_a_memory_without_a_foresight_keeps_nothing_of_it(http, address, provider):
    using = Using(http, address, provider)
    using.memory = Memory(clock=using.clock)
    using.live(4)
    assert using.histories is None
    assert using.memory.is_clear(using.origin)


def test_what_is_forgotten_is_not_foreseen(using):
    using.live(6)
    using.memory.forget(using.origin)
    assert not (using.histories and using.histories.seen)


@pytest.mark.parametrize("years", [-30, 30])
def test_a_clock_that_jumps_does_no_harm(using, caplog, years):
    using.live(6)
    using.clock.now += years * 365 * 24 * HOUR
    firsts, others = using.live(10)
    assert set(firsts) <= {ASKED, REFUSED}
    assert firsts[-2:] == [ASKED] * 2
    assert others <= {NOTHING, ASKED}
    assert not caplog.records


def test_a_foresight_that_fails_is_logged_and_the_request_goes_on(http, address, provider, caplog):
    class Failing:
        def is_due(self, *_):
            raise ZeroDivisionError

    using = Using(http, address, provider, Failing())
    using.live(1)
    assert using.use() == REFUSED
    assert "could not be revalidated" in caplog.text


class Whimsical:
    """Asks as chance has it."""

    def __init__(self, whims):
        self._whims = iter(whims)

    def is_due(self, *_):
        return next(self._whims, False)


@pytest.fixture(scope="module")
def two_worlds(http):
    """Two servers, in which the same happens."""
    providers = [acme_provider(), acme_provider()]
    with serving(acme_app(providers[0])) as one, serving(acme_app(providers[1])) as other:
        yield [(http, one, providers[0]), (http, other, providers[1])]


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=25))
@settings(max_examples=15, deadline=None)
def test_whatever_a_foresight_says_it_only_adds_questions_and_nothing_goes_stale_by_it(two_worlds, story):
    foreseeing = Using(*two_worlds[0], Whimsical([asks for _, asks in story]))
    plain = Using(*two_worlds[1], Whimsical([]))
    foreseeing.use()
    plain.use()
    for rotates, _ in story:
        if rotates:
            foreseeing.rotate()
            plain.rotate()
        questions, refusals = foreseeing.use()
        assert refusals <= plain.use()[1]
        assert questions + refusals <= 2


@pytest.mark.parametrize("costs", [0, -1, float("nan")])
def test_what_a_stale_use_costs_is_more_than_nothing(costs):
    with pytest.raises(ValueError, match="a number above 0"):
        Forecast(stale_costs=costs)
