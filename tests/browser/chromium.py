"""The browser that the tests open pages in, which the set-up unpacks."""

import os
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

__all__ = ["IS_MISSING", "WHY", "a_browser"]

_FOLDER = Path(__file__).parent / "unpacked"
IS_MISSING = not (_FOLDER / "chromium").exists()
WHY = "there is no browser: make setup unpacks one"


@contextmanager
def a_browser():
    """A browser of its own, until the block ends."""
    libraries = {**os.environ, "LD_LIBRARY_PATH": str(_FOLDER / "al2023" / "lib")}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=_FOLDER / "chromium", args=["--no-sandbox", "--headless"], env=libraries
        )
        yield browser
        browser.close()
