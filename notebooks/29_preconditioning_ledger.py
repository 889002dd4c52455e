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
# # Preconditioned self-attention: every statement, and what the preconditioner is for
#
# *Appendix of page [30](30_mirror_descent.ipynb) · 15 minutes · [words](words.md).* After this page you can say what the preconditioner is for, and look up any statement of paper B.
#
# **Paper B** (*Training Dynamics of Softmax Self-Attention: Fast Global Convergence via Preconditioning*, arXiv
# 2603.01514): **Assumptions 1-3, Theorems 1-5, Lemmas 1-23, Eqs. 3-6 and the remark after Theorem 2**.
#
# **Question.** [Notebook 20](20_preconditioned_regression.ipynb) trains the layer on well-conditioned data, on which the
# preconditioner gains nothing that we can measure. What is the preconditioner for? And which of the paper's statements can we check with numbers?
#
# ## The statement
#
# The layer has a value matrix $A$ and a key-query matrix $B$. Its population loss (the limit of infinitely many samples) is $L$, and its regulariser is $R$.
# Theorem 1, quoted below, defines both.
#
# | symbol | meaning | shape |
# |---|---|---|
# | $\Sigma$, $M$ | covariance of the inputs, linear map to be learned | $d \times d$, $k \times d$ |
# | $A$, $B$ | value matrix, key-query matrix | $k \times d$, $d \times d$ |
# | $P$ | preconditioner: $\mathrm{diag}(I, \hat\Sigma^{-1})$ in Algorithm 1 | acts on the gradient of $(A; B)$ |
#
# The hypotheses are called A1 to A3. The claims about these hypotheses are among the first in the table of statements below.

# %% tags=["parameters"]
# Set-up, no need to read.
scale = "demo"
seeds = 4
d, k = 3, 5
signal, noise, floor = 0.2, 0.1, 0.35
monte_carlo = 500_000
draws = 200
oracle_steps = 40
oracle_draws = 32
softmax_draws = 20_000
searches = 1
conditions = [10, 30, 100, 300, 1000, 3000, 10_000]

# %% tags=["set-up"]
# Set-up, no need to read.
from dataclasses import fields

import numpy as np

from companion import claims, ledger, plots, record, statements
from lib import regression
from lib.regression import manifold
from papers import pieces
from papers.b import experiments, ledger_rows
from papers.b.statements import PLAIN, STATEMENTS

run = record.start("29_preconditioning_ledger", "B", globals())
sizes = ledger_rows.Sizes(**{f.name: globals()[f.name] for f in fields(ledger_rows.Sizes)})
statements.quoted("B", STATEMENTS, "Theorem 1", "Algorithm 1")

# %% [markdown]
# ## The rule, written out
#
# The rule is gradient descent on $L + R$, except that $P$ multiplies the gradient of $B$ by $\Sigma^{-1}$. With $E = A\Sigma B^\top - M$ and
# $G = A^\top A - B^\top\Sigma B$, the gradients are
#
# $$\nabla_A = E\Sigma B\Sigma + \tfrac12 A\Sigma G\Sigma, \qquad
# \nabla_B = \Sigma E^\top A\Sigma - \tfrac12\Sigma B\Sigma G\Sigma .$$

# %%
def gradient(problem, A, B):
    S = problem.Sigma
    E, G = A @ S @ B.T - problem.M, A.T @ A - B.T @ S @ B
    return E @ S @ B @ S + A @ S @ G @ S / 2, S @ E.T @ A @ S - S @ B @ S @ G @ S / 2


mild = experiments.ill_conditioned(conditions[0], 0)
A, B = regression.gaussian_start(0, mild.d, mild.k)
loss = regression.population_gradients(mild, A, B)
balance = regression.regulariser_gradients(mild.Sigma, A, B)
np.testing.assert_allclose(gradient(mild, A, B)[1], loss[1] + balance[1], rtol=1e-9, atol=1e-12)

# %% [markdown]
# How many iterations does the rule need? The minima differ by a rotation $R$. Let $\lambda$ denote the decay rates of the descent, linearised at the minimum with $R=I$, near which the spectral start lies. At other minima the decay rates are different, except those of the two-sided rule. If the step is
# $1/\lambda_{max}$, the error along the slowest mode shrinks by a factor of $1 - \lambda_{min}/\lambda_{max}$ per iteration. We test this prediction: we start just off the minimum, and count the iterations until the error is one hundredth of its initial value.

