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
# # Mirror descent on attention, lemma by lemma
#
# *Appendix of page [30](30_mirror_descent.ipynb) · 15 minutes · [words](words.md).* By the end, you will be able to look up any lemma of paper C together with what was measured for it.
#
# This page is about **paper C** (*Optimizing Attention with Mirror Descent*, arXiv 2410.14581): **Lemmas 4 and 12-30, and the theorems, which we name by their content**. At least one claim tests each of these statements, except for the identities and the theorem on the rate in $k$. A *claim* pairs a measured number with the bound that it must meet.
#
# **Question.** A lemma states a bound. Can a measured number confirm or refute the lemma? And would the verdict change if the lemma were slightly wrong?
#
# ## The statement
#
# We train one attention layer $f_i = y_i\, u^\top X_i^\top \mathrm{softmax}(X_i W z_i)$ with the logistic loss $L(W)$. The update rule is mirror descent on $W$ with the potential $\psi(W) = \frac1p\|W\|_{p,p}^p$,
#
# $$\nabla\psi(W_{k+1}) = \nabla\psi(W_k) - \eta\,\nabla L(W_k), \qquad
# \nabla\psi(W) = |W|^{p-1}\,\mathrm{sgn}(W) \text{ entry by entry.}$$
#
# | symbol | meaning |
# |---|---|
# | $\lVert W\rVert$ | $\lVert W\rVert_{p,p} = (\sum_{jl} \lvert W_{jl}\rvert^p)^{1/p}$; $\frac1p + \frac1q = 1$ |
# | $W_{mm}$ | the solution of the $\ell_p$ token SVM, that is, the matrix of smallest norm $\lVert W\rVert$ under which the logit of each selected token exceeds every other logit of its sample by at least one |
# | $D$ | the Bregman divergence of $\psi$ from $W_{mm}/\lVert W_{mm}\rVert$ to $W/\lVert W\rVert$ |
# | cone of width $\mu$ | all $W$ with $D \le \mu$; $\mu_0$ is the width for which the proofs work |
#
# There are three kinds of claims:
#
# | kind of claim | what it says |
# |---|---|
# | *statement* | the paper's statement with the paper's constants |
# | *form* | the paper's statement with a constant or a formula of ours, because our copy of the text lacks that of the paper. The docstrings of `papers.c` derive our constants and formulas. If we chose a constant after we knew the first measured value, the claim is only a regression test, and its source says so |
# | *finding* | a result of our own, which is sharper than the paper's |
#
# **Hypotheses.**
#
# | lemmas | they require |
# |---|---|
# | 12-15 | nothing about the data: 12 holds for all matrices, 13 holds for any two matrices of norm one, and 14 and 15 hold for $x \ge y \ge 0$ |
# | 16, 18 | nothing about $W$ |
# | 17, 23, 26 | nothing, because they are identities; the tests of this repository check them |
# | 4, 22 | nothing about the step size $\eta$, as their proofs show |
# | 24, 25 | a sufficiently small step size $\eta$ |
# | 19-21, 27-30 | locally optimal tokens, and a $W$ in a thin cone around $W_{mm}$. All of them except 19 require that $W$ is large, and 27-30 also require a sufficiently small step size |
# | 1-3, 5-11 | these lemmas are in the main part of the paper, which our copy lacks |
#
# The selected tokens are *[locally optimal](words.md)* if each of them has a higher score $y_iu^\top x_{i,t}$ than the tokens of its sample whose constraints in the SVM are tight (margin exactly 1). We test the lemmas on selections that training finds, and we check that these selections are locally optimal.

# %% tags=["parameters"]
# Set-up, no need to read.
scale = "demo"
seeds = 8
n, T, d = 6, 8, 10
find_steps = 4000
rate_exponents = [1.5, 1.75, 2, 2.5, 3]
rate_steps = 40000
rate_step = 0.03
exponents = [1.3, 1.75, 2, 3]
steps = 4000
draws = 300
path_seeds = 3

# %% tags=["set-up"]
# Set-up, no need to read.
from dataclasses import fields

import numpy as np

