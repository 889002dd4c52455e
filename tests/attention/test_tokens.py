"""Tests of the data models.

A failure means that tokens violate the papers' assumptions, or that bad input is
accepted.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from lib import attention, dynamics, svm
from lib.attention import token_sets, tokens

GENERATORS = {
    "class means": lambda seeds: tokens.class_mean_tokens(seeds, n=6, T=4, d=30),
    "antipodal": lambda seeds: tokens.class_mean_tokens(
        seeds, n=6, T=4, d=30, antipodal=True
    ),
    "gaussian": lambda seeds: tokens.gaussian_tokens(seeds, n=6, T=4, d=30),
    "two-token": lambda seeds: tokens.two_token_gaussian(seeds, n=6, T=3, d=30),
    "unit": lambda seeds: tokens.unit_tokens(seeds, n=6, T=4, d=10),
}


@pytest.mark.parametrize("name", GENERATORS)
def test_a_seed_draws_the_same_data_alone_and_in_company(name):
    both = GENERATORS[name]([3, 4])
    alone = GENERATORS[name](4)
    for part in ("X", "y", "z", "u", "opt"):
        np.testing.assert_array_equal(getattr(both, part)[1:], getattr(alone, part))
    assert not np.array_equal(both.X[0], both.X[1])


@pytest.mark.parametrize("name", ["class means", "antipodal", "gaussian"])
def test_fixed_head_models_meet_assumption_2_with_an_opt_token_anywhere_but_first(name):
    data = GENERATORS[name](range(40))
    scores = attention.scores(data, data.u)
    opt = np.take_along_axis(scores, data.opt[..., None], 2)
    np.put_along_axis(scores, data.opt[..., None], 0.0, 2)
    # All other tokens score the same
    np.testing.assert_allclose(scores, 0.0, atol=1e-12)
    assert (opt > 0.1).all()
    # the query, which is never an opt token
    np.testing.assert_array_equal(data.z, data.X[:, :, 0])
    assert np.unique(data.opt).tolist() == [1, 2, 3]
    # 4.6 deviations of 240 fair signs
    assert abs(data.y.mean()) < 0.3 and (abs(data.y) == 1).all()


@pytest.mark.parametrize("antipodal, cosine", [(False, 0.0), (True, -1.0)])
def test_class_means_have_the_stated_angle_and_norm_and_the_head_parts_them(
    antipodal, cosine
):
    data = tokens.class_mean_tokens(0, n=20, T=3, d=40, signal=2.5, antipodal=antipodal)
    opt = data.X[0, np.arange(20), data.opt[0]]
    y = data.y[0]
    np.testing.assert_allclose(np.linalg.norm(opt, axis=1), 2.5)
    plus, minus = (opt[y == label][0] for label in (1, -1))
    np.testing.assert_allclose(plus @ minus / 2.5**2, cosine, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(data.u, axis=-1), 1.0)
    np.testing.assert_allclose(
        y * (opt @ data.u[0]), 2.5 / (1.0 if antipodal else 2.0**0.5)
    )


def test_two_token_model_repeats_its_additional_token_and_labels_by_a_hyperplane():
    data = GENERATORS["two-token"](0)
    np.testing.assert_array_equal(data.X[:, :, 0], data.X[:, :, 1])
    signed = data.y[0][:, None] * data.X[0, :, -1]
    # independent, so that some u separates them
    assert np.linalg.lstsq(signed, np.ones(6), rcond=None)[2] == 6
    data = tokens.two_token_gaussian(range(20), n=8, T=3, d=400, signal=3.0, noise=0.1)
    length = np.linalg.norm(data.X, axis=-1).mean((0, 1)) / (0.1 * 400**0.5)
    np.testing.assert_allclose(length, [1.0, 1.0, 3.0], rtol=0.02)
    assert (data.opt == 2).all() and not data.u.any()
    # 5 deviations of 160 fair signs
    assert abs(data.y.mean()) < 0.4 and (abs(data.y) == 1).all()
    np.testing.assert_array_equal(data.z, data.X[:, :, 0])


@pytest.mark.parametrize(
    "name", [name for name in GENERATORS if name != "two-token"]
)  # untrained
def test_the_opt_token_has_the_largest_score(name):
    data = GENERATORS[name](range(5))
    scores = data.y[..., None] * np.einsum("rntd,rd->rnt", data.X, data.u)
    np.testing.assert_array_equal(scores.argmax(-1), data.opt)
    again = token_sets.token_set(data.X, data.y, data.z, data.u)
    np.testing.assert_array_equal(again.opt, data.opt)


X = np.random.default_rng(0).standard_normal((3, 4, 5))
y = np.array([1, -1, 1])
u = np.ones(5)


repeated = np.where(np.arange(12).reshape(3, 4, 1) == 6, X[1, 0], X)


@pytest.mark.parametrize(
    "change, message",
    [
        (
            dict(X=np.where(X == X[1, 2, 3], np.nan, X)),
            "first in run 0, sample 1, token 2",
        ),
        (dict(X=repeated, u=y[1] * 10 * X[1, 0]), "sample 1 of run 0 has a tie"),
        (dict(X=X[:, :1], opt=np.zeros(3, int)), "T = 1"),
        (dict(X=X[0]), r"\(n, T, d\) or \(runs, n, T, d\)"),
        (dict(y=np.array([1, 0, 1])), "labels other than -1"),
        (dict(y=np.ones(2)), "y"),
        (dict(z=np.ones((2, 5)), opt=np.zeros(3, int)), "z has shape"),
        (dict(u=np.ones(4)), "u"),
        (dict(opt=np.array([0, 1, 4])), "token indices 0 ... 3"),
        (dict(opt=[0.0, 1.0, 2.0]), "opt holds float64 values; it needs token indices"),
        (dict(opt=["a", "b", "c"]), "opt holds text .*; it needs token indices"),
        (dict(u=None), "give opt, or u"),
        (dict(X=X[:0], y=y[:0]), "no axis .* may be empty"),
        (dict(X=X + 1j), "X holds complex128"),
        (dict(X=X.astype(str)), "X holds text .* real numbers"),
        (dict(y=["no", "yes", "no"]), "such as .no.; it needs labels -1 and"),
        (dict(X=3.0), r"X has shape \(\); it needs"),
        (
            dict(X=[[[1, 2], [3]]]),
            "sample 0 of run 0 has tokens of different dimensions",
        ),
        (
            dict(X=[np.ma.masked_less(X[0], 0), X[1, :2], X[2]]),
            "sample 0 of run 0 has masked entries",
        ),
        (dict(X=X * np.longdouble("1e400")), "X holds NaN or infinite"),
        (dict(X=np.ma.masked_less(X, 0)), "X has masked entries"),
        (dict(y=None), "y holds text or objects such as None"),
        (dict(z=3.0), r"z has shape \(1,\); it needs \(1, 3, 5\)"),
        (
            dict(X=X[None], y=y[None], u=u[None], z=3.0),
            r"z has shape \(\); it needs \(1, 3, 5\)",
        ),
        (dict(z=np.ones((3, 0))), r"z has shape \(1, 3, 0\); a query needs"),
        (dict(opt=[[1], [2, 3], [4]]), "opt holds sequences of different lengths"),
        (dict(z=X[:, 0] + 0j), "z holds complex128"),
    ],
)
def test_bad_input_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        token_sets.token_set(**{"X": X, "y": y, "u": u, **change})


def test_a_token_set_needs_an_axis_of_runs():
    with pytest.raises(ValueError, match=r"it needs \(runs, n, T, d\)$"):
        token_sets.TokenSet(X, y, X[:, 0], u, np.zeros(3, int))


@pytest.mark.parametrize("index", [2, -1, True, 0.5, "0", None])
def test_a_run_that_does_not_exist_is_named(index):
    data = tokens.unit_tokens([0, 1])
    with pytest.raises(ValueError, match=f"index = {index!r}; .* 0 ... 1, .* is 2"):
        data.run(index)
    np.testing.assert_array_equal(data.run(np.int64(1)).X[0], data.X[1])


@pytest.mark.parametrize(
    ("size", "head", "message"),
    [
        (1e160, 1, "X has largest entry .*e.160, whose fourth power"),
        (1e-200, 1, "X has largest entry .*e-200, whose fourth power"),
        (1, 1e200, "u has largest entry 1e.200"),
    ],
)
def test_sizes_whose_squares_leave_the_floats_are_not_trained_on(size, head, message):
    data = token_sets.token_set(size * X, y, z=X[:, 0], u=head * u, opt=[0, 0, 0])
    for rule in (dynamics.GD(0.1), dynamics.MirrorDescent(2.0), dynamics.Adam(0.1)):
        with pytest.raises(ValueError, match=message):
            dynamics.train(data, rule, 1)


@pytest.mark.parametrize("entry", [1e160, -1e160])
def test_one_entry_of_either_sign_is_too_large(entry):
    far = np.abs(X)
    far[1, 0, 0] = entry
    data = token_sets.token_set(far, y, z=X[:, 0], u=u, opt=[0, 0, 0])
    with pytest.raises(ValueError, match="X has largest entry 1e.160"):
        dynamics.train(data, dynamics.GD(0.1), 1)
    tiny = token_sets.token_set(1e-200 * far / entry, y, z=X[:, 0], u=u, opt=[0, 0, 0])
    with pytest.raises(ValueError, match="X has largest entry 1e-200"):
        dynamics.train(tiny, dynamics.GD(0.1), 1)


IMPOSSIBLE = {
    "noise = 0.0": lambda: tokens.class_mean_tokens(0, noise=0.0),
    "signal = '3'; it must be positive": lambda: tokens.class_mean_tokens(
        0, signal="3"
    ),
    "noise = None; it must be": lambda: tokens.class_mean_tokens(0, noise=None),
    "antipodal = 'no'; it must be True or": lambda: tokens.class_mean_tokens(
        0, antipodal="no"
    ),
    "signal = nan": lambda: tokens.class_mean_tokens(0, signal=float("nan")),
    "d = 2": lambda: tokens.class_mean_tokens(0, d=2),
    "n T = 60 exceeds d = 59": lambda: tokens.gaussian_tokens(0, n=10, T=6, d=59),
    "n = 0; it must be a whole number, at least 1": lambda: tokens.unit_tokens(0, n=0),
    "signal = 1e-17; .* nearer to 1": lambda: tokens.gaussian_tokens(0, signal=1e-17),
    "signal = 1e.17; .* nearer to 1": lambda: tokens.gaussian_tokens(0, signal=1e17),
    "T = 1": lambda: tokens.two_token_gaussian(0, T=1),
    "d = 0": lambda: tokens.unit_tokens(0, d=0),
    "seeds is empty": lambda: tokens.unit_tokens([]),
    **{
        f"seed = {seed!r}": partial(tokens.unit_tokens, seed)
        for seed in (-1, 0.5, None, "12")
    },
    "seed = 1j": lambda: tokens.unit_tokens([0, 1j]),
    **{
        f"n = {n}": partial(tokens.unit_tokens, 0, n)
        for n in (np.nan, None, True, np.inf)
    },
    "T = '3'": lambda: tokens.two_token_gaussian(0, T="3"),
}


@pytest.mark.parametrize("message", IMPOSSIBLE)
def test_generators_refuse_impossible_settings(message):
    with pytest.raises(ValueError, match=message):
        IMPOSSIBLE[message]()


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.float16, bool, np.longdouble])
def test_tokens_of_any_type_are_held_in_doubles(kind):
    data = tokens.unit_tokens(0)
    lowest = 0 if kind == np.uint8 else -100
    X, z = (np.clip(100 * a, lowest, 100).astype(kind) for a in (data.X, data.z))
    direct = token_sets.TokenSet(X, data.y.astype(int), z, data.u, data.opt)
    plain = token_sets.token_set(
        X.astype(float), data.y, z.astype(float), data.u, data.opt
    )
    for name in ("X", "y", "z", "u"):
        assert getattr(direct, name).dtype == np.float64
        np.testing.assert_array_equal(getattr(direct, name), getattr(plain, name))


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.uint64])
def test_indices_of_any_whole_type_select_the_same_tokens(kind):
    data = tokens.unit_tokens([0, 1], d=100)
    again = replace(data, opt=data.opt.astype(kind))
    assert again.opt.dtype == data.opt.dtype
    expected = svm.token_svm(data).W
    np.testing.assert_array_equal(svm.token_svm(again).W, expected)
    selected = data.opt.astype(kind)
    np.testing.assert_array_equal(svm.token_svm(data, selected).W, expected)


def test_a_whole_number_may_come_in_any_type():
    plain = tokens.unit_tokens([2], n=3)
    for seeds, n in ((np.array(2), np.int64(3)), ([2.0], 3.0), ({2}, np.array(3))):
        np.testing.assert_array_equal(tokens.unit_tokens(seeds, n=n).X, plain.X)


def test_the_default_query_is_the_first_token_and_tokens_have_norm_about_one():
    X = np.random.default_rng(0).standard_normal((2, 3, 4))
    made = attention.token_set(X, np.ones(2), u=np.ones(4))
    np.testing.assert_array_equal(made.z[0], X[:, 0])
    headless = attention.token_set(X, np.ones(2), opt=[0, 0])
    np.testing.assert_array_equal(headless.u, np.zeros((1, 4)))
    drawn = tokens.gaussian_tokens([0], n=3, T=4, d=900, signal=1.0)
    np.testing.assert_allclose(np.linalg.norm(drawn.X, axis=-1), 1.0, atol=0.12)
