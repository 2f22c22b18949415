"""Configuration of Sphinx. Build the site from the root of the checkout, offline:

    .venv/bin/python -m sphinx -W --keep-going -n docs docs/_build

Reference pages are generated from the program on the way: see `generator/`.
"""

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS), str(DOCS.parent / "builder")]  # the program beside this file, whatever is installed

import tfimg  # noqa: E402

project = "tfimg"
author = "the tfimg authors"
copyright = author  # noqa: A001 - Sphinx reads it
version = release = tfimg.__version__

extensions = ["myst_parser", "generator"]
exclude_patterns = ["_build", "generator"]
source_suffix = {".md": "markdown"}
templates_path = ["_templates"]

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 3
smartquotes = False  # quotation marks of commands stay as they are typed

html_theme = "furo"
html_title = f"tfimg {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b57d0", "color-brand-content": "#0b57d0"},
    "dark_css_variables": {"color-brand-primary": "#8ab4f8", "color-brand-content": "#8ab4f8"},
}

# `-b linkcheck` stays offline: it checks links within the site only.
linkcheck_ignore = ["https?://.*"]
