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
# *Side road of page [30](30_mirror_descent.ipynb) · 20 minutes · [words](words.md).* By the end, you will be able to say how fast mirror descent turns to its max-margin matrix, and from how far away it still does so.
#
# This page is about **paper C** (*Optimizing Attention with Mirror Descent*, arXiv 2410.14581), **Lemmas 28 and 29**.
#
# [Notebook 30](30_mirror_descent.ipynb) shows to which direction $\ell_p$-AttGD, the mirror descent of paper C, converges: that of a max-margin matrix $W_{mm}$. The paper proves a rate of convergence for runs that start in a thin cone around this direction.
#
# **Question.** How fast does $\ell_p$-AttGD approach the direction of $W_{mm}$? And how far from this direction may a run start and still converge to it?

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
from lib.mirror import selected_tokens
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
# | $X_i$, $z_i$, $y_i$ | tokens (as rows), query and label of sample $i$ | $T \times d$, $d$, $\pm1$ |
# | $u$, $W$ | fixed head (paper C writes $v$); attention weights | $d$, $d \times d$ |
# | $W_{mm}$ | the solution of the $\ell_p$ token SVM, that is, the matrix of smallest norm $\lVert W\rVert_{p,p}$ under which the logit of each selected token exceeds every other logit of its sample by at least one | $d \times d$ |
# | $\lVert W\rVert_{p,p}$ | the norm $(\sum_{jk}\lvert W_{jk}\rvert^p)^{1/p}$; below we write $\lVert W\rVert$ | |
# | $W_0$; $r$ | the start; $\lVert W(k)\rVert_{p,p}$ after $k$ steps | |
# | $D$ | the divergence between the directions of $W$ and $W_{mm}$: with $U=W/\lVert W\rVert$ and $V=W_{mm}/\lVert W_{mm}\rVert$ it is $1-\sum_{jk}\lvert U_{jk}\rvert^{p-1}\mathrm{sgn}(U_{jk})\,V_{jk}$ | |
#
# For $p=2$, $D$ is one minus the cosine of the angle between $W$ and $W_{mm}$. So $D=0.4$ is an angle of 53°, and $D=1$ is a right angle.

# %%
statements.quoted("C", STATEMENTS, "lp-AttGD", "Definition 1", "lp-AttSVM", "Definition 3", "Eqs. 4-8", "Lemma 28", "Lemma 29")

# %% [markdown]
# In these statements, $k$ is the number of steps and $v$ is the head $u$. Our copy of the paper refers to Definition 3 and Eqs. 4-8 but does not contain them. It lacks the formulas of the other definitions, and it lacks the constants in all hypotheses of these statements. [Notebook 30](30_mirror_descent.ipynb) gives the step and the divergence as code.
#
# ## Locally optimal selections
#
# We generate data as the authors' code does, but with our own seeds. For every exponent we train from random starts, and each run ends with some selection of tokens, one per sample. The theory covers only selections that are [locally optimal](words.md). This means that each selected token must have a higher score $y_iu^\top x_{i,t}$ than the tokens of its sample whose constraints are tight in the SVM (margin exactly 1).

# %%
each = range(seeds)
data = tokens.unit_tokens(each, n, T, d)
every_exponent = sorted({*rate_exponents, *exponents})
found = {p: lemmas.found_selections(data, each, p, find_steps) for p in every_exponent}
print(f"locally optimal, of {seeds}:", {p: len(of.direction) for p, of in found.items()})

# %% [markdown]
# ## Rates
#
# Each run starts on the edge of a cone around $W_{mm}$. There $D = 0.001$, and $\|W_0\| = 100\|W_{mm}\|$. (From wider cones, some runs end at other tokens, as the second part of this page shows.) With $p=2$ and with $p=3$, one random start has ended, after 4,000 steps, at a selection that is not locally optimal. We leave it out.
#
# With plain gradient steps, $r$ grows like $\log k$ ([notebook 39](39_mirror_ledger.ipynb), Lemma 30). This growth is too slow for us to fit a power of $r$ to $D$. With normalised steps $r$ grows like $k^{1/(p-1)}$, so we normalise the steps. The plain rule and the normalised rule follow the same path only in the limit $\eta \to 0$ of short steps. Our steps are not short: in the mirror image $|W|^{p-1}\mathrm{sgn}(W)$, the length of a step is 3 % of that of the start. For $p=2$ this is three times the norm of $W_{mm}$. So we also try steps that are ten times shorter.

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

