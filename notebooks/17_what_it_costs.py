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
# # A thousand sentences: what a step and a solution cost
#
# *Side road of page [11](11_long_horizon.ipynb) · 15 minutes · [words](words.md).* By the end, you will be able to say, before you run, how long your own data will take.
#
# This page adds a study of our own to **Figure 2** of **paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738).
#
# **Question.** A *pair* consists of the *opt token* of a sample (the token with the highest score) and another token of the same sample. The paper's problems have a few hundred pairs, whereas a thousand sentences of twenty tokens have nineteen thousand pairs. Are the exact training steps of [page 11](11_long_horizon.ipynb) still fast enough for so many pairs? And is our solver of the *token SVM* fast enough? (The token SVM is the problem of finding the max-margin matrix $W_{mm}$.)
#
# | symbol | meaning |
# |---|---|
# | $n$, $T$, $d$ | number of sentences, tokens per sentence, dimension of a token |
# | $n(T-1)$ | number of pairs; each pair is a constraint of the SVM |
# | $g$ | margins of the pairs: by how much the logit of the opt token exceeds that of the other token |
# | $c$ | how strongly the loss pulls on the margin of each pair, scaled so that the largest pull is one |

# %% tags=["parameters"]
# Set-up, no need to read.
scale = "demo"
seeds = 1
n, T, d = 1000, 20, 64
words = 2000
steps = 2000
ngd_step = 1.0
sizes = [10, 30, 100, 300, 1000]
largest_gram = 6000
timed_pairs = 300_000

# %% tags=["set-up"]
# Set-up, no need to read.
import time

import numpy as np

import lib
from companion import claims, record
from lib.dynamics import reduced
from lib.seeds import stream
from papers.a import figures

run = record.start("17_what_it_costs", "A", globals())

# %% [markdown]
# ## The data
#
# We generate sentences in the form in which they enter the first layer of an encoder: each token is a vector for the word plus a vector for its position. The $k$-th most frequent word has a probability proportional to $1/k$, as in real texts. The query of a sentence is the mean of its tokens, and the head $u$ points in a random direction. You can replace these sentences by your own arrays: tokens `X (n, T, d)`, labels `y`, queries `z (n, d)` and a head `u (d,)`.


