"""Tests of the training loop.

A failure means that a killed run continues to other numbers, or that a diverged one
counts as trained.
"""

import errno
import hashlib
import io
import math
import os
import pickle
import re
import resource

import numpy as np
import pytest
import torch

from lib.networks.measures import classification
from lib.training import loop
from lib.training.batches import Batches
from lib.training.checkpoints import Checkpoint
from lib.training.loop import Trainer, cross_entropy, initialised
from lib.training.recorders import Clock, Evaluations
from lib.training.rules import MirrorDescent, NormalizedSGD, StochasticPolyak

MAKERS = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1),
    "momentum": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, 0.01),
    "SNGD": lambda p: NormalizedSGD(p, 0.1, 0.5),
    "SPS": lambda p: StochasticPolyak(p, 0.5),
    "l1.1": lambda p: MirrorDescent(p, 0.02, 1.1),
}


def layer():
    return torch.nn.Linear(4, 3)


def clusters(n=60):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % 3
    return torch.randn(n, 4, generator=generator) + 3 * torch.eye(3, 4)[labels], labels


def dropping():
    layers = torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 3)
    return torch.nn.Sequential(*layers)


def nothing(model, step):
    return {}


def run(
    rule="SGD",
    seed=0,
    steps=12,
    start=0,
    build=layer,
    *,
    evaluate=nothing,
    at=(),
    stop=None,
    clock=None,
    tick=0,
    reached=None,
    checkpoint=None,
    key="",
    **options,
):
    """Train a network on `clusters`; return model, batches and curve.

    `options` are those of `Trainer`.
    """
    batches = Batches(*clusters(), 16, seed)
    model = initialised(build, start)
    trainer = Trainer(
        model,
        MAKERS[rule](model.parameters()),
        batches,
        steps,
        evaluations=Evaluations(evaluate, at, stop),
        clock=Clock(clock, tick, reached) if clock else None,
        checkpoint=Checkpoint(checkpoint, key) if checkpoint else None,
        cpu=True,
        **options,
    )
    return model, batches, trainer.run()


def at_call(number, change):
    """Return a cross-entropy that goes through `change` at its call with this number
    (from 1).
    """
    calls = []

    def loss(model, batch):
        calls.append(1)
        value = cross_entropy(model, batch)
        return change(value) if len(calls) == number else value

    return loss


def spoilt(step):
    return at_call(step, lambda value: value * math.nan)


def same(first, second):
    for name in ("status", "loss", "step_size", "gradient_norm", "evaluated_at"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    for group in ("metrics", "weight_norms", "walked", "clock", "end"):
        np.testing.assert_equal(
            dict(getattr(first, group)), dict(getattr(second, group))
        )


def test_the_loop_equals_a_plain_loop_and_leaves_the_generator_alone():
    torch.manual_seed(5)
    model, batches, curve = run(steps=7)
    drawn = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(3))
    plain = initialised(layer, 0)
    optimizer = torch.optim.SGD(plain.parameters(), 0.1)
    for step in range(7):
        inputs, targets = batches.batch(step)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(plain(inputs), targets)
        loss.backward()
        optimizer.step()
        assert curve.loss[step] == float(loss.detach())
    assert torch.equal(model.weight, plain.weight) and curve.status == "finished"
    # Its step size is its rate
    assert len(curve.step_size) == 0 and curve.metrics == {}


def test_evaluations_happen_where_asked_and_at_the_end():
    seen = []

    def evaluate(model, step):
        seen.append((model.training, torch.is_grad_enabled()))
        return {"weight": float(model.weight.sum())}

    model, _, curve = run(steps=10, evaluate=evaluate, at=[0, 4])
    assert curve.evaluated_at.tolist() == [0, 4, 10] and seen == [(False, False)] * 3
    for name, values in (
        ("sum", curve.metrics["weight"]),
        ("norm", curve.weight_norms["weight"]),
    ):
        ends = [
            float(getattr(m.weight.detach(), name)())
            for m in (initialised(layer, 0), model)
        ]
        assert values[[0, -1]].tolist() == pytest.approx(ends)
    assert model.training and set(curve.weight_norms) == {"weight", "bias"}


