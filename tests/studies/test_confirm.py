"""Tests of the confirmation's runs on a toy study.

A failure means that a kill or a second process spoils a seed.
"""

import itertools
import os
import signal
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lib import files
from lib.training.curves import Curve, Curves, load
from lib.training.work import OutOfTime, Work, made_on
from papers.studies import confirm
from papers.studies.confirm import RACE, Confirmation
from tests.training import test_loop
from tests.training.test_study import STUDY

RATES = {"SGD": [1.0, 0.1], "SPS": [5.0, 0.5], "SNGD": [0.3, 0.1]}
SEEDS = (30, 31, 32)


def table():
    """Return a confirm.toml of one toy study, for the present code."""
    torch.set_num_threads(1)
    made = made_on("cpu")
    fixed = {name: made[name] for name in ("code", "torch", "threads")}
    shared = {"commit": "here", "first_seed": 30, "look_after": 2, "most": 1.5}
    plan = {
        "seeds": 3,
        "deviation": 0.1,
        "horizon": 40,
        "evaluations": 2,
        "rates": RATES,
    }
    return fixed | shared | {"race_seeds": [100, 101, 102], "points": plan}


def install(patch):
    """Put the toy study in the place of the real ones."""
    patch.setattr(confirm, "TABLE", table())
    patch.setitem(confirm.STUDIES, "points", STUDY)
    # No trial of a first round: every race runs all of its seeds.
    patch.setattr(confirm, "first_round", lambda plan: Curves({}, ()))


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    install(monkeypatch)


def plan():
    return confirm.plans()["points"]


def confirmation(out, state, say=lambda _: None):
    state.mkdir(parents=True, exist_ok=True)
    return Confirmation(plan(), out, state, say=say)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Run the confirmation in one go."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        install(patch)
        confirmation(folder / "out", folder / "state").run()
    return folder / "out"


def contents(out):
    return {path.stem: load(path) for path in sorted((out / "points").glob("*.npz"))}


def same(first, second):
    assert first.keys() == second.keys()
    for name, curves in first.items():
        for mine, theirs in zip(curves.curves, second[name].curves, strict=True):
            assert (mine.rule, mine.rate, mine.seed) == (
                theirs.rule,
                theirs.rate,
                theirs.seed,
            )
            test_loop.same(mine, theirs)


def test_every_seed_has_a_whole_file_at_the_rates_of_the_race(whole):
    race = load(whole / "points" / f"{RACE}.npz")
    decided = confirm.rates(plan(), race)
    for rule, rates in RATES.items():
        costs = {}
        for rate in rates:
            runs = [run for run in race.curves if (run.rule, run.rate) == (rule, rate)]
            assert sorted(run.seed for run in runs) == [100, 101, 102]
            costs[rate] = np.median([run.steps_to(0.2) for run in runs])
        assert costs[decided[rule]] == min(costs.values())
    for seed in SEEDS:
        curves = confirm.whole_seed(plan(), whole / "points" / f"{seed}.npz", decided)
        assert [run.rule for run in curves.curves] == list(RATES)
        assert {run.seed for run in curves.curves} == {seed}
        (capped,) = [run for run in curves.curves if run.rule == "SNGD"]
        assert capped.cap == decided["SPS"]
    assert {path.stem for path in (whole / "points").glob("*.npz")} == {
        "30",
        "31",
        "32",
        RACE,
    }


def test_a_run_ends_at_its_target(whole):
    for run in load(whole / "points" / "30.npz").curves:
        if np.isfinite(run.steps_to(0.2)) and run.steps_to(0.2) < 40:
            assert run.status == f"stopped after step {run.steps_to(0.2):g}"


def trial(rule, rate, seed, steps):
    """Return a raced run that reaches the last target after `steps` steps."""
    at = np.arange(0, steps + 1, 2, dtype=np.float32)
    losses = np.full(len(at), 0.9, np.float32)
    losses[-3:] = 0.1
    clock = {"at": at, "loss": losses}
    return Curve("finished", part="trial", rule=rule, rate=rate, seed=seed, clock=clock)


