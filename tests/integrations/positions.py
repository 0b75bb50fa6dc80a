"""Where the log of an app is: as a client can know it, and as its provider does."""

from shelflife.server.faces import face_of


def known_position(client, **options):
    """The position that the app is at, as it tells whoever asks and knows none."""
    answer = client.get("/contract/changes", params={"from": "*"}, **options)
    assert answer.status_code == 200, answer.text
    return answer.json()["to"]


def position_of(provider):
    """The position that a provider is at, without a request."""
    return str(face_of(provider.registry.state, provider.level).position)