# %% tags=["nbval-check-output"]
for p in (1.5, 2, 3):
    shorter, _ = lemmas.from_cone(found[p], 0.001, 100, rate_steps, rate_step / 10)
    slope = np.median(lemmas.slopes(shorter, shorter.divergence(found[p].solution.W, p)))
    print(f"p = {p:g}, steps ten times shorter: D falls like r^{slope:.1f}")

# %% [markdown]
# In the figure below, each circle shows the fitted exponent for one seed. If $D$ fell like the power of $r$ in the bound of Lemma 29, the circles would lie on the grey line segments. (For $p\ge2$ the bound contains a logarithm, too. With it, a fit over the norms of these runs would lie somewhat above the segments.) In fact the circles lie close to the dotted segments: $D$ falls with about twice the exponent of the bound, like $r^{-2\min(p-1, 1)}$.
#
# Our explanation, of which we measure only the result, is that the direction error falls like $r^{-\min(p-1, 1)}$, and that $D$ is quadratic in this error (see "To prove"). The direction error has two sources. The part of the mirror image of $W_0$ that is orthogonal to all constraints stays constant while the image grows like $r^{p-1}$. And among the matrices of norm $r$, the one of least loss differs in direction from $W_{mm}$ by an error of order $1/r$.

# %%
about_rates = f"Power laws fitted to the end of each run, a circle a seed; our starts, paper C's data: n={n}, T={T}, d={d}, ≤ {seeds} seeds"
figure_rates = figures.lemma29(histories, divergences, about_rates)
figure_rates

# %% [markdown]
# ## How wide are the basins?
#
# The theory guarantees convergence if the cone is thin and $\|W_0\|$ is large. How thin must the cone be? To find out, we start runs on the edges of wider and wider cones around $W_{mm}$ for each [selection](words.md), both near the origin and far from it. We count the runs that select, at the end of training, the tokens that belong to their cone. We try three values of $\|W_0\|$. The length of a step is 2 % of that of the start (in the mirror image), and the number of steps is always the same. So a long start also takes long steps and goes far, and a difference between the three values may be due to any of these. The *claims* below, each of which compares a measured number with a bound, are about the largest of the three values. The printed $\mu_0$ is the width of the cone by our reading of Eqs. 4-8 (the median over the data sets). We derived it ourselves, because our copy of the paper does not contain the paper's width.

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
    print(f"p = {p:g}: mu_0 {proved:.1e}; 90 % end at the tokens of their cone up to D = {max(stay):g}")

# %% [markdown]
# In the figure below, which is for $p=2$, each line belongs to one value of $\|W_0\|$, given in multiples of $\|W_{mm}\|$. Far from the origin, every run that starts on the edge of the thinnest cone ends at the tokens of its cone. From the widest cones, runs with short starts and short steps end there more often than runs with long ones. In the larger runs (desk scale, 20 seeds), but not in the runs of this page, some short starts end at other tokens even from the thinnest cone.
#
# A start in a wide cone need not select the tokens of its cone itself. The next cell prints, for $p=2$ and the long starts, the share that does. Any further runs that end at these tokens have acquired them during training.

# %%
for k, mu in enumerate(widths):
    begun, of_cone = lemmas.from_cone(found[2], mu, multiples[-1], 1, draws=local_draws, seed=k)
    at_first = (selected_tokens(of_cone, begun.W[:, 0]) == of_cone.opt).all(1).mean()
    print(f"D = {mu:g}: {at_first:.0%} of the starts select the tokens, {far[2][k]:.0%} of the runs end there")

# %% [markdown]
# We draw the shares of the runs for all three lengths of the start.

# %%
about_basins = f"Locally optimal selections, {local_draws} starts each; our starts, paper C's data: n={n}, T={T}, d={d}, ≤ {seeds} seeds; p = 2"
figure_basins = figures.basins(widths, kept, 2, about_basins)
figure_basins

