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
# *Side road of page [44](44_atlas.ipynb) · 20 minutes · [words](words.md).* By the end, you will be able to say how step sizes set the rate at which the margin grows, and when Adam stops following signs.
#
# [Notebook 44](44_atlas.ipynb) shows in which norm each optimiser maximises the margin after many steps of constant size. It uses the setting of **paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738) with one trained matrix $W$. Real training is shorter, and its steps follow a schedule.
#
# **Question.** How fast does the ratio of a rule's margin to the largest possible margin tend to 1? Does this ratio still tend to 1 if the steps shrink or grow? And how much of the largest $\ell_\infty$ margin does Adam lose through a long memory, an $\epsilon$ in its denominator, or small batches?
#
# The *margin* $g_m=\langle A_m,W\rangle$ of a pair $m$ is the logit of a sample's selected token minus the logit of another token. We call $A_m$ the *feature* of the pair. The *ratio* $r_N(W)=\min_mg_m/(N(W)\,\gamma_N)$ is the smallest margin divided by the norm of $W$ and by $\gamma_N$, the largest value that the smallest margin of a matrix of norm 1 can take. So the ratio is at most 1. $G=-\nabla L(W)$ is the downhill direction. $M$ and $v$ are running means of $G$ and $G^2$, entry by entry, with the forgetting factors $\beta_1$ and $\beta_2$, by which they discount older gradients in each step.

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
# Why is the ratio below 1? Suppose that $W_t$ is a multiple $a_t$ of the max-margin matrix plus a bounded matrix, as in the law of page 40. Then $\gamma_NN(W_t)$ and all margins on the support are $a_t$ plus bounded numbers. So $1-r_N$ is a bounded number divided by $a_t$, and it falls as fast as the margins grow:
#
# | steps $\eta_t$ | margins grow like | prediction for $1-r_N$ |
# |---|---|---|
# | constant | $t$ | $1/t$ |
# | like $t^{-1/2}$ | $\sqrt t$ | $1/\sqrt t$ |
# | like $t^{-1}$ | $\log t$ | $1/\log t$ |
# | like $t^{1/2}$ | $t^{3/2}$ | tends to 0 only for normalised gradient descent |
#
# Why does the last row of the table break the pattern? After $t=2500$, even a step along the max-margin direction changes the margins by more than 1, because $\gamma_N\eta_t\approx0.02\sqrt t$. A step along the feature of one pair changes its margin by more than 1 much earlier, so some lines turn upwards before that. From then on we expect the pair with the smallest margin to dominate the gradient, and another pair to take this role after every step.
#
# Under normalised gradient descent, each step points along the feature $A_m$ of this one pair. The margins on the *support* (the pairs whose constraints in the token SVM hold with equality) then stay equal to within about one step. If a matrix is a sum of features with positive weights and its margins are equal, it is a multiple of the max-margin matrix. So $W$ turns towards the max-margin matrix. (A step has a length of order $t^{1/2}$, and the margins are of order $t^{3/2}$, so this suggests that $1-r_N$ falls like $t^{-1}$. The figures below show other exponents; the runs are too short to say which one holds in the end.)
#
# In place of $A_m$, other rules add another matrix; sign descent, for example, adds $\mathrm{sgn}(A_m)$. In general, the sum of these matrices does not have the direction of the max-margin matrix in the norm of the rule.

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
about_steady = f"{about_rates}; the first steps of the second and third panel are 20 and 50 times as long as those of the first"
steady_steps = dict(list(reached.items())[:-1])
plots.caption(atlas_figures.convergence(steady_steps, own_norm), about_steady)

# %%
last_schedule = dict(list(reached.items())[-1:])
figure_rates = plots.caption(atlas_figures.convergence(last_schedule, own_norm), about_rates)
figure_rates

