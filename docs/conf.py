"""How Sphinx builds the documentation (``make site``). Nothing is fetched, by the build or by a reader."""

import re
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "extensions"), str(HERE.parent / "src")]

project = "pdrn"
author = "The pdrn authors"
copyright = "the pdrn authors, MIT licence"
release = installed_version("pdrn")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "formulas",
    "links",
    "sounds",
]
exclude_patterns = ["extensions"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
autodoc_type_aliases = {
    name: name
    for name in (
        "Array",
        "ArrayLike",
        "Codes",
        "DTypeLike",
        "FloatArray",
        "Progress",
        "Signals",
        "Source",
        "Step",
    )
}
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_param = False
napoleon_use_rtype = False
python_maximum_signature_line_length = 90
nitpicky = True
# Signatures name types of other packages and of the inside, which have no page here.
nitpick_ignore_regex = [("py:(class|data|exc|obj)", ".*")]

html_math_renderer = "mathml"
html_theme = "furo"
html_title = "pdrn"
html_static_path = ["_static"]
html_css_files = ["pdrn.css"]
html_favicon = "../src/pdrn/web/static/icon.svg"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": {"color-brand-primary": "#1d4ed8", "color-brand-content": "#1d4ed8"},
    "dark_css_variables": {"color-brand-primary": "#8ab4ff", "color-brand-content": "#8ab4ff"},
}


def plain_aliases(app, what, name, object, options, signature, returned):
    """Name an alias in a union as elsewhere."""
    return tuple(
        part and re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", part) for part in (signature, returned)
    )


def setup(app):
    """Have signatures adapted."""
    app.connect("autodoc-process-signature", plain_aliases)