@pytest.mark.parametrize("rule", ["SGD", "SPS"])
def test_divergence_is_recorded_not_raised(rule, tmp_path):
    how = dict(steps=120, evaluate=lambda model, step: {"one": 1.0}, at=[2, 4, 50])
    curve = run(rule, loss=spoilt(5), **how)[2]
    assert curve.status == "diverged at step 5" and curve.diverged
    assert len(curve.loss) == 4 and np.isfinite(curve.loss).all()
    assert len(curve.step_size) == (4 if rule == "SPS" else 0)
    # What was measured after four steps still is of numbers.
    assert curve.evaluated_at.tolist() == [2, 4] and curve.metrics["one"].tolist() == [
        1.0,
        1.0,
    ]
    assert run(rule, loss=spoilt(12))[2].status == "diverged at step 12"  # its last
    how = dict(checkpoint=tmp_path / "run.pt", pause=lambda done: done == 5)
    # And not paused
    assert run(rule, loss=spoilt(5), **how)[2].status == "diverged at step 5"

    def blown(value):  # the loss itself stays finite
        value.register_hook(lambda gradient: gradient * math.inf)
        return value

    assert (
        run("SNGD", steps=4, loss=at_call(4, blown))[2].status == "diverged at step 4"
    )


def test_a_run_that_stops_early_is_the_beginning_of_the_whole_one():
    done = iter([0.1, 0.5])
    whole = run(at=[0, 4, 8])[2]

    def stop(metrics):
        return metrics["share"] >= 0.5

    def measured(model, step):
        return {"share": next(done)}

    curve = run(evaluate=measured, stop=stop, at=[0, 4, 8])[2]
    assert curve.status == "stopped after step 4" and curve.metrics[
        "share"
    ].tolist() == [0.1, 0.5]
    np.testing.assert_array_equal(curve.loss, whole.loss[:4])


CLOCK = classification(*clusters(), name="clock")


def test_the_clock_reads_fixed_rows_every_few_steps_and_changes_nothing():
    plain = run()[2]
    (model, _, curve) = run(clock=CLOCK, tick=4)
    np.testing.assert_array_equal(curve.loss, plain.loss)
    np.testing.assert_array_equal(curve.clock["at"], [0, 4, 8, 12])
    assert curve.clock["loss"][-1] == np.float32(CLOCK(model)["clock_loss"])
    assert (
        curve.clock["loss"][2] == run(steps=8, clock=CLOCK, tick=4)[2].clock["loss"][2]
    )
    assert plain.clock == {}


def test_a_run_ends_where_the_mean_of_three_readings_is_low_enough():
    losses = iter([0.1, 0.1, 2.0, 0.4, 0.3, 0.2])

    def clock(model):
        return {"clock_loss": next(losses)}

    seen = []

    def reached(step, reading):
        seen.append((step, reading))
        return reading <= 0.5

    curve = run(steps=20, clock=clock, tick=2, at=[0, 20], reached=reached)[2]
    # The two low readings at the start are not a mean of three, and one high reading
    # counts in three means.
    assert curve.status == "stopped after step 10"
    assert [step for step, _ in seen] == [0, 2, 4, 6, 8, 10]
    # Counting the steps of the kept curve gives the reading at which the run ended.
    assert curve.steps_to(0.5) == 10
    assert seen[-1][1] == curve.readings()[-1]
    # The run is evaluated where it ends, though this was not one of the points.
    assert curve.evaluated_at.tolist() == [0, 10]


def test_a_metric_that_some_evaluations_lack_is_nan_there():
    def measured(model, step):
        return {"all": step} | ({"late": 1.0} if step > 3 else {})

    curve = run(steps=6, evaluate=measured, at=[0, 4])[2]
    np.testing.assert_array_equal(curve.metrics["late"], [np.nan, 1.0, 1.0])
    np.testing.assert_array_equal(curve.metrics["all"], [0, 4, 6])


@pytest.fixture
def often(monkeypatch):
    """Write a checkpoint every four steps."""
    monkeypatch.setattr(loop, "SAVE_EVERY", 4)


