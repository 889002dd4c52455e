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
# *Side road of page [00](00_attention_by_hand.ipynb) · 10 minutes · [words](words.md).* After it you can say what the data, the rule and the step change.
#
# **Question.** How does the training of one attention layer depend on the data, the update rule and the step? Every move of a
# control trains anew from the start.
#
# Run all cells in JupyterLab, or open this notebook with `voila notebooks/01_explorer.ipynb`. Without widgets the page shows the
# pictures of its default setting below.

# %% tags=["parameters"]
# Set-up, no need to read.
scale = "demo"
model = "class means, orthogonal"
n, T, d = 10, 6, 100
signal, noise = 3.0, 0.1
rule, step_size = "NGD", 0.025
seed = 0
steps = 1000

# %% tags=["set-up"]
# Set-up, no need to read.
from dataclasses import replace

from IPython.display import display

from companion import explorer, statements
from papers.a.statements import STATEMENTS
from papers.law.margin_law import margin_law

setting = explorer.ExplorerSetting(model, n, T, d, signal, noise, rule, step_size, seed, steps)

# %%
explorer.interactive(setting, law=margin_law)

# %% [markdown]
# **How to read it.** Left, each row is a sample and each disc a token. The area of a disc is the token's softmax weight at the end of
# the run, and the [opt token](words.md) is orange. In the middle is the [direction error](words.md), the distance of $W_t/\lVert W_t\rVert$ from
# $W_{mm}/\lVert W_{mm}\rVert$. The dotted line is the law of [notebook 40](40_law_of_margins.ipynb): for large $W_t$ it is a constant divided by
# $\lVert W_t\rVert$. It is drawn if the premises of the law hold. Right is the softmax weight of each opt token. The grey lines are the last run: its direction error, and the
# smallest weight of an opt token in it. The axes never change, so two runs can be compared by eye.
#
# Things to try: `GD`, whose direction turns slowly; `Polyak` with 10,000 iterations; step sizes far from the default;
# `unit sphere`, where the other tokens' scores differ and the theorem's assumption fails; a dimension `d` too small for
# any $W$ to separate the opt tokens.
#
# ## The statement
#
# The layer is $f_i = y_i\,u^\top X_i^\top \mathrm{softmax}(X_i W z_i)$ with a fixed head $u$, the loss
# $L = \frac1n\sum_i e^{-f_i}$. Only $W$ is trained, from a small Gaussian start.
#
# | symbol | meaning | shape |
# |---|---|---|
# | $W_t$ | attention after $t$ steps | $d \times d$ |
# | $W_{mm}$ | token SVM: smallest $\lVert W\rVert_F$ with $(x_{i,opt} - x_{i,t})^\top W z_i \ge 1$ | $d \times d$ |
#
# This is the setting of **Figures 2 and 5** of **paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv
# 2402.05738), one data set at a time. The paper's sentences on NGD (Theorem 1), GD (Theorem 6) and Polyak's step (Theorem 7) follow, with their
# hypotheses. Class means keep Assumption 2, and are the paper's Example 1 as we read it. Assumption 1, as we read it, holds for them
# if $d$ is large enough ([notebook 13](13_assumptions_broken.ipynb)). The data model `unit sphere` breaks Assumption 2: try what happens.

# %%
of = "Assumption 1", "Assumption 2", "Theorem 1", "Theorem 6", "Theorem 7"
statements.quoted("A", STATEMENTS, *of)

# %% [markdown]
# ## The same without controls
#
# We train with every rule at the setting above, from the same data and start: one seed, synthetic, our setting. One run can show
# little more than that the rules turn. The claims are on pages [10](10_fixed_decoder.ipynb) and [19](19_theory_ledger.ipynb).

# %% tags=["nbval-check-output"]
runs = {name: explorer.explore(replace(setting, rule=name), margin_law) for name in explorer.RULES}
for name, shown in runs.items():
    first, *_, last = shown.direction_error
    print(f"{name:8} direction error {first:.3f}, at the end {last:.3f}")
    assert last < first

# %%
display(explorer.picture(runs["NGD"]))
display(explorer.picture(runs["GD"], ghost=runs["NGD"]))

# %% [markdown]
# The first picture is the run of NGD. The second is the run of GD, with that of NGD in grey behind it.
#
# ## What we saw
#
# Every rule turns towards $W_{mm}$. Under NGD the softmax weights of the opt tokens saturate. Its direction error is still below the
# dotted law at the end; with 10,000 iterations it comes within a few percent of it. GD goes the same way and is slow, since its steps shrink with the gradient. Its softmax weights still rise at the end.
#
# ## Change this
#
# Predict first, then run. Or move the sliders.
#
# 1. Ten times as many iterations. *Prediction:* under NGD the norm of $W_t$ grows like $t$, under GD like $\log t$.
#    By how much does each direction error fall?

# %%
for name in ("NGD", "GD"):
    longer = explorer.explore(replace(setting, rule=name, steps=10 * steps))
    fall = runs[name].direction_error[-1] / longer.direction_error[-1]
    print(f"{name}: {fall:.1f} times smaller")

# %% [markdown]
# <details><summary>Answer</summary>
#
# NGD's falls by more than GD's, and by less than ten: its $1/t$ comes later, from ten thousand iterations on
# ([notebook 11](11_long_horizon.ipynb)).
#
# </details>
#
# 2. `unit sphere` in place of class means. *Prediction:* the other tokens' scores differ, so Assumption 2 fails. Do the
#    softmax weights of all opt tokens still tend to one?

# %%
sphere = "unit sphere (no signal, no noise)"
for k in range(3):
    shown = explorer.explore(replace(setting, model=sphere, seed=k))
    print(f"draw {k}: smallest weight of an opt token at the end {shown.opt_weights[-1].min():.2g}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Not on every draw: in one of the three a sample looks away from its opt token.
#
# </details>
