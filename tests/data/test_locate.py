"""Where image sets come from, and what happens when a place is named but broken."""

import hashlib
import io
import itertools
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from lib.data import hub, images, locate, parquet

REAL = os.environ.get("DATA_DIR")


def png(pixels) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.asarray(pixels, dtype=np.uint8)).save(stream, format="PNG")
    return stream.getvalue()


def write_split(
    folder: Path, split: str, images, labels, name="00000-of-00001", columns=("image", "label")
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    structs = pa.array(
        [{"bytes": content, "path": None} for content in images],
        pa.struct({"bytes": pa.binary(), "path": pa.string()}),
    )
    path = folder / f"{split}-{name}.parquet"
    pq.write_table(pa.table({columns[0]: structs, columns[1]: pa.array(labels)}), path)
    return path


def pictures(rows, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (rows, 28, 28), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A DATA_DIR with a small set laid out like MNIST; the fixture is its mnist/ folder."""
    for split, rows in (("train", 5), ("test", 3)):
        write_split(tmp_path / "mnist", split, [png(p) for p in pictures(rows)], list(range(rows)))
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    return tmp_path / "mnist"


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """No DATA_DIR, no data/, an empty hub cache."""
    monkeypatch.delenv("DATA_DIR", raising=False)
    monkeypatch.setattr(locate, "ROOT", tmp_path)
    monkeypatch.setattr(locate, "_cached", lambda source: None)
    for key in (
        "HF_HUB_OFFLINE",
        "HF_DATASETS_OFFLINE",
        "HF_ENDPOINT",
        "HTTPS_PROXY",
        "https_proxy",
        "HTTP_PROXY",
        "http_proxy",
    ):
        monkeypatch.delenv(key, raising=False)
    return tmp_path


def test_data_dir_comes_first_and_keeps_every_pixel(folder):
    train = images.load("mnist", "train")
    assert train.images.shape == (5, 1, 28, 28) and train.images.dtype == torch.uint8
    np.testing.assert_array_equal(train.images[:, 0].numpy(), pictures(5))
    assert train.labels.tolist() == [0, 1, 2, 3, 4] and train.labels.dtype == torch.int64
    identity = images.identity("mnist")
    assert (train.name, train.source, train.rows) == ("mnist", "data_dir", 8)
    assert identity == {
        "name": "mnist",
        "source": "data_dir",
        "rows": 8,
        "revision": train.revision,
    }
    assert len(train.revision) == 16


def test_shards_are_joined_in_order(folder):
    (folder / "train-00000-of-00001.parquet").unlink()
    for k in (1, 0):
        write_split(
            folder,
            "train",
            [png(pictures(2, seed=k)[j]) for j in range(2)],
            [k, k],
            name=f"0000{k}-of-00002",
        )
    assert images.load("mnist", "train").labels.tolist() == [0, 0, 1, 1]


def test_revision_follows_the_bytes(folder):
    before = images.identity("mnist")["revision"]
    assert images.identity("mnist")["revision"] == before
    write_split(folder, "test", [png(p) for p in pictures(3, seed=1)], [0, 1, 2])
    assert images.identity("mnist")["revision"] != before


def test_data_folder_of_the_repository_comes_second(folder, nowhere):
    shutil.copytree(folder, nowhere / "data" / "mnist")
    assert images.load("mnist", "test").source == "data"
    assert images.identity("mnist", demo=True)["source"] == "data"


def test_hub_layout_below_the_folder_is_found(folder):
    for path in list(folder.glob("*.parquet")):
        (folder / "mnist").mkdir(exist_ok=True)
        path.rename(folder / "mnist" / path.name)
    assert len(images.load("mnist", "test")) == 3


def test_relative_data_dir_counts_from_the_repository_too(folder, monkeypatch, tmp_path):
    monkeypatch.setattr(locate, "ROOT", tmp_path / "repository")
    (tmp_path / "repository").mkdir()
    monkeypatch.chdir(tmp_path / "repository")
    monkeypatch.setenv("DATA_DIR", "..")
    assert images.identity("mnist")["rows"] == 8
    (tmp_path / "repository" / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "repository" / "notebooks")
    assert images.identity("mnist")["rows"] == 8


@pytest.mark.parametrize("demo", [False, True])
def test_missing_data_dir(monkeypatch, tmp_path, demo):
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "gone"))
    for read in (
        lambda: images.load("mnist", "train", demo=demo),
        lambda: images.identity("mnist", demo=demo),
    ):
        with pytest.raises(FileNotFoundError, match=r"DATA_DIR=.*gone is not a folder.*unset"):
            read()


def test_data_dir_without_the_set(monkeypatch, tmp_path):
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"has no folder mnist/; put mnist/train"):
        images.load("mnist", "train")


def test_data_dir_without_a_split_or_shard(folder):
    (folder / "test-00000-of-00001.parquet").unlink()
    with pytest.raises(FileNotFoundError, match=r"lacks files test-\*\.parquet \(found none\)"):
        images.identity("mnist")
    (folder / "train-00000-of-00001.parquet").rename(folder / "train-00000-of-00002.parquet")
    with pytest.raises(FileNotFoundError, match="lacks files train"):
        images.load("mnist", "train")


@pytest.mark.parametrize("keep", [0, 100, -50])
def test_truncated_file(folder, keep):
    path = folder / "train-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes()[:keep])
    for read in (lambda: images.load("mnist", "train"), lambda: images.identity("mnist")):
        with pytest.raises(
            ValueError,
            match=r"train-00000-of-00001\.parquet is not a readable parquet file.*fetch it again",
        ):
            read()


def test_corrupt_pages(folder):
    path = folder / "train-00000-of-00001.parquet"
    content = bytearray(path.read_bytes())
    content[10:400] = bytes(390)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"train-00000-of-00001\.parquet"):
        images.load("mnist", "train")


def test_wrong_columns(folder):
    write_split(folder, "train", [png(pictures(1)[0])], [0], columns=("img", "label"))
    with pytest.raises(ValueError, match="lacks the column image; it has img, label"):
        images.load("mnist", "train")


def test_image_column_of_another_kind(folder):
    pq.write_table(
        pa.table({"image": [1, 2], "label": [0, 1]}), folder / "train-00000-of-00001.parquet"
    )
    with pytest.raises(ValueError, match="cannot be read"):
        images.load("mnist", "train")


@pytest.mark.parametrize("content", [b"no image", None, png(pictures(1)[0])[:60]])
def test_image_that_does_not_decode_is_named_by_row(folder, content):
    write_split(folder, "train", [png(pictures(1)[0]), content], [0, 1])
    with pytest.raises(ValueError, match=r"train-.*row 1: the image does not decode"):
        images.load("mnist", "train")


def test_image_of_another_size(folder):
    write_split(folder, "train", [png(np.zeros((28, 30)))], [0])
    with pytest.raises(ValueError, match="row 0: the image has 30 x 28 pixels, not 28 x 28"):
        images.load("mnist", "train")


@pytest.mark.parametrize("label", [10, -1, None])
def test_label_out_of_range(folder, label):
    write_split(folder, "train", [png(p) for p in pictures(2)], [3, label])
    with pytest.raises(ValueError, match=f"row 1: label {label} is not one of 0 ... 9"):
        images.load("mnist", "train")


def test_unknown_names():
    with pytest.raises(ValueError, match="unknown image set 'minst'; there is mnist, cifar10"):
        images.load("minst", "train")
    with pytest.raises(ValueError, match='split must be "train" or "test"'):
        images.load("mnist", "validation")


def test_embedded_digits_are_real_disjoint_and_fixed(nowhere, capsys):
    train, test = (images.load("mnist", split, demo=True) for split in ("train", "test"))
    assert (len(train), len(test), train.source, train.name) == (1437, 360, "demo", "digits")
    assert train.images.shape[1:] == (1, 8, 8) and int(train.images.max()) == 255
    from sklearn.datasets import load_digits

    both = torch.cat([train.images, test.images]).flatten(1).double() * (16 / 255)
    np.testing.assert_allclose(
        sorted(map(tuple, both.round().tolist())),
        sorted(map(tuple, load_digits().data.tolist())),
        atol=0,
    )
    assert torch.equal(images.load("mnist", "test", demo=True).labels, test.labels)
    assert capsys.readouterr().out == ""
    assert images.identity("mnist", demo=True) == {
        "name": train.name, "source": train.source, "revision": train.revision, "rows": 1797,
        "instead_of": "mnist",
    }  # fmt: skip


def test_offline_says_in_one_sentence_what_is_missing_and_what_runs(nowhere, monkeypatch, capsys):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert images.load("mnist", "test").source == "demo"
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    for part in (
        "mnist is missing",
        "DATA_DIR",
        "data/mnist",
        "hf download ylecun/mnist",
        "--revision 77f32790",
        "digits run instead",
    ):
        assert part in said


def serve(answer: bytes | None):
    """A local socket that accepts and sends `answer`, or stays silent for None: (address, stop)."""
    server = socket.create_server(("127.0.0.1", 0))
    held = []

    def accept():
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            held.append(connection)
            if answer is not None:
                connection.recv(4096)
                connection.sendall(answer)

    threading.Thread(target=accept, daemon=True).start()

    def stop():
        server.close()
        for connection in held:
            connection.close()

    return f"http://127.0.0.1:{server.getsockname()[1]}", stop


def test_silent_hub_is_given_up_in_under_five_seconds(nowhere, monkeypatch, capsys):
    address, stop = serve(None)
    monkeypatch.setenv("HF_ENDPOINT", address)
    begin = time.monotonic()
    train = images.load("mnist", "train")
    images.load("mnist", "test")
    images.identity("mnist")
    assert time.monotonic() - begin < 5  # in all: the hub is asked once
    stop()
    assert train.source == "demo"
    assert "the hub gave no answer" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "reachable"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 503 Down\r\nContent-Length: 0\r\n\r\n", False),
    ],
)
def test_hub_that_answers(nowhere, monkeypatch, answer, reachable):
    address, stop = serve(answer)
    monkeypatch.setenv("HF_ENDPOINT", address)
    assert hub.reachable() is reachable
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert hub.reachable() is False
    stop()


def drip(first: bytes, rest: bytes, every: float):
    """A local server that sends `first`, then a byte of `rest` at a time: (address, stop)."""
    server, ended = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def send(connection):
        try:
            connection.recv(4096)
            connection.sendall(first)
            for byte in itertools.cycle(rest):
                if ended.wait(every):
                    return
                connection.sendall(bytes([byte]))
        except OSError:
            return
        finally:
            connection.close()

    def accept():
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=send, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return f"http://127.0.0.1:{server.getsockname()[1]}", lambda: (ended.set(), server.close())


def ended_within(seconds: float, work) -> bool:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def test_a_hub_that_drips_its_headers_is_given_up(nowhere, monkeypatch):
    """Each byte comes within the socket's timeout; only the whole wait is too long."""
    address, stop = drip(b"HTTP/1.1 200 OK\r\nX-Slow: ", b"x", 0.05)
    monkeypatch.setenv("HF_ENDPOINT", address)
    found = []
    assert ended_within(10, lambda: found.append(hub.reachable(0.5))) and found == [False]
    stop()


def test_a_hub_that_answers_but_sends_no_file_is_given_up_once(nowhere, monkeypatch, capsys):
    address, stop = serve(None)
    monkeypatch.setenv("HF_ENDPOINT", address)
    monkeypatch.setattr(hub, "BYTE_SECONDS", 0.5)
    monkeypatch.setitem(hub._ANSWERS, address, (time.monotonic(), True))
    found = []
    work = lambda: found.extend(images.load("mnist", split).source for split in ("train", "test"))
    assert ended_within(20, work) and found == ["demo", "demo"]
    stop()
    said = capsys.readouterr().out
    assert said.count("the download broke off (TimeoutError)") == 1
    assert said.count("the hub gave no answer") == 1  # what the first look-up found is remembered


def test_a_slow_download_that_moves_goes_on(nowhere, monkeypatch):
    """One second in all, a piece each tenth: longer than the wait for a byte, but never silent."""

    def slow(repository, name, tqdm_class, **_):
        with tqdm_class(total=10, disable=True) as bar:
            for _ in range(10):
                time.sleep(0.1)
                bar.update(1)
        return name

    monkeypatch.setattr("huggingface_hub.hf_hub_download", slow)
    monkeypatch.setattr(hub, "BYTE_SECONDS", 0.6)
    assert hub.fetch("a/b", ["one"]) == [Path("one")]


def test_a_set_in_the_hub_s_cache_needs_every_file(folder, monkeypatch):
    paths = iter([str(folder / "train-00000-of-00001.parquet"), None])
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_, **__: next(paths))
    assert locate._cached(images.IMAGES["mnist"]) is None


def test_a_shard_without_numbers_is_named(folder):
    path = folder / "train-00000-of-00001.parquet"
    path.rename(folder / "train-a-of-b.parquet")
    with pytest.raises(ValueError, match=r"train-a-of-b\.parquet: a shard's name ends in .*rename"):
        images.load("mnist", "train")


def test_a_cache_that_takes_no_file_is_replaced_and_said_once(folder, monkeypatch, capsys):
    blocked = folder / "a file"
    blocked.write_text("no folder")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(blocked))
    parquet._cache.cache_clear()
    try:
        assert len(images.load("mnist", "train")) == 5 and len(images.load("mnist", "test")) == 3
        said = capsys.readouterr().out
        assert said.count("takes no files") == 1 and "HF_DATASETS_CACHE" in said
        assert Path(parquet._cache()).is_dir()
    finally:
        parquet._cache.cache_clear()


