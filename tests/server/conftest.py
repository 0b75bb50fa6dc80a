"""What the tests of the server share."""

import pytest


@pytest.fixture(params=["file", "postgres"])
def place(request, tmp_path):
    """Where a log is, of either kind."""
    if request.param == "file":
        return str(tmp_path / "state.db")
    return request.getfixturevalue("postgres_url")
