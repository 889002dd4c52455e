"""One thread for small networks, no spinning, and a sentence that says so."""

import os
import subprocess
import sys

import torch

from lib.training import threads


def test_small_networks_take_one_thread_and_large_ones_keep_theirs(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert "threads: 2" in threads.choose(threads.SMALL) and torch.get_num_threads() == 2
        assert "threads: 1 (for 150,000 parameters" in threads.choose(150_000)
        assert torch.get_num_threads() == 1
        torch.set_num_threads(2)
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
        assert "threads: 2 (from OMP_NUM_THREADS" in threads.choose(150_000)
    finally:
        torch.set_num_threads(before)


def test_waiting_is_passive_before_torch_is_there():
    code = (
        "import sys, importlib.abc, os\n"
        "class Finder(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'torch': print(os.environ.get('OMP_WAIT_POLICY')); sys.exit()\n"
        "sys.meta_path.insert(0, Finder())\n"
        "import lib.training"
    )
    given = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
    for policy in ("PASSIVE", "ACTIVE"):
        given |= {} if policy == "PASSIVE" else {"OMP_WAIT_POLICY": policy}
        run = [sys.executable, "-c", code]
        done = subprocess.run(run, capture_output=True, text=True, check=True, env=given)
        assert done.stdout.strip() == policy
