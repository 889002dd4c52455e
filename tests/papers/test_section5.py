"""Formulas of paper C's Section 5, each on an input of a few numbers."""

from types import SimpleNamespace

import numpy as np
import pytest

from lib import svm
from lib.attention import tokens
from papers.c import section5

DATA = tokens.unit_tokens([0], n=2, T=3, d=4)
DRAW = np.random.default_rng(0)


def measured(claims):
    return {claim.id: claim.measured for claim in claims}


class Run:
    """A history with invented divergences (runs, k), by the SVM they are from."""

    def __init__(self, of_W, of_head=None, status=("completed",), iterations=(0, 1)):
        self.of_W = of_W
        self.of_head = of_head
        self.status = np.array(status)
        self.iterations = np.array(iterations)
        self.W = np.zeros((1, 2, 1, 1))

    def divergence(self, W, p):
        return np.array(self.of_W[W])

    def head_divergence(self, value, p):
        return np.array(self.of_head[value])


def test_the_joint_instance_is_that_of_the_authors():
    """Queries are the first tokens; both are written entry by entry."""
    data = section5.joint_instance()
    first, second = data.X[0]
    np.testing.assert_array_equal(first.T, [[-2.7, 1.4, 1.3], [1.2, 2.1, -0.1]])
    np.testing.assert_array_equal(second.T, [[0.4, -1.1, 0.9], [-2.2, -0.4, 0.1]])
    assert data.y.tolist() == [[1, -1]] and data.opt.tolist() == [[0, 0]]
    np.testing.assert_array_equal(data.z, data.X[:, :, 0])


def test_the_svms_are_those_of_the_tokens_of_the_last_iterate(monkeypatch):
    monkeypatch.setattr(section5, "selected_tokens", lambda data, W: W)
    monkeypatch.setattr(svm, "token_svm", lambda data, chosen, norm: (chosen, norm))
    histories = {
        p: SimpleNamespace(W=np.array([["first", "between", p]])) for p in ("2", "3")
    }
    ends = section5.end_points(DATA, histories)
    assert ends == {p: {q: ([p], q) for q in "23"} for p in "23"}


def test_a_row_is_the_least_ratio_of_means_at_the_last_record():
    """Means are 1, 3 and 2; the second of the four runs is nearer to another SVM."""
    own = [[9.0, 0.5], [9.0, 2.0], [9.0, 0.5], [9.0, 1.0]]
    other = [[0.1, 6.0], [0.1, 1.0], [0.1, 4.0], [0.1, 1.0]]
    third = [[0.1, 2.0], [0.1, 3.0], [0.1, 1.0], [0.1, 2.0]]
    D = {(5, 5): own, (5, 6): other, (5, 7): third}
    D |= {(p, q): np.ones((4, 2)) for p in (6, 7) for q in (5, 6, 7)}
    # A record in between does not count.
    D = {pair: np.insert(values, 1, 0.3 * sum(pair), 1) for pair, values in D.items()}
    halves = {5: ("completed", "diverged"), 6: ("completed",) * 2, 7: ("diverged",) * 2}
    histories = {p: Run({}, status=status) for p, status in halves.items()}
    found = measured(section5.bregman_claims(D, histories))
    assert found["bregman.row.5"] == pytest.approx(2.0)
    # Equal divergences are not nearer: neither run 1 nor run 3 is.
    assert found["bregman.runs.5"] == 0.5
    assert found["bregman.row.6"] == 1.0 and found["bregman.runs.6"] == 0.0
    assert found["bregman.completed"] == 0.5


def test_the_reference_lies_between_the_quantiles_of_as_many_runs():
    """Of exponent 3 there are 4 runs; their means are on both sides for q = 2 only."""
    row = section5.REFERENCE[3]
    about = np.linspace(0.9, 1.1, 20)
    last = {q: row[q] * about * k for q, k in ((1.75, 2.0), (2, 1.0), (3, 0.5))}
    table, inside = section5._beside_reference(3, last)
    assert inside.measured == pytest.approx(1 / 3) and "4" in inside.statement
    assert table.measured == pytest.approx(2.0)
    alone = {q: values if q == 2 else row[q] * about for q, values in last.items()}
    assert section5._beside_reference(3, alone)[1].measured == 1.0


def test_the_range_is_that_of_means_over_the_runs_of_the_reference():
    """A single run lies beyond 0.8 ... 1.2, but no mean over four runs does."""
    row = section5.REFERENCE[3]
    values = np.tile([1.2, 1.3, 1.4, 0.95], 5)
    last = {q: mean * values for q, mean in row.items()}
    assert section5._beside_reference(3, last)[1].measured == 0.0


