"""Sphinx's settings of the site; docs/build.py collects its pages and runs Sphinx."""

from importlib import metadata

from records import Claims, Ledger
from sphinx.application import Sphinx

project = "Which token does attention learn to read?"
html_title = project
html_short_title = "Attention dynamics"
version = release = metadata.version("attention-dynamics")
language = "en"
extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
]

# The pages: stored outputs are shown and nothing is executed.
nb_execution_mode = "off"
nb_merge_streams = True
nb_number_source_lines = False
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath", "html_image"]
myst_heading_anchors = 4
myst_dmath_double_inline = True
nb_render_markdown_format = "myst"
nb_code_prompt_show = "Show the set-up"
nb_code_prompt_hide = "Hide the set-up"

# The reference of `lib`.
autosummary_generate = True
autodoc_typehints = "none"  # the docstrings say them in words
numpydoc_show_class_members = False

# MathJax comes from a package, with its fonts: a page asks nothing of the network.
# A formula may not open a link or run anything: \href and \require are unknown to it.
mathjax_path = "mathjax/tex-chtml.js"
mathjax3_config = {
    "tex": {
        "inlineMath": [["\\(", "\\)"], ["$", "$"]],
        "packages": {"[-]": ["autoload", "html", "require"]},
    },
    "chtml": {"displayAlign": "left", "displayIndent": "1.5em"},
    "options": {
        "enableMenu": False,
        "ignoreHtmlClass": "content",
        "processHtmlClass": "math|text_html",
    },
}
myst_update_mathjax = False

html_theme = "furo"
html_css_files = ["site.css"]
html_js_files = ["site.js", "svg.js", "explainer.js", "mirror.js"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
copybutton_exclude = ".linenos, .gp, .go"


def setup(app: Sphinx) -> None:
    """Register the two directives that show records."""
    app.add_directive("claims", Claims)
    app.add_directive("ledger", Ledger)
