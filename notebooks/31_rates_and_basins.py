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
# # Mirror descent on attention: how fast, and from how far away
#
# *Side road of page [30](30_mirror_descent.ipynb) · 20 minutes · [words](words.md).* After this page you can say how fast mirror descent turns, and from which starts it stays.
#
# **Paper C** (*Optimizing Attention with Mirror Descent*, arXiv 2410.14581), **Lemmas 28 and 29**.
#
# [Notebook 30](30_mirror_descent.ipynb) shows in which direction $\ell_p$-AttGD, the mirror descent of paper C, ends. The paper proves a rate for starts in a thin cone around this direction.
#
# **Question.** How fast does $\ell_p$-AttGD approach its direction? And how far from this direction may a run start?

# %% tags=["parameters"]
# Set-up, no need to read.
scale = "demo"
seeds = 8
n, T, d = 6, 8, 10
find_steps = 4000
rate_exponents = [1.5, 1.75, 2, 2.5, 3]
rate_steps = 40000
rate_step = 0.03
exponents = [1.75, 2, 3]
widths = [1e-5, 0.001, 0.01, 0.1, 0.2, 0.4, 0.7, 1.0]
multiples = [1, 10, 100]
local_steps, local_draws = 1500, 3

# %% tags=["set-up"]
# Set-up, no need to read.
import numpy as np

import lib
from companion import claims, record, statements
from lib.attention import tokens
from papers.c import figures, lemmas
from papers.c.statements import STATEMENTS

run = record.start("31_rates_and_basins", "C", globals())

# %% [markdown]
# ## The statement
#
# We train only the weights $W$ of one attention layer $f_i = y_i\, u^\top X_i^\top \mathrm{softmax}(X_i W z_i)$, with the logistic
# loss $L(W) = \frac1n \sum_i \log(1 + e^{-f_i})$.
#
# | symbol | meaning | shape |
# |---|---|---|
# | $X_i$, $z_i$, $y_i$ | tokens as rows, query, label of sample $i$ | $T \times d$, $d$, $\pm1$ |
# | $u$, $W$ | fixed head (paper C writes $v$), attention weights | $d$, $d \times d$ |
# | $W_{mm}$ | the solution of the $\ell_p$ token SVM, that is, the smallest $\lVert W\rVert_{p,p}$ under which each selected token leads by a logit of one | $d \times d$ |
# | $r$ | $\lVert W(k)\rVert_{p,p}$ after $k$ steps | |

# %%
statements.quoted("C", STATEMENTS, "lp-AttGD", "Definition 1", "lp-AttSVM", "Definition 3", "Eqs. 4-8", "Lemma 28", "Lemma 29")

# %% [markdown]
# In these statements $k$ counts steps, and $v$ is the head $u$. Our copy of the paper only cites Definition 3 and Eqs. 4-8, and it lacks the formulas of the other definitions and the constants of all these hypotheses. [Notebook 30](30_mirror_descent.ipynb) has the step and the divergence as code.
#
# ## Locally optimal selections
#
# We use the data of the authors' code with our seeds. For every exponent we train from random starts, and each run ends at some selection of tokens. The theory
# covers the selections that are [locally optimal](words.md): each selected token must have a higher score than the tokens of its sample whose constraints bind in the SVM (margin exactly 1).

# %%
each = range(seeds)
data = tokens.unit_tokens(each, n, T, d)
every_exponent = sorted({*rate_exponents, *exponents})
found = {p: lemmas.found_selections(data, each, p, find_steps) for p in every_exponent}
print(f"locally optimal, of {seeds}:", {p: len(of.direction) for p, of in found.items()})

# %% [markdown]
# ## Rates
#
# The runs start on the edge of a cone around $W_{mm}$, at the divergence $D = 0.001$, with $\|W_0\| = 100\|W_{mm}\|$. From a wider cone and a start nearer to zero, some runs
# leave the cone.
#
# With plain steps $r$ grows like $\log k$ ([notebook 39](39_mirror_ledger.ipynb), Lemma 30), which is too slow to fit an
# exponent. With normalised steps $r$ grows like $k^{1/(p-1)}$, so we normalise. The two rules follow the same path only in the limit $\eta \to 0$.

# %%
histories, divergences, rate_claims = {}, {}, []
for p in rate_exponents:
    histories[p], _ = lemmas.from_cone(found[p], 0.001, 100, rate_steps, rate_step)
    divergences[p] = histories[p].divergence(found[p].solution.W, p)
    rate_claims += lemmas.lemma29(histories[p], p, divergences[p])
rate_table = claims.Table(rate_claims)
rate_table

# %% tags=["nbval-check-output"]
slopes = {p: np.median(lemmas.slopes(histories[p], divergences[p])) for p in rate_exponents}
for p, slope in slopes.items():
    a, b, _ = lemmas.theory(p)
    bound = f"r^{a:g}" + (f" (log r)^{b:g}" if b else "")
    print(f"p = {p:g}: D falls like r^{slope:.1f}; the bound of Lemma 29 like {bound}")

# %% [markdown]
# In the figure below, each circle marks one seed. If the bound of Lemma 29 were sharp, the circles would lie on the grey dashed line. In fact they lie close to the dotted line segments: $D$ falls with twice the exponent of the bound, like
# $r^{-2\min(p-1, 1)}$. The reason is that the direction error falls like $r^{-\min(p-1, 1)}$, and $D$ is quadratic in this error.

# %%
about_rates = f"Power laws fitted to the end of each run, a circle a seed; our starts, paper C's data: n={n}, T={T}, d={d}, ≤ {seeds} seeds"
figure_rates = figures.lemma29(histories, divergences, about_rates)
figure_rates

