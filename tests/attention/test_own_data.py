"""Tests of a reader's own data.

A failure means that a tensor or a list is rejected by an error of numpy, which names no
argument.
"""

import numpy as np
import pytest
import torch

from lib import attention, dynamics, svm

DATA = attention.unit_tokens([0], n=3, T=4, d=5)
X, Y, Z, U, OPT = (getattr(DATA, name)[0] for name in ("X", "y", "z", "u", "opt"))
W = np.zeros((1, 5, 5))
WAYS = {
    "X": lambda x: attention.token_set(x(X), Y, opt=OPT),
    "X of a list": lambda x: attention.token_set(
        [x(X[0]), *X[1:, :2]], Y, opt=[0, 0, 0]
    ),
    "y": lambda x: attention.token_set(X, x(Y), opt=OPT),
    "z": lambda x: attention.token_set(X, Y, z=x(Z), opt=OPT),
    "u": lambda x: attention.token_set(X, Y, u=x(U)),
    "opt": lambda x: attention.token_set(X, Y, opt=x(OPT)),
    "start": lambda x: dynamics.train(DATA, dynamics.MirrorDescent(2.0), 1, start=x(W)),
    "target 'V'": lambda x: dynamics.train(
        DATA, dynamics.MirrorDescent(2.0), 1, targets={"V": x(W + 1)}
    ),
    "selected": lambda x: svm.token_svm(DATA, x(DATA.opt)).value,
    "W": lambda x: attention.gradients(DATA, x(W), DATA.u)[1],
    "u of a gradient": lambda x: attention.gradients(DATA, W, x(DATA.u))[1],
    "W of logits": lambda x: attention.logits(DATA, x(W)),
    "u of scores": lambda x: attention.scores(DATA, x(DATA.u)),
}
TAKEN = [np.ndarray.tolist, torch.tensor]
REFUSED = [
    lambda values: torch.tensor(values).bfloat16(),
    lambda values: torch.tensor(values).double().requires_grad_(),
]


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("kind", TAKEN)
def test_lists_and_tensors_are_taken(name, kind):
    given = WAYS[name](kind)
    expected = WAYS[name](np.asarray)
    if isinstance(expected, np.ndarray):
        np.testing.assert_allclose(given, expected, rtol=1e-9, atol=1e-9)
    else:
        assert given == expected


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("kind", REFUSED, ids=["bfloat16", "with a gradient"])
def test_a_tensor_that_numpy_does_not_take_is_refused_by_name(name, kind):
    argument = name.partition(" of ")[0]
    words = f"^{argument} cannot become a numpy array: .*detach"
    with pytest.raises(TypeError, match=words):
        WAYS[name](kind)


def test_equal_tokens_have_a_way_out_that_works():
    twice = X.copy()
    other = (OPT[0] + 1) % 4
    twice[0, other] = twice[0, OPT[0]]
    with pytest.raises(ValueError, match="sample 0 of run 0 has a tie.*opt=") as tie:
        attention.token_set(twice, Y, u=U)
    assert "mask" in str(tie.value)
    chosen = attention.token_set(twice, Y, u=U, opt=OPT)
    with pytest.raises(svm.Infeasible) as caught:
        svm.token_svm(chosen)
    assert "mask" in str(caught.value)
    # The remedy: the copy is masked.
    mask = np.ones((3, 4), bool)
    mask[0, other] = False
    hidden = attention.token_set(twice, Y, u=U, opt=OPT, mask=mask)
    assert svm.token_svm(hidden).duals.shape == (1, 3, 3)


@pytest.mark.parametrize(
    "use",
    [
        lambda X: attention.logits(X, W),
        lambda X: attention.weights(X, W),
        lambda X: attention.scores(X, DATA.u),
        lambda X: attention.gradients(X, W, DATA.u),
        attention.minimal,
        svm.token_svm,
        svm.head_svm,
        svm.feasible,
        lambda X: dynamics.train(X, dynamics.NGD(0.1), 1),
    ],
)
def test_an_array_in_place_of_a_token_set_is_refused(use):
    with pytest.raises(TypeError, match="tokens = ndarray; it must be a TokenSet"):
        use(X)


@pytest.mark.parametrize(
    "more, words",
    [
        ({"start": "gaussian"}, "start is str .*; it needs real numbers"),
        ({"targets": {"V": "W_mm"}}, "target 'V' is str .*; it needs real numbers"),
        ({"targets": {"V": None}}, "target 'V' is NoneType .*; it needs real numbers"),
        ({"rules": [dynamics.NGD(0.1)]}, "or a dict of rules by their names"),
    ],
)
def test_arguments_of_another_kind_are_refused_by_name(more, words):
    with pytest.raises(TypeError, match=words):
        dynamics.train(DATA, **{"rules": dynamics.NGD(0.1), "steps": 1} | more)


def test_a_head_in_place_of_its_training_is_refused():
    with pytest.raises(ValueError, match='head must be "fixed" or "joint", not array'):
        dynamics.train(DATA, dynamics.NGD(0.1), 1, head=U)


def test_the_query_is_the_first_token_unless_it_is_given():
    first = attention.token_set([X[0], X[1, :2], X[2]], Y, u=U)
    np.testing.assert_array_equal(first.z[0], X[:, 0])
