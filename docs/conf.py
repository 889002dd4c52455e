"""Sphinx's settings of the site; docs/build.py collects its pages and runs Sphinx."""

from importlib import metadata

project = html_title = "Which token does attention learn to read?"
extensions = ["myst_nb", "numpydoc", "sphinx.ext.viewcode"]
extensions += ["sphinx_copybutton", "sphinx_design"]

# The pages: stored outputs are shown and nothing is executed.
nb_execution_mode = "off"
nb_merge_streams = True
nb_render_markdown_format = "myst"
myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "dollarmath"]
myst_enable_extensions += ["html_image"]
myst_heading_anchors = 4
myst_dmath_double_inline = True

# The reference of `lib`; its docstrings say the types in words.
autodoc_typehints = "none"
numpydoc_show_class_members = False

# MathJax comes from a package, of which the site uses a file and its fonts.
package = metadata.distribution("sphinx-mathjax-offline")
html_static_path = ["static", str(package.locate_file("sphinx-mathjax-offline/static"))]
mathjax_path = "mathjax/tex-chtml.js"
mathjax_config_path = "mathjax.js"
myst_update_mathjax = False
exclude_patterns = ["mathjax/[!ot]*", "mathjax/tex-[!c]*", "mathjax/tex-chtml-*"]
exclude_patterns += ["mathjax/output/svg*", "README.md"]  # README is in the templates

html_theme = "furo"
html_theme_options = {"navigation_with_keys": True}
html_css_files = ["site.css"]
html_js_files = ["scorer.js", "site.js", "svg.js", "explainer.js", "mirror.js"]
html_favicon = "static/icon.svg"
html_copy_source = False
html_show_copyright = False
