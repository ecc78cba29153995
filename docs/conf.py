"""The site: Markdown pages, and what is generated from the code: the API, the keys of a study, the
command line."""

from __future__ import annotations

import importlib.metadata
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "_ext"))

project = "fegsam"
author = "the fegsam authors"
release = importlib.metadata.version("fegsam")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "from_code"]

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

# A missing target of a link is an error; types that other packages define, and shapes such as "(S,
# A) array", are no links.
nitpicky = True
nitpick_ignore_regex = [
    ("py:class", r".*"),
    ("py:data", r"typing\..*|.*numpy.*"),
    ("py:obj", r"typing\..*"),
]
default_role = "literal"

autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_type_aliases = {
    name: name for name in ("ArrayLike", "FloatArray", "IntArray", "Sampling", "Engine")
}
napoleon_use_rtype = False
napoleon_use_ivar = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100

html_theme = "furo"
html_title = "fegsam"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0072B2", "color-brand-content": "#0072B2"},
    "dark_css_variables": {"color-brand-primary": "#56B4E9", "color-brand-content": "#56B4E9"},
}
exclude_patterns = ["_build"]
# Pages that come with other parts of the package are listed where they are there.
