"""Sphinx's settings of the site; docs/build.py collects its pages and runs Sphinx."""

import re
from importlib import metadata

from sphinx.application import Sphinx

project = html_title = "Which token does attention learn to read?"
extensions = ["myst_nb", "numpydoc", "sphinx.ext.viewcode"]
extensions += ["sphinx_copybutton", "sphinx_design"]

# The pages: stored outputs are shown and nothing is executed.
nb_execution_mode = "off"
nb_merge_streams = True
nb_render_markdown_format = "myst"
nb_code_prompt_show = "Show the set-up"
nb_code_prompt_hide = "Hide the set-up"
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath", "html_image"]
myst_heading_anchors = 4
myst_dmath_double_inline = True

# The reference of `lib`; its docstrings say the types in words.
autodoc_typehints = "none"
numpydoc_show_class_members = False

# MathJax comes from a package.
package = metadata.distribution("sphinx-mathjax-offline")
mathjax = package.locate_file("sphinx-mathjax-offline/static")
mathjax_path = "mathjax/tex-chtml.js"
mathjax_config_path = "mathjax.js"
myst_update_mathjax = False

html_theme = "furo"
html_theme_options = {"navigation_with_keys": True}
html_static_path = ["static", str(mathjax)]
html_css_files = ["site.css"]
html_js_files = ["site.js", "svg.js", "explainer.js", "mirror.js"]
html_scaled_image_link = False  # a picture of README leads to its page
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
# README's sections are in the templates. Of MathJax the site uses a file and its fonts.
exclude_patterns = ["README.md", "mathjax/[!ot]*", "mathjax/tex-[!c]*"]
exclude_patterns += ["mathjax/tex-chtml-*", "mathjax/output/svg*"]

# A link to the picture or record of a figure leads to its page. A picture that leads
# somewhere is written as Markdown first, so that Sphinx checks and moves its target.
PICTURE = re.compile(r'<a href="([^"]+)">(<img [^>]*>)</a>')
FIGURE = re.compile(r"(?<!!)(\[[^\]]*\]\([^)]*\b(?:demo|desk)/\w+)\.(?:png|json)\)")


def lead_to_figures(app: Sphinx, page: str, source: list[str]) -> None:
    """Change such links in the text of a page, which is the one entry of `source`."""
    source[0] = FIGURE.sub(r"\1.md)", PICTURE.sub(r"[\2](\1)", source[0]))


def setup(app: Sphinx) -> None:
    """Register what no setting says."""
    app.connect("source-read", lead_to_figures)
    app.set_html_assets_policy("always")  # words of a record may hold the only formulas
