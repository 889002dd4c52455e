"""The networks and data of the papers' real-data studies, and their measurements."""

from collections.abc import Callable, Mapping, Sized
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lib import seeds
from lib.data import images, texts
from lib.networks import TextTransformer, VisionTransformer, bert, measures
from lib.networks.measures import classification, correct, predict
from lib.networks.text import PADDING, Vocabulary, attended, summed_loss
from lib.training.batches import Batches, Bucketed
from lib.training.curves import Curve
from lib.training.loop import initialised
from lib.training.problem import Problem

# The number of test rows that an evaluation uses, for each kind of data.
SHOWN_IMAGES = 2_000
SHOWN_TEXTS = 200
SHOWN_REVIEWS = 2_500
# The number of training rows on which the clock reads the loss: for texts, and for
# other data.
FIXED_TEXTS = 256
FIXED = 512
# The number of training images on which evaluations measure the loss, without
# augmentation.
CONTROL = 1_000
PROBED_REVIEWS = 400  # attention is measured on at least this many test reviews
MAPPED = 32  # tokens of a review whose attention is drawn
DROPOUT = 0.2
# The sizes of a smoke test, even if the real set is available.
SMOKE_IMAGES = 500
SMOKE_TEXTS = (1500, 200)
SMOKE_REVIEWS = (2000, 500)
# Three vision transformers. For each, its name in the record and its options are given.
SMALL_DATA_VIT = ("ViT with SPT and LSA", {})
NAMED_VIT = (
    "the network of vit_for_small_dataset (shifts by one pixel, heads 64 wide)",
    {"shift": "cardinal", "head_width": 64, "start": 1.0},
)
PLAIN_VIT = (
    "plain ViT on {size} pixels",
    {"shift": None, "mask_diagonal": False, "learn_temperature": False},
)


