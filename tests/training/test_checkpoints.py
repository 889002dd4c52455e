"""A killed run goes on to the same bits; a checkpoint that does not fit is refused."""

import errno
import os
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from lib import files
from lib.training import commands, history
from lib.training.batches import Batches
from lib.training.checkpoints import Checkpoints
from lib.training.loop import initialised, train
from lib.training.losses import cross_entropy
from lib.training.settings import Execution, Recording
from lib.training.step_sizes import NormalizedSGD, StochasticPolyak

STEPS, EVERY = 11, 4
MAKERS = {
    "momentum": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, 0.01),
    "SNGD": lambda p: NormalizedSGD(p, 0.1, 0.5, check_finite="skip"),
    "SPS": lambda p: StochasticPolyak(p, 0.5),
}


def network():
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 3))


def run(path=None, rule="Adam", loss=cross_entropy, seed=0, start=0, width=None, **configuration):
    generator = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(30, 4, generator=generator), torch.arange(30) % 3
    model = initialised(network, start)
    if width:
        model[2] = torch.nn.Linear(8, width)
    checkpoints = path and Checkpoints(path, EVERY, configuration)
    batches = Batches(inputs, labels, 10, seed)
    recording = Recording(lambda m: {"weight": float(m[0].weight.sum())}, at=[0, 4, 5])
    execution = Execution(checkpoints=checkpoints)
    optimizer = MAKERS[rule](model.parameters())
    return model, train(model, optimizer, batches, STEPS, loss, recording, execution)


def dies_at(step, with_=KeyboardInterrupt):
    calls = []

    def loss(model, batch):
        calls.append(1)
        if len(calls) > step:
            raise with_
        return cross_entropy(model, batch)

    return loss


def assert_same(first, second):
    (model, history), (other, expected) = first, second
    assert all(map(torch.equal, model.state_dict().values(), other.state_dict().values()))
    for name in ("loss", "step_size", "gradient_norm", "evaluated_at", "drift"):
        np.testing.assert_array_equal(getattr(history, name), getattr(expected, name))
    for group in ("metrics", "weight_norms"):
        ours, theirs = getattr(history, group), getattr(expected, group)
        assert ours.keys() == theirs.keys()
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name])
    assert (history.status, history.device) == (expected.status, expected.device)
    assert (np.diff(history.seconds) > 0).all()


@pytest.mark.parametrize("rule", MAKERS)
@pytest.mark.parametrize("step", [2, 4, 7, 10])
def test_an_interrupted_run_ends_at_the_same_bits(tmp_path, rule, step):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "a.pt", rule, dies_at(step))
    assert (tmp_path / "a.pt").exists() is (step >= EVERY)
    again = []

    def counted(model, batch):
        again.append(1)
        return cross_entropy(model, batch)

    start = 0 if step < EVERY else 1  # weights from a checkpoint replace whatever the model holds
    assert_same(run(tmp_path / "a.pt", rule, counted, start=start), run(None, rule))
    assert len(again) == STEPS - step // EVERY * EVERY


def test_a_finished_run_is_not_trained_again(tmp_path):
    first = run(tmp_path / "a.pt")
    assert_same(run(tmp_path / "a.pt", loss=dies_at(0)), first)


def test_a_diverged_run_keeps_its_last_good_checkpoint(tmp_path):
    def loss(model, batch, calls=[]):  # noqa: B006
        calls.append(1)
        return cross_entropy(model, batch) * (torch.nan if len(calls) > 6 else 1)

    assert run(tmp_path / "a.pt", loss=loss)[1].status == "diverged at step 7"
    assert_same(run(tmp_path / "a.pt"), run())  # from step 4 on


def test_kill_9_in_the_middle(tmp_path):
    """The killed process is another one, so this also holds two processes to the same bits."""
    options = [
        "digits",
        "sngd",
        "--cpu",
        "--steps",
        "200",
        "--batch",
        "10",
        "--evaluations",
        "2",
        "--checkpoint-every",
        "5",
        "--out",
    ]
    command = [sys.executable, "-m", "lib.training", *options, str(tmp_path / "killed")]
    process = subprocess.Popen(command, cwd=files.ROOT)
    try:
        limit = time.monotonic() + 120
        while (
            not (tmp_path / "killed.pt").exists()
            and process.poll() is None
            and time.monotonic() < limit
        ):
            time.sleep(0.005)
    finally:
        process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    step = torch.load(tmp_path / "killed.pt", weights_only=True)["step"]
    assert 0 < step < 200 and not (tmp_path / "killed.npz").exists()
    models = [
        commands.run(commands.options([*options, str(tmp_path / name)]))
        for name in ("killed", "whole")
    ]
    assert_same(*models)
    assert_same((models[0][0], history.load(tmp_path / "killed.npz")[0]), models[1])


