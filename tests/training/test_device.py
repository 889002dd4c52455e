"""A trial, a judged run and its end on a device that is not the CPU: the same curves as on it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lib.training import loop
from lib.training.studies import DEMO
from lib.training.study import TUNING_SEED, Work, a_run
from tests.training.far_device import NAME, Machine
from tests.training.test_study import STUDY

STUDIES = [STUDY, replace(DEMO["mnist"], horizon=8), replace(DEMO["imdb"], horizon=8)]


@pytest.mark.filterwarnings("ignore:for .*copying from a non-meta parameter")
@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_a_study_runs_on_another_device(study, tmp_path, monkeypatch):
    def runs(folder):
        rule, rates = next(iter(study.rates.items()))
        work = Work(study, tmp_path / folder, say=lambda words: None)
        first = a_run("trial", rule, rates[0], None, TUNING_SEED)
        work.all_of([first], study.horizon // 4)  # leaves a checkpoint
        return work.all_of([first, a_run("curve", rule, rates[0], None, 0)])

    near = runs("near")
    monkeypatch.setattr(loop, "accelerator", lambda cpu: machine)
    with Machine() as machine:
        with pytest.raises(RuntimeError, match="of meta and of the CPU"):
            torch.ones(3).to(NAME) + torch.ones(3)
        far = runs("far")
    for one, two in zip(near, far, strict=True):
        assert (one.made["device"], two.made["device"]) == ("cpu", NAME)
        np.testing.assert_allclose(two.loss, one.loss, rtol=1e-3)
        assert two.end.keys() == one.end.keys() and two.metrics.keys() == one.metrics.keys()