# %%
def count(problem, name, step=1.0, limit=20_000):
    rates, modes = regression.modes(problem, name)
    minimum, inverse = manifold.of(problem).point(), np.linalg.inv(problem.Sigma)
    Z, k = minimum + 1e-5 * modes[0], problem.k
    for t in range(1, limit):
        g_A, g_B = gradient(problem, Z[:k], Z[k:])
        g_B = g_B if name == "none" else inverse @ g_B
        g = np.vstack([g_A, g_B]) @ (inverse if name == "left_right" else np.eye(problem.d))
        Z = Z - step / rates[-1] * g
        error = np.linalg.norm(Z - minimum) / np.linalg.norm(modes[0])
        if not 1e-7 < error < 1e-2:
            return t if error <= 1e-7 else np.inf  # inf: it has left for good
    raise RuntimeError(f"not there after {limit} iterations")


for name in ("none", "left", "left_right"):
    rates = regression.modes(mild, name)[0]
    predicted = np.log(100) / -np.log1p(-rates[0] / rates[-1])
    print(f"{name:10} counted {count(mild, name):5d}, predicted {predicted:7.1f}")

# %% [markdown]
# ## Ill-conditioned covariances
#
# Now $\Sigma$ has eigenvalues from 1 down to 1/condition, while the signal $M\Sigma^{1/2}$ stays the same. From here on we no longer count iterations. Instead we compute from the decay rates how many iterations it takes to reduce the error by a factor of $10^6$.

# %%
iterations = experiments.condition_numbers(conditions, range(seeds))
growth = {name: experiments.growth(conditions, values) for name, values in iterations.items()}
ill = claims.Table(experiments.gains(conditions, iterations))
ill

# %%
figure_ill, (axis,) = plots.panels(1, 1, height=2.6)
names = {"none": "no preconditioner", "left": "Algorithm 1", "left_right": "two-sided"}
ends = []
for name, like in names.items():
    plots.band(axis, np.array(conditions), iterations[name].T, like)
    words = f"{like}{' (ours)' * (name == 'left_right')}:\npower {abs(growth[name].mean()):.2f}"
    ends.append((np.median(iterations[name][-1]), words, plots.look(like).colour))
axis.set(xscale="log", yscale="log", xlabel=r"condition number of $\Sigma$")
axis.set(title="Iterations until the error is a millionth of its start")
axis.set_xlim(conditions[0], conditions[-1])
pieces.end_labels(axis, ends, 7.5)
about_ill = f"Near the minima, steps of $1/\\lambda_{{\\max}}$, by the rates; our setting, d={mild.d}, k={mild.k}; synthetic, float64, {seeds} seeds"
plots.caption(figure_ill, about_ill)

# %% [markdown]
# In this figure the number at the end of each line is the slope of the line, that is, the exponent of the condition number. Without a preconditioner the number of iterations grows fastest. With the
# paper's preconditioner it grows like the condition number itself. With a preconditioner on both sides it does not grow.
#
# ## Every statement
#
# The table lists every statement of the paper with our claims about it. A *claim* pairs a measured number with the bound that it must meet. There are three kinds of claims:
#
# * A *statement* is the paper's own sentence, with the paper's constants.
# * A *form* is the paper's sentence with a constant of ours, or with our reading of a formula that is missing from our copy of the paper.
# * A *finding* is our own result.
#
# To see whether a claim could fail, `make falsify` repeats its measurement on [altered copies](words.md) of the problem. The column *detects* gives the smallest change that makes the claim fail.
#
# Lemmas 9 to 23 are about the softmax weights $s_i$ of a query's keys. These weights define the mean $c = \sum s_i x_i$ of the keys and their covariance
# $C = \sum s_i x_i (x_i - c)^\top$, which is part of the gradient of $B$. By Monte Carlo we measure with which power of $n$ the moments and errors in these lemmas fall, and with which power of $n$ the bias of the gradients falls. Each fit includes a correction of relative order $1/n$, which we subtract. For the
# bias at signal 0.2 this correction is infinite, and the claim fails.
#
# For Theorem 2 we run Algorithm 1 as written, with the sample covariance, the spectral start, and steps that use the oracle gradient (the mean over many fresh batches). We take 200 data sets of
# each size, and measure the 90 % quantile of their excess losses. The measured exponent lies well below the
# bound $-1$, so this claim would not detect a small error in the theorem. The claims about the floor and the rate are stricter tests.
#
# We read the remark after Theorem 2 as a remark about the regularised loss $L + R$.
#
# The summary below the table counts claims and distinct measurements. If several claims give the same number, or follow by algebra from the same formula of ours, we count them as one measurement.

