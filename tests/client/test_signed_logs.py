"""What was seen signed binds: other logs, other keys, other agents with the same memory, and later processes."""

import re
import shutil
from contextlib import closing

import msgspec
import pytest

from shelflife.apis.acme import ROTATED_CODES, acme_app, acme_provider
from shelflife.client import SqliteStore
from shelflife.client.events import Distrusted, Evicted, LogLost
from shelflife.integrations.ed25519 import SigningKey, trust
from shelflife.server import Disclosure, Signing
from shelflife.testing import serving
from tests.acme_world import FREE, FUNDING_1, GOVERNED, rotate
from tests.client.wires import KEY, OTHER_KEY, Naming, Replaced, Wire, held, tamper

pytestmark = pytest.mark.usefixtures("servers_end_soon")


@pytest.fixture
def provider(tmp_path, clock):
    provider = acme_provider(log=tmp_path / "log.db", signing=Signing(signer=KEY, clock=clock))
    yield provider
    provider.close()


@pytest.mark.spec("15.12", "15.13")
def test_rolled_back_and_forked(tmp_path, store, clock):
    """Two servers with one key whose logs have gone apart, behind one name."""

    def provider(name):
        return acme_provider(log=tmp_path / name, signing=Signing(signer=KEY, clock=clock))

    first = provider("first.db")
    acme_app(first)
    first.be_ready()
    first.close()
    for name in ("one.db", "two.db"):
        shutil.copy(tmp_path / "first.db", tmp_path / name)
    one, two = provider("one.db"), provider("two.db")
    behind = Replaced(one)
    with (
        serving(behind) as address,
        Naming(address, store=store, clock=clock, trust=trust({address: [KEY.key]})) as agent,
    ):

        def is_not_believed(why):
            clock.now += 300
            agent.call(GOVERNED)
            assert re.search(why, agent.of(Distrusted)[-1].why)
            assert (held(agent), agent.of(Evicted), agent.of(LogLost)) == (before, [], [])
            assert agent.recall(GOVERNED) == []
            assert store.known(address).knowledge.place.at == vouched.at
            assert store.known(address).knowledge.vouched == msgspec.structs.replace(vouched, expires_at=0)

        rotate(one)
        agent.call(GOVERNED)
        before, vouched = held(agent), store.known(address).knowledge.vouched
        behind.put(two)
        is_not_believed("ends before .*: it was rolled back")
        two.registry.reload_table("active_csm_codes", set=ROTATED_CODES, version="9.9.9")
        is_not_believed("two different states as number 2")
        two.registry.reload_table("active_csm_codes", set=ROTATED_CODES, version="9.9.10")
        is_not_believed("does not go on from .*, for which it has vouched")
        behind.put(one)
        clock.now += 300
        agent.call(GOVERNED)
        assert [entry.parameters for entry in agent.recall(GOVERNED)] == before
        # whoever wants to go on with the other one forgets all of the root
        behind.put(two)
        agent.memory.forget(address)
        agent.call(GOVERNED)
        assert held(agent) == [{"promo_code": "WINTERLAUNCH26"}]
        assert agent.recall(GOVERNED)
    one.close()
    two.close()


@pytest.mark.spec("15.12", "15.13")
def test_another_log_is_not_believed_until_all_of_the_root_is_forgotten(tmp_path, store, clock):
    one, two = (
        acme_provider(log=tmp_path / name, signing=Signing(signer=KEY, clock=clock))
        for name in ("one.db", "two.db")
    )
    behind = Replaced(one)
    with (
        serving(behind) as address,
        Naming(address, store=store, clock=clock, trust=trust({address: [KEY.key]})) as agent,
    ):
        agent.call(GOVERNED)
        agent.call(FUNDING_1)
        before = held(agent)
        behind.put(two)
        rotate(two)
        for _ in range(3):  # however far it goes on
            clock.now += 300
            agent.call(GOVERNED)
            agent.memory.refresh(address)
            assert (held(agent), agent.recall(GOVERNED)) == (before, [])
            rotate(two)
        (told,) = agent.of(Distrusted)
        assert "has begun another log; forget all of this root" in told.why
        assert agent.memory.forget(address, agent.operation, "AddPromoCode") == 0
        assert agent.memory.forget(address, agent.operation) == len(before)
        clock.now += 300
        agent.call(GOVERNED)
        assert held(agent) == []
        agent.memory.forget(address)
        agent.call(GOVERNED)
        assert [entry.parameters for entry in agent.recall(GOVERNED)] == [{"promo_code": "WINTERLAUNCH26"}]
    one.close()
    two.close()