# %% [markdown]
# **What happens.** In the first panel, most lines fall with a slope near $-1$, although in this small run the line for the Frobenius norm is still steeper. In the second panel, the lines are about half as steep as in the first. In the third panel, the lines are nearly flat, as $1/\log t$ is, and no rule comes near the ratio 0.99. In the second figure, the steps grow, and all lines except that for the Frobenius norm turn upwards again.
#
# We compute each ratio for the tokens that the run selects at its last step. Early in the run, these tokens may not have the largest logits yet, so $1-r_N$ may be above 1.
#
# ## What Adam forgets
#
# Adam divides by $\sqrt v$. As long as $\sqrt v$ follows $\lvert G\rvert$, the step is close to $\mathrm{sgn}(G)$, so Adam maximises the $\ell_\infty$ margin, like sign descent. Three things can prevent this:
#
# * *A long memory.* Gradients shrink as training goes on. If they fall faster than $\beta_2^{t/2}$, $v$ cannot follow, and it still reflects the sizes of old gradients. Then $M/\sqrt v$ is no longer close to a sign, and the step shrinks.
# * *An epsilon.* Once the gradients are smaller than $\epsilon$, Adam becomes plain gradient descent. Then $W$ grows only like $\log t$, and its direction should tend to the max-margin direction in the Frobenius norm.
# * *Small batches.* With fewer samples per step, $v$ averages the squares of batch gradients. This mean is not the square of the mean gradient, so $\sqrt v$ does not follow $\lvert G\rvert$.
#
# *Prediction:* after a given number of steps, each of these three effects lowers the ratio in $\ell_\infty$.

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
unselected = np.isnan(forgets[0].last).any(1).sum()
about_adam = f"Unit tokens, n=6, T=8, d=10; {seeds} seeds, {sweep_steps:,} steps; thin line: 0.99"
if unselected:
    about_adam += f"; left: {unselected} of {seeds} runs select no token at $\\beta_2={memories[0]:g}$, so no median is drawn there"
figure_adam = atlas_figures.memory(memories, forgets, epsilons, stops)
plots.caption(figure_adam, about_adam)

# %%
about_batch = f"Unit tokens, n=6, T=8, d=10; {seeds} seeds, {sweep_steps:,} steps"
figure_batch = plots.caption(atlas_figures.batches(by_batch, own_of), about_batch)
figure_batch

# %% [markdown]
# **What happens.** In the left panel of the first figure, the $\ell_\infty$ line drops to the left of $\beta_2=0.9$, where the memory is longer. (The step size is the same for all memories. With a longer memory the steps would have to be shorter for $v$ to follow, see page 46.) In this small run the line is low at the right end, too. There $\beta_2=0$, so Adam divides the mean $M$ by the size of the newest gradient alone; at desk scale, some of these runs select no token, so the line ends before. In the right panel, the $\ell_\infty$ ratio falls once $\epsilon$ is large enough. In the second figure, the ratio of every rule is smaller with fewer samples per step than with all six samples.
#
# ## What we saw
#
# **Answer.** This answer is about the desk runs ([scale](words.md)), which use 20 random data sets and 119,378 steps. With constant steps, $1-r_N$ falls like $t^{-1.01}$ in the Frobenius norm, and almost as fast in the other norms. With shrinking steps, $1-r_N$ falls more slowly. With steps that grow like $t^{1/2}$, normalised gradient descent is the only rule that still approaches the largest margin in its norm.
#
# With a short memory ($\beta_2=0.9$), the median run of Adam reaches 0.994 of the largest $\ell_\infty$ margin. With the longest memory ($\beta_2=0.9999$) and the same steps it reaches 0.423 of this margin, and with a large $\epsilon$ 0.453. With small batches, Adam and three other rules have smaller ratios, each in the norm of the rule, than with all samples.
#
# ![Growing steps: the missing share of the margin against the iteration](../figures/desk/atlas_rates.png)
#
# ![Adam's share of its margin against memory and epsilon](../figures/desk/atlas_adam.png)
#
# ## Change this
#
# **The schedule.** The schedule $\eta_t\propto t^{-1/4}$ lies between those of the first two panels, and under it the margins grow like $t^{3/4}$. Before you run the cell, predict the slope of $1-r_N$ in the Frobenius norm.

