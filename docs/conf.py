"""Configuration of the documentation; build it with ``sphinx-build -W -n docs docs/_build``."""

import builtins
from importlib.metadata import version as installed_version

project = "succinct-tries"
author = "The succinct-tries authors"
project_copyright = author
version = release = installed_version("succinct-tries")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = project
html_copy_source = False

myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"
autoclass_content = "class"
napoleon_google_docstring = False
# Types in docstrings are prose with shapes, not names to look up.
napoleon_use_param = False
napoleon_use_rtype = False
napoleon_use_keyword = False

# Names of Python and numpy are not looked up, so that the build needs no network.
nitpick_ignore_regex = [
    ("py:class", r"[^.]*"),  # words of a type in prose: "ndarray of uint8, shape [T]"
    ("py:.*", rf"(builtins\.)?({'|'.join(dir(builtins))})"),
    ("py:.*", r"(numpy|np|npt|pathlib|collections|typing)\..*"),
]
