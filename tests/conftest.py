"""Real engines for the tests, and Hypothesis profiles."""

import functools
import gc
import logging
import os
import pickle
import signal
import tomllib

import httpx._transports.default
import httpx2._transports.default
import pytest
from hypothesis import HealthCheck, settings

from shelflife.server import policies
from tests.distribution import rank_of
from tests.engines import engine, schema_of_its_own
from tests.nursery import end_shared_nursery, shared_nursery

pytest_plugins = ["tests.forked"]

gc.disable()  # until all is collected: nothing of what is imported is garbage, and looking for it took half of the time

settings.register_profile(
    "suite", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", settings.get_profile("suite"), max_examples=5_000)
settings.load_profile(os.environ.get("SHELFLIFE_TESTS", "suite"))

# Each client reads the certificates of the world, for 20 ms, and no server of the tests has one. So all share one context.
for transports in (httpx._transports.default, httpx2._transports.default):
    transports.create_ssl_context = functools.cache(transports.create_ssl_context)

# Each server reads the same tables, and each run the same stream: a fifth of the time that a server needs to start.
_loads = tomllib.loads
_pickled = functools.cache(lambda text: pickle.dumps(_loads(text)))
tomllib.loads = lambda text, **options: _loads(text, **options) if options else pickle.loads(_pickled(text))

# Each provider of a reference API looks at the same code, which nobody changes: a third of the time that a server of one needs to start.
_look_at = policies.PolicyCode
_looked_at = functools.cache(_look_at)


def _code_of(function):
    is_of_an_api = (getattr(function, "__module__", None) or "").startswith("shelflife.apis.")
    return (_looked_at if is_of_an_api else _look_at)(function)


policies.PolicyCode = _code_of

# An app of Litestar has all loggers tell from INFO on, and these tell of each request.
for library in ("httpx", "httpx2"):
    logging.getLogger(library).setLevel(logging.WARNING)

# What a script starts in its background ignores Ctrl-C, and so would the processes to which tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    if config.option.workers:  # of those that are to share it none is there yet
        shared_nursery()


def pytest_unconfigure():
    end_shared_nursery()


def pytest_collection_modifyitems(items):
    items.sort(key=rank_of)


def pytest_collection_finish():
    """All that was imported and collected stays until the end: looking for garbage in it took a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.callbacks.append(_note_full_search)
    gc.set_threshold(10_000, 10, 10)
    gc.enable()


_full_searches = []


def _note_full_search(phase, search):
    if phase == "stop" and search["generation"] == 2:
        _full_searches.append(search)


@pytest.hookimpl(trylast=True)
def pytest_runtest_logfinish():
    """What a full search has left is alive, and most of it stays as well: no later one goes through a million things again."""
    if _full_searches:
        _full_searches.clear()
        gc.collect(1)  # what this test has left
        gc.freeze()


@pytest.fixture(scope="session")
def nursery():
    return shared_nursery()


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL for all tests of this process."""
    with engine("postgres") as started:
        yield started


@pytest.fixture
def postgres_url(postgres):
    """The address of a schema of its own."""
    return schema_of_its_own(postgres.url)


@pytest.fixture(scope="session")
def valkey():
    """A Valkey for all tests of this process."""
    with engine("valkey") as started:
        yield started


@pytest.fixture
def valkey_url(valkey):
    """The address of an empty Valkey."""
    import redis

    with redis.Redis.from_url(valkey.url) as client:
        client.flushall()
    return valkey.url
