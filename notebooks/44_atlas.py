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
# Many weights fit the same training data, and the optimiser decides which of them you get. **Paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738) proves for gradient descent, under its assumptions, that attention turns to the matrix of largest margin in the *Frobenius* norm. Most networks are trained with Adam, though, and some now with Muon.
#
# **Question.** In which norm does each optimiser maximise the margin of attention's $W$, and does it get there?
#
# The norm tells you what kind of solution to expect. A large margin for a given $\ell_1$ norm comes from few large entries. For the nuclear norm it comes from a matrix of low rank, and for $\ell_\infty$ from many entries of equal size.
#
# ## What we measure
#
# We train one attention layer until it *selects* a token $\alpha_i$ in every sample $i$: the softmax weight of this token goes to 1. The *margin* of a pair $m=(i,t)$, $t\ne\alpha_i$, is the logit of the selected token minus the logit of token $t$. With tokens $x$ and the query $z$ it is linear in $W$:
# $$g_m=\langle A_m,W\rangle,\qquad A_m=(x_{i,\alpha_i}-x_{i,t})\,z_i^\top .$$
#
# If you double $W$, you double every margin. So we divide the smallest margin by the size of $W$ in a norm $N$, and then by the best value that any matrix reaches:
# $$r_N(W)=\frac{\min_mg_m}{N(W)\,\gamma_N},\qquad\gamma_N=\max_{N(V)\le1}\min_m\langle A_m,V\rangle .$$
#
# This *ratio* is at most 1, and it is 1 if $W$ maximises the margin in $N$. We get $\gamma_N$ without training, from a convex program (the *token SVM*).
#
# We compare seven norms: $\ell_1$, $\ell_3$ and $\ell_\infty$ of the entries; Frobenius; nuclear and spectral, the sum and the largest of the singular values; and *head-wise*, the larger spectral norm of two halves of $W$'s rows.

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
# Which way is down? That depends on the norm, too. *Steepest descent* in $N$ takes the step $D$ with $N(D)\le1$ that agrees most with the downhill direction $G=-\nabla L(W)$: it maximises $\langle G,D\rangle$. For four norms this is a line of numpy each. Every rule takes 800 steps. If the norm of the step decides the norm of the margin, the largest number of each line is on the diagonal.

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
# It is: each rule leads in its own norm. To test a rule of your own, write `directions["mine"] = ...` before the loop.
#
# ## The map
#
# Now 28 rules, among them Adam, Muon, Lion and Shampoo. This is the map of the judged runs: 20 random data sets, up to 1,000,000 steps ([scale](words.md) desk).
#
# ![For each optimiser its share of the largest margin in the norm predicted for it, and its best share in another norm](../figures/desk/atlas_map.png)
#
# *How to read a row, for example "Muon". The filled mark is Muon's median ratio in the norm that we predicted, the spectral norm; the bar spans all runs, and the number on the right is the worst run. The hollow mark is its best ratio in another norm. If a rule maximises the margin in its norm and in no other, the filled mark is at 1 and the hollow one to its left. For grey rows we predicted that they stay below 0.99.*
#
# Here we draw a small map: two data sets, at most 20,000 steps. Rules that need more steps are still on their way.

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
# ## The rules and their steps
#
# Below, $G=USV^\top$ is the compact singular value decomposition: $S$ holds the positive singular values, and $U_1$, $V_1$ are the first columns. $M$ and $v$ are running means of $G$ and of $G^2$, entry by entry. Per step they forget by the factors $\beta_1$ and $\beta_2$.
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
# Here is a sketch, not a proof. Suppose that the run keeps its tokens, and that they score higher than the others. Late in training $L-L^*$, the loss minus its limit, is a sum of one term per pair, proportional to $e^{-g_m}$. Let $\pi_m\ge0$ be the shares of these terms. Then $G$ points along $\sum_m\pi_mA_m$.
#
# 1. **A step lowers every term.** The step $\eta_tD_t$ raises $g_m$ by $\eta_t\langle A_m,D_t\rangle$. To first order this multiplies $L-L^*$ by $1-\eta_t\langle\sum_m\pi_mA_m,D_t\rangle$.
# 2. **The steepest step lowers them fastest.** Among all $D$ with $N(D)\le1$ it has the largest product with $\sum_m\pi_mA_m$. This product is at least $\gamma_N$, whatever the shares, because some matrix of norm 1 has at least the margin $\gamma_N$ on every $A_m$.
# 3. **So the smallest margin grows at least as fast as the best matrix allows.** The loss falls at least like $\exp(-\gamma_N\sum\eta)$, and its largest term is $e^{-\min_mg_m}$ up to a constant. So $\min_mg_m\ge\gamma_N\sum\eta-O(1+\sum\eta^2)$. From zero, $N(W_t)\le\sum\eta$. Divide the first by the second.
#
# For steps like $t^{-1/2}$ or $t^{-1}$ this gives $r_N\to1$. For the constant steps of the map it leaves $1-r_N=O(\eta)$, and that the ratio rises further is measured. For the Frobenius norm [notebook 40](40_law_of_margins.ipynb) proves it, under its hypotheses.
#
# ## Which predictions hold
#
# A *claim* is a measured number beside the bound that the [protocol](atlas_protocol.md) sets.
#
# | claim | says |
# |---|---|
# | `own` | in every run the ratio in the norm predicted is at least 0.99 |
# | `lower` | in every run this ratio is the largest of the seven |
# | `none` | in none of the norms is the ratio 0.99 in every run |
# | `nearest` | if none is reached: in at least half of the runs the norm guessed has the largest ratio |
#
# In the small run some `own` claims fail because 20,000 steps are too few. In the judged runs one `own` claim fails: mirror descent in $\ell_3$ falls short in its worst runs. Five guesses of the kind `nearest` are wrong at both sizes: $\ell_\infty$ for Adam with $\epsilon$ and for AdaGrad, the spectral norm for Shampoo with sums and for SOAP, and Frobenius for Adam on single samples.

