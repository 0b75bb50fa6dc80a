"""What a weekly meeting must say of its time zone, so that calendars agree on when it is."""

from shelflife.server import Fix, Request, Tables, fix

__all__ = ["POLICIES"]


def zone_must_be_known(request: Request, tables: Tables) -> Fix | None:
    """Nobody knows this time zone, so the meeting is tentative."""
    if request["zone"] in tables.zones or request.equals("tentative", True):
        return None
    return fix("KEEP_TENTATIVE", tentative=True)


def zone_must_go_by_its_present_name(request: Request, tables: Tables) -> Fix | None:
    """This time zone has another name now."""
    renamed = tables.zone_aliases.get(request["zone"])
    return None if renamed is None else fix("USE_PRESENT_NAME", zone=renamed["zone"])


def offset_must_be_that_of_the_zone(request: Request, tables: Tables) -> Fix | None:
    """This time zone has another offset from UTC."""
    zone = tables.zones.get(request["zone"])
    if zone is None or "utc_offset" not in zone or request.equals("utc_offset", zone["utc_offset"]):
        return None
    return fix("USE_UTC_OFFSET", utc_offset=zone["utc_offset"])


def daylight_saving_must_be_that_of_the_zone(request: Request, tables: Tables) -> Fix | None:
    """This time zone has another rule for daylight saving."""
    zone = tables.zones.get(request["zone"])
    if zone is None or "dst_rule" not in zone or request.equals("dst_rule", zone["dst_rule"]):
        return None
    return fix("USE_DST_RULE", dst_rule=zone["dst_rule"])


POLICIES = (
    zone_must_be_known,
    zone_must_go_by_its_present_name,
    offset_must_be_that_of_the_zone,
    daylight_saving_must_be_that_of_the_zone,
)