# %% [markdown]
# ## How wide are the basins?
#
# The theory promises convergence for thin cones and large $\|W_0\|$. How thin must the cone be? To find out, we start runs on the edges of wider and wider cones around the direction of each [selection](words.md), near the origin and far from it.
# We count the runs that keep their tokens, that is, those that select the tokens of their cone at the end. We try three norms $\|W_0\|$. The *claims* below (measured numbers beside their bounds) are about the largest of these norms. The printed $\mu_0$ is a width for which the proofs work. We derived it ourselves, because our copy lacks the paper's width.

# %%
captured = lambda p, m: lemmas.captured(found[p], widths, m, local_steps, local_draws)
kept = {(p, m): captured(p, m) for p in exponents for m in multiples}
far = {p: kept[p, multiples[-1]] for p in exponents}
local_table = claims.Table(lemmas.local_claims(far, widths, multiples[-1]))
local_table

# %% tags=["nbval-check-output"]
for p in exponents:
    stay = [mu for mu, share in zip(widths, far[p], strict=True) if share >= 0.9]
    proved = np.median(lemmas.radius(found[p]))
    print(f"p = {p:g}: mu_0 {proved:.1e}; 90 % keep their tokens up to D = {max(stay):g}")

# %% [markdown]
# In the figure below, each line belongs to one length of $W_0$, in multiples of $\|W_{mm}\|$. Far from the origin every run from the thinnest cone keeps its tokens, and so do most runs from
# cones that are much wider than $\mu_0$. Near the origin, some runs lose their tokens even if they start in the thinnest cone. We saw this at desk scale, with 20
# seeds.

# %%
about_basins = f"Locally optimal selections, {local_draws} starts each; our starts, paper C's data: n={n}, T={T}, d={d}, ≤ {seeds} seeds; p = 2"
figure_basins = figures.basins(widths, kept, 2, about_basins)
figure_basins

# %% [markdown]
# ## What we saw
#
# **Answer.** The divergence falls with twice the exponent of the paper's bound, so Lemma 29
# holds in these runs but is not sharp. Every run from the thinnest cone far from the origin keeps its tokens. Most runs keep their tokens even if they start in cones that are much wider than $\mu_0$.
#
# ![The divergence falls with twice the exponent of Lemma 29's bound](../figures/desk/mirror_rates.png)
#
# *The larger run (desk scale): the exponent of $\|W\|$ with which the divergence falls, for five values of $p$. The grey dashed line is the bound of Lemma 29.*
#
# [Notebook 39](39_mirror_ledger.ipynb) has the other lemmas.
#
# ## Change this
#
# Predict first, then run. The first cell starts on the edge of a cone around the selections that training with $p$ found, and prints medians.
#
# 1. Take an exponent nearer to one, $p = 1.25$. *Hint:* the bound of Lemma 29 is $r^{1-p}$, so $D$ falls more slowly. *Predict:* does $D$ again fall with twice
#    this exponent?

# %%
for p in (1.25, 1.5):
    of = lemmas.found_selections(data, each, p, find_steps)
    history, _ = lemmas.from_cone(of, 0.001, 100, rate_steps // 4, rate_step)
    slope = np.median(lemmas.slopes(history, history.divergence(of.solution.W, p)))
    print(f"p = {p:g}: exponent {slope:.2f}, twice that of the bound {-2 * (p - 1):.2f}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Nearly: both printed exponents are within a few hundredths of twice the exponent of the lemma.
#
# </details>
#
# 2. Take a sparser geometry, $p = 1.2$. Train on one data set from zero. *Hint:* a $p$ near 1 prefers few large
#    entries. *Predict:* how many entries of $W_t$ hold 90 % of $\sum_{jk} |W_{jk}|$?

# %%
def entries_for(share, W):
    size = np.sort(np.abs(W).ravel())[::-1]
    return int(np.searchsorted(np.cumsum(size), share * size.sum())) + 1


for p, count in ((1.2, 1000), (2, 2000), (3, 20000)):
    W = lib.train(data.run(1), lib.MirrorDescent(p, 0.1), count, [1, count], loss="logistic").W[0]
    first, last = entries_for(0.9, W[0]), entries_for(0.9, W[-1])
    print(f"p = {p:g}: after step 1, {first} of {W[0].size} entries hold 90 % of the sum; at the end {last}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The nearer $p$ is to 1, the fewer entries are needed. This holds from the first step on, because the map back from the mirror image raises entries to the power $q-1$, and this exponent is large if $p$ is near 1. So the count tells us more about the map than about training.
#
# </details>
#
# **To prove.** Let $V$ and $U$ have length 1, and let $\lVert V-U\rVert=e$ be small. Show that $D_\psi(V,U)$ is of order $e^2$. (So the exponent of $D$ is
# twice the exponent of the direction error.)
#
# <details><summary>Solution</summary>
#
# $D_\psi(V,U)=\psi(V)-\psi(U)-\langle\nabla\psi(U),V-U\rangle$ is the remainder of the first-order Taylor expansion at $U$. If no entry of $U$ is zero, it equals half of the Hessian's
# quadratic form in $V-U$, up to higher orders.
#
# </details>

# %% tags=["set-up"]
# Set-up, no need to read.
numbers = {f"slope_{p:g}".replace(".", "_"): slope for p, slope in slopes.items()}
run.keep(figure_rates, "mirror_rates", about_rates, rate_table, numbers)
numbers = {f"kept_{p:g}_{m}".replace(".", "_"): kept[p, m][-1] for p, m in kept}
run.keep(figure_basins, "mirror_local", about_basins, local_table, numbers)
