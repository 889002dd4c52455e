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
# # Norms that an optimiser makes itself, and what weight decay costs
#
# *Side road of page [44](44_atlas.ipynb) · 15 minutes · [words](words.md).* By the end, you will be able to compute the norm that Adam on single samples approaches, and predict the margin that weight decay leaves.
#
# [Notebook 44](44_atlas.ipynb) measures in which of seven norms each optimiser maximises the margin. It uses the setting of **paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738), in which we train a single matrix $W$. It leaves two points open. First, neither AdaGrad nor Adam on single samples (one sample per step) reaches the largest margin in any of the seven norms. Second, training in practice uses weight decay, so $W$ cannot grow forever.
#
# **Question.** Do AdaGrad and Adam on single samples maximise the margin in a norm of their own? And how much of the largest margin does weight decay cost?
#
# | symbol | meaning |
# |---|---|
# | $g_m=\langle A_m,W\rangle$ | the *margin* of a pair $m=(i,t)$: the logit of the selected token of sample $i$ minus the logit of token $t$ |
# | $\gamma_N$ | the largest value of $\min_mg_m$ over all matrices $W$ with $N(W)\le1$ |
# | $r_N(W)=\min_mg_m/(N(W)\,\gamma_N)$ | the *ratio*: the smallest margin of $W$ as a share of the largest possible one for its norm; at most 1 |
# | $G$; $D_t$; $\eta$ | the downhill direction $-\nabla L(W)$; the step direction of a rule; its step size |
# | $M$, $v$; $\beta_1$, $\beta_2$ | running means of $G$ and $G^2$, entry by entry; the factors by which these means discount older gradients in each step |

# %% tags=["parameters"]
# Set-up, no need to read.
scale = "demo"
seeds = 2
steps, sweep_steps = 20_000, 20_000

# %% tags=["set-up"]
# Set-up, no need to read.
import numpy as np

import lib
from companion import claims, plots, record
from lib import files
from papers.atlas import atlas, atlas_figures, atlas_rules, atlas_used

run = record.start("46_own_norms_and_decay", "A", globals())
keep = files.folder("runs") / "atlas"  # run by run: a long map that is interrupted goes on
times = np.unique(np.geomspace(1, steps, 40).round().astype(int))

# %% [markdown]
# ## Norms of their own
#
# Suppose that a rule divides entry $jk$ of the gradient by a fixed number $H_{jk}$. Then the rule is gradient descent in a weighted norm:
#
# $$N(W)^2=\sum_{jk}H_{jk}W_{jk}^2 .$$
#
# If the numbers $H_{jk}$ change during training but converge, the rule should still maximise the margin in this norm. So by which numbers does each rule divide?
#
# * *AdaGrad* divides by the square root of the sum of $G_{jk}^2$ over all steps so far. We take the value of this root at the end of the run as $H_{jk}$.
# * *Adam, one sample per step.* Late in training the gradient of sample $i$ is a fixed matrix $P_i$ times a factor that all samples share, and $v$ averages the squares of these gradients. So $v$ gives, up to a common factor, $H_{jk}=\big(\sum_i(P_i)_{jk}^2\big)^{1/2}$. Here $P_i$ is the sum of the features $A_{i,t}$ of sample $i$, each multiplied by its *dual*. Its dual is its Lagrange multiplier in the SVM for this norm, which minimises $\frac12N(W)^2$ subject to $g_m\ge1$ for every pair. Since $N$ depends on $H$, this is an equation for $H$, which we solve by iteration. The solution depends only on the tokens and the selection.
# * *Shampoo with sums and SOAP* divide by matrices instead of numbers. These matrices, too, define a norm for each rule (the code of `papers/atlas/atlas_used.py` has the formulas).
#
# We run these four rules as on page 44. For each rule we print two medians over the runs: first that of the ratio in the rule's own norm, and then that of the largest ratio in any of the seven norms.

# %%
data = lib.unit_tokens(range(seeds), n=6, T=8, d=10)
best = atlas.BestMargins(data)
rows = {name: row for name, row in atlas_rules.rows().items() if name in atlas_used.OWN_SOURCES}
paths = atlas_rules.trained(data, rows, steps, times, keep)
found = atlas.atlas(paths, best)

# %%
own, residuals = {}, {}
for name in atlas_used.OWN_SOURCES:
    own[name], residuals[name] = atlas_used.own_ratios(data, name, paths[name], found[name])
    print(f"{name}: {np.median(own[name]):.3f}, {np.median(found[name].last.max(1)):.3f}")
print(atlas_used.unconverged(residuals["Adam, 0.999, per sample"]) or "the equation for H is solved")
own_table = claims.Table(atlas_used.own_claims(own, found, residuals))
own_table

