"""Paper C's encoder classifier for reviews: post-norm blocks without biases, read out at the first token.

Shapes: b texts, T tokens, width d, h heads of d_h. Source: paper C, experiments on IMDb.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PADDING = 0  # the id of the padding token; the first token of every text has another


class SelfAttention(nn.Module):
    """softmax(q kᵀ / sqrt(d_h)) v per head, padding left out, merged by a matrix; W_Q, W_K, W_V apart, no biases.

    ValueError if `heads` does not divide `width`.
    """

    def __init__(self, width: int, heads: int):
        super().__init__()
        if width % heads:
            raise ValueError(f"heads must divide the width: width {width}, heads {heads}")
        self.heads = heads
        self.query, self.key, self.value, self.merge = (nn.Linear(width, width, bias=False) for _ in range(4))

    def split(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v of shape (b, h, T, d_h) for `tokens` (b, T, d)."""
        b, T, d = tokens.shape
        shape = (b, T, self.heads, d // self.heads)
        return tuple(f(tokens).reshape(shape).transpose(1, 2) for f in (self.query, self.key, self.value))

    def forward(self, tokens: Tensor, present: Tensor) -> Tensor:
        b, T, d = tokens.shape
        out = F.scaled_dot_product_attention(*self.split(tokens), attn_mask=present[:, None, None])  # (b, h, T, d_h)
        return self.merge(out.transpose(1, 2).reshape(b, T, d))

    def weights(self, tokens: Tensor, present: Tensor) -> Tensor:
        """The attention weights themselves: (b, h, T, T), rows sum to 1, 0 on padding."""
        q, k, _ = self.split(tokens)
        logits = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5  # (b, h, T, T)
        return logits.masked_fill(~present[:, None, None], -torch.inf).softmax(-1)


class EncoderBlock(nn.Module):
    """Post-norm block: x ← LayerNorm(x + Attention(x)); x ← LayerNorm(x + MLP(x)), the MLP with GELU."""

    def __init__(self, width: int, heads: int, hidden: int, dropout: float):
        super().__init__()
        self.attention = SelfAttention(width, heads)
        self.attention_norm, self.mlp_norm = (nn.LayerNorm(width, bias=False) for _ in range(2))
        inner = nn.Linear(width, hidden, bias=False), nn.GELU(), nn.Linear(hidden, width, bias=False)
        self.mlp, self.dropout = nn.Sequential(*inner), nn.Dropout(dropout)

    def forward(self, tokens: Tensor, present: Tensor) -> Tensor:
        tokens = self.attention_norm(tokens + self.dropout(self.attention(tokens, present)))
        return self.mlp_norm(tokens + self.dropout(self.mlp(tokens)))


class TextTransformer(nn.Module):
    """Learned token and position embeddings, `size` post-norm blocks of `size` heads, one logit from the first token.

    Args:
        vocabulary: number of token ids; id 0 is padding, which no token attends to.
        length: T, the longest text.
        size: layers = heads ("model size" of the paper); it must divide `width`.
        width, hidden: d and the width of the MLP; the paper has 384 and 1536.
        dropout: rate behind embeddings, attention and MLP; the paper has 0.2.

    `forward` takes ids int (b, T') with T' ≤ length and returns the logit of label 1, (b,). Raises ValueError for
    heads that do not divide the width, longer texts, or a text that begins with padding, which has nothing to read.
    Source: paper C; the order of dropout and norm and the start (normal, 0.02) are ours.
    """

    def __init__(
        self, vocabulary: int, length: int, size: int, width: int = 384, hidden: int = 1536, dropout: float = 0.2
    ):
        super().__init__()
        self.length = length
        self.embed, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.dropout, self.norm = nn.Dropout(dropout), nn.LayerNorm(width, bias=False)
        self.blocks = nn.ModuleList(EncoderBlock(width, size, hidden, dropout) for _ in range(size))
        self.head = nn.Linear(width, 1, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def start(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The embedded tokens (b, T', d) and which of them are no padding, bool (b, T')."""
        if ids.ndim != 2 or ids.shape[1] > self.length:
            raise ValueError(f"ids must have shape (batch, at most {self.length}), they have {tuple(ids.shape)}")
        present = ids != PADDING
        places = torch.arange(ids.shape[1], device=ids.device)
        return self.dropout(self.norm(self.embed(ids.int()) + self.positions(places))), present

    def forward(self, ids: Tensor) -> Tensor:
        tokens, present = self.start(ids)
        for block in self.blocks:
            tokens = block(tokens, present)
        return self.head(tokens[:, 0])[:, 0]  # (b, T', d) -> (b, d) -> (b,)

    @torch.no_grad()
    def attention(self, ids: Tensor) -> Tensor:
        """The weights of every layer with which the first token attends: (b, layers, h, T'). No dropout."""
        training, maps = self.training, []
        self.eval()
        tokens, present = self.start(ids)
        for block in self.blocks:
            maps.append(block.attention.weights(tokens, present)[:, :, 0])  # (b, h, T')
            tokens = block(tokens, present)
        self.train(training)
        return torch.stack(maps, dim=1)


def summed_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Binary cross-entropy of logits (b,) against labels (b,) in {0, 1}, in nats, summed over the batch (paper C)."""
    ids, labels = batch
    return F.binary_cross_entropy_with_logits(model(ids), labels.float(), reduction="sum")
