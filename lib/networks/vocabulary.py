"""Reviews as numbers: the training reviews' most frequent words or BERT's word pieces, and texts cut to one length."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

PADDING, FIRST, UNKNOWN = 0, 1, 2  # ids of [PAD], [CLS] and [UNK]
_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?|[^\sa-z0-9]")


def words(text: str) -> list[str]:
    """`text` in small letters as words and single marks; line breaks written as <br /> are left out."""
    return _WORD.findall(text.lower().replace("<br />", " "))


@dataclass(frozen=True)
class Encoded:
    """Texts as ids int32 (N, length), [CLS] first, 0 beyond the end; `cut` counts the texts that were too long."""

    ids: Tensor
    cut: int


@dataclass(frozen=True)
class Vocabulary:
    """Words by id, [PAD], [CLS] and [UNK] first."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, texts: Iterable[str], size: int) -> "Vocabulary":
        """The `size` - 3 most frequent words of `texts`, in case of a tie the first in the alphabet."""
        if size < 4:
            raise ValueError(f"size must be 4 or more, three ids are taken; got {size}")
        counts = Counter(word for text in texts for word in words(text))
        common = sorted(counts, key=lambda word: (-counts[word], word))[: size - 3]
        return cls(("[PAD]", "[CLS]", "[UNK]", *common))

    def __len__(self) -> int:
        return len(self.names)

    def encode(self, texts: Sequence[str], length: int) -> Encoded:
        """Each text's first `length` - 1 words behind [CLS]; ValueError, with the row, for a text without words."""
        known = {name: number for number, name in enumerate(self.names)}
        ids, cut = np.zeros((len(texts), length), dtype=np.int32), 0
        for row, text in enumerate(texts):
            found = words(text)
            if not found:
                raise ValueError(f"row {row}: the text has no word ({text[:20]!r}); leave it out")
            cut += len(found) > length - 1
            kept = [FIRST, *(known.get(word, UNKNOWN) for word in found[: length - 1])]
            ids[row, : len(kept)] = kept
        return Encoded(torch.from_numpy(ids), cut)


@dataclass(frozen=True)
class WordPieces:
    """BERT's vocabulary, through the tokenizer that comes with the weights of `lib.bert`."""

    tokenizer: object

    @property
    def names(self) -> list[str]:
        """Word pieces by id."""
        return [self.tokenizer.id_to_token(number) for number in range(len(self))]

    def __len__(self) -> int:
        return self.tokenizer.get_vocab_size()

    def encode(self, texts: Sequence[str], length: int) -> Encoded:
        """As `Vocabulary.encode`; [SEP] ends a text, as BERT has it."""
        for row, text in enumerate(texts):
            if not words(text):
                raise ValueError(f"row {row}: the text has no word ({text[:20]!r}); leave it out")
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        found = [row.ids for row in self.tokenizer.encode_batch(list(texts))]
        ids = np.zeros((len(texts), length), dtype=np.int32)
        for row, numbers in enumerate(found):
            ids[row, : min(len(numbers), length)] = numbers[:length]
        return Encoded(torch.from_numpy(ids), sum(len(numbers) > length for numbers in found))


def choose(tokenizer: str, texts: Iterable[str], size: int) -> Vocabulary | WordPieces:
    """`Vocabulary.of(texts, size)` for "words", BERT's word pieces for "bert"; ValueError for anything else."""
    if tokenizer == "words":
        return Vocabulary.of(texts, size)
    if tokenizer != "bert":
        raise ValueError(f'tokenizer must be "words" or "bert", not {tokenizer!r}')
    from tokenizers import Tokenizer

    from lib.networks import bert

    return WordPieces(Tokenizer.from_file(str(bert.weights().folder / "tokenizer.json")))
