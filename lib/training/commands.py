"""Named training runs: `python -m lib.training TASK RULE`, alone or under torchrun.

It writes the history as <out>.npz, which `history.load` reads, and the checkpoint beside it as
<out>.pt; the same command again goes on where the last one ended. Examples:
`python -m lib.training digits sngd`, `torchrun --nproc-per-node 2 -m lib.training digits sngd`.
"""

import argparse
import math
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import nn

from lib import files, networks, provenance
from lib.budget import Budget, minutes
from lib.data import images, texts
from lib.networks import bert
from lib.training import bert_evaluation, loop, rules, threads
from lib.training.batches import Batches
from lib.training.checkpoints import Checkpoints
from lib.training.devices import first_process
from lib.training.history import TrainingHistory
from lib.training.losses import Evaluate, classification
from lib.training.settings import Execution, Recording


@dataclass(frozen=True)
class Task:
    """A network with its data, as `training.train` needs them.

    `build()` makes the network, `batches(size, seed)` the training data; `evaluate` is that of
    `training.train`, whose loss is the mean cross-entropy; `about` names network and data.
    """

    build: Callable[[], nn.Module]
    batches: Callable[[int, int], Batches]
    evaluate: Evaluate
    about: dict


def vision(demo: bool) -> Task:
    """The vision transformer of `networks` on handwritten digits, 17 tokens an image."""
    train, test = (images.load("mnist", split, demo=demo) for split in ("train", "test"))
    channels, pixels = train.images.shape[1:3]
    standardise = train.standardise()
    shape = dict(width=32, depth=2, heads=4, hidden=64)
    return Task(
        build=lambda: networks.VisionTransformer(
            pixels, pixels // 4, channels, train.classes, **shape
        ),
        batches=lambda size, seed: Batches(train.images, train.labels, size, seed, standardise),
        evaluate=classification(test.images, test.labels, standardise),
        about={"network": f"vit {shape}", "data": images.identity("mnist", demo=demo)},
    )


def language(name: str, length: int, demo: bool) -> Task:
    """A BERT classifier on texts of at most `length` tokens, judged on `JUDGED` test rows.

    With `demo` it is a small one from a random start.
    """
    weights = bert.weights(demo=demo)
    sets = [texts.load(name, split, demo=demo) for split in ("train", "test")]
    train, test = (
        bert.tokenise(weights, part, length) for part in (sets[0], sets[1].sample(JUDGED))
    )
    build = partial(bert.small_classifier if demo else bert.classifier, weights, sets[0].classes)
    return Task(
        build=build,
        batches=partial(bert_evaluation.batches, train),
        evaluate=bert_evaluation.judge(test),
        about={
            "network": build().describe(),
            "data": texts.identity(name, demo=demo),
            "weights": weights.as_row(),
        },
    )


