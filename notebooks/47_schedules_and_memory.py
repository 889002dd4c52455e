# ---
# jupyter:
#   jupytext:
#     cell_metadata_filter: tags,-all
#     formats: ipynb,py:percent
#     notebook_metadata_filter: kernelspec,jupytext,-widgets,-papermill,-language_info
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # How fast an optimiser reaches its margin, and what costs Adam its norm
#
# *Side road of page [44](44_atlas.ipynb) · 15 minutes · [words](words.md).* After it you can say how step sizes set the rate of the margin, and when Adam stops following signs.
#
# [Notebook 44](44_atlas.ipynb) shows in which norm each optimiser maximises the margin, for constant steps and a long time. It uses the setting of **paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738) with one trained matrix $W$. Training has schedules, and a budget.
#
# **Question.** How fast does the share of the largest margin go to 1, and does it still if steps shrink or grow? And what do a long memory, an $\epsilon$ and small batches cost Adam of its norm, $\ell_\infty$?
#
# The *margin* $g_m=\langle A_m,W\rangle$ of a pair $m$ is the logit of a sample's selected token minus the logit of another token. The *ratio* $r_N(W)=\min_mg_m/(N(W)\,\gamma_N)$ divides the smallest margin by the norm of $W$ and by $\gamma_N$, the largest margin of a matrix of norm 1. It is at most 1. $G=-\nabla L(W)$ is the downhill direction. $M$ and $v$ are running means of $G$ and $G^2$, entry by entry. Per step they forget by the factors $\beta_1$ and $\beta_2$.

# %% tags=["parameters"]
# Set-up, no need to read.
scale = "demo"
seeds = 2
sweep_steps = 20_000
growth = 0.02
memories = [0.0, 0.9, 0.99, 0.999, 0.9999]
epsilons = [1e-300, 1e-100, 1e-30, 1e-8, 1e-3]
sizes = [1, 2, 3, 6]

# %% tags=["set-up"]
# Set-up, no need to read.
import numpy as np

import lib
from companion import claims, plots, record
from lib import files
from papers.atlas import atlas, atlas_figures, atlas_rules

run = record.start("47_schedules_and_memory", "A", globals())
keep = files.folder("runs") / "atlas"  # run by run: a long map that is interrupted goes on
times = np.unique(np.geomspace(1, sweep_steps, 40).round().astype(int))

# %% [markdown]
# ## Schedules
#
# What separates $r_N$ from 1 is a bounded offset divided by a margin. The margin of a pair differs from that of another by a number that converges, while the margins themselves grow. So the rate depends on how fast margins grow:
#
# | steps $\eta_t$ | margins grow like | prediction for $1-r_N$ |
# |---|---|---|
# | constant | $t$ | $1/t$ |
# | like $t^{-1/2}$ | $\sqrt t$ | $1/\sqrt t$ |
# | like $t^{-1}$ | $\log t$ | $1/\log t$ |
# | like $t^{1/2}$ | $t^{3/2}$ | only normalised gradient descent keeps its norm |
#
# Why does the last line break the pattern? From $t=2500$ on, a step moves margins by more than 1, because $\gamma_N\eta_t\approx0.02\sqrt t$. Then one pair at a time dominates the gradient, the pair of smallest margin. Under normalised gradient descent the step lies along the feature $A_m$ of this pair. The margins of the support then stay equal up to about a step, and equal margins together with a positive sum of $A_m$ make the max-margin matrix. Another rule adds another direction for each pair, for example sign descent $\mathrm{sgn}(A_m)$. Such a sum is in general not the max-margin matrix of its norm.

# %%
data = lib.unit_tokens(range(seeds), n=6, T=8, d=10)
best = atlas.BestMargins(data)


def ratios_of(rows):
    """Every rule's ratios in the seven norms, on all data sets."""
    return atlas.atlas(atlas_rules.trained(data, rows, sweep_steps, times, keep), best)


