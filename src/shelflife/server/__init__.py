"""The authority: tables, registry, rules, graph, policies, feedback. It knows only the contract.

Needs `rpds-py`, which every extra for a server brings: `server`, `litestar`, `flask`, `django`, `mcp`, `fastmcp`.
"""

from shelflife.contract import Rule
from shelflife.contract.messages import ReloadReport
from shelflife.server.declaring import TableSource
from shelflife.server.disclosure import Disclosure
from shelflife.server.errors import (
    BadRow,
    BadRule,
    BadSetting,
    LogError,
    MalformedRequest,
    PolicyFailed,
    ReloadRefused,
    ServerError,
    SourceError,
    TableMoved,
    UnknownTable,
    UsageError,
    VersionTaken,
)
from shelflife.server.limits import ReloadLimits
from shelflife.server.policies import Fix, PreconditionFailed, Rejected, Violation, fix
from shelflife.server.provider import Provider
from shelflife.server.reads import Request, RowView, Tables, TableView
from shelflife.server.refreshing import every
from shelflife.server.registry import Registry
from shelflife.server.scoring import Scoring
from shelflife.server.signing import Signing
from shelflife.server.sources import csv_file, json_file, sql_query, toml_file
from shelflife.server.sqlite_log import SqliteLog
from shelflife.server.state import State
from shelflife.server.wire import Level, WireFormat

__all__ = [
    "BadRow",
    "BadRule",
    "BadSetting",
    "Disclosure",
    "Fix",
    "Level",
    "LogError",
    "MalformedRequest",
    "PolicyFailed",
    "PreconditionFailed",
    "Provider",
    "Registry",
    "Rejected",
    "ReloadLimits",
    "ReloadRefused",
    "ReloadReport",
    "Request",
    "RowView",
    "Rule",
    "Scoring",
    "ServerError",
    "Signing",
    "SourceError",
    "SqliteLog",
    "State",
    "TableMoved",
    "TableSource",
    "TableView",
    "Tables",
    "UnknownTable",
    "UsageError",
    "VersionTaken",
    "Violation",
    "WireFormat",
    "csv_file",
    "every",
    "fix",
    "json_file",
    "sql_query",
    "toml_file",
]
