"""One of the processes of tests/training/test_parallel.py, started by torchrun."""

import sys
from pathlib import Path

import torch

from lib.budget import Budget
from lib.training.studies import demo
from lib.training.study import Work, a_run
from tests.training import test_study as points

RUNS = [a_run("curve", "SPS", 0.5, None, 0), a_run("curve", "SGD", 0.1, None, 0)]
BERT = a_run("curve", "SPS", 0.3, None, 0)

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    work = Work(points.STUDY, folder, Budget(), cpu=True, say=lambda words: None)
    mine = work.all_of(RUNS)
    torch.save(
        [torch.from_numpy(run.loss) for run in mine],
        folder / f"rank{work.machine.process_index}.pt",
    )
    small = points.dataclasses.replace(demo.MULTI_NLI, horizon=4, evaluations=1)
    Work(small, folder, Budget(), cpu=True, say=lambda words: None).all_of([BERT])
    torch.distributed.destroy_process_group()
