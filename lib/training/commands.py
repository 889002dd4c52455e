"""Named training runs: `python -m lib.training digits sngd`, or `torchrun --nproc-per-node 2 -m
lib.training ...`.

Writes the history as <out>.npz, which `training_record.load` gives to a notebook, and the
checkpoint beside it as <out>.pt; the same command again goes on where the last one ended.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from lib import files, networks, provenance
from lib.budget import Budget, minutes
from lib.data import images, texts
from lib.networks import bert
from lib.training import bert_evaluation, loop, rules


@dataclass(frozen=True)
class Task:
    """A network with its data: `build()` makes the network, `batches(size, seed)` the training
    data.

    `loss` and `evaluate` as in `training.train`; `about` names network and data.
    """

    build: Callable[[], nn.Module]
    batches: Callable[[int, int], loop.Batches]
    evaluate: Callable[[nn.Module], dict]
    about: dict
    loss: Callable = loop.cross_entropy


def vision(demo: bool) -> Task:
    """The vision transformer of `networks` on handwritten digits, 17 tokens an image."""
    train, test = (images.load("mnist", split, demo=demo) for split in ("train", "test"))
    pixels, channels, standardise = (
        train.images.shape[-1],
        train.images.shape[1],
        train.standardise(),
    )
    shape = dict(width=32, depth=2, heads=4, hidden=64)
    return Task(
        build=lambda: networks.VisionTransformer(
            pixels, pixels // 4, channels, train.classes, **shape
        ),
        batches=lambda size, seed: loop.Batches(
            train.images, train.labels, size, seed, standardise
        ),
        evaluate=loop.classification(test.images, test.labels, standardise),
        about={"network": f"vit {shape}", "data": images.identity("mnist", demo=demo)},
    )


def language(name: str, length: int, demo: bool) -> Task:
    """A BERT classifier on texts of at most `length` tokens, judged on `JUDGED` rows; small and
    fresh with `demo`.
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
    on_gpu = torch.cuda.is_available() and not chosen.cpu
    chosen.precision = chosen.precision or ("bf16" if on_gpu else "float32")
    name = f"{chosen.task}_{chosen.rule}_seed{chosen.seed}"
    chosen.out = chosen.out or files.folder("runs") / "training" / name
    return chosen


def run(chosen: argparse.Namespace) -> tuple[nn.Module, loop.TrainingHistory]:
    """Train what `options` chose, from its last checkpoint if there is one, and write the
    history.
    """
    task = TASKS[chosen.task]()
    model = loop.initialised(task.build, chosen.seed)
    rate = chosen.cap if chosen.rule == "sps" else chosen.rate  # the cap is all that SPS has
    optimizer = RULES[chosen.rule](model.parameters(), rate, chosen.cap)
    budget = Budget(chosen.minutes)
    about = {
        "task": chosen.task,
        "rule": chosen.rule,
        "rate": chosen.rate,
        "cap": chosen.cap,
        **task.about,
    }
    history = loop.train(
        model,
        optimizer,
        task.batches(chosen.batch, chosen.seed),
        chosen.steps,
        loss=task.loss,
        evaluate=task.evaluate,
        evaluate_at=np.linspace(0, chosen.steps, chosen.evaluations + 1).astype(int),
        label=f"{chosen.task} {chosen.rule}",
        cpu=chosen.cpu,
        precision=chosen.precision,
        pause=None if chosen.minutes is None else budget.spent,
        checkpoints=loop.Checkpoints(chosen.out.with_suffix(".pt"), chosen.checkpoint_every, about),
    )
    if _first_process() and not history.status.startswith("paused"):
        how = {key: getattr(chosen, key) for key in ("batch", "steps", "seed", "precision")}
        history.save(
            chosen.out.with_suffix(".npz"), about | how | {"versions": provenance.versions()}
        )
    return model, history


def _first_process() -> bool:
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; what a user can mend is one sentence and exit status 1, without a
    traceback.
    """
    chosen = options(arguments)
    try:
        _, history = run(chosen)
        if history.status.startswith("paused"):
            if _first_process():
                print(f"{history.status} of {chosen.steps}; the same command goes on from there")
            return 3
        if _first_process():
            last = ", ".join(f"{name} {values[-1]:.4f}" for name, values in history.metrics.items())
            print(f"{history.status}; {last}; written to {chosen.out.with_suffix('.npz')}")
    except (ValueError, OSError, MemoryError) as error:
        sentence = getattr(error, "strerror", None) or error
        place = f": {error.filename}" if getattr(error, "filename", None) else ""
        print(f"error: {sentence}{place}", file=sys.stderr)
        return 1
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    return 0
