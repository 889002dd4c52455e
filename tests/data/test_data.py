"""Tests of data sets.

A failure means that a study trains on other rows than its record says, or on damaged
ones.
"""

import contextlib
import hashlib
import io
import json
import os
import socketserver
import threading
from http.client import HTTPException
from unittest.mock import Mock

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from lib.data import images, places, texts
from lib.networks import bert
from lib.training import batches as batch_room
from lib.training.batches import Batches, _crop_flip

PAIR = {
    "premise": ["A cat sits.", "It rains."],
    "hypothesis": ["A cat.", "It is dry."],
    "label": [0, 2],
}
COMMENT = {
    "text": ["fine words", "rude words", "in between"],
    "toxicity": [0.49, 0.5, 1.0],
}


def png(pixels, kind="PNG"):
    stream = io.BytesIO()
    Image.fromarray(np.asarray(pixels, np.uint8)).save(stream, kind)
    return stream.getvalue()


def pictures(rows, seed=0, shape=(32, 32, 3)):
    return np.random.default_rng(seed).integers(0, 256, (rows, *shape), dtype=np.uint8)


def write(folder, columns, split="train", number="00000-of-00001"):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{split}-{number}.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def encoded(contents, labels, column="img"):
    return {column: [{"bytes": c, "path": None} for c in contents], "label": labels}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Make a DATA_DIR with sentence pairs and a small cifar10/ in two train shards."""
    for k in (0, 1):
        shard = encoded(map(png, pictures(4, seed=k)), [k] * 4)
        write(tmp_path / "cifar10", shard, number=f"0000{k}-of-00002")
    write(tmp_path / "cifar10", encoded(map(png, pictures(2, seed=2)), [8, 9]), "test")
    for split in ("train", "validation_matched"):
        write(tmp_path / "multi_nli", PAIR, split)
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    for name in ("DATA_DIR", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(places, "ROOT", tmp_path)
    missing = Mock(side_effect=FileNotFoundError)
    monkeypatch.setattr("huggingface_hub.snapshot_download", missing)
    places.reachable.cache_clear()
    return tmp_path


def test_images_keep_every_pixel_and_say_where_they_are_from(home):
    train = images.load("cifar10", "train")
    expected = np.concatenate([pictures(4, seed=0), pictures(4, seed=1)]).transpose(
        0, 3, 1, 2
    )
    np.testing.assert_array_equal(train.images.numpy(), expected)
    assert (
        train.images.dtype == torch.uint8 and train.labels.tolist() == [0] * 4 + [1] * 4
    )
    digest = hashlib.sha256()
    for path in (
        *sorted((home / "cifar10").glob("train*")),
        *(home / "cifar10").glob("test*"),
    ):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    revision = digest.hexdigest()[:16]
    expected = {
        "name": "cifar10",
        "source": "data_dir",
        "revision": revision,
        "rows": 10,
    }
    assert images.identity("cifar10") == expected


@pytest.mark.parametrize("name", ["[1]", "*?", "a b~c", "Übung 数据", "100% #1"])
def test_a_folder_of_any_name_is_read(home, monkeypatch, name):
    expected = images.load("cifar10", "train").images
    (home / name).mkdir()
    (home / "cifar10").rename(home / name / "cifar10")
    monkeypatch.setenv("DATA_DIR", str(home / name))
    assert torch.equal(images.load("cifar10", "train").images, expected)


@pytest.mark.parametrize("rows", [1, 4, 5, 100])
def test_only_the_first_rows_are_decoded(home, monkeypatch, rows):
    decoded = []
    decode = images._decode
    everything = images.load("cifar10", "train")
    monkeypatch.setattr(
        images, "_decode", lambda *given: decoded.append(1) or decode(*given)
    )
    few = images.load("cifar10", "train", rows=rows)
    assert len(decoded) == len(few) == min(rows, 8)
    assert torch.equal(few.images, everything.images[:rows])
    assert torch.equal(few.labels, everything.labels[:rows])


def test_pairs_come_with_both_sentences_and_a_comment_is_toxic_from_one_half_on(home):
    test = texts.load("multi_nli", "test")
    assert (test.texts, test.pairs) == (PAIR["premise"], PAIR["hypothesis"])
    assert test.labels.tolist() == [0, 2] and test.labels.dtype == np.int64
    assert test.classes == 3 and texts.identity("multi_nli")["rows"] == 4
    for split in places.SPLITS:
        write(home / "civil_comments", COMMENT, split)
    assert texts.load("civil_comments", "train").labels.tolist() == [0, 1, 1]


def test_the_folder_data_comes_after_data_dir_and_before_all_else(nowhere, monkeypatch):
    for split in places.SPLITS:
        write(
            nowhere / "data" / "imdb", {"text": ["good", "bad"], "label": [1, 0]}, split
        )
    monkeypatch.setattr(
        places, "reachable", lambda *_: pytest.fail("the hub was asked")
    )
    assert texts.load("imdb", "train", demo=True).texts == ["good", "bad"]
    assert texts.identity("imdb", demo=True)["source"] == "data"
    monkeypatch.setenv("DATA_DIR", "data")  # a relative path starts at the repository
    monkeypatch.chdir(os.path.expanduser("~"))
    assert texts.identity("imdb")["source"] == "data_dir"


def among(content):
    """Return images of which the third is `content`."""
    return encoded([*map(png, pictures(2)), content], [0, 1, 2])


@pytest.mark.parametrize(
    ("name", "columns", "complaint"),
    [
        ("multi_nli", PAIR | {"hypothesis": ["x", None]}, "row 1: hypothesis"),
        ("multi_nli", PAIR | {"premise": ["x", "  "]}, "row 1: premise"),
        ("multi_nli", PAIR | {"premise": [1, 2]}, "row 0: premise"),
        ("multi_nli", PAIR | {"label": [0, 3]}, "row 1: label 3"),
        ("multi_nli", PAIR | {"label": [0, -1]}, "row 1: label -1"),
        ("multi_nli", PAIR | {"label": [0, None]}, "row 1: label None"),
        ("multi_nli", {"premise": ["a"], "label": [0]}, "column hypothesis"),
        (
            "civil_comments",
            COMMENT | {"toxicity": [0, 0.1, 1.01]},
            "row 2: toxicity 1.01",
        ),
        (
            "civil_comments",
            COMMENT | {"toxicity": [0, None, 1.0]},
            "row 1: toxicity None",
        ),
        ("cifar10", {"img": [1], "label": [0]}, "img"),
        ("cifar10", encoded([b""], [0], "image"), "column img"),
        ("cifar10", encoded(map(png, pictures(1)), [10]), "row 0: label 10"),
        ("cifar10", among(png(pictures(1)[0][..., 0])), "row 2: .*1 channels"),
        ("cifar10", among(png(np.zeros((32, 32, 4)))), "row 2: .*4 channels"),
        ("cifar10", among(png(pictures(1, shape=(48, 48, 3))[0])), "row 2: .*48 x 48"),
        ("cifar10", among(png(pictures(1)[0])[:200]), "row 2: .*decode"),
        ("cifar10", among(b""), "row 2: .*decode"),
        ("cifar10", among(None), "row 2: .*decode"),
    ],
)
def test_bad_rows_and_columns_are_named(home, name, columns, complaint):
    for path in (home / name).glob("train*"):
        path.unlink()
    for split in ("train", "test", "validation_matched"):
        write(home / name, columns, split)
    with pytest.raises(ValueError, match=complaint):
        (images if name == "cifar10" else texts).load(name, "train")


def test_a_place_or_file_that_cannot_be_read_is_named(home, monkeypatch):
    folder = home / "multi_nli"
    path = folder / "train-00000-of-00001.parquet"

    def load():
        return texts.load("multi_nli", "train")

    whole = path.read_bytes()
    for content in (b"", whole[:100], whole[:-50], whole[:10] + bytes(60) + whole[70:]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=path.name):
            load()
    path.write_bytes(whole[:100])
    with pytest.raises(ValueError, match=path.name):
        texts.identity("multi_nli")
    for name in ("train-00000-of-00002.parquet", "train-a-of-b.parquet"):
        path = path.rename(folder / name)
        with pytest.raises(FileNotFoundError, match=name):
            load()
    with pytest.raises(FileNotFoundError, match="imdb/"):
        texts.load("imdb", "train")
    monkeypatch.setenv("DATA_DIR", str(home / "gone"))
    for demo in (False, True):
        with pytest.raises(FileNotFoundError, match=r"DATA_DIR=.*gone"):
            images.identity("mnist", demo=demo)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: texts.load("mnli", "train"), "'mnli'.* multi_nli, civil"),
        (lambda: images.load("minst", "train"), "'minst'.* mnist, cifar"),
        (
            lambda: texts.load("multi_nli", "train").hold_out(0),
            "rows must be above 0, below all 2",
        ),
        (
            lambda: texts.load("multi_nli", "train").hold_out(2),
            "rows must be above 0, below all 2",
        ),
        *(
            (lambda rows=rows: images.load("mnist", "train", rows=rows), "rows = ")
            for rows in (-5, 0, 1.5)
        ),
        *(
            (lambda rows=rows: texts.load("multi_nli", "train").sample(rows), "rows = ")
            for rows in (-1, 0, 1.5)
        ),
        (
            lambda: texts.load("multi_nli", "train").balanced(8, 3),
            "no row within 3 char",
        ),
    ],
)
def test_an_unknown_name_and_a_count_that_cannot_be_are_refused(home, call, named):
    with pytest.raises(ValueError, match=named):
        call()


def test_a_disk_without_room_for_the_copy_is_one_sentence(home, monkeypatch):
    def full(*_, **__):
        raise datasets.exceptions.DatasetGenerationError() from OSError(
            28, "No space left"
        )

    monkeypatch.setattr(datasets, "load_dataset", full)
    with pytest.raises(
        ValueError, match="not copied to HF_DATASETS_CACHE .*No space left"
    ):
        images.load("cifar10", "train")


def test_the_hub_is_read_at_the_pinned_revision(home, nowhere, monkeypatch):
    asked = []

    def hub(path, revision, split):
        asked.append((path, revision, split))
        if len(asked) > 1:
            raise ConnectionError
        return datasets.Dataset.from_dict(PAIR)

    monkeypatch.setattr(places, "reachable", lambda *_: True)
    monkeypatch.setattr(datasets, "load_dataset", hub)
    source = places.SOURCES["multi_nli"]
    assert texts.load("multi_nli", "test").pairs == PAIR["hypothesis"]
    assert asked == [("nyu-mll/multi_nli", source.revision, "validation_matched")]
    about = {
        "name": "multi_nli",
        "source": "hub",
        "revision": source.revision,
        "rows": 402_517,
    }
    assert texts.identity("multi_nli") == about
    with pytest.raises(
        FileNotFoundError, match="the download broke off .ConnectionError"
    ):
        texts.load("multi_nli", "test")


REVISION = "0123456789" * 4
PAGE = b"<html><title>Welcome to the hotel's network</title></html>"


def response(body, status="200 OK", *headers, length=None):
    """What a server sends: status, headers, body."""
    size = len(body) if length is None else length
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {size}", "", ""]
    return "\r\n".join(lines).encode() + body


def named(revision):
    return json.dumps({"id": "who/what", "sha": revision}).encode()


WELL = response(named(REVISION))
HEAD = WELL.index(b"\r\n\r\n") + 4
# What a hub sends in each way to misbehave: pieces, with a pause after each.
BADLY = {
    "closes at once": [],
    "stays silent": [b"", WELL],
    "drips its headers": [WELL[k : k + 1] for k in range(HEAD)] + [WELL[HEAD:]],
    "drips its answer": [WELL[:HEAD]] + [WELL[k : k + 1] for k in range(HEAD, 200)],
    "sends headers alone": [WELL[:HEAD], WELL[HEAD:]],
    "breaks off": [response(named(REVISION)[:-9], length=len(named(REVISION)))],
    "redirects for ever": [response(b"", "302 Found", "Location: /again")],
    "wants to be asked later": [response(b"", "429 Too Many", "Retry-After: 300")],
    "is down": [response(b"", "503 Down")],
    "has no such page": [response(b"", "404 Not Found")],
    "sends garbage": [bytes(range(1, 256)) * 9],
    "sends headers without end": [b"HTTP/1.1 200 OK\r\n" + b"X: 1\r\n" * 2000],
    "is the page of a network": [response(PAGE, "200 OK", "Content-Type: text/html")],
    "sends nothing": [response(b"")],
    "sends a list": [response(b"[1]")],
    "sends deep nests": [response(b"[" * 100_000)],
    "has another commit": [response(named("f" * 40))],
    "names none": [response(b'{"id": "who/what"}')],
}
PAUSE = 1.0  # seconds, longer than the probe waits in these tests


@pytest.fixture
def hub(nowhere, monkeypatch):
    """A local server in the hub's place, which sends its `pieces` to whoever asks."""

    class Hub(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False
        pieces = [WELL]
        stopped = threading.Event()

    class Answer(socketserver.BaseRequestHandler):
        def handle(self):
            with contextlib.suppress(OSError):  # who asked may have gone
                self.request.recv(4096)
                for place, piece in enumerate(self.server.pieces):
                    if place and self.server.stopped.wait(PAUSE):
                        return
                    self.request.sendall(piece)

    with Hub(("127.0.0.1", 0), Answer) as server:
        monkeypatch.setenv(
            "HF_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}"
        )
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.stopped.set()
        server.shutdown()
        thread.join()


def asked():
    return places.reachable("who/what", REVISION, "datasets")


def test_a_hub_that_has_the_commit_is_reachable(hub, monkeypatch):
    monkeypatch.setattr(places, "PROBE_SECONDS", 60)
    assert asked()
    places.reachable.cache_clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert not asked()


@pytest.mark.parametrize("manner", BADLY)
def test_a_hub_that_misbehaves_is_given_up_within_one_deadline(
    hub, monkeypatch, manner
):
    # Whoever waited for the last piece would find a hub that answers well.
    monkeypatch.setattr(places, "PROBE_SECONDS", 0.3)
    hub.pieces = BADLY[manner]
    assert not asked()
    with pytest.raises(FileNotFoundError) as caught:
        images.load("mnist", "train")
    assert "the hub gave no answer; on a connected" in str(caught.value)
    monkeypatch.delenv("BERT_DIR", raising=False)
    assert bert.weights().source == "package"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Dataset scripts are no longer supported"),
        EOFError(),
        HTTPException("garbage"),
        ConnectionResetError(),
        json.JSONDecodeError("Expecting\nvalue", PAGE.decode(), 0),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_hub_that_fails_after_its_first_answer_is_one_sentence(
    nowhere, monkeypatch, error
):
    broken = Mock(side_effect=error)
    monkeypatch.setattr(places, "reachable", lambda *_: True)
    monkeypatch.setattr(datasets, "load_dataset", broken)
    with pytest.raises((FileNotFoundError, ValueError)) as caught:
        images.load("mnist", "train")
    assert "mnist" in str(caught.value) and "\n" not in str(caught.value)
    monkeypatch.setattr("huggingface_hub.snapshot_download", broken)
    monkeypatch.delenv("BERT_DIR", raising=False)
    assert bert.weights().source == "package"


def test_a_copy_of_bert_that_lacks_a_file_is_not_used(nowhere, monkeypatch, tmp_path):
    monkeypatch.delenv("BERT_DIR", raising=False)
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda *_, **__: str(tmp_path)
    )
    for name in bert.FILES[:-1]:
        (tmp_path / name).write_text("{}")
    assert bert.weights().source == "package"
    (tmp_path / bert.FILES[-1]).write_bytes(b"")
    assert bert._hub_folder() == tmp_path


