"""What the tests of one integration or another share."""

import pytest

from shelflife.client import pauses
from shelflife.integrations import following as module_of_followers
from shelflife.integrations.following import Follower
from tests.integrations.followers import InATask


@pytest.fixture(params=[Follower, InATask], ids=["thread", "task"])
def following(request):
    """Both kinds of followers, used in the same way."""
    return request.param


@pytest.fixture
def pauses_s(monkeypatch):
    """The pauses that followers make, each as it is before chance makes it longer."""
    made = []
    monkeypatch.setattr(
        module_of_followers, "apart", lambda pause_s: (made.append(pause_s), pauses.apart(pause_s))[1]
    )
    return made