@pytest.mark.spec("15.13")
def test_two_agents_with_one_file_hold_each_other_to_what_was_seen(tmp_path, address, provider, clock):
    """What one has seen signed, the other cannot be led behind."""
    with_keys = trust({address: [KEY.key]})
    first, second = (SqliteStore(tmp_path / "memory.db") for _ in range(2))
    with (
        Naming(address, store=first, clock=clock, trust=with_keys) as one,
        Naming(address, store=second, clock=clock, trust=with_keys) as other,
    ):
        wire = Wire(other)
        other.call(GOVERNED)
        old = other.unobserved(GOVERNED)
        rotate(provider)
        one.call(GOVERNED)
        wire.tamper_response = lambda exchange: old
        wire.tamper_answer = lambda question, answer: wire.answers[0]
        wire.call(GOVERNED)
        assert "replayed" in other.of(Distrusted)[0].why
        assert held(other) == [{"promo_code": "WINTERLAUNCH26"}]
        assert one.recall(GOVERNED) == other.recall(GOVERNED) == []
        one.memory.refresh(address)
        assert held(one) == [entry.parameters for entry in one.recall(GOVERNED)]
    first.close()
    second.close()


@pytest.mark.spec("15.13")
def test_an_answer_that_another_agent_has_overtaken_lowers_nothing(tmp_path, address, provider, clock):
    """It was signed, and it was asked for; but what the other one has seen since is later."""
    with_keys = trust({address: [KEY.key]})
    first, second = (SqliteStore(tmp_path / "memory.db") for _ in range(2))
    with (
        Naming(address, store=first, clock=clock, trust=with_keys) as one,
        Naming(address, store=second, clock=clock, trust=with_keys) as other,
    ):
        other.call(GOVERNED)

        def slowly(question):
            answer = other.ask(question)
            other.asker = other.ask
            rotate(provider)
            one.call(GOVERNED)
            return answer

        other.asker = slowly
        other.memory.refresh(address)
        assert other.of(Distrusted) == one.of(Distrusted) == []
        face = provider.face(provider.state, {})
        vouched = second.known(address).knowledge.vouched
        assert (vouched.at, vouched.digest) == (str(face.position), face.digest)
        assert held(other) == [{"promo_code": "WINTERLAUNCH26"}]
        assert held(other) == [entry.parameters for entry in other.recall(GOVERNED)]
    first.close()
    second.close()


@pytest.mark.spec("15.13")
def test_an_answer_that_another_agent_has_overtaken_brings_back_no_key(tmp_path, clock):
    successor = SigningKey(OTHER_KEY._private, [KEY.endorse(OTHER_KEY.key)])
    workers = [
        acme_provider(log=tmp_path / "log.db", signing=Signing(signer=key, clock=clock))
        for key in (KEY, successor)
    ]
    behind = Replaced(workers[0])
    with (
        serving(behind) as address,
        closing(SqliteStore(tmp_path / "memory.db")) as store,
        Naming(address, store=store, clock=clock, trust=trust({address: [KEY.key]})) as one,
        Naming(address, store=store, clock=clock, trust=trust({address: [KEY.key]})) as other,
    ):
        other.call(GOVERNED)

        def slowly(question):
            answer = other.ask(question)
            other.asker = other.ask
            behind.put(workers[1])
            one.memory.refresh(address)
            return answer

        other.asker = slowly
        other.memory.refresh(address)
        vouched = store.known(address).knowledge.vouched
        assert (vouched.key, vouched.retired_keys) == (OTHER_KEY.key, (KEY.key,))
        assert other.recall(GOVERNED)
        behind.put(workers[0])
        other.memory.refresh(address)
        assert "signed by a key that has been replaced" in other.of(Distrusted)[0].why
    for worker in workers:
        worker.close()


def test_what_was_vouched_for_by_a_key_that_is_no_longer_pinned_is_suspect(tmp_path, address, clock):
    path = tmp_path / "memory.db"
    pinned = trust({address: [KEY.key]})
    with (
        closing(SqliteStore(path)) as store,
        Naming(address, store=store, clock=clock, trust=pinned) as agent,
    ):
        agent.call(GOVERNED)
        assert agent.recall(GOVERNED)
    other = trust({address: [SigningKey.new().key]})
    with closing(SqliteStore(path)) as store, Naming(address, store=store, clock=clock, trust=other) as agent:
        assert agent.recall(GOVERNED) == []
        agent.memory.refresh(address)
        assert "not pinned" in agent.of(Distrusted)[0].why
        assert (held(agent), agent.recall(GOVERNED)) == ([{"promo_code": "SUMMERSALE25"}], [])


