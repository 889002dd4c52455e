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
# *Page 7 of 11 · before: [30](30_mirror_descent.ipynb) · next: [45](45_atlas_of_networks.ipynb) · 20 minutes · [words](words.md).* After it you can name the norm of each optimiser, and test it.
#
# Many weights fit the same training data, and the optimiser decides which of them you get. **Paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738) proves, under its assumptions, what gradient descent does: attention turns to the matrix of largest margin in the *Frobenius* norm. But most networks are trained with Adam, and some with Muon.
#
# **Question.** In which norm does each optimiser maximise the margin of attention's $W$, and does it reach the largest margin?
#
# The norm tells you what kind of solution to expect. If the $\ell_1$ norm is small for a given margin, $W$ has few large entries. With the nuclear norm $W$ has low rank. With $\ell_\infty$ many entries have equal size.
#
# ## What we measure
#
# We train one attention layer until it *selects* a token $\alpha_i$ in every sample $i$, so that the softmax weight of this token tends to 1. The *margin* of a pair $m=(i,t)$, $t\ne\alpha_i$, is the logit of the selected token minus the logit of token $t$. With tokens $x$ and the query $z$ the margin is linear in $W$:
# $$g_m=\langle A_m,W\rangle,\qquad A_m=(x_{i,\alpha_i}-x_{i,t})\,z_i^\top .$$
#
# If you double $W$, you double every margin. So we divide the smallest margin by the size of $W$ in a norm $N$, and then by the best value that any matrix reaches:
# $$r_N(W)=\frac{\min_mg_m}{N(W)\,\gamma_N},\qquad\gamma_N=\max_{N(V)\le1}\min_m\langle A_m,V\rangle .$$
#
# This *ratio* is at most 1, and it is 1 if $W$ maximises the margin in $N$. We compute $\gamma_N$ without training, from a convex program (the *token SVM*).
#
# We compare seven norms. Three norms act on the entries: $\ell_1$, $\ell_3$ and $\ell_\infty$. The others are the Frobenius norm, the nuclear norm (sum of the singular values), the spectral norm (largest singular value), and a *head-wise* norm, the larger spectral norm of two halves of the rows of $W$.

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
# Which way is down? The answer depends on the norm, too. *Steepest descent* in $N$ takes the step $D$ with $N(D)\le1$ that maximises $\langle G,D\rangle$, where $G=-\nabla L(W)$ is the downhill direction. For each of four norms this is one line of numpy. If the norm of the step decides the norm of the margin, the largest number of each line is on the diagonal.

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
# The largest numbers are on the diagonal: each rule leads in its own norm. To test your own rule, write `directions["mine"] = ...` before the loop.
#
# ## The map
#
# Now we take 28 rules, among them Adam, Muon, Lion and Shampoo. The map below shows 20 random data sets, with up to 1,000,000 steps ([scale](words.md) desk).
#
# ![For each optimiser its share of the largest margin in the norm predicted for it, and its best share in another norm](../figures/desk/atlas_map.png)
#
# *How to read a row, for example "Muon". The filled mark is Muon's median ratio in the norm that we predicted, the spectral norm. The bar spans all runs, and the number on the right is the worst run. The hollow mark is Muon's best ratio in another norm. For grey rows we predicted a ratio below 0.99.*
#
# Next we draw a smaller map with two data sets and at most 20,000 steps.

# %%
best = atlas.BestMargins(data)
rows = atlas_rules.rows()
paths = atlas_rules.trained(data, rows, steps, times, keep)
found = atlas.atlas(paths, best)

# %%
about_map = f"Unit tokens, n=6, T=8, d=10; {seeds} seeds, up to {steps:,} steps; filled: predicted norm, median, bar: its runs; hollow: best other; grey: predicted below 0.99; Adam: $\\beta_2=0.999$"
figure_map = plots.caption(atlas_figures.dumbbells(rows, found), about_map)
figure_map

