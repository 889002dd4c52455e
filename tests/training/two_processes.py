"""One of the processes of tests/training/test_parallel.py, started by torchrun.

`-m tests.training.two_processes FOLDER`.
"""

import sys
from pathlib import Path

import torch
from accelerate import Accelerator

from lib.training import commands

COMMAND = ["digits", "sps", "--steps", "12", "--evaluations", "3", "--cpu", "--out"]
BERT = ["pairs", "sps", "--steps", "4", "--evaluations", "1", "--batch", "16", "--cpu", "--out"]

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    model, _ = commands.run(commands.options([*COMMAND, str(folder / "both")]))
    rank = torch.distributed.get_rank()
    torch.save(model.state_dict(), folder / f"rank{rank}.pt")
    commands.run(commands.options([*BERT, str(folder / "bert")]))
    Accelerator.reduce = lambda self, tensor, reduction: tensor  # every process its own loss
    try:
        commands.run(commands.options([*COMMAND, str(folder / "apart")]))
    except RuntimeError as error:
        (folder / f"apart{rank}.txt").write_text(str(error))
    torch.distributed.destroy_process_group()
