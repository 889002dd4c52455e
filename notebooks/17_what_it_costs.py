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
# *Side road of page [11](11_long_horizon.ipynb) · 15 minutes · [words](words.md).* After it you can say, before you run, how long your own data will take.
#
# **Paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738), **beside Figure 2**: ours, not the paper's.
#
# **Question.** The paper's problems have a few hundred *pairs* of an opt token (the one of highest score) and another token. A thousand sentences of twenty tokens have nineteen thousand pairs. Do the exact steps of page 11 still end while you wait? Does the *token SVM*, which computes the max-margin matrix $W_{mm}$?
#
# | symbol | meaning |
# |---|---|
# | $n$, $T$, $d$ | sentences, tokens per sentence, dimension |
# | $m = n(T-1)$ | pairs: the constraints of the SVM |
# | $g$, $c$ | margins of the pairs; their pulls, scaled so that the largest is one |

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
# We make sentences as an encoder's first layer has them: each token is the vector of its word plus a vector of its place. The $k$-th most frequent word is drawn with a chance proportional to $1/k$, as in real texts. The query of a sentence is the mean of its tokens, and the head $u$ points anywhere. You can put your own arrays in their place: tokens `X (n, T, d)`, labels `y`, queries `z (n, d)`, head `u (d,)`.


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
# What is the smallest matrix under which every opt token leads by a logit of at least 1? The solution comes with a certificate: its norm is at most a relative `gap` above the smallest possible one, and no constraint is violated by more than `violation`.

# %%
began = time.perf_counter()
target = lib.token_svm(data)
print(f"{target.solver[0]}: {time.perf_counter() - began:.1f} s, ||W_mm|| = {target.norm[0]:.3f}, "
      f"gap {target.gap[0]:.0e}, violation {target.violation[0]:.0e}")  # fmt: skip

# %% [markdown]
# ## Exact steps
#
# Now we train. Does every sentence select its opt token in the end?

# %%
began = time.perf_counter()
history = lib.train(data, lib.NGD(ngd_step), steps)
took = time.perf_counter() - began
best = int((history.selected(data) == data.opt).sum())
print(
    f"{steps:,} steps in {took:.1f} s; {best:,} of {n:,} sentences select their opt token"
)

# %% [markdown]
# Only some sentences do. $W_{mm}$ exists, yet training goes elsewhere, because these data do not satisfy the assumptions of the paper's Theorem 1. [Page 13](13_assumptions_broken.ipynb) shows what happens then.
#
# ## Two ways to take a step
#
# A step moves the margins $g_m$ of all pairs $m = (i, t)$ by $K c$, where $c$ holds the pull of each pair and
#
# $$K_{mm'} = (\delta_m^\top \delta_{m'})(z_i^\top z_{i'}), \qquad \delta_m = x_{i,opt} - x_{i,t}.$$
#
# * In the *Gram form*, $K$ is formed once, with $m^2$ numbers, and is read at every step.
# * In the *factored form*, $K$ is not formed. First we add up the pulls of each sample, $b_i = \sum_t c_{i,t}\,\delta_{i,t}$. Then $H = \sum_i b_i z_i^\top$ has the shape of $W$, and $(Kc)_m = \delta_m^\top H z_i$. A step reads the $\delta$ twice: $2\,m\,r$ numbers, with $r$ the dimension of the tokens' span.
#
# Both forms are exact in the same sense: what would underflow is kept as a logarithm. Do they take the same steps? We compare them on a fifth of the sentences, for which we can form $K$ in a moment.

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
# We measure the time of a step in both forms, and the time of the SVM, for growing $n$. Memory sets a limit: a step cannot be faster than reading its array once. For the reading speed, we time the product of a large matrix with a vector on this machine.

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
# Twice the sentences should take four times as long in the Gram form, and twice as long in the factored form. The limits are printed in brackets: the time to read $K$ once, and the $\delta$ twice, from memory. Small problems stay in the processor's caches and are faster than that. The SVM takes seconds at most. Its time does not grow evenly, because the library changes the method: it pivots for few constraints and descends in the duals for many.

# %%
about = f"Paper A's problem on sentences; our setting: T={T}, d={d}, synthetic words, 1 seed, float64; times of one machine, other work beside it"
figure = figures.cost(*costs, about)
figure

# %% [markdown]
# ## Claims
#
# A *claim* is a measured number beside its bound. Times depend on the machine and its load, so we only print and draw them. `make bench` compares them with bounds.

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
# **Answer.** Yes, both end while you wait: the SVM takes seconds, and a step takes milliseconds. A step costs about as much as reading the tokens from memory twice. The Gram form is faster at the paper's sizes, and the factored form from a few hundred pairs on. `lib.train` chooses by an estimate of both costs. You can overrule this choice by `product="gram"` or `product="factored"`. [How fast, against what](../REPRODUCING.md#how-fast-against-what) compares with JAX, numpy and other solvers.
#
# ## Change this
#
# Predict first, then run.
#
# 1. Take sentences of half the length. *Prediction:* there are half the pairs, so a step takes half the time. Does the norm of $W_{mm}$ rise or fall?

# %%
shorter = lib.token_set(data.X[0][:, : T // 2], data.y[0], data.z[0], data.u[0])
print(
    f"||W_mm|| = {lib.token_svm(shorter).norm[0]:.1f}, with all tokens {target.norm[0]:.1f}"
)

# %% [markdown]
# <details><summary>Answer</summary>
#
# It falls, because in most sentences the opt token has fewer others to win against. In some sentences the opt token is now another one. So the constraints are not a part of those before, and the norm could have risen.
#
# </details>

# %% tags=["set-up"]
# Set-up, no need to read.
numbers = dict(pairs=pairs, norm=target.norm[0], support=int(target.support.sum()))
numbers |= dict(steps=steps, sentences=n, select_opt=best)
run.keep(figure, "fastrates_cost", about, table, numbers)
