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
# # A million iterations, and a hundred thousand dimensions
#
# *Page 3 of 11 · before: [10](10_fixed_decoder.ipynb) · next: [40](40_law_of_margins.ipynb) · 20 minutes · [words](words.md).* By the end, you will be able to train without losing accuracy when softmax weights fall below the smallest float.
#
# This page goes beyond **Figure 2** of **paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738).
#
# **Question.** On page 10 the direction of $W_t$ approached the direction of $W_{mm}$ faster than Theorem 1 promises. The theorem bounds the *direction error*, the distance between $W_t/\|W_t\|$ and $W_{mm}/\|W_{mm}\|$, from above. How fast does this error really fall if we train for long enough?
#
# Long training is harder than it sounds. After a thousand iterations the softmax weights of the tokens that attention does not select are below $10^{-11}$, and after a million steps of NGD they are below $e^{-28000}$. But the smallest positive floating-point number is about $e^{-744}$, so we first need a way to train exactly.
#
# ## Notation
#
# The layer, its loss, the data and $W_{mm}$ are those of [page 10](10_fixed_decoder.ipynb).
#
# | symbol | meaning |
# |---|---|
# | $\delta_m = x_{i,opt} - x_{i,t}$, $m = (i, t)$ | the difference of a *pair* of tokens: the opt token (the one with the highest score) minus another token of the same sample |
# | $g_m = \delta_m^\top W z_i$ | the margin of the pair, which is a difference of logits; $W_t$ is $W$ after $t$ steps |
# | $\Delta_m = \gamma_{i,opt} - \gamma_{i,t}$ | the difference of the scores of the two tokens |
# | $p_m$ | the softmax weight of the other token of the pair |

# %% tags=["parameters"]
# Set-up, no need to read.
scale = "demo"
seeds = 2
n, T, d = 20, 10, 300
signal, noise = 3.0, 0.1
steps = 1_000_000
plain_steps = 3000
gd_step = 1.0
ngd_step = 0.025
momentum = 0.9
dimensions = [100, 1000, 10_000, 100_000]
timed_steps = 20_000
theorem1_seeds = 20
verified_d = 4000
verified_steps = 10_000
verified_step = 0.05

# %% tags=["set-up"]
# Set-up, no need to read.
import time

import numpy as np

from companion import claims, plots, record, statements
from lib import attention, dynamics, svm
from lib.attention import coordinates, tokens
from lib.dynamics import reduced, rules
from papers import fits
from papers.a import assumptions, figures, fixed_head
from papers.a.statements import STATEMENTS
from papers.law import margin_law, margin_law_figures, margin_law_steps

run = record.start("11_long_horizon", "A", globals())

# %% [markdown]
# ## The set-up in growing dimensions
#
# The cost of an iteration does not grow with $d$. Why not? The gradient is a sum of outer products of tokens and queries, so $W_t$ never leaves the span of these products. In an orthonormal basis of this span, $W_t$ has few entries. Here we set up the same problem in growing dimensions, while $n$, $T$ and the norm of the noise tokens stay fixed. For $d = 100{,}000$ the tokens take 160 MB of memory, and their basis takes nearly as much.


# %%
def in_few_coordinates(dimension):
    data = tokens.class_mean_tokens(0, n, T, dimension, signal, noise * (300 / dimension) ** 0.5)
    large = coordinates.minimal(data)
    return reduced.reduce(large.tokens, dynamics.zero_start(large).inside, "fixed", "exponential")


small = [in_few_coordinates(dimension) for dimension in dimensions]

# %% [markdown]
# ## Exact training
#
# We train on the problem of Figure 2 with gradient descent (GD), normalised gradient descent (NGD), NGD with momentum (NGD-mom) and Polyak's rule. Every run starts from $W_0 = 0$, and no rule has a cap (a cap is the largest factor by which a rule may multiply the gradient).

# %%
problem = coordinates.minimal(tokens.class_mean_tokens(range(seeds), n, T, d, signal, noise))
target = svm.token_svm(problem.tokens)
update_rules = {
    "GD": rules.GD(gd_step),
    "NGD": rules.NGD(ngd_step),
    "NGD-mom": rules.NGD(ngd_step, momentum=momentum),
    "Polyak, no cap": rules.Polyak(),
}
compared = min(plain_steps, steps)
recorded = np.union1d(dynamics.log_spaced(steps, 120), compared)
histories = dynamics.train(problem, update_rules, steps, recorded, targets={"W_mm": target.W})
for name, history in histories.items():
    error, weight = history.direction_error["W_mm"][:, -1].max(), history.log_miss[:, -1].max()
    print(f"{name:15} direction error {error:.2e}, largest log(1 - p_opt) {weight:.1f}")