def test_dropout_is_drawn_afresh_at_every_step():
    masks = []

    def loss(model, batch):
        masks.append(tuple(torch.nn.functional.dropout(torch.ones(64), 0.5).tolist()))
        return cross_entropy(model, batch)

    run(loss=loss)
    assert len(set(masks)) == STEPS
    first = masks.copy()
    masks.clear()
    run(loss=loss)
    assert masks == first


def test_remains_of_a_killed_writer_are_swept_away(tmp_path):
    (tmp_path / ".a.pt.k2jx").write_bytes(b"half a checkpoint")
    run(tmp_path / "a.pt")
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]


def test_another_configuration_is_refused_and_named(tmp_path):
    path = tmp_path / "a.pt"
    run(path, data={"name": "digits", "rows": 30})
    for change, difference in (
        ({"seed": 1}, "seed is 0 in it and 1 here"),
        (
            {"rule": "momentum"},
            "optimizer is 'Adam' in it and 'SGD' here; optimizer group 0.lr is 0.01 in it and 0.05",
        ),
        ({"width": 5}, r"shape.2.weight is \(3, 8\) in it and \(5, 8\) here"),
        ({"data": {"name": "mnist", "rows": 30}}, "data.name is 'digits' in it and 'mnist' here"),
        (
            {"data": None},
            "data is absent in it and None here; data.name is 'digits' in it and absent here",
        ),
    ):
        with pytest.raises(ValueError, match=f"another configuration: {difference}"):
            run(path, **{"data": {"name": "digits", "rows": 30}} | change)


@pytest.mark.parametrize("keep", [0, 10, 400, -30])
def test_a_history_that_is_cut_off_is_one_sentence(tmp_path, keep):
    path = tmp_path / "history.npz"
    steps = np.zeros(3)
    history.TrainingHistory(*[steps] * 4, np.array([0, 3]), {}, "finished", "cpu").save(path, {})
    assert history.load(path)[0].status == "finished"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match="history.npz is not a training history that can be read"):
        history.load(path)
    np.savez(path, loss=steps, json=np.array("[]"))
    with pytest.raises(ValueError, match="is not a training history that can be read"):
        history.load(path)


def test_what_is_no_checkpoint_is_refused(tmp_path):
    path, touched = tmp_path / "a.pt", tmp_path / "touched"

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(touched),)

    run(path)
    whole = path.read_bytes()
    torch.save({"step": 3}, path)
    other = path.read_bytes()
    torch.save(Evil(), path)
    for content in (whole[: len(whole) // 2], b"", b"text", other, path.read_bytes()):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is not a checkpoint that can be read"):
            run(path)
    assert not touched.exists()


def test_a_full_disk_is_one_sentence_and_keeps_the_checkpoint_before(tmp_path):
    path, limits = tmp_path / "a.pt", resource.getrlimit(resource.RLIMIT_FSIZE)

    def loss(model, batch, calls=[]):  # noqa: B006
        calls.append(1)
        if len(calls) == 6:  # from here on no file may grow above 1,000 bytes
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        return cross_entropy(model, batch)

    try:
        with pytest.raises(OSError) as caught:
            run(path, loss=loss)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG
    assert "the checkpoint after step 8 could not be written" in caught.value.strerror
    assert "the one before it is kept" in caught.value.strerror
    assert [file.name for file in tmp_path.iterdir()] == ["a.pt"]
    assert torch.load(path, weights_only=True)["step"] == 4
    assert_same(run(path), run())


def test_bad_commands_are_one_sentence(tmp_path, capsys):
    common = [
        "digits",
        "sngd",
        "--cpu",
        "--steps",
        "3",
        "--evaluations",
        "1",
        "--out",
        str(tmp_path / "a"),
    ]
    assert commands.main(common) == 0
    assert "finished; test_loss" in capsys.readouterr().out
    for change, sentence in (
        (["--rate", "0.2"], "optimizer group 0.lr is 0.4 in it and 0.2 here"),
        (["--batch", "0"], "size must lie between 1"),
        (["--checkpoint-every", "0"], "every must be 1 or more"),
    ):
        assert commands.main([*common, *change]) == 1
        assert sentence in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        commands.main(["digits", "sps", "--rate", "1"])