def test_a_silent_hub_is_given_up_and_what_to_do_is_said(hub, monkeypatch):
    monkeypatch.setattr(places, "PROBE_SECONDS", 0.3)
    hub.pieces = BADLY["stays silent"]
    with pytest.raises(FileNotFoundError, match="the hub gave no answer") as caught:
        images.load("mnist", "train")
    for part in ("is missing", "DATA_DIR", "data/mnist", "hf download", "--revision"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "name", "sizes", "called"),
    [
        (images, "mnist", (1437, 360), "digits"),
        (images, "cifar10", (2000, 500), "demo pictures"),
        (texts, "multi_nli", (2000, 500), "demo pairs"),
        (texts, "civil_comments", (2000, 500), "demo comments"),
        (texts, "imdb", (2000, 500), "demo reviews"),
    ],
)
def test_stand_ins_are_fixed_disjoint_and_known_by_their_rows(
    nowhere, kind, name, sizes, called
):
    parts = [kind.load(name, split, demo=True) for split in places.SPLITS]
    assert tuple(map(len, parts)) == sizes
    identity = kind.identity(name, demo=True)
    revision = identity["revision"]  # every record made on these data quotes it
    expected = {
        "name": called,
        "source": "demo",
        "revision": revision,
        "rows": sum(sizes),
    }
    assert identity == expected | {"instead_of": name}
    rows = [
        set(
            map(bytes, p.images.numpy())
            if kind is images
            else zip(p.texts, p.pairs or p.texts, strict=True)
        )
        for p in parts
    ]
    assert not rows[0] & rows[1]
    if name != "mnist":
        assert len(set(np.bincount(np.asarray(parts[0].labels)) // 2)) == 1


def test_a_sample_and_a_part_held_out_are_drawn_once(nowhere):
    train = texts.load("multi_nli", "train", demo=True)
    few = train.sample(30)
    assert (
        len(few) == 30
        and few.texts == train.sample(30).texts
        and train.sample(9999) is train
    )
    place = {
        pair: k for k, pair in enumerate(zip(train.texts, train.pairs, strict=True))
    }
    rows = [place[pair] for pair in zip(few.texts, few.pairs, strict=True)]
    assert few.labels.tolist() == train.labels[rows].tolist() and len(set(rows)) == 30
    rest, held = train.hold_out(500)
    assert (len(rest), len(held)) == (1500, 500)
    assert sorted(rest.texts + held.texts) == sorted(train.texts)


def test_standardise_equals_the_moments_of_the_pixels(nowhere):
    train = images.load("cifar10", "train", demo=True, rows=300)
    out = train.standardise()(train.images).double()
    np.testing.assert_allclose(out.mean((0, 2, 3)).numpy(), 0, atol=1e-6)
    np.testing.assert_allclose(out.std((0, 2, 3)).numpy(), 1, rtol=1e-6)
    assert torch.equal(train[:7].images, train.images[:7]) and len(train[5:]) == 295


def test_crop_and_flip_equal_slices_one_by_one(monkeypatch):
    pixels = (
        torch.from_numpy(pictures(6, shape=(8, 8, 3))).permute(0, 3, 1, 2).contiguous()
    )
    top = torch.tensor([0, 1, 2, 3, 4, 2])
    left = torch.tensor([4, 3, 2, 1, 0, 2])
    mirrored = torch.tensor([False, True, False, True, True, False])
    monkeypatch.setattr(batch_room, "BORDER", 2)
    out = _crop_flip(pixels, top, left, mirrored)
    wide = np.pad(pixels.numpy(), ((0, 0), (0, 0), (2, 2), (2, 2)))
    for k in range(6):
        cut = wide[k, :, top[k] : top[k] + 8, left[k] : left[k] + 8]
        np.testing.assert_array_equal(
            out[k].numpy(), cut[..., ::-1] if mirrored[k] else cut
        )
    # a crop from the middle
    assert out.dtype == torch.uint8 and torch.equal(out[5], pixels[5])


def test_augmented_batches_depend_on_seed_and_step_alone(monkeypatch):
    data = torch.from_numpy(pictures(60)).permute(0, 3, 1, 2).contiguous()

    def make(seed, size=10):
        return Batches(data, torch.arange(60), size, seed, crops=True)

    first = make(0)
    again = make(0)
    plain = Batches(data, torch.arange(60), 10, 0)
    again.batch(3)
    assert torch.equal(first.batch(7)[0], again.batch(7)[0])
    assert not torch.equal(first.batch(7)[0], make(1).batch(7)[0])
    # the same rows as without augmentation, but other pictures
    assert torch.equal(first.batch(2)[1], plain.batch(2)[1])
    assert not torch.equal(first.batch(2)[0], plain.batch(2)[0])
    parts = zip(*(first.on("cpu", (k, 2)).batch(4) for k in range(2)), strict=True)
    assert all(map(torch.equal, map(torch.cat, parts), first.batch(4)))
    drawn = []

    def keep(images, *offsets):
        return drawn.append(torch.stack(offsets)) or images

    monkeypatch.setattr("lib.training.batches._crop_flip", keep)
    make(1, 60).batch(0)
    (other,) = drawn
    drawn.clear()
    for step in range(20):
        make(0, 60).batch(step)
    assert not torch.equal(drawn[0], other)
    top, left, flipped = torch.cat(drawn, 1)
    # 0 ... 2 borders, both ends
    assert set(top.tolist()) == set(left.tolist()) == set(range(9))
    assert 0.4 < float(flipped.double().mean()) < 0.6


def test_a_balanced_sample_is_drawn_alike_by_whoever_has_the_rows():
    labels = np.array([0] * 30 + [1] * 6)
    words = [f"row {k} " + "x" * (k % 10) for k in range(36)]
    whole = texts.TextSet(words, labels, 2, "invented")
    part = whole.balanced(8, 14)
    assert np.bincount(part.labels).tolist() == [4, 4]
    assert max(map(len, part.texts)) <= 14 and len(set(part.texts)) == 8
    assert (
        part.content()
        == whole.balanced(8, 14).content()
        != whole.balanced(6, 14).content()
    )
    # each class has as many rows as the rarer one
    assert len(whole.balanced(1000, 100)) == 12
