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
# *Side road of page [00](00_attention_by_hand.ipynb) · 10 minutes · [words](words.md).* By the end, you will be able to say what the data, the rule and the step change.
#
# **Question.** How does the training of one attention layer depend on the data, the update rule and the step size? Whenever you change
# a setting, the layer is retrained from scratch.
#
# Run all cells in JupyterLab, or start this notebook with `voila notebooks/01_explorer.ipynb`. If widgets are not available, see the section
# *The same without controls* below, which shows pictures for the default setting.

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
# **How to read the three panels.** In the left panel each row represents a sample, and each disc represents a token. The area of a disc shows the softmax weight of the token at the end of
# the run. The [opt tokens](words.md), those with the highest score in their sample, are orange. The middle panel shows the [direction error](words.md), which is the distance between $W_t/\lVert W_t\rVert$ and
# $W_{mm}/\lVert W_{mm}\rVert$. Here $W_t$ is the weight matrix after $t$ steps, and $W_{mm}$ is the max-margin matrix, which we define in the next section. The dotted line in this panel shows the error that the law of [notebook 40](40_law_of_margins.ipynb) predicts: for large $W_t$ it is a constant divided by
# $\lVert W_t\rVert$. We draw this line only if the hypotheses of the law hold. The right panel shows the softmax weight of each opt token.
#
# The grey lines show the direction error of your previous run and the
# smallest softmax weight of any opt token in that run. The axes never change, so you can compare two runs by eye.
#
# You can try these settings:
#
# * `GD` (gradient descent), under which the direction of $W_t$ turns slowly;
# * `Polyak` with 10,000 iterations;
# * step sizes far from the default;
# * `unit sphere`, where the scores of the other tokens differ, contrary to Assumption 2 of the paper's theorems (see below);
# * a dimension `d` so small that no $W$ separates the opt tokens from the other tokens.
#
# ## The setting
#
# The layer's answer on sample $i$ is $f_i = y_i\,u^\top X_i^\top \mathrm{softmax}(X_i W z_i)$, with a fixed head $u$, and the loss is
# $L = \frac1n\sum_i e^{-f_i}$. We train only $W$, from a small Gaussian start.
#
# | symbol | meaning | shape |
# |---|---|---|
# | $W_t$ | attention weights after $t$ steps | $d \times d$ |
# | $W_{mm}$ | solution of the token SVM: the $W$ of smallest $\lVert W\rVert_F$ with $(x_{i,opt} - x_{i,t})^\top W z_i \ge 1$ for all $t\ne opt_i$ | $d \times d$ |
#
# This is the setting of **Figures 2 and 5** of **paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv
# 2402.05738), with one data set at a time. The next cell prints the paper's theorems about normalised gradient descent (NGD, Theorem 1), gradient descent (GD, Theorem 6) and Polyak's step (Theorem 7), with their
# hypotheses. As we read the paper, the class-means data model is the one of its Example 1. Data from this model satisfy Assumption 2. In our reading, they also satisfy Assumption 1
# if $d$ is large enough ([notebook 13](13_assumptions_broken.ipynb)). The data model `unit sphere` violates Assumption 2. Try this model and see what happens.

# %%
of = "Assumption 1", "Assumption 2", "Theorem 1", "Theorem 6", "Theorem 7"
statements.quoted("A", STATEMENTS, *of)

# %% [markdown]
# ## The same without controls
#
# We train with every rule in the default setting, on the same data and from the same start. The data are synthetic, the setting is ours, and we use a single seed. A single run shows little
# more than that the rules turn $W_t$ towards $W_{mm}$. We compare the rules with the theorems on many data sets on pages [10](10_fixed_decoder.ipynb) and [19](19_theory_ledger.ipynb).

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
# The first picture shows the run of NGD. The second shows the run of GD, with the run of NGD in grey behind it.
#
# ## What we saw
#
# Every rule turns $W_t$ towards $W_{mm}$. Under NGD the softmax weights of the opt tokens saturate near one. At the end of this run, after 1,000 iterations, the direction error of NGD is still below the dotted line of the law. If you continue to 10,000 iterations, the error comes within a few per cent of this line. GD turns $W_t$ in the same way, but slowly, because its steps shrink with the gradient. Under GD the softmax weights are still rising at the end.
#
# ## Change this
#
# Make a prediction, then run the cell or move the controls.
#
# 1. Train for ten times as many iterations. *Hint:* under NGD the norm of $W_t$ grows like $t$, and under GD it grows like $\log t$.
#    *Predict:* by what factor does the direction error of each rule fall?

# %%
for name in ("NGD", "GD"):
    longer = explorer.explore(replace(setting, rule=name, steps=10 * steps))
    fall = runs[name].direction_error[-1] / longer.direction_error[-1]
    print(f"{name}: {fall:.1f} times smaller")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The error of NGD falls by a larger factor than the error of GD, but this factor is less than ten. The error of NGD falls like $1/t$ only later, after about ten thousand iterations
# ([notebook 11](11_long_horizon.ipynb)).
#
# </details>
#
# 2. Choose `unit sphere` in place of class means. *Hint:* the scores of the other tokens differ, so Assumption 2 fails. *Predict:* do the
#    softmax weights of all opt tokens still tend to one?

# %%
sphere = "unit sphere (no signal, no noise)"
for k in range(3):
    shown = explorer.explore(replace(setting, model=sphere, seed=k))
    print(f"draw {k}: smallest weight of an opt token at the end {shown.opt_weights[-1].min():.2g}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# They do not on every data set. In one of the three data sets, there is a sample in which another token is selected, so the softmax weight of the opt token of this sample does not tend to one.
#
# </details>