from companion import ledger, plots, record, statements
from lib import attention, dynamics, mirror
from lib.attention import tokens
from papers.c import ledger_rows, lemmas
from papers.c.statements import STATEMENTS

run = record.start("39_mirror_ledger", "C", globals())
own = {field.name: globals()[field.name] for field in fields(ledger_rows.Sizes)}
sizes = ledger_rows.Sizes(**{k: tuple(v) if isinstance(v, list) else v for k, v in own.items()})

# %% [markdown]
# ## One claim, computed step by step
#
# To check Lemma 4 we need data, a [selection](words.md) of one token per sample, and a training run that starts from $W_{mm}$. In each step we divide the growth of $\|W\|^{p-1}$ by $\eta\|\nabla L\|_{q,q}$. We keep the largest of these quotients, which the lemma says is at most 1. The following cells do all of this for one data set.

# %%
statements.quoted("C", STATEMENTS, "Lemma 4")

# %%
data = tokens.unit_tokens(range(seeds), n, T, d)
of = lemmas.found_selections(data, range(seeds), 2, find_steps)
one = of.tokens.run(0)
W_mm = of.solution.W[0]
print("locally optimal selections:", len(of.direction), "of", seeds)


def descent(W):
    return -attention.gradients(one, W[None], one.u, "logistic")[1][0]


# %%
def image(W, p):
    return np.abs(W) ** (p - 1) * np.sign(W)


def power_sum(W, p):
    return (np.abs(W) ** p).sum()


def largest_share(p=2, W=W_mm, off=0.0, eta=1.0, iterations=300):
    q, shares = p / (p - 1), []
    for _ in range(iterations):
        g = descent(W)
        later = image(image(W, p) + (1 + off) * eta * g, q)  # the inverse map is that of q
        growth = power_sum(later, p) ** (1 / q) - power_sum(W, p) ** (1 / q)  # of ||W||^(p-1)
        shares.append(growth / (eta * power_sum(g, q) ** (1 / q)))
        W = later
    return max(shares)


# %%
rule, every = dynamics.MirrorDescent(2, 1.0, normalised=False), np.arange(301)
history = dynamics.train(one, rule, 300, every, W_mm[None], loss="logistic")
claim = lemmas.lemma4(lemmas.Steps(one, history, rule))
np.testing.assert_allclose(largest_share(), claim.measured, rtol=1e-6)
print(f"{claim.statement}: {claim.measured:.4f}, required: {claim.bound}")

# %% [markdown]
# The claim holds. Would it detect an error in the lemma? To find out, we make an altered copy (a negative control), in which the steps of the run are 5 % longer than the lemma assumes. The claim must fail for this copy.

# %%
for off in (0.0, 0.05):
    share = largest_share(off=off)
    print(f"step off by {off:.0%}: share {share:.4f}, the claim {'holds' if share <= 1 else 'fails'}")

# %% [markdown]
# ## All claims
#
# We generate the data as the authors' code does, but with our own seeds. The table has one line per statement of the paper. Open a line to see the claims about that statement. Lines with a failing claim are already open. The column "setting" says where the runs start.

# %%
collected = [row for section in ledger_rows.SECTIONS.values() for row in section(sizes)]
rows = ledger.with_power(ledger.in_order(collected, STATEMENTS), "mirror_ledger")
table = ledger.LedgerTable(rows, STATEMENTS)
table

# %% tags=["nbval-check-output"]
print(table.summary())

# %% [markdown]
# In the figure below, each box stands for one statement. An orange box would mark a statement with a failing claim, and an empty box marks a statement that we do not check.

# %%
about = ledger.caption("C", table)
figure = plots.caption(ledger.draw(table, STATEMENTS), about)
figure

# %% [markdown]
# ## What our runs cannot decide
#
# No claim tests the theorem on the rate in $k$, the number of steps. With plain gradient steps, $\|W\|$ grows only like $\log k$, so neither $D$ nor its bound changes much in any run that we can afford.

# %%
statements.quoted("C", STATEMENTS, "Theorem, rate")

