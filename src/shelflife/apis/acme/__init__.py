"""Acme billing: five policies over six tables, in front of a payment gateway."""

from shelflife.apis.acme.app import ROTATED_CODES, acme_app, acme_provider

__all__ = ["ROTATED_CODES", "acme_app", "acme_provider"]
