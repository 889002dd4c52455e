"""The papers' real-data studies: what they train on and what they measure.

Their numbers are in studies.toml.
"""

from collections.abc import Mapping, Sized
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from lib import files
from lib.data import images, texts
from lib.networks import TextTransformer, VisionTransformer, bert, measures
from lib.networks.measures import classification, correct, predict
from lib.networks.text import PADDING, Vocabulary, attended, summed_loss
from lib.training.batches import Batches, Bucketed
from lib.training.curves import Curve
from lib.training.loop import initialised
from lib.training.study import Problem, Study

# Test rows at the points of a run.
SHOWN_IMAGES = 2_000
SHOWN_TEXTS = 200
SHOWN_REVIEWS = 2_500
FIXED_TEXTS, FIXED = 256, 512  # training rows on which the clock reads the loss; others
CONTROL = (
    1_000  # training images whose loss, without augmentation, is measured at the points
)
PROBED_REVIEWS = 400  # test rows whose attention is measured
MAPPED = 32  # tokens of a review that is drawn
PLAIN = {"shift": None, "mask_diagonal": False, "learn_temperature": False}
NAMED = {"shift": "cardinal", "head_width": 64, "start": 1.0}
NAME = "the network of vit_for_small_dataset (shifts by one pixel, heads 64 wide)"
DROPOUT = 0.2
# Of a smoke test, also where the real set is at hand.
SMOKE_IMAGES = 500
SMOKE_TEXTS = (1500, 200)
SMOKE_REVIEWS = (2000, 500)
SMOKE = dict(seeds=2, evaluations=4, window=20, extensions=0, clock=5)


