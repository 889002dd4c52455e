"""Tests of a study of one layer.

A failure means that a kill, a second process or a typing error spoils its curves.
"""

import contextlib
import dataclasses
import functools
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from filelock import FileLock
from torch import nn

from lib import files
from lib.networks.measures import classification, predict
from lib.training import __main__ as command
from lib.training import studies
from lib.training.batches import Batches
from lib.training.curves import load
from lib.training.problem import Problem
from lib.training.rules import optimiser
from lib.training.study import Study
from lib.training.work import ROOMS, OutOfTime, Run, Work, made_on, race
from papers.studies import smoke
from tests.training import test_loop


class Points(Problem):
    """Two classes of points on a line, nearly separated."""

    def __init__(self, batch=8, rows=64):
        rng = np.random.default_rng(0)
        labels = rng.integers(0, 2, rows)
        points = (2.0 * labels - 1)[:, None] + rng.normal(0, 0.5, (rows, 3))
        self.inputs = torch.tensor(points, dtype=torch.float32)
        self.targets = torch.tensor(labels)
        self.batch = batch
        self.about = {"data": "points", "rows": rows}

    def build(self):
        return nn.Linear(3, 2)

    def batches(self, seed, tuning):
        return Batches(self.inputs, self.targets, self.batch, seed)

    def clock(self, model):
        return classification(self.inputs, self.targets, name="clock")(model)

    def evaluate(self, model, seed, tuning):
        return classification(self.inputs, self.targets)(model)

    def finish(self, model, seed):
        return {"logits": predict(model, self.inputs).numpy()}

    def baselines(self):
        return {"three of four": lambda: np.arange(len(self.inputs)) % 4 > 0}


STUDY = Study(
    name="points",
    problem=Points,
    options={"rows": 64},
    rates={"SGD": (0.01, 0.1, 1.0), "SPS": (0.5, 5.0), "SNGD": (0.1, 0.3)},
    horizon=40,
    batch=8,
    window=4,
    targets=(0.5, 0.2),
    clock=2,
    seeds=2,
    evaluations=8,
    walk=True,
)


@pytest.fixture(autouse=True)
def one_study(monkeypatch):
    monkeypatch.setattr(command, "STUDIES", {"points": STUDY})


