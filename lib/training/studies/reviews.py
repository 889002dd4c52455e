"""Paper C's IMDb experiments as one study: accuracy, sparsity and attention from the same runs."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import nn

from lib.data import texts
from lib.networks import TextTransformer, vocabulary
from lib.networks.text import attended, reviews_judge, summed_loss
from lib.networks.weight_statistics import hoyer, matrices, share_above
from lib.training import loop
from lib.training.batches import Batches
from lib.training.studies.vision import EDGES
from lib.training.study import Problem, Study

PARTS = {"K": "key", "Q": "query", "V": "value"}
LEVELS = (0.5, 0.9)  # quantiles of a part's magnitudes at the start that serve as thresholds
PAPERS_THRESHOLD = 0.06
SHOWN = 2_500  # test and training reviews at the points of a run, spread over the set
PROBED = 400  # test reviews whose attention is measured
MAPPED = 32  # tokens of a review that is drawn


def every(rows: int, count: int) -> slice:
    """About `count` of `rows` rows, spread over them, since a set may be sorted by label."""
    return slice(None, None, max(1, rows // count))


def parts(model: nn.Module) -> dict[str, list[np.ndarray]]:
    """The matrices of K, Q and V, one a layer."""
    found = matrices(model)
    return {
        part: [W.copy() for name, W in found.items() if f".{word}." in name]
        for part, word in PARTS.items()
    }


def sparsity(start: dict[str, list[np.ndarray]]) -> Callable[[nn.Module], dict[str, float]]:
    """Shares above thresholds, those of the weights `start` and the paper's, and the Hoyer index,
    for each part.
    """
    limits = {
        part: np.quantile(np.abs(np.concatenate([W.ravel() for W in found])), LEVELS)
        for part, found in start.items()
    }

    def measure(model: nn.Module) -> dict[str, float]:
        row = {}
        for part, found in parts(model).items():
            row[f"hoyer.{part}"] = float(np.mean([hoyer(W) for W in found]))
            row[f"above_006.{part}"] = share_above(found, PAPERS_THRESHOLD)
            for level, limit in zip(LEVELS, limits[part], strict=True):
                row[f"above_{100 * level:.0f}.{part}"] = share_above(found, limit)
        return row

    return measure


def histograms(model: nn.Module, when: str) -> dict[str, np.ndarray]:
    """How many entries of each part fall into each bin of `EDGES`."""
    return {
        f"{when}.histogram.{part}": sum(
            np.histogram(np.clip(np.abs(W), EDGES[0], EDGES[-1]), EDGES)[0] for W in found
        )
        for part, found in parts(model).items()
    }


def attention(model: nn.Module, ids: torch.Tensor, drawn: list[int], when: str) -> dict:
    """Tokens that the first token uses, (reviews, layers), and the maps (drawn, layers, `MAPPED`),
    heads averaged.
    """
    weights = model.attention(ids)  # (reviews, layers, heads, T)
    maps = model.attention(ids[drawn])[..., :MAPPED].mean(2)
    return {
        f"{when}.tokens_used": attended(weights).mean(-1).numpy().astype(np.float32),
        f"{when}.maps": maps.numpy().astype(np.float32),
    }


def reviews(
    length: int,
    words: int,
    size: int,
    width: int,
    hidden: int,
    batch: int,
    held: int,
    demo: bool = False,
) -> Problem:
    """The encoder of `size` layers and heads on all IMDb reviews, cut to `length` words."""
    train, test = (texts.load("imdb", split, demo=demo) for split in ("train", "test"))
    if demo:  # a smoke test, also where the real set is at hand
        train, test = train.sample(2000), test.sample(500)
    rest, held_out = train.hold_out(held)
    known = vocabulary.choose("words", train.texts, words)
    sets = {"train": train, "test": test, "rest": rest, "held": held_out}
    ids = {key: known.encode(part.texts, length).ids for key, part in sets.items()}
    labels = {key: torch.from_numpy(part.labels.copy()) for key, part in sets.items()}

    def build() -> nn.Module:
        return TextTransformer(len(known), length, size, width, hidden, 0.2)

    def judge(key: str, name: str, rows: int) -> Callable:
        taken = every(len(labels[key]), rows)
        found = reviews_judge(ids[key][taken], labels[key][taken])
        return lambda m: {f"{name}_{k.removeprefix('test_')}": v for k, v in found(m).items()}

    judges = {
        True: (judge("held", "test", held), judge("rest", "training", SHOWN)),
        False: (judge("test", "test", SHOWN), judge("train", "training", SHOWN)),
    }
    probe = ids["test"][every(len(test), PROBED)]
    shown = [int(np.flatnonzero(labels["test"][every(len(test), PROBED)] == k)[0]) for k in (1, 0)]

    def evaluate(seed: int, tuning: bool) -> Callable:
        weights = sparsity(parts(loop.initialised(build, seed)))
        first, second = judges[tuning]
        return lambda model: first(model) | second(model) | weights(model)

    def finish(seed: int) -> Callable:
        def end(model: nn.Module) -> dict:
            with torch.no_grad():
                logits = torch.cat([model(rows) for rows in ids["test"].split(500)])
            hits = ((logits > 0) == (labels["test"] > 0)).numpy()
            start = loop.initialised(build, seed)
            found = {
                "test_correct": np.packbits(hits),
                "test_rows": np.array(len(hits)),
                "training_accuracy": judge("train", "x", len(train))(model)["x_accuracy"],
                "present": (probe != vocabulary.PADDING).sum(1).numpy(),
            }
            if seed == 0:
                names = known.names
                found["words"] = np.array(
                    [[names[k] for k in row[:MAPPED]] for row in probe[shown]]
                )
            for when, network in (("start", start), ("last", model)):
                found |= histograms(network, when) | attention(network, probe, shown, when)
            return found

        return end

    return Problem(
        build=build,
        batches=lambda seed, tuning: Batches(
            ids["rest" if tuning else "train"], labels["rest" if tuning else "train"], batch, seed
        ),
        evaluate=evaluate,
        finish=finish,
        loss=summed_loss,
        about={
            "data": texts.identity("imdb", demo=demo),
            "rows": len(train),
            "held_out": held,
            "test_rows": len(test),
            "cut": float((ids["train"][:, -1] != vocabulary.PADDING).float().mean()),
            "network": f"encoder of size {size}, width {width}, MLP {hidden}, dropout 0.2,"
            f" {length} of {len(known)} words",
        },
    )


IMDB = Study(
    name="imdb",
    problem=partial(reviews, 128, 8_000, 2, 32, 128, batch=50, held=2_000),
    rates={
        "l1.1": (2e-3, 4e-3, 8e-3, 1.6e-2),
        "l2": (4e-3, 8e-3, 1.6e-2, 3.2e-2),
        "l3": (5e-4, 1e-3, 2e-3, 4e-3),
    },
    horizon=4_000,
    batch=50,
    window=200,
    targets=(0.6, 0.5, 0.4),
    stop=lambda found: found["training_accuracy"] >= 0.995,
    stop_words="training accuracy of 2,500 reviews at least 0.995",
    criterion="accuracy",
    evaluations=16,
    loss_rows=50,
)