# %%
between = ratios_of(atlas_rules.steepest_rows(0.25, 5 * growth))
name = next(name for name, of in own_norm.items() if of == "Frobenius")
slope = np.median(atlas.fitted_rate(between[name], atlas.column("Frobenius")))
print(f"fitted power of 1 - ratio: {slope:.2f}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The argument predicts the slope $-3/4$, because the differences between the margins stay bounded and the margins grow like $t^{3/4}$. In the small run, $1-r_N$ falls faster than predicted, so 20,000 steps are too few to show the predicted slope.
#
# </details>
#
# **Newton-Schulz.** The usual Muon does not compute a singular value decomposition. Instead, it applies an odd polynomial to the singular values of $M$ five times, which gives roughly the polar factor. Before you run the cell, predict whether the ratio in the spectral norm tends to 1 if we apply the polynomial more often.

# %%
for iterations in (5, 10):
    rough = lib.Muon(atlas_rules.step("spectral"), newton_schulz=iterations)
    last = atlas.ratios(lib.train(data, rough, 20_000, record=[20_000]), best).last
    print(f"{iterations} iterations: {np.median(last[:, atlas.column('spectral')]):.3f}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# It does not, at least not here. More iterations lift the small singular values, and yet the ratio does not rise. The polynomial is tuned for speed: after five iterations it has moved all singular values above about 0.002 times $\lVert M\rVert_F$ into a band between about 0.7 and 1.2, but with further iterations these values do not converge to 1. The spectral norm of $W$ grows with the largest values in this band, whereas the smallest margin may grow with the smallest values. So the ratio can stay well below 1.
#
# </details>
#
# **To prove.** Show that the polar factor $UV^\top$ is the steepest direction in the spectral norm. That is, among all $D$ of spectral norm at most 1, $UV^\top$ has the largest $\langle G,D\rangle$. Here $G=USV^\top$ is the compact singular value decomposition.
#
# <details><summary>Solution</summary>
#
# $\langle G,D\rangle=\sum_kS_k\,U_k^\top DV_k\le\sum_kS_k$, because $\lvert U_k^\top DV_k\rvert\le1$ for columns of length 1. The matrix $D=UV^\top$ attains the bound, because $U_k^\top DV_k=1$ for every $k$. The bound is the nuclear norm of $G$, which is the dual of the spectral norm.
#
# </details>
#
# <details><summary>Page 44: why we predicted that some rules maximise the margin in no norm, and that some rules are slow</summary>
#
# * *AdaGrad and Shampoo with sums* divide by sums that never shrink. So their steps shrink as fast as the gradient, and $W$ grows only like $\log t$.
# * *Adam with an $\epsilon$* and *the damped natural gradient* become plain gradient descent once the gradients are below $\epsilon$ or below the damping.
# * *Adam with $\epsilon=0$* needs small steps, because its memory is long, and after a million steps its margin should still be about 1 % below the largest one.
# * *Muon with Newton-Schulz steps* only approximates the polar factor.
# * *SOAP* divides in rotated coordinates. There the entries off the diagonal are noise, and division by $\sqrt v$ enlarges them.
# * *Normalised steps on single samples* are equally long for every sample, whether the margin of this sample is small or large.
# * *The undamped natural gradient* tries to raise all answers by the same amount. So almost the whole step goes to the sample whose answer has saturated most, and the ratio ends near 0.
# * *Mirror descent in $\ell_3$* heads for the same largest margin as steepest descent in $\ell_3$. But it adds its steps to the mirror image of $W$, so $\lVert W\rVert_3$ grows only like $\sqrt t$, whereas under steepest descent this norm grows like $t$. So under mirror descent both the margins and the ratio grow more slowly.
#
# Rules with costly steps run for fewer steps than the map of page 44 says: Shampoo, the head-wise rules and two natural gradients after 119,378 steps, and AdaGrad with a full matrix after 2,000. The rule with the label "rescaled" is gradient descent that keeps $\lVert W\rVert_F$ at most at a bound and scales $W$ up by 1.2 every 200 steps. It stops after 20,000 steps, because this bound grows exponentially. [The protocol](atlas_protocol.md#predictions) states the predictions in full.
#
# </details>
#
# <details><summary>What this does not show, and whose it is</summary>
#
# * The argument about schedules is a sketch. For the Frobenius norm and constant steps, [notebook 40](40_law_of_margins.ipynb) states the theorem and its hypotheses.
# * We predict that Adam with an $\epsilon$ ends with the largest margin in the Frobenius norm. In this we follow Wang, Meng, Chen and Liu (2012.06244), who treat homogeneous networks. Our runs are too short to reach this margin.
# * A run that selects no token has no ratio, so it cannot enter a median over seeds. The caption gives the number of these runs for $\beta_2=0$.
# * All runs use float64, whereas `torch.optim.Muon` iterates in bfloat16.
# * [The protocol](atlas_protocol.md) lists our predictions and their bounds, and [a second list](atlas_sources.md) names the other sources.
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