# %% [markdown]
# ## Weight decay
#
# With decoupled weight decay a step is $W\leftarrow(1-\eta\lambda)W+\eta D$. Can $W$ still grow without bound? It cannot. Suppose that $N(W_0)\le1/\lambda$, that $\eta\lambda\le1$, and that $N(D)\le1$ for every step direction $D$. Then $N(W)$ never exceeds $1/\lambda$, so the margins stay bounded. What share of the largest margin does the rule still reach?
#
# We can predict the answer. When the run has converged, $\lambda W=D$, so $D$ points along $W$. For small $\lambda$ the weights of the pairs in the gradient are then nearly proportional to their duals, as in the [law of margins](40_law_of_margins.ipynb). So the margins of the pairs with a positive dual are $\gamma_N/\lambda+o_m$, up to terms that vanish with $\lambda$. By the same law, the *offset* $o_m$ of a pair follows from the duals; weighted by these, the mean of the offsets is zero. The lost share of the largest margin, which is not negative because the smallest offset is never positive, is
#
# $$1-r_N\approx-\lambda\,\min_mo_m/\gamma_N .$$
#
# We run each rule with several values of $\lambda$. (The rule called GD here takes normalised steps, so that its step directions have length 1.) The number after the name of a rule is about $\gamma_N/\lambda$, the largest margin that $\lambda$ allows. The printed line lists the settings in which, in some run, this largest margin is below 1 or no token is selected.

# %%
decays = atlas_used.decay_rows()
rested = atlas_rules.trained(data, decays, atlas_rules.TENTH, np.array([1]), keep)
ends = {name: atlas_used.at_rest(row, rested[name], best) for name, row in decays.items()}
chosen = atlas_used.chosen(ends)
print("no margin of 1, or no selection:", "; ".join(atlas_used.forbidden(ends)))
decay_table = claims.Table(atlas_used.decay_claims(ends) + atlas_used.selection_claims(chosen))
decay_table

# %%
share = {key: other / samples for key, (other, samples, *_) in chosen.items()}
about_used = f"Unit tokens, n=6, T=8, d=10; {seeds} seeds, from zero; decay that allows 100; tick: the median run; dashed: asked of the worst"
about_more = "Left: samples that select another token than under the weakest decay; right: a line for each run, from the best of the seven norms (hollow) to the own (filled), numbers: the smallest in the own norm"
figure_used = plots.caption(atlas_figures.shortfalls(ends), about_used)
figure_used

# %%
plots.caption(atlas_figures.used(own, found, share), about_more)

# %% [markdown]
# **How to read the figures.** In the first figure, each mark shows the relative error of the prediction in one run under the weakest decay. Nothing is fitted, and the error would be zero if the prediction were exact. The dashed line marks the largest error that we allow. In the second figure:
#
# * *Left.* The decay becomes stronger towards the left. Under strong decay, some runs select other tokens than under the weakest decay. Most of these other selections allow a larger margin than the selection under the weakest decay.
# * *Right.* This panel belongs to the section "Norms of their own" above. Each filled mark shows the ratio of a run in the rule's own norm, and each hollow mark shows the largest of its ratios in the seven norms. Most of the filled marks are higher than the hollow mark of the same run.
#
# ## Three more predictions
#
# Earlier papers on linear models and on networks suggest three more predictions:
#
# 1. *Variance reduction* computes the gradient of all samples once per pass, and uses it to correct the gradient of each single sample. With gradients corrected in this way, a rule that sees one sample per step should maximise the margin in the same norm as if it saw all samples.
# 2. *OLion* takes the sign of each entry of the polar factor, so we expect its norm to lie between the spectral norm and $\ell_\infty$. We predict that OLion reaches the largest margin in neither of these two norms.
# 3. If $W$ is a product of keys and queries, a rotation of both should change the results of Adam and of sign descent. It should not change the result of gradient descent, nor that of *polar steps*, which go along the polar factor of the gradient.

# %%
others = atlas_used.other_rows()
reached = atlas.atlas(atlas_rules.trained(data, others, sweep_steps, times, keep), best)
also = atlas_rules.predictions(others, reached)[1:]
also += atlas_used.gauge_claims(atlas_used.turned_back(data, range(seeds), 2_000))
also_table = claims.Table(also)
also_table

