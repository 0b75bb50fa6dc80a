"""A scripted model and a billing server for the loops of frameworks."""

import json
import os

import httpx2
import pytest

from tests.agents.billing import billing
from tests.agents.scripted import KEY, scripted_model


class Model:
    """The vendor, and what it has heard from one test."""

    def __init__(self, http):
        self.address = str(http.base_url).rstrip("/")
        self._http = http

    def heard(self):
        """Each request that was made for an answer of the model, as text."""
        journal = self._http.get("/__aimock/journal").raise_for_status().json()
        entries = journal if isinstance(journal, list) else journal["entries"]
        return [json.dumps(entry["body"]) for entry in entries if entry["method"] == "POST"]

    def forget(self):
        """Begin anew."""
        self._http.post("/__aimock/reset/journal").raise_for_status()


@pytest.fixture(scope="module")
def vendor(tmp_path_factory):
    key = {"Authorization": f"Bearer {KEY}"}
    with (
        scripted_model(tmp_path_factory.mktemp("model")) as address,
        httpx2.Client(base_url=address, trust_env=False, headers=key) as http,
    ):
        yield Model(http)


@pytest.fixture
def model(vendor):
    vendor.forget()
    return vendor


@pytest.fixture(autouse=True)
def a_bare_environment(monkeypatch, tmp_path):
    """No keys and no proxies, and a folder of its own."""
    for name in list(os.environ):
        if name.upper().endswith(("_API_KEY", "_BASE_URL", "_PROXY")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def server():
    with billing() as server:
        yield server
