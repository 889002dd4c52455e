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
# The norm tells you what to expect of $W$: few large entries for $\ell_1$, low rank for the nuclear norm, and many entries of equal size for $\ell_\infty$.
#
# ## What we measure
#
# We train one attention layer until it *selects* a token $\alpha_i$ in every sample $i$: its softmax weight tends to 1. The *margin* of a pair $m=(i,t)$, $t\ne\alpha_i$, is the logit of the selected token minus that of token $t$. With tokens $x$ and queries $z$, it is linear in $W$:
# $$g_m=\langle A_m,W\rangle,\qquad A_m=(x_{i,\alpha_i}-x_{i,t})\,z_i^\top .$$
#
# Doubling $W$ doubles every margin, so we divide the smallest one by a norm $N(W)$, and then by the largest value $\gamma_N$ that this quotient can have:
# $$r_N(W)=\frac{\min_mg_m}{N(W)\,\gamma_N},\qquad\gamma_N=\max_{N(V)\le1}\min_m\langle A_m,V\rangle .$$
#
# This *ratio* is at most 1, and it is 1 if $W$ maximises the margin in $N$.
#
# The *token SVM* gives $\gamma_N$ without training. It finds $W_{mm}$, the smallest matrix in $N$ whose margins are all at least 1. Then $V=W_{mm}/N(W_{mm})$ attains $\gamma_N=1/N(W_{mm})$: any better $V$, rescaled to smallest margin 1, would be smaller than $W_{mm}$. This is a convex program; if $N$ is no $\ell_p$ norm with $1<p<\infty$, `lib.token_svm` gives it to cvxpy.
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
# *Steepest descent* in $N$ takes the step $D$ with $N(D)\le1$ that maximises $\langle G,D\rangle$, where $G=-\nabla L(W)$ is the downhill direction. Let $G=USV^\top$ be the compact singular value decomposition, with columns $U_k$ and $V_k$.
#
# | norm | bound for $N(D)\le1$ | attained by |
# |---|---|---|
# | Frobenius | $\langle G,D\rangle\le\lVert G\rVert_F$ (Cauchy-Schwarz) | $D=G/\lVert G\rVert_F$ |
# | $\ell_\infty$ | $\langle G,D\rangle\le\sum\lvert G_{jk}\rvert$, because $\lvert D_{jk}\rvert\le1$ (Hölder) | $D=\mathrm{sgn}(G)$ |
# | $\ell_1$ | $\langle G,D\rangle\le\max\lvert G_{jk}\rvert$, because $\sum\lvert D_{jk}\rvert\le1$ (Hölder) | $D=\mathrm{sgn}(G_{jk})$ at the largest $\lvert G_{jk}\rvert$, else 0 |
# | spectral | $\langle G,D\rangle=\sum_kS_k\,U_k^\top DV_k\le\sum_kS_k$, because $U_k$ and $V_k$ have length 1 and $D$ lengthens no vector (von Neumann) | the *polar factor* $D=UV^\top$, because $U_k^\top UV^\top V_k=1$ |
#
# The data are six samples of eight random tokens of length 1, in ten dimensions. We print the ratio after 800 steps (`inf` and `1` stand for $\ell_\infty$ and $\ell_1$). If the norm of the step decides the norm of the margin, the largest number in each line is on the diagonal.

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
# The largest numbers are on the diagonal: each rule leads in its own norm. No ratio is 1 yet, because in 800 steps the margins grow little, and least for $\ell_1$, whose $\gamma_N$ is the smallest. (The code's comment says $e^{-2g}$, because $G$ shrinks like $e^{-g}$ and its norm squares the entries.)
#
# For your own rule, write `directions["mine"] = ...` above the loop.
#
# ## Why the norm of the step is the norm of the margin
#
# Suppose that the selected tokens stay the same and score higher than the others. Then, late in training, the loss $L$ exceeds its infimum $L^*$ by nearly a sum of one term per pair ([page 40](40_law_of_margins.ipynb)):
# $$L-L^*\approx Z=\sum_m\kappa_me^{-g_m},\qquad G\approx Z\sum_m\pi_mA_m,\qquad\pi_m=\kappa_me^{-g_m}/Z .$$
# The $\kappa_m>0$ are constants, and the shares $\pi_m$ sum to 1. We take both for exact, so this is a sketch. Let $a_m=\langle A_m,D\rangle$, and let $b$ bound all $\lvert a_m\rvert$ with $N(D)\le1$.
#
# 1. The step $\eta D$ multiplies each term by $e^{-\eta a_m}$, however small the term is. So all errors are relative to $L-L^*$.
# 2. By Taylor, $e^{-\eta a_m}\le1-\eta a_m+c\,\eta^2$ with $c=\frac12b^2e^{\eta b}$. Averaging with the shares gives $Z_{t+1}/Z_t\le1-\eta\langle\sum\pi_mA_m,D\rangle+c\,\eta^2$.
# 3. By definition of $\gamma_N$, some $V$ of norm 1 has $\langle A_m,V\rangle\ge\gamma_N$ for every $m$. The steepest $D$ does at least as well as $V$, so $\langle\sum\pi_mA_m,D\rangle\ge\gamma_N$.
# 4. Since $1+x\le e^x$, the product over all steps is $Z\le\exp(c_0-\gamma_N\sum\eta_t+c\sum\eta_t^2)$, with a constant $c_0$ for the start. The largest term is at most $Z$, so $\min_mg_m\ge\gamma_N\sum\eta_t-c\sum\eta_t^2-c_1$.
# 5. From $W=0$ the triangle inequality gives $N(W)\le\sum\eta_t$. Dividing gives
#
# $$1\;\ge\;r_N(W)\;\ge\;1-\frac{c_1+c\sum\eta_t^2}{\gamma_N\sum\eta_t}.$$
#
# For steps like $t^{-1/2}$ the bound tends to 1. For our constant steps it leaves the gap $c\,\eta/\gamma_N$, but the measured ratio rises further. Why? Either all smallest margins come to rise alike, and step 2 loses little, or the steepest step gains more than $\gamma_N$ in step 3. We [measure both](atlas_sources.md#why-the-norm-of-the-step-is-the-norm-of-the-margin); page 40 proves the Frobenius case under its hypotheses.
#
# So we predict the norm $N$ if every step is nearly the steepest in $N$. Otherwise, or if the steps shrink like the gradient, we predicted *none*: in every norm some run stays below 0.99. We also guessed the *nearest* norm, in which the ratio is largest.
#
# ## Eight rules and their steps
#
# These rules are in the order of the map below; [the note](optimisers.md) has all 28 of its rows. $M$ and $v$ are running means, which start at 0.
#
# | rule | step direction $D$ | predicted | why |
# |---|---|---|---|
# | steepest, Frobenius | $G/\lVert G\rVert_F$ (normalised gradient descent) | Frobenius | the step is the steepest |
# | mirror, $\ell_3$ | $G/\lVert G\rVert_{3/2}$, added to $\mathrm{sgn}(W)\lvert W\rvert^2$ | $\ell_3$ | $\mathrm{sgn}(W)\lvert W\rvert^2$ comes to point along a sum of the $A_m$ with the smallest margins, as in the SVM ([page 30](30_mirror_descent.ipynb)) |
# | steepest, spectral | polar factor of $G$ | spectral | the step is the steepest |
# | Muon | polar factor of $M\leftarrow0.95M+0.05\,G$ | spectral | $M$ forgets in 20 steps; the shares $\pi_m$ change little meanwhile, so $M$ nearly points along $G$ |
# | steepest, $\ell_\infty$ | $\mathrm{sgn}(G)$ (sign descent) | $\ell_\infty$ | the step is the steepest |
# | Signum | sign of $M\leftarrow0.9M+0.1\,G$ | $\ell_\infty$ | as Muon, with 10 steps |
# | steepest, Frobenius, per sample | $G/\lVert G\rVert_F$, where $G$ comes from one sample, in turn | none; Frobenius | every sample gets a step of length 1, even if its margins are so large that it has no weight in the SVM |
# | Adam, $\epsilon=0$ or $10^{-8}$ ("Adam, 0.999" and "Adam, 0.999, epsilon" in the next list and the claims) | $\hat M/(\sqrt{\hat v}+\epsilon)$ with $M\leftarrow0.9M+0.1\,G$, $v\leftarrow0.999v+0.001\,G^2$ entry by entry, $\hat M=M/(1-0.9^t)$, $\hat v=v/(1-0.999^t)$ | none; $\ell_\infty$ | see below |
#
# **Adam.** Let $\epsilon=0$, and let all entries of $G$ keep their signs and shrink by the same factor per step. Then $D$ is a multiple of $\mathrm{sgn}(G)$, because $M$ is one of $G$ and $\sqrt v$ one of $\lvert G\rvert$. But $G^2$ falls like $e^{-2g}$, and $v$ falls at most by the factor 0.999 per step. So the margins must grow by less than 0.0005 per step, and we expected about 1 % to be missing after a million. With $\epsilon=10^{-8}$, $D\approx M/\epsilon$ once $\sqrt v$ is far below $\epsilon$: this is gradient descent, whose steps shrink.

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
# The *large runs* train on 20 random data sets for up to 1,000,000 steps ([scale](words.md) desk, record `figures/desk/atlas_map.json`). Rules with costly steps [stop earlier](optimisers.md#how-long-each-rule-runs).
#
# ![Each optimiser's ratio in the predicted norm and in another](../figures/desk/atlas_map.png)
#
# *The filled mark is the median ratio in the predicted norm. In the grey rows we predicted none, and the norm is the guessed nearest one. The bar spans all runs, and the number on the right is the worst run. The hollow mark is the best ratio in another norm, which its shape names. The vertical line is at 0.99.*
#
# If a rule maximises the margin in its norm alone, the filled mark is at 1 and the hollow mark to its left. The upper rows show this, but mirror descent has runs below 0.99.
#
# The *small run* below has only the first two of these data sets and at most 20,000 steps.

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
# A *claim* is a measured number beside the bound that the [protocol](atlas_protocol.md) sets:
#
# | claim | holds if |
# |---|---|
# | `own` | the ratio in the predicted norm is at least 0.99 in every run |
# | `lower` | the ratio in the predicted norm is the largest in every run |
# | `none` (we predicted none) | in every norm the ratio is at most 0.99 in some run |
# | `nearest` (we predicted none) | the guessed norm has the largest ratio in at least half of the runs |
# | `bounded` | no ratio exceeds 1 |
#
# Of 57 claims, 51 hold in the large runs and 42 in the small run. These fail:
#
# | claim | large runs (20 data sets) | small run (2 data sets) | meaning |
# |---|---|---|---|
# | `nearest`, AdaGrad: $\ell_\infty$ | 0 of 20 | 0 of 2 | refuted; nearest to $\ell_3$ in all runs |
# | `nearest`, Adam, $\epsilon=10^{-8}$: $\ell_\infty$ | 0 of 20 | 1 of 2, passes | refuted; nearest to $\ell_3$ in all large runs |
# | `nearest`, SOAP: spectral | 1 of 20 | 0 of 2 | refuted; nearest to nuclear, Frobenius or spectral, by data set |
# | `nearest`, Shampoo, sums: spectral | 6 of 20 | 1 of 2, passes | refuted; nearest to Frobenius, $\ell_3$ or spectral, by data set |
# | `nearest`, Adam, per sample: Frobenius | 7 of 20 | 0 of 2 | refuted; nearest to $\ell_3$ in 13 runs |
# | `own`, mirror, $\ell_3$ | worst run 0.978 | worst run 0.951 | too few steps, because $\lVert W\rVert_3$ grows only like $\sqrt t$ |
# | `own`, eleven other rules | all hold | fail | 20,000 steps are too few |
#
# So the large runs refute five guesses of a nearest norm. Mirror descent misses its bound, but its predicted norm leads.
#
# The next table is that of the small run, with its 15 failures. The answer rests on [the large runs](../figures/desk/atlas_map.json). "Natural, damped by trace" fails with 0.98995, which the map rounds to 0.990. Sources that begin with "ours, beyond" mark our own predictions.

# %%
table = claims.Table(sorted(atlas_rules.predictions(rows, found), key=lambda claim: claim.holds))
table

# %% [markdown]
# ## What we saw
#
# **Answer.** Steepest descent approaches the largest margin in its own norm. In the large runs its ratio is at least 0.991 in every run, for all seven norms. Muon with an exact polar factor (spectral norm) and Signum, Lion and RMSprop ($\ell_\infty$) reach at least 0.99 in every run, too.
#
# Adam with its usual $\epsilon=10^{-8}$ and Muon with Newton-Schulz steps reach 0.99 of none of the seven margins in all runs. Without $\epsilon$, Adam is closest to $\ell_\infty$ in every large run, and its worst run has 0.973.
#
# Adam's step [changes during training](47_schedules_and_memory.ipynb), so a *fixed* norm may be the wrong question. On single samples, [the data choose](46_own_norms_and_decay.ipynb) its norm.
#
# ## Change this
#
# **The norm.** *Prediction:* steepest descent in $\ell_4$, which the map lacks, has its largest ratio there.

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
