"""Hand-made histories: what broke plainer rules, and what each of our rules is there for.

At first both keys are 0 and no position is known. A request that names nothing is a way to raise a doubt
later: a reply to it is about nothing that is known.
"""

from functools import partial
from typing import Any, NamedTuple

from tests.positions.client import Rules
from tests.positions.environments import ACCEPTED
from tests.positions.evidence import EXPIRED
from tests.positions.histories import Environment
from tests.positions.moves import ORDINARY, Move

request, exchange, settle, suspect = (
    partial(Move, verb) for verb in "request exchange settle suspect".split()
)
serve_request, get_reply, replay = (partial(Move, verb) for verb in "serve_request get_reply replay".split())
serve_question, get_answer = partial(Move, "serve_question"), partial(Move, "get_answer")
begin, go_on = partial(Move, "begin"), partial(Move, "go_on")
reload, reload_by, catch_up = (partial(Move, verb) for verb in "reload reload_by catch_up".split())
renew, restart, deploy = (partial(Move, verb) for verb in "renew restart deploy".split())
plain = partial(Move, "plain")
forget, expire = partial(Move, "forget"), partial(Move, "expire")
back_up, set_back = partial(Move, "back_up"), partial(Move, "set_back")
b = 1
"""The second key."""

PLAIN = Environment()
LENIENT = Environment(evidence=ACCEPTED)
KEYS = Environment(evidence=(*Environment().evidence, EXPIRED), has_keys=True)
CUT = Environment(restarts_cut=True)
DRAWN_IDS = {"environment": {"has_random_ids": True}}


class Trace(NamedTuple):
    """A history that holds, and breaks without one rule."""

    rule: str
    moves: list[Move]
    environment: Environment = PLAIN


class OpenTrace(NamedTuple):
    """A history that breaks, and holds with another rule or in another environment."""

    why: str
    moves: list[Move]
    environment: Environment
    repair: dict[str, Any]

    @property
    def repaired(self):
        """The environment and the rules with which it holds."""
        environment = self.environment._replace(**self.repair.get("environment", {}))
        return environment, self.repair.get("rules", Rules())


STAMPED = Environment(("plain",))

