"""What the tools of the tests return."""

ROOT = "tool://shop"


class Result:
    """What MCP calls a result, as any framework may model it."""

    def __init__(self, content, is_error=False, meta=None):
        self.content, self.is_error, self.meta = content, is_error, meta

    def model_copy(self, update):
        return Result(**{**vars(self), **update})


def refusal(code="S1", version="v1", plan="growth"):
    """What an API without a log answers to a request without the right code."""
    suggestion = {
        "type": "USE_CODE",
        "parameters": {"promo_code": code},
        "cache_hint": "cacheable",
        "table": "codes",
        "tables": [{"table": "codes", "version": version}],
        "rows": ["codes:growth"],
        "cells": {"codes": {"growth": ["code"]}},
        "when": {"plan": plan},
        "unless": {"promo_code": [code]},
    }
    return {
        "success": False,
        "recovery_feedback": {"suggestions": [suggestion]},
        "table_versions": {"codes": version},
    }


def fixing(parameters, when=None):
    """What a tool returns whose API would have these arguments set."""
    told = refusal()
    [suggestion] = told["recovery_feedback"]["suggestions"]
    suggestion |= {"parameters": parameters, "when": when or {}, "unless": {}}
    return told