def spread_over(rows: Sized, count: int) -> slice:
    """Choose at least `count` rows, but fewer than twice as many, spread over all rows.

    The rows are spread because a data set may be sorted by label.

    Parameters
    ----------
    rows : sized
        The rows.
    count : int
        The smallest number of rows to choose, 1 or more. If there are fewer rows, all
        are chosen.

    Returns
    -------
    slice
        Every k-th row from the first one on.

    Examples
    --------
    >>> from lib.training.problems import spread_over
    >>> list(range(10))[spread_over(range(10), 4)]
    [0, 2, 4, 6, 8]
    """
    return slice(None, None, max(1, len(rows) // count))


def _check_sizes(**sizes: int) -> None:
    """Raise ValueError unless every size is a whole number of at least 1."""
    for name, size in sizes.items():
        seeds.whole_number(name, size, 1)


def load_split(
    name: str, demo: bool, sizes: tuple[int, int]
) -> tuple[texts.TextSet, texts.TextSet]:
    """Load the training and the test texts, or random samples of them in a demo.

    Parameters
    ----------
    name : str
        The name of the data set.
    demo : bool
        Whether to draw samples, and to load texts without the hub.
    sizes : tuple of (int, int)
        The numbers of training texts and of test texts in the samples. Only a demo uses
        them.

    Returns
    -------
    tuple of (TextSet, TextSet)
        The training and the test texts.
    """
    train = texts.load(name, "train", demo=demo)
    test = texts.load(name, "test", demo=demo)
    if demo:
        return train.sample(sizes[0]), test.sample(sizes[1])
    return train, test


class Pictures(Problem):
    """A vision transformer and the first images of a data set.

    By default, the network is the one for small data sets that paper A describes. With
    `named`, it is the network in the code that paper A names. If images are held out,
    rates are judged on these images, and the network is the plain one of paper C,
    whatever `named` is.

    Parameters
    ----------
    batch : int
        Number of rows per batch.
    name : {"mnist", "cifar10"}
        The name of the data set.
    rows : int
        Number of training images.
    grid : int, default 4
        Images are cut into `grid` x `grid` patches. `grid` must divide the number of
        pixels of a side.
    held_out : int, default 0
        Number of images, following the training images, that are held out. If there are
        any, training uses crops.
    crops : bool, default False
        Whether training uses crops even without held-out images.
    named : bool, default False
        Whether to use the network in the code that paper A names.
    demo : bool, default False
        Whether to load images without the hub, and to test on fewer images.
    **shape : int
        The options width, depth, heads and hidden of the network, in this order, since
        the order is kept in the record of the network.

    Raises
    ------
    ValueError
        If the data set has too few images, if `grid` does not divide the number of
        pixels of a side, or if a number except `held_out` is below 1.
    """

    def __init__(
        self,
        *,
        batch: int,
        name: str,
        rows: int,
        grid: int = 4,
        held_out: int = 0,
        crops: bool = False,
        named: bool = False,
        demo: bool = False,
        **shape: Any,
    ) -> None:
        _check_sizes(rows=rows, grid=grid, **shape)
        self.batch = batch
        self.held_out = held_out
        self.crops = bool(held_out or crops)

        # The data.
        self.whole = images.load(name, "train", rows=rows + held_out, demo=demo)
        if len(self.whole) < rows + held_out:
            words = f"{name} has {len(self.whole)} training images here, not {rows}"
            if held_out:
                words += f" and {held_out} to hold out"
            raise ValueError(words)
        shown = SMOKE_IMAGES if demo else None
        self.test = images.load(name, "test", rows=shown, demo=demo)
        self.train = self.whole[:rows]
        self.rest = self.whole[rows:]
        self.transform = self.train.standardise()

        # The network.
        self.channels, self.size = self.train.images.shape[1:3]
        if self.size % grid:
            raise ValueError(
                f"grid must divide the {self.size} pixels of a side, got {grid}"
            )
        self.patch = self.size // grid
        kind, options = SMALL_DATA_VIT
        if held_out:
            kind, options = PLAIN_VIT
        elif named:
            kind, options = NAMED_VIT
        self.options: dict[str, Any] = {**shape, **options}

        self.about = {
            "data": images.identity(name, demo=demo),
            "rows": len(self.train),
            "test_rows": len(self.test),
            "network": f"{kind.format(size=self.size)}, patch {self.patch}, {shape}",
        }
        if crops:
            self.about["network"] += ", crops and flips"
        if held_out:
            self.about["held_out"] = held_out

    def build(self) -> nn.Module:
        """Build the vision transformer."""
        return VisionTransformer(
            self.size, self.patch, self.channels, self.train.classes, **self.options
        )

    def batches(self, seed: int, tuning: bool) -> Batches:
        """Return batches of the training images."""
        return Batches(
            inputs=self.train.images,
            targets=self.train.labels,
            size=self.batch,
            seed=seed,
            transform=self.transform,
            crops=self.crops,
        )

    def clock(self, model: nn.Module) -> Mapping[str, float]:
        """Measure loss and accuracy on the first `FIXED` training images.

        These images are not cropped. Returns "clock_loss" and "clock_accuracy".
        """
        return self._classify(model, self.train[:FIXED], "clock")

    def evaluate(
        self, model: nn.Module, seed: int, tuning: bool
    ) -> Mapping[str, float]:
        """Measure loss and accuracy on test images, or on the images that are held out.

        Returns "test_loss" and "test_accuracy" on the first `SHOWN_IMAGES` test images.
        If images are held out, there are also "control_loss" and "control_accuracy" on
        the first `CONTROL` training images, and "hoyer", the median Hoyer index of the
        weight matrices. While a rate is being tried, the held-out images then replace
        the test images.
        """
        if not self.held_out:
            return self._classify(model, self.test[:SHOWN_IMAGES], "test")
        judging = self.rest if tuning else self.test[:SHOWN_IMAGES]
        metrics = self._classify(model, judging, "test")
        metrics |= self._classify(model, self.train[:CONTROL], "control")
        weights = measures.matrices(model).values()
        metrics["hoyer"] = float(np.median([measures.hoyer(W) for W in weights]))
        return metrics

    def finish(self, model: nn.Module, seed: int) -> Mapping[str, np.ndarray]:
        """Return hits on the test images and, for paper C, histograms of weights.

        The histograms "start.histogram" and "last.histogram" (bins,) count the weights
        at the start and at the end of training. They are returned only if images are
        held out.
        """
        logits = predict(model, self.test.images, self.transform)
        ends = Curve.packed(correct(logits, self.test.labels))
        if self.held_out:
            start = initialised(self.build, seed)
            for when, network in (("start", start), ("last", model)):
                weights = measures.matrices(network).values()
                ends[f"{when}.histogram"] = measures.binned(weights)
        return ends

    def baselines(self) -> Mapping[str, Callable[[], np.ndarray]]:
        """Return two plain classifiers that work on the pixels."""

        def pixels(part: images.ImageSet) -> tuple[np.ndarray, np.ndarray]:
            scaled = part.images.flatten(1).numpy() / np.float32(255)
            return scaled, part.labels.numpy()

        return {
            "logistic regression": lambda: measures.logistic(
                pixels(self.train), pixels(self.test)
            ),
            "3 nearest neighbours": lambda: measures.nearest(
                pixels(self.train), pixels(self.test)
            ),
        }

    def _classify(
        self, model: nn.Module, part: images.ImageSet, name: str
    ) -> dict[str, float]:
        """Measure loss and accuracy on images."""
        measure = classification(part.images, part.labels, self.transform, name=name)
        return dict(measure(model))


class Sentences(Problem):
    """The lower layers of a pretrained BERT (paper A) and a sample of texts.

    Parameters
    ----------
    batch : int
        Number of rows per batch.
    name : {"multi_nli", "civil_comments", "imdb"}
        The name of the data set.
    length : int
        Number of tokens to which training texts are cut, between 3 and 128. A demo
        leaves longer training texts out instead. Test texts are cut to 4 `length`
        tokens.
    layers : int, default 0
        Number of layers of the network, 1 or more except in a demo.
    rows : int, default 0
        The maximum number of rows in each of the two samples, training and test
        (see `TextSet.balanced`).
    characters : int, default 0
        The largest number of characters that a text, or a pair of texts, in a sample
        may have.
    demo : bool, default False
        Whether to use a small network that is not pretrained, and a small sample. Then
        `layers`, `rows` and `characters` are ignored.

    Raises
    ------
    ValueError
        If one of the numbers does not fit the texts or the weights, or if the weights
        or the texts are damaged.
    FileNotFoundError
        If there are no weights.
    """

    def __init__(
        self,
        *,
        batch: int,
        name: str,
        length: int,
        layers: int = 0,
        rows: int = 0,
        characters: int = 0,
        demo: bool = False,
    ) -> None:
        if not demo:
            _check_sizes(layers=layers, rows=rows, characters=characters)
        self.batch = batch
        self.demo = demo
        self.layers = layers
        self.weights = bert.weights(demo=demo)

        # The texts.
        train, test = load_split(name, demo, SMOKE_TEXTS)
        self.classes = train.classes
        if not demo:
            train = train.balanced(rows, characters)
            test = test.balanced(rows, characters)
        self.texts = (train, test)

        # The tokens of the texts. Rows of similar lengths are placed together, so that
        # little padding is needed.
        self.train = bert.tokenise(self.weights, train, length, whole=demo)
        fixed = self.train.lengths[:FIXED_TEXTS].argsort(stable=True)
        self.fixed = self.train.take(fixed)
        # Every test row is kept, and the longest rows are cut.
        self.test = bert.tokenise(self.weights, test, 4 * length)
        labels = self.test.labels
        chosen = torch.arange(len(labels))[spread_over(labels, SHOWN_TEXTS)]
        shown = self.test.take(chosen)
        self.shown = shown.take(shown.lengths.argsort(stable=True))

        self.about = {
            "data": texts.identity(name, demo=demo),
            "weights": self.weights.as_row(),
            "rows": len(self.train.labels),
            "test_rows": len(self.test.labels),
            "network": self.build().describe(),
            "tokens": length,
        }
        if not demo:
            self.about["characters"] = characters
            self.about["content"] = [train.content(), test.content()]

    def build(self) -> Any:
        """Build the network, which is pretrained except in a demo."""
        if self.demo:
            return bert.small_classifier(self.weights, self.classes)
        return bert.classifier(self.weights, self.classes, self.layers)

    def batches(self, seed: int, tuning: bool) -> Batches:
        """Return batches of training texts of similar lengths."""
        return Bucketed(
            inputs=self.train.inputs,
            targets=self.train.labels,
            size=self.batch,
            seed=seed,
            transform=bert.trim,
        )

    def clock(self, model: nn.Module) -> Mapping[str, float]:
        """Measure loss and accuracy on the first `FIXED_TEXTS` training texts."""
        return self._classify(model, self.fixed, "clock")

    def evaluate(
        self, model: nn.Module, seed: int, tuning: bool
    ) -> Mapping[str, float]:
        """Measure loss and accuracy on at least `SHOWN_TEXTS` of the test texts.

        A trial is measured on the same texts, since no rows are held out.
        """
        return self._classify(model, self.shown, "test")

    def finish(self, model: nn.Module, seed: int) -> Mapping[str, np.ndarray]:
        """Return whether each test text is classified correctly, packed as hits."""
        order = self.test.lengths.argsort(stable=True)
        logits = predict(model, self.test.inputs[order], bert.trim, 64)
        hits = correct(logits, self.test.labels[order])
        return Curve.packed(hits[order.argsort()])

    def baselines(self) -> Mapping[str, Callable[[], np.ndarray]]:
        """Return a plain classifier that works on the words; a demo has none."""
        if self.demo:
            return {}
        train, test = self.texts
        columns = [(train.texts, test.texts)]
        if train.pairs:
            columns.append((train.pairs, test.pairs))
        labels = (train.labels, test.labels)
        return {
            "bag of words": partial(measures.bag_of_words, columns, labels, min_df=2)
        }

    def _classify(self, model: nn.Module, part: Any, name: str) -> Mapping[str, float]:
        """Measure loss and accuracy on texts."""
        return classification(part.inputs, part.labels, bert.trim, 64, name)(model)


class Reviews(Problem):
    """The encoder of paper C, and all IMDb reviews.

    Parameters
    ----------
    batch : int
        Number of rows per batch.
    length : int
        Number of tokens to which a review is cut. These are [CLS] and the first words
        of the review.
    words : int
        Size of the vocabulary, which consists of three special ids and the most common
        words.
    size : int
        Number of layers, and of heads per layer.
    width : int
        Width of a token.
    hidden : int
        Width of the MLP in a block.
    held_out : int
        Number of training reviews on which rates are judged. Trials are not trained on
        these reviews.
    demo : bool, default False
        Whether to load reviews without the hub, and to draw samples of them.

    Raises
    ------
    ValueError
        If a number is below 1, or if `held_out` is not below the number of reviews.
    """

    summed = True

    def __init__(
        self,
        *,
        batch: int,
        length: int,
        words: int,
        size: int,
        width: int,
        hidden: int,
        held_out: int,
        demo: bool = False,
    ) -> None:
        _check_sizes(length=length, words=words, size=size, width=width, hidden=hidden)
        self.batch = batch
        self.held_out = held_out
        self.length = length
        self.size = size
        self.width = width
        self.hidden = hidden

        # All training reviews, all test reviews, and the two parts of the training
        # reviews.
        train, test = load_split("imdb", demo, SMOKE_REVIEWS)
        known = Vocabulary.of(train.texts, words)
        rest, held = train.hold_out(held_out)
        parts = {"train": train, "test": test, "rest": rest, "held": held}
        self.sets: dict[str, tuple[Tensor, Tensor]] = {}
        for name, part in parts.items():
            labels = torch.from_numpy(part.labels.copy())
            self.sets[name] = (known.encode(part.texts, length), labels)
        self.names = known.names

        last_words = self.sets["train"][0][:, -1]
        self.about = {
            "data": texts.identity("imdb", demo=demo),
            "rows": len(train),
            "held_out": held_out,
            "test_rows": len(test),
            "cut": float((last_words != PADDING).float().mean()),
            "network": f"encoder of size {size}, width {width}, MLP {hidden}, "
            f"dropout {DROPOUT}, {length} of {len(self.names)} words",
        }

    def build(self) -> TextTransformer:
        """Build the encoder."""
        return TextTransformer(
            len(self.names), self.length, self.size, self.width, self.hidden, DROPOUT
        )

    def batches(self, seed: int, tuning: bool) -> Batches:
        """Return batches of the training reviews, without held-out ones in a trial."""
        inputs, labels = self.sets["rest" if tuning else "train"]
        return Batches(inputs, labels, self.batch, seed)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Compute the loss summed over the batch, as the paper does."""
        return summed_loss(model, batch)

    def clock(self, model: nn.Module) -> Mapping[str, float]:
        """Measure loss and accuracy on at least `FIXED` reviews.

        Both trials and judged runs are trained on these reviews.
        """
        return self._classify(model, "rest", FIXED, "clock")

    def evaluate(
        self, model: nn.Module, seed: int, tuning: bool
    ) -> Mapping[str, float]:
        """Measure sparsity, and the loss and accuracy on test and on training reviews.

        Returns the metrics of `measures.sparsity`, followed by "test_loss",
        "test_accuracy", "training_loss" and "training_accuracy". While a rate is being
        tried, the held-out reviews replace the test reviews, and the training reviews
        do not include them.
        """
        metrics = measures.sparsity(model, initialised(self.build, seed))
        if tuning:
            judged = self._classify(model, "held", self.held_out, "test")
            trained = self._classify(model, "rest", SHOWN_REVIEWS, "training")
        else:
            judged = self._classify(model, "test", SHOWN_REVIEWS, "test")
            trained = self._classify(model, "train", SHOWN_REVIEWS, "training")
        return {**metrics, **judged, **trained}

    def closing(self, model: nn.Module) -> Mapping[str, float]:
        """Measure loss and accuracy on every test review.

        All other evaluations use only every tenth test review of the full data set,
        which is too few for a comparison.
        """
        rows = len(self.sets["test"][1])
        return self._classify(model, "test", rows, "every_test")

    def finish(self, model: nn.Module, seed: int) -> Mapping[str, np.ndarray]:
        """Return the hits on test reviews, and measures of weights and attention.

        The arrays are the hits on all test reviews; "present" (reviews,), the number of
        tokens, including [CLS], in each of at least `PROBED_REVIEWS` test reviews; and
        "words" (2, m), the first m = `MAPPED` or fewer tokens of the two reviews whose
        attention is drawn. For the start and for the end of training, with the prefix
        "start." or "last.", there are also "histogram.K", "histogram.Q" and
        "histogram.V" (bins,), "tokens_used" (reviews, layers) and "maps" (2, layers,
        m). "tokens_used" and "maps" are means over heads.
        """
        ids, labels = self.sets["test"]
        ends = Curve.packed(correct(predict(model, ids, size=500), labels))

        # The reviews whose attention is measured. The attention is drawn for two of
        # these reviews: the first favourable and the first unfavourable one.
        taken = spread_over(labels, PROBED_REVIEWS)
        probe = ids[taken]
        shown = labels[taken]
        firsts = [int(np.flatnonzero(shown == label)[0]) for label in (1, 0)]
        drawn = probe[firsts]
        words = [[self.names[k] for k in row[:MAPPED]] for row in drawn]
        ends["present"] = (probe != PADDING).sum(1).numpy()
        ends["words"] = np.array(words)

        start = initialised(self.build, seed)
        for when, network in (("start", start), ("last", model)):
            assert isinstance(network, TextTransformer)
            for part, layers in measures.by_part(network).items():
                ends[f"{when}.histogram.{part}"] = measures.binned(layers)
            # The number of tokens that the first token uses, (reviews, layers), and the
            # attention maps of the first token, (drawn, layers, m).
            used = attended(network.attention(probe)).mean(-1)
            maps = network.attention(drawn)[..., :MAPPED].mean(2)
            ends[f"{when}.tokens_used"] = used.numpy().astype(np.float32)
            ends[f"{when}.maps"] = maps.numpy().astype(np.float32)
        return ends

    def baselines(self) -> Mapping[str, Callable[[], np.ndarray]]:
        """Return a plain classifier that works on the words that the network reads."""
        return {"bag of words": self._bag_of_words}

    def _bag_of_words(self) -> np.ndarray:
        """Return which test reviews (test rows,) a bag of words classifies correctly.

        The classifier is a logistic regression, whose features say which token ids
        occur in a review. The reviews are cut as they are for the network. The
        regression is fitted on all training reviews, including the held-out ones.
        """

        def present(row: Tensor) -> list[int]:
            return [k for k in row.tolist() if k != PADDING]

        ids, labels = self.sets["train"]
        test_ids, test_labels = self.sets["test"]
        return measures.bag_of_words(
            [(ids, test_ids)],
            (np.asarray(labels), np.asarray(test_labels)),
            analyzer=present,
        )

    def _classify(
        self, model: nn.Module, part: str, count: int, name: str
    ) -> Mapping[str, float]:
        """Measure loss and accuracy on at least `count` rows of a part of `sets`."""
        ids, labels = self.sets[part]
        taken = spread_over(labels, count)
        return classification(ids[taken], labels[taken], size=500, name=name)(model)
