"""Tests of a trial, a judged run and its end on a device other than the CPU.

They give the same curves as on the CPU. The device is simulated for machines that have
none. Its tensors only combine with tensors of the same device. Their content is kept on
the CPU. As on a GPU, an operation that mixes them with a tensor of the CPU raises an
error, unless that tensor is a single number.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from lib.training import loop
from lib.training.studies import DEMO
from lib.training.study import TUNING_SEED
from lib.training.work import Run, Work
from tests.training.test_study import STUDY

# the one device without a driver on which torch allows a tensor to be made
NAME = "meta"


class Far(torch.Tensor):
    """A tensor that says that it is on the device `NAME`; `near` is its content."""

    @staticmethod
    def __new__(cls, near):
        how = dict(strides=near.stride(), storage_offset=near.storage_offset())
        how |= dict(dtype=near.dtype, device=NAME, requires_grad=False)
        self = torch.Tensor._make_wrapper_subclass(cls, near.shape, **how)
        self.near = near
        return self

    def __reduce_ex__(self, protocol):
        return self.near.__reduce_ex__(protocol)  # a file holds the content

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return run(function, args, kwargs or {})


def run(function, args, kwargs):
    """Run `function` of far tensors on the CPU."""
    far = []
    near = []
    made = {}

    def inner(x):
        if isinstance(x, Far):
            far.append(x)
            made[id(x.near)] = x
            return x.near
        if isinstance(x, torch.Tensor):
            near.append(x)
        return x

    args, kwargs = tree_map(inner, (args, kwargs))
    asked = kwargs.get("device")
    moved = "copy" in function.__name__  # only copies may change the device
    if far and not moved and any(x.ndim for x in near):
        raise RuntimeError(f"{function} got tensors of {NAME} and of the CPU")
    if asked is None:
        there = bool(far)
    else:
        there = torch.device(asked).type == NAME
    if asked is not None:
        kwargs["device"] = "cpu"
    result = function(*args, **kwargs)

    # An operation in place gives what it got.
    def wrap(x):
        if isinstance(x, torch.Tensor):
            return made[id(x)] if id(x) in made else Far(x)
        return x

    return tree_map(wrap, result) if there else result


class Machine(TorchDispatchMode):
    """The result of `accelerate` with a device of this kind; it is active while
    entered.
    """

    device = torch.device(NAME)
    num_processes = 1
    process_index = 0
    is_main_process = is_local_main_process = True

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return run(function, args, kwargs or {})

    def prepare(self, model, optimizer):
        """Return `model` on the device; its parameters stay the objects that
        `optimizer` has.
        """
        for part in (*model.parameters(), *model.buffers()):
            far = Far(part.detach())
            if isinstance(part, torch.nn.Parameter):
                far = torch.nn.Parameter(far, part.requires_grad)
            torch.utils.swap_tensors(part, far)
        return model, optimizer

    def backward(self, loss):
        """Compute the gradients of `loss`."""
        loss.backward()

    def reduce(self, value, how):
        """Return the value, since the mean over one process is its value."""
        return value


STUDIES = [
    STUDY,
    replace(DEMO["mnist"], horizon=8, clock=4),
    replace(DEMO["imdb"], horizon=8),
]


@pytest.mark.filterwarnings("ignore:for .*copying from a non-meta parameter")
@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_a_study_runs_on_another_device(study, tmp_path, monkeypatch):
    def runs(folder):
        rule, rates = next(iter(study.rates.items()))
        work = Work(study, tmp_path / folder, say=lambda words: None)
        first = Run.of("trial", rule, rates[0], None, TUNING_SEED)
        work.all_of([first], study.horizon // 4)  # leaves a checkpoint
        return work.all_of([first, Run.of("curve", rule, rates[0], None, 0)])

    near = runs("near")
    monkeypatch.setattr(loop, "Accelerator", lambda cpu: machine)
    with Machine() as machine:
        with pytest.raises(RuntimeError, match="of meta and of the CPU"):
            torch.ones(3).to(NAME) + torch.ones(3)
        far = runs("far")
    for one, two in zip(near, far, strict=True):
        assert (one.made["device"], two.made["device"]) == ("cpu", NAME)
        np.testing.assert_allclose(two.loss, one.loss, rtol=1e-3)
        assert (
            two.end.keys() == one.end.keys()
            and two.metrics.keys() == one.metrics.keys()
        )
