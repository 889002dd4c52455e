"""Tests of the vision transformer against its formulas.

A failure means that another network has the name of the published code.
"""

import math

import pytest
import torch
import torch.nn.functional as F

from lib.networks.vision import (
    VisionTransformer,
    _LocalityAttention,
    _patches,
    _shifted,
    _ShiftedPatches,
)


# float32 is what networks train in, float64 what shows a wrong formula
@pytest.mark.parametrize(
    ("dtype", "atol"), [(torch.float32, 1e-5), (torch.float64, 1e-11)]
)
@pytest.mark.parametrize("masked", [True, False])
def test_attention_equals_the_formula(masked, dtype, atol):
    torch.manual_seed(1)
    q, k, v = torch.randn(3, 2, 4, 7, 8, dtype=dtype).unbind(0)  # (b, h, T, d_h)
    layer = _LocalityAttention(32, 4, mask_diagonal=masked).to(dtype)
    temperature = 1.7
    layer.log_temperature.data = torch.tensor(math.log(temperature), dtype=dtype)
    weights = torch.exp(q @ k.mT / temperature) * (
        1 - torch.eye(7, dtype=dtype) * masked
    )
    expected = weights / weights.sum(-1, keepdim=True) @ v
    torch.testing.assert_close(layer.attend(q, k, v), expected, rtol=0, atol=atol)


@pytest.mark.parametrize(("given", "head_width"), [(None, 8), (64, 64)])
def test_temperature_starts_at_the_root_of_the_head_width_and_learns(given, head_width):
    layer = _LocalityAttention(32, 4, head_width=given)
    temperature = float(layer.log_temperature.detach().exp())
    assert temperature == pytest.approx(math.sqrt(head_width), rel=1e-6)
    layer(torch.randn(2, 5, 32)).square().sum().backward()
    assert layer.log_temperature.grad.abs() > 0


def test_shifted_copies_move_along_the_diagonals():
    image = torch.arange(1.0, 17.0).reshape(1, 1, 4, 4)
    copies = _shifted(image, 1)
    assert copies.shape == (1, 5, 4, 4) and torch.equal(copies[:, :1], image)
    assert torch.equal(copies[0, 1, 1:, 1:], image[0, 0, :-1, :-1])  # down and right
    assert torch.equal(copies[0, 4, :-1, :-1], image[0, 0, 1:, 1:])  # up and left
    assert copies[0, 1, 0].abs().sum() == 0 and copies[0, 4, :, -1].abs().sum() == 0


def test_shapes_and_a_gradient_for_every_parameter():
    torch.manual_seed(0)
    model = VisionTransformer(
        12, 4, channels=3, classes=7, width=16, depth=2, heads=2, hidden=24
    )
    logits = model(torch.randn(5, 3, 12, 12))
    assert logits.shape == (5, 7)
    F.cross_entropy(logits, torch.arange(5)).backward()
    assert all(p.grad.abs().sum() > 0 for p in model.parameters())


def test_tokens_are_those_of_images_shifted_by_half_a_patch():
    layer = _ShiftedPatches(12, 4, channels=3, width=16)
    images = torch.randn(2, 3, 12, 12)
    rows = _patches(_shifted(images, 2), 4)
    torch.testing.assert_close(layer(images), layer.embed(layer.norm(rows)))


def read(*shape):
    return _ShiftedPatches(8, 2, 1, 16)(torch.zeros(shape))


