"""Several worker processes: over one log they are right at once, and without one they say so."""

import re
import signal
import subprocess
import sys

import httpx2
import pytest

from shelflife.client import Guard, Memory
from shelflife.integrations.httpx2 import MemoryTransport
from tests.acme_world import GOVERNED
from tests.cli.commands import Serving, run_here
from tests.processes import started, wait_until

ADMIN = {"Authorization": "Bearer t"}
ROTATED = {"table": "active_csm_codes", "set": {"plan_partner_growth": {"code": "WINTERLAUNCH26"}}}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--port", "0"], "--workers needs --state"),
        (["--mcp"], "--mcp serves from one process: leave --workers out"),
    ],
)
def test_several_workers_where_they_cannot_be_are_refused_in_one_sentence(options, why):
    refused = run_here("serve", "acme", "--workers", "2", *options)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert why in refused.stderr


def versions_told(address, count=24):
    """By that many new connections, which come to all workers."""
    told = (httpx2.get(f"{address}/contract/state", trust_env=False) for _ in range(count))
    return {one.json()["table_versions"]["active_csm_codes"] for one in told}


@pytest.fixture(scope="module")
def four_workers(tmp_path_factory):
    """The address of an API that four processes serve over one log, all of which have started."""
    state = tmp_path_factory.mktemp("four") / "acme.db"
    with Serving("acme", "--workers", "4", "--state", str(state), "--admin-token", "t") as served:
        address = str(served.client.base_url).rstrip("/")
        # patience, for none of them may have started yet
        wait_until(lambda: told_by_all(address, "/admin/overview", 1)[0]["workers"]["live"] == 4)
        yield address


def told_by_all(address, path, count=16):
    """What an operator is told by that many new connections, which come to all workers."""
    answers = [httpx2.get(address + path, headers=ADMIN, trust_env=False, timeout=60) for _ in range(count)]
    assert {one.status_code for one in answers} == {200}
    is_json = "json" in answers[0].headers["content-type"]
    return [one.json() if is_json else one.text for one in answers]


@pytest.mark.spec("7.14")
def test_a_rotation_costs_an_agent_one_retry_whichever_of_four_workers_it_meets(four_workers):
    memory, statuses = Memory(), []

    def play(episode_count):
        for _ in range(episode_count):
            # a connection for each request, so that it may come to any worker
            transport = MemoryTransport(memory, guard=Guard())
            with httpx2.Client(
                base_url=four_workers, transport=transport, trust_env=False, timeout=60
            ) as client:
                answer = client.post("/subscriptions", json=GOVERNED)
                if answer.status_code == 422:
                    fix = answer.json()["recovery_feedback"]["suggestions"][0]["parameters"]
                    assert client.post("/subscriptions", json={**GOVERNED, **fix}).status_code == 201
                statuses.append(answer.status_code)

    play(10)
    assert statuses == [422, *[201] * 9]
    assert httpx2.post(f"{four_workers}/admin/reload-table", json=ROTATED, headers=ADMIN).status_code == 200
    wait_until(lambda: len(versions_told(four_workers)) == 1)
    statuses.clear()
    play(10)
    assert statuses == [422, *[201] * 9]


def test_page_scores_and_metrics_are_of_all_four_workers(four_workers):
    def refusals():
        """How often requests were refused, by the metrics of each that answers."""
        told = told_by_all(four_workers, "/admin/metrics")
        return {int(re.search(r'checks_total\{result="refused"\} (\d+)', one)[1]) for one in told}

    wait_until(lambda: len(refusals()) == 1)
    [before] = refusals()
    for _ in range(12):
        answer = httpx2.post(
            f"{four_workers}/subscriptions",
            json=GOVERNED,
            headers={"X-API-Key": "forgetful"},
            trust_env=False,
        )
        assert answer.status_code == 422
    wait_until(lambda: refusals() == {before + 12})

    def scores():
        """How often this client was refused, by the page of each that answers."""
        told = told_by_all(four_workers, "/admin/clients")
        return {max((client["refused"] for client in one["clients"]), default=0) for one in told}

    wait_until(lambda: scores() == {12})
    overviews = told_by_all(four_workers, "/admin/overview")
    assert {one["workers"]["live"] for one in overviews} == {4}
    assert {one["number"] for one in overviews} == {overviews[0]["number"]}
    policies = told_by_all(four_workers, "/admin/policies")
    refused = {sum(policy["refused"] for policy in one["policies"]) for one in policies}
    assert refused == {before + 12}
    assert len(set(told_by_all(four_workers, "/admin/"))) == 1


def test_workers_over_a_database_end_when_the_first_process_is_killed(postgres_url):
    with Serving("acme", "--workers", "2", "--state", postgres_url) as served:
        address = str(served.client.base_url).rstrip("/")
        wait_until(lambda: is_up(address))
        served.process.kill()
        wait_until(lambda: not is_up(address))
        assert not is_up(address)


def is_up(address):
    try:
        return httpx2.get(f"{address}/contract/state", trust_env=False, timeout=60).status_code == 200
    except httpx2.TransportError:
        return False


APP = """
from fastapi import FastAPI
from shelflife.integrations.fastapi import install
from shelflife.server import Provider

provider = Provider({"codes": {"growth": {"code": "SUMMER"}}})
app = FastAPI()
install(app, provider)
"""


@pytest.mark.parametrize(("workers", "is_told"), [(1, False), (2, True)])
def test_workers_without_a_shared_log_say_so_when_they_start(tmp_path, workers, is_told):
    (tmp_path / "shop.py").write_text(APP)
    command = [sys.executable, "-m", "uvicorn", "shop:app", "--port", "0", "--workers", workers]
    with started(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if sum("Application startup complete" in one for one in lines) == workers:
                break
        process.send_signal(signal.SIGTERM)
        lines += process.stderr.readlines()
    told = [line for line in lines if "a reload reaches only one of them" in line]
    assert len(told) == (workers if is_told else 0)
    assert all("give the provider a log" in line for line in told)
