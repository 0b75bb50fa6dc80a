"""Our code beside the model: after every reply both stand at the same place, for the same reason.

Keys are not part of `judged`, so histories with keys are not played here.
"""

import os
import random

import msgspec
import pytest

from shelflife.client.positions import Adopted, Forward, Place, judged
from shelflife.contract.positions import Account, Moved, MovedTable, Named, Position
from tests.positions.client import Held
from tests.positions.environments import ENVIRONMENTS
from tests.positions.histories import Broken, History
from tests.positions.searching import broken, drawn, mutants, searched, told
from tests.positions.traces import TRACES, UNDER_ONE_NAME, fitting

IS_LONG = os.environ.get("SHELFLIFE_TESTS") == "long"
SEEDS = range(1, 21) if IS_LONG else (1,)
HISTORY_COUNT = 1_000 if IS_LONG else 200
WITHOUT_KEYS = [name for name, environment in ENVIRONMENTS.items() if not environment.has_keys]


def named_in(asked, nonces=None):
    """What a request of the model names, as our code has it."""
    position = None if asked.named is None else Position(*asked.named)
    return Named(position, asked.mark, (nonces or {}).get(asked.nonce, ""))


def account_in(said, nonces):
    """What a reply of the model says, as it would be read from the wire."""
    named = named_in(said.asked)
    account = {"to": str(Position(*said.to)), "nonce": nonces[said.asked.nonce]}
    if said.how not in ("there", "unnamed"):
        account["since"] = named.base
    if said.how == "moved":
        account["moved"] = Moved(tables={key: MovedTable() for key in sorted(said.moved)})
    if said.how in ("ahead", "foreign", "old"):
        account["unknown"] = said.how
    return Account(**account)


class Beside(History):
    """A history that takes our code along: a place for everything that the model has ever held."""

    def __init__(self, environment, rules=None):
        super().__init__(environment, rules)
        self.places = {Held(): Place()}
        self.nonces = {"": ""}
        """Ours for each of the model's."""

    def do_forget(self, move):
        super().do_forget(move)
        for memory in self.memories:
            self.places.setdefault(memory.held, Place(mark=memory.held.mark))

    def has_asked(self, memory, asked):
        if asked.kind == "plain":
            return
        place = self.places[memory.held]
        ours = place.new_question() if asked.nonce else place.new_question()._replace(nonce="")
        _agree("names", ours.base, named_in(asked).base)
        _agree("is read as", Named.from_header(ours.header), ours)
        _agree(
            "asks of its own accord",
            bool(Named.from_header(place.new_header()).nonce),
            bool(place.doubt) or place.at is None,
        )
        self.nonces[asked.nonce] = ours.nonce

    def has_decided(self, memory, before, delivery):
        asked, said, decision = delivery.asked, delivery.said, delivery.decision
        if said.how in ("silent", "stamped"):  # without an account there is nothing to judge
            place, is_doubted = self.places[before], decision.verdict == "Doubted"
            after = place.doubted() if is_doubted else msgspec.structs.replace(place, mark=decision.held.mark)
            self.places.setdefault(decision.held, after)
            return
        place, account = self.places[before], account_in(said, self.nonces)
        verdict, after = judged(place, named_in(asked, self.nonces).header, account)
        if isinstance(verdict, Adopted) and place.at is not None:
            after = msgspec.structs.replace(after, mark=decision.held.mark)
        _agree("is", type(verdict).__name__, decision.verdict)
        _agree(
            "has moved by", verdict.moved if isinstance(verdict, Forward) else None, _moved(account, decision)
        )
        _agree("stands at", after.new_question().position, decision.held.known)
        _agree("renews its mark", after.mark != place.mark, decision.held.mark != before.mark)
        _agree("doubts", bool(after.doubt), decision.held.is_doubted)
        _agree("has a place", self.places.setdefault(decision.held, after), after)


def _moved(account, decision):
    return account.moved if decision.verdict == "Forward" else None


def _agree(what, ours, of_the_model):
    if ours != of_the_model:
        raise Broken(f"C: the code {what} {ours}, the model {of_the_model}")


def assert_both_agree(histories, environment):
    # What the model itself breaks is for the model's own tests.
    found = searched(histories, environment._replace(evidence=()), kind=Beside)
    if found.shortest is not None:
        what = broken(found.shortest, environment, kind=Beside)
        pytest.fail(f"{told(found.shortest, environment)}\n{what}", pytrace=False)


@pytest.mark.parametrize("name", [*TRACES, *UNDER_ONE_NAME])
def test_the_code_goes_the_way_of_the_model_through_every_trace(name):
    trace = (TRACES | UNDER_ONE_NAME)[name]
    assert_both_agree([trace.moves], trace.environment._replace(has_keys=False, first_contact_crosses=False))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", WITHOUT_KEYS)
def test_the_code_goes_the_way_of_the_model_through_random_histories(name, seed):
    environment = ENVIRONMENTS[name]
    assert_both_agree(drawn(random.Random(seed), environment, HISTORY_COUNT), environment)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", WITHOUT_KEYS)
def test_the_code_goes_the_way_of_the_model_through_mutants_of_the_traces(name, seed):
    environment = ENVIRONMENTS[name]
    histories = mutants(random.Random(seed), environment, fitting(environment), HISTORY_COUNT)
    assert_both_agree(histories, environment)
