"""The authority: tables, registry, rules, graph, policies, feedback. It knows only the contract.

Needs the extra `shelflife[server]`.
"""

from shelflife.contract import Level, Rule
from shelflife.server.disclosure import Disclosure
from shelflife.server.errors import (
    MalformedRequest,
    PolicyFailed,
    ReloadRefused,
    ServerError,
    SourceError,
    StateFileError,
    UnknownTable,
    UsageError,
    VersionTaken,
)
from shelflife.server.policies import Fix, PreconditionFailed, Rejected, Violation, fix
from shelflife.server.provider import Provider, TableSource
from shelflife.server.reads import Request, RowView, Tables, TableView
from shelflife.server.registry import Registry
from shelflife.server.sources import csv_file, json_file, sql_query, toml_file
from shelflife.server.state import State
from shelflife.server.statefile import StateFile

__all__ = [
    "Disclosure",
    "Fix",
    "Level",
    "MalformedRequest",
    "PolicyFailed",
    "PreconditionFailed",
    "Provider",
    "Registry",
    "Rejected",
    "ReloadRefused",
    "Request",
    "RowView",
    "Rule",
    "ServerError",
    "SourceError",
    "State",
    "StateFile",
    "StateFileError",
    "TableSource",
    "TableView",
    "Tables",
    "UnknownTable",
    "UsageError",
    "VersionTaken",
    "Violation",
    "csv_file",
    "fix",
    "json_file",
    "sql_query",
    "toml_file",
]
