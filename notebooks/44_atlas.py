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
# # The atlas: which margin does each optimiser maximise?
#
# *Page 7 of 11 · before: [30](30_mirror_descent.ipynb) · next: [45](45_atlas_of_networks.ipynb) · 25 minutes · [words](words.md).* After it you can name the norm of each optimiser, and test it.
#
# **Paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738) proves for gradient descent,
# under its assumptions, that attention turns to the matrix of largest margin in the *Frobenius* norm. We ask what Adam and its kin do.
#
# **Question.** Which norm's margin does each optimiser maximise on attention's $W$, and does it get there?
#
# **Answer.** Steepest descent in a norm nears the largest margin in that norm: after 1,000,000 steps (head-wise after 119,378) it is within
# 1 % of it in every draw, for each of the seven norms below. Muon with an exact polar factor reaches that of the spectral norm; Signum, Lion and RMSprop that of $\ell_\infty$, the largest $\lvert W_{jk}\rvert$.
# Adam at its usual setting ($\beta_1=0.9$, $\beta_2=0.999$, $\epsilon=10^{-8}$) and Muon with Newton-Schulz steps are in none of the seven norms within 1 % in every run. Without
# the $\epsilon$ Adam is nearest to $\ell_\infty$, though not within 1 % in every run.
#
# ![For each optimiser its share of the largest margin in the norm predicted for it, and its best share in another norm](../figures/desk/atlas_map.png)
#
# *Twenty draws (desk [scale](words.md), the larger of two sizes of run). Filled: the norm predicted; hollow: the best other; the gap to 1
# is what is lacking. Rules that this page does not name stand under "Every rule's step in one line". [The protocol](atlas_protocol.md) has predictions and bounds, and says which of them were committed before the runs.*
#
# The story ends with "What we saw"; four appendices follow. Numbers in an **Answer** are from the desk scale, those under the code from this small run.
#
# ## The statement
#
# | symbol | meaning |
# |---|---|
# | $\alpha_i$; $m=(i,t)$, $t\ne\alpha_i$ | the token that the run selects in sample $i$; with another token $t$ it is a *pair* |
# | $A_m=(x_{i,\alpha_i}-x_{i,t})z_i^\top$ | feature of a pair, of tokens $x$ and a query $z$; its margin is $g_m=\langle A_m,W\rangle$ |
# | $W_t$; $\eta_t$; $L$, $L^*$ | $W$ after $t$ steps; length of a step; the loss, that of a layer which sees only the selected tokens |
# | $N$; $N^*(G)=\max_{N(D)\le1}\langle G,D\rangle$ | a norm of matrices; its dual norm |
# | $\gamma_N=\max_{N(W)\le1}\min_mg_m$ | the largest margin: one over the norm of the token SVM in $N$ |
# | $r_N(W)=\min_mg_m/(N(W)\,\gamma_N)$ | the *ratio*: at most 1, and 1 for a max-margin solution (in some norms there are several) |
#
# Seven norms are compared: $\ell_1,\ \ell_3,\ \ell_\infty$ of the entries, Frobenius, nuclear and spectral (sum and largest of the singular values), and
# *head-wise*, the larger spectral norm of two halves of $W$'s rows (steepest: the polar factor of each half).
#
# A rule moves $W$ by $\eta_tD_t$. **Steepest descent** in $N$ has a $D$ with $N(D)\le1$ and the largest $\langle G,D\rangle$, where
# $G=-\nabla L(W_t)$. Below, $G=USV^\top$ is its compact singular value decomposition: $S$ holds the positive singular values, $U_1$ and $V_1$ are the first columns.
# $M$ and $v$ are running means of $G$ and $G^2$, entry by entry, which forget with the factors $\beta_1$ and $\beta_2$ a step.
#
# | rule | step direction $D$ | norm predicted |
# |---|---|---|
# | normalised gradient descent | $G/\lVert G\rVert_F$ | Frobenius |
# | sign descent; Signum, Lion | $\mathrm{sgn}(G)$; about $\mathrm{sgn}(M)$ | $\ell_\infty$ |
# | largest entry alone | $\mathrm{sgn}(G_{jk})$ at the largest $\lvert G_{jk}\rvert$, else 0 | $\ell_1$ |
# | polar factor; Muon | $UV^\top$; the same of $M$ | spectral |
# | leading singular pair | $U_1V_1^\top$ | nuclear |
# | RMSprop; Adam | $G/\sqrt v$; $M/(\sqrt v+\epsilon)$ | $\ell_\infty$; near it at $\epsilon=0$ |
# | Adam on single samples | as Adam, $G$ of one sample | Frobenius was guessed, wrongly: appendix A |
# | AdaGrad | $G/\sqrt{\sum G^2}$ | $\ell_\infty$ was guessed, wrongly: appendix A |
#
# **Hypotheses.** For *linear* classifiers of separable data with an exponential tail of the loss steepest descent is proved to have $r_N\to1$, for the
# norms and steps that stand under Sources. That attention does the same, once a run keeps its tokens, is measured here (for gradient and mirror descent papers A and C prove a limit).
#
# **Why.** Late in training $L-L^*$ is a sum of terms proportional to $e^{-g_m}$. Let $\pi_m$ be their shares. Where the selected tokens score
# higher than the others, no share is negative, and $G$ is along $\sum_m\pi_mA_m$.
#
# * A step raises $g_m$ by $\eta_t\langle A_m,D_t\rangle$, and to first order lowers its term by this fraction of it. So it multiplies $L-L^*$ by
#   $1-\eta_t\langle\sum_m\pi_mA_m,D_t\rangle$. This is $1-\eta_tN^*(\sum_m\pi_mA_m)$, since $D_t$ is steepest for $G$, which is along this sum.
# * For any shares $\ge0$, $N^*(\sum_m\pi_mA_m)\ge\gamma_N$: some matrix of norm one has at least the margin $\gamma_N$ on every $A_m$.
# * So $L-L^*$ is at most of order $\prod_t(1-\gamma_N\eta_t+O(\eta_t^2))$, and this of order $\exp(-\gamma_N\sum\eta+O(\sum\eta^2))$. Its
#   largest term, $e^{-\min_mg_m}$ up to a constant, is no larger. So $\min_mg_m\ge\gamma_N\sum\eta-O(1+\sum\eta^2)$, while $N(W_t)\le\sum\eta$ from zero. Divide.
#
# This sketch, no proof, assumes that the run keeps its tokens. It gives $r_N\to1$ for steps like $t^{-1/2}$ or $t^{-1}$. For constant steps, those of the map, it leaves
# $1-r_N=O(\eta)$; that it goes on falling is measured, and for the Frobenius norm proved under the hypotheses of [notebook 40](40_law_of_margins.ipynb).
#
# **Whose.** Many rows measure what others proved, mostly for linear models (Sources). Ours are the runs on attention's $W$, and the
# rows marked "ours".