# %% [markdown]
# If a rule maximises the margin in its norm and in no other, the filled mark is at 1 and the hollow mark to its left. On the small map some rules have not arrived yet, because they need more steps.
#
# ## The rules and their steps
#
# In the table, $G=USV^\top$ is the compact singular value decomposition, so $S$ holds the positive singular values. $U_1$ and $V_1$ are the first columns. $M$ and $v$ are running means of $G$ and of $G^2$, entry by entry, with the forgetting factors $\beta_1$ and $\beta_2$.
#
# | rule | step direction $D$ | norm predicted |
# |---|---|---|
# | normalised gradient descent | $G/\lVert G\rVert_F$ | Frobenius |
# | sign descent; Signum, Lion | $\mathrm{sgn}(G)$; about $\mathrm{sgn}(M)$ | $\ell_\infty$ |
# | largest entry alone | $\mathrm{sgn}(G_{jk})$ at the largest $\lvert G_{jk}\rvert$, else 0 | $\ell_1$ |
# | polar factor; Muon | $UV^\top$; the same of $M$ | spectral |
# | leading singular pair | $U_1V_1^\top$ | nuclear |
# | RMSprop; Adam | $G/\sqrt v$; $M/(\sqrt v+\epsilon)$ | $\ell_\infty$; close to it for $\epsilon=0$ |
# | Adam on single samples | as Adam, $G$ of one sample | Frobenius: a wrong guess ([notebook 46](46_own_norms_and_decay.ipynb)) |
# | AdaGrad | $G/\sqrt{\sum G^2}$ | $\ell_\infty$: a wrong guess (notebook 46) |

# %%
decays = atlas_used.decay_rows()
tenth = {name: row for name, row in decays.items() if name.endswith(" 10")}
listed = atlas_rules.listing(rows | atlas_used.other_rows() | tenth)
columns = ["rule", "step", "norm predicted", "nearest source"]
every = claims.html(pd.DataFrame(listed, columns=columns))
HTML(f"<details><summary>Every rule's step in one line</summary>{every}</details>")

# %% [markdown]
# ## Why the norm of the step is the norm of the margin
#
# Late in training the loss exceeds its infimum by a sum of terms like $e^{-g_m}$, one per pair, so its logarithm is about minus the smallest margin.
#
# 1. Some matrix $V$ of norm 1 has at least the margin $\gamma_N$ on every pair. A step along $V$ would raise every margin by at least $\gamma_N$ times its length.
# 2. The steepest step lowers the loss at least as fast as a step along $V$. So the smallest margin grows by at least about $\gamma_N$ per unit of step length.
# 3. The norm $N(W)$ grows by at most 1 per unit of step length. Divide the margin by the norm: the ratio $r_N$ tends to 1 if the steps shrink.
#
# [The sources](atlas_sources.md#why-the-norm-of-the-step-is-the-norm-of-the-margin) have this sketch with its formulas. For the Frobenius norm, [notebook 40](40_law_of_margins.ipynb) has a proof under its hypotheses.
#
# ## Which predictions hold
#
# A *claim* is a measured number beside the bound that the [protocol](atlas_protocol.md) sets. There are four kinds:
#
# | claim | statement |
# |---|---|
# | `own` | in every run the ratio in the predicted norm is at least 0.99 |
# | `lower` | in every run this ratio is the largest of the seven |
# | `none` | in none of the norms is the ratio 0.99 in every run |
# | `nearest` | if no margin is reached, the guessed norm has the largest ratio in at least half of the runs |
#
# In the small run some `own` claims fail because 20,000 steps are too few. In the large runs only mirror descent in $\ell_3$ fails, in its worst runs. Five `nearest` guesses are wrong at both sizes: $\ell_\infty$ for Adam with $\epsilon$ and for AdaGrad, the spectral norm for Shampoo with sums and for SOAP, and Frobenius for Adam on single samples.

# %%
table = claims.Table(sorted(atlas_rules.predictions(rows, found), key=lambda claim: claim.holds))
table

