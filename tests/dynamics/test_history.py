"""Tests that histories and rules can leave the process that made them.

A failure means that no run can be kept, or sent to another core.
"""

import copy
import errno
import os
import pickle
from dataclasses import dataclass

import numpy as np
import pytest

from lib import attention, dynamics, svm
from lib.dynamics import History

DATA = attention.class_mean_tokens([0, 1], n=4, T=3, d=12)


@pytest.fixture(scope="module", params=["fixed", "joint"])
def run(request):
    problem = attention.minimal(DATA)
    return dynamics.train(
        problem,
        dynamics.NGD(0.1),
        40,
        targets={"W_mm": svm.token_svm(problem)},
        head=request.param,
        head_targets={"u_mm": svm.head_svm(problem)},
    )


def same(one, other):
    """Return whether two histories agree in every array, including W and u."""
    tables = [history.to_dataframe() for history in (one, other)]
    ends = [(history.weights(-1), history.head(-1)) for history in (one, other)]
    return tables[0].equals(tables[1]) and all(map(np.array_equal, *ends))


def test_a_history_is_the_same_in_another_process_and_from_a_file(run, tmp_path):
    assert same(pickle.loads(pickle.dumps(run)), run)
    assert same(copy.deepcopy(run), run)
    run.save(tmp_path / "run.npz")
    read = History.load(tmp_path / "run.npz")
    assert same(read, run) and repr(read) == repr(run)
    for name in ("named", "run.1"):
        run.save(tmp_path / name)
        assert same(History.load(tmp_path / name), run)


def test_a_full_disk_leaves_the_file_before_as_it_was(run, tmp_path, monkeypatch):
    path = tmp_path / "new folder" / "run.npz"
    run.save(path)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device: .*run.npz"):
        dynamics.train(DATA, dynamics.NGD(0.1), 5).save(path)
    assert same(History.load(path), run)
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_is_no_history_is_named(run, tmp_path):
    run.save(tmp_path / "whole.npz")
    whole = (tmp_path / "whole.npz").read_bytes()
    np.savez(tmp_path / "other.npz", norm=np.ones(3))
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.npz").write_bytes(b"")
    (tmp_path / "folder.npz").mkdir()
    for name in ("other", "cut", "empty", "folder"):
        with pytest.raises(ValueError, match=f"{name}.npz: expected a file that"):
            History.load(tmp_path / f"{name}.npz")
    with pytest.raises(FileNotFoundError, match="gone.npz"):
        History.load(tmp_path / "gone.npz")


