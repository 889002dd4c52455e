"""Tests that records, rules and errors can leave their process.

Otherwise no run can be sent to another core, and an error in a worker ends the pool.
"""

import copy
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields, replace
from functools import cache
from importlib import import_module
from pkgutil import walk_packages

import numpy as np
import pytest
import torch

import lib
from lib import attention, dynamics, regression, svm, training
from lib.data import images, texts
from lib.dynamics import history
from lib.networks import bert
from lib.networks.text import Vocabulary
from lib.regression import manifold
from lib.representation import Shapes
from lib.training import curves, work
from papers.law import margin_law, prediction
from papers.studies import intervals

DATA = attention.unit_tokens([0, 1], n=3, T=4, d=5)
CONTRADICTS = attention.token_set(
    np.array([[[1.0, 0.0], [0.0, 0.0], [2.0, 0.0]]]), np.array([1.0]), opt=[0]
)


@cache
def records():
    """Make one record of each class, by the name of its class."""
    run = dynamics.train(DATA, dynamics.NGD(0.1), 20, targets={"V": np.ones((2, 5, 5))})
    by_coordinates = dynamics.train(DATA, dynamics.Adam(0.1), 5)
    problem = regression.random_regression(seed=0, d=2, k=3)
    A, B = regression.gaussian_start(seed=0, d=2, k=3)
    pictures = images.ImageSet(
        images=torch.arange(24, dtype=torch.uint8).reshape(2, 3, 2, 2),
        labels=torch.tensor([0, 1]),
        classes=2,
    )
    law = margin_law.margin_law(DATA, svm.token_svm(DATA))
    errors = np.array([[0.5, np.nan]])
    made = [
        DATA,
        attention.minimal(DATA),
        attention.slopes(np.zeros((2, 3)), np.eye(3)[:2]),
        run,
        run.path,
        by_coordinates.path,
        history.Factors(*np.ones((3, 2, 1, 5, 3))),
        curves.Curve("finished", np.ones(3), metrics={"accuracy": np.ones(2)}),
        dynamics.gaussian_start(attention.minimal(DATA), std=0.1, seeds=[0, 1]),
        svm.token_svm(DATA),
        problem,
        manifold.Manifold(Sigma=problem.Sigma, M=problem.M),
        regression.RegressionHistory(
            iterations=np.array([0, 1]),
            A=np.stack([A, A * np.nan])[None],
            B=np.stack([B, B])[None],
            diverged=np.array([1]),
        ),
        pictures,
        pictures.standardise(),
        texts.TextSet(["a", "b"], np.array([0, 1]), 2, "imdb"),
        training.Batches(
            pictures.images, pictures.labels, 2, 0, transform=pictures.standardise()
        ),
        bert._Tokens(*torch.ones(3, 2, 2).unbind()),
        law,
        prediction.Prediction(
            law=law,
            selected=DATA.opt,
            outside=np.ones(1),
            iteration=3,
            direction_error=errors,
            measured=errors,
            remaining=errors,
            steps_needed=np.ones(1),
        ),
        by_coordinates.against(DATA),
    ]
    return {type(record): record for record in made}


def below(parent):
    """Return all classes of the project that are derived from `parent`."""
    found = {
        each for child in parent.__subclasses__() for each in (child, *below(child))
    }
    return {
        each for each in found if each.__module__.split(".")[0] in ("lib", "papers")
    }


def copies(value):
    return [pickle.loads(pickle.dumps(value)), copy.deepcopy(value)]


def test_each_record_of_arrays_is_tried_here():
    for module in walk_packages(lib.__path__, "lib."):
        if not module.name.endswith("__main__"):  # a command
            import_module(module.name)
    adds_a_field = {each for each in below(Shapes) if "__annotations__" in vars(each)}
    assert adds_a_field == set(records())


def test_a_record_is_equal_to_its_copies_and_to_no_changed_one():
    for kind, record in records().items():
        for other in copies(record):
            assert other == record, kind
            assert repr(other) == repr(record)
        name = fields(record)[0].name
        changed = copy.copy(record)
        object.__setattr__(changed, name, changed_value(getattr(record, name)))
        assert changed != record, kind
        assert record != 0
        with pytest.raises(TypeError, match="unhashable"):
            hash(record)


def changed_value(value):
    """Return another value of the same kind."""
    if isinstance(value, str | list):
        return value + value
    if isinstance(value, Shapes):
        first = next(iter(vars(value)))
        return replace(value, **{first: getattr(value, first) + 1})
    if isinstance(value, np.ndarray) and value.dtype.kind == "b":
        return ~value
    return value + 1


def test_equality_looks_at_each_kind_of_field():
    run = records()[dynamics.History]
    apart = [
        replace(run, direction_error={"V": run.direction_error["V"] + 1e-9}),
        replace(run, direction_error={}),
        replace(run, norm=run.norm.astype(np.float32)),
        replace(run, status=np.array(["stalled", "completed"])),
        replace(run, path=records()[history.Weights]),
    ]
    assert all(other != run for other in apart)
    assert np.isnan(run.head_norm).all()  # NaN is equal to NaN


VOCABULARY = Vocabulary.of(["a good film", "a bad film"], size=6)


def test_a_vocabulary_travels():
    for other in copies(VOCABULARY):
        assert other.names == VOCABULARY.names
        assert torch.equal(
            other.encode(["a film"], 4), VOCABULARY.encode(["a film"], 4)
        )


# Each error of the project, and the arguments that make one.
ERRORS = {
    svm.Infeasible: lambda: svm.token_svm(CONTRADICTS),
    margin_law.PremiseFails: lambda: margin_law.require(
        False, "independent", 0.1, "two rows agree", run=3
    ),
    work.OutOfTime: lambda: raised(work.OutOfTime("3 of 4 runs")),
    intervals.NotMeasurable: lambda: intervals.difference_interval([1.0]),
}


def raised(error):
    raise error


def test_an_error_is_the_same_in_another_process():
    assert {each for each in below(Exception) if public(each)} == set(ERRORS)
    for kind, fails in ERRORS.items():
        with pytest.raises(kind) as caught:
            fails()
        for other in copies(caught.value):
            assert type(other) is kind and str(other) == str(caught.value)
            assert vars(other).keys() == vars(caught.value).keys()
            for name, value in vars(caught.value).items():
                np.testing.assert_array_equal(getattr(other, name), value)


def public(kind):
    return not kind.__name__.startswith("_")


def trained(seed):
    return dynamics.train(
        attention.unit_tokens([seed], n=3, T=4, d=5), dynamics.NGD(0.1), 20
    )


def infeasible():
    return svm.token_svm(CONTRADICTS)


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_a_pool_returns_a_history_and_raises_with_the_certificate(method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system has no {method}")
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        assert pool.submit(trained, 1).result(600) == trained(1)
        with pytest.raises(svm.Infeasible) as caught:
            pool.submit(infeasible).result(600)
    np.testing.assert_array_equal(caught.value.certificate, [[0.5, 0.5]])
