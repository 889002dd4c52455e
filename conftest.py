"""Settings of the session: it writes nothing into figures/ or runs/, into the home only caches."""

import os
import re
import tempfile
from pathlib import Path


def pytest_configure(config):
    # Not in a fixture: nbval starts its kernels outside of all fixtures, with this environment.
    base = tempfile.TemporaryDirectory(prefix="attention-dynamics-")
    config.add_cleanup(base.cleanup)
    os.environ.pop("RUN_FIGURES_DIR", None)  # a page in a test writes nothing
    for name in ("FIGURES_DIR", "RUNS_DIR", "IPYTHONDIR"):
        os.environ[name] = os.path.join(base.name, name.lower())
    os.environ["HF_DATASETS_CACHE"] = os.path.join(base.name, "datasets")
    os.environ["TQDM_DISABLE"] = "1"
    # One thread, as in a batch on two cores: at test sizes a second one gains little, and on a
    # busy machine it costs a lot.
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ.setdefault(name, "1")


# What nbval runs less of than a reader does. Cells to play with repeat the notebook at other
# settings, and `make figures` runs them.
PLAY = "## Change this"
SAVES = re.compile(r"run\.(save|keep)\(|kept_curves\.save\(")
# Parameters under nbval of the longest pages; what their compared outputs say holds there too.
SHORTER = {
    "10_fixed_decoder": "seeds = 10",
    "11_long_horizon": "steps, timed_steps = 100_000, 2000",
    "13_assumptions_broken": "seeds = 10",
    "17_what_it_costs": "n, steps, sizes = 200, 100, [10, 30]",
    "18_figures_2_and_5": "seeds = 10",
    "19_theory_ledger": "seeds, draws, steps = 10, 100, 5000",
    "20_preconditioned_regression": "batch = 128",
    "22_other_optimisers": "steps, batch = 1000, 128",
    "29_preconditioning_ledger": "draws, oracle_draws, softmax_draws = 40, 16, 10_000",
    "39_mirror_ledger": "seeds, path_seeds, draws = 6, 2, 200",
    "40_law_of_margins": "steps = 400_000",
    "43_map_of_the_constant": "map_steps, lp_steps = 5000, [20_000, 100_000]\n"
    "sample_seeds, zero_steps = 8, 200_000",
    "44_atlas": "steps = 3000",
    "45_atlas_of_networks": "seeds, selection_steps, vit_steps = 1, 500, 20",
    "46_own_norms_and_decay": "steps = sweep_steps = 3000",
    "47_schedules_and_memory": "sweep_steps = 3000",
}

# Files that take longest. Two workers share the tests file by file: what is long comes first, so
# that none is left alone with it at the end, and neighbours compile different kernels.
LONGEST = (
    "44_atlas",
    "43_map_of_the_constant",
    "45_atlas_of_networks",
    "46_own_norms_and_decay",
    "47_schedules_and_memory",
    "test_batch",
    "test_parallel",
    "test_wheel",
    "test_site",
    "test_browser",
)


def pytest_collection_modifyitems(config, items):
    cells = [item for item in items if hasattr(item, "cell_num")]
    play = {
        id(cell)
        for item in cells
        if item.cell_num == 0
        for cell in _cells_to_play(item)
    }
    left_out = [item for item in cells if id(item.cell) in play]
    for item in cells:
        if "parameters" in item.cell.metadata.get("tags", []):
            page = Path(item.fspath).stem
            item.cell.source += f"\n{SHORTER.get(page, '')}\n"
    config.hook.pytest_deselected(items=left_out)
    items[:] = sorted((item for item in items if item not in left_out), key=_turn)


def _turn(item):
    """The longest files in their order, then notebooks, then all others as they were."""
    page = Path(item.fspath)
    is_long = page.stem in LONGEST
    return not is_long, LONGEST.index(page.stem) if is_long else page.suffix != ".ipynb"


def _cells_to_play(item):
    """The cells of the section PLAY below an explanation; what saves the record is no play."""
    found, inside, before = [], False, None
    for cell in item.parent.nb.cells:
        text = cell.source
        if cell.cell_type == "markdown":
            # A cell may end one section and begin the next: its last heading counts.
            headings = re.findall(r"^## .*", text, re.M)
            inside = headings[-1].startswith(PLAY) if headings else inside
        elif inside and before == "markdown" and not SAVES.search(text):
            found.append(cell)
        before = cell.cell_type
    return found
