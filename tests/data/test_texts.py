"""Where text sets come from, what their labels are, and which rows are refused."""

import os
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lib.data import hub, locate, stand_in_texts, texts
from tests.data.test_locate import serve

REAL = os.environ.get("DATA_DIR")
PAIR = {
    "premise": ["A cat sits.", "It rains."],
    "hypothesis": ["A cat.", "It is dry."],
    "label": [0, 2],
}
COMMENT = {"text": ["fine words", "rude words", "in between"], "toxicity": [0.49, 0.5, 1.0]}
SPLITS = {"multi_nli": ("train", "validation_matched")}


def write(folder, columns, splits=("train", "test")):
    folder.mkdir(parents=True, exist_ok=True)
    for split in splits:
        pq.write_table(pa.table(columns), folder / f"{split}-00000-of-00001.parquet")
    return folder


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    monkeypatch.delenv("DATA_DIR", raising=False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(locate, "ROOT", tmp_path)
    monkeypatch.setattr(locate, "_cached", lambda source: None)
    return tmp_path


def test_pairs_from_data_dir(home):
    write(home / "multi_nli", PAIR, SPLITS["multi_nli"])
    test = texts.load("multi_nli", "test")
    assert (test.texts, test.pairs) == (PAIR["premise"], PAIR["hypothesis"])
    assert test.labels.tolist() == [0, 2] and test.labels.dtype == np.int64
    assert (test.classes, test.source, test.rows) == (3, "data_dir", 4)
    identity = texts.identity("multi_nli")
    assert identity == {
        "name": "multi_nli",
        "source": "data_dir",
        "revision": test.revision,
        "rows": 4,
    }


@pytest.mark.parametrize("name", texts.TEXTS)
def test_train_and_test_are_read_from_their_own_files(home, name):
    source = texts.TEXTS[name]
    for k, split in enumerate(source.splits):
        rows = {column: [f"{split} {column}"] for column in source.columns} | {source.label: [k]}
        write(home / name, rows, (split,))
    for k, split in enumerate(("train", "test")):
        part = texts.load(name, split)
        assert part.texts == [f"{source.splits[k]} {source.columns[0]}"]
        assert part.labels.tolist() == [k]
        if part.pairs:
            assert part.pairs == [f"{source.splits[k]} hypothesis"]


def test_a_comment_is_toxic_from_one_half_on(home):
    write(home / "civil_comments", COMMENT)
    train = texts.load("civil_comments", "train")
    assert train.labels.tolist() == [0, 1, 1] and train.pairs is None and train.groups is None


def test_data_folder_comes_after_data_dir(nowhere):
    write(nowhere / "data" / "imdb", {"text": ["good", "bad"], "label": [1, 0]})
    assert texts.load("imdb", "train", demo=True).source == "data"


def wilds(folder, **changes):
    folder.mkdir(parents=True)
    columns = {
        "": range(4), "comment_text": ['"one,\ntwo"', "three", "four", "five"],
        "split": ["train", "train", "val", "test"], "toxicity": [0.0, 0.7, 0.5, 0.1],
    }  # fmt: skip
    columns |= {name: [0.0, 0.5, 1.0, 0.0] for name in texts.IDENTITIES} | changes
    lines = [
        ",".join(columns),
        *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True)),
    ]
    (folder / texts.WILDS).write_text("\n".join(lines) + "\n")


def test_the_csv_file_of_wilds_comes_with_groups(home):
    wilds(home / "civil_comments", male=[1.0, 0.2, 0.0, 1.0])
    train = texts.load("civil_comments", "train")
    assert train.texts == ["one,\ntwo", "three"] and train.labels.tolist() == [0, 1]
    assert train.groups.tolist() == [[True] + 7 * [False], [False] + 7 * [True]]
    assert texts.load("civil_comments", "test").texts == ["five"]
    assert texts.identity("civil_comments")["rows"] == 4
    assert train.take(np.array([1])).groups.tolist() == [[False] + 7 * [True]]


def test_a_csv_file_without_the_columns_is_refused(home):
    (home / "civil_comments").mkdir()
    (home / "civil_comments" / texts.WILDS).write_text("comment_text,toxicity\nhello,0.1\n")
    with pytest.raises(ValueError, match="not the csv file of WILDS.*split"):
        texts.load("civil_comments", "train")


@pytest.mark.parametrize(
    ("name", "columns", "complaint"),
    [
        ("multi_nli", PAIR | {"hypothesis": ["x", None]}, "row 1: hypothesis is null; remove"),
        ("multi_nli", PAIR | {"premise": ["x", "  "]}, "row 1: premise is empty"),
        ("multi_nli", PAIR | {"premise": [1, 2]}, "row 0: premise is 1, not a text"),
        ("multi_nli", PAIR | {"label": [0, 3]}, r"row 1: label 3 is not one of 0 \.\.\. 2"),
        (
            "multi_nli",
            PAIR | {"label": [0, -1]},
            r"row 1: label -1 .*\(-1 marks a row without a label",
        ),
        ("multi_nli", PAIR | {"label": [0.0, None]}, "row 0: label 0.0 is not"),
        (
            "multi_nli",
            {"premise": ["a"], "label": [0]},
            "lacks the column hypothesis; it has premise, label",
        ),
        (
            "civil_comments",
            COMMENT | {"toxicity": [0, 0.1, 1.01]},
            "row 2: toxicity 1.01 is not a number from 0 to 1",
        ),
        ("civil_comments", COMMENT | {"toxicity": [0, None, 1.0]}, "row 1: toxicity None"),
        ("civil_comments", COMMENT | {"toxicity": [float("nan"), 0.1, 1.0]}, "row 0: toxicity nan"),
    ],
)
def test_bad_rows_are_named(home, name, columns, complaint):
    write(home / name, columns, SPLITS.get(name, ("train", "test")))
    with pytest.raises(ValueError, match=complaint):
        texts.load(name, "train")


