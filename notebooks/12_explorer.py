# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Play with the dynamics
#
# **Paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738), the setting of
# **Figures 2 and 5**, one data set at a time. Choose the data, the update rule and its step size; the loss, the
# distance of $W_t/\|W_t\|$ from the direction of $W_{mm}$, the softmax weight of every sample's opt token and the path
# of $W_t$ are computed and drawn anew at every move of a slider. Each move trains from the start: exact training in
# minimal coordinates takes a few milliseconds.
#
# Run all cells in JupyterLab, or open this notebook with `voila notebooks/12_explorer.ipynb`. Without a front end for
# widgets it runs as well and shows the pictures of its default setting.

# %% tags=["parameters"]
scale = "demo"
model = "class means, orthogonal"
n, T, d = 10, 6, 100
signal, noise = 3.0, 0.1
rule, step_size = "NGD", 0.025
seed = 0
steps = 1000

# %%
import time
from dataclasses import replace

import numpy as np
from IPython.display import Image, display

from lib import explorer
from lib.companion import claims, plots
from lib.explorer import panel

plots.set_style()
setting = explorer.ExplorerSetting(
    model=model,
    n=n,
    T=T,
    d=d,
    signal=signal,
    noise=noise,
    rule=rule,
    step_size=step_size,
    seed=seed,
    steps=steps,
)

# %% [markdown]
# ## The explorer
#
# Things to try: `GD`, whose direction crawls; `Polyak` with 10,000 iterations; step sizes far from the default;
# `unit sphere`, where the other tokens' scores differ and the theorem's assumption fails; a dimension `d` too small for
# any $W$ to separate the opt tokens.

# %%
panel.Panel(setting)

# %% [markdown]
# ## The same without controls
#
# Every rule at the setting above, from the same data and start. Our setting, synthetic, one seed. The claims are those
# of Theorem 1 (NGD) and Theorem 6 (GD) in the weakest form that one run can show; the sharp ones stand in
# [01_fixed_decoder](01_fixed_decoder.ipynb) and [04_theory_ledger](04_theory_ledger.ipynb).

# %%
runs = {name: explorer.explore(replace(setting, rule=name)) for name in explorer.RULES}
claims.Table(
    claims.at_most(
        f"turns.{name}", f"{name}: direction error at the end, over that at the start",
        "paper A, Theorem 6" if name == "GD" else "paper A, Theorems 1 and 7", t.direction_error[-1] / t.direction_error[0], 1,
    )
    for name, t in runs.items()
)  # fmt: skip

# %% tags=["nbval-check-output"]
for name, shown in runs.items():
    print(f"{name:8s} direction error {shown.direction_error[-1]:.3f}")

# %%
board = explorer.Board(runs["NGD"])
for name in ("NGD", "GD"):
    board.show(runs[name])
    print(panel.said(runs[name]))
    display(
        Image(
            board.png(),
            alt=f"{name}: loss gap, direction error, softmax weights of the opt tokens, path of W_t",
        )
    )

# %% [markdown]
# What a move of a slider costs, training and drawing together (the aim is under 200 ms). Processor time, which other
# programs on the machine hardly change; the controls' round trip to the browser comes on top.

# %%
taken = []
for other in range(9):
    began = time.process_time()
    board.show(explorer.explore(replace(setting, seed=other)))
    board.png()
    taken.append(1e3 * (time.process_time() - began))
print(f"{len(taken)} redraws: median {np.median(taken):.0f} ms, longest {max(taken):.0f} ms")
