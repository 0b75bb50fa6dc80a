"""`shelflife proxy` says in one sentence what is wrong, and hands requests on. Before a real API it is in `test_gateway`."""

import socket
import subprocess
import sys
from contextlib import suppress

import pytest

from shelflife.cli import main
from tests.cli.commands import Serving
from tests.document_programs import write_programs
from tests.processes import started, wait_until

CONTRACT = "from shelflife.server import Provider\nprovider = Provider({'t': {}})\n"
UPSTREAM = ["--upstream", "http://127.0.0.1:9"]


@pytest.mark.parametrize(
    ("text", "options", "why"),
    [
        (None, UPSTREAM, "there is no Python file"),
        ("1 / 0", UPSTREAM, "does not run: ZeroDivisionError: division by zero"),
        ("provider = 1", UPSTREAM, "has no Provider called provider"),
        (
            CONTRACT,
            ["--upstream", "localhost:9000"],
            "an upstream is an address such as http://127.0.0.1:9000",
        ),
        (CONTRACT, [*UPSTREAM, "--enforce"], 'whom it lets pass: --as-caller "GET /me"\n'),
        (CONTRACT, ["--upstream", "http://127.0.0.1:abc"], "an upstream is an address such as"),
        (CONTRACT, [*UPSTREAM, "--as-caller", "me"], "a caller is known by a request such as 'GET /me'"),
        (CONTRACT, [*UPSTREAM, "--timeout", "0"], "--timeout is a number of seconds above 0"),
        (CONTRACT, [*UPSTREAM, "--port", "TAKEN"], "--port 0 takes a free one"),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence(tmp_path, capsys, monkeypatch, text, options, why):
    monkeypatch.syspath_prepend(tmp_path)  # which puts the path back
    path = tmp_path / "proxied_contract.py"
    if text is not None:
        path.write_text(text)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        options = [port if one == "TAKEN" else one for one in options]
        assert main(["proxy", str(path), *options]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert why in said.err


def test_it_says_where_it_is_and_may_import_what_stands_beside_it(tmp_path):
    (tmp_path / "rows.py").write_text("ROWS = {'a': {}}")
    (tmp_path / "shop.py").write_text("from rows import ROWS\n" + CONTRACT.replace("{}", "ROWS"))
    with Serving("proxy", tmp_path / "shop.py", *UPSTREAM) as proxy:
        assert proxy.greeting.startswith(f"Explains {tmp_path / 'shop.py'} on http://127.0.0.1:")
        gone = proxy.client.get("/x")
        assert (gone.status_code, gone.headers.get("server")) == (502, None)


@pytest.mark.runs("old_orders.py", "orders_contract.py", "orders_agent.py")
def test_the_agent_of_the_guide_orders_rightly_the_second_time(tmp_path):
    write_programs(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def is_up():
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return True

    api = (tmp_path / "old_orders.py").read_text().replace("9000", str(port))
    upstream = ["--upstream", f"http://127.0.0.1:{port}"]
    with (
        started([sys.executable, "-c", api], stderr=subprocess.DEVNULL),
        Serving("proxy", tmp_path / "orders_contract.py", *upstream) as proxy,
    ):
        wait_until(is_up)
        through = str(proxy.client.base_url).rstrip("/")
        agent = (tmp_path / "orders_agent.py").read_text().replace("http://127.0.0.1:8080", through)
        said = subprocess.run([sys.executable, "-c", agent], capture_output=True, text=True, check=False)
    assert said.stdout.splitlines() == ["422 this cannot be ordered", "200 made"], said.stderr
