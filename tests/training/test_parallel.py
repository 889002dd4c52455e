"""Two processes that share every batch: the same weights in both, and those of one process up
to rounding.
"""

import subprocess
import sys

import numpy as np
import pytest
import torch

from lib.training import commands
from lib.training import history as histories
from lib.training.batches import Batches
from tests.training.two_processes import COMMAND


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parallel")
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ]
    command = [*launcher, "-m", "tests.training.two_processes", str(folder)]
    root = commands.files.ROOT
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


def test_polyak_keeps_both_processes_at_the_same_bits(folder):
    first, second = (torch.load(folder / f"rank{k}.pt", weights_only=True) for k in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert histories.load(folder / "both.npz")[0].drift.tolist() == [0.0] * 4


def test_bert_is_the_same_in_both_processes(folder):
    history, about = histories.load(folder / "bert.npz")
    assert history.status == "finished" and history.drift.tolist() == [0.0] * 2
    assert about["network"].startswith("small BERT") and about["task"] == "pairs"


def test_two_processes_equal_one_at_the_same_batch(folder):
    model, alone = commands.run(commands.options([*COMMAND, str(folder / "alone")]))
    both, about = histories.load(folder / "both.npz")
    np.testing.assert_allclose(both.loss, alone.loss, rtol=1e-4)
    np.testing.assert_allclose(both.step_size, alone.step_size, rtol=1e-3)
    weights = torch.load(folder / "rank0.pt", weights_only=True)
    for name, values in model.state_dict().items():
        torch.testing.assert_close(weights[name], values, rtol=0, atol=1e-4)
    assert about["rule"] == "sps" and both.status == "finished"


def test_a_loss_that_is_not_averaged_is_noticed(folder):
    for rank in range(2):
        assert "the weights of two processes differ by" in (folder / f"apart{rank}.txt").read_text()


def test_parts_make_up_the_batch():
    batches = Batches(torch.arange(12), torch.arange(12), 6, seed=1)
    parts = [batches.share(k, 3) for k in range(3)]
    for step in range(4):
        assert torch.equal(torch.cat([part.rows(step) for part in parts]), batches.rows(step))
    with pytest.raises(ValueError, match="6 rows cannot be shared equally by 4 processes"):
        batches.share(0, 4)
