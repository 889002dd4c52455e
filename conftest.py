"""Settings of the session: nothing in it writes into figures/, runs/ or the user's home."""

import os
import tempfile


def pytest_configure(config):
    # Not in a fixture: nbval starts its kernels outside of all fixtures, with this environment.
    base = tempfile.TemporaryDirectory(prefix="attention-dynamics-")
    config.add_cleanup(base.cleanup)
    for name in ("FIGURES_DIR", "RUNS_DIR", "IPYTHONDIR"):
        os.environ[name] = os.path.join(base.name, name.lower())
    os.environ["HF_DATASETS_CACHE"] = os.path.join(base.name, "datasets")
    os.environ["TQDM_DISABLE"] = "1"
    # One thread, as in a batch on two cores: at test sizes a second one gains little, and on a
    # busy machine it costs a lot.
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ.setdefault(name, "1")