def test_bad_places_and_names(home, monkeypatch):
    with pytest.raises(FileNotFoundError, match="has no folder imdb/"):
        texts.load("imdb", "train")
    write(home / "imdb", {"text": ["good"], "label": [1]}, ("train",))
    with pytest.raises(FileNotFoundError, match=r"lacks files test-\*"):
        texts.load("imdb", "test")
    (home / "imdb" / "train-00000-of-00001.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(ValueError, match="not a readable parquet file"):
        texts.load("imdb", "train")
    with pytest.raises(
        ValueError, match="unknown text set 'mnli'; there is multi_nli, civil_comments, imdb"
    ):
        texts.load("mnli", "train")
    with pytest.raises(ValueError, match='split must be "train" or "test"'):
        texts.load("imdb", "validation")


def test_silent_hub_is_given_up_in_under_five_seconds(nowhere, monkeypatch, capsys):
    address, stop = serve(None)
    monkeypatch.setenv("HF_ENDPOINT", address)
    begin = time.monotonic()
    assert not hub.reachable()
    assert time.monotonic() - begin < 5
    train = texts.load("multi_nli", "train")  # asks no second time
    stop()
    assert train.source == "demo"
    said = capsys.readouterr().out
    assert (
        "the hub gave no answer" in said
        and "demo pairs, generated from templates, run instead" in said
    )
    assert (
        "hf download nyu-mll/multi_nli --repo-type dataset --revision "
        "da70db2af9d09693783c3320c4249840212ee221" in said
    )


@pytest.mark.parametrize("name", texts.TEXTS)
def test_generated_sets_are_fixed_balanced_and_apart(nowhere, name):
    train, test = (texts.load(name, split, demo=True) for split in ("train", "test"))
    again = texts.load(name, "train", demo=True)
    assert (train.texts, train.pairs) == (again.texts, again.pairs)
    assert (len(train), len(test)) == (2000, 500)
    for part in (train, test):
        shares = np.bincount(part.labels, minlength=part.classes) / len(part)
        assert shares.max() - shares.min() < 0.01
    rows = [set(zip(part.texts, part.pairs or part.texts, strict=True)) for part in (train, test)]
    assert not rows[0] & rows[1]
    identity = texts.identity(name, demo=True)
    assert identity["name"] == train.name != name and identity["instead_of"] == name


def test_generated_labels_follow_from_the_text(nowhere):
    for name, words in (("civil_comments", stand_in_texts.RUDE), ("imdb", None)):
        train = texts.load(name, "train", demo=True)
        if words:
            stems = [word.split("{}")[0] for word in words]
            found = [any(stem in text for stem in stems) for text in train.texts]
        else:
            count = lambda text, words: sum(text.count(f"is {word}") for word in words)
            found = [
                count(text, stand_in_texts.GOOD) > count(text, stand_in_texts.BAD)
                for text in train.texts
            ]
        assert train.labels.tolist() == [int(value) for value in found]


def test_samples_and_held_out_rows(nowhere):
    train = texts.load("multi_nli", "train", demo=True)
    part = train.sample(30, seed=1)
    assert len(part) == len(part.texts) == len(part.pairs) == 30
    assert part.texts == train.sample(30, seed=1).texts != train.sample(30, seed=2).texts
    place = {text: k for k, text in enumerate(zip(train.texts, train.pairs, strict=True))}
    drawn = [place[row] for row in zip(part.texts, part.pairs, strict=True)]
    assert max(drawn) > 1000 and drawn != sorted(drawn)  # no first rows, in no given order
    for rows in (0, -1):
        with pytest.raises(ValueError, match="rows must be 1 or more"):
            train.sample(rows)
    assert train.sample(None) is train and train.sample(10**6) is train
    kept, held = train.hold_out(200, seed=3)
    assert (len(kept), len(held)) == (1800, 200)
    together = sorted(zip(kept.texts + held.texts, kept.pairs + held.pairs, strict=True))
    assert together == sorted(zip(train.texts, train.pairs, strict=True))
    where = dict(
        zip(zip(train.texts, train.pairs, strict=True), train.labels.tolist(), strict=True)
    )
    assert [
        where[pair] for pair in zip(held.texts, held.pairs, strict=True)
    ] == held.labels.tolist()
    with pytest.raises(ValueError, match="rows must lie between 0 and 2000"):
        train.hold_out(2000)


def test_importing_the_module_is_light():
    heavy = {"torch", "datasets", "pyarrow", "transformers", "huggingface_hub"}
    code = f"import sys, lib.data.texts; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif(
    not REAL, reason="DATA_DIR is not set: real texts are checked only where they are at hand"
)
@pytest.mark.parametrize(
    ("name", "classes"), [("multi_nli", 3), ("civil_comments", 2), ("imdb", 2)]
)
def test_real_sets(name, classes):
    rows = {"multi_nli": (40_256, 9_815), "civil_comments": (6_988, 1_000), "imdb": (25_000,) * 2}
    for split, count in zip(("train", "test"), rows[name], strict=True):
        part = texts.load(name, split)
        assert set(part.labels.tolist()) == set(range(classes)) and part.source == "data_dir"
        assert len(part) == count
