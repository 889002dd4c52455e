"""The networks and data of the papers' real-data studies, and what is measured."""

from collections.abc import Callable, Mapping, Sized
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lib.data import images, texts
from lib.networks import TextTransformer, VisionTransformer, bert, measures
from lib.networks.measures import classification, correct, predict
from lib.networks.text import PADDING, Vocabulary, attended, summed_loss
from lib.training.batches import Batches, Bucketed
from lib.training.curves import Curve
from lib.training.loop import initialised
from lib.training.problem import Problem

# The numbers of test rows that an evaluation uses.
SHOWN_IMAGES = 2_000
SHOWN_TEXTS = 200
SHOWN_REVIEWS = 2_500
# The clock reads the loss on this many training rows: for texts, and for other data.
FIXED_TEXTS = 256
FIXED = 512
# Evaluations measure the loss of this many training images, without augmentation.
CONTROL = 1_000
PROBED_REVIEWS = 400  # the least number of test reviews whose attention is measured
MAPPED = 32  # tokens of a review whose attention is drawn
DROPOUT = 0.2
# The sizes of a smoke test, even if the real set is available.
SMOKE_IMAGES = 500
SMOKE_TEXTS = (1500, 200)
SMOKE_REVIEWS = (2000, 500)
# Three vision transformers: each one's name in the record, and its options.
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
    """Choose at least `count` rows, fewer than twice as many, spread over all rows.

    They are spread because a set may be sorted by label.

    Parameters
    ----------
    rows : sized
        The rows.
    count : int
        The least number of rows to choose, 1 or more; if there are fewer rows, all are
        chosen.

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


def load_split(
    name: str, demo: bool, sizes: tuple[int, int]
) -> tuple[texts.TextSet, texts.TextSet]:
    """Load training and test texts; in a demo, random samples of them.

    Parameters
    ----------
    name : str
        The set of texts.
    demo : bool
        Whether to draw samples, and not to use the hub.
    sizes : tuple of (int, int)
        The sizes of the samples of training and test texts; only a demo uses them.

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
    """A vision transformer and the first images of a set.

    By default the network is the one for small data sets, which paper A describes. With
    `named` it is the network of the code that paper A names. With `held_out` images, on
    which rates are judged, it is the plain network of paper C, whatever `named` is.

    Parameters
    ----------
    batch : int
        Number of rows per batch.
    name : {"mnist", "cifar10"}
        The set of images.
    rows : int
        Number of training images.
    grid : int, default 4
        Images are cut into `grid` x `grid` patches; `grid` divides their side.
    held_out : int, default 0
        Number of images that follow the training images and are held out. If there are
        any, training uses crops.
    crops : bool, default False
        Whether training uses crops even without held-out images.
    named : bool, default False
        Whether the network is that of the code that paper A names.
    demo : bool, default False
        Whether not to use the hub, and to test on fewer images.
    **shape : int
        The options width, depth, heads and hidden of the network, in this order, since
        the record of the network keeps it.

    Raises
    ------
    ValueError
        If the set has fewer images, or if `grid` does not divide their side.
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

        They are not cropped. Returns "clock_loss" and "clock_accuracy".
        """
        return self._classify(model, self.train[:FIXED], "clock")

    def evaluate(
        self, model: nn.Module, seed: int, tuning: bool
    ) -> Mapping[str, float]:
        """Measure loss and accuracy on test images, or on those that are held out.

        Returns "test_loss" and "test_accuracy" on the first `SHOWN_IMAGES` test images.
        If images are held out, these take their place while a rate is being tried, and
        there are also "control_loss" and "control_accuracy" on the first `CONTROL`
        training images, and "hoyer", the median Hoyer index of the weights.
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
        at the start and at the end. They exist if images are held out.
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
        """Return two classifiers of the pixels."""

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
        The set of texts.
    length : int
        Number of tokens to which training texts are cut, between 3 and 128; a demo
        leaves longer ones out. Test texts are cut to 4 `length`.
    layers : int, default 0
        Number of layers, 1 or more except in a demo.
    rows : int, default 0
        The largest number of rows of each sample, training and test
        (`TextSet.balanced`).
    characters : int, default 0
        The largest number of characters of a text, or of a pair, in a sample.
    demo : bool, default False
        Whether to take a small network that is not pretrained, and a small sample; then
        `layers`, `rows` and `characters` do not matter.

    Raises
    ------
    ValueError
        If a number does not fit the texts or the weights, or if the weights or the
        texts are damaged.
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

        # Their tokens. Rows of similar lengths lie together, for little padding.
        self.train = bert.tokenise(self.weights, train, length, whole=demo)
        fixed = self.train.lengths[:FIXED_TEXTS].argsort(stable=True)
        self.fixed = self.train.take(fixed)
        # Every test row is kept; the longest are cut.
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
        """Build the network, pretrained except in a demo."""
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
        """Measure loss and accuracy on `SHOWN_TEXTS` or more of the test texts.

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
        """Return a classifier of the words; a demo has none."""
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
    """Paper C's encoder and all IMDb reviews.

    Parameters
    ----------
    batch : int
        Number of rows per batch.
    length : int
        Number of tokens to which a review is cut: [CLS] and its first words.
    words : int
        Size of the vocabulary: three special ids and the commonest words.
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
        self.batch = batch
        self.held_out = held_out
        self.length = length
        self.size = size
        self.width = width
        self.hidden = hidden

        # All training reviews, the test reviews, and the two parts of the training
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
        """Return batches of the training reviews, without those held out in a trial."""
        inputs, labels = self.sets["rest" if tuning else "train"]
        return Batches(inputs, labels, self.batch, seed)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Compute the loss summed over the batch, as the paper does."""
        return summed_loss(model, batch)

    def clock(self, model: nn.Module) -> Mapping[str, float]:
        """Measure loss and accuracy on `FIXED` reviews or more.

        Trials and judged runs train on them.
        """
        return self._classify(model, "rest", FIXED, "clock")

    def evaluate(
        self, model: nn.Module, seed: int, tuning: bool
    ) -> Mapping[str, float]:
        """Measure sparsity, and loss and accuracy on test and on training reviews.

        Returns the metrics of `measures.sparsity`, then "test_loss", "test_accuracy",
        "training_loss" and "training_accuracy". While a rate is being tried, the
        held-out reviews take the place of the test reviews, and are not among the
        training reviews.
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

        Other evaluations use every tenth review of the whole set, which is too few for
        a comparison.
        """
        rows = len(self.sets["test"][1])
        return self._classify(model, "test", rows, "every_test")

    def finish(self, model: nn.Module, seed: int) -> Mapping[str, np.ndarray]:
        """Return the hits on test reviews, and measures of weights and attention.

        The arrays are the hits on all test reviews; "present" (reviews,), the numbers
        of tokens, [CLS] among them, of `PROBED_REVIEWS` or more test reviews; and
        "words" (2, m) of the two drawn reviews, with m = `MAPPED` or fewer tokens. At
        the start and at the end of training, with the prefix "start." or "last.", there
        are "histogram.K", "histogram.Q" and "histogram.V" (bins,), "tokens_used"
        (reviews, layers) and "maps" (2, layers, m). The last two are means over heads.
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
            # How many tokens the first token uses, (reviews, layers), and its maps,
            # (drawn, layers, m).
            used = attended(network.attention(probe)).mean(-1)
            maps = network.attention(drawn)[..., :MAPPED].mean(2)
            ends[f"{when}.tokens_used"] = used.numpy().astype(np.float32)
            ends[f"{when}.maps"] = maps.numpy().astype(np.float32)
        return ends

    def baselines(self) -> Mapping[str, Callable[[], np.ndarray]]:
        """Return a classifier of the words that the network reads."""
        return {"bag of words": self._bag_of_words}

    def _bag_of_words(self) -> np.ndarray:
        """Return which test reviews (test rows,) a bag of words classifies correctly.

        It is a logistic regression on which token ids occur in a review, cut as for the
        network. It is fitted on all training reviews, held-out ones included.
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
