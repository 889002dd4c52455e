"""The vision transformer's pieces against explicit formulas."""

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

DTYPES = {torch.float32: 1e-6, torch.float64: 1e-12}


def random_heads(dtype, T=7):
    torch.manual_seed(1)
    return torch.randn(3, 2, 4, T, 8, dtype=dtype).unbind(0)  # q, k, v: (b, h, T, d_h)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("masked", [True, False])
def test_attention_equals_the_formula(dtype, masked):
    q, k, v = random_heads(dtype)
    layer = _LocalityAttention(32, 4, mask_diagonal=masked).to(dtype)
    temperature = 1.7
    layer.log_temperature.data = torch.tensor(math.log(temperature), dtype=dtype)
    weights = torch.exp(q @ k.mT / temperature) * (1 - torch.eye(7, dtype=dtype) * masked)
    expected = weights / weights.sum(-1, keepdim=True) @ v
    torch.testing.assert_close(layer.attend(q, k, v), expected, rtol=0, atol=10 * DTYPES[dtype])


def test_temperature_starts_at_the_root_of_the_head_width_and_learns():
    layer = _LocalityAttention(32, 4)
    assert float(torch.exp(layer.log_temperature.detach())) == pytest.approx(math.sqrt(8), rel=1e-6)
    layer(torch.randn(2, 5, 32)).square().sum().backward()
    assert layer.log_temperature.grad.abs() > 0


def test_shifted_copies_move_along_the_diagonals():
    image = torch.arange(1.0, 17.0).reshape(1, 1, 4, 4)
    copies = _shifted(image, 1)
    assert copies.shape == (1, 5, 4, 4)
    assert torch.equal(copies[:, :1], image)
    assert torch.equal(copies[0, 1, 1:, 1:], image[0, 0, :-1, :-1])  # down and right
    assert torch.equal(copies[0, 4, :-1, :-1], image[0, 0, 1:, 1:])  # up and left
    assert copies[0, 1, 0].abs().sum() == 0 and copies[0, 4, :, -1].abs().sum() == 0


def test_patches_keep_every_pixel_in_reading_order():
    image = torch.arange(2 * 6 * 6).reshape(1, 2, 6, 6)
    rows = _patches(image, 3)
    assert rows.shape == (1, 4, 18)
    assert torch.equal(rows[0, 1], image[0, :, 0:3, 3:6].reshape(-1))
    assert torch.equal(rows[0, 2], image[0, :, 3:6, 0:3].reshape(-1))


def test_shapes_and_a_gradient_for_every_parameter():
    torch.manual_seed(0)
    model = VisionTransformer(12, 4, channels=3, classes=7, width=16, depth=2, heads=2, hidden=24)
    logits = model(torch.randn(5, 3, 12, 12))
    assert logits.shape == (5, 7)
    F.cross_entropy(logits, torch.arange(5)).backward()
    assert [
        name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0
    ] == []


def test_tokens_are_those_of_images_shifted_by_half_a_patch():
    layer = _ShiftedPatches(12, 4, channels=3, width=16)
    images = torch.randn(2, 3, 12, 12)
    rows = _patches(_shifted(images, 2), 4)
    torch.testing.assert_close(layer(images), layer.embed(layer.norm(rows)))


@pytest.mark.parametrize("patch", [3, 0, 1, 16])
def test_patch_must_divide_the_image(patch):
    with pytest.raises(ValueError, match=f"patch must divide.*size 8, patch {patch}"):
        VisionTransformer(8, patch)


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (2, 1, 8, 9), (1, 8, 8), (2, 1, 4, 4)])
def test_images_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"images must have shape \('batch', 1, 8, 8\)"):
        _ShiftedPatches(8, 2, 1, 16)(torch.zeros(shape))


def test_heads_must_divide_the_width():
    with pytest.raises(ValueError, match="heads must divide the width: width 10, heads 4"):
        VisionTransformer(8, 2, width=10, heads=4)


