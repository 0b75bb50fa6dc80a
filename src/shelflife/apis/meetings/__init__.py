"""Meetings in time zones: four policies over the tables of the time zone database."""

from shelflife.apis.meetings.app import meetings_app, meetings_provider

__all__ = ["meetings_app", "meetings_provider"]
