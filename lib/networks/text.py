"""Paper C's encoder classifier for reviews, without biases, and its vocabulary.

The paper trains it on IMDb. In shapes, b is the number of texts, T the number of
tokens, d the width, h the number of heads, and d_h the width of a head.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from tokenizers import (
    Regex,
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from torch import Tensor, nn

# ids of [PAD] and [CLS], the first token of every text
PADDING = 0
FIRST = 1
SPECIAL = ["[PAD]", "[CLS]", "[UNK]"]
# A word in lower case, or any other single character that is not white space.
WORD = r"[a-z0-9]+(?:'[a-z]+)?|[^\sa-z0-9]"
BREAK = "<br />"  # a line break, which is replaced by a space
CHUNK = 1000  # number of texts that are encoded at a time
EMBEDDING_STD = 0.1


class _SelfAttention(nn.Module):
    """Attention softmax(q kᵀ / sqrt(d_h)) v per head, whose results a matrix merges.

    There are no biases, and padding gets no attention. Raises ValueError if the number
    of heads does not divide the width.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(
                f"heads must divide the width: width {width}, heads {heads}"
            )
        self.heads = heads
        square = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.query, self.key, self.value, self.merge = square

    def split(self, tokens: Tensor) -> Tensor:
        """Cut tokens (b, T, d) into one part per head, (b, h, T, d_h)."""
        return tokens.unflatten(2, (self.heads, -1)).transpose(1, 2)

    def forward(self, asking: Tensor, tokens: Tensor, present: Tensor) -> Tensor:
        """Compute the attention of `asking` (b, S, d) to the tokens that are `present`.

        The tokens have the shape (b, T, d), and `present` is boolean with the shape (b,
        T). The result has the shape (b, S, d).
        """
        parts = self.query(asking), self.key(tokens), self.value(tokens)
        mask = present[:, None, None]  # (b, 1, 1, T)
        out = F.scaled_dot_product_attention(*map(self.split, parts), attn_mask=mask)
        return self.merge(out.transpose(1, 2).flatten(2))  # (b, S, h, d_h) -> (b, S, d)

    def weights(self, asking: Tensor, tokens: Tensor, present: Tensor) -> Tensor:
        """Compute the attention weights themselves, (b, h, S, T).

        Each row sums to 1 and is 0 on padding. The arguments are those of `forward`.
        """
        q = self.split(self.query(asking))
        k = self.split(self.key(tokens))
        logits = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5  # (b, h, S, T)
        return logits.masked_fill(~present[:, None, None], -torch.inf).softmax(-1)


