"""The epoch of an app, as a client can know it."""

from shelflife.contract.versions import Versions


def known_epoch(client):
    """The epoch that the app is in, worked out from the versions it tells."""
    state = client.get("/contract/state").json()
    return Versions(state["table_versions"], state.get("rules_version")).epoch
