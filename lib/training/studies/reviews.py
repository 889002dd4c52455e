"""Paper C's IMDb experiments as one study: accuracy, sparsity and attention from the same runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import nn

from lib.data import texts
from lib.networks import TextTransformer, vocabulary
from lib.networks.text import attended, summed_loss
from lib.networks.weight_statistics import hoyer, matrices, share_above
from lib.training import loop
from lib.training.batches import Batches
from lib.training.losses import Evaluate, classification
from lib.training.studies.measures import binned, correctness, renamed
from lib.training.study import Study, StudyProblem

PARTS = {"K": "key", "Q": "query", "V": "value"}
LEVELS = (0.5, 0.9)  # quantiles of a part's magnitudes at the start that serve as thresholds
PAPERS_THRESHOLD = 0.06
SHOWN = 2_500  # test and training reviews at the points of a run, spread over the set
PROBED = 400  # test reviews whose attention is measured
MAPPED = 32  # tokens of a review that is drawn
DROPOUT = 0.2


def every(rows: int, count: int) -> slice:
    """About `count` of `rows` rows, spread over them, since a set may be sorted by label."""
    return slice(None, None, max(1, rows // count))


def parts(model: nn.Module) -> dict[str, list[np.ndarray]]:
    """The weight matrices (d, d) of K, Q and V, one a layer."""
    found = matrices(model)
    return {
        part: [W.copy() for name, W in found.items() if f".{word}." in name]
        for part, word in PARTS.items()
    }


def sparsity(start: dict[str, list[np.ndarray]]) -> Callable[[nn.Module], dict[str, float]]:
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


def histograms(model: nn.Module, when: str) -> dict[str, np.ndarray]:
    """How many entries of each part fall into each bin of `EDGES`, (bins,)."""
    return {f"{when}.histogram.{part}": binned(found) for part, found in parts(model).items()}


def attention(model: nn.Module, ids: torch.Tensor, drawn: list[int], when: str) -> dict:
    """How many tokens the first token uses, and some of its attention maps, heads averaged.

    The first is (reviews, layers); the maps are (drawn, layers, `MAPPED`).
    """
    weights = model.attention(ids)  # (reviews, layers, heads, T)
    maps = model.attention(ids[drawn])[..., :MAPPED].mean(2)
    return {
        f"{when}.tokens_used": attended(weights).mean(-1).numpy().astype(np.float32),
        f"{when}.maps": maps.numpy().astype(np.float32),
    }


@dataclass(frozen=True)
class Reviews:
    """IMDb as word numbers: `ids[part]` (reviews, T) and `labels[part]` (reviews,).

    The parts are "train" and "test"; "train" is split into "rest" and "held". `words` are the
    vocabulary's, in the order of their numbers.
    """

    words: list[str]
    ids: Mapping[str, torch.Tensor]
    labels: Mapping[str, torch.Tensor]

    @classmethod
    def load(cls, length: int, words: int, held: int, demo: bool) -> "Reviews":
        """All reviews, cut to `length` of the `words` most frequent words, `held` held out."""
        train, test = (texts.load("imdb", split, demo=demo) for split in ("train", "test"))
        if demo:  # a smoke test, also where the real set is at hand
            train, test = train.sample(2000), test.sample(500)
        rest, held_out = train.hold_out(held)
        known = vocabulary.Vocabulary.of(train.texts, words)
        sets = {"train": train, "test": test, "rest": rest, "held": held_out}
        return cls(
            words=known.names,
            ids={key: known.encode(part.texts, length) for key, part in sets.items()},
            labels={key: torch.from_numpy(part.labels.copy()) for key, part in sets.items()},
        )

    def judge(self, part: str, name: str, rows: int) -> Evaluate:
        """Loss and accuracy on about `rows` reviews of `part`, as "<name>_loss" and so on."""
        taken = every(len(self.labels[part]), rows)
        ids, labels = self.ids[part][taken], self.labels[part][taken]
        found = classification(ids, labels, size=500, binary=True)
        return lambda model: renamed(found(model), name)

    def probe(self) -> tuple[torch.Tensor, list[int]]:
        """The test reviews whose attention is measured (reviews, T), and the two that are drawn.

        Those are the first favourable one and the first other one, as row numbers.
        """
        taken = every(len(self.labels["test"]), PROBED)
        labels = self.labels["test"][taken]
        return self.ids["test"][taken], [int(np.flatnonzero(labels == k)[0]) for k in (1, 0)]

    @torch.no_grad()
    def correct(self, model: nn.Module) -> dict[str, np.ndarray]:
        """Which test reviews are classified correctly, as `measures.correctness` packs them."""
        logits = torch.cat([model(rows) for rows in self.ids["test"].split(500)])
        return correctness((logits > 0) == (self.labels["test"] > 0))

    def cut(self) -> float:
        """The share of training reviews that fill the whole length."""
        return float((self.ids["train"][:, -1] != vocabulary.PADDING).float().mean())


def reviews(
    length: int, words: int, shape: Mapping[str, int], batch: int, held: int, demo: bool = False
) -> StudyProblem:
    """The encoder of `shape` on all IMDb reviews, cut to `length` words.

    Rates are judged on `held` training reviews, which trials do not train on.
    """
    data = Reviews.load(length, words, held, demo)

    def build() -> nn.Module:
        return TextTransformer(len(data.words), length, **shape, dropout=DROPOUT)

    judges = {
        True: (data.judge("held", "test", held), data.judge("rest", "training", SHOWN)),
        False: (data.judge("test", "test", SHOWN), data.judge("train", "training", SHOWN)),
    }

    def evaluate(seed: int, tuning: bool) -> Evaluate:
        weights = sparsity(parts(loop.initialised(build, seed)))
        first, second = judges[tuning]
        return lambda model: first(model) | second(model) | weights(model)

    def batches(seed: int, tuning: bool) -> Batches:
        part = "rest" if tuning else "train"
        return Batches(data.ids[part], data.labels[part], batch, seed)

    size, width, hidden = (shape[name] for name in ("size", "width", "hidden"))
    return StudyProblem(
        build=build,
        batches=batches,
        evaluate=evaluate,
        finish=partial(_at_end, data, build),
        loss=summed_loss,
        about={
            "data": texts.identity("imdb", demo=demo),
            "rows": len(data.labels["train"]),
            "held_out": held,
            "test_rows": len(data.labels["test"]),
            "cut": data.cut(),
            "network": f"encoder of size {size}, width {width}, MLP {hidden}, dropout {DROPOUT},"
            f" {length} of {len(data.words)} words",
        },
    )


def _at_end(data: Reviews, build: Callable[[], nn.Module], seed: int) -> Callable:
    """What is measured of a run of `seed` at its end, and of its start beside it."""
    probe, drawn = data.probe()

    def end(model: nn.Module) -> dict:
        whole = data.judge("train", "x", len(data.labels["train"]))
        found = data.correct(model) | {
            "training_accuracy": whole(model)["x_accuracy"],
            "present": (probe != vocabulary.PADDING).sum(1).numpy(),
        }
        if seed == 0:  # the reviews are those of every seed
            shown = [[data.words[k] for k in row[:MAPPED]] for row in probe[drawn]]
            found["words"] = np.array(shown)
        for when, network in (("start", loop.initialised(build, seed)), ("last", model)):
            found |= histograms(network, when) | attention(network, probe, drawn, when)
        return found

    return end


IMDB = Study(
    name="imdb",
    problem=partial(reviews, 128, 8_000, dict(size=2, width=32, hidden=128), 50, held=2_000),
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