SHAPE = r"images must have shape \('batch', 1, 8, 8\)"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        *(
            (lambda k=k: VisionTransformer(8, k), f"size 8, patch {k}")
            for k in (3, 0, 1, 16)
        ),
        (lambda: read(2, 3, 8, 8), SHAPE),
        (lambda: read(2, 1, 8, 9), SHAPE),
        (lambda: read(1, 8, 8), SHAPE),
        (
            lambda: VisionTransformer(8, 2, width=10, heads=4),
            "the width: width 10, heads 4",
        ),
        (
            lambda: VisionTransformer(8, 2, shift="round"),
            "one of diagonal, cardinal, or None",
        ),
    ],
)
def test_sizes_that_do_not_fit_are_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def plain_small_data_vit(model, images, patch, heads, head_width):
    """Evaluate vit_for_small_dataset, written out from the description of its code.

    It has the weights of `model`. An image is joined with four copies that are moved by
    one pixel along the axes. Patches are flattened as rows, then columns, then
    channels, and pass a LayerNorm and a linear map. A class token comes first, and
    positions are added. Blocks have pre-norm attention, whose logits are q k exp(log
    temperature) and -inf on the diagonal, and a pre-norm MLP with GELU. The end is a
    LayerNorm and a linear map of the class token.
    """

    def linear(x, module):
        return x @ module.weight.T + module.bias

    def normed(x, module):
        return F.layer_norm(x, x.shape[-1:], module.weight, module.bias)

    moves = ((1, -1, 0, 0), (-1, 1, 0, 0), (0, 0, 1, -1), (0, 0, -1, 1))
    # (b, 5c, s, s)
    x = torch.cat([images, *(F.pad(images, move) for move in moves)], 1)
    b, c, s, _ = x.shape
    n = s // patch
    p = patch
    rows = []
    for i in range(n):
        for j in range(n):
            cell = x[:, :, i * p : (i + 1) * p, j * p : (j + 1) * p]
            rows.append(cell.permute(0, 2, 3, 1).reshape(b, p * p * c))
    # A patch's pixels are counted first here and its channels last, in `model` the
    # other way.
    order = torch.arange(c * p * p).reshape(c, -1).T.flatten()
    norm = model.tokens.norm
    embed = model.tokens.embed
    x = F.layer_norm(
        torch.stack(rows, 1), (c * p * p,), norm.weight[order], norm.bias[order]
    )
    x = x @ embed.weight[:, order].T + embed.bias
    x = torch.cat([model.class_token.repeat(b, 1, 1), x], 1) + model.positions
    T = x.shape[1]
    for block in model.blocks:
        attention = block.attention
        (norm, up, _, down) = block.mlp
        q, k, v = (normed(x, block.attention_norm) @ attention.project.weight.T).chunk(
            3, dim=-1
        )
        out = torch.zeros_like(q)
        for h in range(heads):
            part = slice(h * head_width, (h + 1) * head_width)
            # it multiplies by the temperature's exponential, ours divides
            dots = (
                q[..., part] @ k[..., part].mT * torch.exp(-attention.log_temperature)
            )
            dots[:, torch.arange(T), torch.arange(T)] = -torch.inf
            out[..., part] = dots.softmax(-1) @ v[..., part]
        x = x + linear(out, attention.merge)
        x = x + linear(F.gelu(linear(normed(x, norm), up)), down)
    return linear(normed(x[:, 0], model.head[0]), model.head[1])


@pytest.mark.parametrize(
    ("size", "patch", "channels", "width", "heads"),
    [(28, 7, 1, 24, 2), (16, 4, 3, 12, 3), (6, 2, 3, 10, 1)],
)
def test_with_its_weights_the_network_is_the_plain_writing_of_the_named_code(
    size, patch, channels, width, heads
):
    torch.manual_seed(3)
    model = VisionTransformer(
        size,
        patch,
        channels,
        classes=7,
        width=width,
        depth=2,
        heads=heads,
        hidden=20,
        shift="cardinal",
        head_width=64,
        start=1.0,
    ).double()
    for (
        parameter
    ) in model.parameters():  # norms and temperatures differ from their start too
        parameter.data += 0.1 * torch.randn_like(parameter)
    images = torch.randn(3, channels, size, size, dtype=torch.float64)
    plain = plain_small_data_vit(model, images, patch, heads, 64)
    torch.testing.assert_close(model(images), plain, rtol=0, atol=1e-11)


def test_class_token_and_positions_of_the_named_code_start_from_a_standard_normal():
    torch.manual_seed(0)
    model = VisionTransformer(
        28, 7, width=64, heads=2, shift="cardinal", head_width=64, start=1.0
    )
    values = torch.cat([model.class_token.flatten(), model.positions.flatten()])
    assert float(values.detach().std()) == pytest.approx(1, abs=0.05)


def test_of_three_blocks_all_are_passed_and_the_last_computes_one_token():
    torch.manual_seed(2)
    model = VisionTransformer(
        8, 4, width=8, depth=3, heads=2, hidden=12, shift="cardinal"
    )
    model = model.double()
    images = torch.randn(3, 1, 8, 8, dtype=torch.float64)
    plain = plain_small_data_vit(model, images, 4, 2, 4)
    torch.testing.assert_close(model(images), plain, rtol=0, atol=1e-11)


def test_class_token_and_positions_are_their_deviation_times_what_is_drawn(
    monkeypatch,
):
    monkeypatch.setattr(torch, "randn", lambda *shape: torch.full(shape, 4.0))
    model = VisionTransformer(8, 4, width=8, heads=2, start=0.5)
    torch.testing.assert_close(model.class_token.data, torch.full((1, 1, 8), 2.0))
    # four patches and the class token
    torch.testing.assert_close(model.positions.data, torch.full((1, 5, 8), 2.0))
