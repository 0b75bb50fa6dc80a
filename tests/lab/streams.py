"""The streams that come with the lab, as far as tests can play them."""

from shelflife.lab.scenarios import load, shipped

AT_HAND = [name for name in shipped() if not name.startswith("organic-banks")]
"""Those for which nothing has to be fetched."""

SHORT = [name for name in AT_HAND if len(load(name).order) <= 48]
