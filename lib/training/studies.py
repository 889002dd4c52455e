"""The papers' real-data studies: their numbers from studies.toml, what they train on and measure,
and the plain classifiers to beat.

`DEMO` are smoke tests in seconds, on stand-in data: they say nothing about the papers' claims.
"""

import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import csr_matrix, hstack
from torch import Tensor, nn

from lib.data import images, texts
from lib.networks import TextTransformer, VisionTransformer, bert
from lib.networks.text import PADDING, Vocabulary, attended, summed_loss
from lib.networks.measures import binned, by_part, hoyer, matrices, sparsity
from lib.seeds import stream
from lib.training.batches import Batches, Bucketed
from lib.training.loop import Evaluate, initialised
from lib.training.study import Problem, Study

# Test rows at the points of a run.
SHOWN_IMAGES, SHOWN_TEXTS, SHOWN_REVIEWS = 2_000, 200, 2_500
FIXED_TEXTS, FIXED = 256, 512  # training rows on which the clock reads the loss; others
CONTROL = 1_000  # training images whose loss, without augmentation, is measured at the points
PROBED_TEXTS, PROBED_REVIEWS = 16, 400  # test rows whose attention is measured
MAPPED = 32  # tokens of a review that is drawn
PLAIN = {"shift": None, "mask_diagonal": False, "learn_temperature": False}
NAMED = {"shift": "cardinal", "head_width": 64, "start": 1.0}
NAME = "the network of vit_for_small_dataset (shifts by one pixel, heads 64 wide)"
DROPOUT = 0.2
STRENGTHS = (0.001, 0.01, 0.1, 1.0, 10.0)  # C of a logistic regression: the weight of the data
# Of a smoke test, also where the real set is at hand.
SMOKE_IMAGES, SMOKE_TEXTS, SMOKE_REVIEWS = 500, (1500, 200), (2000, 500)
SMOKE = dict(seeds=2, evaluations=4, window=20, extensions=0)


@torch.no_grad()
def predict(model: nn.Module, rows: Tensor, transform: Callable = lambda x: x, size=250) -> Tensor:
    """What `model` says of `rows` (N, ...), `size` at a time on the model's device: on the CPU."""
    device = next(model.parameters()).device
    parts = [model(transform(part.to(device))) for part in rows.split(size)]
    return torch.cat([part.to("cpu") for part in parts])


def _right(logits: Tensor, targets: Tensor) -> Tensor:
    """Which rows are classified correctly: bool (N,); logits (N, classes), or (N,) of label 1."""
    return logits.argmax(1) == targets if logits.ndim > 1 else (logits > 0) == (targets > 0)


def correctness(hits) -> dict[str, np.ndarray]:
    """Which test rows (N,) bool are classified correctly, as packed bits, and N."""
    return {"test_correct": np.packbits(np.asarray(hits)), "test_rows": np.array(len(hits))}


def classification(
    inputs: Tensor, targets: Tensor, transform=lambda x: x, size: int = 250, name: str = "test"
) -> Evaluate:
    """An `evaluate`: {"<name>_loss": mean cross-entropy, "<name>_accuracy": share correct}."""

    def evaluate(model: nn.Module) -> dict[str, float]:
        logits, loss, wanted = predict(model, inputs, transform, size), F.cross_entropy, targets
        if logits.ndim == 1:  # of label 1
            loss, wanted = F.binary_cross_entropy_with_logits, targets.float()
        parts = zip(logits.split(size), wanted.split(size))
        total = sum(loss(*part, reduction="sum") for part in parts)
        hits = float(_right(logits, targets).sum())
        return {f"{name}_loss": float(total) / len(wanted), f"{name}_accuracy": hits / len(wanted)}

    return evaluate


def _logistic(train: tuple, test: tuple) -> dict[str, np.ndarray]:
    """The `correctness` on `test`, (inputs, labels), of logistic regression fitted on `train`.

    Its strength is chosen on a fifth of the training rows, never on test rows.
    """
    from sklearn.linear_model import LogisticRegression  # sklearn takes a second to import
    from sklearn.model_selection import GridSearchCV, PredefinedSplit

    fifth = PredefinedSplit(np.where(np.arange(len(train[1])) % 5, -1, 0))
    search = GridSearchCV(LogisticRegression(max_iter=200), {"C": STRENGTHS}, cv=fifth)
    return correctness(search.fit(*train).predict(test[0]) == test[1])


def _nearest(train: tuple, test: tuple) -> dict[str, np.ndarray]:
    """The `correctness` on `test`, (inputs, labels), of the 3 nearest neighbours in `train`."""
    from sklearn.neighbors import KNeighborsClassifier

    return correctness(KNeighborsClassifier(3).fit(*train).predict(test[0]) == test[1])


def _pixels(part: images.ImageSet) -> tuple:
    """The pixels in [0, 1], (N, pixels), and labels."""
    return part.images.flatten(1).numpy() / np.float32(255), part.labels.numpy()


