"""The training loop: determinism, what it records, divergence, batches."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from lib import training
from lib.training import history as histories
from lib.training.batches import Batches
from lib.training.checkpoints import Checkpoints
from lib.training.history import running_mean, steps_to_reach
from lib.training.loop import initialised, train
from lib.training.losses import classification, cross_entropy
from lib.training.mirror_descent import MirrorDescent
from lib.training.settings import Execution, Recording
from lib.training.step_sizes import NormalizedSGD, StochasticPolyak

MAKERS = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1),
    "Adam": lambda p: torch.optim.Adam(p, 0.01),
    "SNGD": lambda p: NormalizedSGD(p, 0.1, 0.5),
    "SPS": lambda p: StochasticPolyak(p, 0.5),
    "l1.1": lambda p: MirrorDescent(p, 0.02, 1.1),
    "l3": lambda p: MirrorDescent(p, 0.02, 3, normalize=True),
}


def clusters(n=60):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % 3
    return torch.randn(n, 4, generator=generator) + 3 * torch.eye(3, 4)[labels], labels


HOW = [field.name for field in dataclasses.fields(Execution)]


def run(maker=MAKERS["SGD"], seed=0, steps=12, loss=cross_entropy, **options):
    """Train a layer; `options` are those of `Execution`, the rest those of `Recording`."""
    inputs, labels = clusters()
    model = initialised(lambda: torch.nn.Linear(4, 3), seed)
    batches = Batches(inputs, labels, 16, seed)
    how = {name: options.pop(name) for name in HOW if name in options}
    execution = Execution(**{"cpu": True, **how})
    optimizer = maker(model.parameters())
    history = train(model, optimizer, batches, steps, loss, Recording(**options), execution)
    return model, batches, history


@pytest.mark.parametrize("rule", MAKERS)
def test_same_seed_gives_the_same_bits(rule):
    (a, _, first), (b, _, second) = run(MAKERS[rule]), run(MAKERS[rule])
    assert torch.equal(a.weight, b.weight)
    for name in ("loss", "step_size", "gradient_norm"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def test_another_seed_gives_another_run():
    assert not np.array_equal(run(seed=0)[2].loss, run(seed=1)[2].loss)


def test_every_optimiser_sees_the_same_start_and_the_same_first_batch():
    assert len({run(maker)[2].loss[0] for maker in MAKERS.values()}) == 1


def test_the_global_generator_is_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    run()
    assert torch.equal(torch.rand(3), expected)


def test_the_loop_equals_a_plain_loop():
    model, batches, history = run(steps=7)
    plain = initialised(lambda: torch.nn.Linear(4, 3), 0)
    optimizer = torch.optim.SGD(plain.parameters(), 0.1)
    for step in range(7):
        inputs, targets = batches.batch(step)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(plain(inputs), targets)
        loss.backward()
        optimizer.step()
        norm = math.hypot(float(plain.weight.grad.norm()), float(plain.bias.grad.norm()))
        assert history.loss[step] == float(loss.detach())
        assert history.gradient_norm[step] == pytest.approx(norm, rel=1e-6)
    assert torch.equal(model.weight, plain.weight)
    assert (history.step_size == np.float32(0.1)).all()
    assert history.status == "finished"


def test_recorded_steps_obey_the_rules():
    sngd, sps = run(MAKERS["SNGD"])[2], run(MAKERS["SPS"])[2]
    np.testing.assert_allclose(sngd.step_size, np.minimum(0.1 / sngd.gradient_norm, 0.5), rtol=1e-6)
    np.testing.assert_allclose(
        sps.step_size, np.minimum(sps.loss / (2 * sps.gradient_norm**2), 0.5), rtol=1e-6
    )


def test_evaluations_happen_where_asked_and_at_the_end():
    seen = []

    def evaluate(model):
        seen.append((model.training, torch.is_grad_enabled()))
        return {"weight": float(model.weight.sum())}

    model, _, history = run(steps=10, evaluate=evaluate, at=[0, 4])
    assert history.evaluated_at.tolist() == [0, 4, 10]
    assert seen == [(False, False)] * 3
    start = initialised(lambda: torch.nn.Linear(4, 3), 0)
    expected = [float(weight.detach().sum()) for weight in (start.weight, model.weight)]
    assert history.metrics["weight"][[0, -1]].tolist() == pytest.approx(expected)
    assert model.training


def test_seconds_grow_and_leave_evaluations_out():
    import time

    history = run(steps=6, evaluate=lambda model: time.sleep(0.2) or {}, at=[3])[2]
    assert (np.diff(history.seconds) > 0).all()
    assert np.diff(history.seconds)[2] < 0.2


@pytest.mark.parametrize("rule", ["SGD", "SPS"])
def test_divergence_is_recorded_not_raised(rule):
    calls = []

    def loss(model, batch):
        calls.append(1)
        value = training.cross_entropy(model, batch)
        return value if len(calls) < 5 else value * math.nan

    history = run(
        MAKERS[rule], steps=120, loss=loss, evaluate=lambda model: {"one": 1.0}, at=[2, 4, 50]
    )[2]
    assert history.status == "diverged at step 5"
    for values in (history.loss, history.step_size, history.gradient_norm, history.seconds):
        assert np.isfinite(values[:4]).all() and np.isnan(values[4:]).all()
    # What was measured after four steps still is of numbers.
    np.testing.assert_array_equal(history.metrics["one"], [1.0, 1.0] + [math.nan] * 2)
    assert len(calls) < 120


def test_a_run_that_stops_early_is_the_beginning_of_the_whole_one():
    done = iter([0.1, 0.5, 0.9])
    options = dict(steps=12, at=[0, 4, 8])
    whole = run(evaluate=lambda model: {"share": 0.0}, **options)[2]
    history = run(
        evaluate=lambda model: {"share": next(done)},
        stop=lambda found: found["share"] >= 0.5,
        **options,
    )[2]
    assert history.status == "stopped after step 4"
    for name in ("loss", "gradient_norm", "step_size"):
        assert np.array_equal(getattr(history, name)[:4], getattr(whole, name)[:4])
        assert np.isnan(getattr(history, name)[4:]).all()
    np.testing.assert_array_equal(history.metrics["share"], [0.1, 0.5, math.nan, math.nan])


def test_classification_counts_over_unequal_chunks():
    inputs, labels = clusters(50)
    model = initialised(lambda: torch.nn.Linear(4, 3), 0)
    values = classification(inputs, labels, size=16)(model)
    with torch.no_grad():
        logits = model(inputs)
    assert values["test_accuracy"] == pytest.approx(
        float((logits.argmax(1) == labels).float().mean())
    )
    assert classification(inputs, logits.argmax(1), size=16)(model)["test_accuracy"] == 1.0
    assert values["test_loss"] == pytest.approx(
        float(torch.nn.functional.cross_entropy(logits, labels)), rel=1e-5
    )


def test_an_epoch_takes_every_row_once_in_a_new_order():
    inputs, labels = clusters(48)
    batches = Batches(inputs, labels, 16, seed=3)
    epochs = [torch.cat([batches.rows(step) for step in range(3 * e, 3 * e + 3)]) for e in range(2)]
    assert all(sorted(rows.tolist()) == list(range(48)) for rows in epochs)
    assert not torch.equal(*epochs)
    taken, targets = batches.batch(4)
    assert torch.equal(taken, inputs[batches.rows(4)]) and torch.equal(
        targets, labels[batches.rows(4)]
    )


def test_transform_applies_to_inputs_only():
    inputs, labels = clusters()
    taken, targets = Batches(inputs, labels, 8, 0, transform=lambda x: 2 * x).batch(0)
    rows = Batches(inputs, labels, 8, 0).rows(0)
    assert torch.equal(taken, 2 * inputs[rows]) and torch.equal(targets, labels[rows])


@pytest.mark.parametrize("rule", MAKERS)
def test_a_run_that_is_paused_goes_on_as_if_it_had_not_been(tmp_path, rule):
    whole = run(MAKERS[rule], at=[0, 5], walk=True)[2]
    pausing = Checkpoints(tmp_path / "run.pt", 100, pause=lambda done: done == 5)
    options = dict(at=[0, 5], walk=True, checkpoints=pausing)
    first = run(MAKERS[rule], **options)[2]
    assert first.status == "paused after step 5" and np.isnan(first.loss[5:]).all()
    again = run(MAKERS[rule], **options)[2]  # not there again
    assert again.status == "finished"
    np.testing.assert_array_equal(again.loss, whole.loss)
    for name, values in whole.walked.items():
        np.testing.assert_array_equal(again.walked[name], values)
        assert values[0] == 0 and (np.diff(values) > 0).all()


def test_a_run_that_has_diverged_does_not_pause(tmp_path):
    pausing = Checkpoints(tmp_path / "run.pt", 100, pause=lambda done: done == 5)
    calls = []

    def loss(model, batch):
        calls.append(1)
        return cross_entropy(model, batch) * (math.nan if len(calls) == 5 else 1)

    assert run(loss=loss, checkpoints=pausing)[2].status == "diverged at step 5"
    assert not list(tmp_path.iterdir())


def test_a_stopping_rule_sees_the_recent_loss():
    seen = []
    *_, history = run(at=[0, 4], stop=lambda found: seen.append(found["recent_loss"]))
    assert np.isnan(seen[0]) and seen[1] == pytest.approx(history.loss[:4].mean())


def test_bad_arguments():
    inputs, labels = clusters()
    with pytest.raises(ValueError, match="inputs has 60 rows and targets 59"):
        Batches(inputs, labels[:-1], 8, 0)
    with pytest.raises(ValueError, match="size must lie between 1 and the 60 rows"):
        Batches(inputs, labels, 61, 0)
    with pytest.raises(ValueError, match="steps must be 1 or more"):
        run(steps=0)
    with pytest.raises(ValueError, match=r"at \[12, 13\]"):
        run(steps=12, at=[13])


def test_progress_bar_obeys_the_environment(capfd, monkeypatch):
    for disable in ("0", "1"):
        monkeypatch.setenv("TQDM_DISABLE", disable)
        run(label=f"bar {disable}")
    shown = capfd.readouterr().err
    assert "bar 0" in shown and "bar 1" not in shown


def test_running_mean_against_a_plain_loop():
    values = np.random.default_rng(0).normal(size=(2, 9))
    expected = [[row[max(0, k - 2) : k + 1].mean() for k in range(9)] for row in values]
    np.testing.assert_allclose(running_mean(values, 3), expected, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(running_mean(values, 20)[:, -1], values.mean(1), rtol=1e-12)


def test_steps_to_reach():
    loss = np.array([[4.0, 2.0, 0.0, 0.0, 0.0], [9.0, 9.0, 9.0, 9.0, math.nan]])
    assert steps_to_reach(loss, 1.0, 2).tolist() == [3.0, math.inf]
    assert steps_to_reach(loss, 5.0, 2).tolist() == [2.0, math.inf]


def test_a_gradient_that_blows_up_in_the_last_step_counts_as_divergence():
    calls = []

    def loss(model, batch):
        calls.append(1)
        value = training.cross_entropy(model, batch)
        if len(calls) == 4:
            # the loss itself stays finite
            value.register_hook(lambda gradient: gradient * math.inf)
        return value

    history = run(MAKERS["SNGD"], steps=4, loss=loss)[2]
    assert history.status == "diverged at step 4"


def test_steps_that_the_optimiser_skips_do_not_end_the_run():
    calls = []

    def loss(model, batch):
        calls.append(1)
        return training.cross_entropy(model, batch) * (math.nan if len(calls) in (1, 5) else 1)

    model, _, history = run(
        lambda p: NormalizedSGD(p, 0.1, check_finite="skip"), steps=9, loss=loss
    )
    assert history.status == "finished, 2 steps skipped"
    assert np.flatnonzero(np.isnan(history.loss)).tolist() == [0, 4]
    assert history.step_size[4] == 0 and (history.step_size[5:] > 0).all()
    assert torch.isfinite(model.weight).all()


def test_dropout_is_a_function_of_seed_and_step():
    inputs, labels = clusters()

    def losses(draws, **seed):
        model = initialised(
            lambda: torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Dropout(0.5)), 0
        )
        # the whole set, so that only dropout tells steps apart
        batches = Batches(inputs, labels, 60, **seed)
        recording = Recording(lambda model: {"drawn": float(torch.rand(draws).sum())}, at=[2])
        optimizer = torch.optim.SGD(model.parameters(), 1e-30)
        cpu = Execution(cpu=True)
        return train(model, optimizer, batches, 5, recording=recording, execution=cpu).loss

    first = losses(1, seed=0)
    assert len(set(first)) == 5
    np.testing.assert_array_equal(first, losses(7, seed=0))
    assert not np.isin(first, losses(1, seed=1)).any()


def test_weight_norms_are_recorded_for_every_layer():
    model, _, history = run(steps=6, at=[0, 3])
    start = initialised(lambda: torch.nn.Linear(4, 3), 0)
    for name, values in history.weight_norms.items():
        ends = [float(m.get_parameter(name).detach().norm()) for m in (start, model)]
        assert values[[0, -1]].tolist() == pytest.approx(ends, rel=1e-6)
    assert set(history.weight_norms) == {"weight", "bias"} and history.metrics == {}
    assert history.drift.tolist() == [0, 0, 0]


def test_bf16_computes_in_bfloat16_and_keeps_float32_weights():
    seen = []

    def loss(model, batch):
        seen.append(model(batch[0]).dtype)
        return training.cross_entropy(model, batch)

    model, _, history = run(loss=loss, precision="bf16", evaluate=classification(*clusters()))
    assert set(seen) == {torch.bfloat16} and model.weight.dtype == torch.float32
    np.testing.assert_allclose(history.loss, run()[2].loss, rtol=0.05)
    assert not np.array_equal(history.loss, run()[2].loss)
    with pytest.raises(ValueError, match="precision must be"):
        run(precision="fp16")


def test_a_history_and_its_file_agree(tmp_path):
    history = run(steps=5, evaluate=classification(*clusters()), at=[0])[2]
    history.save(tmp_path / "run.npz", {"rate": 0.1, "data": {"name": "clusters"}})
    loaded, about = histories.load(tmp_path / "run.npz")
    assert about == {"rate": 0.1, "data": {"name": "clusters"}}
    for name, expected in vars(history).items():
        values = getattr(loaded, name)
        if isinstance(expected, dict):
            assert values.keys() == expected.keys()
            assert all(np.array_equal(values[key], expected[key]) for key in expected)
        else:
            assert np.array_equal(values, expected)


@pytest.mark.parametrize("parts", [2, 4, 16])
def test_a_batch_in_parts_gives_the_same_run(parts):
    (model, _, whole), (other, _, split) = run(), run(accumulate=parts)
    np.testing.assert_allclose(split.loss, whole.loss, rtol=1e-5)
    np.testing.assert_allclose(split.gradient_norm, whole.gradient_norm, rtol=1e-5)
    torch.testing.assert_close(other.weight, model.weight)


@pytest.mark.parametrize("parts", [0, 3, 32])
def test_parts_that_do_not_divide_the_batch(parts):
    with pytest.raises(ValueError, match="accumulate must divide the 16 rows"):
        run(accumulate=parts)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"),
    ],
)
def test_a_full_device_says_what_helps(error):
    def loss(model, batch):
        raise error

    with pytest.raises(
        MemoryError, match=r"step 1, with 16 rows in 2 part.*accumulate=4.*smaller batch"
    ) as caught:
        run(loss=loss, accumulate=2)
    assert caught.value.__cause__ is error


def test_other_errors_of_a_loss_pass_through():
    def loss(model, batch):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        run(loss=loss)


def test_a_checkpoint_of_another_p_is_refused(tmp_path):
    def go(p):
        checkpoints = training.Checkpoints(tmp_path / "run.pt", 4)
        return run(lambda parameters: MirrorDescent(parameters, 0.02, p), checkpoints=checkpoints)

    go(1.1)
    with pytest.raises(ValueError, match=r"\bp\b"):
        go(1.5)
