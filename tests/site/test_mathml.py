"""Formulas become MathML, in text, tables and plain words; what cannot be read stays."""

import pytest

from lib.site import mathml


@pytest.mark.parametrize("formula", [r"\nosuch{x}", "{{"])
def test_a_formula_that_cannot_be_read_stays_as_tex(formula):
    assert mathml.mathml(formula) == f"<code>{formula}</code>"


def test_formulas_become_mathml_in_text_and_tables():
    text = mathml.html("The $W_{mm}$ of\n\n$$\\arg\\min_W \\|W\\|$$\n\n| a |\n|---|\n| $x < y$ |")
    assert text.count("<math") == 3 and 'display="block"' in text
    assert "$" not in text and "\\" not in text
    assert "<mo>arg</mo>" in text and "&lt;" in text.replace("&#x0003C;", "&lt;")


def test_plain_text_keeps_its_signs_and_only_dollars_are_formulas():
    text = mathml.formulas("a < b & *c*, $t^2$")
    assert text.startswith("a &lt; b &amp; *c*, <math") and text.endswith("</math>")
    assert mathml.formulas("costs 3 $ < 4") == "costs 3 $ &lt; 4"
