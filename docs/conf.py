"""How Sphinx makes the book. `make docs` runs it, and warnings are errors."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from shelflife import __version__

project = "Shelflife"
author = "the authors of Shelflife"
release = version = __version__
language = "en"

extensions = ["myst_parser", "_book"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_book"]
myst_enable_extensions = ["colon_fence", "tasklist"]
myst_heading_anchors = 4
smartquotes = False
toc_object_entries = False
python_maximum_signature_line_length = 72
suppress_warnings = ["misc.highlighting_failure"]  # a block may leave something out with an ellipsis

html_theme = "furo"
html_title = "Shelflife"
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_js_files = ["book.js"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_show_sphinx = False
html_last_updated_fmt = None
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b6b3a", "color-brand-content": "#0b6b3a"},
    "dark_css_variables": {"color-brand-primary": "#56d38a", "color-brand-content": "#56d38a"},
}
