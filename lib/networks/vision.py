"""The vision transformer for small data sets: shifted patches and locality attention.

The network comes from Lee, Lee and Song, "Vision Transformer for Small-Size Datasets"
(2021, arXiv 2112.13492). With its special parts switched off, it is the plain ViT of
paper C. Figures 6 and 7 of paper A use vit_for_small_dataset of the package
vit-pytorch. There, images are shifted by one pixel along the axes, heads have width 64,
and the class token and the positions start from N(0, 1) instead of 0.02 N(0, 1). In
shapes, b is the number of images, c the number of channels, s x s the pixels of an
image, p x p the pixels of a patch, T the number of tokens, h the number of heads, and
d_h the width of a head.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# The shifts (down, right) of the four copies of an image, as multiples of the offset.
SHIFTS = {
    "diagonal": ((1, 1), (1, -1), (-1, 1), (-1, -1)),
    "cardinal": ((0, 1), (0, -1), (1, 0), (-1, 0)),
}


def _shifted(images: Tensor, k: int, shift: str = "diagonal") -> Tensor:
    """Stack images (b, c, s, s) with four copies shifted by `k` pixels, (b, 5c, s, s).

    `shift` is a key of `SHIFTS`. Pixels of a shifted copy that lie outside the image
    are 0.
    """
    s = images.shape[-1]
    wide = F.pad(images, (k, k, k, k))  # (b, c, s + 2k, s + 2k)
    corners = [(k - k * down, k - k * right) for down, right in SHIFTS[shift]]
    copies = [wide[..., i : i + s, j : j + s] for i, j in corners]
    return torch.cat([images, *copies], dim=1)


def _patches(images: Tensor, patch: int) -> Tensor:
    """Cut `images` (b, c, s, s) into one row per patch, in reading order.

    The result has the shape (b, (s/p)², c p²).
    """
    return F.pixel_unshuffle(images, patch).flatten(2).mT


class _ShiftedPatches(nn.Module):
    """Tokens E LayerNorm(patches([x, four copies of x])).

    The copies are shifted by half a patch along the diagonals (`shift` "diagonal") or
    by one pixel along the axes ("cardinal"). If `shift` is None, there are no copies.
    Raises ValueError if the patch is below 2 or does not divide the size, or if `shift`
    is unknown.
    """

    def __init__(
        self,
        size: int,
        patch: int,
        channels: int,
        width: int,
        shift: str | None = "diagonal",
    ) -> None:
        super().__init__()
        if not 1 < patch <= size or size % patch:
            words = "patch must divide the image size and be 2 or more"
            raise ValueError(f"{words}: size {size}, patch {patch}")
        if shift is not None and shift not in SHIFTS:
            raise ValueError(
                f"shift {shift!r}: choose one of {', '.join(SHIFTS)}, or None"
            )
        self.size = size
        self.patch = patch
        self.channels = channels
        self.shift = shift
        self.offset = 1 if shift == "cardinal" else patch // 2
        pixels = channels * patch * patch
        if shift is not None:
            pixels *= 1 + len(SHIFTS[shift])  # the image and its shifted copies
        self.norm = nn.LayerNorm(pixels)
        self.embed = nn.Linear(pixels, width)

    def forward(self, images: Tensor) -> Tensor:
        """Compute the tokens (b, (s/p)², d) of images (b, c, s, s).

        Raises ValueError if the images have another shape.
        """
        expected = (self.channels, self.size, self.size)
        if images.ndim != 4 or images.shape[1:] != expected:
            words = f"images must have shape {('batch', *expected)}"
            raise ValueError(f"{words}, they have {tuple(images.shape)}")
        if self.shift:
            images = _shifted(images, self.offset, self.shift)
        return self.embed(self.norm(_patches(images, self.patch)))  # (b, T, d)


class _LocalityAttention(nn.Module):
    """Locality self-attention: softmax(M(q kᵀ / τ)) v per head.

    If `mask_diagonal` is True, M sets the diagonal to -∞. All heads share τ, which is
    sqrt(d_h) at the start. If `learn_temperature` is True, log τ is learned; otherwise
    τ is fixed. d_h is `head_width` or, if this is None, d / h. In the latter case,
    ValueError is raised if h does not divide d.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        mask_diagonal: bool = True,
        learn_temperature: bool = True,
        head_width: int | None = None,
    ) -> None:
        super().__init__()
        if head_width is None and width % heads:
            raise ValueError(
                f"heads must divide the width: width {width}, heads {heads}"
            )
        self.heads = heads
        self.mask_diagonal = mask_diagonal
        self.head_width = head_width or width // heads
        self.project = nn.Linear(width, 3 * heads * self.head_width, bias=False)
        self.merge = nn.Linear(heads * self.head_width, width)
        start = torch.tensor(0.5 * math.log(self.head_width))
        self.log_temperature = nn.Parameter(start, requires_grad=learn_temperature)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Compute softmax(M(q kᵀ / τ)) v, shaped like q, with the M and τ of the class.

        k and v have the shape (b, h, T, d_h), and q (b, h, Q, d_h) contains the queries
        of the first Q <= T tokens.
        """
        mask = None
        if self.mask_diagonal:
            diagonal = torch.eye(k.shape[-2], dtype=torch.bool, device=q.device)
            mask = ~diagonal[: q.shape[-2]]  # (queries, T)
        # The fused kernel accepts only a fixed scale, so the learned scale is
        # multiplied into q.
        q = q * torch.exp(-self.log_temperature)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0)

    def forward(self, tokens: Tensor, readers: int | None = None) -> Tensor:
        """Compute the tokens (b, T, d) after attention.

        With `readers`, only the first `readers` tokens are returned, (b, readers, d).
        """
        b, T, _ = tokens.shape
        parts = self.project(tokens).reshape(b, T, 3, self.heads, self.head_width)
        q, k, v = parts.permute(2, 0, 3, 1, 4)  # 3 x (b, h, T, d_h)
        # (b, readers, h, d_h)
        out = self.attend(q[:, :, :readers], k, v).transpose(1, 2)
        return self.merge(out.flatten(2))


class _EncoderBlock(nn.Module):
    """Pre-norm block: x ← x + Attention(LayerNorm(x)); x ← x + MLP(LayerNorm(x)).

    The MLP uses GELU.
    """

    def __init__(self, width: int, heads: int, hidden: int, **options: Any) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = _LocalityAttention(width, heads, **options)
        up = nn.Linear(width, hidden)
        down = nn.Linear(hidden, width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), up, nn.GELU(), down)

    def forward(self, tokens: Tensor, readers: int | None = None) -> Tensor:
        """Compute the tokens (b, T, d) after the block.

        With `readers`, only the first `readers` tokens are returned, (b, readers, d).
        """
        tokens = tokens[:, :readers] + self.attention(
            self.attention_norm(tokens), readers
        )
        return tokens + self.mlp(tokens)


class VisionTransformer(nn.Module):
    """The vision transformer for small data sets, and the plain one.

    The network consists of shifted patches, a class token, learned positions, blocks
    and a head. With `shift`, `mask_diagonal` and `learn_temperature` switched off, it
    is the plain ViT.

    Parameters
    ----------
    size : int
        The number of pixels of a side: images have the shape (b, channels, size, size).
    patch : int
        The number of pixels of a side of a patch. It must be 2 or more and divide
        `size`.
    channels : int, default 1
        Number of channels.
    classes : int, default 10
        Number of logits.
    width : int, default 64
        Width d of a token.
    depth : int, default 4
        Number of blocks, 1 or more.
    heads : int, default 4
        Number of heads per block. It must divide `width`, unless ``head_width`` is
        given.
    hidden : int, default 128
        Width of the MLP in a block.
    shift : {"diagonal", "cardinal", None}
        How the four copies of an image are shifted: by half a patch along the
        diagonals, or by one pixel along the axes. With None there are no copies.
    start : float, default 0.02
        Standard deviation of the class token and the positions at initialisation.
    **options : Any
        Options of attention: ``mask_diagonal`` and ``learn_temperature``, each True by
        default, and ``head_width``, which is width / heads by default.

    Raises
    ------
    ValueError
        If the patch is below 2 or does not divide the size, if the shift is unknown, or
        if the number of heads does not divide the width and ``head_width`` is not
        given. When the network is called, if the images have the wrong shape.
    TypeError
        If an option is unknown.

    Notes
    -----
    The network is due to Lee, Lee and Song, "Vision Transformer for Small-Size
    Datasets" (2021, arXiv 2112.13492). The plain ViT is that of paper C.

    Examples
    --------
    >>> import torch
    >>> from lib.networks import VisionTransformer
    >>> network = VisionTransformer(size=8, patch=4, width=8, depth=1, heads=2)
    >>> network.positions.shape  # four patches and the class token
    torch.Size([1, 5, 8])
    >>> network(torch.zeros(3, 1, 8, 8)).shape
    torch.Size([3, 10])
    """

    def __init__(
        self,
        size: int,
        patch: int,
        channels: int = 1,
        classes: int = 10,
        *,
        width: int = 64,
        depth: int = 4,
        heads: int = 4,
        hidden: int = 128,
        shift: str | None = "diagonal",
        start: float = 0.02,
        **options: Any,
    ) -> None:
        super().__init__()
        self.tokens = _ShiftedPatches(size, patch, channels, width, shift)
        self.class_token = nn.Parameter(start * torch.randn(1, 1, width))
        self.positions = nn.Parameter(
            start * torch.randn(1, (size // patch) ** 2 + 1, width)
        )
        blocks = (_EncoderBlock(width, heads, hidden, **options) for _ in range(depth))
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, classes))

    def forward(self, images: Tensor) -> Tensor:
        """Compute the logits of images.

        Parameters
        ----------
        images : Tensor of float (b, channels, size, size)
            The images.

        Returns
        -------
        Tensor (b, classes)
            The logits.

        Raises
        ------
        ValueError
            If the images have another shape.
        """
        tokens = self.tokens(images)  # (b, T - 1, d)
        first = self.class_token.expand(len(images), -1, -1)  # (b, 1, d)
        tokens = torch.cat([first, tokens], dim=1)  # (b, T, d)
        tokens = self.blocks[:-1](tokens + self.positions)
        # (b, 1, d): the other tokens are not used
        first = self.blocks[-1](tokens, readers=1)
        return self.head(first[:, 0])  # (b, classes)
