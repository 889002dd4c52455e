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
# [Notebook 44](44_atlas.ipynb) shows in which norm each optimiser maximises the margin after a long time with constant steps. It uses the setting of **paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738) with one trained matrix $W$. Real training is shorter, and its steps follow a schedule.
#
# **Question.** How fast does the share of the largest margin tend to 1, and does it still tend to 1 if steps shrink or grow? And how much of its norm, $\ell_\infty$, does Adam lose through a long memory, an $\epsilon$, or small batches?
#
# The *margin* $g_m=\langle A_m,W\rangle$ of a pair $m$ is the logit of a sample's selected token minus the logit of another token. The *ratio* $r_N(W)=\min_mg_m/(N(W)\,\gamma_N)$ is the smallest margin divided by the norm of $W$ and by $\gamma_N$, the largest margin of a matrix of norm 1. So the ratio is at most 1. $G=-\nabla L(W)$ is the downhill direction. $M$ and $v$ are running means of $G$ and $G^2$, entry by entry, with the forgetting factors $\beta_1$ and $\beta_2$.

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
# Why is the ratio below 1? The margins of two pairs differ by a number that converges, while the margins themselves grow. So $1-r_N$ is a bounded number divided by a margin, and the rate depends on how fast the margins grow:
#
# | steps $\eta_t$ | margins grow like | prediction for $1-r_N$ |
# |---|---|---|
# | constant | $t$ | $1/t$ |
# | like $t^{-1/2}$ | $\sqrt t$ | $1/\sqrt t$ |
# | like $t^{-1}$ | $\log t$ | $1/\log t$ |
# | like $t^{1/2}$ | $t^{3/2}$ | only normalised gradient descent keeps its norm |
#
# Why does the last line break the pattern? From $t=2500$ on, a step moves margins by more than 1, because $\gamma_N\eta_t\approx0.02\sqrt t$. From then on, the pair of smallest margin dominates the gradient, and another pair dominates after the next step.
#
# Under normalised gradient descent each step points along the feature $A_m$ of this pair. The margins of the support then stay equal, up to about one step. $W$ is a positive sum of features with equal margins, so it is the max-margin matrix.
#
# Other rules add another matrix for each pair. Sign descent, for example, adds $\mathrm{sgn}(A_m)$. In general the sum of these matrices is not the max-margin matrix of the rule's norm.

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
about_rates = f"Unit tokens, n=6, T=8, d=10; {seeds} seeds, {sweep_steps:,} steps; thin line: ratio 0.99"
steady_steps = dict(list(reached.items())[:-1])
plots.caption(atlas_figures.convergence(steady_steps, own_norm), about_rates)

# %%
last_schedule = dict(list(reached.items())[-1:])
figure_rates = plots.caption(atlas_figures.convergence(last_schedule, own_norm), about_rates)
figure_rates

# %% [markdown]
# **What happens.** In the first panel most lines fall with slope $-1$. In this small run the line of Frobenius has not reached this slope yet. In the second panel the slopes are about half as steep. In the third panel the slopes are small, like the slope of $1/\log t$, and no rule comes near 0.99. In the second figure the steps grow, and all lines except Frobenius turn back.
#
# We compute each ratio for the tokens that the run selects at its last step. For this reason $1-r_N$ may be above 1 at the beginning.
#
# ## What Adam forgets
#
# Adam divides by $\sqrt v$. As long as $\sqrt v$ follows $\lvert G\rvert$, the step is close to $\mathrm{sgn}(G)$, so Adam's norm is $\ell_\infty$. Three things can break this:
#
# * *A long memory.* Gradients shrink as training goes on. If they fall faster than $\beta_2^{t/2}$, $v$ cannot follow and still holds the sizes of old gradients. Then $M/\sqrt v$ is no longer close to a sign, and the step shrinks.
# * *An epsilon.* Once the gradients are smaller than $\epsilon$, Adam is plain gradient descent. Its $W$ grows only like $\log t$, and its limit should belong to the Frobenius norm.
# * *Small batches.* With fewer samples per step, Adam loses the relative sizes of the samples' gradients.
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
about_adam = f"Unit tokens, n=6, T=8, d=10; {seeds} seeds, {sweep_steps:,} steps; thin line: 0.99; left: {np.isnan(forgets[0].last).any(1).sum()} of {seeds} runs select no token at $\\beta_2={memories[0]:g}$, where one hides the median"
figure_adam = atlas_figures.memory(memories, forgets, epsilons, stops)
plots.caption(figure_adam, about_adam)

# %%
about_batch = f"Unit tokens, n=6, T=8, d=10; {seeds} seeds, {sweep_steps:,} steps"
figure_batch = plots.caption(atlas_figures.batches(by_batch, own_of), about_batch)
figure_batch

# %% [markdown]
# **What happens.** Left: the line of $\ell_\infty$ falls towards the left, where the memory is longer. For $\beta_2=0$ Adam divides the mean $M$ by the newest gradient alone, and some runs do not converge. Right: the ratio falls towards larger $\epsilon$. Second figure: for each rule, the ratio with fewer samples per step is below the ratio with all six samples.
#
# ## What we saw
#
# **Answer.** The runs that count ([scale](words.md) desk) use 20 random data sets and 119,378 steps. With constant steps, $1-r_N$ falls like $t^{-1.01}$ in the Frobenius norm, and almost as fast in the other norms. Shrinking steps are slower. With steps like $t^{1/2}$ only normalised gradient descent keeps its norm.
#
# With a short memory ($\beta_2=0.9$) the median run of Adam has 0.994 of the largest $\ell_\infty$ margin. With the longest memory (0.9999) it has 0.423, and with a large $\epsilon$ it has 0.453. Small batches cost Adam a part of its margin, and they cost three other rules a part of theirs.
#
# ![Growing steps: how the missing share of the margin falls](../figures/desk/atlas_rates.png)
#
# ![Adam's share of its margin against memory and epsilon](../figures/desk/atlas_adam.png)
#
# ## Change this
#
# **The schedule.** The schedule $\eta_t\propto t^{-1/4}$ lies between the first two panels. Its margins grow like $t^{3/4}$. *Prediction:* what is the slope of $1-r_N$ for the Frobenius norm?

# %%
between = ratios_of(atlas_rules.steepest_rows(0.25, 5 * growth))
name = next(name for name, of in own_norm.items() if of == "Frobenius")
slope = np.median(atlas.fitted_rate(between[name], atlas.column("Frobenius")))
print(f"fitted power of 1 - ratio: {slope:.2f}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The argument predicts the slope $-3/4$, because the offset is bounded and margins grow like $t^{3/4}$. The small run falls faster, so within 20,000 steps it does not show the predicted slope.
#
# </details>
#
# <details><summary>What this does not show, and whose it is</summary>
#
# * The argument about schedules is a sketch. For the Frobenius norm and constant steps, [notebook 40](40_law_of_margins.ipynb) has the theorem and its hypotheses.
# * The prediction that Adam with an $\epsilon$ ends in the Frobenius norm follows Wang, Meng, Chen and Liu (2012.06244), who treat linear models. Our runs are too short to reach this norm.
# * Runs that select no token have no ratio, so the median over seeds does not include them. The caption counts these runs for $\beta_2=0$.
# * [The protocol](atlas_protocol.md) lists predictions and bounds, and [a list](atlas_sources.md) the other sources.
#
# </details>

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