TRACES = {
    "stamps tell of a reload": Trace("stamps_doubt", [exchange(), reload_by(value=1), plain()], STAMPED),
    "stamps tell of a reload before anything is known": Trace(
        "stamps_mark",
        [request(), serve_request(), reload_by(value=1), plain(), get_reply()],
        STAMPED,
    ),
    "stamps are again what an answer has once called another position": Trace(
        "stamps_lapse",
        [
            exchange(),
            plain(),
            serve_question(),
            get_answer(),
            reload_by(value=1),
            exchange(),
            reload_by(value=0),
            plain(),
        ],
        STAMPED,
    ),
    "V1: a worker that lags answers the question": Trace(
        "questions_fold",
        [
            request(),
            exchange(),
            reload(value=1),
            catch_up(worker=1),
            serve_request(back=1, worker=1),
            get_reply(),
            serve_question(),
            get_answer(),
        ],
    ),
    "V2: moves of a former life begin at the number that is known": Trace(
        "marks",
        [
            exchange(),
            reload_by(value=1),
            exchange(),
            restart(),
            exchange(),
            replay(back=1),
        ],
        CUT,
    ),
    "V3: a loss is told again after the same reload was made again": Trace(
        "marks",
        [
            exchange(),
            reload_by(value=1),
            exchange(),
            restart(),
            exchange(),
            reload_by(value=1),
            exchange(),
            replay(back=2),
        ],
        CUT,
    ),
    "V4: what one agent has named is lost, and the other has gone on long since": Trace(
        "judged_at_receipt",
        [
            exchange(),
            reload_by(value=1),
            exchange(),
            request(),
            renew(),
            serve_request(),
            reload_by(value=2),
            exchange(),
            get_reply(back=1),
        ],
    ),
    "V5: a loss that matters is told with a lower number": Trace(
        "lower_echo_doubts",
        [
            exchange(),
            request(),
            request(),
            reload_by(value=1),
            serve_request(back=1),
            renew(),
            serve_request(),
            get_reply(back=1),
            get_reply(),
        ],
    ),
    "V6: an answer is older than the doubt": Trace(
        "answers_settle_what_was",
        [
            request(),
            request(),
            exchange(),
            reload_by(key=b, value=1),
            serve_request(back=1),
            get_reply(),
            serve_question(),
            reload_by(value=1),
            serve_request(back=1),
            get_reply(),
            get_answer(),
        ],
    ),
    "V7: two requests in doubt, across two new logs, are answered in the other order": Trace(
        "answers_swap",
        [
            exchange(),
            request(),
            reload_by(key=b, value=1),
            exchange(),
            reload_by(value=1),
            serve_request(back=1),
            get_reply(),
            request(),
            request(),
            renew(),
            serve_request(back=1),
            reload_by(value=2),
            renew(value=1),
            serve_request(),
            get_reply(),
            get_reply(back=1),
        ],
    ),
    "V8: questions are never answered": Trace(
        "requests_ask_in_doubt",
        [request(), exchange(), reload_by(value=1), serve_request(back=1), get_reply()],
        Environment(heals=False),
    ),
    "V9: with keys, a loss is told": Trace(
        "keys_withhold",
        [exchange(), reload_by(value=1), exchange(), renew(), exchange()],
        KEYS,
    ),
    "D1: in doubt everything is withheld": Trace(
        "higher_withholds",
        [request(), exchange(), reload_by(value=1), serve_request(back=1), get_reply()],
    ),
    "D2: a reply at what is known is older than the doubt": Trace(
        "current_lifts_nothing",
        [
            request(),
            exchange(),
            request(),
            serve_request(),
            reload_by(value=1),
            serve_request(back=2),
            get_reply(),
            get_reply(back=1),
        ],
    ),
    "D3: after a deploy a worker still runs the old code": Trace(
        "old_code_is_silent",
        [exchange(), deploy(worker=1), catch_up(), exchange(worker=1), exchange()],
    ),
    "D4: another log has another fix": Trace(
        "adoption_suspects",
        [exchange(), reload_by(value=1), renew(value=1), exchange(key=b)],
    ),
    "D5: an answer about a suspect is of a log that was left since": Trace(
        "suspects_answered_at_known",
        [
            exchange(),
            renew(),
            exchange(key=b),
            suspect(),
            serve_question(),
            reload_by(value=1),
            renew(value=1),
            exchange(key=b),
            get_answer(),
        ],
    ),
    "D6: an answer about a suspect shows that the log has gone on": Trace(
        "suspects_answers_are_replies",
        [
            exchange(),
            renew(),
            exchange(key=b),
            suspect(),
            reload_by(key=b, value=1),
            serve_question(),
            get_answer(),
        ],
    ),
    "D7: two deliveries at a time": Trace(
        "writes_swap",
        [
            exchange(),
            request(),
            request(),
            reload_by(key=b, value=1),
            serve_request(back=1),
            reload_by(value=1),
            serve_request(),
            begin(back=1),
            get_reply(),
            go_on(),
            go_on(),
        ],
    ),
    "D8: a reply for somebody who is shown something else": Trace(
        "checks_by_disclosure",
        [exchange(), exchange(who=1), replay(back=0, who=1)],
        Environment(is_disclosing_twice=True),
    ),
    "D9: what was under way when all was forgotten": Trace(
        "forgetting_marks",
        [
            exchange(),
            reload_by(value=1),
            exchange(),
            request(),
            restart(),
            serve_request(),
            forget(),
            reload_by(value=1),
            exchange(),
            get_reply(back=1),
        ],
        CUT,
    ),
    "D10: with keys, an answer tells a loss": Trace(
        "keys_lower_nothing",
        [exchange(), reload_by(value=1), exchange(), renew(), exchange(), settle()],
        KEYS,
    ),
    "D11: with keys, their word has expired": Trace(
        "keys_expire",
        [exchange(), reload(value=1), expire()],
        KEYS,
    ),
    "D12: a question is under way when its memory is set back": Trace(
        "doubts_have_names",
        [
            exchange(),
            back_up(),
            reload_by(key=b, value=1),
            serve_request(),
            get_reply(),
            serve_question(),
            set_back(),
            reload_by(value=1),
            serve_request(),
            get_reply(),
            get_answer(),
        ],
        PLAIN,
    ),
    "D13: a delivery is under way when its memory is set back": Trace(
        "revisions_never_return",
        [
            exchange(),
            back_up(),
            reload_by(value=1),
            get_reply(),
            begin(),
            set_back(),
            go_on(),
            exchange(),
            go_on(),
        ],
        PLAIN,
    ),
    "D14: the first reply is one for somebody who is shown something else": Trace(
        "first_contact_asks",
        [exchange(), request(who=1), replay(who=1)],
        Environment(is_disclosing_twice=True, first_contact_crosses=True),
    ),
}
"""Each breaks without its rule, and holds with all of them."""

UNDER_ONE_NAME = {
    "a reply is under way across a restart": OpenTrace(
        "ids that follow from what is declared: moves from before a restart begin at what is known after it",
        [
            exchange(),
            reload_by(value=1),
            request(),
            serve_request(),
            restart(),
            exchange(),
            get_reply(back=1),
        ],
        PLAIN,
        DRAWN_IDS,
    ),
    "a reply is under way across a restart, and a question is answered since": OpenTrace(
        "ids that follow from what is declared: not even an answer makes sure that what comes later is newer",
        [
            exchange(),
            reload_by(value=1),
            serve_request(),
            request(),
            serve_request(),
            restart(),
            get_reply(back=1),
            serve_question(),
            get_answer(),
            get_reply(),
        ],
        LENIENT,
        DRAWN_IDS,
    ),
    "a reply is from between a restart and the same reload": OpenTrace(
        "ids that follow from what is declared: a loss is told late, after it was made good",
        [
            reload_by(value=1),
            exchange(),
            request(),
            restart(),
            serve_request(),
            reload_by(value=1),
            exchange(),
            get_reply(back=1),
        ],
        CUT,
        DRAWN_IDS,
    ),
    "a reply is from between a restart and the same reload, and a question is answered since": OpenTrace(
        "ids that follow from what is declared: not even an answer makes sure that what comes later is newer",
        [
            reload_by(value=1),
            exchange(),
            request(),
            reload_by(key=b, value=1),
            serve_request(back=1),
            get_reply(),
            restart(),
            serve_request(),
            reload_by(value=1),
            serve_question(),
            get_answer(),
            get_reply(),
        ],
        LENIENT._replace(restarts_cut=True),
        DRAWN_IDS,
    ),
}
"""Why a log draws its name: each breaks where a log that begins anew has the name of the one before."""


def fitting(environment):
    """The traces whose moves are all possible in an environment."""
    possible = {*ORDINARY, *environment.verbs}
    traces = (*TRACES.values(), *UNDER_ONE_NAME.values())
    return [trace.moves for trace in traces if possible.issuperset(move.verb for move in trace.moves)]
