"""A client for an app that really runs on loopback."""

from contextlib import contextmanager

import httpx2

from shelflife.testing import serving

TOKEN = "s3cret-token"
ADMIN = {"Authorization": f"Bearer {TOKEN}"}


@contextmanager
def calling(app, *, lifespan="auto", **options):
    """A client whose requests go to the app."""
    with (
        serving(app, lifespan=lifespan) as address,
        httpx2.Client(base_url=address, trust_env=False, timeout=60, **options) as client,
    ):
        yield client
