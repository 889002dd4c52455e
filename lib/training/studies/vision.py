"""Paper A's Figures 6 and 7 and paper C's vision experiment as studies."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from lib.data import images
from lib.networks import VisionTransformer
from lib.networks.weight_statistics import hoyer, matrices
from lib.training import baselines
from lib.training.batches import AugmentedBatches, Batches
from lib.training.measures import binned, classification, correctness, predict, right
from lib.training.study import Problem, Study

SHOWN = 2_000  # test images at the points of a run; its end takes them all
SMOKE_ROWS = 500  # test images of a smoke run: as many as the stand-ins have
FIXED = 512  # training images on which the clock reads the loss, without augmentation
CONTROL = 1_000  # training images whose loss, without augmentation, is measured at the points
AS_NAMED = {"shift": "cardinal", "head_width": 64, "start": 1.0}  # vit_for_small_dataset
NAMED = "the network of vit_for_small_dataset (shifts by one pixel, heads 64 wide)"
PLAIN = {"shift": None, "mask_diagonal": False, "learn_temperature": False}


@dataclass(frozen=True)
class Resize:
    """uint8 (b, c, s, s) through `standardise` to float32 (b, c, size, size), bilinear."""

    standardise: Callable[[Tensor], Tensor]
    size: int

    def __call__(self, images: Tensor) -> Tensor:
        images, size = self.standardise(images), (self.size, self.size)
        if size == images.shape[-2:]:
            return images
        return F.interpolate(images, size=size, mode="bilinear", align_corners=False)


def classify(
    name: str,
    rows: int,
    grid: int,
    shape: Mapping[str, int],
    batch: int,
    crops: bool = False,
    demo: bool = False,
) -> Problem:
    """The ViT for small data sets on the first `rows` training images of `name`.

    An image is cut into `grid` x `grid` patches; with `crops` it is cropped and mirrored at random
    before. A `demo` is tested on SMOKE_ROWS at most.
    """
    train = images.load(name, "train", rows=rows, demo=demo)
    test = images.load(name, "test", rows=SMOKE_ROWS if demo else None, demo=demo)
    standardise, (channels, size) = train.standardise(), train.images.shape[1:3]
    patch = size // grid
    judge = classification(test.images[:SHOWN], test.labels[:SHOWN], standardise)
    kind = AugmentedBatches if crops else Batches
    named = shape.get("shift") == "cardinal"
    network = NAMED if named else "ViT with SPT and LSA"
    sizes = {key: value for key, value in shape.items() if not named or key not in AS_NAMED}
    return Problem(
        build=lambda: VisionTransformer(size, patch, channels, train.classes, **shape),
        batches=lambda seed, tuning: kind(train.images, train.labels, batch, seed, standardise),
        evaluate=lambda seed, tuning: judge,
        finish=lambda seed: (
            lambda model: correctness(right(predict(model, test.images, standardise), test.labels))
        ),
        about={
            "data": images.identity(name, demo=demo),
            "rows": rows,
            "test_rows": len(test),
            "network": f"{network}, patch {patch}, {sizes}" + ", crops and flips" * crops,
        },
        clock=classification(*_fixed(train), standardise, name="clock"),
        baselines=baselines.of_images(train, test),
    )


def _fixed(train: images.ImageSet) -> tuple[Tensor, Tensor]:
    return train.images[:FIXED], train.labels[:FIXED]


def augmented(
    rows: int,
    held_out: int,
    size: int,
    patch: int,
    shape: Mapping[str, int],
    batch: int,
    demo: bool = False,
) -> Problem:
    """The plain ViT on CIFAR-10, crop and flip; rates are judged on `held_out` further images.

    A `demo` is tested on SMOKE_ROWS at most.
    """
    whole = images.load("cifar10", "train", rows=rows + held_out, demo=demo)
    test = images.load("cifar10", "test", rows=SMOKE_ROWS if demo else None, demo=demo)
    train, rest = whole.first(rows), (whole.images[rows:], whole.labels[rows:])
    transform = Resize(train.standardise(), size)
    control = classification(
        train.images[:CONTROL], train.labels[:CONTROL], transform, name="control"
    )
    shown = {True: rest, False: (test.images[:SHOWN], test.labels[:SHOWN])}
    judges = {tuning: classification(*rows, transform) for tuning, rows in shown.items()}

    def end(model: nn.Module) -> dict[str, np.ndarray]:
        weights = {"histogram": binned(matrices(model).values())}
        return correctness(right(predict(model, test.images, transform), test.labels)) | weights

    return Problem(
        build=lambda: VisionTransformer(size, patch, 3, train.classes, **shape, **PLAIN),
        batches=lambda seed, tuning: AugmentedBatches(
            train.images, train.labels, batch, seed, transform
        ),
        evaluate=lambda seed, tuning: (
            lambda model: judges[tuning](model) | control(model) | sparsity(model)
        ),
        finish=lambda seed: end,
        about={
            "data": images.identity("cifar10", demo=demo),
            "rows": rows,
            "held_out": held_out,
            "test_rows": len(test),
            "network": f"plain ViT on {size} pixels, patch {patch}, {shape}",
        },
        clock=classification(*_fixed(train), transform, name="clock"),
        baselines=baselines.of_images(train, test),
    )


def sparsity(model: nn.Module) -> dict[str, float]:
    """The Hoyer index of every weight matrix, "hoyer.<name>", and their median, "hoyer"."""
    found = {f"hoyer.{name}": hoyer(W) for name, W in matrices(model).items()}
    return found | {"hoyer": float(np.median(list(found.values())))}


SMALL = dict(width=32, depth=2, heads=4, hidden=64)
SHAPE = dict(width=48, depth=3, heads=4, hidden=96)
MNIST = Study(
    name="mnist",
    problem=classify,
    options=dict(name="mnist", rows=10_000, grid=4, shape=SMALL),
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
    stop_at=0.07,
)
CIFAR10 = replace(
    MNIST,
    name="cifar10",
    options=dict(name="cifar10", rows=5_000, grid=4, shape=SHAPE),
    rates=MNIST.rates | {"Adam": (3e-4, 1e-3, 3e-3, 1e-2), "SPS": (0.1, 0.3, 1.0, 3.0)},
    cap=3.0,
    targets=(1.0, 0.5, 0.25),
    walk=True,
    stop_at=0.2,
)
VIT = Study(
    name="vit",
    problem=augmented,
    options=dict(rows=10_000, held_out=2_000, size=32, patch=8, shape=SHAPE),
    rates={"Adam": (3e-4, 1e-3, 3e-3, 1e-2), "l1.1": (0.05, 0.1, 0.2, 0.4)},
    horizon=6_000,
    batch=50,
    window=200,
    targets=(1.6, 1.4, 1.2),
    criterion="accuracy",
)

# The second protocol: the clock, fresh seeds, a network that must beat plain classifiers.
SECOND = dict(seeds=3, first_seed=20, clock=10, stop_by="clock", extensions=3, evaluations=24)
MNIST_60000 = replace(
    MNIST,
    **SECOND,
    name="mnist_60000",
    options=dict(
        name="mnist",
        rows=60_000,
        grid=4,
        shape=dict(width=64, depth=4, heads=2, hidden=128) | AS_NAMED,
    ),
    rates={
        "SGD": (0.1, 0.2, 0.4, 0.8),
        "Adam": (5e-4, 1e-3, 2e-3, 4e-3),
        "SPS": (0.5, 1.0, 2.0, 4.0),
        "SNGD": (0.1, 0.2, 0.4, 0.8),
    },
    horizon=4_800,
    batch=128,
    targets=(0.3, 0.2, 0.1),
    stop_at=0.03,
)
CIFAR10_50000 = replace(
    MNIST_60000,
    name="cifar10_50000",
    options=dict(
        name="cifar10",
        rows=50_000,
        grid=8,
        crops=True,
        shape=dict(width=64, depth=4, heads=2, hidden=128) | AS_NAMED,
    ),
    rates={"SGD": (0.1, 0.2, 0.4), "Adam": (5e-4, 1e-3, 2e-3), "SNGD": (0.1, 0.2, 0.4)},
    cap=3.0,
    clock=20,
    horizon=4_800,
    batch=64,
    targets=(1.7, 1.5, 1.4),
    walk=True,
    stop_at=1.0,
)
VIT_48000 = replace(
    VIT,
    **SECOND | {"clock": 40, "stop_by": "recent_loss"},
    name="vit_48000",
    options=dict(
        rows=48_000,
        held_out=2_000,
        size=32,
        patch=4,
        shape=dict(width=64, depth=4, heads=4, hidden=128),
    ),
    rates={"Adam": (5e-4, 1e-3, 2e-3), "l1.1": (0.05, 0.1, 0.2)},
    horizon=7_680,  # eight epochs
)