def plain_small_data_vit(weights, images, patch, heads, head_width):
    """vit_for_small_dataset written out, from the description of its code alone.

    Beside an image its four copies moved by one pixel along the axes; patches as rows, then
    columns, then channels; LayerNorm and a linear map; a class token first, positions added; blocks
    of pre-norm attention, whose logits are q k exp(log temperature) and -inf on the diagonal, and
    of a pre-norm MLP with GELU; LayerNorm and a linear map of the class token.
    """
    w = weights
    moves = ((1, -1, 0, 0), (-1, 1, 0, 0), (0, 0, 1, -1), (0, 0, -1, 1))
    x = torch.cat([images, *(F.pad(images, move) for move in moves)], 1)  # (b, 5c, s, s)
    b, c, s, _ = x.shape
    n, p = s // patch, patch
    rows = []
    for i in range(n):
        for j in range(n):
            cell = x[:, :, i * p : (i + 1) * p, j * p : (j + 1) * p]
            rows.append(cell.permute(0, 2, 3, 1).reshape(b, p * p * c))
    x = torch.stack(rows, 1)
    x = F.layer_norm(x, x.shape[-1:], w["norm.weight"], w["norm.bias"])
    x = x @ w["embed.weight"].T + w["embed.bias"]
    x = torch.cat([w["class_token"].repeat(b, 1, 1), x], 1) + w["positions"]
    T, d = x.shape[1:]
    for block in w["blocks"]:
        y = F.layer_norm(x, (d,), *block["attention_norm"])
        q, k, v = (y @ block["qkv"].T).chunk(3, dim=-1)
        out = torch.zeros_like(q)
        for h in range(heads):
            part = slice(h * head_width, (h + 1) * head_width)
            dots = q[..., part] @ k[..., part].mT * torch.exp(block["temperature"])
            dots[:, torch.arange(T), torch.arange(T)] = -torch.inf
            out[..., part] = dots.softmax(-1) @ v[..., part]
        x = x + out @ block["out"][0].T + block["out"][1]
        y = F.layer_norm(x, (d,), *block["mlp_norm"])
        y = F.gelu(y @ block["up"][0].T + block["up"][1])
        x = x + y @ block["down"][0].T + block["down"][1]
    first = F.layer_norm(x[:, 0], (d,), *w["head_norm"])
    return first @ w["head"][0].T + w["head"][1]


@pytest.mark.parametrize(
    ("size", "patch", "channels", "width", "heads"),
    [(28, 7, 1, 24, 2), (16, 4, 3, 12, 3), (6, 2, 3, 10, 1)],
)
def test_with_its_weights_copied_the_network_is_the_plain_writing_of_the_named_code(
    size, patch, channels, width, heads
):
    torch.manual_seed(3)
    model = VisionTransformer(
        size, patch, channels, 7, width, 2, heads, 20, shift="cardinal", head_width=64, start=1.0
    ).double()
    for parameter in model.parameters():  # norms and temperatures too: none at its start
        parameter.data += 0.1 * torch.randn_like(parameter)
    # The plain writing counts a patch's pixels first and its channels last.
    order = torch.arange(5 * channels * patch * patch).reshape(5 * channels, -1).T.flatten()
    pair = lambda module: (module.weight, module.bias)
    weights = {
        "norm.weight": model.tokens.norm.weight[order],
        "norm.bias": model.tokens.norm.bias[order],
        "embed.weight": model.tokens.embed.weight[:, order],
        "embed.bias": model.tokens.embed.bias,
        "class_token": model.class_token,
        "positions": model.positions,
        "head_norm": pair(model.head[0]),
        "head": pair(model.head[1]),
        "blocks": [
            {
                "attention_norm": pair(block.attention_norm),
                "qkv": block.attention.project.weight,
                # it multiplies by the temperature's exponential, ours divides
                "temperature": -block.attention.log_temperature,
                "out": pair(block.attention.merge),
                "mlp_norm": pair(block.mlp[0]),
                "up": pair(block.mlp[1]),
                "down": pair(block.mlp[3]),
            }
            for block in model.blocks
        ],
    }
    images = torch.randn(3, channels, size, size, dtype=torch.float64)
    plain = plain_small_data_vit(weights, images, patch, heads, 64)
    torch.testing.assert_close(model(images), plain, rtol=0, atol=1e-11)


def test_class_token_and_positions_of_the_named_code_start_from_a_standard_normal():
    torch.manual_seed(0)
    model = VisionTransformer(28, 7, width=64, heads=2, shift="cardinal", head_width=64, start=1.0)
    values = torch.cat([model.class_token.flatten(), model.positions.flatten()])
    assert float(values.detach().std()) == pytest.approx(1, abs=0.05)
    assert float(model.blocks[0].attention.log_temperature.detach()) == pytest.approx(
        math.log(64**0.5)
    )


def test_cardinal_copies_move_along_the_axes():
    image = torch.arange(1.0, 17.0).reshape(1, 1, 4, 4)
    copies = _shifted(image, 1, "cardinal")
    assert torch.equal(copies[0, 1, :, 1:], image[0, 0, :, :-1])  # right
    assert torch.equal(copies[0, 4, :-1], image[0, 0, 1:])  # up
    assert copies[0, 1, :, 0].abs().sum() == 0 and copies[0, 4, -1].abs().sum() == 0
    with pytest.raises(ValueError, match="choose one of diagonal, cardinal, or None"):
        _ShiftedPatches(8, 2, 1, 16, shift="round")