class _EncoderBlock(nn.Module):
    """Post-norm block: x ← LayerNorm(x + Attention(x)); x ← LayerNorm(x + MLP(x)).

    The MLP uses GELU.
    """

    def __init__(self, width: int, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.attention = _SelfAttention(width, heads)
        self.attention_norm, self.mlp_norm = (
            nn.LayerNorm(width, bias=False) for _ in range(2)
        )
        up = nn.Linear(width, hidden, bias=False)
        down = nn.Linear(hidden, width, bias=False)
        self.mlp = nn.Sequential(up, nn.GELU(), down)
        self.dropout = nn.Dropout(dropout)

    def forward(self, asking: Tensor, tokens: Tensor, present: Tensor) -> Tensor:
        """Return the new values (b, S, d) of `asking`, which are some of the tokens.

        The tokens have the shape (b, T, d), and `present` is boolean with the shape (b,
        T).
        """
        asking = self.attention_norm(
            asking + self.dropout(self.attention(asking, tokens, present))
        )
        return self.mlp_norm(asking + self.dropout(self.mlp(asking)))


class TextTransformer(nn.Module):
    """Paper C's encoder classifier for texts, without biases.

    The network consists of learned embeddings, `size` post-norm blocks of `size` heads
    each, and a linear head that reads one logit from the first token.

    Parameters
    ----------
    vocabulary : int
        Number of token ids. The id 0 stands for padding.
    length : int
        The number T of tokens in the longest text.
    size : int
        Number of layers, and also of heads per layer ("model size" in the paper).
    width : int, default 384
        Width d of a token, a multiple of `size`.
    hidden : int, default 1536
        Width of the MLP in a block.
    dropout : float, default 0.2
        Rate of dropout after the embeddings, after attention and after the MLP.

    Raises
    ------
    ValueError
        If the number of heads does not divide the width. When the network is called, if
        the ids do not have the shape (b, T') with T' <= T.

    Notes
    -----
    The network is that of paper C. The paper says neither where dropout acts nor how
    the weights are initialised, so that we chose both.

    Examples
    --------
    Padding after a text does not change the logit of the text:

    >>> import torch
    >>> from lib.networks import TextTransformer
    >>> network = TextTransformer(vocabulary=10, length=6, size=2, width=8, hidden=16)
    >>> network = network.eval()
    >>> short = network(torch.tensor([[1, 5, 7]]))
    >>> padded = network(torch.tensor([[1, 5, 7, 0, 0]]))
    >>> short.shape, torch.allclose(short, padded, atol=1e-5)
    (torch.Size([1]), True)
    """

    def __init__(
        self,
        vocabulary: int,
        length: int,
        size: int,
        width: int = 384,
        hidden: int = 1536,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.length = length
        self.embed = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.dropout = nn.Dropout(dropout)
        shape = (width, size, hidden, dropout)
        self.blocks = nn.ModuleList(_EncoderBlock(*shape) for _ in range(size))
        self.head = nn.Linear(width, 1, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=EMBEDDING_STD)

    def start(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Embed token ids.

        Parameters
        ----------
        ids : Tensor of int (b, T')
            Token ids, with T' <= T.

        Returns
        -------
        tokens : Tensor (b, T', d)
            The embedded tokens.
        present : Tensor of bool (b, T')
            Whether each token is a real token and not padding.

        Raises
        ------
        ValueError
            If `ids` has another shape.
        """
        if ids.ndim != 2 or ids.shape[1] > self.length:
            wanted = f"(batch, at most {self.length})"
            raise ValueError(
                f"ids must have shape {wanted}, they have {tuple(ids.shape)}"
            )
        present = ids != PADDING
        places = torch.arange(ids.shape[1], device=ids.device)
        return self.dropout(self.embed(ids.int()) + self.positions(places)), present

    def forward(self, ids: Tensor) -> Tensor:
        """Compute the logit of label 1 of each text, from its first token.

        Parameters
        ----------
        ids : Tensor of int (b, T')
            Token ids, with T' <= T.

        Returns
        -------
        Tensor (b,)
            The logits.

        Raises
        ------
        ValueError
            If `ids` has another shape.
        """
        tokens, present = self.start(ids)
        for block in self.blocks[:-1]:
            tokens = block(tokens, tokens, present)
        # the other tokens are not used
        first = self.blocks[-1](tokens[:, :1], tokens, present)
        return self.head(first)[:, 0, 0]  # (b, 1, 1) -> (b,)

    @torch.no_grad()
    def attention(self, ids: Tensor) -> Tensor:
        """Compute the weights with which the first token attends, without dropout.

        Parameters
        ----------
        ids : Tensor of int (b, T')
            Token ids, with T' <= T.

        Returns
        -------
        Tensor (b, layers, h, T')
            The attention weights, which are 0 on padding, on the device of `ids`.

        Raises
        ------
        ValueError
            If `ids` has another shape.
        """
        training = self.training
        maps = []
        self.eval()
        tokens, present = self.start(ids.to(self.head.weight.device))
        for block in self.blocks:
            # torch's list has no narrower type than "module"
            assert isinstance(block, _EncoderBlock)
            maps.append(
                block.attention.weights(tokens[:, :1], tokens, present)[:, :, 0]
            )
            tokens = block(tokens, tokens, present)
        self.train(training)
        return torch.stack(maps, dim=1).to(ids.device)


def summed_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Compute the sum of the binary cross-entropies of a batch, in nats.

    Parameters
    ----------
    model : torch.nn.Module
        The network, which maps ids to logits (b,) of label 1.
    batch : tuple of Tensor
        Ids (b, T) and labels (b,).

    Returns
    -------
    Tensor ()
        The sum over the batch.

    Notes
    -----
    This is the loss of paper C.
    """
    ids, labels = batch
    return F.binary_cross_entropy_with_logits(
        model(ids), labels.float(), reduction="sum"
    )


def attended(weights: Tensor) -> Tensor:
    """Compute how many tokens attention effectively uses: exp(-Σ_t a_t log a_t).

    Parameters
    ----------
    weights : Tensor (..., T)
        The attention weights a, which are at least zero and sum to 1 over the last
        axis.

    Returns
    -------
    Tensor of float32 (...)
        The effective numbers, between 1 and T.

    Examples
    --------
    >>> import torch
    >>> from lib.networks import text
    >>> text.attended(torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]])).numpy().round(4)
    array([2., 1.], dtype=float32)
    """
    return torch.special.entr(weights.float()).sum(-1).exp()


@dataclass(frozen=True)
class Vocabulary:
    """A map between words and ids.

    Parameters
    ----------
    tokenizer : tokenizers.Tokenizer
        A tokenizer of the package `tokenizers`, which contains the words.

    Examples
    --------
    >>> from lib.networks.text import Vocabulary
    >>> known = Vocabulary.of(["a good film", "a bad film", "a film"], size=6)
    >>> known.names
    ['[PAD]', '[CLS]', '[UNK]', 'a', 'film', 'bad']
    >>> known.encode(["A bad joke"], length=5)
    tensor([[1, 3, 5, 2, 0]], dtype=torch.int32)
    """

    tokenizer: Tokenizer

    @classmethod
    def of(cls, texts: Iterable[str], size: int) -> "Vocabulary":
        """Build a vocabulary from the most frequent words of texts.

        Parameters
        ----------
        texts : iterable of str
            The texts.
        size : int
            The largest number of ids, 4 or more. Three of the ids are not words.

        Returns
        -------
        Vocabulary
            The vocabulary of the `size` - 3 most frequent words, or of all words if
            there are fewer. Among equally frequent words, those that come first in the
            alphabet are chosen.

        Raises
        ------
        ValueError
            If `size` is below 4.
        """
        if size < 4:
            raise ValueError(f"size must be 4 or more, three ids are taken; got {size}")
        # We count words ourselves. The trainer of `tokenizers` ignores Ctrl-C until it
        # has read all texts, and its tokenizer would take a literal "[CLS]" in a text
        # for the special token.
        splitter = _words(models.WordLevel())
        counts = Counter()
        for text in texts:
            normalised = splitter.normalizer.normalize_str(text)
            pieces = splitter.pre_tokenizer.pre_tokenize_str(normalised)
            counts.update(word for word, _ in pieces)
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        names = [*SPECIAL, *ranked[: size - len(SPECIAL)]]
        ids = {name: number for number, name in enumerate(names)}
        return cls(_words(models.WordLevel(ids, unk_token="[UNK]")))

    @property
    def names(self) -> list[str]:
        """The words, in the order of their ids."""
        size = self.tokenizer.get_vocab_size()
        return [str(self.tokenizer.id_to_token(k)) for k in range(size)]

    def encode(self, texts: Sequence[str], length: int) -> Tensor:
        """Turn texts into ids.

        Parameters
        ----------
        texts : sequence of str (N,)
            The texts, at least one.
        length : int
            Number of ids per text, including [CLS]. The rest of a longer text is cut
            off.

        Returns
        -------
        Tensor of int32 (N, length)
            The ids. Each row begins with the id of [CLS]. An unknown word gets the id
            of [UNK], and 0 fills the row after the end of the text.

        Raises
        ------
        ValueError
            If a text has no words. The message names the row.
        """
        for row, text in enumerate(texts):
            if not re.search(WORD, text.lower().replace(BREAK, " ")):
                raise ValueError(
                    f"row {row}: the text has no word ({text[:20]!r}); leave it out"
                )
        self.tokenizer.enable_truncation(length)
        self.tokenizer.enable_padding(length=length)  # with the id 0
        parts = []
        for first in range(0, len(texts), CHUNK):
            encodings = self.tokenizer.encode_batch(list(texts[first : first + CHUNK]))
            parts.append(
                torch.tensor([row.ids for row in encodings], dtype=torch.int32)
            )
        return torch.cat(parts)


def _words(model: models.WordLevel) -> Tokenizer:
    """Return a tokenizer that splits text, in lower case, into [CLS] and `WORD`s."""
    made = Tokenizer(model)
    steps = [normalizers.Lowercase(), normalizers.Replace(BREAK, " ")]
    made.normalizer = normalizers.Sequence(steps)
    made.pre_tokenizer = pre_tokenizers.Split(Regex(WORD), "removed", invert=True)
    first = {"single": "[CLS] $A", "special_tokens": [("[CLS]", FIRST)]}
    made.post_processor = processors.TemplateProcessing(**first)
    return made
