"""CIFAR-10 and its stand-in, bad images named by row, and random crops and flips of batches."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from lib.data import images
from lib.training import augmentation
from lib.training.batches import Batches
from tests.data.test_locate import png, write_split

COLUMNS = ("img", "label")


def pictures(rows, seed=0, side=32):
    return np.random.default_rng(seed).integers(0, 256, (rows, side, side, 3), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder cifar10/ of a DATA_DIR: small, laid out as CIFAR-10 is, train in two shards."""
    for k in (0, 1):
        shard = [png(p) for p in pictures(4, seed=k)]
        write_split(
            tmp_path / "cifar10", "train", shard, [k] * 4, name=f"0000{k}-of-00002", columns=COLUMNS
        )
    write_split(
        tmp_path / "cifar10", "test", [png(p) for p in pictures(2, seed=2)], [8, 9], columns=COLUMNS
    )
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    return tmp_path / "cifar10"


def test_cifar10_keeps_every_pixel(folder):
    train = images.load("cifar10", "train")
    expected = np.concatenate([pictures(4, seed=0), pictures(4, seed=1)]).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(train.images.numpy(), expected)
    assert train.images.dtype == torch.uint8 and train.labels.tolist() == [0] * 4 + [1] * 4
    assert (train.name, train.source, train.rows) == ("cifar10", "data_dir", 10)


@pytest.mark.parametrize("rows", [1, 4, 5, 100])
def test_only_the_first_rows_are_read(folder, monkeypatch, rows):
    decoded = []
    decode = images._decode
    everything = images.load("cifar10", "train")
    monkeypatch.setattr(images, "_decode", lambda *given: decoded.append(1) or decode(*given))
    few = images.load("cifar10", "train", rows=rows)
    assert len(decoded) == len(few) == min(rows, 8)
    assert torch.equal(few.images, everything.images[:rows]) and torch.equal(
        few.labels, everything.labels[:rows]
    )


@pytest.mark.parametrize("rows", [0, -3])
def test_no_rows_is_refused(rows):
    with pytest.raises(ValueError, match="rows must be 1 or more"):
        images.load("cifar10", "train", demo=True, rows=rows)


def bad(kind):
    content = io.BytesIO()
    picture = pictures(1)[0]
    if kind == "grey":
        Image.fromarray(picture[..., 0]).save(content, "PNG")
    elif kind == "alpha":
        Image.fromarray(np.concatenate([picture, picture[..., :1]], -1)).save(content, "PNG")
    elif kind == "large":
        Image.fromarray(pictures(1, side=48)[0]).save(content, "PNG")
    return content.getvalue() if kind != "cut" else png(picture)[:200]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("grey", "row 2: the image has 1 channels .L., not 3"),
        ("alpha", "row 2: the image has 4 channels .RGBA., not 3"),
        ("large", "row 2: the image has 48 x 48 pixels, not 32 x 32"),
        ("cut", "row 2: the image does not decode"),
        ("empty", "row 2: the image does not decode"),
    ],
)
def test_a_bad_image_is_named_by_its_row(folder, kind, message):
    content = b"" if kind == "empty" else bad(kind)
    write_split(
        folder, "test", [*(png(p) for p in pictures(2)), content], [0, 1, 2], columns=COLUMNS
    )
    with pytest.raises(ValueError, match=rf"test-00000-of-00001\.parquet, {message}"):
        images.load("cifar10", "test")


def test_a_bad_label_is_named_by_its_row(folder):
    write_split(folder, "test", [png(p) for p in pictures(2)], [0, 10], columns=COLUMNS)
    with pytest.raises(ValueError, match=r"row 1: label 10 is not one of 0 \.\.\. 9"):
        images.load("cifar10", "test")