KEPT = dict(
    build=dropping,
    evaluate=lambda m, step: {"w": float(m[0].weight.sum())},
    at=[0, 4, 5],
)
KEPT |= dict(clock=CLOCK, tick=5, walk=True)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize(
    ("rule", "step"),
    [("SGD", 2), ("SGD", 8), *((rule, 5) for rule in MAKERS), ("l1.1", 11)],
)
def test_an_interrupted_run_ends_at_the_same_bits(tmp_path, rule, step):
    def interrupt(value):
        raise KeyboardInterrupt

    path = tmp_path / "sgd-0.1.pt"
    calls = []
    how = KEPT | dict(checkpoint=path)
    with pytest.raises(KeyboardInterrupt):
        run(rule, loss=at_call(step, interrupt), **how)
    assert path.exists() is (step > 4)

    def again(model, batch):
        return calls.append(1) or cross_entropy(model, batch)

    # weights from a checkpoint replace whatever the model holds
    if step <= 4:
        start = 0
    else:
        start = 1
    model, _, curve = run(rule, start=start, loss=again, **how)
    other, _, whole = run(rule, **KEPT)
    same(curve, whole)
    assert all(
        map(torch.equal, model.state_dict().values(), other.state_dict().values())
    )
    assert len(calls) == 12 - (step - 1) // 4 * 4


@pytest.mark.parametrize("rule", MAKERS)
def test_a_run_that_is_left_goes_on_as_if_it_had_not_been(tmp_path, rule):
    how = KEPT | dict(checkpoint=tmp_path / "run.pt")
    whole = run(rule, **KEPT)[2]

    def at(step):
        return run(rule, **how, pause=lambda done: done == step)[2]

    first = at(5)
    again = at(5)
    assert first.status == "paused after step 5"
    same(first, again)  # as after a kill between two files
    assert at(7).status == "paused after step 7"
    same(at(5), whole)
    assert all(v[0] == 0 and (np.diff(v) > 0).all() for v in whole.walked.values())


def test_dropout_is_a_function_of_seed_and_step():
    def losses(draws, seed):
        def drawn(model, step):
            return {"drawn": float(torch.rand(draws).sum())}

        how = dict(build=dropping, evaluate=drawn, at=[2], seed=seed, steps=5)

        def still(
            model, batch
        ):  # no weight moves, so that losses differ by dropout alone
            value = model(torch.ones(9, 4)).sum()
            return value.detach() + 0 * value

        return run(loss=still, **how)[2].loss

    assert len(set(losses(1, 0))) == 5
    np.testing.assert_array_equal(losses(1, 0), losses(7, 0))
    assert not np.isin(losses(1, 0), losses(1, 1)).any()


def test_what_is_no_checkpoint_of_this_run_is_refused(tmp_path):
    path = tmp_path / "a.pt"
    touched = tmp_path / "touched"

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(touched),)

    pausing = dict(checkpoint=path, pause=lambda done: done == 5)
    run(**pausing, key="one")
    whole = path.read_bytes()
    with pytest.raises(ValueError, match="is of another run or other code"):
        run(**pausing, key="other")
    flipped = whole[:900] + bytes([whole[900] ^ 1]) + whole[901:]
    torch.save(Evil(), path)
    for content in (whole[:-30], b"", b"text", flipped, path.read_bytes()):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is damaged: remove it"):
            run(**pausing, key="one")
    assert not touched.exists()


def sealed(content):
    return hashlib.sha256(content).hexdigest()[:16].encode() + content


def saved(value):
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


NO_CHECKPOINTS = {
    "nothing": b"",
    "half a seal": b"0123",
    "text": b"text, and no checkpoint",
    "pickle": pickle.dumps({"key": ""}),
    "foreign pickle": pickle.dumps(os.getcwd),
    "list": saved([1, 2]),
    "other keys": saved({"model": {}}),
    "tensor": saved(torch.ones(2)),
    "object": saved(np.random.default_rng(0)),
    "cut": saved({"key": ""})[:-40],
}


@pytest.mark.parametrize("seal", [bytes, sealed], ids=["unsealed", "sealed"])
@pytest.mark.parametrize("name", NO_CHECKPOINTS)
def test_a_file_that_holds_no_checkpoint_ends_in_one_sentence(tmp_path, name, seal):
    path = tmp_path / "run.pt"
    path.write_bytes(seal(NO_CHECKPOINTS[name]))
    with pytest.raises(ValueError) as refusal:
        Checkpoint(path).read()
    if seal is sealed:
        kind = "holds no checkpoint"
    else:
        kind = "is damaged"
    sentence = f"{re.escape(str(path))} {kind}: remove it to start this run afresh"
    assert re.fullmatch(sentence, str(refusal.value))


