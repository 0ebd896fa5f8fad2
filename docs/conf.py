"""How the documentation is built: ``make docs``."""

project = "quietmean"
author = "The quietmean developers"
project_copyright = author

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
# Pictures of a width: a start page is read on one screen.
myst_enable_extensions = ["dollarmath", "html_image"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "quietmean"
html_show_sourcelink = False

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
add_module_names = False
