"""Responses as a server would have sent them, made up word by word."""

import json

from shelflife.client import Exchange, Reply

STAMPS = {"table_versions": {"t": "1"}, "rules_version": "abc"}
FIX = {
    "type": "F",
    "parameters": {"x": 1},
    "cache_hint": "cacheable",
    "table": "t",
    "tables": [{"table": "t", "version": "1"}],
    "rows": ["t:k"],
    "when": {},
}


def said(body, headers=None):
    """The response to one and the same request, of which only this differs."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json"} if headers is None else headers
    return Exchange("http://h", "POST /x", {"a": 1}, Reply(422, raw, headers))


def rejection(**changes):
    """A body that teaches one fix."""
    return {"success": False, "recovery_feedback": {"suggestions": [FIX | changes]}, **STAMPS}


def rejection_number(number):
    """A response that teaches one fix; every tenth also moves the table, so that all the fixes before it go."""
    version = str(number // 10)
    fix = FIX | {"tables": [{"table": "t", "version": version}], "when": {"a": number}}
    return said({"recovery_feedback": {"suggestions": [fix]}, "table_versions": {"t": version}})
