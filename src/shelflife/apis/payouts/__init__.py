"""Payouts to bank accounts: three policies over a register of banks."""

from shelflife.apis.payouts.app import payouts_app, payouts_provider

__all__ = ["payouts_app", "payouts_provider"]