def test_a_disk_without_room_for_the_copy_is_one_sentence(folder, monkeypatch):
    import datasets

    def full(*_, **__):
        raise datasets.exceptions.DatasetGenerationError() from OSError(28, "No space left")

    monkeypatch.setattr(datasets.Dataset, "from_parquet", full)
    with pytest.raises(OSError, match="could not be written to .*No space left.*with room"):
        images.load("mnist", "train")


def test_a_reachable_hub_is_used_and_checked(folder, nowhere, monkeypatch):
    monkeypatch.setattr(hub, "reachable", lambda: True)
    assert images.identity("mnist") == {
        "name": "mnist",
        "source": "hub",
        "revision": images.IMAGES["mnist"].revision,
        "rows": 70_000,
    }
    monkeypatch.setattr(locate, "_download", lambda source: folder)
    test = images.load("mnist", "test")
    assert (len(test), test.source, test.revision) == (3, "hub", images.IMAGES["mnist"].revision)
    monkeypatch.undo()
    monkeypatch.setattr(
        "huggingface_hub.hf_hub_download",
        lambda *_, **__: str(folder / "test-00000-of-00001.parquet"),
    )
    with pytest.raises(ValueError, match="not the file that was pinned"):
        locate._download(images.IMAGES["mnist"])


def test_a_download_that_breaks_off_falls_back(nowhere, monkeypatch, capsys):
    def broken(source):
        raise ConnectionError("reset")

    monkeypatch.setattr(hub, "reachable", lambda: True)
    monkeypatch.setattr(locate, "_download", broken)
    assert images.load("mnist", "test").source == "demo"
    assert "the download broke off (ConnectionError)" in capsys.readouterr().out


