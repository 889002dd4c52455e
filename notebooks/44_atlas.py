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
# *Page 7 of 11 · before: [30](30_mirror_descent.ipynb) · next: [45](45_atlas_of_networks.ipynb) · 20 minutes · [words](words.md).* After this page you can name the norm of each optimiser, and test it.
#
# Many weights fit the same training data, and the optimiser decides which of them you get. **Paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738) proves, under its assumptions, that gradient descent turns the attention weights $W$ towards the matrix with the largest margin in the *Frobenius* norm. But most networks are trained with Adam, and some with Muon.
#
# **Question.** In which norm does each optimiser maximise the margin of $W$, and does it reach the largest margin?
#
# The norm tells you what to expect: $W$ has few large entries for $\ell_1$, low rank for the nuclear norm, and many entries of equal size for $\ell_\infty$.
#
# ## What we measure
#
# We train one attention layer until it *selects* a token $\alpha_i$ in every sample $i$: its softmax weight tends to 1. The *margin* of a pair $m=(i,t)$, $t\ne\alpha_i$, is the logit of the selected token minus the logit of token $t$. With tokens $x$ and queries $z$, it is linear in $W$:
# $$g_m=\langle A_m,W\rangle,\qquad A_m=(x_{i,\alpha_i}-x_{i,t})\,z_i^\top .$$
#
# Doubling $W$ doubles every margin. So we divide the smallest margin by the size of $W$ in a norm $N$, and then by the largest value $\gamma_N$ that this quotient can have:
# $$r_N(W)=\frac{\min_mg_m}{N(W)\,\gamma_N},\qquad\gamma_N=\max_{N(V)\le1}\min_m\langle A_m,V\rangle .$$
#
# This *ratio* is at most 1, and it is 1 if $W$ maximises the margin in $N$. In some norms several matrices do, and the ratio does not tell them apart.
#
# The *token SVM* gives $\gamma_N$ without training. It finds $W_{mm}$, the smallest matrix in $N$ whose margins are all at least 1. Then $\gamma_N=1/N(W_{mm})$: the matrix $W_{mm}/N(W_{mm})$ has norm 1 and this smallest margin. A matrix of norm 1 with a larger one, rescaled to smallest margin 1, would be smaller than $W_{mm}$.
#
# We compare seven norms. Four are norms of the entries: $\ell_1$, $\ell_2$ (called *Frobenius*), $\ell_3$ and $\ell_\infty$. The *nuclear* norm is the sum of the singular values, and the *spectral* norm is the largest of them. The *head-wise* norm is the larger spectral norm of two halves of the rows, as if $W$ held two heads.

# %% tags=["parameters"]
# Set-up, no need to read.
scale = "demo"
seeds = 2
steps = 20_000

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
# *Steepest descent* in $N$ takes the step $D$ with $N(D)\le1$ that maximises $\langle G,D\rangle$, where $G=-\nabla L(W)$ is the downhill direction. For each of four norms this is one line of numpy. The data are six samples of eight random tokens of length 1, in ten dimensions. We take 800 steps and print the ratio in the same four norms (`inf` and `1` stand for $\ell_\infty$ and $\ell_1$). If the norm of the step decides the norm of the margin, the largest number in each line is on the diagonal.

# %%
data = lib.unit_tokens(range(seeds), n=6, T=8, d=10)
one = data.run(0)


def polar(G):
    U, S, V = np.linalg.svd(G)  # numpy's V is the transpose
    kept = S > 1e-12 * S[0]  # six samples: six singular values of ten
    return U[:, kept] @ V[kept]


def largest(G):
    return np.where(np.abs(G) == np.abs(G).max(), np.sign(G), 0.0)


def descend(direction, count):
    # In a long run this loop stalls, once e^{-2 g} underflows; the library keeps logarithms.
    W = np.zeros((10, 10))
    for _ in range(count):
        W = W + 0.05 * direction(-lib.gradients(one, W[None], one.u)[1][0])
    return W


def ratio(data, W, norm):  # min_m g_m / (N(W) gamma_N), for the tokens that W (runs, d, d) selects
    chosen = lib.logits(data, W).argmax(-1)
    margin = atlas.least_margins(data, chosen, W[:, None])[:, 0]
    return margin * lib.token_svm(data, chosen, norm).norm / lib.norm_of(W, norm)


norms = ("frobenius", np.inf, 1, "spectral")
directions = dict(zip(norms, (lambda G: G / np.linalg.norm(G), np.sign, largest, polar)))
for norm, direction in directions.items():
    W = descend(direction, 800)
    print(f"descent in {norm!s:9}", *(f"{N}: {ratio(one, W[None], N)[0]:.3f} " for N in norms))

