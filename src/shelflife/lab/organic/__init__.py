"""Organic drift: release histories of real reference data, and streams that replay them."""