# %% tags=["parameters"]
# Set-up, no need to read.
scale = "demo"
seeds = 2
steps, sweep_steps = 20_000, 20_000
growth = 0.02
memories = [0.0, 0.9, 0.99, 0.999, 0.9999]
epsilons = [1e-300, 1e-100, 1e-30, 1e-8, 1e-3]
sizes = [1, 2, 3, 6]

# %% tags=["set-up"]
# Set-up, no need to read.
import numpy as np
import pandas as pd
from IPython.display import HTML

import lib
from companion import claims, plots, record
from lib import files
from papers.atlas import atlas, atlas_figures, atlas_rules, atlas_used

run = record.start("44_atlas", "A", globals())
keep = files.folder("runs") / "atlas"  # run by run: a long map that is interrupted goes on
times = np.unique(np.geomspace(1, steps, 40).round().astype(int))

# %% [markdown]
# ## Four directions, in a few lines
#
# One gradient, four answers to "which way is down". Each rule takes 800 steps. Printed is the ratio in four norms, for the tokens that
# $W$ selects.

# %%
data = lib.unit_tokens(range(seeds), n=6, T=8, d=10)
one = data.run(0)


def polar(G):
    U, S, V = np.linalg.svd(G)  # numpy's V is the transpose
    kept = S > 1e-12 * S[0]  # six samples: six singular values of ten
    return U[:, kept] @ V[kept]