@pytest.mark.parametrize(
    ("first", "second", "taken"),
    [
        ((20, 20, 20), (20, 20, 20), 1.0),  # equal: that of the first round
        ((20, 30, 20), (10, 40, 20), 1.0),  # equal medians
        ((20, 30, 22), (10, 40, 20), 0.1),
        ((10, 10, 38), (12, 12, 12), 1.0),  # the median, and not the mean
    ],
)
def test_the_smallest_median_wins_and_a_tie_goes_to_the_first_round(
    first, second, taken
):
    races = []
    for rate, steps in ((1.0, first), (0.1, second)):
        races += [trial("SGD", rate, 100 + k, each) for k, each in enumerate(steps)]
    assert confirm.chosen(plan(), "SGD", races) == taken
    with pytest.raises(
        ValueError, match="the race of SGD 0.1 in points is not finished"
    ):
        confirm.chosen(plan(), "SGD", races[:-1])


def test_trials_of_the_first_round_count_if_they_reached_the_target(monkeypatch):
    reached = trial("SGD", 1.0, 100, 20)
    dropped = trial("SGD", 0.1, 100, 20)
    dropped.clock["loss"][:] = 0.9
    monkeypatch.setattr(
        confirm, "first_round", lambda plan: Curves({}, (reached, dropped))
    )
    assert confirm.usable_trials(plan()) == [reached]


def test_a_single_rate_is_given_and_not_raced():
    given = replace(plan(), rates=RATES | {"SGD": [0.3]})
    assert confirm.chosen(given, "SGD", []) == 0.3
    assert confirm.raced_runs(given, "SGD", Curves({}, ()), {}) == []


def test_a_confirmation_in_pieces_is_bit_for_bit_that_in_one(
    whole, tmp_path, monkeypatch
):
    class Short(Work):
        """Work whose time is over after it has looked at the clock forty times."""

        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            looks = itertools.count()
            self.is_out_of_time = lambda: next(looks) > 40

    monkeypatch.setattr(confirm, "Work", Short)
    cuts = 0
    while True:
        try:
            confirmation(tmp_path / "out", tmp_path / "state").run()
            break
        except OutOfTime:
            cuts += 1
            assert cuts < 100
            for seed, curves in contents(tmp_path / "out").items():
                assert seed == RACE or len(curves.curves) == 3  # never a half seed
    assert cuts > 1
    same(contents(whole), contents(tmp_path / "out"))


def test_a_kept_seed_is_not_trained_again(whole, tmp_path):
    out = tmp_path / "out"
    (out / "points").mkdir(parents=True)
    for path in (whole / "points").glob("*.npz"):
        if path.stem != "31":
            (out / "points" / path.name).write_bytes(path.read_bytes())
    before = {path.name: path.stat().st_mtime_ns for path in (out / "points").iterdir()}
    said = []
    confirmation(out, tmp_path / "state", say=said.append).run()
    trained = [line for line in said if line.startswith("curve-")]
    assert len(trained) == 3 and all("-31:" in line for line in trained)
    assert not any(line.startswith("trial-") for line in said)
    for name, moment in before.items():
        assert (out / "points" / name).stat().st_mtime_ns == moment
    same(contents(whole), contents(out))


SHARED = """
import sys, time
from pathlib import Path
import pytest
from lib.training import loop
from tests.studies import test_confirm as here
from tests.training import test_study
take = test_study.Batches.batch
test_study.Batches.batch = lambda self, step: time.sleep(0.005) or take(self, step)
loop.SAVE_EVERY = 3
here.install(pytest.MonkeyPatch())
here.confirmation(Path(sys.argv[1]) / "out", Path(sys.argv[1]) / "state", say=print).run()
"""


def started(folder):
    environment = os.environ | {"PYTHONPATH": str(files.ROOT), "TQDM_DISABLE": "1"}
    command = [sys.executable, "-u", "-c", SHARED, str(folder)]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=files.ROOT, env=environment, stdout=pipe, text=True
    )


def test_processes_share_the_work_though_one_is_killed(whole, tmp_path):
    killed = started(tmp_path)
    other = started(tmp_path)
    killed.stdout.readline()  # a line about its first run
    while not any(tmp_path.rglob("*.pt")):  # until some run has saved
        assert killed.poll() is None
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    theirs = other.communicate()[0].splitlines()
    assert other.returncode == 0
    # The process that is left may have skipped the seed that the killed process held.
    said = []
    confirmation(tmp_path / "out", tmp_path / "state", say=said.append).run()
    same(contents(whole), contents(tmp_path / "out"))
    ends = [line.partition(":")[0] for line in theirs + said if ": " in line]
    runs = [end for end in ends if end.startswith(("trial-", "curve-"))]
    assert len(runs) == len({*runs})  # none was run twice