def _bags(*columns: tuple, **how) -> list[csr_matrix]:
    """Which words are in the texts of (training, test) columns, those of one column after those of
    another: [(training rows, words), (test rows, words)]; `how` is for CountVectorizer."""
    from sklearn.feature_extraction.text import CountVectorizer

    parts = []
    for known, unknown in columns:
        counter = CountVectorizer(binary=True, **how)
        parts.append((counter.fit_transform(known), counter.transform(unknown)))
    return [hstack(part).tocsr() for part in zip(*parts)]


def _every(rows, count: int) -> slice:
    """About `count` of `rows`, spread over them, since a set may be sorted by label."""
    return slice(None, None, max(1, len(rows) // count))


def _split(name: str, demo: bool, sizes: tuple[int, int]) -> list[texts.TextSet]:
    """Training and test texts, of a `demo` samples of these `sizes`."""
    parts = [texts.load(name, split, demo=demo) for split in ("train", "test")]
    return [part.sample(size) for part, size in zip(parts, sizes)] if demo else parts


def pictures(
    batch, name, rows, grid=4, held_out=0, crops=False, named=False, demo=False, **shape
) -> Problem:
    """A vision transformer on the first `rows` images of `name`, cut into `grid` x `grid` patches.

    `shape` is its width, depth, heads and hidden, in this order. Paper A's is the one for small
    data sets, where `named` that of the code that the paper names, and sees `crops` where asked.
    With `held_out` images, on which rates are judged, it is paper C's plain one, which sees crops.
    """
    whole = images.load(name, "train", rows=rows + held_out, demo=demo)
    if len(whole) < rows + held_out:
        words = f"{name} has {len(whole)} training images here, not {rows}"
        raise ValueError(words + f" and {held_out} to hold out" * bool(held_out))
    test = images.load(name, "test", rows=SMOKE_IMAGES if demo else None, demo=demo)
    train, transform = whole[:rows], whole[:rows].standardise()
    channels, size = train.images.shape[1:3]
    patch, how, kind = size // grid, {}, "ViT with SPT and LSA"
    if held_out:
        how, kind = PLAIN, f"plain ViT on {size} pixels"
    elif named:
        how, kind = NAMED, NAME
    data = (train.images, train.labels, batch)

    def look(part, name="test"):
        return classification(part.images, part.labels, transform, name=name)

    def evaluate(model, seed, tuning):
        metrics = look(whole[rows:] if tuning and held_out else test[:SHOWN_IMAGES])(model)
        if held_out:
            metrics |= look(train[:CONTROL], "control")(model)
            index = {f"hoyer.{name}": hoyer(W) for name, W in matrices(model).items()}
            metrics |= index | {"hoyer": float(np.median(list(index.values())))}
        return metrics

    def finish(model, seed):
        ends = correctness(_right(predict(model, test.images, transform), test.labels))
        return ends | ({"histogram": binned(matrices(model).values())} if held_out else {})

    about = {"data": images.identity(name, demo=demo), "rows": len(train), "test_rows": len(test)}
    about["network"] = f"{kind}, patch {patch}, {shape}" + ", crops and flips" * crops
    return Problem(
        build=lambda: VisionTransformer(size, patch, channels, train.classes, **shape, **how),
        batches=lambda seed, tuning: Batches(*data, seed, transform, bool(held_out or crops)),
        evaluate=evaluate,
        finish=finish,
        about=about | ({"held_out": held_out} if held_out else {}),
        clock=look(train[:FIXED], "clock"),
        baselines={
            "logistic regression": lambda: _logistic(_pixels(train), _pixels(test)),
            "3 nearest neighbours": lambda: _nearest(_pixels(train), _pixels(test)),
        },
    )


def sentences(batch, name, length, layers, rows=None, characters=None, demo=False) -> Problem:
    """The lower `layers` of a pretrained BERT (paper A) on `rows` texts of `name`, all for None.

    Training texts have at most `length` tokens, test texts are cut to 4 `length`. With `characters`
    both are a `balanced` sample, and training texts are cut too. A `demo` is small, and not
    pretrained.
    """
    weights = bert.weights(demo=demo)
    train, test = _split(name, demo, SMOKE_TEXTS)
    classes, sample, plain = train.classes, {}, {}
    if characters:
        train, test = (part.balanced(rows or len(part), characters) for part in (train, test))
        sample = {"characters": characters, "content": [train.content(), test.content()]}
        columns = [(train.texts, test.texts)] + [(train.pairs, test.pairs)] * bool(train.pairs)
        truth = train.labels, test.labels
        plain = {"bag of words": lambda: _logistic(*zip(_bags(*columns, min_df=2), truth))}
    train = bert.tokenise(weights, train, length, whole=not characters)
    if rows and not (characters or demo):
        chosen = stream(0, "subset").permutation(len(train.labels))[:rows]
        train = train.take(torch.from_numpy(chosen))
    fixed = train.take(train.lengths[:FIXED_TEXTS].argsort(stable=True))  # for little padding
    test = bert.tokenise(weights, test, 4 * length)  # every row; the longest are cut
    shown = test.take(_every(test.labels, SHOWN_TEXTS))
    ordered = shown.take(shown.lengths.argsort(stable=True))

    def build():
        if demo:
            return bert.small_classifier(weights, classes)
        return bert.lower(bert.classifier(weights, classes), layers)

    def evaluate(model, seed, tuning):
        logits = predict(model, ordered.inputs, bert.trim, 64)
        entropies = bert.entropies(model, shown.inputs[:PROBED_TEXTS])
        return {f"entropy.{k}": float(value) for k, value in enumerate(entropies)} | {
            "test_loss": float(F.cross_entropy(logits, ordered.labels)),
            "test_accuracy": float(_right(logits, ordered.labels).double().mean()),
        }

    def finish(model, seed):
        order = test.lengths.argsort(stable=True)
        hits = _right(predict(model, test.inputs[order], bert.trim, 64), test.labels[order])
        return correctness(hits[order.argsort()])

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
        batches=lambda seed, tuning: Bucketed(train.inputs, train.labels, batch, seed, bert.trim),
        evaluate=evaluate,
        finish=finish,
        about=about | sample,
        clock=classification(fixed.inputs, fixed.labels, bert.trim, 64, "clock"),
        baselines=plain,
    )


def reviews(batch, length, words, size, width, hidden, held_out, demo=False) -> Problem:
    """Paper C's encoder on all IMDb reviews, cut to `length` of the commonest `words`.

    Rates are judged on `held_out` training reviews, which trials do not train on.
    """
    train, test = _split("imdb", demo, SMOKE_REVIEWS)
    known, parts = Vocabulary.of(train.texts, words), train.hold_out(held_out)
    sets = {
        key: (known.encode(part.texts, length), torch.from_numpy(part.labels.copy()))
        for key, part in zip(("train", "test", "rest", "held"), (train, test, *parts))
    }
    names, (ids, labels) = known.names, sets["test"]

    def build():
        return TextTransformer(len(names), length, size, width, hidden, DROPOUT)

    def look(part, name, count):
        taken = _every(sets[part][1], count)
        return classification(*(values[taken] for values in sets[part]), size=500, name=name)

    def plain():
        columns, truth = zip(sets["train"], sets["test"])
        used = lambda row: [k for k in row.tolist() if k != PADDING]
        return _logistic(*zip(_bags(columns, analyzer=used), map(np.asarray, truth)))

    def evaluate(model, seed, tuning):
        tested, count = ("held", held_out) if tuning else ("test", SHOWN_REVIEWS)
        on_training = look("rest" if tuning else "train", "training", SHOWN_REVIEWS)
        metrics = sparsity(model, initialised(build, seed))
        return metrics | look(tested, "test", count)(model) | on_training(model)

    def finish(model, seed):
        taken = _every(labels, PROBED_REVIEWS)
        probe, shown = ids[taken], labels[taken]
        # the first favourable review and the first other one
        drawn = probe[[int(np.flatnonzero(shown == k)[0]) for k in (1, 0)]]
        ends = correctness(_right(predict(model, ids, size=500), labels))
        ends["training_accuracy"] = look("train", "x", len(train))(model)["x_accuracy"]
        ends["present"] = (probe != PADDING).sum(1).numpy()
        if seed == 0:  # the reviews are those of every seed
            ends["words"] = np.array([[names[k] for k in row[:MAPPED]] for row in drawn])
        for when, network in (("start", initialised(build, seed)), ("last", model)):
            for part, layers in by_part(network).items():
                ends[f"{when}.histogram.{part}"] = binned(layers)
            # how many tokens the first one uses (reviews, layers), its maps (drawn, layers, MAPPED)
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
        "network": f"encoder of size {size}, width {width}, MLP {hidden}, dropout {DROPOUT},"
        f" {length} of {len(names)} words",
    }
    return Problem(
        build=build,
        batches=lambda seed, tuning: Batches(*sets["rest" if tuning else "train"], batch, seed),
        evaluate=evaluate,
        finish=finish,
        loss=summed_loss,
        about=about,
        clock=look("rest", "clock", FIXED),
        baselines={"bag of words": plain},
    )


PROBLEMS = {kind.__name__: kind for kind in (pictures, sentences, reviews)}
STUDIES: dict[str, Study] = {}
DEMO: dict[str, Study] = {}
TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
for _name, _row in TABLES.items():
    _small = _row.pop("demo", None)
    _row |= {"name": _name, "problem": PROBLEMS[_row["problem"]]}
    STUDIES[_name] = Study(**_row)
    if _small:
        _small["options"] = _row["options"] | _small["options"] | {"demo": True}
        DEMO[_name] = Study(**_row | SMOKE | _small)
STUDIES["digits"] = replace(DEMO["mnist"], name="digits")  # needs no data
