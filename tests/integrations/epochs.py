"""The epoch of an app, as a client can know it."""

from shelflife.contract.compact import epoch_of


def known_epoch(client):
    """The epoch that the app is in, worked out from the versions it tells."""
    state = client.get("/contract/state").json()
    return epoch_of(state["table_versions"], state.get("rules_version"))
