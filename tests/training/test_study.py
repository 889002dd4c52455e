"""The runner of a study on a network of one layer: what it tries, keeps, and takes up again."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from lib.budget import Budget
from lib.training import commands, compilation, study_command
from lib.training.batches import Batches
from lib.training.curves import load
from lib.training.runner import OutOfTime, Runner
from lib.training.study import Study, StudyProblem

ROOT = Path(__file__).resolve().parents[2]


def problem():
    """Two classes of points on a line, nearly apart."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 64)
    points = (2.0 * labels - 1)[:, None] + rng.normal(0, 0.5, (64, 3))
    inputs, targets = torch.tensor(points, dtype=torch.float32), torch.tensor(labels)

    def evaluate(seed, tuning):
        return lambda model: {
            "test_accuracy": float((model(inputs).argmax(1) == targets).double().mean())
        }

    return StudyProblem(
        build=lambda: nn.Linear(3, 2),
        batches=lambda seed, tuning: Batches(inputs, targets, 8, seed),
        evaluate=evaluate,
        finish=lambda seed: lambda model: {"weight": model.weight.detach().numpy().copy()},
        about={"data": "points"},
    )


STUDY = Study(
    name="points",
    problem=problem,
    rates={"SGD": (0.01, 0.1, 1.0), "SPS": (0.5, 5.0), "SNGD": (0.1, 0.3)},
    horizon=40,
    batch=8,
    window=4,
    targets=(0.5, 0.2),
    stop=lambda found: False,
    stop_words="never",
    seeds=2,
    evaluations=4,
    walk=True,
)


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setenv("TQDM_DISABLE", "1")


def run(study, folder, minutes=None):
    return Runner(study, folder, Budget(minutes), say=lambda _: None).run()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """STUDY in one go, of which several tests read the curves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TQDM_DISABLE", "1")
        return run(STUDY, tmp_path_factory.mktemp("whole"))


def test_evaluations_are_even_and_the_quarter_is_among_them():
    study = dataclasses.replace(STUDY, horizon=60, evaluations=5)
    assert study.points.tolist() == [0, 12, 15, 24, 36, 48, 60]


def test_half_of_the_rates_are_dropped_at_a_quarter_and_seeds_are_fresh(whole):
    assert whole.seeds() == [0, 1]
    lengths = [len(trial.loss) for trial in whole.trials("SGD")]
    assert sorted(set(lengths)) == [10, 40] and lengths.count(10) == 1
    assert all(trial.seed == 100 for trial in whole.trials("SGD"))
    assert {rule: whole.rates()[rule] for rule in STUDY.rates} == whole.rates()


def test_a_single_candidate_is_taken_without_a_trial_on_the_seeds_asked_for(tmp_path):
    rates = {"SGD": (0.1,), "SPS": (0.5,), "SNGD": (0.3,)}
    study = dataclasses.replace(STUDY, rates=rates, cap=0.7, first_seed=10)
    found = Runner(study, tmp_path, Budget(None), print).run()
    assert {(c.part, c.seed) for c in found.curves} == {("curve", 10), ("curve", 11)}
    assert {(c.rule, c.rate, c.cap) for c in found.curves} == {
        ("SGD", 0.1, None),
        ("SPS", 0.5, None),
        ("SNGD", 0.3, 0.7),
    }


def test_a_best_rate_at_the_edge_extends_the_grid(tmp_path):
    low = dataclasses.replace(STUDY, rates={"SGD": (0.001, 0.002)})
    found = run(low, tmp_path)
    tried = [trial.rate for trial in found.trials("SGD")]
    assert tried == pytest.approx([0.001, 0.002, 0.004, 0.008])
    assert found.rates()["SGD"] == pytest.approx(0.008)


def test_sngd_takes_over_the_cap_of_sps_unless_it_has_its_own(whole, tmp_path):
    assert {run.cap for run in whole.runs("SNGD")} == {whole.rates()["SPS"]}
    own = run(dataclasses.replace(STUDY, cap=7.0), tmp_path)
    assert {run.cap for run in own.runs("SNGD")} == {7.0}
    assert {run.cap for run in own.runs("SPS")} == {None}


def test_runs_of_one_seed_share_start_and_batches(whole):
    for seed in (0, 1):
        first = [whole.runs(rule)[seed].loss[0] for rule in STUDY.rates]
        assert len(set(first)) == 1
    assert whole.runs("SGD")[0].loss[0] != whole.runs("SGD")[1].loss[0]


def test_the_walk_of_sgd_is_that_of_its_steps(whole):
    curve = whole.runs("SNGD")[0]
    moved = np.sum((curve.step_size.astype(float) * curve.gradient_norm.astype(float)) ** 2)
    walked = sum(values[-1] for values in curve.walked.values())
    assert walked == pytest.approx(moved, rel=1e-5)


def test_a_study_in_pieces_is_bit_for_bit_that_in_one(whole, tmp_path):
    for _ in range(1000):
        try:
            pieces = run(STUDY, tmp_path, minutes=3e-3)
            break
        except OutOfTime as rest:
            assert "curves are finished" in str(rest)
    same(whole, pieces)


def same(first, second):
    assert [c.rate for c in first.curves] == [c.rate for c in second.curves]
    for mine, theirs in zip(first.curves, second.curves, strict=True):
        for name in ("loss", "step_size", "gradient_norm", "evaluated_at"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))
        for group in ("metrics", "weight_norms", "walked", "end"):
            np.testing.assert_equal(dict(getattr(mine, group)), dict(getattr(theirs, group)))


SLOWLY = """
import sys, time
from pathlib import Path
from tests.training import test_study as here
from lib.training.record import Record
take = Record.note
def note(self, *arguments):
    time.sleep(0.01)
    return take(self, *arguments)
