"""Curve files: what is written is read, and what cannot be used is named."""

import dataclasses
import io
import json

import numpy as np
import pytest

from lib import files, provenance
from lib.training.curves import load
from tests.papers.worlds import curve, race


def test_what_is_written_is_read(tmp_path):
    whole = race({"SGD": 0.02, "SNGD": 0.03})
    whole.save(tmp_path / "a.npz")
    found = load(tmp_path / "a.npz")
    assert found.digest == whole.digest and len(found.curves) == len(whole.curves)
    for mine, theirs in zip(found.curves, whole.curves, strict=True):
        for name in ("rule", "part", "seed", "cap", "rate", "status"):
            assert getattr(mine, name) == getattr(theirs, name)
        np.testing.assert_array_equal(mine.loss, theirs.loss)
        np.testing.assert_array_equal(mine.step_size, theirs.step_size)
        np.testing.assert_equal(dict(mine.end), dict(theirs.end))


def test_only_seeds_that_every_rule_has_run_count():
    whole = race({"SGD": 0.02, "Adam": 0.03}, seeds=3)
    cut = [c for c in whole.curves if not (c.rule == "Adam" and c.seed == 1 and c.part == "curve")]
    found = dataclasses.replace(whole, curves=tuple(cut))
    assert found.seeds() == [0, 2]
    assert [run.seed for run in found.runs("SGD")] == [0, 2]
    assert len(found.trials("SGD")) == 2


def test_runs_are_paired_by_seed_whatever_the_order_of_the_file():
    whole = race({"SGD": 0.02, "Adam": 0.03}, seeds=3)
    found = dataclasses.replace(whole, curves=whole.curves[::-1])
    for rule in ("SGD", "Adam"):
        pairs = zip(found.runs(rule), whole.runs(rule), strict=True)
        assert all(mine is theirs for mine, theirs in pairs)
        assert [trial.rate for trial in found.trials(rule)] == [0.1, 0.2]
    assert whole.hours() == pytest.approx(10 * 36 / 3600)  # of 10 runs of 36 s each


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.98])
def test_a_truncated_file_is_said_to_be_one(tmp_path, kept):
    race({"SGD": 0.02}).save(tmp_path / "a.npz")
    content = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(content[: int(kept * len(content))])
    with pytest.raises(ValueError, match="not a curve file that can be read"):
        load(tmp_path / "a.npz")


def test_a_changed_byte_is_noticed_or_changes_nothing(tmp_path):
    """A zip has bytes that nobody reads, such as the time of day."""
    path, whole, noticed = tmp_path / "a.npz", race({"SGD": 0.02}), 0
    whole.save(path)
    content = path.read_bytes()
    for place in range(200, len(content), len(content) // 40):
        path.write_bytes(content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :])
        try:
            found = load(path)
        except ValueError as error:
            noticed += "can be read" in str(error) or "damaged" in str(error)
        else:
            found.save(tmp_path / "b.npz")
            assert found.digest == whole.digest and (tmp_path / "b.npz").read_bytes() == content
    assert noticed > 20


@pytest.mark.parametrize("missing", ["schema", "curves", "configuration"])
def test_another_kind_of_file_is_said_to_be_one(tmp_path, missing):
    race({"SGD": 0.02}).save(tmp_path / "a.npz")
    rewritten(tmp_path / "a.npz", lambda head: head.pop(missing))
    with pytest.raises(ValueError, match=f"can be read .there is no '{missing}'"):
        load(tmp_path / "a.npz")


def rewritten(path, change):
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    head = json.loads(str(arrays["json"]))
    change(head)
    stream = io.BytesIO()
    np.savez_compressed(stream, **(arrays | {"json": np.array(files.dumps(head))}))
    path.write_bytes(stream.getvalue())


def test_another_schema_is_refused(tmp_path):
    race({"SGD": 0.02}).save(tmp_path / "a.npz")
    rewritten(tmp_path / "a.npz", lambda head: head.update(schema=1))
    with pytest.raises(ValueError, match="has schema 1, this code reads 2"):
        load(tmp_path / "a.npz")


KEPT = sorted((files.ROOT / "figures" / "desk").glob("*.npz"))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_every_kept_curve_was_made_by_a_commit_of_this_history(path):
    assert path.stat().st_size < 2e6
    commits = {curve.made["commit"] for curve in load(path).curves}
    if provenance.git("rev-parse", "--is-shallow-repository") != "false\n":
        pytest.skip("this clone has no history")
    assert commits and all(
        provenance.git("merge-base", "--is-ancestor", commit, "HEAD") is not None
        for commit in commits
    )


def test_steps_to_a_target_against_a_plain_loop():
    loss = np.random.default_rng(0).normal(size=9)
    run = curve("SGD", 0, loss)
    means = [run.loss[max(0, k - 2) : k + 1].astype(float).mean() for k in range(9)]
    np.testing.assert_allclose(run.smooth(3), means, rtol=1e-12, atol=1e-15)
    assert run.smooth(20)[-1] == pytest.approx(run.loss.astype(float).mean())
    early = curve("SGD", 0, [0.0, 9.0, 9.0])  # one step alone is not yet a mean of two
    assert early.steps_to(1.0, 2) == np.inf and early.steps_to(5.0, 2) == 2


def test_a_missing_file_says_how_it_is_made(tmp_path):
    with pytest.raises(FileNotFoundError, match="python -m lib.training"):
        load(tmp_path / "none.npz")