def largest(G):
    return np.where(np.abs(G) == np.abs(G).max(), np.sign(G), 0.0)


def ratio(data, W, norm):  # min_m g_m / (N(W) gamma_N), for the tokens that W (runs, d, d) selects
    chosen = lib.logits(data, W).argmax(-1)
    margin = atlas.least_margins(data, chosen, W[:, None])[:, 0]
    return margin * lib.token_svm(data, chosen, norm).norm / lib.norm_of(W, norm)


norms = ("frobenius", np.inf, 1, "spectral")
directions = dict(zip(norms, (lambda G: G / np.linalg.norm(G), np.sign, largest, polar)))
for norm, direction in directions.items():
    W = np.zeros((10, 10))
    for t in range(800):
        if t == 50 and norm in norms:
            by_lib = lib.train(one, lib.SteepestDescent(norm, 0.05), 50, record=[50])
            assert np.allclose(W, by_lib.W[0, 0], rtol=0, atol=1e-9)
        W = W + 0.05 * direction(-lib.gradients(one, W[None], one.u)[1][0])
    print(f"descent in {norm!s:9}", *(f"{N}: {ratio(one, W[None], N)[0]:.3f} " for N in norms))

# %% [markdown]
# Look at the diagonal: each rule leads in its own norm. For a rule of your own, write `directions['mine'] = ...` before the loop. Run longer, this loop ends where the square of $e^{-g_m}$ underflows.
# `lib.dynamics` keeps logarithms, and goes on.
#
# ## The map, small
#
# Every rule on two draws, at most 20,000 steps, not a million. Some are still on their way, and their claims fail below. A [claim](words.md) is a
# measured number beside the bound of the protocol:
#
# | claim | says | weight |
# |---|---|---|
# | `own` | the rule has 0.99 of the largest margin in the norm predicted, in every run | the answer: it gets there |
# | `lower` | of its seven ratios that one is the largest, in every run | the answer: it is *this* norm |
# | `none` | in no norm has the rule 0.99 in every run | a limit of the answer |
# | `nearest` | in half of the runs or more the largest of its seven ratios is in the norm guessed | a guess, where no norm is reached |
#
# At desk scale five guesses are wrong: $\ell_\infty$ for Adam with $\epsilon$ and for AdaGrad, spectral for Shampoo with sums and for SOAP
# (rules of the protocol), Frobenius for Adam on single samples. Of the map's `own` claims only that of mirror descent in $\ell_3$ fails there, in its worst runs.
# Of those that fail below, the `own` ones need more than 20,000 steps; the `nearest` ones stay wrong.

# %%
best = atlas.BestMargins(data)


def ratios_of(rows):
    """Every rule's ratios in the seven norms, on all draws."""
    return atlas.atlas(atlas_rules.trained(data, rows, sweep_steps, times, keep), best)


rows = atlas_rules.rows()
paths = atlas_rules.trained(data, rows, steps, times, keep)
found = atlas.atlas(paths, best)
table = claims.Table(sorted(atlas_rules.predictions(rows, found), key=lambda claim: claim.holds))
table

# %%
about_map = f"Unit tokens, n=6, T=8, d=10; {seeds} seeds, up to {steps:,} steps; filled: predicted norm, median, bar: its runs; hollow: best other; grey: predicted below 0.99; Adam: $\\beta_2=0.999$"
figure_map = plots.caption(atlas_figures.dumbbells(rows, found), about_map)
figure_map