# %%
table = claims.Table(sorted(atlas_rules.predictions(rows, found), key=lambda claim: claim.holds))
table

# %% [markdown]
# ## What we saw
#
# **Answer.** Steepest descent approaches the largest margin in its own norm: after 1,000,000 steps it is within 1 % of it in every run, for all seven norms (the head-wise rule stops after 119,378 steps). Muon with an exact polar factor does the same for the spectral norm. Signum, Lion and RMSprop do it for $\ell_\infty$.
#
# Adam with its usual setting ($\beta_1=0.9$, $\beta_2=0.999$, $\epsilon=10^{-8}$) and Muon with Newton-Schulz steps reach none of the seven margins in every run. Without $\epsilon$, Adam is closest to $\ell_\infty$.
#
# [Notebook 46](46_own_norms_and_decay.ipynb) finds norms that AdaGrad and Adam make themselves, and says what weight decay costs. [Notebook 47](47_schedules_and_memory.ipynb) shows how fast the ratio rises, and what costs Adam its norm.
#
# ## Change this
#
# **The norm.** Steepest descent in any $\ell_p$ should maximise its own $\ell_p$ margin. $p=4$ is not on the map. *Prediction:* its ratio is largest in $\ell_4$.

# %%
p = 4.0
W = lib.train(data, lib.SteepestDescent(p, 0.03), 20_000, record=[20_000]).W[:, -1]
print(*(f"{N}: {np.median(ratio(data, W, N)):.3f}" for N in ("frobenius", p, np.inf)), sep=", ")

# %% [markdown]
# <details><summary>Answer</summary>
#
# It is, and it is within 1 % of 1.
#
# </details>
#
# **Newton-Schulz.** Real Muon does not compute a singular value decomposition. It applies an odd polynomial to the singular values of $M$, five times, which gives roughly the polar factor. *Prediction:* does the spectral ratio go to 1 if we apply it more often?

# %%
for iterations in (5, 10):
    rough = lib.Muon(atlas_rules.step("spectral"), newton_schulz=iterations)
    last = atlas.ratios(lib.train(data, rough, 20_000, record=[20_000]), best).last
    print(f"{iterations} iterations: {np.median(last[:, atlas.column('spectral')]):.3f}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Not here. The polynomial is tuned for speed, and its values stay in a band around 1. Small singular values would need more iterations, too.
#
# </details>
#
# **To prove.** Show that $UV^\top$ is the steepest direction in the spectral norm: among all $D$ of spectral norm at most 1 it has the largest $\langle G,D\rangle$, for $G=USV^\top$.
#
# <details><summary>Solution</summary>
#
# $\langle G,D\rangle=\sum_kS_k\,U_k^\top DV_k\le\sum_kS_k$, since $\lvert U_k^\top DV_k\rvert\le1$ for columns of length 1. $D=UV^\top$ has $U_k^\top DV_k=1$ for every $k$, so it attains the bound. The bound is the nuclear norm of $G$, which is the dual of the spectral norm.
#
# </details>
#
# ## What this does not show, and whose it is
#
# * The tokens are random. [Notebook 45](45_atlas_of_networks.ipynb) trains keys and queries, and a small network.
# * In some norms several matrices have the largest margin. The ratio does not tell them apart.
# * The loop above stalls if you run it for long, once $e^{-2g_m}$ underflows. The library keeps logarithms and does not.
# * All runs use float64, whereas `torch.optim.Muon` iterates in bfloat16.
# * That steepest descent has $r_N\to1$ is proved for *linear* classifiers ([sources](atlas_sources.md)). For attention papers A and C prove a limit for gradient and mirror descent. The rest is measured here. The runs on attention's $W$ are ours, and so are the predictions that the list of rules marks "ours".
# * [The protocol](atlas_protocol.md) says which predictions and bounds were committed before the runs.

# %% tags=["set-up"]
# Set-up, no need to read.
own_norm = {name: row.reached for name, row in atlas_rules.steepest_rows().items()}
at_end = lambda name, of: found[name].last[:, atlas.column(of)].min()
numbers = {f"least_{atlas_rules.word(of)}": at_end(name, of) for name, of in own_norm.items()}
numbers["steady"] = int(sum(one.steady.sum() for one in found.values()))
run.keep(figure_map, "atlas_map", about_map, table, numbers | {"runs": len(rows) * seeds})
