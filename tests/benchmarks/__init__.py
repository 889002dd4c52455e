"""Benchmarks of the library's speed and memory, each as a ratio.

`python -m tests.benchmarks [NAME ...]` runs them.
"""

import os

# This comes before any library starts its threads. On a busy machine, threads that wait
# by spinning take the cores from whatever is measured next, and a ratio then says more
# about them than about the code.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