def test_pictures_that_are_drawn_here(monkeypatch):
    monkeypatch.delenv("DATA_DIR", raising=False)
    train, test = (images.load("cifar10", split, demo=True) for split in ("train", "test"))
    assert train.images.shape == (2000, 3, 32, 32) and test.images.shape == (500, 3, 32, 32)
    assert (train.source, train.name) == ("demo", "demo pictures")
    assert images.identity("cifar10", demo=True)["instead_of"] == "cifar10"
    assert torch.bincount(train.labels).tolist() == [200] * 10
    assert torch.equal(images.load("cifar10", "train", demo=True).images, train.images)
    # No test picture is a training picture, and stripes tell label k from k + 5 apart: level ones
    # vary along y.
    assert not set(map(bytes, test.images.numpy())) & set(map(bytes, train.images.numpy()))
    pixels = train.images.float()
    along_y, along_x = (pixels.diff(dim=axis).abs().mean((1, 2, 3)) for axis in (2, 3))
    level = along_y > along_x
    assert float((level == (train.labels < 5)).float().mean()) > 0.95


def test_standardise_equals_the_moments_of_the_pixels():
    train = images.load("cifar10", "train", demo=True, rows=300)
    out = train.standardise()(train.images).double()
    np.testing.assert_allclose(out.mean((0, 2, 3)).numpy(), 0, atol=1e-6)
    np.testing.assert_allclose(out.std((0, 2, 3)).numpy(), 1, rtol=1e-6)


def test_crop_and_flip_equal_slices_one_by_one():
    pixels = torch.from_numpy(pictures(6, side=8)).permute(0, 3, 1, 2).contiguous()
    top, left = torch.tensor([0, 1, 2, 3, 4, 2]), torch.tensor([4, 3, 2, 1, 0, 2])
    mirrored = torch.tensor([False, True, False, True, True, False])
    out = augmentation.crop_flip(pixels, top, left, mirrored, 2)
    wide = np.pad(pixels.numpy(), ((0, 0), (0, 0), (2, 2), (2, 2)))
    for k in range(6):
        cut = wide[k, :, top[k] : top[k] + 8, left[k] : left[k] + 8]
        np.testing.assert_array_equal(out[k].numpy(), cut[..., ::-1] if mirrored[k] else cut)
    # a crop from the middle changes nothing
    assert out.dtype == torch.uint8 and torch.equal(out[5], pixels[5])


def test_augmented_batches_depend_on_seed_and_step_alone():
    data = images.load("cifar10", "train", demo=True, rows=60)
    make = lambda seed: augmentation.AugmentedBatches(data.images, data.labels, 10, seed)
    first, again, other = make(0), make(0), make(1)
    again.batch(3)
    assert torch.equal(first.batch(7)[0], again.batch(7)[0])
    assert not torch.equal(first.batch(7)[0], other.batch(7)[0])
    # the same pictures and labels as without augmentation, but another crop in the next epoch
    plain = Batches(data.images, data.labels, 10, 0)
    assert torch.equal(first.batch(2)[1], plain.batch(2)[1])
    assert not torch.equal(first.batch(2)[0], plain.batch(2)[0])
    assert isinstance(first.to("cpu"), augmentation.AugmentedBatches)


def test_every_offset_of_a_crop_is_drawn():
    data = images.load("cifar10", "train", demo=True, rows=60)
    batches = augmentation.AugmentedBatches(data.images, data.labels, 60, 0)
    top, left, mirrored = (np.concatenate(v) for v in zip(*map(batches._draw, range(20))))
    for offsets in (top, left):
        assert set(offsets.tolist()) == set(range(9))  # 0 ... 2 padding, both ends among them
    assert 0.4 < mirrored.mean() < 0.6


def test_parts_of_an_augmented_batch_make_the_whole():
    data = images.load("cifar10", "train", demo=True, rows=60)
    whole = augmentation.AugmentedBatches(data.images, data.labels, 10, 0)
    parts = [whole.share(k, 2).batch(4) for k in range(2)]
    for place, expected in enumerate(whole.batch(4)):
        assert torch.equal(torch.cat([part[place] for part in parts]), expected)


def test_resize_keeps_a_constant_picture_and_the_given_size():
    data = images.load("cifar10", "train", demo=True, rows=5)
    standardise = data.standardise()
    out = augmentation.Resize(standardise, 48)(data.images)
    assert out.shape == (5, 3, 48, 48) and out.dtype == torch.float32
    assert torch.equal(augmentation.Resize(standardise, 32)(data.images), standardise(data.images))
    flat = torch.full((1, 3, 32, 32), 77, dtype=torch.uint8)
    big = augmentation.Resize(standardise, 48)(flat)
    torch.testing.assert_close(big, big[..., :1, :1].expand_as(big))