# %%
collected = [row for section in ledger_rows.SECTIONS.values() for row in section(sizes)]
rows = ledger.with_power(ledger.in_order(collected, STATEMENTS), "precond_ledger")
table = ledger.LedgerTable(rows, STATEMENTS)
table

# %% tags=["nbval-check-output"]
print(table.summary())

# %%
about = ledger.caption("B", table)
figure = plots.caption(ledger.draw(table, STATEMENTS, PLAIN), about)
figure

# %% [markdown]
# In this figure, orange squares mark statements with a failing claim, and empty squares mark statements that we do not check.
#
# ## What we saw
#
# **Answer.** The preconditioner is for data with an ill-conditioned covariance. In the gradient of $B$, $\Sigma$ appears on both sides of $E^\top A$; in the gradient of $A$ it appears only on the right of $E$. The preconditioner of Algorithm 1 cancels
# the left $\Sigma$. With this preconditioner the number of iterations grows like the condition number, and without it the number grows faster. With our own variant, a preconditioner on both sides, the number does not grow.
#
# How much the preconditioner gains depends on the data set. Our claim requires a tenfold gain on each of four data sets. On one of them, descent without the preconditioner is less slow than on the other three. There
# the gain is smaller than tenfold, so the claim fails.
#
# Of the 38 statements, 31 have claims. For each of the others, the table says why it has none. The displayed formulas are blank in our copy of the paper, so most claims test a formula that we restored.
#
# ## Change this
#
# Predict first, then run. The cells count iterations as above.
#
# 1. Take ten times the condition number. *Hint:* under Algorithm 1 the number of iterations grows like the condition number. *Predict:* by what factor does this number grow, and by what factor does it grow without the preconditioner?

# %%
worse = experiments.ill_conditioned(10 * conditions[0], 0)
for name in ("none", "left", "left_right"):
    print(f"{name:10} {count(worse, name) / count(mild, name):.1f} times the iterations")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Algorithm 1 takes about ten times as many iterations. Without the preconditioner the factor is several times larger, because the number of iterations then grows like a power of the condition number with an exponent above one. With a preconditioner on both sides nothing changes.
#
# </details>
#
# 2. Make the step two and a half times as long. *Hint:* with a step longer than $2/\lambda_{max}$ the fastest mode grows. *Predict:* does this matter if we start
#    along the slowest mode? (The output "inf" means that the run diverges.)

# %%
print("iterations", {step: count(mild, "left", step) for step in (1.0, 2.5)})

# %% [markdown]
# <details><summary>Answer</summary>
#
# It does matter. The start lies along the slowest mode only to first order, and a small part of it lies along the fastest mode. This part grows by
# half in each iteration, so the run diverges.
#
# </details>
#
# **To prove.** Show that gradient descent on $\frac12z^\top Hz$ with the step $1/\lambda_{max}$ shrinks the slowest mode by a factor of $1-\lambda_{min}/\lambda_{max}$ per step.
#
# <details><summary>Solution</summary>
#
# Each step is $z\leftarrow(I-H/\lambda_{max})z$. It multiplies an eigenvector with the eigenvalue $\lambda$ by $1-\lambda/\lambda_{max}$. This factor is largest for
# $\lambda_{min}$.
#
# </details>

# %% tags=["set-up"]
# Set-up, no need to read.
source = [{"name": "random_regression", "source": "synthetic", "revision": f"seeds 0-{seeds - 1}"}]
# The errors of Lemma 8 are rounding errors of central differences.
numbers = ledger.totals(table, {"lemma8": 1e-8})
said = ledger.statements(STATEMENTS)
slug = "precond_ledger"
run.save(
    figure, slug, "every statement", about, claims=table, numbers=numbers, data=source, statements=said
)
exponents = {f"exponent_{name}": value.mean() for name, value in growth.items()}
of = {"d": mild.d, "k": mild.k}
run.keep(figure_ill, "precond_condition", about_ill, ill, exponents, setting=of)