# %% [markdown]
# ## What we saw
#
# **Answer.** The divergence falls with about twice the exponent of the paper's bound. So the bound of Lemma 29 holds in these runs with room to spare. Far from the origin, every run that starts on the edge of the thinnest cone ends at the tokens of its cone. So do at least nine in ten runs in cones that are much wider than $\mu_0$, up to $D=0.4$ ($D=0.2$ for $p=1.75$). From wide cones, many runs end there although their start selects other tokens; but from still wider cones fewer and fewer do, at $D=1$ only about half of them. (Even our thinnest cone is wider than the median $\mu_0$. So our runs do not test the theorem where it is proved, and they cannot tell whether its bound is sharp for other starts or data.)
#
# ![The divergence falls with twice the exponent of Lemma 29's bound](../figures/desk/mirror_rates.png)
#
# *The larger run (desk scale): the exponent of $\|W\|$ with which the divergence falls, for five values of $p$. The grey line segments show the bound of Lemma 29.*
#
# [Notebook 39](39_mirror_ledger.ipynb) tests the other lemmas.
#
# ## Change this
#
# Predict first, then run. The first cell starts runs on the edge of the cone around $W_{mm}$ for each selection that training with $p$ found, and prints the median exponent of these runs.
#
# 1. Take an exponent $p$ nearer to one, $p = 1.25$. *Hint:* the bound of Lemma 29 is $r^{1-p}$, so we expect $D$ to fall more slowly. *Predict:* does $D$ again fall with twice the exponent of the bound?

# %%
for p in (1.25, 1.5):
    of = lemmas.found_selections(data, each, p, find_steps)
    history, _ = lemmas.from_cone(of, 0.001, 100, rate_steps // 4, rate_step)
    slope = np.median(lemmas.slopes(history, history.divergence(of.solution.W, p)))
    print(f"p = {p:g}: exponent {slope:.2f}, twice that of the bound {-2 * (p - 1):.2f}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Nearly: both printed exponents differ by only a few hundredths from twice the exponent of the bound in the lemma.
#
# </details>
#
# 2. Take $p = 1.2$, which favours sparser matrices. Train on one data set from zero. *Hint:* with $p$ near 1, a matrix with few large entries is cheap. *Predict:* how many of the entries of $W_t$, taken from the largest down, make up 90 % of $\sum_{jk} |W_{jk}|$?

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
# The nearer $p$ is to 1, the fewer entries are needed. This holds from the first step on, because the map from the mirror image back to $W$ raises entries to the power $q-1$ with $q=p/(p-1)$, and this power is large if $p$ is near 1. So after the first step the number of entries tells us about the map. With $p=1.2$, training then spreads the sum over more entries; with the other two exponents it hardly changes the number.
#
# </details>
#
# **To prove.** Let $V$ have norm 1 and no zero entry. Let $U$ have norm 1 and tend to $V$, and let $e=\lVert V-U\rVert$. Show that $D_\psi(V,U)$ is of order $e^2$. (It follows that the exponent with which $D$ falls is twice the exponent of the direction error, if no entry of $W_{mm}$ is zero.)
#
# <details><summary>Solution</summary>
#
# $D_\psi(V,U)=\psi(V)-\psi(U)-\langle\nabla\psi(U),V-U\rangle$ is the remainder of the first-order Taylor expansion at $U$. Since no entry of $V$ is zero, $\psi$ is smooth near $V$, and once $U$ is near $V$ the remainder equals half the quadratic form of the Hessian in $V-U$, where the Hessian is taken at a point between $U$ and $V$. The Hessian is diagonal with the entries $(p-1)\lvert X_{jk}\rvert^{p-2}$ at $X$. Near $V$ they lie between two positive bounds, so the order is exactly $e^2$.
#
# </details>

# %% tags=["set-up"]
# Set-up, no need to read.
numbers = {f"slope_{p:g}".replace(".", "_"): slope for p, slope in slopes.items()}
run.keep(figure_rates, "mirror_rates", about_rates, rate_table, numbers)
numbers = {f"kept_{p:g}_{m}".replace(".", "_"): kept[p, m][-1] for p, m in kept}
run.keep(figure_basins, "mirror_local", about_basins, local_table, numbers)
