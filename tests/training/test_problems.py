"""Tests of what the studies measure.

A failure means that trials are judged on rows on which they train.
"""

import copy
import os

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lib import files, training
from lib.data import images
from lib.training import curves, problems, rules
from lib.training.studies import DEMO, STUDIES

STEPS = 40
# One unit of half precision, in which a trial's losses are kept. Another processor sums
# in another order, which the steps enlarge to about 1e-6.
UNIT = 2.0**-10


@pytest.fixture(scope="module", params=["vit", "imdb", "mnist"])
def measured(request):
    """Return a demo's name, its problem, and an untrained network for it."""
    study = DEMO[request.param]
    problem = study.problem(batch=study.batch, **study.options)
    return request.param, problem, training.initialised(problem.build, 0).eval()


@pytest.mark.parametrize(
    ("name", "option"),
    [
        *(("mnist", option) for option in ("rows", "grid", "width", "heads")),
        *(("vit", option) for option in ("rows", "depth")),
        *(("imdb", option) for option in ("length", "words", "size", "hidden")),
    ],
)
@pytest.mark.parametrize("value", [0, -4])
def test_a_size_below_1_is_refused(name, option, value):
    study = DEMO[name]
    options = {**study.options, option: value}
    with pytest.raises(ValueError, match=f"{option} = {value}; it must be a whole"):
        study.problem(batch=study.batch, **options)


def test_trials_are_judged_on_rows_that_they_do_not_train_on(measured):
    name, problem, model = measured
    own, test = (
        problem.evaluate(model, 0, tuning)["test_accuracy"] for tuning in (True, False)
    )
    batches = problem.batches(0, True)
    held = problem.about.get("held_out", 0)
    assert len(batches.inputs) == problem.about["rows"] - (
        held if name == "imdb" else 0
    )
    assert (own == test) == (name == "mnist")  # the MNIST problem holds nothing out
    with torch.no_grad():
        if name == "vit":
            whole = images.load("cifar10", "train", rows=2000, demo=True)
            assert torch.equal(batches.inputs, whole.images[:1600])
            seen = model(batches.transform(whole.images[1600:])).argmax(1)
            assert own == pytest.approx(
                float((seen == whole.labels[1600:]).double().mean())
            )
        if name == "imdb":
            train, _ = problems.load_split("imdb", True, problems.SMOKE_REVIEWS)
            rest, _ = train.hold_out(held)
            assert batches.targets.tolist() == rest.labels.tolist()


def test_the_clock_reads_the_loss_of_rows_that_are_trained_on(measured):
    name, problem, model = measured
    batches = problem.batches(0, True)
    every = max(1, len(batches.inputs) // problems.FIXED)
    if name == "imdb":
        taken = slice(None, None, every)
    else:
        taken = slice(problems.FIXED)
    with torch.no_grad():
        logits = model(batches.transform(batches.inputs[taken]))
    two = logits.ndim == 1
    labels = batches.targets[taken]
    if two:
        loss = F.binary_cross_entropy_with_logits
    else:
        loss = F.cross_entropy
    expected = float(loss(logits, labels.float() if two else labels))
    assert problem.clock(model)["clock_loss"] == pytest.approx(expected, rel=1e-5)


def test_the_end_says_which_test_rows_are_right(measured):
    name, problem, model = measured
    kept = problem.finish(model, 0)
    hits = np.unpackbits(kept["test_correct"], count=int(kept["test_rows"]))
    assert len(hits) == problem.about["test_rows"]
    shown = problem.evaluate(model, 0, False)["test_accuracy"]
    # All of so few are shown at the points
    assert shown == pytest.approx(hits.mean(), abs=1e-6)
    if name == "imdb":  # what judges the last evaluations reads every test row
        assert problem.closing(model)["every_test_accuracy"] == pytest.approx(
            hits.mean()
        )
    if name == "vit":  # an untrained network's weights are spread as at the start
        counts = sum(weight.numel() for weight in model.parameters() if weight.ndim > 1)
        assert kept["last.histogram"].sum() == counts
        np.testing.assert_array_equal(kept["last.histogram"], kept["start.histogram"])


@pytest.mark.parametrize("measured", ["imdb"], indirect=True)
def test_tokens_used_are_the_mean_over_heads_of_each_review_and_layer(measured):
    _, problem, model = measured
    sharp = copy.deepcopy(model)
    with torch.no_grad():
        for block in sharp.blocks:
            for weights in block.attention.parameters():
                weights.mul_(3.0)  # so that heads differ
    kept = problem.finish(sharp, 0)
    train, test = problems.load_split("imdb", True, problems.SMOKE_REVIEWS)
    options = DEMO["imdb"].options
    words = problems.Vocabulary.of(train.texts, options["words"])
    ids = words.encode(test.texts, options["length"])
    every = max(1, len(ids) // problems.PROBED_REVIEWS)
    probe = ids[::every]
    assert kept["present"].tolist() == [
        sum(k > 0 for k in row) for row in probe.tolist()
    ]
    for when, network in (("start", model), ("last", sharp)):
        maps = network.attention(probe).double().numpy()
        reviews, layers, heads, _ = maps.shape
        expected = np.zeros((reviews, layers))
        spread = 0.0
        for place in np.ndindex(reviews, layers):
            used = []
            for head in range(heads):
                a = maps[place][head]
                a = a[a > 0]
                used.append(np.exp(-(a * np.log(a)).sum()))
            expected[place] = sum(used) / heads
            spread = max(spread, max(used) - min(used))
        np.testing.assert_allclose(kept[f"{when}.tokens_used"], expected, rtol=1e-4)
        assert spread > 0.01 * expected.max()


@pytest.mark.skipif(
    not os.environ.get("DATA_DIR"), reason="DATA_DIR is not set: no real MNIST"
)
def test_the_first_steps_of_a_committed_trial_come_again_to_its_last_kept_bit():
    kept = curves.load(files.ROOT / "figures" / "desk" / "mnist_60000.npz")
    (trial,) = [c for c in kept.trials("SGD") if c.rate == 0.1]
    study = STUDIES["mnist_60000"]
    problem = study.problem(batch=study.batch, **study.options)
    model = training.initialised(problem.build, trial.seed)
    batches = problem.batches(trial.seed, True)
    optimizer = rules.optimiser("SGD", model, trial.rate)
    found = training.Trainer(model, optimizer, batches, STEPS).run()
    np.testing.assert_allclose(
        found.loss, trial.loss[:STEPS].astype(float), rtol=UNIT, atol=0
    )
