"""The commands: who may write a result, what is said, what is refused."""

import subprocess
import sys
from pathlib import Path

import pytest

from lib.training import commands, history

ROOT = Path(__file__).resolve().parents[2]
HOLD = """
import sys, time
from pathlib import Path
from lib.training import commands
with commands.alone(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_two_trainings_of_one_out_do_not_mix(tmp_path, capsys):
    out = tmp_path / "run"
    train = ["digits", "sgd", "--steps", "2", "--evaluations", "1", "--cpu", "--out", str(out)]
    command = [sys.executable, "-c", HOLD, str(out)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout.readline() == "held\n"
            assert commands.main(train) == 1
            said = capsys.readouterr().err
            assert said.count("\n") == 1 and f"another training writes to --out {out}" in said
            assert not out.with_suffix(".npz").exists()
        finally:
            other.kill()
    assert commands.main(train) == 0  # a killed process gives the lock up
    printed = capsys.readouterr().out
    assert printed.startswith("threads: ") and "finished" in printed
    assert history.load(out.with_suffix(".npz"))[0].status == "finished"


def test_names_that_end_in_a_rate_stay_apart(tmp_path):
    paths = {commands.beside(tmp_path / f"sgd_{rate}", ".npz") for rate in (0.1, 0.3)}
    assert {path.name for path in paths} == {"sgd_0.1.npz", "sgd_0.3.npz"}


def test_the_other_processes_of_a_training_do_not_lock(tmp_path, monkeypatch):
    with commands.alone(tmp_path / "run"):
        with pytest.raises(ValueError, match="wait for it or choose another"):
            with commands.alone(tmp_path / "run"):
                pass
        monkeypatch.setenv("RANK", "1")
        with commands.alone(tmp_path / "run"):
            pass


@pytest.mark.parametrize("option", ["--rate", "--cap"])
@pytest.mark.parametrize("value", ["nan", "inf", "0", "-1"])
def test_a_rate_that_is_none_is_refused_before_the_training(option, value, capsys):
    with pytest.raises(SystemExit, match="2"):
        commands.options(["digits", "sngd", option, value])
    assert f"{option} must be positive and finite, got {value}" in capsys.readouterr().err


def test_a_negative_number_of_evaluations_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        commands.options(["digits", "sgd", "--evaluations", "-1"])
    assert "--evaluations must be 0 or more, got -1" in capsys.readouterr().err
