"""Paper C's IMDb experiments as one study: accuracy, sparsity and attention from the same runs."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import nn

from lib.data import texts
from lib.networks import TextTransformer, vocabulary
from lib.networks.text import attended, summed_loss
from lib.networks.weight_statistics import hoyer, matrices, share_above
from lib.training import baselines
from lib.training.batches import Batches
from lib.training.loop import initialised
from lib.training.measures import Evaluate, binned, classification, correctness, predict, right
from lib.training.study import Problem, Study

PARTS = {"K": "key", "Q": "query", "V": "value"}
LEVELS = (0.5, 0.9)  # quantiles of a part's magnitudes at the start that serve as thresholds
PAPERS_THRESHOLD = 0.06
SHOWN = 2_500  # test and training reviews at the points of a run, spread over the set
FIXED = 512  # training reviews on which the clock reads the loss
PROBED = 400  # test reviews whose attention is measured
MAPPED = 32  # tokens of a review that is drawn
DROPOUT = 0.2


def every(rows: int, count: int) -> slice:
    """About `count` of `rows` rows, spread over them, since a set may be sorted by label."""
    return slice(None, None, max(1, rows // count))


def parts(model: nn.Module) -> dict[str, list[np.ndarray]]:
    """The weight matrices (d, d) of K, Q and V, one a layer."""
    found = matrices(model).items()
    return {
        part: [W.copy() for name, W in found if f".{word}." in name] for part, word in PARTS.items()
    }


def sparsity(start: dict[str, list[np.ndarray]]) -> Evaluate:
    """A measure of the sparsity of each part K, Q, V: Hoyer index and shares above thresholds.

    The thresholds are the paper's, and the `LEVELS` quantiles of the magnitudes in `start`.
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


def at(when: str, model: nn.Module, ids: torch.Tensor, drawn: list[int]) -> dict[str, np.ndarray]:
    """Weights and attention of `model`, named by `when`.

    How many entries of each part fall into each bin (bins,); how many tokens the first token uses
    (reviews, layers); its attention maps on the `drawn` reviews, heads averaged (drawn, layers,
    `MAPPED`).
    """
    found = {f"{when}.histogram.{part}": binned(W) for part, W in parts(model).items()}
    weights = model.attention(ids)  # (reviews, layers, heads, T)
    maps = model.attention(ids[drawn])[..., :MAPPED].mean(2)
    found[f"{when}.tokens_used"] = attended(weights).mean(-1).numpy().astype(np.float32)
    return found | {f"{when}.maps": maps.numpy().astype(np.float32)}


def reviews(
    length: int, words: int, shape: Mapping[str, int], batch: int, held_out: int, demo: bool = False
) -> Problem:
    """The encoder of `shape` on all IMDb reviews, cut to `length` of the `words` commonest words.

    Rates are judged on `held_out` training reviews, which trials do not train on.
    """
    train, test = (texts.load("imdb", split, demo=demo) for split in ("train", "test"))
    if demo:  # a smoke test, also where the real set is at hand
        train, test = train.sample(2000), test.sample(500)
    known = vocabulary.Vocabulary.of(train.texts, words)
    sets = dict(zip(("rest", "held"), train.hold_out(held_out), strict=True))
    sets = {
        key: (known.encode(part.texts, length), torch.from_numpy(part.labels.copy()))
        for key, part in (sets | {"train": train, "test": test}).items()
    }
    names, (ids, labels) = known.names, sets["test"]

    def build() -> nn.Module:
        return TextTransformer(len(names), length, **shape, dropout=DROPOUT)

    def judge(part: str, name: str, rows: int) -> Evaluate:
        taken = every(len(sets[part][1]), rows)
        return classification(*(values[taken] for values in sets[part]), size=500, name=name)

    judges = {
        True: (judge("held", "test", held_out), judge("rest", "training", SHOWN)),
        False: (judge("test", "test", SHOWN), judge("train", "training", SHOWN)),
    }

    def evaluate(seed: int, tuning: bool) -> Evaluate:
        measures = (*judges[tuning], sparsity(parts(initialised(build, seed))))
        return lambda model: {k: v for measure in measures for k, v in measure(model).items()}

    def end(seed: int, model: nn.Module) -> dict:
        taken = every(len(labels), PROBED)
        probe, shown = ids[taken], labels[taken]
        # the first favourable review and the first other one
        drawn = [int(np.flatnonzero(shown == k)[0]) for k in (1, 0)]
        found = correctness(right(predict(model, ids, size=500), labels)) | {
            "training_accuracy": judge("train", "x", len(train))(model)["x_accuracy"],
            "present": (probe != vocabulary.PADDING).sum(1).numpy(),
        }
        if seed == 0:  # the reviews are those of every seed
            found["words"] = np.array([[names[k] for k in row[:MAPPED]] for row in probe[drawn]])
        start = initialised(build, seed)
        return found | at("start", start, probe, drawn) | at("last", model, probe, drawn)

    size, width, hidden = (shape[name] for name in ("size", "width", "hidden"))
    return Problem(
        build=build,
        batches=lambda seed, tuning: Batches(*sets["rest" if tuning else "train"], batch, seed),
        evaluate=evaluate,
        finish=lambda seed: partial(end, seed),
        loss=summed_loss,
        about={
            "data": texts.identity("imdb", demo=demo),
            "rows": len(train),
            "held_out": held_out,
            "test_rows": len(test),
            "cut": float((sets["train"][0][:, -1] != vocabulary.PADDING).float().mean()),
            "network": f"encoder of size {size}, width {width}, MLP {hidden}, dropout {DROPOUT},"
            f" {length} of {len(names)} words",
        },
        clock=judge("rest", "clock", FIXED),
        baselines=baselines.of_tokens(sets["train"], sets["test"], len(names)),
    )


IMDB = Study(
    name="imdb",
    problem=reviews,
    options=dict(length=128, words=8_000, shape=dict(size=2, width=32, hidden=128), held_out=2_000),
    rates={
        "l1.1": (2e-3, 4e-3, 8e-3, 1.6e-2),
        "l2": (4e-3, 8e-3, 1.6e-2, 3.2e-2),
        "l3": (5e-4, 1e-3, 2e-3, 4e-3),
    },
    horizon=4_000,
    batch=50,
    window=200,
    targets=(0.6, 0.5, 0.4),
    stop_by="training_accuracy",
    stop_at=0.995,
    criterion="accuracy",
    evaluations=16,
    loss_rows=50,
)
IMDB_256 = replace(
    IMDB,
    name="imdb_256",
    options=dict(length=256, words=8_000, shape=dict(size=2, width=32, hidden=128), held_out=2_000),
    seeds=3,
    first_seed=20,
    rates={"l1.1": (2e-3, 4e-3, 8e-3), "l2": (4e-3, 8e-3, 1.6e-2), "l3": (5e-4, 1e-3, 2e-3)},
    clock=40,
    extensions=3,
    horizon=9_600,  # 19 epochs
    evaluations=24,
)
