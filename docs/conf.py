"""Sphinx configuration: Markdown pages, and pages generated from the code.

The API reference, the keys of a study and the command line's help are generated.
"""

from __future__ import annotations

import importlib.metadata
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "_ext"))

project = "fegsam"
author = "the fegsam authors"
release = importlib.metadata.version("fegsam")
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "from_code",
    "mathml",
    "note",
    "notebooks",
]
html_math_renderer = "mathml"
numfig = True
numfig_secnum_depth = 0
notebooks = "../examples/notebooks"

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

# A link without a target is an error, except for types that other packages define and for shapes
# such as "(S, A) array".
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