# %%
# A check: after 50 steps, each of the four directions agrees with the library's rule.
for norm in norms:
    by_lib = lib.train(one, lib.SteepestDescent(norm, 0.05), 50, record=[50])
    assert np.allclose(descend(directions[norm], 50), by_lib.W[0, 0], rtol=0, atol=1e-9)

# %% [markdown]
# The largest numbers are on the diagonal: each rule leads in its own norm. No ratio is 1 yet, because in 800 steps the margins grow little, and least for $\ell_1$, whose $\gamma_N$ is the smallest.
#
# To test your own rule in these four norms, write `directions["mine"] = ...` above the loop.
#
# ## Why the norm of the step is the norm of the margin
#
# Late in training the selection no longer changes. Then the loss $L$ exceeds its infimum $L^*$ by a sum of one term per pair, proportional to $e^{-g_m}$. The largest term belongs to the smallest margin, so $\log(L-L^*)\approx-\min_mg_m$.
#
# 1. By definition of $\gamma_N$, some matrix $V$ of norm 1 has at least the margin $\gamma_N$ on every pair. So a step of length $\eta$ along $V$ multiplies each term by at most $e^{-\eta\gamma_N}$.
# 2. To first order the steepest step lowers the loss at least as much as a step along $V$. So after steps of lengths $\eta_t$, the smallest margin is about $\gamma_N\sum\eta_t$ or more.
# 3. From $W=0$ we have $N(W)\le\sum\eta_t$, by the triangle inequality. Dividing gives
#
# $$1\;\ge\;r_N(W)\;\ge\;1-c\,\frac{1+\sum\eta_t^2}{\sum\eta_t}.$$
#
# The constant $c$ does not depend on time, and $\eta_t^2$ is what "to first order" leaves out. If the steps shrink slowly enough, the bound tends to 1. For our constant steps it leaves a gap proportional to the step, but the measured ratio rises further. This is a [sketch](atlas_sources.md#why-the-norm-of-the-step-is-the-norm-of-the-margin); [notebook 40](40_law_of_margins.ipynb) proves the Frobenius case under its hypotheses.
#
# So we predict the norm $N$ if every step is nearly the steepest in $N$. If the steps are not the steepest in a fixed norm, the sketch says nothing. If they shrink with the gradient, $\sum\eta_t$ grows only like $\log t$, which is too slow. In such cases we predicted *none*: in every norm some run stays below 0.99. We also guessed the *nearest* norm, in which the ratio is largest.
#
# ## The rules and their steps
#
# These are all 28 rules, in the order of the map below. $G=USV^\top$ is the compact singular value decomposition, with first columns $U_1$ and $V_1$. $M$ and $v$ are running means of $G$ and of $G^2$, entry by entry, and $P$ and $R$ of $GG^\top$ and $G^\top G$. $F$ is the Fisher matrix, a weighted sum of $\nabla f_i\nabla f_i^\top$ over the samples, where $f_i$ is the layer's answer. "Per sample" means that $G$ comes from one sample per step.
#
# | rule | step direction $D$ | predicted | why |
# |---|---|---|---|
# | steepest, $\ell_1$ | $\mathrm{sgn}(G_{jk})$ at the largest $\lvert G_{jk}\rvert$, else 0 | $\ell_1$ | the step is the steepest |
# | steepest, nuclear | $U_1V_1^\top$ | nuclear | the step is the steepest |
# | steepest, Frobenius | $G/\lVert G\rVert_F$ (normalised gradient descent) | Frobenius | the step is the steepest |
# | natural, damped by trace | $(F+\lambda I)^{-1}G$ at length 1, $\lambda=\frac1{10}\mathrm{tr}\,F$ | Frobenius | $W$ stays a sum of the samples' gradients, and those of samples with large margins vanish, as in the SVM |
# | rescaled, Frobenius | $G/\lVert G\rVert_F$; $W$ kept in a ball that grows 1.2 times every 200 steps | Frobenius | the step is the steepest, and $1-r_N$ falls as the ball grows |
# | steepest, $\ell_3$ | $\mathrm{sgn}(G)\lvert G\rvert^{1/2}$ at length 1 | $\ell_3$ | the step is the steepest |
# | mirror, $\ell_3$ | $G$ at length 1, added to $\mathrm{sgn}(W)\lvert W\rvert^2$ | $\ell_3$ | theorem of paper C ([page 30](30_mirror_descent.ipynb)) |
# | steepest, spectral | $UV^\top$, the *polar factor* of $G$ | spectral | the step is the steepest |
# | Muon | polar factor of $M$ | spectral | $M$ forgets in 20 steps, so it nearly points along $G$ |
# | Shampoo, 0.9 | $P^{-1/4}GR^{-1/4}$ | spectral | polar factor of $G$ while $P$ and $R$ follow $G$ |
# | steepest, $\ell_\infty$ | $\mathrm{sgn}(G)$ | $\ell_\infty$ | the step is the steepest |
# | Signum | $\mathrm{sgn}(M)$ | $\ell_\infty$ | $M$ nearly points along $G$ |
# | Lion | $\mathrm{sgn}(0.9M+0.1G)$ | $\ell_\infty$ | as Signum |
# | RMSprop, $\beta_2=0.99$ | $G/\sqrt v$ | $\ell_\infty$ | $v$ follows $G^2$, so $D$ is nearly a sign |
# | Signum, 0.99, per sample | $\mathrm{sgn}(M)$ | $\ell_\infty$ | a long mean sees all samples |
# | steepest, head-wise | polar factor of each half of $G$ | head-wise | the step is the steepest |
# | Muon, head-wise | polar factor of each half of $M$ | head-wise | as Muon |
# | natural, undamped | $F^{-1}G$ at length 1 | none; nuclear | it raises all answers alike, so one saturated sample takes the whole step and $W$ tends to rank one |
# | steepest, Frobenius, per sample | $G/\lVert G\rVert_F$ | none; Frobenius | every sample gets an equal step, even if its margin is large |
# | Adam, $\epsilon=0$, per sample | $M/\sqrt v$ | none; Frobenius | $v$ averages squares of single samples, so $D$ is no sign |
# | natural, damped | $(F+0.01\,I)^{-1}G$ | none; Frobenius | ends as gradient descent, whose steps shrink |
# | AdaGrad, full matrix | $(\sum gg^\top)^{-1/2}g$, $g=\mathrm{vec}\,G$ | none; Frobenius | the sum stops growing, so the steps shrink |
# | Muon, Newton-Schulz | five polynomial steps in place of the polar factor | none; spectral | singular values end between 0.7 and 1.2, not at 1 |
# | Shampoo, sums | as Shampoo, $P$ and $R$ are sums | none; spectral | the steps shrink, as in AdaGrad |
# | SOAP | Adam in the eigenvectors of $P$ and $R$ | none; spectral | entries off the diagonal are noise there, which division by $\sqrt v$ enlarges |
# | Adam, $\epsilon=0$ | $M/\sqrt v$ | none; $\ell_\infty$ | as RMSprop, but a longer memory needs smaller steps: about 1 % is missing after a million |
# | Adam, $\epsilon=10^{-8}$ | $M/(\sqrt v+\epsilon)$ | none; $\ell_\infty$ | ends as gradient descent once the gradients are below $\epsilon$ |
# | AdaGrad | $G/\sqrt{\sum G^2}$ | none; $\ell_\infty$ | the sum stops growing, so the steps shrink |
#
# The next list and the claims write "Adam, 0.999" for $\epsilon=0$ and "Adam, 0.999, epsilon" for $\epsilon=10^{-8}$.