# %% [markdown]
# ## What we saw
#
# **Answer.** This answer is about the desk runs ([scale](words.md)), which use 20 random data sets and up to a million steps. In every run, AdaGrad's ratio in its own norm is larger than its ratio in any of the seven norms. (For AdaGrad, SOAP and Shampoo we read the own norm off the end of the same run, which favours it.) The ratio in its own norm is still far from 1, however, so we have not shown that AdaGrad maximises the margin in its own norm. For Adam on single samples, the ratio in the data-dependent norm is close to 1 in most runs, but only 0.928 in the worst run. For SOAP and for Shampoo with sums, the ratio in the own norm is the largest one in 90 % and 75 % of the runs, but in some runs it is far from 1 (for SOAP even zero), so their own norms explain little.
#
# At the end of training with weight decay, $N(W)$ equals $1/\lambda$; under AdamW with a short memory ($\beta_2=0.95$, the one in the figures), it is only close to $1/\lambda$. With the usual $\beta_2=0.999$, AdamW stays far below: $N(W)$ is at most 0.39 times $1/\lambda$ (the claim `atlas.decay.slow`). The law predicts what share of the largest margin is lost. The relative error of this prediction is at most 2 % in the median run of each rule, and 26 % in the worst run of all. We had asked for at most 5 % in the worst run of each rule, so all six claims about this fail.
#
# Of the three further predictions, that of OLion holds. *Variance reduction:* in every run the ratio is the largest in the predicted norm, but in the worst run it is only 0.987, 0.983 and 0.942 for the three rules, below the 0.99 that we asked for. *Rotation:* it changes Adam and sign descent and not gradient descent, as predicted; polar steps change by a relative 0.0002, which is small, but not as small as we asked for (we suppose that they amplify rounding errors, see [failures](../figures/failures.md)).
#
# ![Weight decay: relative error of the law's prediction, for each run](../figures/desk/atlas_used.png)
#
# ## Change this
#
# **The decay.** *Prediction:* with one tenth of the decay, the lost share is one tenth as large, because $1-r_N$ is proportional to $\lambda$. The cell prints the lost share of the margin for normalised gradient descent (the rows called GD), from the strongest decay to the weakest.

# %%
for name, end in ends.items():
    if name.startswith("GD"):
        print(f"{name:7} lost {np.nanmedian(end.missing):.4f}, predicted {np.nanmedian(end.law):.4f}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Not quite: one tenth of the decay divides the lost share by about 7 or 8, not by 10. The formula is only of first order in $\lambda$, and the decays that we tried are still too strong for it. The prediction from the law, in the second column, falls by a factor of 9 to 10. (Under the strongest decay it is above 1, so the formula says nothing there. Under the weakest decay, one run selects other tokens than under the stronger ones.)
#
# </details>
#
# <details><summary>When should Adam on single samples have its own norm?</summary>
#
# We need $\epsilon=0$, samples that are taken in turn, and selected tokens that have higher scores than the other tokens of their samples. Moreover, $v$ must average over many passes through the samples, and yet follow the squared gradients, which fall like $e^{-2g}$. Since $v$ falls by a factor of at most $1/\beta_2$ per step, the margins must grow by less than $\frac12\log(1/\beta_2)$ per step.
#
# With *all* samples per step the picture is simpler. If all entries of $G$ fall at the same rate, $\sqrt v$ is $\lvert G\rvert$ and $M$ is $G$, up to factors that all entries share. The step then points along $\mathrm{sgn}(G)$, so the norm is $\ell_\infty$. This argument requires the same bound on the growth of the margins.
#
# </details>
#
# <details><summary>What this does not show, and whose it is</summary>
#
# * We have not shown that the equation for $H$ has only one solution, up to a factor. We stop its iteration after 300 steps. If it has not converged by then, the norm is that of the last iterate, and the first cell of results says in how many runs this is so. For linear models, Baek, Song and Yun (2510.26303) characterise the limit of a proxy of Adam as $\beta_2\to1$, and that of Adam itself on data that they construct.
# * AdaGrad's norm is due to Qian and Qian (1906.03559), for linear models. The norm $\ell_\infty$ of Adam with all samples is due to Zhang, Zou and Cao (2406.10650). The norms of SOAP and of Shampoo with sums are ours.
# * We apply the law of margins to weight decay, and to norms other than Frobenius, without a proof. Sign steps satisfy $\lambda W=D$ only on average, and AdamW's steps can be a little longer than 1.
# * Under strong decay, some runs select other tokens than under weak decay. We have not shown why some of these selections allow a smaller margin than the selections under weak decay.
# * [The protocol](atlas_protocol.md) lists our predictions and their bounds, and [a second list](atlas_sources.md) names the sources.
#
# </details>

# %% tags=["set-up"]
# Set-up, no need to read.
numbers = {f"own_{atlas_rules.word(name)}": value.min() for name, value in own.items()}
numbers["unconverged"] = int((residuals["Adam, 0.999, per sample"] > atlas_used.CONVERGED).sum())
numbers["decay_median_worst"] = max(atlas_figures.decay_medians(ends).values())
used_claims = [*decay_table, *own_table, *also_table]
run.keep(figure_used, "atlas_used", about_used, used_claims, numbers)