# %% [markdown]
# ## What we saw
#
# **Answer.** Steepest descent approaches the largest margin in its own norm. After 1,000,000 steps its ratio is at least 0.99 in every run, for all seven norms (the head-wise rule stops after 119,378 steps). Muon with an exact polar factor reaches the same ratio in the spectral norm. Signum, Lion and RMSprop reach it in $\ell_\infty$.
#
# Adam with its usual setting ($\beta_1=0.9$, $\beta_2=0.999$, $\epsilon=10^{-8}$) and Muon with Newton-Schulz steps reach 0.99 of none of the seven margins in all runs. Without $\epsilon$, Adam is closest to $\ell_\infty$.
#
# [Notebook 46](46_own_norms_and_decay.ipynb) finds norms that AdaGrad and Adam make themselves, and computes what weight decay costs. [Notebook 47](47_schedules_and_memory.ipynb) shows how fast the ratio rises, and why Adam loses its norm.
#
# ## Change this
#
# **The norm.** Steepest descent in any $\ell_p$ should maximise its own $\ell_p$ margin. The map does not show $p=4$. *Prediction:* its ratio is largest in $\ell_4$.

# %%
p = 4.0
W = lib.train(data, lib.SteepestDescent(p, 0.03), 20_000, record=[20_000]).W[:, -1]
print(*(f"{N}: {np.median(ratio(data, W, N)):.3f}" for N in ("frobenius", p, np.inf)), sep=", ")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The prediction holds, and the ratio is within 1 % of 1.
#
# </details>
#
# **Newton-Schulz.** The usual Muon does not compute a singular value decomposition. It applies an odd polynomial to the singular values of $M$ five times, which gives roughly the polar factor. *Prediction:* does the spectral ratio go to 1 if we apply the polynomial more often?

# %%
for iterations in (5, 10):
    rough = lib.Muon(atlas_rules.step("spectral"), newton_schulz=iterations)
    last = atlas.ratios(lib.train(data, rough, 20_000, record=[20_000]), best).last
    print(f"{iterations} iterations: {np.median(last[:, atlas.column('spectral')]):.3f}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# No, not here. The polynomial is tuned for speed, and its values stay in a band around 1. Besides, small singular values would need more iterations.
#
# </details>
#
# **To prove.** Show that $UV^\top$ is the steepest direction in the spectral norm. That is, among all $D$ of spectral norm at most 1, $UV^\top$ has the largest $\langle G,D\rangle$ for $G=USV^\top$.
#
# <details><summary>Solution</summary>
#
# $\langle G,D\rangle=\sum_kS_k\,U_k^\top DV_k\le\sum_kS_k$, because $\lvert U_k^\top DV_k\rvert\le1$ for columns of length 1. The matrix $D=UV^\top$ attains the bound, because $U_k^\top DV_k=1$ for every $k$. The bound is the nuclear norm of $G$, which is the dual of the spectral norm.
#
# </details>
#
# <details><summary>What this does not show, and whose it is</summary>
#
# * The tokens are random. [Notebook 45](45_atlas_of_networks.ipynb) trains keys and queries, and a small network.
# * In some norms several matrices have the largest margin. The ratio does not tell them apart.
# * The loop above stalls if you run it for long, once $e^{-2g_m}$ underflows. The library keeps logarithms, so it does not stall.
# * All runs use float64, whereas `torch.optim.Muon` iterates in bfloat16.
# * [The sources](atlas_sources.md) say who proved what, and [the protocol](atlas_protocol.md) says which predictions and bounds were committed before the runs.
#
# </details>

# %% tags=["set-up"]
# Set-up, no need to read.
own_norm = {name: row.reached for name, row in atlas_rules.steepest_rows().items()}
at_end = lambda name, of: found[name].last[:, atlas.column(of)].min()
numbers = {f"least_{atlas_rules.word(of)}": at_end(name, of) for name, of in own_norm.items()}
numbers["steady"] = int(sum(one.steady.sum() for one in found.values()))
run.keep(figure_map, "atlas_map", about_map, table, numbers | {"runs": len(rows) * seeds})