@pytest.mark.spec("15.14")
@pytest.mark.parametrize("is_endorsed", [True, False])
def test_what_a_key_that_is_no_longer_pinned_has_led_to_is_revalidated(tmp_path, store, clock, is_endorsed):
    """Whoever had the old key may have said that nothing has moved, and that the log is where it is not."""
    endorsements = [KEY.endorse(OTHER_KEY.key)] if is_endorsed else []
    workers = [
        acme_provider(log=tmp_path / "log.db", signing=Signing(signer=key, clock=clock))
        for key in (KEY, SigningKey(OTHER_KEY._private, endorsements))
    ]
    behind = Replaced(workers[0])
    with serving(behind) as address:
        with Naming(address, store=store, clock=clock, trust=trust({address: [KEY.key]})) as agent:
            agent.call(GOVERNED)
            behind.put(workers[1])
            clock.now += 300
            agent.memory.refresh(address)
            assert bool(agent.recall(GOVERNED)) is is_endorsed
        pinned_anew = trust({address: [OTHER_KEY.key]})
        with Naming(address, store=store, clock=clock, trust=pinned_anew) as agent:
            assert agent.recall(GOVERNED) == []
            agent.memory.refresh(address)
            assert (agent.recall(GOVERNED), agent.of(Distrusted)) == ([], [])
            assert held(agent) == [{"promo_code": "SUMMERSALE25"}]
            vouched = store.known(address).knowledge.vouched
            assert (vouched.key, vouched.rests_on) == (OTHER_KEY.key, ())
            agent.memory.revalidate(address, agent.operation, GOVERNED)
            assert agent.recall(GOVERNED)
            agent.memory.refresh(address)
            assert agent.recall(GOVERNED)
    for worker in workers:
        worker.close()


@pytest.mark.spec("15.14")
def test_what_was_learned_before_a_key_was_pinned_is_revalidated(tmp_path, address, store, clock):
    with Naming(address, store=store, clock=clock) as agent:
        agent.call(GOVERNED)
        assert agent.recall(GOVERNED)
    with Naming(address, store=store, clock=clock, trust=trust({address: [KEY.key]})) as agent:
        assert agent.recall(GOVERNED) == []
        agent.memory.refresh(address)
        assert agent.recall(GOVERNED) == []
        assert held(agent) == [{"promo_code": "SUMMERSALE25"}]
        agent.memory.revalidate(address, agent.operation, GOVERNED)
        assert agent.recall(GOVERNED)


def test_a_later_process_does_not_use_what_an_earlier_one_found_suspect(tmp_path, address, clock):
    path = tmp_path / "memory.db"
    with_key = {"clock": clock, "trust": trust({address: [KEY.key]})}
    with closing(SqliteStore(path)) as store, Naming(address, store=store, **with_key) as agent:
        agent.call(GOVERNED)
        wire = Wire(agent)
        tamper(wire, "answer forged")
        wire.call(GOVERNED)
        assert agent.of(Distrusted)
    with closing(SqliteStore(path)) as store, Naming(address, store=store, **with_key) as agent:
        assert agent.recall(GOVERNED) == []
        agent.memory.refresh(address)
        assert agent.recall(GOVERNED)


@pytest.mark.spec("15.15")
def test_clients_that_are_shown_aliases_follow_each_a_log_of_its_own(tmp_path, clock):
    """One that is given the words of another does not believe them."""
    disclosure = Disclosure(
        secret="a secret of more than sixteen bytes",
        client=lambda headers: headers.get("x-client", ""),
        sees_diffs=lambda client: True,
    )
    provider = acme_provider(
        log=tmp_path / "log.db", signing=Signing(signer=KEY, clock=clock), disclosure=disclosure
    )
    with serving(acme_app(provider)) as address:
        with_keys = trust({address: [KEY.key]})
        with (
            Naming(address, clock=clock, trust=with_keys) as one,
            Naming(address, clock=clock, trust=with_keys) as other,
        ):
            one.headers, other.headers = {"x-client": "one"}, {"x-client": "other"}
            for agent in (one, other):
                agent.call(GOVERNED)
                assert agent.recall(GOVERNED)
            seen = [agent.memory.store.known(address).knowledge.vouched for agent in (one, other)]
            for of in (
                lambda vouched: vouched.log,
                lambda vouched: vouched.digest,
                lambda vouched: vouched.at,
            ):
                assert of(seen[0]) != of(seen[1])
            rotate(provider)
            for agent in (one, other):
                agent.call(FREE)
                assert (held(agent), agent.of(Distrusted), agent.of(LogLost)) == ([], [], [])
                agent.call(GOVERNED)
            one.headers = {"x-client": "other"}
            one.call(GOVERNED)
            assert "has begun another log" in one.of(Distrusted)[0].why
            assert one.recall(GOVERNED) == []
            one.headers = {"x-client": "one"}
            one.memory.refresh(address)
            assert one.recall(GOVERNED)
    provider.close()
