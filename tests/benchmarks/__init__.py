"""Speed and memory of the library, each as a ratio: `python -m tests.benchmarks [NAME
...]`.
"""

import os

# Before any library starts its threads: on a busy machine, threads that wait by
# spinning take the cores from whatever is measured next, and a ratio then says more
# about them than about the code.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
