"""Tests of the docstrings of the public API.

An editor and Sphinx can lay them out, and their examples run.
"""

import doctest
import importlib
import inspect

import numpy as np
import pytest
from numpydoc.validate import validate

import lib

ROOMS = [
    "lib.attention",
    "lib.svm",
    "lib.mirror",
    "lib.regression",
    "lib.networks",
    "lib.training",
    "lib.dynamics",
]
# Modules of the companion that notebooks use.
CALLED = [
    "companion.claims",
    "companion.record",
    "companion.plots",
    "companion.ledger",
    "companion.statements",
]
# What the papers offer for data of your own.
OFFERED = [
    "papers.law.margin_law.MarginLaw",
    "papers.law.margin_law.margin_law",
    "papers.law.prediction.Prediction",
    "papers.law.prediction.predict",
]
# Errors of numpydoc that we accept.
UNASKED = {
    "ES01",  # an extended summary where the first sentence says it all
    "GL01",  # our text begins behind the quotes
    "PR08",  # a description may begin with a symbol
    "RT03",  # a description where the type says it all
    "SA01",  # See Also
    "SS06",  # a summary may take two lines
}


def exported():
    """Return every public function and class of the library's packages, by its dotted
    name.
    """
    named = {}
    for room in ROOMS:
        module = importlib.import_module(room)
        for name, value in vars(module).items():
            own = getattr(value, "__module__", "").startswith("lib.")
            if own and not name.startswith("_") and not inspect.ismodule(value):
                named[f"{room}.{name}"] = value
    return named


EXPORTED = exported()


def defined():
    """Return every public function, class and method of the modules in CALLED.

    They are keyed by dotted name.
    """
    named = {}
    for room in CALLED:
        module = importlib.import_module(room)
        for name, value in vars(module).items():
            own = getattr(value, "__module__", "") == room
            if not own or name.startswith("_") or isinstance(value, tuple):
                continue
            named[f"{room}.{name}"] = value
            for method in vars(value) if inspect.isclass(value) else ():
                member = getattr(value, method)
                is_method = inspect.isfunction(member) or inspect.ismethod(member)
                if is_method and not method.startswith("_"):
                    named[f"{room}.{name}.{method}"] = member
    return named


DEFINED = defined()


def test_every_name_of_the_front_door_leads_to_a_documented_one():
    documented = list(EXPORTED.values())
    for name in lib.__all__:
        value = getattr(lib, name)
        ours = inspect.ismodule(value) or any(value is one for one in documented)
        assert ours or isinstance(value, tuple), name


@pytest.mark.parametrize("name", EXPORTED)
def test_an_exported_name_has_a_docstring_that_an_editor_can_lay_out(name):
    found = validate(name)["errors"]
    assert [f"{code}: {said}" for code, said in found if code not in UNASKED] == []


@pytest.mark.parametrize("name", EXPORTED)
def test_the_example_of_an_exported_name_runs(name):
    value = EXPORTED[name]
    finder = doctest.DocTestFinder(recurse=False)
    (test,) = finder.find(value, name, globs={"np": np})
    assert test.examples, f"{name} has no example"
    said = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
    assert said == []


@pytest.mark.parametrize("name", DEFINED)
def test_a_name_of_the_companion_has_a_docstring_that_an_editor_can_lay_out(name):
    unasked = {*UNASKED, "EX01"}  # an example, which often needs a page's files
    found = validate(name)["errors"]
    assert [f"{code}: {said}" for code, said in found if code not in unasked] == []


@pytest.mark.parametrize("name", DEFINED)
def test_the_example_of_a_name_of_the_companion_runs(name):
    finder = doctest.DocTestFinder(recurse=False)
    tests = finder.find(DEFINED[name], name, globs={"np": np})
    said = []
    for test in tests:
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
    assert said == []


def offered(name):
    """Return the value that a dotted name of OFFERED leads to."""
    module, _, own = name.rpartition(".")
    return getattr(importlib.import_module(module), own)


@pytest.mark.parametrize("name", OFFERED)
def test_what_the_papers_offer_has_a_docstring_that_an_editor_can_lay_out(name):
    unasked = {*UNASKED, "EX01"}  # a record is shown where it is made
    found = validate(name)["errors"]
    assert [f"{code}: {said}" for code, said in found if code not in unasked] == []


@pytest.mark.parametrize("name", OFFERED)
def test_the_example_of_what_the_papers_offer_runs(name):
    finder = doctest.DocTestFinder(recurse=False)
    said = []
    for test in finder.find(offered(name), name, globs={"np": np}):
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
    assert said == []
