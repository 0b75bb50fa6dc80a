"""Tables, figures and a report, made from the scores of runs alone."""

from shelflife.lab.exhibits.cells import Cell, Column, Exhibit, Kind, Row
from shelflife.lab.exhibits.collection import Collection, LeftOut, collection_of
from shelflife.lab.exhibits.files import ExhibitsError, make_room, write_all

__all__ = [
    "Cell",
    "Collection",
    "Column",
    "Exhibit",
    "ExhibitsError",
    "Kind",
    "LeftOut",
    "Row",
    "collection_of",
    "make_room",
    "write_all",
]