def _every(rows: Sized, count: int) -> slice:
    """Choose `count` rows, up to twice as many, spread over all.

    A set may be sorted by label.
    """
    return slice(None, None, max(1, len(rows) // count))


def _split(name: str, demo: bool, sizes: tuple[int, int]) -> list[texts.TextSet]:
    """Load training and test texts, of a `demo` samples of these `sizes`."""
    parts = [texts.load(name, split, demo=demo) for split in ("train", "test")]
    if demo:
        return [part.sample(size) for part, size in zip(parts, sizes, strict=True)]
    return parts


def pictures(
    batch: int,
    name: str,
    rows: int,
    grid: int = 4,
    held_out: int = 0,
    crops: bool = False,
    named: bool = False,
    demo: bool = False,
    **shape: Any,
) -> Problem:
    """Load a vision transformer and the first images of a set.

    Paper A's network is the one for small data sets. With `named` it is that of the
    code that the paper names. With `held_out` images, on which rates are judged, it is
    paper C's plain one.

    Parameters
    ----------
    batch : int
        Number of rows per batch.
    name : {"mnist", "cifar10"}
        The set of images.
    rows : int
        Number of training images.
    grid : int, default 4
        Images are cut into `grid` x `grid` patches.
    held_out : int, default 0
        Number of images behind those, which are held out. Then training sees crops.
    crops : bool, default False
        Whether training sees crops anyway.
    named : bool, default False
        Whether the network is that of the code that paper A names.
    demo : bool, default False
        Whether to leave the hub alone, and to test on fewer images.
    **shape : int
        Width, depth, heads and hidden of the network, in this order.

    Returns
    -------
    Problem
        Network and data.

    Raises
    ------
    ValueError
        If the set has fewer images.
    """
    whole = images.load(name, "train", rows=rows + held_out, demo=demo)
    if len(whole) < rows + held_out:
        words = f"{name} has {len(whole)} training images here, not {rows}"
        raise ValueError(words + f" and {held_out} to hold out" * bool(held_out))
    test = images.load(name, "test", rows=SMOKE_IMAGES if demo else None, demo=demo)
    train = whole[:rows]
    transform = whole[:rows].standardise()
    channels, size = train.images.shape[1:3]
    patch = size // grid
    how = {}
    kind = "ViT with SPT and LSA"
    if held_out:
        how = PLAIN
        kind = f"plain ViT on {size} pixels"
    elif named:
        how = NAMED
        kind = NAME
    data = (train.images, train.labels, batch)

    def look(part: images.ImageSet, name: str = "test"):
        return classification(part.images, part.labels, transform, name=name)

    def pixels(part: images.ImageSet) -> tuple:
        return part.images.flatten(1).numpy() / np.float32(255), part.labels.numpy()

    def evaluate(model: nn.Module, seed: int, tuning: bool) -> dict:
        metrics = look(whole[rows:] if tuning and held_out else test[:SHOWN_IMAGES])(
            model
        )
        if held_out:
            metrics |= look(train[:CONTROL], "control")(model)
            weights = measures.matrices(model)
            metrics["hoyer"] = float(
                np.median([*map(measures.hoyer, weights.values())])
            )
        return metrics

    def finish(model: nn.Module, seed: int) -> dict:
        ends = Curve.packed(
            correct(predict(model, test.images, transform), test.labels)
        )
        if held_out:  # paper C's study of weights: how their magnitudes are spread
            for when, network in (("start", initialised(build, seed)), ("last", model)):
                weights = measures.matrices(network).values()
                ends[f"{when}.histogram"] = measures.binned(weights)
        return ends

    def build():
        return VisionTransformer(size, patch, channels, train.classes, **shape, **how)

    about = {
        "data": images.identity(name, demo=demo),
        "rows": len(train),
        "test_rows": len(test),
    }
    about["network"] = f"{kind}, patch {patch}, {shape}" + ", crops and flips" * crops
    return Problem(
        build=build,
        batches=lambda seed, tuning: Batches(
            *data, seed, transform, bool(held_out or crops)
        ),
        evaluate=evaluate,
        finish=finish,
        about=about | ({"held_out": held_out} if held_out else {}),
        clock=look(train[:FIXED], "clock"),
        baselines={
            "logistic regression": lambda: measures.logistic(
                pixels(train), pixels(test)
            ),
            "3 nearest neighbours": lambda: measures.nearest(
                pixels(train), pixels(test)
            ),
        },
    )


def sentences(
    batch: int,
    name: str,
    length: int,
    layers: int = 0,
    rows: int = 0,
    characters: int = 0,
    demo: bool = False,
) -> Problem:
    """Load the lower layers of a pretrained BERT (paper A) and a sample of texts.

    Parameters
    ----------
    batch : int
        Number of rows per batch.
    name : {"multi_nli", "civil_comments", "imdb"}
        The set of texts.
    length : int
        Number of tokens to which training texts are cut; test texts are cut to 4
        `length`.
    layers : int, default 0
        Number of layers.
    rows : int, default 0
        The largest number of rows of the sample (`TextSet.balanced`).
    characters : int, default 0
        The largest length of a text in the sample.
    demo : bool, default False
        Whether to take a small network that is not pretrained, and a small sample; then
        `layers`, `rows` and `characters` do not matter.

    Returns
    -------
    Problem
        Network and data.
    """
    weights = bert.weights(demo=demo)
    train, test = _split(name, demo, SMOKE_TEXTS)
    classes = train.classes
    sample = {}
    rivals = {}
    if not demo:
        train, test = (part.balanced(rows, characters) for part in (train, test))
        sample = {
            "characters": characters,
            "content": [train.content(), test.content()],
        }
        columns = [(train.texts, test.texts)] + [(train.pairs, test.pairs)] * bool(
            train.pairs
        )
        truth = train.labels, test.labels
        rivals = {
            "bag of words": lambda: measures.bag_of_words(columns, truth, min_df=2)
        }
    train = bert.tokenise(weights, train, length, whole=demo)
    # For little padding
    fixed = train.take(train.lengths[:FIXED_TEXTS].argsort(stable=True))
    test = bert.tokenise(weights, test, 4 * length)  # every row; the longest are cut
    shown = test.take(torch.arange(len(test.labels))[_every(test.labels, SHOWN_TEXTS)])
    shown = shown.take(shown.lengths.argsort(stable=True))

    def build():
        if demo:
            return bert.small_classifier(weights, classes)
        return bert.classifier(weights, classes, layers)

    def look(part: Any, name: str = "test"):
        return classification(part.inputs, part.labels, bert.trim, 64, name)

    def finish(model: nn.Module, seed: int) -> dict:
        order = test.lengths.argsort(stable=True)
        hits = correct(
            predict(model, test.inputs[order], bert.trim, 64), test.labels[order]
        )
        return Curve.packed(hits[order.argsort()])

    about = {
        "data": texts.identity(name, demo=demo),
        "weights": weights.as_row(),
        "rows": len(train.labels),
        "test_rows": len(test.labels),
        "network": build().describe(),
        "tokens": length,
    }
    return Problem(
        build=build,
        batches=lambda seed, tuning: Bucketed(
            inputs=train.inputs,
            targets=train.labels,
            size=batch,
            seed=seed,
            transform=bert.trim,
        ),
        evaluate=lambda model, seed, tuning: look(shown)(model),
        finish=finish,
        about=about | sample,
        clock=look(fixed, "clock"),
        baselines=rivals,
    )


def reviews(
    batch: int,
    length: int,
    words: int,
    size: int,
    width: int,
    hidden: int,
    held_out: int,
    demo: bool = False,
) -> Problem:
    """Load paper C's encoder and all IMDb reviews.

    Parameters
    ----------
    batch : int
        Number of rows per batch.
    length : int
        Number of words to which a review is cut.
    words : int
        Size of the vocabulary: the commonest words are known.
    size : int
        Number of layers, and of heads per layer.
    width : int
        Width of a token.
    hidden : int
        Width of the MLP in a block.
    held_out : int
        Number of training reviews on which rates are judged; trials do not train on
        them.
    demo : bool, default False
        Whether to leave the hub alone, and to take samples.

    Returns
    -------
    Problem
        Network and data.
    """
    train, test = _split("imdb", demo, SMOKE_REVIEWS)
    known = Vocabulary.of(train.texts, words)
    parts = train.hold_out(held_out)
    sets = {
        key: (known.encode(part.texts, length), torch.from_numpy(part.labels.copy()))
        for key, part in zip(
            ("train", "test", "rest", "held"), (train, test, *parts), strict=True
        )
    }
    names = known.names
    (ids, labels) = sets["test"]

    def build():
        return TextTransformer(len(names), length, size, width, hidden, DROPOUT)

    def look(part: str, name: str, count: int):
        taken = _every(sets[part][1], count)
        return classification(
            *(values[taken] for values in sets[part]),  # ty: ignore[invalid-argument-type]
            size=500,
            name=name,
        )

    def words_alone():
        tokens, truth = zip(sets["train"], sets["test"], strict=True)

        def used(row: np.ndarray) -> list[int]:
            return [k for k in row.tolist() if k != PADDING]

        return measures.bag_of_words(
            [tokens], tuple(map(np.asarray, truth)), analyzer=used
        )

    def evaluate(model: nn.Module, seed: int, tuning: bool) -> dict:
        tested, count = ("held", held_out) if tuning else ("test", SHOWN_REVIEWS)
        on_training = look("rest" if tuning else "train", "training", SHOWN_REVIEWS)
        metrics = measures.sparsity(model, initialised(build, seed))
        return metrics | look(tested, "test", count)(model) | on_training(model)

    def closing(
        model: nn.Module,
    ) -> Mapping[
        str, float
    ]:  # on every test review: every tenth is too few to judge by
        return look("test", "every_test", len(labels))(model)

    def finish(model: nn.Module, seed: int) -> dict:
        taken = _every(labels, PROBED_REVIEWS)
        probe = ids[taken]
        shown = labels[taken]
        # the first favourable review and the first other one
        drawn = probe[[int(np.flatnonzero(shown == k)[0]) for k in (1, 0)]]
        ends = Curve.packed(correct(predict(model, ids, size=500), labels))
        ends["present"] = (probe != PADDING).sum(1).numpy()
        ends["words"] = np.array([[names[k] for k in row[:MAPPED]] for row in drawn])
        for when, network in (("start", initialised(build, seed)), ("last", model)):
            assert isinstance(network, TextTransformer)
            for part, layers in measures.by_part(network).items():
                ends[f"{when}.histogram.{part}"] = measures.binned(layers)
            # how many tokens the first one uses (reviews, layers), its maps (drawn,
            # layers, MAPPED)
            used = attended(network.attention(probe)).mean(-1)
            maps = network.attention(drawn)[..., :MAPPED].mean(2)
            ends[f"{when}.tokens_used"] = used.numpy().astype(np.float32)
            ends[f"{when}.maps"] = maps.numpy().astype(np.float32)
        return ends

    about = {
        "data": texts.identity("imdb", demo=demo),
        "rows": len(train),
        "held_out": held_out,
        "test_rows": len(test),
        "cut": float((sets["train"][0][:, -1] != PADDING).float().mean()),
        "network": f"encoder of size {size}, width {width}, MLP {hidden}, "
        f"dropout {DROPOUT}, {length} of {len(names)} words",
    }
    return Problem(
        build=build,
        batches=lambda seed, tuning: Batches(
            *sets["rest" if tuning else "train"], batch, seed
        ),
        evaluate=evaluate,
        finish=finish,
        about=about,
        clock=look("rest", "clock", FIXED),
        baselines={"bag of words": words_alone},
        loss=summed_loss,
        summed=True,
        closing=closing,
    )


PROBLEMS = {kind.__name__: kind for kind in (pictures, sentences, reviews)}
TABLES = files.read_table(Path(__file__).with_suffix(".toml"))


def _study(name: str, row: dict) -> Study:
    """Build the study of a table of studies.toml."""
    return Study(name, PROBLEMS[row.pop("problem")], **row)


# Smoke tests in seconds, on stand-in data: they say nothing about the papers' claims.
DEMO = {name: _study(name, SMOKE | row) for name, row in TABLES.pop("demo").items()}
STUDIES = {name: _study(name, row) for name, row in TABLES.items()}
STUDIES["digits"] = replace(DEMO["mnist"], name="digits")  # needs no data