# %% [markdown]
# ## The trick in code
#
# Two ideas keep training exact. First, we follow the margins instead of $W$. We write $-n\nabla L = \sum_m c_m\, \delta_m z_i^\top$, and denote by $K_{mm'} = (\delta_m^\top \delta_{m'})(z_i^\top z_{i'})$ the inner products of the matrices $\delta_m z_i^\top$. Then NGD updates the margins without using $W$:
#
# $$g \leftarrow g + \eta\, \frac{K c}{\sqrt{c^\top K c}}, \qquad
# c_m = e^{-f_i}\, p_m\, (\Delta_m - \textstyle\sum_{t} p_{i,t} \Delta_{i,t}).$$
#
# Second, the direction of the gradient does not change if we divide all $c_m$ by the same number. Here all other tokens of a sample have equal scores, so every $c_m$ is positive. So we store $\log c_m$ and subtract the largest of these logarithms from all of them. Then the largest $c_m$ becomes $e^0 = 1$, however small the softmax weights are.

# %%
data = problem.tokens.run(0)
others = coordinates.others(data.opt, T)
delta = coordinates.differences(data, data.opt)  # (1, n, T-1, r)
K = coordinates.gram(delta, data.z)[0]  # (m, m)
gamma = attention.scores(data, data.u)
own = np.take_along_axis(gamma, data.opt[..., None], -1)[0]  # (n, 1)
gaps = own - np.take_along_axis(gamma, others, -1)[0]  # (n, T-1)


def exact_step(g):
    log_p = -g - np.log1p(np.exp(-g).sum(1, keepdims=True))  # of the other tokens
    lag = (np.exp(log_p) * gaps).sum(1, keepdims=True)  # gamma_opt - f
    log_c = lag - own + log_p + np.log(gaps - lag)
    c = np.exp(log_c - log_c.max()).ravel()
    return g + (ngd_step * K @ c / np.sqrt(c @ K @ c)).reshape(g.shape)


# %% [markdown]
# The next cell implements NGD in the obvious way: it uses the softmax weights themselves, and computes $p_t(\gamma_t - f)$ by subtraction. Once $1 - p_{opt}$ falls below the rounding error of the number 1, the direction of the gradient that is computed in this way consists of rounding errors.

# %%
unit = target.W[0] / target.norm[0]


def plain_step(W):
    p = np.exp(np.einsum("ntd,nd->nt", data.X[0], data.z[0] @ W.T))
    p /= p.sum(-1, keepdims=True)
    f = (p * gamma[0]).sum(-1, keepdims=True)
    pulled = np.einsum("nt,ntd->nd", np.exp(-f) * p * (gamma[0] - f), data.X[0])
    descent = pulled.T @ data.z[0]
    return W + ngd_step * descent / max(np.linalg.norm(descent), 1e-300)


g, W, plain_error = np.zeros_like(gaps), np.zeros_like(target.W[0]), []
for _ in range(compared):
    g, W = exact_step(g), plain_step(W)
    plain_error.append(np.linalg.norm(W / max(np.linalg.norm(W), 1e-300) - unit))

# %% [markdown]
# The margins from the exact code above agree with those of the library. The direction from the plain code is wrong:

# %%
at = int(np.searchsorted(recorded, compared))
margins = histories["NGD"].margins[0, at].reshape(g.shape)
np.testing.assert_allclose(g, margins, rtol=1e-9)
exact_error = histories["NGD"].direction_error["W_mm"][0, at]
print(f"after {compared} steps: smallest margin {g.min():.2f}, the library's {margins.min():.2f}")
print(f"direction error: exact {exact_error:.4f}, in ordinary arithmetic {plain_error[-1]:.4f}")

# %% [markdown]
# ## The time in growing dimensions
#
# How many microseconds does an iteration of NGD take once the basis is built? The time hardly changes while $d$ grows a thousandfold. Times depend on the machine and its load, so this page only prints them; `make bench` compares them with a bound.

# %%
megabytes = [sum(array.nbytes for array in (few.K.matrix, few.delta, few.z)) / 1e6 for few in small]
for dimension, few, size in zip(dimensions, small, megabytes, strict=True):
    began = time.perf_counter()
    reduced.run_compiled(few, [update_rules["NGD"]], np.array([timed_steps]))
    micros = 1e6 * (time.perf_counter() - began) / timed_steps
    print(f"d = {dimension:>7,}: {micros:.1f} us an iteration, {size:.1f} MB in training")

# %% [markdown]
# ## Claims
#
# A *claim* pairs a measured number with the bound that it must meet. Each exponent of the error comes from a least-squares fit within one decade of $t$, and we report the worst value over the seeds.