# %%
rows = atlas_rules.rows()


def place_on_map(name):  # first the rules with a predicted norm, then by norm
    return rows[name].reached is None, atlas.column(rows[name].highest)


in_order = {name: rows[name] for name in sorted(rows, key=place_on_map)}
decays = atlas_used.decay_rows()
tenth = {name: row for name, row in decays.items() if name.endswith(" 10")}
on_page_46 = atlas_used.other_rows() | tenth
listed = [("44", *line) for line in atlas_rules.listing(in_order)]
listed += [("46", *line) for line in atlas_rules.listing(on_page_46)]
columns = ["page", "rule", "step", "norm predicted", "nearest source"]
every = claims.html(pd.DataFrame(listed, columns=columns))
HTML(f"<details><summary>Who predicted what, here and on page 46</summary>{every}</details>")

# %% [markdown]
# ## The map
#
# The *large runs* train on 20 random data sets for up to 1,000,000 steps ([scale](words.md) desk, record `figures/desk/atlas_map.json`). Rules with costly steps stop earlier ([page 47](47_schedules_and_memory.ipynb) lists them, at its end).
#
# ![Each optimiser's ratio in the predicted norm and in another](../figures/desk/atlas_map.png)
#
# *The filled mark is the median ratio in the predicted norm. In the grey rows we predicted none, and the norm is the guessed nearest one. The bar spans all runs, and the number on the right is the worst run. The hollow mark is the best ratio in another norm, which its shape names. The vertical line is at 0.99.*
#
# If a rule maximises the margin in its norm alone, the filled mark is at 1 and the hollow mark to its left. This is what the upper rows show, except that mirror descent has runs below 0.99.
#
# The *small run* below, made by this page, has only the first two of these data sets and at most 20,000 steps.

# %%
best = atlas.BestMargins(data)
paths = atlas_rules.trained(data, rows, steps, times, keep)
found = atlas.atlas(paths, best)

# %%
about_map = f"Unit tokens, n=6, T=8, d=10; {seeds} seeds, up to {steps:,} steps; filled: predicted norm, median, bar: its runs; hollow: best other; grey: predicted below 0.99; Adam: $\\beta_2=0.999$"
figure_map = plots.caption(atlas_figures.dumbbells(rows, found), about_map)
figure_map

