"""A figure in words, for whoever cannot see it: its panels, their axes, lines and marks."""

import re

_GREEK = dict(zip("alpha beta gamma delta eta theta kappa lambda mu".split(), "αβγδηθκλμ"))
_GREEK |= dict(zip("rho sigma tau phi psi omega Delta Lambda Sigma".split(), "ρστφψωΔΛΣ"))
_GREEK |= dict(varepsilon="ε", epsilon="ε", pi="π", Phi="Φ", Psi="Ψ", Omega="Ω", ell="ℓ")
_GREEK |= dict(sum="Σ", sqrt="√", infty="∞", nabla="∇")
_RELATIONS = dict(leq="≤", le="≤", geq="≥", ge="≥", to="→", propto="∝", approx="≈", times="×")
_RELATIONS |= {"in": "∈", "sim": "~"}
_OTHERS = dict(top="T", cdot="·", lVert="‖", rVert="‖", left="", right="", big="", Big="", pm="±")
WORDS = _GREEK | {name: f" {sign} " for name, sign in _RELATIONS.items()} | _OTHERS


def plain(text: str) -> str:
    """Matplotlib's mathematics as plain text.

    "$\\log_{10}(L - L^*)$" becomes "log_10(L - L^*)", "$\\eta_t\\propto t$" "η_t ∝ t".
    """
    text = re.sub(r"\\(?:mathrm|mathbf|mathcal|text|operatorname)\{([^{}]*)\}", r"\1", text)
    text = re.sub(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}", r"\1/\2", text)
    text = re.sub(r"\\[,;: ]", " ", text.replace(r"\|", "‖").replace(r"\!", ""))
    # An unknown command is a word, apart from what stands before it.
    text = re.sub(r"(?<=\w)\\([A-Za-z]+)", lambda m: WORDS.get(m[1], f" {m[1]}"), text)
    text = re.sub(r"\\([A-Za-z]+)", lambda m: WORDS.get(m[1], m[1]), text)
    return re.sub(r"\s+", " ", re.sub(r"[${}\\]", "", text)).strip()


def describe(figure) -> str:
    """What `figure` shows: each panel's title, axes, their scales, and the names in its legends."""
    panels = [axes for axes in figure.axes if axes.axison and axes.get_label() != "<colorbar>"]
    shown = [words for axes in panels if (words := _panel(axes))]
    names = list(
        dict.fromkeys(plain(name) for axes in [figure, *figure.axes] for name in _names(axes))
    )
    count = f"{len(panels)} panels" if len(panels) != 1 else "One panel"
    legend = f". Lines and marks: {'; '.join(names)}" if names else ""
    return f"{count}: {'; '.join(shown)}{legend}." if shown else f"{count}{legend}."


def _panel(axes) -> str:
    titles = (axes.get_title(loc=place) for place in ("left", "center", "right"))
    title, x, y = map(plain, (" ".join(filter(None, titles)), axes.get_xlabel(), axes.get_ylabel()))
    what = ", ".join(filter(None, (title, y)))
    if not (what or x):
        return ""
    scales = (("x", axes.get_xscale()), ("y", axes.get_yscale()))
    log = " and ".join(name for name, scale in scales if scale == "log")
    kind = "coloured cells of " if axes.images else ""
    against = f" against {x}" if x else ""
    return f"{kind}{what}{against}" + (f" (logarithmic in {log})" if log and what else "")


def _names(artist) -> list[str]:
    """The entries of a figure's or panel's legends."""
    legends = artist.legends if hasattr(artist, "legends") else [artist.get_legend()]
    return [
        text.get_text() for legend in legends if legend is not None for text in legend.get_texts()
    ]