# %% tags=["nbval-check-output"]
exponents = fixed_head.decade_exponents(histories, steps)
last = {name: values[:, -1] for name, values in exponents.items()}
slope = fits.fitted_slope(recorded, histories["NGD"].log_miss.max(-1), steps / 2)
growth = slope / (-ngd_step / target.norm)
worst = growth[np.abs(growth - 1).argmax()]
table = claims.Table([
    *fixed_head.horizon_claims(last),
    claims.close("sharp.NGD", "NGD: slope of log(1 - p_opt), over eta/||W_mm||", "ours", worst, 1.0, 1e-3),
    claims.at_least("plain", f"plain float64 at t = {compared}: error over the exact one", "ours",
                    plain_error[-1] / exact_error, 10),
    claims.at_most("dimension.memory", "memory at the largest d over that at d = 1000", "ours",
                   megabytes[-1] / megabytes[1], 1.0),
])  # fmt: skip
table

# %% [markdown]
# ## A million steps
#
# The dashed grey curve in the next figure shows NGD in plain arithmetic, for the first seed. If plain arithmetic were accurate enough, this curve would stay near the exact curve of NGD, which is a median over the seeds. The right panel shows the slope of each curve in each decade of $t$, and the exponent $-1/2$ of the bound in Theorem 1, whose logarithmic factors we leave out.
#
# * **Distance of the direction.** The dashed grey curve leaves the exact curve soon after a thousand steps. From there on, the direction that is computed in plain arithmetic is set by rounding errors. They are nearly the same at every step, so $W$ turns away for good.
# * **Exponent by decade.** In the last decades the slopes of NGD, NGD-mom and Polyak's rule are $-1$, below the line at $-1/2$. The slope of GD stays near 0.

# %%
about = f"Paper A, Figure 2's problem to t = {steps:,}; our setting, n={n}, T={T}, d={d}, from zero; synthetic, {seeds} seeds, float64"
figure = figures.horizon(histories, plain_error, about)
figure

# %% [markdown]
# So the error falls like $1/t$, and the bound is not tight here. What determines the height of the curve? [Page 40](40_law_of_margins.ipynb) shows that in runs like these, from zero and with short steps, the error approaches $C/\lVert W_t\rVert$, and computes $C$ from the dual variables of the SVM. The dotted line in the next figure shows this prediction, which has no fitted parameter. Since $\lVert W_t\rVert$ grows like $t$ under NGD, the prediction falls like $1/t$. (More exactly, $C/\lVert W_t\rVert$ is the sine of the angle between $W_t$ and $W_{mm}$, and the error is the chord of this angle. The claim and the number in the figure compare the error with this chord.)

# %%
law = margin_law.margin_law(problem.tokens, target)
off = np.abs(margin_law_steps.ratio_to_law(histories["NGD"], "W_mm", law)[:, -1] - 1).max()
said = "NGD: error over the one predicted from C/||W_t||, less 1, at the end"
law_table = claims.Table([claims.at_most("law.end", said, "ours", off, 1e-3)])
about_law = f"Beyond Theorem 1 of paper A: n={n}, T={T}, d={d}, from zero; synthetic, {seeds} seeds, float64"
figure_law = plots.caption(margin_law_figures.bound_and_law(histories["NGD"], law), about_law)
figure_law

# %% [markdown]
# This is Theorem 1 as the paper states it:

# %%
statements.quoted("A", STATEMENTS, "Theorem 1")

# %% [markdown]
# ## Every hypothesis at once
#
# Our data may not satisfy every hypothesis of the theorem. Does the rate change on data that satisfy all of the hypotheses, as we read them? To find out, we use few samples in many dimensions: $n = 4$, $T = 3$ and $d = 4000$. The table below tests the following hypotheses on the worst of 20 data sets, and then what the theorem and Lemma 5 conclude:
#
# * Assumption 1 holds in our sufficient form, $b^2(a^2-3\mu) \ge (n-1)\,C\,\nu\,(U^2+3\mu)$, which `papers/a/assumptions.py` derives. Here $a$ and $U$ are the smallest and the largest norm of an opt token, $b$ is the smallest norm of a query, and $C$ bounds how much harder one sample pulls on $W$ than another. Moreover, $\nu$ bounds the inner products of two queries, and $\mu$ bounds those of two tokens that are not both opt tokens.
# * Assumption 2 holds: in each sample the other tokens have equal scores, and only one token has the highest score.
# * The start $W_0$ is so small that all softmax weights begin near $1/T$ (Lemma 4).
# * The step is so short that a softmax weight above $1/2$ does not fall below $1/(eT)$ in one step (our reading of "small enough").

# %%
verified = coordinates.minimal(
    tokens.class_mean_tokens(range(theorem1_seeds), 4, 3, verified_d, 2.0, verified_d**-0.5)
)
verified_target = svm.token_svm(verified.tokens)
begin = dynamics.gaussian_start(verified, 0.001, range(theorem1_seeds))
satisfied = dynamics.train(
    verified,
    rules.NGD(verified_step),
    verified_steps,
    start=begin,
    targets={"W_mm": verified_target.W},
)
hypotheses = assumptions.theorem1_claims(verified, begin, satisfied, verified_step)
table_verified = claims.Table(hypotheses)
table_verified