def test_demo_leaves_the_hub_alone(nowhere, monkeypatch):
    monkeypatch.setattr(hub, "reachable", lambda: pytest.fail("the hub was asked"))
    assert images.identity("mnist", demo=True)["source"] == "demo"


def test_importing_the_module_is_light():
    heavy = {"torch", "datasets", "pyarrow", "sklearn", "PIL", "huggingface_hub"}
    code = (
        f"import sys, lib.data.locate, lib.data.images; print(sorted({heavy} & set(sys.modules)))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


def test_standardise_gives_zero_mean_and_unit_variance(nowhere):
    train = images.load("mnist", "train", demo=True)
    pixels = train.standardise()(train.images).double()
    assert float(pixels.mean()) == pytest.approx(0, abs=1e-6)
    assert float(pixels.std()) == pytest.approx(1, rel=1e-6)


def test_stand_ins_are_known_by_their_rows(nowhere):
    for name in images.IMAGES:
        found = images.identity(name, demo=True)
        digest = hashlib.sha256()
        for split in ("train", "test"):
            part = images.load(name, split, demo=True)
            for content in (part.images.numpy().tobytes(), part.labels.numpy().tobytes()):
                digest.update(hashlib.sha256(content).digest())
        assert found["revision"] == digest.hexdigest()[:16]
    assert len({images.identity(name, demo=True)["revision"] for name in images.IMAGES}) == 2


def test_first(nowhere):
    train = images.load("mnist", "train", demo=True)
    for rows in (0, -2):
        with pytest.raises(ValueError, match="rows must be 1 or more"):
            train.first(rows)
    assert torch.equal(train.first(7).images, train.images[:7]) and len(train.first(None)) == len(
        train
    )


@pytest.mark.skipif(
    not REAL, reason="DATA_DIR is not set: real MNIST is checked only where it is at hand"
)
def test_real_mnist():
    test = images.load("mnist", "test")
    assert test.images.shape == (10_000, 1, 28, 28)
    assert torch.bincount(test.labels).tolist() == [
        980,
        1135,
        1032,
        1010,
        982,
        892,
        958,
        1028,
        974,
        1009,
    ]
    assert float(test.images.double().mean()) == pytest.approx(33.7912, abs=1e-4)
    assert images.identity("mnist")["rows"] == 70_000