# %%
for p in (1.75, 2, 3):
    over, size, D = ledger_rows.rate_in_k(sizes, p)
    print(f"p = {p:g}: worst of the runs at k = {rate_steps:,}: ||W|| = {size:.1f} ||W_mm||, D = {D:.3f};\n ",
          f"D over its bound is {over:.2f} of its largest since k = {rate_steps // 10:,}")  # fmt: skip

# %% [markdown]
# For each exponent, the last number is near one: from $k=4{,}000$ to $k=40{,}000$, the quotient of $D$ and its bound hardly falls below its largest value. This result neither supports nor contradicts the theorem.
#
# ## What we saw
#
# **Answer.** For 20 of the 40 statements, yes: there are claims about them that could fail, and every claim holds. For each of the other statements, the table says why no claim tests it. We also tested each claim on [altered copies](words.md), in which we changed one thing on purpose. Each claim detects a small change, which is listed in the column *detects*.
#
# [Notebook 31](31_rates_and_basins.ipynb) shows figures for the two lemmas about rates and cones.
#
# <details><summary>Lemma 27: its radius and what it detects</summary>
#
# Lemma 27 holds for every $\pi$ in $(0, 1)$ and for all matrices in the cone whose norm is at least a radius $R_\pi$. Before any run we fixed $\pi = 0.001$, which is one tenth of the smallest change in an altered copy. We then computed $R_\pi$ from the data. For this we followed the proof of Lemma 21 with constants of our own, because our copy of the paper lacks the formula for $R_\pi$ (`papers.c.lemmas.lemma21_radius`).
#
# In all runs but one, $R_\pi$ is between $9{,}000$ and $17{,}000\,\lVert W_{mm}\rVert$. In the remaining run, with $p = 3$, it is $145{,}000\,\lVert W_{mm}\rVert$.
# In some altered copies the target $W_{mm}$ of the lemma is replaced by a rotated matrix. For $p \le 2$ the claim detects a target that is rotated by 1 %, because a run that starts near this target moves away from it, towards larger margins, while it is still inside the cone. For $p = 3$ the claim detects a wrong step size but no rotated target, because our $\mu_0$ is then so small that the margins inside the cone hardly differ.
#
# </details>
#
# ## Change this
#
# Predict first, then run. The cell checks the claim about Lemma 4 again, with another start.
#
# 1. Take a random start instead of $W_{mm}$. *Hint:* the lemma is nearly an equality only if the mirror image of $W$ points along the
#    negative gradient. *Predict:* does the claim still detect steps that are 5 % too long?

# %%
W_0 = mirror.gaussian_start(data, range(seeds))[0]
for off in (0.0, 0.05):
    print(f"random start, step off by {off:.0%}: share {largest_share(W=W_0, off=off):.4f}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# No. With a random start, the largest quotient stays below one half, both with the correct steps and with steps that are 5 % too long.
#
# </details>
#
# **To prove.** Prove Lemma 4. (You may use that the mirror map raises the norm to the power $p-1$: $\lVert\nabla\psi(W)\rVert_q=\lVert W\rVert_p^{p-1}$.)
#
# <details><summary>Solution</summary>
#
# The mirror image of the next iterate is the mirror image of $W$ minus $\eta\nabla L$. So by the triangle inequality, the $\ell_q$ norm of the mirror image grows by at most $\eta\lVert\nabla L\rVert_q$ per step. This norm equals $\lVert W\rVert_p^{p-1}$. The argument holds for steps of any length.
#
# </details>

# %% tags=["set-up"]
# Set-up, no need to read.
source = [{"name": "unit_tokens", "source": "synthetic", "revision": f"seeds 0-{seeds - 1}", "rows": n}]
# On the edge of a cone, and where a divergence ends near zero, rounding grows: these values may differ by this much.
loose = dict.fromkeys(("lemma20", "lemma21"), 1e-3) | dict.fromkeys(("lemma28", "lemma29"), 0.05)
numbers = ledger.totals(table, loose | {"convergence": 1e-6, "path": 1e-6})
told = ledger.statements(STATEMENTS)
slug = "mirror_ledger"
run.save(
    figure, slug, "every lemma", about, claims=table, numbers=numbers, data=source, statements=told
)