constant, growing = atlas_rules.steepest_rows(growth=growth), atlas_rules.growing_rows()
schedules = {
    r"$\eta_t=\eta$": constant,
    r"$\eta_t\propto t^{-1/2}$": atlas_rules.steepest_rows(0.5, 20 * growth),
    r"$\eta_t\propto t^{-1}$": atlas_rules.steepest_rows(1.0, 50 * growth),
    r"$\eta_t\propto t^{1/2}$": growing,
}
reached = {title: ratios_of(those) for title, those in schedules.items()}
steadily, *_, lately = reached.values()  # the first and the last schedule
own_norm = {name: row.reached for name, row in constant.items()}
table_rates = claims.Table(atlas_rules.growing(growing, lately))
table_rates

# %%
about_rates = f"Unit tokens, n=6, T=8, d=10; {seeds} seeds, {sweep_steps:,} steps; dotted: ratio 0.99"
steady_steps = dict(list(reached.items())[:-1])
plots.caption(atlas_figures.convergence(steady_steps, own_norm), about_rates)

# %%
last_schedule = dict(list(reached.items())[-1:])
figure_rates = plots.caption(atlas_figures.convergence(last_schedule, own_norm), about_rates)
figure_rates

# %% [markdown]
# **What happens.** In the first panel most lines fall with slope $-1$; in this small run Frobenius is still on its way to its line. In the second panel the slopes are about half of that. In the third they are small, as those of $1/\log t$ are, and no rule comes near 0.99. In the second figure, with growing steps, all lines but that of Frobenius turn back as the steps get longer.
#
# We compute each ratio for the tokens that the run selects at its last step, so $1-r_N$ may begin above 1.
#
# ## What Adam forgets
#
# Adam divides by $\sqrt v$. As long as $\sqrt v$ follows $\lvert G\rvert$, the step is close to $\mathrm{sgn}(G)$, whose norm is $\ell_\infty$. Three things break this:
#
# * **A long memory.** Gradients shrink as training goes on. If they fall faster than $\beta_2^{t/2}$, $v$ cannot follow: it keeps the sizes of old gradients. Then $M/\sqrt v$ is no longer close to a sign, and the step shrinks.
# * **An epsilon.** Once the gradients are smaller than $\epsilon$, Adam is plain gradient descent. Its $W$ grows like $\log t$ only, and its limit should be the Frobenius norm.
# * **Small batches.** With fewer samples per step, the relative sizes of the samples' gradients are lost.
#
# *Prediction:* each of the three lowers the ratio in $\ell_\infty$ after a given time.

# %%
slow = atlas_rules.step("l_inf") / 5
adams = [lib.Adam(slow, memory=b) for b in memories]
adams += [lib.Adam(slow, memory=0.99, epsilon=e) for e in epsilons]
adam_rows = {str(k): atlas_rules.Row(rule, None, "l_inf") for k, rule in enumerate(adams)}
ran = [*ratios_of(adam_rows).values()]
forgets, stops = ran[: len(memories)], ran[len(memories) :]
own_of, by_batch = {}, {}
for what, by_size in atlas_rules.batch_rows(sizes).items():
    runs = ratios_of({str(size): row for size, row in by_size.items()})
    own_of[what] = by_size[sizes[0]].highest
    by_batch[what] = dict(zip(by_size, runs.values(), strict=True))
of_memory = atlas_rules.memories({str(b): one for b, one in zip(memories, forgets, strict=True)})
table_adam = claims.Table(of_memory + atlas_rules.batches(by_batch, own_of))
table_adam

# %%
about_adam = f"Unit tokens, n=6, T=8, d=10; {seeds} seeds, {sweep_steps:,} steps; dotted: 0.99; left: {np.isnan(forgets[0].last).any(1).sum()} of {seeds} runs select no token at $\\beta_2={memories[0]:g}$, where one hides the median"
figure_adam = atlas_figures.memory(memories, forgets, epsilons, stops)
plots.caption(figure_adam, about_adam)