JUDGED = 1000  # test texts
TASKS = {
    "digits": partial(vision, demo=True),
    "mnist": partial(vision, demo=False),
    "pairs": partial(language, "multi_nli", 32, demo=True),
    "multi_nli": partial(language, "multi_nli", 128, demo=False),
    "civil_comments": partial(language, "civil_comments", 300, demo=False),
}
RULES = {name.lower(): rules.RULES[name] for name in ("SGD", "Adam", "SNGD", "SPS")}
# Rates, and the cap of sngd and sps: ours, of the size that the notebooks' grids choose.
FRESH = {"sgd": 0.1, "adam": 3e-3, "sngd": 0.4, "sps": None, "cap": 3.0}
PRETRAINED = {"sgd": 0.1, "adam": 1e-4, "sngd": 0.1, "sps": None, "cap": 0.2}
RATES = {task: PRETRAINED if task in ("multi_nli", "civil_comments") else FRESH for task in TASKS}


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line of `python -m lib.training`."""
    parser = argparse.ArgumentParser(prog="python -m lib.training", description=__doc__)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("rule", choices=RULES, help="sngd: normalised SGD; sps: stochastic Polyak")
    parser.add_argument(
        "--rate", type=float, help=f"learning rate, by default one out of {FRESH}; sps has none"
    )
    parser.add_argument(
        "--cap", type=float, help="largest step of sngd and sps (3; for a pretrained BERT 0.2)"
    )
    parser.add_argument(
        "--batch", type=int, default=100, help="rows of a batch, over all processes together (100)"
    )
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--evaluations", type=int, default=12, help="after the one at the start (12)"
    )
    parser.add_argument("--checkpoint-every", type=int, default=100, metavar="STEPS")
    parser.add_argument(
        "--precision", choices=("float32", "bf16"), help="bf16 on a GPU, else float32"
    )
    parser.add_argument("--cpu", action="store_true", help="stay on the CPU even if there is a GPU")
    parser.add_argument(
        "--out", type=Path, help="results without suffix, runs/training/<task>_<rule>_seed<seed>"
    )
    parser.add_argument(
        "--minutes", type=minutes, help="train so long, save, say what is left, go on next time"
    )
    chosen = parser.parse_args(arguments)
    rates = RATES[chosen.task]
    chosen.cap = rates["cap"] if chosen.cap is None else chosen.cap
    if chosen.rate is None:
        chosen.rate = rates[chosen.rule]
    elif chosen.rule == "sps":
        parser.error("sps takes no --rate; its step size is bounded by --cap")
    for name in ("rate", "cap"):  # seen here, not after the training, when its record is written
        value = getattr(chosen, name)
        if value is not None and not 0 < value < math.inf:
            parser.error(f"--{name} must be positive and finite, got {value:g}")
    if chosen.evaluations < 0:
        parser.error(f"--evaluations must be 0 or more, got {chosen.evaluations}")
    on_gpu = torch.cuda.is_available() and not chosen.cpu
    chosen.precision = chosen.precision or ("bf16" if on_gpu else "float32")
    name = f"{chosen.task}_{chosen.rule}_seed{chosen.seed}"
    chosen.out = chosen.out or files.folder("runs") / "training" / name
    return chosen


def run(chosen: argparse.Namespace) -> tuple[nn.Module, TrainingHistory]:
    """Train what `options` chose, from its last checkpoint if there is one; write the history."""
    with alone(chosen.out):
        return _run(chosen)


def _run(chosen: argparse.Namespace) -> tuple[nn.Module, TrainingHistory]:
    task = TASKS[chosen.task]()
    model = loop.initialised(task.build, chosen.seed)
    words = threads.choose(sum(p.numel() for p in model.parameters()))
    if first_process():
        print(words)
    rate = chosen.cap if chosen.rule == "sps" else chosen.rate  # the cap is all that SPS has
    optimizer = RULES[chosen.rule](model.parameters(), rate, chosen.cap)
    about = {key: getattr(chosen, key) for key in ("task", "rule", "rate", "cap")} | task.about
    pause = None if chosen.minutes is None else Budget(chosen.minutes).spent
    path = beside(chosen.out, ".pt")
    recording = Recording(
        evaluate=task.evaluate,
        at=np.linspace(0, chosen.steps, chosen.evaluations + 1).astype(int),
        label=f"{chosen.task} {chosen.rule}",
    )
    execution = Execution(
        cpu=chosen.cpu,
        precision=chosen.precision,
        checkpoints=Checkpoints(path, chosen.checkpoint_every, about, pause),
    )
    batches = task.batches(chosen.batch, chosen.seed)
    how = {"recording": recording, "execution": execution}
    history = loop.train(model, optimizer, batches, chosen.steps, **how)
    if first_process() and not history.paused:
        how = {key: getattr(chosen, key) for key in ("batch", "steps", "seed", "precision")}
        how |= {"versions": provenance.versions()}
        history.save(beside(chosen.out, ".npz"), about | how)
    return model, history


def beside(out: Path, suffix: str) -> Path:
    """The file of `out` with `suffix`, which is added: a name may end in a rate, as sgd_0.1."""
    return out.with_name(f"{out.name}{suffix}")


def alone(out: Path) -> AbstractContextManager:
    """Hold the lock on `out` for this training's first process, until it ends or is killed.

    ValueError where another training has it.
    """
    if not first_process():
        return nullcontext()
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        return FileLock(out.with_name(f".{out.name}.lock")).acquire(blocking=False)
    except Timeout:
        raise ValueError(
            f"another training writes to --out {out}; wait for it or choose another --out"
        ) from None


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit status.

    An error that a user can mend is printed as one sentence, with status 1; status 3 says that the
    run paused.
    """
    chosen = options(arguments)
    try:
        _, history = run(chosen)
        if first_process():
            print(_ending(chosen, history))
        return 3 if history.paused else 0
    except (ValueError, OSError, MemoryError) as error:
        print(f"error: {files.sentence(error)}", file=sys.stderr)
        return 1
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def _ending(chosen: argparse.Namespace, history: TrainingHistory) -> str:
    if history.paused:
        return f"{history.status} of {chosen.steps}; the same command goes on from there"
    last = ", ".join(f"{name} {values[-1]:.4f}" for name, values in history.metrics.items())
    return f"{history.status}; {last}; written to {beside(chosen.out, '.npz')}"