# %% [markdown]
# The upper dashed line has the slope of the bound in Theorem 1, without its logarithms. Its height is free, because we do not know the constant of the bound; so the theorem does not say where a curve must lie, only that in the long run it may not be less steep. In fact, the curves fall like the lower dashed line, that is, like $1/t$. In the same runs, no softmax weight of an opt token falls before it reaches $1/2$, as Lemma 5 says (the claims `lemma5` in the table).

# %%
about_verified = f"Paper A, Theorem 1 where its hypotheses hold as we read them (Assumption 1 in our sufficient form); our setting, n=4, T=3, d={verified_d}, small random start; synthetic, {theorem1_seeds} seeds, float64"
figure_verified = figures.theorem1(satisfied, about_verified)
figure_verified

# %% [markdown]
# ## What we saw
#
# **Answer.** The direction error of NGD falls like $1/t$ up to a million steps, faster than Theorem 1 requires. The error falls just as fast on data that satisfy all hypotheses of the theorem, as we read them. In plain arithmetic we could not see this, because soon after a thousand steps rounding errors set the direction of the computed gradient. An iteration in a hundred thousand dimensions takes as much time as an iteration in a thousand dimensions.
#
# Why does the error fall like $1/t$, and what determines the height of the curve? [Page 40](40_law_of_margins.ipynb) answers these questions.
#
# ## Change this
#
# Make a prediction, then run the cell.
#
# 1. Use a step size ten times as large. *Hint:* $\|W_t\|$ grows ten times as fast. *Predict:* at the same $t$, is the error one tenth as large as with the shorter steps? And is the exponent still $-1$?


# %%
at = np.geomspace(10_000, 100_000, 20).astype(int)
for size in (ngd_step, 10 * ngd_step):
    history = dynamics.train(problem, rules.NGD(size), at[-1], at, targets={"W_mm": target.W})
    fitted, last_error = fits.exponent(history, "W_mm", 10_000), history.direction_error["W_mm"]
    print(f"step {size:g}: exponent {fitted.max():.3f}, error {last_error[:, -1].max():.2e}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The answer to both questions is yes, because the error falls like $1/\|W_t\|$.
#
# </details>
#
# **To prove.** Take one sample with two tokens. Show that after every step of NGD from zero, $W_t$ has the direction of $W_{mm}$, and that $1-p_{opt}$ falls like $e^{-ct}$. What is $c$?
#
# <details><summary>Solution</summary>
#
# There is only one pair. Let $A_1=\delta_1z_1^\top$ be its matrix. Then $-\nabla L(W)=c_1A_1$ with $c_1>0$ at every $W$, and $W_t=\eta t\,A_1/\lVert A_1\rVert$. Moreover, $W_{mm}=A_1/\lVert A_1\rVert^2$: this matrix has margin 1, and by Cauchy-Schwarz every matrix with margin 1 is at least as large. The margin of $W_t$ is $g_t=\eta t\lVert A_1\rVert$, and $1-p_{opt}=1/(1+e^{g_t})\approx e^{-g_t}$. Hence $c=\eta\lVert A_1\rVert=\eta/\lVert W_{mm}\rVert$.
#
# </details>
#
# ## The small print
#
# The samples of a class share their opt token, because we read Example 1 of the paper in this way. In 300 dimensions, twenty samples are too many for our sufficient form of Assumption 1. On this page, this form of the assumption holds only for the data of the last experiment.

# %% tags=["set-up"]
# Set-up, no need to read.
numbers = {f"{name.split(',')[0].lower()}_exponent": np.median(last[name]) for name in last}
numbers["ngd_direction_error"] = np.median(histories["NGD"].direction_error["W_mm"][:, -1])
missing = np.median(histories["NGD"].log_miss[:, -1].max(-1))
numbers["ngd_missing_weight_power_of_ten"] = missing / np.log(10)
run.keep(figure, "fastrates_horizon", about, table, numbers)
of_law = {"law_off": off, "ngd_exponent": numbers["ngd_exponent"]}
run.keep(figure_law, "fastrates_bound", about_law, law_table, of_law)
of_verified = {claim.id: claim.measured for claim in hypotheses}
of_verified = {"room": of_verified["assumption1.margin"], "exponent": of_verified["rate.NGD"]}
sizes = {"n": 4, "T": 3, "d": verified_d, "seeds": theorem1_seeds}
run.keep(figure_verified, "fastrates_theorem1", about_verified, table_verified, of_verified, setting=sizes)