@pytest.mark.parametrize(
    ("entry", "value", "wrong"),
    [
        ("step", None, "it lacks 'step'"),
        ("seconds", None, "it lacks 'seconds'"),
        ("model", None, "it lacks 'model'"),
        ("optimizer", None, "it lacks 'optimizer'"),
        ("log", None, "it lacks 'log'"),
        ("walked", None, "it lacks 'walked'"),
        ("readings", None, "it lacks 'readings'"),
        ("rows", None, "it lacks 'rows'"),
        ("step", "five", "it must be a whole number"),
        ("step", -1, "it must be a whole number"),
        ("step", 13, "step 13 of a run of 12"),
        ("seconds", [], "float"),
        ("model", {"weight": torch.ones(3)}, "Missing key"),
        ("model", 5, "dict"),
        ("optimizer", {"state": {}}, "it lacks 'param_groups'"),
        ("optimizer", {"state": {}, "param_groups": []}, "parameter group"),
        ("log", torch.ones(1, 5), "size"),
        ("log", "text", "str"),
        ("readings", ["low"], "float"),
        ("rows", [{"at": 0}], "it lacks 'metrics'"),
        ("rows", 5, "iterable"),
    ],
)
def test_a_checkpoint_without_the_whole_state_is_refused_in_one_sentence(
    tmp_path, entry, value, wrong
):
    path = tmp_path / "a.pt"
    how = KEPT | dict(checkpoint=path)
    run(**how, pause=lambda done: done == 5)
    state = Checkpoint(path).read()
    if value is None:
        del state[entry]
    else:
        state[entry] = value
    Checkpoint(path).write(state)
    with pytest.raises(ValueError) as refusal:
        run(**how)
    words = str(refusal.value)
    assert words.startswith(f"{path} does not hold the state of this run (")
    assert wrong in words and "\n" not in words
    assert words.endswith("): remove it to start this run afresh")
    path.unlink()
    same(run(**how)[2], run(**KEPT)[2])


