"""The tree of errors, as its module draws it."""

import ast

from _book.outside import ROOT

__all__ = ["error_tree"]


def error_tree(_: str) -> str:
    """The drawing."""
    module = ast.parse((ROOT / "src" / "shelflife" / "errors.py").read_text("utf-8"))
    _, _, drawing = (ast.get_docstring(module) or "").partition("\n\n")
    return f"```text\n{drawing}\n```"
