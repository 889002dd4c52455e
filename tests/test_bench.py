"""The benchmarks' references solve what the library solves; their report says what was measured."""

import json

import numpy as np
import pytest

from lib import dynamics, mirror, svm
from lib.attention import coordinates, tokens
from lib.dynamics import rules
from papers.beyond.engine import optimisers, training
from tests.benchmarks import __main__ as command
from tests.benchmarks import measure, peers, plain

RECORD = np.array([0, 3, 10])
DATA = tokens.unit_tokens(0, n=3, T=3, d=5)


@pytest.mark.parametrize("peer", peers.SOLVERS)
def test_peers_solve_the_dual_of_the_token_svm(peer):
    data = tokens.unit_tokens(0, n=6, T=8, d=10)
    K = coordinates.gram(coordinates.differences(data, data.opt), data.z)[0]
    duals = peers.SOLVERS[peer](K)
    assert duals.min() >= -1e-9
    assert duals.sum() == pytest.approx(svm.token_svm(data).objective[0] ** 2, rel=1e-8)


@pytest.mark.parametrize("head", ["fixed", "joint"])
def test_plain_training_equals_the_library(head):
    joint = head == "joint"
    data = tokens.two_token_gaussian(0, n=3, d=12) if joint else DATA
    problem = coordinates.minimal(data)
    W = svm.token_svm(problem.tokens).W
    ours = dynamics.train(problem, rules.ngd(0.3), 10, RECORD, targets={"W_mm": W}, head=head)
    reference = plain.train(plain.Model(data), 0.3, 10, RECORD, problem.expand(W)[0], joint)
    norms = (ours.norm[0], ours.head_norm[0]) if joint else (ours.norm[0],)
    np.testing.assert_allclose(reference[:, 0], np.exp(ours.log_gap[0]), rtol=1e-10)
    np.testing.assert_allclose(reference[:, 1:-1].T, norms, rtol=1e-10)
    np.testing.assert_allclose(reference[1:, -1], ours.direction_error["W_mm"][0, 1:], rtol=1e-8)


@pytest.mark.parametrize("p", [1.75, 2, 3])
def test_plain_mirror_descent_equals_the_library(p):
    start, target = mirror.gaussian_start(DATA, [0]), svm.token_svm(DATA, norm=p).W
    ours = mirror.train(DATA, mirror.MirrorRule(p, 0.3), 10, start, record=RECORD)
    reference = plain.train_mirror(plain.Model(DATA), p, 0.3, 10, RECORD, start[0], target[0])
    expected = ours.norm[0], ours.divergence(target)[0]
    np.testing.assert_allclose(reference[:, 1:].T, expected, rtol=1e-9)


def test_plain_directions_equal_the_library():
    for rule, direction in (
        (optimisers.steepest("spectral", 0.1), plain.polar),
        (optimisers.adam(0.1, epsilon=1e-8), plain.AdamDirection()),
    ):
        ours = training.train(DATA, rule, 10, record=RECORD).W[0]
        reference = plain.train_along(plain.Model(DATA), direction, 0.1, 10, RECORD)
        np.testing.assert_allclose(reference, ours, atol=1e-10)


@pytest.mark.parametrize("p", [1.75, 2, 3.0])
def test_plain_svms_equal_the_library(p):
    W = svm.token_svm(DATA, norm=p).W[0]
    accuracy = 1e-5 if p == 2 else 1e-4
    np.testing.assert_allclose(plain.svm_per_constraint(DATA, p), W, atol=accuracy)
    if p == 2:
        np.testing.assert_allclose(plain.svm_vectorised(DATA), W, atol=accuracy)


def test_gate_raises_with_the_difference():
    measure.gate("same", [1.0, 2.0], [1.0, 2.0 + 1e-9], 1e-8)
    for wrong in (2.1, np.nan):
        with pytest.raises(AssertionError, match="W: ours and the reference differ by"):
            measure.gate("W", [1.0, wrong], [1.0, 2.0], 1e-8)


@pytest.mark.parametrize(
    ("ratio", "sense", "status"),
    [(100.0, "at least", 0), (99.0, "at least", 1), (99.0, "at most", 0)],
)
def test_report_and_exit_status(ratio, sense, status, monkeypatch, tmp_path, capsys):
    words = sense, "1 us", "100 us", "a note"
    row = measure.Entry("one", 1e-6, 1e-4, ratio, (90.0, 110.0), 100.0, *words)
    monkeypatch.setenv("RUNS_DIR", str(tmp_path))
    monkeypatch.setattr(command, "ENTRIES", {"one": lambda: row})
    monkeypatch.setattr("sys.argv", ["benchmarks", "one"])
    assert command.main() == status
    (written,) = json.loads((tmp_path / "bench.json").read_text())
    layout = {"name", "seconds", "reference_seconds", "ratio", "spread", "bar", "holds", "note"}
    assert layout <= set(written)
    assert written["holds"] is (status == 0)
    assert ("missed: one" in capsys.readouterr().out) is bool(status)


def test_unknown_name_is_refused(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["benchmarks", "nothing"])
    with pytest.raises(SystemExit, match="2"):
        command.main()
    assert "unknown benchmark nothing" in capsys.readouterr().err