Record.note = note
here.run(here.STUDY, Path(sys.argv[1]))
"""


def test_a_study_that_is_killed_goes_on_bit_for_bit(whole, tmp_path):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TQDM_DISABLE": "1"}
    child = subprocess.Popen(
        [sys.executable, "-c", SLOWLY, str(tmp_path / "killed")], cwd=ROOT, env=environment
    )
    while len(list((tmp_path / "killed").glob("*/*.npz"))) < 3 and child.poll() is None:
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL  # it was under way
    same(whole, run(STUDY, tmp_path / "killed"))


def test_finished_runs_travel_in_a_kept_file(whole, tmp_path):
    trials = [curve for curve in whole.curves if curve.part == "trial"]
    part = dataclasses.replace(whole, curves=(*trials, *whole.runs("SGD")))
    part.save(tmp_path / "points.npz")
    runner = Runner(STUDY, tmp_path / "two", Budget(), say=lambda words: said.append(words))
    said = []
    runner.files.adopt(load(tmp_path / "points.npz"))
    same(whole, runner.run())
    assert len(said) == 4 and not any("SGD" in name.split("-")[1:2] for name in said)
    other = Runner(dataclasses.replace(STUDY, horizon=20), tmp_path, Budget())
    with pytest.raises(ValueError, match="another configuration"):
        other.files.adopt(part)


def test_every_rate_that_diverges_is_named(tmp_path):
    steep = lambda model, batch: model(batch[0]).exp().mean()  # overflows on both sides
    wild = lambda: dataclasses.replace(problem(), loss=steep)
    wild = dataclasses.replace(STUDY, problem=wild, rates={"SGD": (1e4, 3e4)})
    with pytest.raises(ValueError, match=r"every rate of SGD diverged: 10000, 30000"):
        run(wild, tmp_path)


def test_curves_of_another_configuration_lie_apart(tmp_path):
    small = dataclasses.replace(STUDY, rates={"SGD": (0.1, 0.3)}, seeds=1)
    run(small, tmp_path)
    run(dataclasses.replace(small, horizon=20), tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_study_says_what_it_cannot_be():
    with pytest.raises(ValueError, match="criterion must be"):
        dataclasses.replace(STUDY, criterion="luck")
    with pytest.raises(ValueError, match="rules"):
        dataclasses.replace(STUDY, rates={"Newton": (1.0,)})


def test_a_rule_that_the_study_lacks_is_named(tmp_path):
    runner = Runner(STUDY, tmp_path, Budget())
    with pytest.raises(ValueError, match="only names Newton; points has SGD, SPS, SNGD"):
        runner.run(only=["SGD", "Newton"])


@pytest.mark.parametrize("minutes", ["0", "-1", "nan"])
def test_minutes_must_be_above_zero(minutes, capsys):
    commands_of = (
        lambda: study_command.main(["mnist", "--minutes", minutes]),
        lambda: commands.main(["digits", "sgd", "--minutes", minutes]),
    )
    for command in commands_of:
        with pytest.raises(SystemExit) as end:
            command()
        assert end.value.code == 2 and "minutes must be above 0" in capsys.readouterr().err
    with pytest.raises(ValueError, match="minutes must be above 0"):
        Budget(float(minutes))


def test_the_command_keeps_curves_and_says_what_is_left(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(study_command, "STUDIES", {"points": STUDY})
    state = ["points", "--state", str(tmp_path / "state")]
    assert study_command.main([*state, "--minutes", "1e-4"]) == 3
    assert "goes on from here" in capsys.readouterr().out
    assert study_command.main(state) == 0
    assert study_command.main([*state, "--keep", str(tmp_path)]) == 0
    assert load(tmp_path / "points.npz").seeds() == [0, 1]
    assert "4 trials" not in capsys.readouterr().err


def test_a_compiler_that_fails_is_said_once_and_training_goes_on(monkeypatch):
    def fail(self, **options):
        raise RuntimeError("no compiler found")

    monkeypatch.setattr(nn.Module, "compile", fail)
    monkeypatch.setattr(compilation, "_SAID", set())
    said, batch = [], (torch.ones(2, 3), torch.tensor([0, 1]))
    state = torch.get_rng_state()
    for _ in range(2):
        model = nn.Linear(3, 2)
        torch.set_rng_state(state)
        loss = lambda m, b: nn.functional.cross_entropy(m(b[0]), b[1])
        assert not compilation.compiled_or_eager(model, batch, loss, said.append)
        assert model(batch[0]).shape == (2, 2) and model.weight.grad is None
    assert said == [
        "torch.compile does not work here (no compiler found); training goes on without it"
    ]
    assert torch.equal(torch.get_rng_state(), state)