def work(study, folder, say=lambda _: None):
    return Work(study, folder, say=say)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Run STUDY in one go; several tests read its curves."""
    return work(STUDY, tmp_path_factory.mktemp("whole")).run()


def same(first, second):
    for mine, theirs in zip(first.curves, second.curves, strict=True):
        assert mine.rate == theirs.rate
        test_loop.same(mine, theirs)


def test_trials_end_where_a_round_ends_seeds_are_fresh_and_runs_paired(whole):
    assert whole.seeds() == [0, 1]
    lengths = [len(trial.loss) for trial in whole.trials("SGD")]
    assert set(lengths) <= set(STUDY.rounds) and min(lengths) < 40
    assert all(trial.seed == 100 for trial in whole.trials("SGD"))
    starts = [
        {whole.runs(rule)[seed].loss[0] for rule in STUDY.rates} for seed in (0, 1)
    ]
    # one start and one batch per seed
    assert [*map(len, starts)] == [1, 1] and starts[0] != starts[1]
    assert {run.cap for run in whole.runs("SNGD")} == {whole.rates()["SPS"]}
    assert {run.cap for run in whole.runs("SPS")} == {None}
    for curve in whole.curves:
        keys = {"commit", "code", "torch", "device", "processor", "threads", "products"}
        assert set(curve.made) == keys
        assert curve.made["threads"] == 1


def test_a_single_candidate_is_taken_and_a_best_rate_at_the_edge_extends_the_grid(
    tmp_path,
):
    rates = {"SGD": (0.001, 0.002), "SPS": (0.5,), "SNGD": (0.3,)}
    study = dataclasses.replace(STUDY, rates=rates, cap=0.7, first_seed=10)
    ran = work(study, tmp_path).run()
    tried = [trial.rate for trial in ran.trials("SGD")]
    assert tried == pytest.approx([0.001, 0.002, 0.004, 0.008])
    assert len(ran.curves) == 4 + 3 * 2 + 1 and ran.seeds() == [10, 11]
    caps = {(c.rule, c.rate, c.cap) for c in ran.judged()}
    assert caps == {("SGD", 0.008, None), ("SPS", 0.5, None), ("SNGD", 0.3, 0.7)}


def test_a_run_ends_at_the_first_reading_of_its_target_from_a_step_on(tmp_path):
    given = dataclasses.replace(STUDY, rates={"SGD": (0.1,)}, stop_at=0.5, seeds=1)
    (early,) = work(given, tmp_path / "early").run().judged()
    at = early.steps_to(0.5)
    assert early.status == f"stopped after step {at:g}" and at % STUDY.clock == 0
    late_study = dataclasses.replace(given, stop_from=int(at) + 4)
    (late,) = work(late_study, tmp_path / "late").run().judged()
    assert late.status == f"stopped after step {at + 4:g}"
    np.testing.assert_array_equal(late.loss[: len(early.loss)], early.loss)


def test_what_is_dear_is_measured_at_the_last_points_of_a_judged_run_alone(tmp_path):
    class Dear(Points):
        def closing(self, model):
            return {"dear": 1.0}

    study = dataclasses.replace(STUDY, problem=Dear, rates={"SGD": (0.1, 0.2)}, seeds=1)
    ran = work(study, tmp_path).run()
    (judged,) = ran.judged()
    assert np.isfinite(judged.metrics["dear"]).tolist() == [False] * 5 + [True] * 4
    assert all("dear" not in trial.metrics for trial in ran.trials("SGD"))


def test_the_walk_is_that_of_the_steps(whole):
    curve = whole.runs("SNGD")[0]
    moved = np.sum(
        (curve.step_size.astype(float) * curve.gradient_norm.astype(float)) ** 2
    )
    walked = sum(values[-1] for values in curve.walked.values())
    assert walked == pytest.approx(moved, rel=1e-5)


def test_a_study_in_pieces_is_bit_for_bit_that_in_one(whole, tmp_path):
    pieces = None
    cuts = 0
    while pieces is None:
        here = work(STUDY, tmp_path)
        looks = itertools.count()
        here.is_out_of_time = lambda looks=looks: next(looks) > 99
        try:
            pieces = here.run()
        except OutOfTime as rest:
            cuts += 1
            planned = re.search(r"(\d+) trials and (\d+) of 6 judged runs", str(rest))
            there = work(STUDY, tmp_path).collected().curves
            done = [curve.part for curve in there if not curve.paused]
            assert [int(n) for n in planned.groups()] == [
                done.count("trial"),
                done.count("curve"),
            ]
    assert cuts
    same(whole, pieces)
    assert pieces.baselines() == {"three of four": 0.75}


SLOWLY = """
import sys, time
from pathlib import Path
from lib.training import loop
from tests.training import test_study as here
take = here.Batches.batch
here.Batches.batch = lambda self, step: time.sleep(0.01) or take(self, step)
loop.SAVE_EVERY = 3
here.work(here.STUDY, Path(sys.argv[1]), say=print).run()
"""


def slowly(folder):
    environment = os.environ | {"PYTHONPATH": str(files.ROOT), "TQDM_DISABLE": "1"}
    started = [sys.executable, "-u", "-c", SLOWLY, str(folder)]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        started, cwd=files.ROOT, env=environment, stdout=pipe, text=True
    )


def test_processes_share_a_study_without_loss_though_one_is_killed(whole, tmp_path):
    killed = slowly(tmp_path)
    other = slowly(tmp_path)
    said = []
    lines = [killed.stdout.readline()]  # a line about its first run
    while not any(tmp_path.rglob("*.pt")):  # until its next one has saved
        assert killed.poll() is None
    killed.send_signal(signal.SIGKILL)
    lines += killed.communicate()[0].splitlines()
    same(whole, work(STUDY, tmp_path, say=said.append).run())
    theirs = other.communicate()[0].splitlines()
    assert (killed.returncode, other.returncode) == (-signal.SIGKILL, 0)
    lines += said + theirs
    ends = [line.partition(":")[0] for line in lines if "paused" not in line]
    # Each did a part, none was run twice
    assert said and theirs and len(ends) == len({*ends})


def test_what_killed_writes_left_is_gone_after_the_next_run(tmp_path):
    study = dataclasses.replace(STUDY, rates={"SGD": (0.1,)}, seeds=2)
    here = work(study, tmp_path)
    first, second = (Run.of("curve", "SGD", 0.1, None, seed) for seed in (0, 1))
    here.one(first)
    # The first run was killed between its curve and its checkpoint's removal.
    (here.folder / f"{first.name}.pt").write_bytes(b"a checkpoint")
    for run in (first, second):
        for end in ("pt", "npz"):
            (here.folder / f".{run.name}.{end}.0123.part").write_bytes(b"half")
    # Of a curve that is whole only the next write of it would sweep.
    (here.folder / f".{first.name}.npz.0123.part").unlink()
    here.all_of([first, second])
    left = [path.name for path in here.folder.iterdir() if path.suffix != ".lock"]
    assert sorted(left) == [f"{first.name}.npz", f"{second.name}.npz"]


def test_a_run_that_another_process_takes_further_is_read_meanwhile(tmp_path):
    here = work(STUDY, tmp_path)
    one = Run.of("curve", "SGD", 0.1, None, 0)
    short = here.one(one, 2)
    assert short.paused and len(short.loss) == 2
    with FileLock(next(here.folder.glob(".*.lock"))):
        assert np.array_equal(here.one(one, 2).loss, short.loss)
        assert here.one(one, 3) is None


def test_a_run_of_other_code_or_of_another_device_is_refused(tmp_path, monkeypatch):
    here = work(STUDY, tmp_path)
    one = Run.of("curve", "SGD", 0.1, None, 0)
    here.one(one)
    monkeypatch.setitem(here.made, "code", "another")
    with pytest.raises(
        ValueError, match=r"curve-SGD-0.1-0.npz was made by the code of commit .*"
    ):
        here.one(one)
    monkeypatch.undo()
    (path,) = here.folder.glob("*.npz")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match="not a curve file that can be read"):
        here.one(one)


def test_the_code_of_a_run_includes_that_of_its_random_streams(tmp_path, monkeypatch):
    lib = tmp_path / "lib"
    for room in ROOMS:
        shutil.copytree(files.ROOT / "lib" / room, lib / room)
    shutil.copy(files.ROOT / "lib" / "seeds.py", lib)
    shutil.copy(files.ROOT / "lib" / "files.py", lib)
    here = made_on("cpu")["code"]
    monkeypatch.setattr(files, "ROOT", tmp_path)

    def code():
        made_on.cache_clear()
        return made_on("cpu")["code"]

    found = [code()]
    for name in ("files.py", "seeds.py", "training/loop.py", "data/images.py"):
        with (lib / name).open("a") as stream:
            stream.write("# changed")
        found.append(code())
    made_on.cache_clear()
    assert found[0] == found[1] == here and len(set(found)) == 4


def main(folder, *words):
    return command.main(["points", "--state", str(folder), *words])


def test_the_command_keeps_curves_and_says_what_is_left(whole, tmp_path, capsys):
    assert main(tmp_path, "--minutes", "1e-4") == 3
    assert (
        "judged runs are finished; the same command goes on" in capsys.readouterr().out
    )
    assert main(tmp_path) == 0
    assert main(tmp_path, "--keep", str(tmp_path)) == 0
    assert "6 of 6 judged runs are finished" in capsys.readouterr().out
    same(whole, load(tmp_path / "points.npz"))
    assert main(tmp_path, "--keep", str(tmp_path), "--set", "horizon=20") == 1
    assert "points.npz is of another study" in capsys.readouterr().err


def test_stored_curves_are_not_replaced_by_fewer(whole, tmp_path, capsys):
    kept = tmp_path / "kept"
    whole.save(kept / "points.npz")
    assert main(tmp_path / "empty", "--keep", str(kept)) == 1
    assert "would be lost: move it away" in capsys.readouterr().err
    same(whole, load(kept / "points.npz"))
    with pytest.raises(SystemExit, match="2"):
        main(tmp_path, "--keep", str(kept), "--one", "SGD", "0.1", "1")


def test_one_run_alone_is_the_trial_or_the_judged_run(whole, tmp_path, capsys):
    for seed, expected in ((100, whole.trials("SGD")[1]), (1, whole.runs("SGD")[1])):
        rate = expected.rate
        assert main(tmp_path, "--one", "SGD", str(rate), str(seed)) == 0
        # a name that ends in numbers
        (path,) = tmp_path.glob(f"*/one-SGD-{rate}-{seed}.npz")
        (curve,) = load(path).curves
        done = len(expected.loss)  # a trial may have been dropped
        found = curve.loss[:done].astype(expected.loss.dtype)
        np.testing.assert_array_equal(found, expected.loss)
    printed = capsys.readouterr().out
    assert "finished, test_" in printed and "test_accuracy" in printed
    assert work(STUDY, tmp_path).collected().curves == ()


def test_a_field_of_the_study_is_set_by_command():
    words = [
        "seeds=3",
        "rates.SGD=0.05,0.2",
        "rates.Adam=1e-3",
        "options.rows=32",
        "cap=2",
    ]
    study = functools.reduce(command._changed, words, STUDY)
    assert (study.seeds, study.cap, study.options) == (3, 2, {"rows": 32})
    assert study.rates == STUDY.rates | {"SGD": (0.05, 0.2), "Adam": (1e-3,)}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--set", "speed=3"],
            "--set speed=3: it is FIELD=VALUE, with a field of rates",
        ),
        (["--set", "seeds"], "--set seeds: it is FIELD=VALUE"),
        (["--set", "seeds=many"], "expected a value such as 2, got 'many'"),
        (["--set", "seeds=0"], "seeds = 0; it must be a whole number"),
        (["--set", "first_seed=99"], "seed 100 is that of the trials"),
        (["--set", "rates.Newton=1"], "there is no rule 'Newton', only SGD"),
        (["--set", "rates.SGD=fast"], "above 0, not 'fast'"),
        (["--set", "rates.SGD=-1"], "above 0, not -1"),
        (["--set", "targets=low"], "above 0, not 'low'"),
        (["--set", "rates=1"], "rates has ['SGD', 'SPS', 'SNGD'], not ''"),
        (["--set", "options.size=3"], "options has ['rows'], not 'size'"),
        (["--set", "options.rows=0"], "size must lie between 1 and the 0 rows"),
        (["--set", "batch=65"], "size must lie between 1 and the 64 rows"),
        (["--one", "Newton", "1", "0"], "there is no rule 'Newton', only SGD"),
        (["--one", "SGD", "1e999", "0"], "above 0, not inf"),
        (["--one", "SGD", "1", "0.5"], "seed = 0.5; it must be a whole number"),
        *(
            (["--minutes", text], "minutes must be above 0, got")
            for text in ("0", "nan")
        ),
    ],
)
def test_bad_words_are_one_sentence_and_write_nothing(
    tmp_path, words, sentence, capsys
):
    assert main(tmp_path / "state", *words) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and any(part in said for part in sentence.split("|"))
    assert not (tmp_path / "state").exists()


def test_an_own_problem_may_have_options_of_any_value(tmp_path):
    class Moved(Points):
        def __init__(self, batch, first, shift):
            super().__init__(batch)
            self.inputs = self.inputs[:, first:] + shift

    study = dataclasses.replace(
        STUDY, problem=Moved, rates={"SGD": (0.1,)}, options={"first": 0, "shift": -1}
    )
    assert len(work(study, tmp_path).run().judged()) == 2


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("mnits", "there is no study 'mnits', only mnist_60000"),
        # Without its data a study trains no stand-in.
        ("mnist_60000", "mnist is missing"),
        ("imdb_256", "imdb is missing"),
        ("digits", "Not a directory"),
    ],
)
def test_a_study_that_cannot_run_is_one_sentence(
    name, sentence, tmp_path, monkeypatch, capsys
):
    monkeypatch.delenv("DATA_DIR", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(command, "STUDIES", studies.STUDIES)
    monkeypatch.setattr("lib.data.places.ROOT", tmp_path)
    (tmp_path / "file").write_text("")
    assert command.main([name, "--state", str(tmp_path / "file")]) == 1
    printed = capsys.readouterr()
    assert (
        printed.out == "" and printed.err.count("\n") == 1 and sentence in printed.err
    )
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_once_is_the_judged_run_of_the_study(tmp_path):
    found = smoke.once(STUDY, {"SPS": 5.0, "SNGD": 0.1}, cap=0.5)
    for rule, rate, cap in (("SPS", 5.0, None), ("SNGD", 0.1, 0.5)):
        work = Work(STUDY, tmp_path, say=lambda words: None)
        alone = work.one(Run.of("curve", rule, rate, cap, 0))
        (run,) = found.runs(rule)
        np.testing.assert_array_equal(run.loss, alone.loss)
        assert (run.rate, run.cap, run.seed) == (rate, cap, 0)
    (free,) = smoke.once(STUDY, {"SNGD": 0.1}).runs("SNGD")  # without a cap
    np.testing.assert_allclose(free.step_size * free.gradient_norm, 0.1, rtol=1e-5)
    with pytest.raises(ValueError, match="no rule 'Lion'"):
        smoke.once(STUDY, {"Lion": 0.1})


def sign(parameters, rate):
    return torch.optim.Adam(parameters.values(), rate, betas=(0.0, 0.0))


def test_last_losses_are_the_last_readings_of_the_clock():
    rates = {"SGD": 0.1, "sign": 0.01}
    last = smoke.last_losses(STUDY, rates, rules={"sign": sign})
    for rule, rate in rates.items():
        (run,) = smoke.once(STUDY, {rule: rate}, rules={"sign": sign}).runs(rule)
        assert last[rule] == pytest.approx(run.clock["loss"][-1], abs=1e-4)
        assert run.clock["at"][-1] == STUDY.horizon // STUDY.clock * STUDY.clock


def test_an_own_rule_may_treat_parameters_apart():
    """Muon, for example, treats matrices and vectors differently."""

    def split(parameters, rate):
        matrices = [p for p in parameters.values() if p.ndim == 2]
        others = [p for p in parameters.values() if p.ndim != 2]
        return torch.optim.SGD([{"params": matrices}, {"params": others}], rate)

    own = {"split": split, "whole": torch.optim.SGD}
    curves = smoke.once(STUDY, {"split": 0.1, "whole": 0.1}, rules=own)
    (apart,), (together,) = curves.runs("split"), curves.runs("whole")
    np.testing.assert_array_equal(apart.loss, together.loss)


def test_an_own_rule_races_beside_those_of_the_papers():
    heavy = functools.partial(torch.optim.SGD, momentum=0.9)
    rates = {"SGD": [0.1], "heavy": [0.001, 0.01], "sign": [0.01]}
    own = {"heavy": heavy, "sign": sign}
    said = []
    curves = race(STUDY, rates, rules=own, seeds=1, say=said.append)
    assert list(curves.rates()) == list(rates) and curves.seeds() == [0]
    assert {trial.rate for trial in curves.trials("heavy")} >= {0.001, 0.01}
    assert any(sentence.startswith("curve-heavy-") for sentence in said)
    (momentum,) = smoke.once(STUDY, {"SGD": 0.01}).runs("SGD")
    (with_momentum,) = smoke.once(STUDY, {"heavy": 0.01}, rules=own).runs("heavy")
    # The first step of momentum is that of SGD.
    assert with_momentum.loss[1] == momentum.loss[1]
    assert with_momentum.loss[2] != momentum.loss[2]


def failing(parameters, rate):
    raise ValueError("no such rate")


@pytest.mark.parametrize("rule", [sign, failing])
def test_a_race_leaves_the_number_of_threads_as_it_was(rule):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with contextlib.suppress(ValueError):
            race(STUDY, {"mine": [0.1]}, rules={"mine": rule}, seeds=1, horizon=8)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_runs_of_a_changed_rule_are_not_taken_up(tmp_path):
    def folder(rule):
        own = dataclasses.replace(STUDY, rates={"mine": (0.1,)}, rules={"mine": rule})
        return work(own, tmp_path).folder

    def first(parameters, rate):
        return torch.optim.SGD(parameters.values(), rate)

    def second(parameters, rate):
        return torch.optim.SGD(parameters.values(), rate / 2)

    second.__qualname__ = first.__qualname__
    assert folder(first) == folder(first)
    assert folder(first) != folder(second)
    faster = functools.partial(torch.optim.SGD, momentum=0.9)
    slower = functools.partial(torch.optim.SGD, momentum=0.8)
    assert folder(faster) != folder(slower)

    # Rules of one source differ in what they take from the function that makes them,
    # and in the defaults of their parameters.
    def enclosed(momentum):
        return lambda parameters, rate: torch.optim.SGD(
            parameters.values(), rate, momentum=momentum
        )

    def default(value):
        def rule(parameters, rate, momentum=value):
            return torch.optim.SGD(parameters.values(), rate, momentum=momentum)

        return rule

    def keyword(value):
        def rule(parameters, rate, *, momentum=value):
            return torch.optim.SGD(parameters.values(), rate, momentum=momentum)

        return rule

    for make in (enclosed, default, keyword):
        assert folder(make(0.9)) == folder(make(0.9))
        assert folder(make(0.9)) != folder(make(0.0))
    # What was typed into a console has no source to compare.
    typed = {}
    exec(compile("def rule(parameters, rate): ...", "<typed>", "exec"), typed)
    assert folder(typed["rule"]) != folder(typed["rule"])


def as_if_a_list(parameters, rate):
    return torch.optim.SGD(parameters, rate)


class NamedRate(torch.optim.SGD):
    def __init__(self, params, *, lr):
        super().__init__(params, lr)


def test_a_function_gets_a_dict_by_name_and_a_class_a_list():
    network = torch.nn.Linear(3, 2)
    seen = []

    def rule(parameters, rate):
        seen.append(parameters)
        return torch.optim.SGD(parameters.values(), rate)

    class Rule(torch.optim.SGD):
        def __init__(self, params, lr):
            seen.append(params)
            super().__init__(params, lr)

    for own in (rule, Rule):
        assert optimiser(own, network, 0.25).param_groups[0]["lr"] == 0.25
    by_name, members = seen
    assert by_name == {"weight": network.weight, "bias": network.bias}
    assert members[0] is network.weight and members[1] is network.bias


@pytest.mark.parametrize(
    ("rules", "error", "sentence"),
    [
        ({"SGD": torch.optim.SGD}, ValueError, "'SGD' is a rule of the papers"),
        ({"my/rule": torch.optim.SGD}, ValueError, "named in files, so not 'my/rule'"),
        ({"mine": "RMSprop"}, TypeError, "class of torch optimisers or a function"),
        ({"mine": lambda parameters, rate: None}, TypeError, "returned NoneType"),
        ({"mine": as_if_a_list}, TypeError, r"the list of its values\(\)"),
        ({"mine": NamedRate}, TypeError, r"with \(list of parameters, rate\)"),
    ],
)
def test_what_is_no_rule_is_refused(rules, error, sentence):
    (name,) = rules
    with pytest.raises(error, match=sentence):
        race(STUDY, {name: [0.1]}, rules=rules, say=lambda sentence: None)


def test_a_whole_float_is_the_same_setting_as_its_int(tmp_path):
    settings = dict(horizon=16, batch=8, seeds=2, first_seed=1, evaluations=4, clock=2)
    studies = [
        dataclasses.replace(
            STUDY, **{name: kind(value) for name, value in settings.items()}
        )
        for kind in (int, float, np.int64)
    ]
    folders = {work(study, tmp_path).folder for study in studies}
    assert studies[0] == studies[1] == studies[2] and len(folders) == 1
    for study in studies:
        assert study.rounds == [2, 4, 6, 8, 10, 12, 14, 16]
        assert study.points.tolist() == [0, 4, 8, 12, 16]
        assert list(study.judged_seeds) == [1, 2]


@pytest.mark.parametrize(
    "change, words",
    [
        ({"targets": ()}, "targets is empty; .* give at least one training loss"),
        ({"targets": 0.5}, "targets = 0.5; it must be a list of training losses"),
        ({"rates": {}}, "rates is empty; give at least one rule"),
        ({"rates": ["SGD"]}, r"rates = \['SGD'\]; it must be a dict by name"),
        ({"rates": {1: [0.1]}}, "a rule has the name 1; it must be a string"),
        ({"rules": ["mine"]}, r"rules = \['mine'\]; it must be a dict by name"),
        ({"options": {"held_out": 0}}, "options.held_out = 0; it must be a whole numb"),
        ({"rates": {"SGD": ()}}, r"rates\['SGD'\] = \(\); it must be a list"),
        ({"rates": {"SGD": 0.1}}, r"rates\['SGD'\] = 0.1; it must be a list"),
        (
            {"clock": 21},
            "horizon = 40; with a clock of 21 steps it must be at least 42",
        ),
    ],
)
def test_a_study_without_what_its_trials_need_is_refused(change, words):
    with pytest.raises(ValueError, match=words):
        dataclasses.replace(STUDY, **change)


def test_a_race_of_something_else_than_a_study_is_refused():
    with pytest.raises(TypeError, match="study must be a Study, .* got 'mnist'"):
        race("mnist", {"SGD": [0.1]})
