"""A scripted model and a billing server for the loops of frameworks."""

import os

import pytest

from tests.agents.billing import billing
from tests.agents.scripted import scripted_model


@pytest.fixture(scope="module")
def vendor(tmp_path_factory):
    with scripted_model(tmp_path_factory.mktemp("model")) as model:
        yield model


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
