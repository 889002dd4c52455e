"""Tests of curve files.

A failure means that damaged or foreign curves are judged as a study's.
"""

import dataclasses
import io
import json

import numpy as np
import pytest

from lib import files, provenance
from lib.training.curves import load
from tests.papers.worlds import clocked, curve, race


@pytest.fixture
def saved(tmp_path):
    """Return curves and the file to which they were saved."""
    whole = race({"SGD": 0.02, "SNGD": 0.03})
    whole.save(tmp_path / "a.npz")
    return whole, tmp_path / "a.npz"


def test_what_is_written_is_read(saved):
    whole, path = saved
    again = load(path)
    assert again.configuration == whole.configuration
    for mine, theirs in zip(again.curves, whole.curves, strict=True):
        for field in dataclasses.fields(mine):
            np.testing.assert_equal(
                getattr(mine, field.name), getattr(theirs, field.name)
            )


def test_runs_are_paired_by_the_seeds_that_every_rule_has_run_in_any_order_of_the_file():
    whole = race({"SGD": 0.02, "Adam": 0.03}, seeds=3)
    gone = [c for c in whole.judged() if c.rule == "Adam" and c.seed == 1]
    kept = tuple(c for c in whole.curves[::-1] if c is not gone[0])
    cut = dataclasses.replace(whole, curves=kept)
    assert cut.seeds() == [0, 2]
    for rule in ("SGD", "Adam"):
        pairs = zip(cut.runs(rule), whole.runs(rule)[::2], strict=True)
        assert all(mine is theirs for mine, theirs in pairs)
        assert [trial.rate for trial in cut.trials(rule)] == [0.05, 0.1, 0.2]
    assert whole.hours() == pytest.approx(13 * 36 / 3600)  # 13 runs take 36 s each


def test_a_changed_byte_is_noticed_or_changes_nothing_and_so_is_an_end_cut_off(
    saved, tmp_path
):
    """A zip has bytes that nobody reads, such as the time of day."""
    (whole, path) = saved
    noticed = 0
    with pytest.raises(FileNotFoundError, match="`python -m lib.training` makes it"):
        load(tmp_path / "none.npz")
    content = path.read_bytes()
    for kept in (0.0, 0.3, 0.98):
        path.write_bytes(content[: int(kept * len(content))])
        with pytest.raises(ValueError, match="not a curve file that can be read"):
            load(path)
    for place in range(200, len(content), len(content) // 40):
        path.write_bytes(
            content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :]
        )
        try:
            again = load(path)
        except ValueError as error:
            noticed += "can be read" in str(error)
        else:
            again.save(tmp_path / "b.npz")
            assert again.configuration == whole.configuration
            assert (tmp_path / "b.npz").read_bytes() == content
    assert noticed > 20


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": 1}, "schema 1, this code reads 2"),
        *(({k: None}, f"no '{k}'") for k in ("schema", "curves", "configuration")),
    ],
)
def test_another_kind_of_file_is_said_to_be_one(saved, change, words):
    _, path = saved
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    head = json.loads(str(arrays["json"])) | change
    arrays["json"] = files.dumps(
        {name: value for name, value in head.items() if value is not None}
    )
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    path.write_bytes(stream.getvalue())
    with pytest.raises(ValueError, match=words):
        load(path)


KEPT = sorted((files.ROOT / "figures" / "desk").glob("*.npz"))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_every_kept_curve_was_made_by_a_commit_of_this_history(path):
    assert path.stat().st_size < 2e6
    commits = {curve.made["commit"] for curve in load(path).curves}
    if provenance.git("rev-parse", "--is-shallow-repository") != "false\n":
        pytest.skip("this clone has no history")

    def ancestor(commit):
        return provenance.git("merge-base", "--is-ancestor", commit, "HEAD")

    assert commits and all(ancestor(commit) is not None for commit in commits)


def test_steps_to_a_target_against_a_plain_loop():
    loss = np.random.default_rng(0).normal(size=9)
    run = curve("SGD", 0, loss)
    means = [run.loss[max(0, k - 2) : k + 1].astype(float).mean() for k in range(9)]
    np.testing.assert_allclose(run.smooth(3), means, rtol=1e-12, atol=1e-15)
    assert run.smooth(20)[-1] == pytest.approx(run.loss.astype(float).mean())
    # One reading alone is not yet a mean of three
    early = clocked(0, [0.0, 9.0, 9.0, 9.0])
    assert early.steps_to(1.0) == np.inf and early.steps_to(6.0) == 10