def test_two_processes_train_each_seed_once(whole, tmp_path):
    both = [started(tmp_path), started(tmp_path)]
    lines = [line for each in both for line in each.communicate()[0].splitlines()]
    assert [each.returncode for each in both] == [0, 0]
    finished = [line for line in lines if line.endswith(".npz is whole")]
    assert len(finished) == len({*finished}) == len(SEEDS)
    same(contents(whole), contents(tmp_path / "out"))


def test_other_code_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(confirm.TABLE, "code", "another")
    with pytest.raises(ValueError, match="run it from a clone of commit here"):
        confirmation(tmp_path / "out", tmp_path / "state").run()
    assert not (tmp_path / "out").exists()


def test_the_command_runs_what_it_is_told_and_says_when_time_is_over(
    whole, tmp_path, capsys
):
    words = ["--out", str(tmp_path / "out"), "--state", str(tmp_path / "state")]
    assert confirm.main(["points", *words, "--minutes", "1e-6"]) == 3
    assert "the same command goes on from here" in capsys.readouterr().out
    assert confirm.main(["points", *words, "--seeds", "4"]) == 0
    assert "33.npz is whole" in capsys.readouterr().out
    kept = contents(tmp_path / "out")
    assert kept.pop("33").curves[0].seed == 33
    same(contents(whole), kept)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["lines"], "there is no plan for 'lines', only for points"),
        (["points", "--seeds", "5"], "points has 3 to 4 seeds, not 5"),
        (["points", "--seeds", "2"], "points has 3 to 4 seeds, not 2"),
    ],
)
def test_bad_words_are_one_sentence(words, sentence, tmp_path, capsys):
    state = ["--state", str(tmp_path / "state"), "--out", str(tmp_path / "out")]
    assert confirm.main([*words, *state]) == 1
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1 and sentence in printed.err
    assert not (tmp_path / "out").exists()


def test_the_plan_of_cifar_runs_growth_on_its_first_seeds_and_two_rules_on_the_others(
    monkeypatch,
):
    monkeypatch.undo()
    cifar = confirm.plans()["cifar10_50000"]
    assert cifar.rules(35) == ["SGD", "Adam", "SPS", "SNGD"] and cifar.rules(36) == [
        "SGD",
        "SNGD",
    ]
    first, later = (cifar.study({"SGD": [0.2]}, grows) for grows in (True, False))
    assert (first.stop_from, first.walk) == (4_800, True)
    assert (later.stop_from, later.walk) == (0, False)
    assert first.stop_at == later.stop_at == 1.4 and list(first.points) == [
        0,
        4_800,
        9_600,
    ]
    judged = confirm.plans()["imdb_256"].study({"l2": [0.008]})
    assert judged.stop_at is None and judged.criterion == "accuracy"


class Clock:
    """A clock that stands still at 1000 seconds."""

    @staticmethod
    def monotonic():
        return 1000.0


@pytest.mark.parametrize("seconds", [1, 90])
def test_a_run_has_the_minutes_that_are_left(tmp_path, monkeypatch, seconds):
    given = []

    def work(study, state, minutes, **options):
        given.append(minutes)
        made = {name: confirm.TABLE[name] for name in ("code", "torch", "threads")}
        return SimpleNamespace(made=made)

    monkeypatch.setattr(confirm, "time", Clock)
    monkeypatch.setattr(confirm, "Work", work)
    until = Confirmation(plan(), tmp_path, tmp_path, until=1000.0 + seconds)
    until._work(STUDY)
    assert given == [pytest.approx(seconds / 60)]


def test_no_run_begins_when_the_time_is_over(tmp_path, monkeypatch):
    monkeypatch.setattr(confirm, "time", Clock)
    for until in (1000.0, 990.0):
        with pytest.raises(OutOfTime):
            Confirmation(plan(), tmp_path, tmp_path, until=until)._work(STUDY)


def test_the_command_ends_so_many_minutes_after_its_start(tmp_path, monkeypatch):
    given = []

    def made(plan, out, state, until):
        given.append(until)
        return SimpleNamespace(run=lambda: None)

    monkeypatch.setattr(confirm, "time", Clock)
    monkeypatch.setattr(confirm, "Confirmation", made)
    words = ["points", "--state", str(tmp_path), "--minutes", "2.5"]
    assert confirm.main(words) == 0
    assert given == [1150.0]