# %%
about_batch = f"Unit tokens, n=6, T=8, d=10; {seeds} seeds, {sweep_steps:,} steps"
figure_batch = plots.caption(atlas_figures.batches(by_batch, own_of), about_batch)
figure_batch

# %% [markdown]
# **What happens.** Left: the $\ell_\infty$ line falls as memory gets longer, towards the left. For $\beta_2=0$ the mean $M$ is divided by the newest gradient alone, and some runs do not converge. Right: the ratio falls towards larger $\epsilon$. Second figure: with fewer samples per step each rule's ratio is below the one with all six.
#
# ## What we saw
#
# **Answer.** In the judged runs ([scale](words.md) desk, 20 random data sets, 119,378 steps) with constant steps, $1-r_N$ falls like $t^{-1.01}$ in the Frobenius norm and almost like that in the others. Shrinking steps are slower. With steps like $t^{1/2}$ only normalised gradient descent keeps its norm.
#
# With a short memory ($\beta_2=0.9$) the median run of Adam has 0.994 of the largest $\ell_\infty$ margin. With the longest memory (0.9999) it has 0.423, and with a large $\epsilon$ 0.453. Small batches cost Adam a part of its margin as well, as they do three other rules.
#
# ![Growing steps: how the missing share of the margin falls](../figures/desk/atlas_rates.png)
#
# ![Adam's share of its margin against memory and epsilon](../figures/desk/atlas_adam.png)
#
# ## Change this
#
# **The schedule.** $\eta_t\propto t^{-1/4}$ lies between the first two panels. Margins then grow like $t^{3/4}$. *Prediction:* what is the slope of $1-r_N$ for the Frobenius norm?

# %%
between = ratios_of(atlas_rules.steepest_rows(0.25, 5 * growth))
name = next(name for name, of in own_norm.items() if of == "Frobenius")
slope = np.median(atlas.fitted_rate(between[name], atlas.column("Frobenius")))
print(f"fitted power of 1 - ratio: {slope:.2f}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The argument gives $-3/4$, since the offset is bounded and margins grow like $t^{3/4}$. The small run falls faster than that: within 20,000 steps it does not show the predicted slope.
#
# </details>
#
# ## What this does not show, and whose it is
#
# * The argument about schedules is a sketch. For the Frobenius norm and constant steps [notebook 40](40_law_of_margins.ipynb) has the theorem and its hypotheses.
# * That Adam with an $\epsilon$ should end in the Frobenius norm follows Wang, Meng, Chen and Liu (2012.06244), for linear models. Our runs are too short to reach it.
# * The median over seeds leaves out nothing, but runs that select no token have no ratio; the caption counts them for $\beta_2=0$.
# * Predictions and bounds are in [the protocol](atlas_protocol.md), the other sources in [a list](atlas_sources.md).

# %% tags=["set-up"]
# Set-up, no need to read.
rates = {of: np.median(atlas.fitted_rate(steadily[k], atlas.column(of))) for k, of in own_norm.items()}
numbers = {f"rate_{atlas_rules.word(of)}": rate for of, rate in rates.items()}
run.keep(figure_rates, "atlas_rates", about_rates, table_rates, numbers)
which = {"short": forgets[1], "long": forgets[-1], "large_epsilon": stops[-1]}
numbers = {name: np.median(one.last[:, atlas.column("l_inf")]) for name, one in which.items()}
of_batch = [claim for claim in table_adam if claim.id.startswith(("atlas.batch", "atlas.rise"))]
of_memory = [claim for claim in table_adam if claim not in of_batch]
run.keep(figure_adam, "atlas_adam", about_adam, of_memory, numbers)
numbers = {c.id.removeprefix("atlas."): c.measured for c in of_batch if "batch" in c.id}
run.keep(figure_batch, "atlas_batch", about_batch, of_batch, numbers)
