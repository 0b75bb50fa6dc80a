"""Several worker processes: over one log they are right at once, and without one they say so."""

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


@pytest.mark.spec("7.14")
def test_a_rotation_costs_an_agent_one_retry_whichever_of_four_workers_it_meets(tmp_path):
    arguments = ("--workers", "4", "--state", str(tmp_path / "acme.db"), "--admin-token", "t")
    with Serving("acme", *arguments) as served:
        address = str(served.client.base_url).rstrip("/")
        memory, statuses = Memory(), []

        def play(episode_count):
            for _ in range(episode_count):
                # a connection for each request, so that it may come to any worker
                transport = MemoryTransport(memory, guard=Guard())
                # and patience, for none of them may have started yet
                with httpx2.Client(
                    base_url=address, transport=transport, trust_env=False, timeout=60
                ) as client:
                    answer = client.post("/subscriptions", json=GOVERNED)
                    if answer.status_code == 422:
                        fix = answer.json()["recovery_feedback"]["suggestions"][0]["parameters"]
                        assert client.post("/subscriptions", json={**GOVERNED, **fix}).status_code == 201
                    statuses.append(answer.status_code)

        play(10)
        assert statuses == [422, *[201] * 9]
        assert httpx2.post(f"{address}/admin/reload-table", json=ROTATED, headers=ADMIN).status_code == 200
        wait_until(lambda: len(versions_told(address)) == 1)
        statuses.clear()
        play(10)
        assert statuses == [422, *[201] * 9]


def test_workers_over_a_database_end_when_the_first_process_is_killed(postgres_url):
    with Serving("acme", "--workers", "2", "--state", postgres_url) as served:
        address = str(served.client.base_url).rstrip("/")
        wait_until(lambda: is_up(address))
        served.process.kill()
        wait_until(lambda: not is_up(address))
        assert not is_up(address)


def is_up(address):
    try:
        return httpx2.get(f"{address}/contract/state", trust_env=False, timeout=5).status_code == 200
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
