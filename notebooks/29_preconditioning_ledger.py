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
# *Appendix of page [30](30_mirror_descent.ipynb) · 15 minutes · [words](words.md).* By the end, you will be able to say what the preconditioner is for, and look up any statement of paper B.
#
# This page is about **paper B** (*Training Dynamics of Softmax Self-Attention: Fast Global Convergence via Preconditioning*, arXiv
# 2603.01514): **Assumptions 1-3, Theorems 1-5, Lemmas 1-23, Eqs. 3-6 and the remark after Theorem 2**.
#
# **Question.** [Notebook 20](20_preconditioned_regression.ipynb) trains the layer on data with a well-conditioned covariance, on which the preconditioner gains nothing that we can measure. What is the preconditioner for? And which of the paper's statements can we check numerically?
#
# ## The statement
#
# The layer has a value matrix $A$ and a key-query matrix $B$. We write $L$ for its population loss (the limit of infinitely many samples) and $R$ for the regulariser. Theorem 1, which we quote below, defines $L$ and $R$.
#
# | symbol | meaning | shape |
# |---|---|---|
# | $\Sigma$, $M$ | covariance of the inputs, linear map to be learned | $d \times d$, $k \times d$ |
# | $A$, $B$ | value matrix, key-query matrix | $k \times d$, $d \times d$ |
# | $P$ | preconditioner: $\mathrm{diag}(I, \hat\Sigma^{-1})$ in Algorithm 1 | acts on the gradient of $(A; B)$ |
#
# The paper calls its hypotheses A1 to A3. The claims about these hypotheses are among the first in the table of statements below.

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
# The update rule is gradient descent on $L + R$, except that the preconditioner $P$ multiplies the gradient with respect to $B$ by $\Sigma^{-1}$. With $E = A\Sigma B^\top - M$ and
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
# How many iterations does this rule need? There is a whole set of minima, which differ from one another by a rotation (also called $R$). We linearise the descent at the minimum with $R=I$, because the spectral start lies near this minimum, and we write $\lambda$ for the decay rates of the linearised descent. At other minima the decay rates are different, except those of the two-sided rule, which also multiplies the gradients by $\Sigma^{-1}$ from the right. If the step size is $1/\lambda_{max}$, the error along the slowest mode shrinks by a factor of $1 - \lambda_{min}/\lambda_{max}$ per iteration. To test this prediction, we start close to the minimum and count the iterations until the error is one hundredth of its initial value.

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
# Now we increase the condition number: $\Sigma$ has eigenvalues from 1 down to 1/condition, while the signal $M\Sigma^{1/2}$ stays the same. From here on we no longer count iterations. Instead we compute from the decay rates how many iterations it takes to reduce the error by a factor of $10^6$.

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
# In this figure, each line shows the number of iterations as a function of the condition number. The number at the end of a line is its slope, that is, the exponent with which the number of iterations grows. Without a preconditioner the number of iterations grows fastest. With the paper's preconditioner it grows like the condition number itself, and with a preconditioner on both sides it does not grow.
#
# ## Every statement
#
# The next table lists every statement of the paper together with our claims about this statement. A *claim* pairs a measured number with the bound that it must meet. There are three kinds of claims:
#
# * A claim of the kind *statement* tests exactly what the paper says, with the paper's constants.
# * A *form* is the paper's sentence with a constant of ours, or with our reading of a formula that is missing from our copy of the paper.
# * A *finding* is our own result.
#
# Could a claim fail at all? To find out, run `make falsify`, which repeats the measurement on [altered copies](words.md) of the problem, each with one change. The column *detects* gives the smallest change that makes the claim fail.
#
# Lemmas 9 to 23 are about the softmax weights $s_i$ that a query gives to its $n$ keys. These weights define the weighted mean $c = \sum s_i x_i$ of the keys and the weighted covariance $C = \sum s_i x_i (x_i - c)^\top$ of the keys, which is part of the gradient with respect to $B$. By Monte Carlo simulation we measure with which power of $n$ the moments and errors in these lemmas fall, and with which power of $n$ the bias of the gradients falls. Each fit includes a correction of relative order $1/n$, which we subtract. In Lemmas 9 and 10, $s_i$ is the weight that the query gives to itself. The claims that average over 200 queries, and all but one of those about the bias of the gradients, use data with a quarter of the signal. For the bias of the gradient at signal 0.2, however, this correction is infinite, and the claim fails.
#
# For Theorem 2 we run Algorithm 1 with the sample covariance, the spectral start, and steps that use the oracle gradient of $\hat L$ (the mean of the gradients on many fresh batches). The regulariser $\hat R$ keeps the covariance of the one data set in all steps. This is our setting: as we read the paper, it takes the mean over fresh batches for $\hat R$, too. We draw 200 data sets for each number of samples $n$, and measure the 90 % quantile of the excess losses. The exponent with which this quantile falls with $n$ lies well below the bound $-1$, so the claim would not detect a small error in the theorem. With samples, the excess loss stops falling at a value that depends on $n$, its *floor*. The claims about this floor, and about the rate at which the loss falls before, are stricter tests.
#
# We take the remark after Theorem 2 to be about the regularised loss $L + R$. In our setting, $L + R$ ends at the value of $R$ at the minima for the sample covariance, which is of order exactly $1/n$. So for large $n$ the exponent tends to the bound $-1$, and a measured exponent may lie on either side of this bound. A claim of our own measures the order more precisely, with the exact gradient of $L$ and with $n$ up to 51,200.
#
# For Lemma 4 we need data with $k = d$. If $k > d$, the slowest direction lies in rows of $A$ that the preconditioner leaves alone, so that the sample covariance does not change the constant $\alpha'$ of the lemma.
#
# The summary below the table gives the number of claims and the number of distinct measurements. If several claims give the same number, or follow by algebra from the same formula of ours, we count them as one measurement.

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
# In this figure, each square stands for one statement of the paper. Orange squares mark statements with a failing claim, and empty squares mark statements that we do not check.
#
# ## What we saw
#
# **Answer.** The preconditioner is for data with an ill-conditioned covariance. In the gradient with respect to $B$, $\Sigma$ appears on both sides of $E^\top A$, whereas in the gradient with respect to $A$ it appears only on the right of $E$. The preconditioner of Algorithm 1 cancels the $\Sigma$ on the left. With this preconditioner the number of iterations grows like the condition number, whereas without a preconditioner it grows faster. With our own variant, which has a preconditioner on both sides, the number of iterations does not grow.
#
# How many iterations the preconditioner saves depends on the data set. Our claim requires that, at the largest condition number, Algorithm 1 needs at most one tenth of the iterations that descent without the preconditioner needs, on each of four data sets. On one of these data sets, descent without the preconditioner is less slow than on the other three. On this data set Algorithm 1 needs more than one tenth of the iterations, so the claim fails.
#
# Of the paper's 38 statements, 31 have claims. For each of the remaining statements, the table says why there is no claim. The displayed formulas are blank in our copy of the paper, so most claims test a formula that we reconstructed.
#
# ## Change this
#
# For each exercise, make a prediction before you run the cell. The cells count iterations as above.
#
# 1. Multiply the condition number by ten. *Hint:* under Algorithm 1 the number of iterations grows like the condition number. *Predict:* by what factor does the number of iterations grow under Algorithm 1, and by what factor does it grow without the preconditioner?

