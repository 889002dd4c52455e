"""What a notebook's cell to play with runs: the runs of the study itself, without its search."""

import numpy as np
import pytest
import torch

from lib.training.rules import RULES
from lib.training.study import Work, a_run
from papers import smoke
from tests.training.test_study import STUDY


def test_once_is_the_judged_run_of_the_study(tmp_path):
    found = smoke.once(STUDY, {"SPS": 5.0, "SNGD": 0.1}, cap=0.5)
    for rule, rate, cap in (("SPS", 5.0, None), ("SNGD", 0.1, 0.5)):
        work = Work(STUDY, tmp_path, say=lambda words: None)
        alone = work.one(a_run("curve", rule, rate, cap, 0))
        (run,) = found.runs(rule)
        np.testing.assert_array_equal(run.loss, alone.loss)
        assert (run.rate, run.cap, run.seed) == (rate, cap, 0)


def test_last_losses_are_the_last_readings_of_the_clock(monkeypatch):
    sign = lambda parameters, rate, cap: torch.optim.Adam(parameters, rate, betas=(0.0, 0.0))  # noqa: E731
    monkeypatch.setitem(RULES, "sign", sign)
    last = smoke.last_losses(STUDY, {"SGD": 0.1, "sign": 0.01})
    for rule, rate in (("SGD", 0.1), ("sign", 0.01)):
        (run,) = smoke.once(STUDY, {rule: rate}).runs(rule)
        assert last[rule] == pytest.approx(run.clock["loss"][-1], abs=1e-4)
        assert run.clock["at"][-1] == STUDY.horizon // STUDY.clock * STUDY.clock


def test_without_a_cap_every_step_of_sngd_has_the_length_of_its_rate():
    (run,) = smoke.once(STUDY, {"SNGD": 0.1}).runs("SNGD")
    np.testing.assert_allclose(run.step_size * run.gradient_norm, 0.1, rtol=1e-5)


def test_an_unknown_rule_is_named():
    with pytest.raises(ValueError, match="no rule 'Lion'"):
        smoke.once(STUDY, {"Lion": 0.1})