# %% [markdown]
# In the small run, too, the predicted norm leads in every upper row. The two Adam rows coincide, because the gradients are still far above $\epsilon$.
#
# ## Which predictions hold
#
# A *claim* is a measured number beside the bound that the [protocol](atlas_protocol.md) sets. The ratio in the predicted norm must be at least 0.99 (`own`) and the largest (`lower`) in every run. Where we predicted none, no ratio may be so large in every run (`none`), and the guessed norm must have the largest ratio in at least half of the runs (`nearest`). These claims fail:
#
# | claim | large runs (20 data sets) | small run (2 data sets) | meaning |
# |---|---|---|---|
# | `nearest`, AdaGrad: $\ell_\infty$ | 0 of 20 | 0 of 2 | refuted; nearest to $\ell_3$ in all runs |
# | `nearest`, Adam, $\epsilon=10^{-8}$: $\ell_\infty$ | 0 of 20 | 1 of 2, passes | refuted; nearest to $\ell_3$ in all large runs |
# | `nearest`, SOAP: spectral | 1 of 20 | 0 of 2 | refuted; nearest to nuclear, Frobenius or spectral, by data set |
# | `nearest`, Shampoo, sums: spectral | 6 of 20 | 1 of 2, passes | refuted; nearest to Frobenius, $\ell_3$ or spectral, by data set |
# | `nearest`, Adam, per sample: Frobenius | 7 of 20 | 0 of 2 | refuted; nearest to $\ell_3$ in 13 runs |
# | `own`, mirror, $\ell_3$ | worst run 0.978 | worst run 0.951 | too few steps; the ratio still rises |
# | `own`, eleven other rules | all hold | fail | 20,000 steps are too few |
#
# So the large runs refute five guesses of a nearest norm, and no predicted norm. Two runs cannot decide a guess, because one run turns a pass into a failure. Adam without $\epsilon$ and Muon with Newton-Schulz also pass with one run of two; in the large runs it is 20 and 12 of 20. Mirror descent heads for the same margin as steepest descent in $\ell_3$, but $\lVert W\rVert_3$ grows only like $\sqrt t$.
#
# In the next table, of the small run, "ours, beyond paper A's Theorem 1" marks our own predictions; the theorem is about gradient descent.

# %%
table = claims.Table(sorted(atlas_rules.predictions(rows, found), key=lambda claim: claim.holds))
table

# %% [markdown]
# ## What we saw
#
# **Answer.** Steepest descent approaches the largest margin in its own norm. In the large runs its ratio is at least 0.991 in every run, for all seven norms. Muon with an exact polar factor (spectral norm) and Signum, Lion and RMSprop ($\ell_\infty$) reach at least 0.99 in every run, too.
#
# Adam with its usual setting ($\beta_1=0.9$, $\beta_2=0.999$, $\epsilon=10^{-8}$) and Muon with Newton-Schulz steps reach 0.99 of none of the seven margins in all runs. Without $\epsilon$, Adam is closest to $\ell_\infty$ in every large run, and its worst run has 0.973.
#
# With $\epsilon$, a *fixed* norm may be the wrong question: Adam's step [changes during training](47_schedules_and_memory.ipynb). On single samples, [the data choose](46_own_norms_and_decay.ipynb) its norm.
#
# ## Change this
#
# **The norm.** The map does not show $p=4$. *Prediction:* steepest descent in $\ell_4$ has its largest ratio there.

# %%
p = 4.0
W = lib.train(data, lib.SteepestDescent(p, 0.03), 20_000, record=[20_000]).W[:, -1]
print(*(f"{N}: {np.median(ratio(data, W, N)):.3f}" for N in ("frobenius", p, np.inf)), sep=", ")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The prediction holds, and the $\ell_4$ ratio is within 1 % of 1.
#
# </details>
#
# <details><summary>What this does not show, and whose it is</summary>
#
# * The tokens are random. [Notebook 45](45_atlas_of_networks.ipynb) trains keys and queries, and a small network.
# * [The sources](atlas_sources.md) say who proved what, and [the protocol](atlas_protocol.md) what was committed before the runs.
#
# </details>

# %% tags=["set-up"]
# Set-up, no need to read.
own_norm = {name: row.reached for name, row in atlas_rules.steepest_rows().items()}
at_end = lambda name, of: found[name].last[:, atlas.column(of)].min()
numbers = {f"least_{atlas_rules.word(of)}": at_end(name, of) for name, of in own_norm.items()}
numbers["steady"] = int(sum(one.steady.sum() for one in found.values()))
run.keep(figure_map, "atlas_map", about_map, table, numbers | {"runs": len(rows) * seeds})
