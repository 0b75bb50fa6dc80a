"""What the tests of one integration or another share."""

import pytest

from shelflife.integrations.following import Follower
from tests.integrations.followers import InATask


@pytest.fixture(params=[Follower, InATask], ids=["thread", "task"])
def following(request):
    """Both kinds of followers, used in the same way."""
    return request.param
