"""Paper A's Figures 6 and 7 and paper C's vision experiment as studies."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import nn

from lib.data import images
from lib.networks import VisionTransformer
from lib.networks.weight_statistics import hoyer, matrices
from lib.training.augmentation import AugmentedBatches, Resize
from lib.training.batches import Batches
from lib.training.losses import classification
from lib.training.studies.measures import binned, correctness, renamed
from lib.training.study import Study, StudyProblem, until_loss

SHOWN = 2_000  # test images at the points of a run; its end takes them all
SMOKE_ROWS = 500  # test images of a smoke run: as many as the stand-ins have
CONTROL = 1_000  # training images whose loss, without augmentation, is measured at the points
PLAIN = {"shift": False, "mask_diagonal": False, "learn_temperature": False}


@torch.no_grad()
def correct(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor, transform) -> dict:
    """Which of the rows are classified correctly, as `measures.correctness`."""
    hits = [
        model(transform(rows)).argmax(1) == expected
        for rows, expected in zip(inputs.split(250), labels.split(250), strict=True)
    ]
    return correctness(torch.cat(hits))


def classify(
    name: str, rows: int, grid: int, shape: dict, batch: int, demo: bool = False
) -> StudyProblem:
    """The ViT for small data sets on the first `rows` training images of `name`, no augmentation.

    An image is cut into `grid` x `grid` patches. A `demo` is tested on SMOKE_ROWS at most.
    """
    train = images.load(name, "train", rows=rows, demo=demo)
    test = images.load(name, "test", rows=SMOKE_ROWS if demo else None, demo=demo)
    standardise = train.standardise()
    channels, size = train.images.shape[1:3]
    patch = size // grid
    judge = classification(test.images[:SHOWN], test.labels[:SHOWN], standardise)
    return StudyProblem(
        build=lambda: VisionTransformer(size, patch, channels, train.classes, **shape),
        batches=lambda seed, tuning: Batches(train.images, train.labels, batch, seed, standardise),
        evaluate=lambda seed, tuning: judge,
        finish=lambda seed: lambda model: correct(model, test.images, test.labels, standardise),
        about={
            "data": images.identity(name, demo=demo),
            "rows": rows,
            "test_rows": len(test),
            "network": f"ViT with SPT and LSA, patch {patch}, {shape}",
        },
    )


def augmented(
    rows: int, held_out: int, size: int, patch: int, shape: dict, batch: int, demo: bool = False
) -> StudyProblem:
    """The plain ViT on CIFAR-10, crop and flip; rates are judged on `held_out` further images.

    A `demo` is tested on SMOKE_ROWS at most.
    """
    whole = images.load("cifar10", "train", rows=rows + held_out, demo=demo)
    test = images.load("cifar10", "test", rows=SMOKE_ROWS if demo else None, demo=demo)
    train, rest = whole.first(rows), (whole.images[rows:], whole.labels[rows:])
    transform = Resize(train.standardise(), size)
    control = classification(train.images[:CONTROL], train.labels[:CONTROL], transform)
    judges = {
        True: classification(*rest, transform),
        False: classification(test.images[:SHOWN], test.labels[:SHOWN], transform),
    }

    def evaluate(seed: int, tuning: bool) -> Callable:
        def judge(model: nn.Module) -> dict[str, float]:
            return judges[tuning](model) | renamed(control(model), "control") | sparsity(model)

        return judge

    def end(model: nn.Module) -> dict[str, np.ndarray]:
        weights = {"histogram": binned(matrices(model).values())}
        return correct(model, test.images, test.labels, transform) | weights

    return StudyProblem(
        build=lambda: VisionTransformer(size, patch, 3, train.classes, **shape, **PLAIN),
        batches=lambda seed, tuning: AugmentedBatches(
            train.images, train.labels, batch, seed, transform
        ),
        evaluate=evaluate,
        finish=lambda seed: end,
        about={
            "data": images.identity("cifar10", demo=demo),
            "rows": rows,
            "held_out": held_out,
            "test_rows": len(test),
            "network": f"plain ViT on {size} pixels, patch {patch}, {shape}",
        },
    )


def sparsity(model: nn.Module) -> dict[str, float]:
    """The Hoyer index of every weight matrix, "hoyer.<name>", and their median, "hoyer"."""
    found = {f"hoyer.{name}": hoyer(W) for name, W in matrices(model).items()}
    return found | {"hoyer": float(np.median(list(found.values())))}


SHAPE = dict(width=48, depth=3, heads=4, hidden=96)
MNIST = Study(
    name="mnist",
    problem=partial(
        classify, "mnist", 10_000, 4, dict(width=32, depth=2, heads=4, hidden=64), batch=50
    ),
    rates={
        "SGD": (0.03, 0.1, 0.3, 1.0),
        "Adam": (1e-3, 3e-3, 1e-2, 3e-2),
        "SPS": (0.3, 1.0, 3.0, 10.0),
        "SNGD": (0.05, 0.1, 0.2, 0.4),
    },
    horizon=4_000,
    batch=50,
    window=200,
    targets=(0.3, 0.2, 0.1),
    **until_loss(0.07),
)
CIFAR10 = replace(
    MNIST,
    name="cifar10",
    problem=partial(classify, "cifar10", 5_000, 4, SHAPE, batch=50),
    rates=MNIST.rates | {"Adam": (3e-4, 1e-3, 3e-3, 1e-2), "SPS": (0.1, 0.3, 1.0, 3.0)},
    cap=3.0,
    targets=(1.0, 0.5, 0.25),
    walk=True,
    **until_loss(0.2),
)
VIT = Study(
    name="vit",
    problem=partial(augmented, 10_000, 2_000, 32, 8, SHAPE, batch=50),
    rates={"Adam": (3e-4, 1e-3, 3e-3, 1e-2), "l1.1": (0.05, 0.1, 0.2, 0.4)},
    horizon=6_000,
    batch=50,
    window=200,
    targets=(1.6, 1.4, 1.2),
    stop=lambda found: False,
    stop_words="never",
    criterion="accuracy",
)