# %%
def sentences(n):
    draw = stream(0, "data")
    vectors = draw.standard_normal((words, d)) / np.sqrt(d)
    u = draw.standard_normal(d)
    often = 1 / np.arange(1, words + 1)
    drawn = draw.choice(words, (n, T), p=often / often.sum())
    angle = np.arange(T)[:, None] / 100 ** (np.arange(d // 2) / (d // 2))
    place = np.concatenate([np.sin(angle), np.cos(angle)], 1) / np.sqrt(d / 2)
    X = vectors[drawn] + place / 3  # (n, T, d)
    z = X.mean(1)
    y = draw.choice([-1, 1], n)
    return lib.token_set(X, y, z / np.linalg.norm(z, axis=1, keepdims=True), u)


data = sentences(n)
pairs = n * (T - 1)
print(
    f"{n:,} sentences, {pairs:,} pairs; the Gram matrix would take {8 * pairs**2 / 1e9:.1f} GB"
)

# %% [markdown]
# ## The largest margin
#
# What is the matrix of smallest norm under which the logit of every opt token exceeds the logits of the other tokens of its sentence by at least 1? The solver returns this matrix together with a certificate. The norm of the matrix exceeds the smallest possible norm by at most the relative amount `gap`, and no constraint is violated by more than `violation`.

# %%
began = time.perf_counter()
target = lib.token_svm(data)
print(f"{target.solver[0]}: {time.perf_counter() - began:.1f} s, ||W_mm|| = {target.norm[0]:.3f}, "
      f"gap {target.gap[0]:.0e}, violation {target.violation[0]:.0e}")  # fmt: skip

# %% [markdown]
# ## Exact steps
#
# Now we train the layer. In the end, does the layer *select* the opt token of every sentence, that is, give it the largest softmax weight in this sentence?

# %%
began = time.perf_counter()
history = lib.train(data, lib.NGD(ngd_step), steps)
took = time.perf_counter() - began
best = int((history.selected(data) == data.opt).sum())
print(
    f"{steps:,} steps in {took:.1f} s; {best:,} of {n:,} sentences select their opt token"
)

# %% [markdown]
# The layer selects the opt token in only some of the sentences. Although the matrix $W_{mm}$ exists, training moves in another direction, because these data do not satisfy the assumptions of the paper's Theorem 1. [Page 13](13_assumptions_broken.ipynb) shows what happens in such cases.
#
# ## Two ways to take a step
#
# In this section, an index $m$ stands for a pair $(i, t)$ of a sample $i$ and a token $t$. A training step changes the margins $g$ of all pairs by a multiple of $K c$, where
#
# $$K_{mm'} = (\delta_m^\top \delta_{m'})(z_i^\top z_{i'}), \qquad \delta_m = x_{i,opt} - x_{i,t}.$$
#
# * In the *Gram form* we compute the matrix $K$ once and read it from memory at every step. The number of entries of $K$ is the square of the number of pairs.
# * In the *factored form* we never compute $K$. First we add up the pulls for each sample, $b_i = \sum_t c_{i,t}\,\delta_{i,t}$. Then $H = \sum_i b_i z_i^\top$ has the shape of $W$, and $(Kc)_m = \delta_m^\top H z_i$. In each step, we read all $\delta_m$ twice. If $r$ is the dimension of the span of the tokens, these are $2r$ numbers per pair.
#
# Both forms are exact in the sense of page 11: if a number would underflow, the library stores its logarithm instead. Do the two forms take the same steps? We compare them on one fifth of the sentences, for which computing $K$ takes only a moment.

# %%
few = sentences(n // 5)
one = {"steps": 50, "start": None, "record": [50]}
by_form = {
    form: lib.train(few, lib.NGD(ngd_step), product=form, **one)
    for form in ("gram", "factored")
}
gram, factored = (by_form[form].margins[0, -1] for form in ("gram", "factored"))
apart = np.abs(gram - factored).max() / np.abs(gram).max()
print(
    f"margins after 50 steps, by both forms: {apart:.0e} apart, relative to the largest"
)

# %% [markdown]
# ## How the cost grows
#
# For growing $n$ we measure how long a step takes in each form, and how long the solver takes for the SVM. If the arrays are too large for the processor's caches, a step takes at least as long as it takes to read the arrays from memory. To measure how fast this machine reads memory, we time the product of a large matrix and a vector.

# %%
matrix, vector = np.ones((4000, 8000)), np.ones(8000)
matrix @ vector
began = time.perf_counter()
for _ in range(5):
    matrix @ vector
bytes_a_second = 5 * matrix.nbytes / (time.perf_counter() - began)
del matrix


def step_seconds(problem, form):
    start = lib.zero_start(problem).inside
    small = reduced.reduce(problem.tokens, start, "fixed", "exponential", form)
    rule, count = (
        [lib.NGD(ngd_step)],
        max(20, timed_pairs // small.delta[0, ..., 0].size),
    )
    reduced.run_compiled(small, rule, np.array([2]))
    began = time.perf_counter()
    reduced.run_compiled(small, rule, np.array([count]))
    return (time.perf_counter() - began) / count


rows = []
for size in sizes:
    part = sentences(size)
    problem = lib.minimal(part)
    m, r = size * (T - 1), problem.token_basis.shape[-1]
    gram = step_seconds(problem, "gram") if m <= largest_gram else np.nan
    factored = step_seconds(problem, "factored")
    if size == sizes[0]:
        lib.token_svm(part)  # compiles
    began = time.perf_counter()
    lib.token_svm(part)
    solved = time.perf_counter() - began
    limits = (8 * m**2 / bytes_a_second, 16 * m * r / bytes_a_second)
    rows.append((size, gram, factored))
    print(
        f"{m:>6,} pairs: a step {1e3 * gram:8.3f} ms in the Gram form (to read K: {1e3 * limits[0]:.3f}), {1e3 * factored:7.3f} ms factored (to read the tokens: {1e3 * limits[1]:.3f}); SVM {solved:6.2f} s"
    )
costs = np.array(rows).T

# %% [markdown]
# If we double the number of sentences, a step should take four times as long in the Gram form, and twice as long in the factored form. The numbers in brackets are lower bounds on the time per step: the time to read $K$ once from memory, or all $\delta_m$ twice. Because small problems fit into the caches, their steps can be faster than these limits. The solver takes a few seconds at most. Its time does not grow smoothly with the number of sentences, because the library uses two methods: a pivoting method if there are few constraints, and descent in the dual variables if there are many.
#
# The next figure shows how long a step takes in the two forms. The Gram form is labelled "one matrix of all pairs".

# %%
about = f"Paper A's problem on sentences; our setting: T={T}, d={d}, synthetic words, 1 seed, float64; times of one machine, other work beside it"
figure = figures.cost(*costs, about)
figure

# %% [markdown]
# ## Claims
#
# A *claim* pairs a measured number with the bound that it must meet. Running times depend on the machine and its load, so we print and draw the times but make no claims about them. The command `make bench` checks running times against upper bounds.

# %% tags=["nbval-check-output"]
table = claims.Table([
    claims.at_most("cost.gap", "the SVM: relative gap of norm and dual bound", "ours", target.gap[0], 1e-9),
    claims.at_most("cost.violation", "the SVM: largest violation of a constraint", "ours", target.violation[0], 1e-9),
    claims.at_most("cost.forms", "both forms: relative distance of the margins after 50 steps", "ours", apart, 1e-10),
])  # fmt: skip
table

# %% [markdown]
# ## What we saw
#
# **Answer.** Yes, both the solver and the steps are fast enough: solving the SVM takes seconds, and a step takes milliseconds. In the factored form, a step takes about as long as reading the tokens twice from memory, and up to a few times as long for the largest number of sentences. For the smallest number of sentences, a step takes about equally long in the two forms. Beyond a few hundred pairs, a step is faster in the factored form than in the Gram form. `lib.train` estimates the cost of a step in both forms and chooses the cheaper one. You can choose the form yourself with `product="gram"` or `product="factored"`. The section [How fast, against what](../REPRODUCING.md#how-fast-against-what) compares our times with those of JAX, numpy and other solvers.
#
# ## Change this
#
# Make a prediction, then run the cell.
#
# 1. Cut the sentences to half their length. *Hint:* this leaves about half as many pairs, so a step takes about half as long. *Predict:* does the norm of $W_{mm}$ rise or fall?

# %%
shorter = lib.token_set(data.X[0][:, : T // 2], data.y[0], data.z[0], data.u[0])
print(
    f"||W_mm|| = {lib.token_svm(shorter).norm[0]:.1f}, with all tokens {target.norm[0]:.1f}"
)

# %% [markdown]
# <details><summary>Answer</summary>
#
# The norm falls, because a sentence now has fewer tokens, so the logit of its opt token must exceed fewer other logits. In some sentences, however, the old opt token has been cut off, so that another token is now the opt token. The new constraints are therefore not a subset of the old ones, and the norm could also have risen.
#
# </details>

# %% tags=["set-up"]
# Set-up, no need to read.
numbers = dict(pairs=pairs, norm=target.norm[0], support=int(target.support.sum()))
numbers |= dict(steps=steps, sentences=n, select_opt=best)
run.keep(figure, "fastrates_cost", about, table, numbers)
