"""Two processes that share every batch: equal in both, one process's up to rounding."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from lib import files
from lib.budget import Budget
from lib.training.curves import load
from lib.training.study import Work
from tests.training.test_study import STUDY
from tests.training.two_processes import RUNS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parallel")
    launcher = [*"-m torch.distributed.run --standalone --nproc-per-node 2 -m".split()]
    command = [sys.executable, *launcher, "tests.training.two_processes", str(folder)]
    done = subprocess.run(command, cwd=files.ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return folder


def test_both_processes_hold_the_same_bits(folder):
    first, second = (torch.load(folder / f"rank{k}.pt", weights_only=True) for k in range(2))
    assert all(map(torch.equal, first, second))
    (path,) = folder.glob("multi_nli-*/*.npz")
    assert load(path).curves[0].status == "finished"


def test_two_processes_equal_one_at_the_same_batch(folder, tmp_path):
    alone = Work(STUDY, tmp_path, Budget(), say=lambda words: None).all_of(RUNS)
    both = Work(STUDY, folder, Budget(), say=lambda words: None).all_of(RUNS)  # from their files
    for one, two in zip(alone, both, strict=True):
        np.testing.assert_allclose(two.loss, one.loss, rtol=1e-4)
        np.testing.assert_allclose(two.step_size, one.step_size, rtol=1e-3)
        np.testing.assert_allclose(two.end["logits"], one.end["logits"], atol=1e-4)
