"""Reviews as numbers of one length: ids of frequent words, or of BERT's word pieces as in paper C.

The words are the most frequent ones of the training reviews.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor

PADDING, FIRST = 0, 1  # ids of [PAD] and [CLS]
SPECIAL = ["[PAD]", "[CLS]", "[UNK]"]
WORD = r"[a-z0-9]+(?:'[a-z]+)?|[^\sa-z0-9]"  # of text in small letters: a word, or a single mark
BREAK = "<br />"  # a line break, which is left out
CHUNK = 1000  # texts that are encoded at a time


@dataclass(frozen=True)
class Vocabulary:
    """Words or word pieces by id, as a tokenizer of the package tokenizers holds them."""

    tokenizer: Tokenizer

    @classmethod
    def of(cls, texts: Iterable[str], size: int) -> "Vocabulary":
        """The `size` - 3 most frequent words of `texts`, of equals the first in the alphabet.

        Raises ValueError for a `size` below 4: three ids are taken.
        """
        if size < 4:
            raise ValueError(f"size must be 4 or more, three ids are taken; got {size}")
        counted = _words(models.WordLevel())
        trainer = trainers.WordLevelTrainer(
            vocab_size=size, special_tokens=SPECIAL, show_progress=False
        )
        counted.train_from_iterator(texts, trainer)
        # Anew from the numbers alone: the trainer would also find "[CLS]" written in a text.
        return cls(_words(models.WordLevel(counted.get_vocab(), unk_token="[UNK]")))

    @property
    def names(self) -> list[str]:
        """Words or word pieces by id."""
        return [self.tokenizer.id_to_token(number) for number in range(len(self))]

    def __len__(self) -> int:
        return self.tokenizer.get_vocab_size()

    def encode(self, texts: Sequence[str], length: int) -> Tensor:
        """Each text's first `length` ids, int32 (N, length), [CLS] first, 0 beyond the end.

        ValueError, with the row, for a text without words.
        """
        for row, text in enumerate(texts):
            if not re.search(WORD, text.lower().replace(BREAK, " ")):
                raise ValueError(f"row {row}: the text has no word ({text[:20]!r}); leave it out")
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        ids = np.zeros((len(texts), length), dtype=np.int32)
        for first in range(0, len(texts), CHUNK):
            encodings = self.tokenizer.encode_batch(list(texts[first : first + CHUNK]))
            for row, numbers in enumerate((encoding.ids for encoding in encodings), first):
                ids[row, : len(numbers)] = numbers[:length]
        return torch.from_numpy(ids)


def _words(model: models.WordLevel) -> Tokenizer:
    """A tokenizer of `WORD`s in small letters, [CLS] first."""
    made = Tokenizer(model)
    made.normalizer = normalizers.Sequence(
        [normalizers.Lowercase(), normalizers.Replace(BREAK, " ")]
    )
    made.pre_tokenizer = pre_tokenizers.Split(Regex(WORD), "removed", invert=True)
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A", special_tokens=[("[CLS]", FIRST)]
    )
    return made


def _choose(tokenizer: str, texts: Iterable[str], size: int) -> Vocabulary:
    """`Vocabulary.of(texts, size)` for "words", BERT's word pieces for "bert"; ValueError else."""
    if tokenizer == "words":
        return Vocabulary.of(texts, size)
    if tokenizer != "bert":
        raise ValueError(f'tokenizer must be "words" or "bert", not {tokenizer!r}')
    from lib.networks import bert

    return Vocabulary(Tokenizer.from_file(str(bert.weights().folder / "tokenizer.json")))