def test_the_factor_without_the_largest_twentieth_leaves_out_one_of_twenty():
    """The mean of the others is that of the reference; with it, it is 2.95 times."""
    row = section5.REFERENCE[1.75]
    others = np.linspace(0.5, 1.5, 19)
    last = {q: mean * np.append(others, 40.0) for q, mean in row.items()}
    table, _ = section5._beside_reference(1.75, last)
    assert table.measured == pytest.approx(59 / 20)
    assert table.remark.endswith("the factor is 1")


def test_late_runs_are_blamed_only_if_the_others_agree_with_the_reference():
    row = section5.REFERENCE[3]
    last = {q: 3 * mean * np.ones(20) for q, mean in row.items()}
    table, _ = section5._beside_reference(3, last)
    assert not table.holds and "late" not in table.remark
    assert "the factor is 3 too" in table.remark


def test_few_runs_have_no_range():
    row = section5.REFERENCE[3]
    for runs, count in ((7, 1), (8, 2)):
        last = {q: mean * np.linspace(0.9, 1.1, runs) for q, mean in row.items()}
        assert len(section5._beside_reference(3, last)) == count


def test_probabilities_are_those_of_a_plain_loop():
    W = DRAW.standard_normal((1, 3, 4, 4))
    u = DRAW.standard_normal((1, 3, 4))
    history = SimpleNamespace(W=W, u=u)
    softmax, logistic = section5.probabilities(DATA, history)
    assert softmax.shape == logistic.shape == (1, 3, 2)
    for i, k in np.ndindex(2, 3):
        X = DATA.X[0, i]
        weights = np.exp(X @ W[0, k] @ DATA.z[0, i])
        weights /= weights.sum()
        end = (X @ W[0, -1] @ DATA.z[0, i]).argmax()
        assert softmax[0, k, i] == pytest.approx(weights[end])
        f = DATA.y[0, i] * u[0, k] @ (weights @ X)
        assert logistic[0, k, i] == pytest.approx(np.exp(f) / (1 + np.exp(f)))


def test_joint_training_is_judged_at_15_at_30_and_at_the_end(monkeypatch):
    softmax = np.array([[[0.1, 0.2], [0.95, 0.9], [0.3, 0.4], [0.5, 0.6]]])
    logistic = 1 - softmax
    run = Run(
        {"W": [[0.9, 0.7, 0.1, 0.02]]},
        {"v": [[0.9, 0.7, 0.1, 0.03]]},
        iterations=(0, 15, 30, 100),
    )
    other = Run({"W": [[0.5, 0.05]]}, {"v": [[0.5, 0.04]]}, iterations=(15, 30))
    monkeypatch.setattr(section5, "probabilities", lambda data, h: (softmax, logistic))
    monkeypatch.setattr(section5, "selected_tokens", lambda data, W: np.array([[1, 0]]))
    solution = SimpleNamespace(W="W", value="v")
    histories = {2: run, 7: other}
    rows = section5.joint_claims(
        DATA, histories, {p: {p: solution} for p in (2, 7)}, {2: solution, 7: solution}
    )
    found = measured(rows)
    assert found["joint.tokens.2"] == 1.0 and "joint.tokens.7" not in found
    assert found["joint.directions.2"] == 0.03
    assert found["joint.directions.7"] == 0.05
    assert found["joint.softmax.2"] == 0.9
    assert found["joint.logistic.2"] == pytest.approx(0.6)
    # There the first record is iteration 15, and the second one 30.
    assert found["joint.softmax.7"] == pytest.approx(0.1)
    assert found["joint.logistic.7"] == pytest.approx(0.05)


@pytest.mark.parametrize(
    "id, inside, outside",
    [
        ("joint.softmax", 0.9801, 0.9799),
        ("joint.logistic", 0.9701, 0.9699),
        ("joint.directions", 0.00099, 0.00101),
        ("path.end", 0.0099, 0.0101),
        ("path.nearest", 1.0, 0.999),
        ("bregman.table", 1.49, 1.51),
        ("bregman.runs", 1.0, 0.99),
    ],
)
def test_each_claim_holds_up_to_its_bound(id, inside, outside):
    assert section5.claim(id, inside, 2).holds
    assert not section5.claim(id, outside, 2).holds


def test_a_path_is_judged_by_the_last_record_of_its_first_run():
    histories = {
        p: Run({"1": [[9.0, 0.4], [9.0, 0.1]], "2": [[9.0, 0.5], [9.0, 9.0]]})
        for p in (1.5, 2.5)
    }
    ends = {
        p: {1.5: SimpleNamespace(W="1"), 2.5: SimpleNamespace(W="2")} for p in histories
    }
    found = measured(section5.path_claims(histories, ends))
    assert found == pytest.approx(
        {
            "path.nearest.1.5": 0.5 / 0.4,
            "path.end.1.5": 0.4,
            "path.nearest.2.5": 0.4 / 0.5,
            "path.end.2.5": 0.5,
        }
    )