# %%
decays = atlas_used.decay_rows()
tenth = {name: row for name, row in decays.items() if name.endswith(" 10")}
listed = atlas_rules.listing(rows | atlas_used.other_rows() | tenth)
columns = ["rule", "step", "norm predicted", "nearest source"]
every = claims.html(pd.DataFrame(listed, columns=columns))
HTML(f"<details><summary>Every rule's step in one line</summary>{every}</details>")

# %% [markdown]
# ## What we saw
#
# The norm in which a step is steepest is the norm of the margin, for steepest descent, exact Muon and the sign methods. Adam at its usual setting, AdaGrad and
# Muon with Newton-Schulz steps had reached none of the seven. In this small run the ratios in the spectral norm and in the largest entry still rise.
#
# ## Change this
#
# **The norm.** Prediction: any $\ell_p$ steepest descent maximises its own $\ell_p$ margin. $p=4$ is no row of the map: is its ratio largest in $\ell_4$?

# %%
p = 4.0
W = lib.train(data, lib.SteepestDescent(p, 0.03), 20_000, record=[20_000]).W[:, -1]
print(*(f"{N}: {np.median(ratio(data, W, N)):.3f}" for N in ("frobenius", p, np.inf)), sep=", ")

# %% [markdown]
# <details><summary>Answer</summary>
#
# It is, within 1 % of 1.
#
# </details>
#
# **Newton-Schulz.** Muon replaces the singular values of $M$ by an odd polynomial of them, five times: about the polar factor. Prediction: does the spectral ratio go to 1 with more of them?
# (All in float64. `torch.optim.Muon` iterates in bfloat16.)

