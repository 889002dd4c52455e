"""Reviews as numbers of one length: ids of the most frequent words of the training reviews."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
    """Words by id, as a tokenizer of the package tokenizers holds them."""

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
        """Words by id."""
        return [self.tokenizer.id_to_token(k) for k in range(self.tokenizer.get_vocab_size())]

    def encode(self, texts: Sequence[str], length: int) -> Tensor:
        """Each text's first `length` ids, int32 (N, length), [CLS] first, 0 beyond the end.

        ValueError, with the row, for a text without words.
        """
        for row, text in enumerate(texts):
            if not re.search(WORD, text.lower().replace(BREAK, " ")):
                raise ValueError(f"row {row}: the text has no word ({text[:20]!r}); leave it out")
        self.tokenizer.enable_truncation(length)
        self.tokenizer.enable_padding(length=length)  # with the id 0
        parts = []
        for first in range(0, len(texts), CHUNK):
            encodings = self.tokenizer.encode_batch(list(texts[first : first + CHUNK]))
            parts.append(torch.tensor([row.ids for row in encodings], dtype=torch.int32))
        return torch.cat(parts)


def _words(model: models.WordLevel) -> Tokenizer:
    """A tokenizer of `WORD`s in small letters, [CLS] first."""
    made = Tokenizer(model)
    small, broken = normalizers.Lowercase(), normalizers.Replace(BREAK, " ")
    made.normalizer = normalizers.Sequence([small, broken])
    made.pre_tokenizer = pre_tokenizers.Split(Regex(WORD), "removed", invert=True)
    first = {"single": "[CLS] $A", "special_tokens": [("[CLS]", FIRST)]}
    made.post_processor = processors.TemplateProcessing(**first)
    return made
