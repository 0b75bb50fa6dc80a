"""Every fix an API hands to an agent carries its shelf life.

`shelflife.contract` is the protocol, `shelflife.server` everything an API provider needs. Importing
this package does no work: import the room you need.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