def test_a_file_with_a_damaged_byte_is_the_same_history_or_named(run, tmp_path):
    run.save(tmp_path / "whole.npz")
    whole = (tmp_path / "whole.npz").read_bytes()
    damaged = tmp_path / "damaged.npz"
    refused = 0
    for position in range(0, len(whole), len(whole) // 300):
        content = bytearray(whole)
        content[position] ^= 0xFF
        damaged.write_bytes(content)
        try:
            read = History.load(damaged)
        except ValueError as error:
            assert str(error) == f"{damaged}: expected a file that History.save wrote"
            refused += 1
        else:
            assert read == run
    assert refused > 100


def test_a_history_as_a_table_has_each_value_once_and_what_was_measured(run):
    table = run.to_dataframe()
    assert not table.duplicated(["run", "iteration", "quantity", "target"]).any()
    at = (table.run == 1) & (table.iteration == 40)
    value = table[at & (table.quantity == "direction_error")].value.item()
    assert value == run.direction_error["W_mm"][1, -1]
    trained = np.isfinite(run.head_norm).any()
    assert ("head_norm" in set(table.quantity)) == trained


def test_targets_whose_names_are_the_same_text_are_not_saved(tmp_path):
    target = svm.token_svm(DATA)
    run = dynamics.train(DATA, dynamics.NGD(0.1), 5, targets={1: target, "1": target})
    with pytest.raises(ValueError, match="two of these names are the same text"):
        run.save(tmp_path / "run.npz")
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_diverged_at_once_is_an_empty_table():
    tokens = attention.two_examples()
    steep = attention.token_set(tokens.X, tokens.y, u=5000 * tokens.u)
    run = dynamics.train(steep, dynamics.GD(0.1), 5)
    assert run.status == "diverged" and run.ended == 0
    table = run.to_dataframe()
    assert len(table) == 0
    whole = dynamics.train(tokens, dynamics.GD(0.1), 5).to_dataframe()
    assert list(table.columns) == list(whole.columns)


@pytest.mark.parametrize(
    "rule",
    [
        dynamics.GD(0.5, decay=0.5),
        dynamics.NGD(0.1, max_step=3.0, momentum=0.9, joint=True),
        dynamics.Polyak(),
        dynamics.Polyak(2.0),
    ],
    ids=repr,
)
def test_a_rule_is_written_as_it_is_made(rule):
    assert eval(repr(rule), vars(dynamics)) == rule
    assert pickle.loads(pickle.dumps(rule)) == rule and hash(rule) == hash(rule)


def test_a_rule_takes_its_settings_by_name():
    with pytest.raises(TypeError):
        dynamics.NGD(0.1, 5.0)


@dataclass(frozen=True, repr=False)
class Halving(dynamics.Rule):
    """A reader's own rule whose step lengths halve."""

    first: float

    def log_step(self, t, log_gap, log_norm):
        return np.log(self.first) - t * np.log(2) - log_norm


def test_a_subclass_trains_and_has_to_say_its_step():
    run = dynamics.train(DATA, Halving(0.5), 30)
    length = np.exp(run.log_step + run.log_gradient)
    np.testing.assert_allclose(length, np.tile(0.5 ** (run.iterations + 1), (2, 1)))
    assert repr(Halving(0.5)) == "Halving(first=0.5)"
    with pytest.raises(TypeError, match="log_step"):
        dynamics.Rule()


@dataclass(frozen=True, repr=False)
class Scaled(dynamics.Rule):
    """A reader's own rule with an array as a setting."""

    scale: np.ndarray
    shift: np.ndarray | float = 0.0

    def direction(self, gradient, state):
        return -self.scale * gradient


def test_a_rule_with_an_array_is_printed_and_named_in_errors():
    rule = Scaled(np.ones(2))
    assert repr(rule) == "Scaled(scale=array([1., 1.]))"
    assert "shift=array([3.])" in repr(Scaled(np.ones(2), np.array([3.0])))
    with pytest.raises(ValueError, match='head = "joint", but Scaled'):
        dynamics.train(DATA, rule, 5, head="joint")


def test_the_selected_token_has_the_largest_weight():
    tokens = attention.unit_tokens(range(4), n=5, T=6, d=4)
    start = np.random.default_rng(0).standard_normal((4, 4, 4))
    run = dynamics.train(tokens, dynamics.MirrorDescent(2.0), 5, start=start)
    for k in (0, -1):
        expected = attention.weights(tokens, run.weights(k)).argmax(-1)
        np.testing.assert_array_equal(run.selected(tokens, k), expected)
    assert (run.selected(tokens, 0) != tokens.opt).any()


def test_a_run_that_has_ended_selects_nothing():
    run = dynamics.train(attention.two_examples(), dynamics.GD(1e300), 5)
    with pytest.raises(ValueError, match="run 0 had ended by then, diverged at"):
        run.selected(attention.two_examples())


RULES = {  # in minimal coordinates, and in those of the tokens
    "NGD": dynamics.NGD(0.5),
    "sign": dynamics.SignDescent(0.05),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("norm", ["frobenius", "spectral", "nuclear", 1, np.inf])
def test_the_margin_ratio_is_the_least_margin_of_w_beside_the_largest(name, norm):
    tokens = attention.unit_tokens([0, 3], n=3, T=4, d=6)
    mask = np.ones((2, 3, 4), bool)
    hidden = (tokens.opt[0, 0] + 1) % 4
    mask[0, 0, hidden] = False
    tokens = attention.token_set(tokens.X, tokens.y, tokens.z, tokens.u, mask=mask)
    start = 0.3 * np.random.default_rng(0).standard_normal((2, 6, 6))
    run = dynamics.train(tokens, RULES[name], 400, start=start)
    ratio = run.margin_ratio(tokens, norm)
    selected = run.selected(tokens)
    solution = svm.token_svm(tokens, selected, norm)
    for r in range(2):
        W = run.weights(-1)[r]
        if run.coordinates == "minimal":
            W = attention.minimal(tokens).expand(run.weights(-1))[r]
        margins = []
        for X, z, seen, s in zip(
            tokens.X[r], tokens.z[r], mask[r], selected[r], strict=True
        ):
            logits = X @ W @ z
            margins += [logits[s] - logits[t] for t in range(4) if t != s and seen[t]]
        size = {"frobenius": None, "spectral": 2, "nuclear": "nuc"}
        if norm in size:
            length = np.linalg.norm(W, size[norm])
        else:
            length = np.linalg.norm(W.ravel(), norm)
        expected = min(margins) / length * solution.norm[r]
        assert ratio[r] == pytest.approx(expected, rel=1e-9)
        assert 0 < ratio[r] < 1 + 1e-7


def test_w_of_zero_has_no_margin_ratio():
    tokens = attention.unit_tokens(0, n=3, T=4, d=6)
    run = dynamics.train(tokens, dynamics.NGD(0.5), 10)
    assert np.isnan(run.margin_ratio(tokens, k=0)).all()
    assert 0 < run.margin_ratio(tokens)[0] < 1


# In these data training selects another token than the best one in one sample.
ELSEWHERE = attention.unit_tokens([0, 1], n=6, T=8, d=10)


@pytest.mark.parametrize(
    "rule",
    [dynamics.NGD(0.5), dynamics.Muon(0.05), dynamics.MirrorDescent(3.0)],
    ids=repr,
)
@pytest.mark.parametrize("norm", ["frobenius", 3.0])
@pytest.mark.parametrize("started", [False, True])
def test_a_run_is_measured_against_other_tokens_as_if_trained_again(
    rule, norm, started
):
    start = None
    if started:  # with a part outside the span of the queries
        start = 0.3 * np.random.default_rng(0).standard_normal((2, 10, 10))
    run = dynamics.train(ELSEWHERE, rule, 4000, start=start)
    if started and norm == 3.0 and run.coordinates == "minimal":
        with pytest.raises(ValueError, match="both leave the span"):
            run.against(ELSEWHERE, norm=norm)
        return
    selected = run.selected(ELSEWHERE)
    assert (selected != ELSEWHERE.opt).any()
    target = svm.token_svm(ELSEWHERE, selected, norm)
    again = dynamics.train(
        attention.token_set(
            ELSEWHERE.X, ELSEWHERE.y, ELSEWHERE.z, ELSEWHERE.u, opt=selected
        ),
        rule,
        4000,
        start=start,
        targets={"W_mm": target},
    )
    found = run.against(ELSEWHERE, norm=norm)
    np.testing.assert_array_equal(found.selected, selected)
    np.testing.assert_allclose(found.margins, again.margins, rtol=1e-6, atol=1e-6)
    for name in ("direction_error", "alignment"):
        expected = getattr(again, name)["W_mm"]
        np.testing.assert_allclose(getattr(found, name), expected, atol=1e-7)


def test_the_part_of_the_start_outside_the_span_counts_in_the_direction():
    tokens = attention.unit_tokens([0, 1], n=2, T=3, d=9)
    start = np.random.default_rng(0).standard_normal((2, 9, 9))
    targets = {"W_mm": svm.token_svm(tokens)}
    run = dynamics.train(tokens, dynamics.NGD(0.5), 50, start=start, targets=targets)
    assert (run.norm_outside > 1).all()
    found = run.against(tokens, tokens.opt)
    np.testing.assert_allclose(found.margins, run.margins, rtol=1e-12)
    expected = run.direction_error["W_mm"]
    np.testing.assert_allclose(found.direction_error, expected, rtol=1e-9)


def test_masked_tokens_have_no_margin_against_other_tokens_either():
    lengths = (4, 3, 2)
    X = [
        attention.unit_tokens(0, n=3, T=4, d=6).X[0, i, :t]
        for i, t in enumerate(lengths)
    ]
    tokens = attention.token_set(X, [1, -1, 1], u=np.ones(6), opt=[0, 0, 0])
    run = dynamics.train(tokens, dynamics.NGD(0.5), 200)
    found = run.against(tokens, np.array([[1, 1, 1]]))
    logits = attention.logits(tokens, attention.minimal(tokens).expand(run.weights(-1)))
    for i, t in enumerate(lengths):
        own = logits[0, i, 1] - np.delete(logits[0, i], 1)[: t - 1]
        np.testing.assert_allclose(found.margins[0, -1, i, : t - 1], own, rtol=1e-9)
        assert np.isnan(found.margins[0, -1, i, t - 1 :]).all()


OTHER = attention.unit_tokens([2, 3], n=6, T=8, d=10)
SHORTER = attention.unit_tokens([0, 1], n=6, T=7, d=10)


@pytest.mark.parametrize("method", ["selected", "against", "margin_ratio"])
@pytest.mark.parametrize("rule", [dynamics.NGD(0.5), dynamics.Adam(0.05)], ids=repr)
def test_the_tokens_of_another_run_are_refused(method, rule):
    run = dynamics.train(ELSEWHERE, rule, 20)
    with pytest.raises(ValueError, match=r"tokens has .*\(2, 6, 7\), and the run was"):
        getattr(run, method)(SHORTER)
    with pytest.raises(TypeError, match="tokens = ndarray; it must be a TokenSet"):
        getattr(run, method)(ELSEWHERE.X)
    if method != "selected":
        with pytest.raises(ValueError, match="trained on other tokens, or with other"):
            getattr(run, method)(OTHER)


def test_a_record_is_named_by_its_place():
    run = dynamics.train(ELSEWHERE, dynamics.NGD(0.5), 20)
    with pytest.raises(TypeError, match="k = 2.5; it must be the place of a record"):
        run.selected(ELSEWHERE, 2.5)
    with pytest.raises(IndexError, match="k is a place in run.iterations"):
        run.weights(20_000)


def test_a_divergence_takes_the_solution_itself():
    run = dynamics.train(ELSEWHERE, dynamics.MirrorDescent(3.0), 20)
    target = svm.token_svm(ELSEWHERE, norm=3.0)
    np.testing.assert_array_equal(
        run.divergence(target, 3.0), run.divergence(target.W, 3.0)
    )


def test_only_rules_along_the_gradient_record_a_momentum(tmp_path):
    rules = {"NGD": dynamics.NGD(0.1, momentum=0.7), "Muon": dynamics.Muon(0.1)}
    runs = dynamics.train(DATA, rules, 5)
    assert runs["NGD"].momentum.tolist() == [0.7, 0.7]
    assert np.isnan(runs["Muon"].momentum).all()
    # A file of a version that did not record it.
    runs["NGD"].save(tmp_path / "run.npz")
    with np.load(tmp_path / "run.npz") as file:
        arrays = {name: file[name] for name in file.files if name != "momentum"}
    np.savez(tmp_path / "old.npz", **arrays)
    assert np.isnan(History.load(tmp_path / "old.npz").momentum).all()
