"""Records of arrays show sizes and a few numbers, never the arrays."""

import numpy as np
import pytest
import torch

from lib import attention, dynamics, mirror, regression, training
from lib.attention import tokens
from lib.data import images, texts
from lib.dynamics import rules
from lib.regression import manifold
from lib.representation import last, span

TOKENS = tokens.class_mean_tokens([0, 1], n=6, T=4, d=30, signal=2.5)
MINIMAL = attention.minimal(TOKENS)
NAN = np.nan


def history():
    """Trained in plain numpy, which compiles nothing."""
    rule = rules.custom(lambda t, log_gap, log_norm: -log_norm - 2.0)
    target = np.ones((2, *MINIMAL.token_basis.shape[2:], *MINIMAL.query_basis.shape[2:]))
    return dynamics.train(MINIMAL, rule, 5, [0, 2, 5], targets={"<V>": target})


def mirror_history(rise):
    runs = np.ones((2, 3))
    rows = dict.fromkeys(("norm", "head_norm", "log_gradient", "log_gradient_head"), runs)
    return mirror.MirrorHistory(
        rule=mirror.MirrorRule(1.5),
        iterations=np.array([0, 1, 9]),
        W=np.ones((2, 3, 4, 5)),
        v=np.ones((2, 3, 4)),
        log_gap=np.array([[-1.0, -2.0, NAN], [-1.0, -2.0, -4.0]]),
        status=np.array(["stalled", "completed"]),
        ended=np.array([4, 9]),
        loss_rise=np.array(rise),
        **rows,
    )


def regression_history(diverged):
    A, B = np.ones((2, 3, 4, 1)), np.full((2, 3, 1, 1), 3.0)
    A[0, 1:], B[0, 1:] = NAN, NAN
    return regression.RegressionHistory(np.array([0, 1, 7]), A, B, np.array(diverged))


PROBLEM = regression.Regression(np.diag([1.0, 0.25]), 0.1 * np.eye(2), 0.5)
SHOWN = {
    "TokenSet": (
        lambda: TOKENS,
        "TokenSet(runs 2, n 6, T 4, d 30, d_z 30, largest ||x|| 2.5, ||u|| 1)",
    ),
    "Minimal": (
        lambda: MINIMAL,
        "Minimal(runs 2, n 6, T 4, tokens 24 of 30 coordinates, queries 6 of 30 coordinates, "
        "W 24 x 6 for 30 x 30)",
    ),
    "Start": (
        lambda: dynamics.zero_start(MINIMAL),
        "Start(runs 2, W_0 24 x 6, ||W_0|| inside 0, outside 0)",
    ),
    "MirrorHistory": (
        lambda: mirror_history([-1, 3]),
        "MirrorHistory(p 1.5, runs 2, W 4 x 5, records 3, t = 0 to 9, ended completed 1, "
        "stalled 1, last log(L - L*) -4 to -2, ||W||_p 1, "
        "loss rose in 1 of 2 runs, first at t = 3)",
    ),
    "MirrorHistory, no rise": (
        lambda: mirror_history([-1, -1]),
        "MirrorHistory(p 1.5, runs 2, W 4 x 5, records 3, t = 0 to 9, ended completed 1, "
        "stalled 1, last log(L - L*) -4 to -2, ||W||_p 1, loss rose in 0 of 2 runs)",
    ),
    "RegressionHistory": (
        lambda: regression_history([1, -1]),
        "RegressionHistory(seeds 2, A 4 x 1, B 1 x 1, records 3, t = 0 to 7, "
        "diverged in 1 of 2 runs, first at t = 1, last ||A|| 2, ||B|| 3)",
    ),
    "Batches": (
        lambda: training.Batches(torch.zeros(6, 4), torch.zeros(6), 2, 0, transform=torch.exp),
        "Batches(inputs 6 x 4, targets 6, size 2, seed 0, transform builtin_function_or_method, "
        "part (0, 1))",
    ),
    "Slopes": (
        lambda: attention.slopes(np.zeros((2, 3)), np.array([[1.0, 0, 0], [0, 1.0, 0]])),
        "Slopes(log_weights 2 x 3, log_loss -0.333, log_gap -1.05, pull 2 x 3, log_scale -1.43, "
        "push 2 x 3, log_push_scale -0.333)",
    ),
    "Regression": (
        lambda: PROBLEM,
        "Regression(k 2, d 2, noise 0.5, condition of Sigma 4, "
        "singular values of M Sigma^1/2 0.05 to 0.1)",
    ),
    "Manifold": (lambda: manifold.of(PROBLEM), "Manifold(k 2, d 2, singular values 0.05 to 0.1)"),
    "TextSet": (
        lambda: texts.TextSet(["a"] * 4, np.array([0, 1, 1, 1]), 2, "imdb", "hub", "0" * 16, 4),
        "TextSet(texts list, labels 4, classes 2, name imdb, source hub, "
        "revision 0000000000000000, rows 4, pairs None)",
    ),
    "ImageSet": (
        lambda: images.ImageSet(
            np.zeros((4, 1, 2, 3)), np.zeros(4, int), 10, "mnist", "demo", "0" * 16, 4
        ),
        "ImageSet(images 4 x 1 x 2 x 3, labels 4, classes 10, name mnist, source demo, "
        "revision 0000000000000000, rows 4)",
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_record_shows_sizes_and_few_numbers(name):
    make, expected = SHOWN[name]
    record = make()
    assert repr(record) == expected
    table = record._repr_html_()
    assert table.count("<tr>") == len(record.facts()) and expected.split("(")[0] in table


def test_a_history_shows_how_it_ended_and_how_far_it_is_from_its_targets():
    record = history()
    shown, table = repr(record), record._repr_html_()
    W, norm = record.weights(-1), np.linalg.norm(record.weights(-1), axis=(1, 2))
    apart = W / norm[:, None, None] - 1 / np.sqrt(W[0].size)
    assert "History(runs 2, n 6, T 4, records 3, t = 0 to 5, ended completed 2" in shown
    assert f"||W|| {span(norm)}" in shown
    assert f"error to <V> {span(np.linalg.norm(apart, axis=(1, 2)))}" in shown
    assert "error to &lt;V&gt;" in table and "<V>" not in table


def test_records_of_a_history_are_counted_from_both_ends():
    record = history()
    for k in range(3):
        np.testing.assert_array_equal(record.weights(k), record.weights(k - 3))
        np.testing.assert_array_equal(record.head(k), record.head(k - 3))
    assert not np.array_equal(record.weights(-1), record.weights(-2))
    for k in (3, -4):
        for part in (record.weights, record.head):
            with pytest.raises(IndexError, match=f"k = {k} is not there: k runs from -3 to 2"):
                part(k)


def test_numbers_in_words_leave_what_is_missing_aside():
    assert span(np.array([NAN, 2.0, 1.0])) == "1 to 2" and span(np.array([NAN])) == "none"
    rows = np.array([[1.0, NAN, NAN], [1.0, 2.0, 3.0], [NAN, NAN, NAN]])
    np.testing.assert_array_equal(last(rows), [1.0, 3.0, NAN])