# %%
for iterations in (5, 10):
    rough = lib.Muon(atlas_rules.step("spectral"), newton_schulz=iterations)
    last = atlas.ratios(lib.train(data, rough, 20_000, record=[20_000]), best).last
    print(f"{iterations} iterations: {np.median(last[:, atlas.column('spectral')]):.3f}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Not here: the polynomial is made for speed, and its values stay in a band about one. Small singular values need more iterations besides.
#
# </details>
#
# **To prove.** Show that $UV^\top$ is the steepest direction in the spectral norm: among all $D$ of spectral norm at most 1 it has the largest
# $\langle G,D\rangle$, for $G=USV^\top$.
#
# <details><summary>Solution</summary>
#
# $\langle G,D\rangle=\sum_kS_k\,U_k^\top DV_k\le\sum_kS_k$, since $\lvert U_k^\top DV_k\rvert\le1$ for columns of length 1. $D=UV^\top$ has
# $U_k^\top DV_k=1$ for every $k$, so it attains the bound. The bound is the nuclear norm of $G$, the dual of the spectral one.
#
# </details>

# %% [markdown]
# ## Appendix A. Norms of their own
#
# **Question.** AdaGrad, and Adam on single samples, reach none of the seven norms. Is there one whose margin they maximise?
#
# **Answer.** AdaGrad's ratio is larger in a norm that it makes itself than in any of the seven, in every run, but far from 1: that it maximises this
# margin is not shown. For Adam on single samples the data choose
# one; after a million steps the worst run has the ratio 0.928.
#
# A rule that divides entry $jk$ of the gradient by a fixed $H_{jk}$ is gradient descent in the norm
#
# $$N(W)^2=\sum_{jk}H_{jk}W_{jk}^2 .$$
#
# *AdaGrad.* $H_{jk}$ is what the run divides by at its end, the root of its sum of $G_{jk}^2$ (Qian, Qian, 1906.03559, for linear models).
#
# *Adam, one sample a step.* $H$ follows from tokens and selection alone. Let $P_i$ be the sum of sample $i$'s features $A_{i,t}$, each times
# its [dual](words.md) in $\min N(W)$ with all $g_m\ge1$. Then
#
# $$H_{jk}=\Big(\sum_i(P_i)_{jk}^2\Big)^{1/2} .$$
#
# $N$ depends on $H$, so this is an equation, solved by iteration; that it has only one solution, up to a factor, we have not shown. *Why:* late in training
# the gradient of sample $i$ is $P_i$ times a factor common to all samples, and $v$ averages its square over the samples.
#
# *When?* Needed are $\epsilon=0$, samples in turn, and selected tokens of the higher score. And $v$ must average over many passes
# through the samples, yet keep up with squared gradients, which fall like $e^{-2g}$. As it falls by the factor $\beta_2$ a step at most, margins must grow by less than
# $\frac12\log(1/\beta_2)$ a step. Baek, Song and Yun
# (2510.26303) prove it for linear models and Adam's limit $\beta_2\to1$.
#
# *Adam, all samples.* If all entries of $G$ fall alike, $\sqrt v$ and $M$ are $\lvert G\rvert$ and $G$ up to factors that all entries share: the step is
# along $\mathrm{sgn}(G)$ and the norm $\ell_\infty$, under the same bound on the growth of margins (Zhang, Zou and
# Cao, 2406.10650, for linear models).
#
# *Shampoo's sums and SOAP* have norms made of what they divide by, too (ours; `papers.atlas.atlas_used`). Printed: the median ratio in the own
# norm, and in the best of the seven.

# %%
own = {}
for name in atlas_used.OWN_SOURCES:
    own[name] = atlas_used.own_ratios(data, name, paths[name], found[name])[0]
    print(f"{name}: {np.median(own[name]):.3f}, {np.median(found[name].last.max(1)):.3f}")
own_table = claims.Table(atlas_used.own_claims(own, found))
own_table

# %% [markdown]
# ## Appendix B. Weight decay
#
# **Question.** Where does a run rest if weights decay, $W\leftarrow(1-\eta\lambda)W+\eta D$, and with how much of the margin?
#
# **Answer.** At $N(W)=1/\lambda$ (AdamW with a short memory: nearly). The [law of margins](40_law_of_margins.ipynb) predicts, to first order in
# $\lambda$, how much of the largest margin it then lacks. The prediction is 2 % off or less in each rule's median run, 26 % in the worst. Under strong decay some runs select other tokens.
#
# *Why.* From $N(W_0)\le1/\lambda$, with $\eta\lambda\le1$ and no step direction longer than 1 in $N$, the norm cannot exceed $1/\lambda$ (AdamW's steps can be a little longer). Where it rests $\lambda W=D$ (sign steps: in the mean): the step is along $W$, so that pairs pull in the ratio of the duals, as under the law. So margins are, to first order, $\gamma_N/\lambda+o_m$ (the level has $N(W)=1/\lambda$), with its [offsets](words.md) $o_m$.
# So $1-r_N$ is $-\lambda\min_mo_m/\gamma_N$ to first order; the least offset is never positive. For norms other than Frobenius the law is carried over here, not proved. Each
# rule runs with several $\lambda$. The number after its name is about the largest margin that $\lambda$ allows, $\gamma_N/\lambda$. Printed: the rules for which it is below 1 in some run.

# %%
rested = atlas_rules.trained(data, decays, atlas_rules.TENTH, np.array([1]), keep)
ends = {name: atlas_used.at_rest(row, rested[name], best) for name, row in decays.items()}
chosen = atlas_used.chosen(ends)
print("no margin of 1 is allowed to", "; ".join(atlas_used.forbidden(ends)))
decay_table = claims.Table(atlas_used.decay_claims(ends) + atlas_used.selection_claims(chosen))
decay_table

# %%
share = {key: other / samples for key, (other, samples, *_) in chosen.items()}
about_used = f"Unit tokens, n=6, T=8, d=10; {seeds} seeds, from zero; left: decay that allows 100, tick: median of the runs; middle: samples that select another token than under that decay; right: a line a run, from the best of the seven norms (hollow) to the own (filled), numbers: the least in the own norm"
figure_used = plots.caption(atlas_figures.used(ends, own, found, share), about_used)
figure_used

# %% [markdown]
# Left: look at how far each run is from the law, in which nothing is fitted. Left of the dashed line is as near as was asked. Middle: look
# at the left end: under strong decay runs select other tokens than under the weakest, mostly of more margin. Right, for appendix A: look at the filled
# points, the own norms, most above the hollow ones.
#
# ## Appendix C. Schedules
#
# **Question.** How fast does the ratio come to 1, and does it with steps that shrink or grow?
#
# **Answer.** With constant steps $1-r_N$ falls like $t^{-1.01}$ in the Frobenius norm and nearly so in the others; shrinking steps are slower. With steps like $t^{1/2}$ only
# normalised gradient descent keeps its norm.
#
# *Why.* What is missing is a bounded offset divided by a margin. Margins grow like $t$ with constant steps, like $\sqrt t$ with $t^{-1/2}$, like $\log t$ with
# $t^{-1}$. With steps like $t^{1/2}$ a step moves margins by more than 1 from $t=2500$ on, where $\gamma_N\eta_t\approx0.02\sqrt t$ is 1. Then one pair at a time rules
# the gradient. Under normalised gradient descent the steps lie along its feature $A_m$, always that of the pair of least margin, so that the support's margins seem to stay equal up to about a step: equal margins and a positive sum of $A_m$ make the max-margin matrix. Other rules add
# another direction for each feature, sign descent $\mathrm{sgn}(A_m)$, and such a sum is in general not the max-margin matrix of their norm.

# %%
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
figure_rates = plots.caption(atlas_figures.convergence(reached, own_norm), about_rates)
figure_rates

# %% [markdown]
# Ratios are those of the tokens selected at the last step, so $1-r_N$ may begin above 1. Look at the slopes: near $-1$ for most norms (in this small run Frobenius still falls onto its line), half of that in the
# second panel. In the third they are small, as those of $1/\log t$ are, and no rule comes near 0.99. Right: all
# lines but that of Frobenius turn back as the steps get longer.
#
# ## Appendix D. What Adam forgets
#
# **Question.** What do a long memory, an $\epsilon$ and small batches cost Adam of its norm, $\ell_\infty$, in a given time?
#
# **Answer.** After 119,378 steps it has, with a short memory ($\beta_2=0.9$), 0.994 of the largest margin in the median run, with the longest (0.9999) 0.423, with a large $\epsilon$ 0.453. On fewer samples
# a step it loses part of it too, as three other rules lose theirs.
#
# *Why.* If gradients fall faster than $\beta_2^{t/2}$, $v$ cannot fall as fast as $G^2$: it keeps the sizes of old gradients. So $M/\sqrt v$ is no longer near a sign, and the step shrinks. An $\epsilon$ above the gradients turns Adam into plain
# gradient descent, whose $W$ grows like $\log t$ alone (its limit should be Frobenius: Wang, Meng, Chen, Liu, 2012.06244). With fewer samples a step the relative sizes of their gradients are lost.

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
of_memory = atlas_rules.memories({str(b): one for b, one in zip(memories, forgets)})
table_adam = claims.Table(of_memory + atlas_rules.batches(by_batch, own_of))
table_adam

# %%
about_adam = f"Unit tokens, n=6, T=8, d=10; {seeds} seeds, {sweep_steps:,} steps; dotted: 0.99; right: normalised GD in the Frobenius norm, sign and Adam in $\\ell_\\infty$, polar in the spectral norm; left: {np.isnan(forgets[0].last).any(1).sum()} of {seeds} runs select no token at $\\beta_2={memories[0]:g}$, where one hides the median"
figure_adam = atlas_figures.memory(memories, forgets, epsilons, stops, by_batch, own_of)
plots.caption(figure_adam, about_adam)

# %% [markdown]
# Left: look at how the $\ell_\infty$ line falls as memory gets longer, to the left. With $\beta_2=0$ the mean $M$ is
# divided by the newest gradient alone, and some runs do not converge. Middle: look at the fall towards larger $\epsilon$. Right: look at how
# far each rule's ratio on fewer samples a step lies below that on all six.
#
# ## Sources
#
# The page's last table tests three more predictions: single samples keep the norm if the gradient of all, once a pass, corrects
# theirs (variance reduction); signs of the polar factor (OLion) end between the spectral norm and $\ell_\infty$; if $W$ is a product of keys and queries, rotating both together changes Adam's result, not that of polar steps.
#
# <details><summary>Who proved what that is measured here</summary>
#
# | statement | source |
# |---|---|
# | steepest descent in any norm, steps of length $\eta N^*(\nabla L)$, two classes | Gunasekar, Lee, Soudry, Srebro, 1802.08246 |
# | several classes, with momentum or without, $\ell_p$ and Schatten norms; $1-r=\tilde O(t^{-1/2})$ | Fan, Schmidt, Thrampoulidis, 2502.04664 |
# | homogeneous networks: stationary points of the margin in the norm of steepest descent; of Muon, Signum, Adam without $\epsilon$ (notebook 45) | Tsilivis et al., 2410.22069; Gronich, Vardi, 2602.16340 |
# | Adam without $\epsilon$, all samples, steps that shrink: $\ell_\infty$ | Zhang, Zou, Cao, 2406.10650 |
# | Adam, one sample a step: a Mahalanobis norm that the data choose; Signum with $\beta$ near 1: $\ell_\infty$ at any batch size | Baek, Song, Yun, 2510.26303 |
# | AdaGrad: a norm that its own sums of squares fix; for SOAP and Shampoo with sums ours | Qian, Qian, 1906.03559 |
# | batches without momentum: only all samples are sure to keep the norm; variance reduction keeps it | Li, Tang, Zou, 2602.11557 |
# | orthogonal factor, then sign: between the spectral norm and $\ell_\infty$ | Wang, Shen, Zhang, 2602.01105 |
# | keys and queries turned: polar steps do not see it, Adam's do | Zhang, 2605.07067 |
# | rescaling $W$ step by step: the $\ell_2$ margin exponentially fast | Wang, Min, Wu, 2311.14387 |
# | $\ell_p$ mirror descent on attention: the $\ell_p$ margin | paper C, 2410.14581 |
# | weight decay: AdamW under a bound on $\ell_\infty$, Muon on the spectral norm | Xie, Li, 2404.04454; Chen, Li, Liu, 2506.15054 |
#
# </details>

# %% tags=["set-up"]
# Set-up, no need to read.
others = atlas_used.other_rows()
also = atlas_rules.predictions(others, ratios_of(others))[1:]
also += atlas_used.gauge_claims(atlas_used.turned_back(data, range(seeds), 2_000))
at_end = lambda name, of: found[name].last[:, atlas.column(of)].min()
numbers = {f"least_{atlas_rules.word(of)}": at_end(name, of) for name, of in own_norm.items()}
numbers["steady"] = int(sum(one.steady.sum() for one in found.values()))
run.keep(figure_map, "atlas_map", about_map, table, numbers | {"runs": len(rows) * seeds})
rate = lambda name, of: np.median(atlas.fitted_rate(steadily[name], atlas.column(of)))
numbers = {f"rate_{atlas_rules.word(of)}": rate(name, of) for name, of in own_norm.items()}
run.keep(figure_rates, "atlas_rates", about_rates, table_rates, numbers)
which = {"short": forgets[1], "long": forgets[-1], "large_epsilon": stops[-1]}
numbers = {name: np.median(one.last[:, atlas.column("l_inf")]) for name, one in which.items()}
run.keep(figure_adam, "atlas_adam", about_adam, table_adam, numbers)
numbers = {f"own_{atlas_rules.word(name)}": value.min() for name, value in own.items()}
used_claims = [*decay_table, *own_table, *also]
run.keep(figure_used, "atlas_used", about_used, used_claims, numbers)
claims.Table(also)