@pytest.mark.usefixtures("often")
def test_a_full_disk_keeps_the_checkpoint_before_and_sweeps_what_a_kill_left(tmp_path):
    path = tmp_path / "a.pt"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    (tmp_path / ".a.pt.k2jx.part").write_bytes(b"half a checkpoint")

    def filled(value):  # from here on no file may grow above 1,000 bytes
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        return value

    try:
        with pytest.raises(OSError) as caught:
            run(loss=at_call(6, filled), checkpoint=path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG and Checkpoint(path).read()["step"] == 4
    assert [file.name for file in tmp_path.iterdir()] == ["a.pt"]
    same(run(checkpoint=path)[2], run()[2])


def test_an_epoch_takes_every_row_once_in_a_new_order():
    inputs, labels = clusters(48)
    batches = Batches(inputs, labels, 16, seed=3)
    epochs = [
        torch.cat([batches.rows(step) for step in range(3 * e, 3 * e + 3)])
        for e in range(2)
    ]
    assert all(sorted(rows.tolist()) == list(range(48)) for rows in epochs)
    assert not torch.equal(*epochs)
    twice = Batches(inputs, labels, 16, 3, transform=lambda x: 2 * x)
    taken, targets = twice.batch(4)
    assert torch.equal(taken, 2 * inputs[batches.rows(4)])
    assert torch.equal(targets, labels[batches.rows(4)])
    parts = [batches.on("cpu", (k, 4)) for k in range(4)]
    assert torch.equal(
        torch.cat([part.batch(4)[0] for part in parts]), batches.batch(4)[0]
    )


def test_recorded_steps_of_polyak_are_those_of_its_formula():
    sps = run("SPS")[2]
    expected = np.minimum(sps.loss / (2 * sps.gradient_norm**2), 0.5)
    np.testing.assert_allclose(sps.step_size, expected, rtol=1e-6)


IMAGES = torch.zeros(6, 1, 4, 8)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Batches(*clusters(), 0, 0), "size must lie between 1 and the 60 rows"),
        (
            lambda: Batches(*clusters(), 6, 0, part=(0, 4)),
            "6 rows cannot be shared equally by 4 proc",
        ),
        (
            lambda: Batches(torch.arange(10), torch.arange(7), 3, 0),
            "targets has 7 rows; it needs 10, as inputs has",
        ),
        (
            lambda: Batches(IMAGES, torch.arange(6), 3, 0, crops=True),
            r"inputs has shape \(6, 1, 4, 8\); crops need square images",
        ),
        (
            lambda: Batches(*clusters(), 6, 0, crops=True),
            r"inputs has shape \(60, 4\); crops need square images",
        ),
    ],
)
def test_data_from_which_no_batch_can_be_made_are_refused(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


class Blind(torch.optim.Optimizer):
    """An optimiser as many papers publish it: it uses the gradients that are there."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    def step(self):
        """Move nothing."""


class Deaf(Blind):
    def step(self, closure=None):
        """Move nothing, and do not evaluate the loss."""


@pytest.mark.parametrize("optimiser", [Blind, Deaf])
def test_an_optimiser_that_never_calls_the_closure_is_named(monkeypatch, optimiser):
    monkeypatch.setitem(MAKERS, "own", optimiser)
    with pytest.raises(TypeError, match=f"{optimiser.__name__}.step did not call"):
        run("own")


def test_a_function_that_makes_an_optimiser_is_not_taken_for_one():
    network = torch.nn.Linear(4, 2)
    batches = Batches(torch.eye(4), torch.tensor([0, 1, 0, 1]), size=4, seed=0)
    with pytest.raises(TypeError, match=r"must be a torch.optim.Optimizer.* got <func"):
        Trainer(network, lambda parameters: None, batches, steps=1, cpu=True)


def test_a_checkpoint_is_made_from_a_path_or_its_name(tmp_path):
    path = tmp_path / "run.pt"
    assert Checkpoint(str(path)) == Checkpoint(path)
    network = layer()
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    batches = Batches(*clusters(), 16, 0)
    with pytest.raises(TypeError, match="checkpoint must be a Checkpoint.* got 'run.p"):
        Trainer(network, optimizer, batches, 5, checkpoint="run.pt", cpu=True)


def test_a_trainer_runs_once():
    network = layer()
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    trainer = Trainer(network, optimizer, Batches(*clusters(), 16, 0), 5, cpu=True)
    assert trainer.run().evaluated_at.tolist() == [5]
    with pytest.raises(RuntimeError, match="this trainer has run: make a new one"):
        trainer.run()


def test_a_clock_without_its_loss_is_refused():
    with pytest.raises(ValueError, match=r"measures \['loss'\]: .* return clock_loss"):
        run(clock=lambda model: {"loss": 1.0}, tick=4)


def test_an_optimiser_that_trains_a_part_of_the_network_is_refused():
    network = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    batches = Batches(torch.eye(4), torch.tensor([0, 1, 0, 1]), size=4, seed=0)
    parameters = network.parameters()
    matrices = [p for p in parameters if p.ndim == 2]
    none_is_left = [p for p in parameters if p.ndim < 2]
    part = torch.optim.SGD([{"params": matrices}, {"params": none_is_left}], 0.1)
    with pytest.raises(ValueError, match="2 of the network's .* the first '0.bias'"):
        Trainer(network, part, batches, steps=1, cpu=True)
    for layer in network:
        layer.bias.requires_grad_(False)
    assert Trainer(network, part, batches, 1, cpu=True).run().status == "finished"


def test_recorders_that_are_used_again_begin_anew():
    evaluations = Evaluations(lambda model, step: {"one": 1.0}, at=[0, 4])
    clock = Clock(CLOCK, every=4)
    curves = []
    for _ in range(2):
        network = initialised(layer, 0)
        optimizer = torch.optim.SGD(network.parameters(), 0.1)
        batches = Batches(*clusters(), 16, 0)
        recorders = {"evaluations": evaluations, "clock": clock}
        curves.append(
            Trainer(network, optimizer, batches, 8, **recorders, cpu=True).run()
        )
    same(*curves)
    assert curves[1].evaluated_at.tolist() == [0, 4, 8]