# %%
worse = experiments.ill_conditioned(10 * conditions[0], 0)
for name in ("none", "left", "left_right"):
    print(f"{name:10} {count(worse, name) / count(mild, name):.1f} times the iterations")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Algorithm 1 takes about ten times as many iterations as before. Without the preconditioner the factor is several times larger, because the number of iterations then grows like a power of the condition number with an exponent above one. With a preconditioner on both sides, the number of iterations does not change.
#
# </details>
#
# 2. Multiply the step size by two and a half. *Hint:* with a step size above $2/\lambda_{max}$, the error along the fastest mode grows. *Predict:* does this matter if the initial error lies along the slowest mode? (The output "inf" means that the run diverges.)

# %%
print("iterations", {step: count(mild, "left", step) for step in (1.0, 2.5)})

# %% [markdown]
# <details><summary>Answer</summary>
#
# Yes. The initial error lies along the slowest mode only to first order, and a small part of it lies along the fastest mode. This part grows by half in each iteration, so the run diverges.
#
# </details>
#
# **To prove.** Show that gradient descent on $\frac12z^\top Hz$ with the step size $1/\lambda_{max}$ shrinks the component along the slowest mode by a factor of $1-\lambda_{min}/\lambda_{max}$ per step.
#
# <details><summary>Solution</summary>
#
# Each step is $z\leftarrow(I-H/\lambda_{max})z$. It multiplies an eigenvector of $H$ with the eigenvalue $\lambda$ by $1-\lambda/\lambda_{max}$. This factor is largest for $\lambda=\lambda_{min}$, which belongs to the slowest mode.
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
