"""Tests of paper C's text classifier against its formulas.

A failure means that another network has the paper's name.
"""

import re
from collections import Counter

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lib.data import texts as data_texts
from lib.networks import measures, text
from lib.networks.text import (
    TextTransformer,
    Vocabulary,
    _EncoderBlock,
    _SelfAttention,
    attended,
    summed_loss,
)


def network(dropout=0.0, length=9, size=2):
    torch.manual_seed(0)
    return TextTransformer(30, length, size, width=8, hidden=16, dropout=dropout)


def ids(rows=4, length=9, seed=0):
    values = torch.from_numpy(
        np.random.default_rng(seed).integers(2, 30, (rows, length))
    )
    values[:, 0] = text.FIRST
    return values.int()


def test_attention_equals_the_formula():
    layer = _SelfAttention(8, 2)
    tokens = torch.randn(3, 5, 8)
    present = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]]).bool()
    out = layer(tokens, tokens, present)
    shares = layer.weights(tokens, tokens, present)
    q, k, v = (tokens @ m.weight.T for m in (layer.query, layer.key, layer.value))
    heads = []
    for h in range(2):
        part = slice(4 * h, 4 * h + 4)
        logits = q[..., part] @ k[..., part].transpose(1, 2) / 2  # sqrt(d_h) = 2
        a = logits.masked_fill(~present[:, None], -torch.inf).softmax(-1)
        torch.testing.assert_close(shares[:, h], a)
        heads.append(a @ v[..., part])
    torch.testing.assert_close(out, torch.cat(heads, -1) @ layer.merge.weight.T)


def test_a_block_normalises_after_each_sum():
    block = _EncoderBlock(8, 2, 16, 0.0)
    tokens = torch.randn(3, 5, 8)
    for norm in (block.attention_norm, block.mlp_norm):
        torch.nn.init.uniform_(norm.weight, 0.5, 2.0)
    present = torch.ones(3, 5, dtype=bool)
    x = tokens + block.attention(tokens, tokens, present)
    x = F.layer_norm(x, (8,), block.attention_norm.weight)
    first, _, second = block.mlp
    x = x + F.gelu(x @ first.weight.T) @ second.weight.T
    expected = F.layer_norm(x, (8,), block.mlp_norm.weight)
    torch.testing.assert_close(block(tokens, tokens, present), expected)


@pytest.mark.parametrize("size", [2, 4])
def test_reading_the_first_token_alone_changes_nothing(size):
    """The last block computes one token; the reference computes all, with the same
    modules.
    """
    model = network(size=size)
    batch = ids()
    tokens, present = model.start(batch)
    for block in model.blocks:
        tokens = block(tokens, tokens, present)
    torch.testing.assert_close(model(batch), model.head(tokens[:, 0])[:, 0])


def test_padding_is_invisible():
    model = network()
    batch = ids(length=6)
    wide = F.pad(batch, (0, 3))
    torch.testing.assert_close(model(wide), model(batch))
    maps = model.attention(wide)
    assert maps.shape == (4, 2, 2, 9) and float(maps[..., 6:].detach().abs().max()) == 0
    torch.testing.assert_close(maps.sum(-1), torch.ones(4, 2, 2))


def test_layers_are_heads_and_nothing_has_a_bias():
    model = network(size=4)
    assert len(model.blocks) == 4 and model.blocks[0].attention.heads == 4
    assert not [name for name, _ in model.named_parameters() if "bias" in name]
    names = {"embed.weight", "positions.weight", "blocks.0.attention.key.weight"}
    assert set(measures.matrices(model)) > names


def test_attention_maps_leave_training_mode_alone():
    model = network(dropout=0.5)
    model.train()
    first = model.attention(ids())
    second = model.attention(ids())
    assert torch.equal(first, second) and model.training


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: TextTransformer(30, 9, 3, width=8), "heads must divide the width"),
        (lambda: network()(ids(length=10)), "at most 9"),
        (lambda: network()(ids()[0]), "must have shape"),
        (lambda: Vocabulary.of(["a"], 3), "size must be 4 or more"),
        *(
            (lambda t=t: encoded(t), "row 1: the text has no word")
            for t in ("", "  \n", "<br />")
        ),
    ],
)
def test_bad_shapes_and_an_empty_review(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def encoded(text):
    return Vocabulary.of(["a b c"], 6).encode(["a", text], 4)


def test_the_loss_is_a_sum_and_attended_tokens_count():
    model = network()
    batch = ids(6)
    labels = torch.tensor([0, 1, 1, 0, 1, 0])
    logits = model(batch)
    expected = F.softplus(torch.where(labels > 0, -logits, logits)).sum()
    torch.testing.assert_close(summed_loss(model, (batch, labels)), expected)
    even = torch.full((4,), 0.25)
    one = torch.tensor([0.0, 1.0, 0.0, 0.0])
    assert attended(torch.stack([even, one])).tolist() == pytest.approx([4, 1])


@pytest.mark.parametrize("size", [50, 400, 10_000])
def test_ids_are_those_of_the_words_counted_by_hand(size):
    """The 302 texts include hard cases: marks, breaks, other alphabets, "[CLS]" itself.

    Letters are made lower case one by one. So a final Σ becomes σ, while Python has ς.
    """
    hard = [
        "A<br /><br />B's İstanbul, naïve [CLS] [PAD] 'quoted'",
        "Ünder\u00a0the 3.5\u2014ΣΑ x'",
    ]
    listed = data_texts.load("imdb", "train", demo=True).texts[:300] + hard

    def split(row):
        return re.findall(text.WORD, row.lower().replace("<br />", " "))

    counts = Counter(word for row in listed for word in split(row))
    common = sorted(counts, key=lambda word: (-counts[word], word))[: size - 3]
    words = Vocabulary.of(listed, size)
    assert words.names == ["[PAD]", "[CLS]", "[UNK]", *common]
    number = {word: k for k, word in enumerate(words.names)}
    expected = [[1, *(number.get(word, 2) for word in split(row))] for row in listed]
    ids = words.encode(listed, 12)
    assert ids.tolist() == [(row + 12 * [0])[:12] for row in expected]
    assert ids.dtype == torch.int32


def test_a_token_begins_as_the_sum_of_its_word_and_its_position():
    model = network()
    batch = ids(length=3)
    tokens, _ = model.start(batch)
    expected = model.embed.weight[batch.long()] + model.positions.weight[:3]
    torch.testing.assert_close(tokens, expected)


def test_attended_tokens_are_counted_over_the_last_of_three_axes():
    weights = torch.full((2, 3, 4), 0.25)
    weights[0, 1] = torch.tensor([0.5, 0.5, 0.0, 0.0])
    expected = torch.tensor([[4.0, 2, 4], [4, 4, 4]])
    torch.testing.assert_close(attended(weights), expected)


def test_the_smallest_vocabulary_has_one_word():
    assert Vocabulary.of(["a b", "b"], 4).names == ["[PAD]", "[CLS]", "[UNK]", "b"]
