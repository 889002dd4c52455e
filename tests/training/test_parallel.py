"""Tests of two processes that share every batch.

Otherwise a study on two GPUs would be another one.
"""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from lib import files
from lib.training.curves import load
from lib.training.studies import DEMO
from lib.training.work import Run, Work
from tests.training.test_study import STUDY

RUNS = [Run.of("curve", "SPS", 0.5, None, 0), Run.of("curve", "SGD", 0.1, None, 0)]


def work(study, folder):
    return Work(study, folder, say=lambda words: None, cpu=True)


def test_two_processes_hold_the_same_bits_and_equal_one_at_the_same_batch(tmp_path):
    folder = tmp_path / "parallel"
    folder.mkdir()
    launcher = [*"-m torch.distributed.run --standalone --nproc-per-node 2 -m".split()]
    command = [sys.executable, *launcher, "tests.training.test_parallel", str(folder)]
    done = subprocess.run(
        command, cwd=files.ROOT, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    first, second = (
        torch.load(folder / f"rank{k}.pt", weights_only=True) for k in range(2)
    )
    assert all(map(torch.equal, first, second))
    (path,) = folder.glob("multi_nli-*/*.npz")
    assert load(path).curves[0].status == "finished"
    alone, both = (work(STUDY, place).all_of(RUNS) for place in (tmp_path, folder))
    for one, two in zip(alone, both, strict=True):
        np.testing.assert_allclose(two.loss, one.loss, rtol=1e-4)
        np.testing.assert_allclose(two.step_size, one.step_size, rtol=1e-3)
        np.testing.assert_allclose(two.end["logits"], one.end["logits"], atol=1e-4)


if __name__ == "__main__":  # one of the processes, started by torchrun
    here = Path(sys.argv[1])
    mine = work(STUDY, here)
    losses = [torch.from_numpy(run.loss) for run in mine.all_of(RUNS)]
    torch.save(losses, here / f"rank{mine.machine.process_index}.pt")
    small = replace(DEMO["multi_nli"], horizon=8, clock=4, evaluations=1)
    work(small, here).all_of([Run.of("curve", "SPS", 0.3, None, 0)])
    torch.distributed.destroy_process_group()
