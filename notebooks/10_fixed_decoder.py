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
# # Attention with a fixed decoder finds the max-margin token selection
#
# *Page 2 of 11 · before: [00](00_attention_by_hand.ipynb) · next: [11](11_long_horizon.ipynb) · 25 minutes · [words](words.md).* After it you can solve for the matrix that attention turns to, in three lines, and read how fast each rule gets there.
#
# **Paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738), **Figures 2 and 5**.
#
# **Question.** One attention layer is trained in its attention weights $W$ alone. Along many directions of
# $W$ the loss falls to its infimum. To which of them does training turn, and how fast?
#
# **Answer.** In every run $W_t$ grows, and its direction turns to that of one matrix, $W_{mm}$: the smallest under which in every
# sample the best token's logit is at least 1 above every other. Under normalised gradient descent the distance of the two directions falls faster than the paper's
# bound: with the exponent $-0.84$ between the steps 100 and 1,000 (Figure 2's problem), and like $1/t$ later ([notebook 11](11_long_horizon.ipynb)). With our step sizes plain gradient descent is ahead of it at
# first, then crawls. Assumption 1 of the paper fails here, as the samples of a class share their best token: its theorem does not cover what is measured below.
#
# ## The statement
#
# ![Three tokens get a logit each from the query and W, the softmax makes weights of them, and the head reads the weighted mean](drawings/layer.svg)
#
# The layer answers $f_i = y_i\, u^\top X_i^\top \mathrm{softmax}(X_i W z_i)$. The loss is
# $L(W) = \frac1n\sum_i e^{-f_i}$. The head $u$ stays fixed.
#
# | symbol | meaning | shape |
# |---|---|---|
# | $X_i$ | tokens $x_{i,1}, \dots, x_{i,T}$ of sample $i$ of $n$, as rows | $T \times d$ |
# | $z_i$ | its query, here the first token | $d$ |
# | $y_i$ | its label, $\pm1$ | |
# | $\gamma_{i,t} = y_i\, u^\top x_{i,t}$ | score of a token: the answer if the layer saw this token alone | |
# | $opt_i = \arg\max_t \gamma_{i,t}$ | the token worth attending to | |
# | $p_{i,t}$; $p_{opt}$ | softmax weight of a token; that of a sample's opt token | |
# | $W_t$ | the attention weights after $t$ steps; on $x$, $\gamma$ and $p$ the index $t$ is a token | $d \times d$ |
#
# $$W_{mm} = \arg\min_W \lVert W\rVert_F \ \text{ s.t. }\ (x_{i,opt} - x_{i,t})^\top W z_i \ge 1 \quad \forall i,\ t \ne opt_i .$$
#
# That the direction is a support vector machine's is due to arXiv 2306.13596 and 2308.16898; the rates below are paper A's.

# %% tags=["parameters"]
# Set-up, no need to read.
scale = "demo"
seeds = 20
draws = 100
n, T, d = 20, 10, 300
signal, noise = 3.0, 0.1
start_std = 1e-3
steps = 1000
gd_step = 1.0
ngd_step = 0.025
momentum = 0.9
polyak_cap = 1000.0

# %% tags=["set-up"]
# Set-up, no need to read.
import inspect

import numpy as np
from scipy.optimize import nnls

from lib import attention, dynamics, svm
from lib.attention import coordinates, tokens
from lib.companion import claims, record, statements
from lib.dynamics import rules
from papers import fits
from papers.a import figures as paper_figures
from papers.a import fixed_head as paper
from papers.a.statements import STATEMENTS

run = record.start("10_fixed_decoder", "A", globals())

# %% [markdown]
# What paper A states of three rules: normalised gradient descent (NGD), gradient descent (GD) and Polyak's step. $\tilde O$ leaves out powers of $\log t$.

# %%
statements.quoted(
    "A", STATEMENTS, "Assumption 1", "Assumption 2", "Theorem 1", "Theorem 6", "Theorem 7"
)

# %% [markdown]
# ## Data
#
# Every sample of a class has the same [opt token](words.md): the mean of its class, of norm `signal`. All other tokens are
# Gaussian noise, `noise` per entry, orthogonal to both means. The two means are orthogonal in Figure 2 and opposite (antipodal) in
# Figure 5, as we read the paper. Our copy of it lacks its sizes, noise, steps and cap: **these are our settings**.


# %%
def drawn(seeds, signal=signal, antipodal=False):
    data = tokens.class_mean_tokens(seeds, n, T, d, signal, noise, antipodal=antipodal)
    return coordinates.minimal(data)  # in an orthonormal basis of the tokens' span


every = range(seeds)
problems = {"orthogonal": drawn(every), "antipodal": drawn(every, antipodal=True)}
targets = {name: svm.token_svm(problem.tokens) for name, problem in problems.items()}
for name, target in targets.items():
    print(f"{name}: ||W_mm|| = {np.median(target.norm):.3f}, median of {seeds} seeds;",
          f"at least {target.support.sum((1, 2)).min()} of {T * n - n} constraints bind")  # fmt: skip

# %% [markdown]
# ## The target, in three lines
#
# Let $A_m = (x_{i,opt} - x_{i,t})\, z_i^\top$ for a pair $m = (i, t)$. The target is the smallest $W$ with
# $\langle A_m, W\rangle \ge 1$ for all $m$: a support vector machine (SVM). Find weights $b \ge 0$ that make
# $\lVert\sum_m b_m A_m\rVert^2 + (1 - \sum_m b_m)^2$ smallest. This is non-negative least squares. Then
# $W_{mm} = \sum_m \beta_m A_m$ with the [duals](words.md) $\beta = b/(1 - \sum_m b_m)$.
#
# *Why?* Half the derivative for $b_m$ is $\langle A_m, \sum_k b_k A_k\rangle - (1 - \sum_k b_k)$. At the minimum it is zero where
# $b_m > 0$, and not negative where $b_m = 0$: raising that weight would not help. Divide by $1 - \sum_k b_k$: every margin of $W_{mm}$ is at least 1, and exactly 1 where $\beta_m > 0$. These are the
# conditions of [notebook 00](00_attention_by_hand.ipynb).
#
# *May one divide?* At the minimum $b_m$ times the half derivative is 0. Sum over $m$: $\lVert\sum_m b_m A_m\rVert^2 = (1 - \sum_m b_m)\sum_m b_m$, so the least value is $1 - \sum_m b_m$. If it is 0, weights $b \ge 0$ of sum 1 make $\sum_m b_m A_m = 0$.
# Then the mean of all margins with these weights is 0 for every $W$: no $W$ satisfies the constraints. The code checks it.

# %%
data = problems["orthogonal"].tokens
X, y, z, u = data.X[0], data.y[0], data.z[0], data.u[0]  # (n, T, r), (n,), (n, q), (r,); r, q: dimensions of the spans
scores = y[:, None] * (X @ u)  # (n, T)
opt, best = scores.argmax(1), scores.max(1)
i, t = np.nonzero(np.arange(T) != opt[:, None])  # every pair
A = np.einsum("md,me->mde", X[i, opt[i]] - X[i, t], z[i]).reshape(len(i), -1)  # (m, r q)

b, residual = nnls(np.vstack([A.T, np.ones(len(A))]), np.eye(A.shape[1] + 1)[-1])
assert residual > 1e-6, "no W satisfies the constraints"  # its square is 1 - sum b
beta = b / (1 - b.sum())
W_mm = (beta @ A).reshape(X.shape[-1], -1)
np.testing.assert_allclose(W_mm, targets["orthogonal"].W[0], atol=1e-8)
print(f"least margin {(A @ W_mm.ravel()).min():.6f}, ||W_mm|| = {np.linalg.norm(W_mm):.6f}")

# %% [markdown]
# **Which hypotheses hold?** Assumption 2 does: noise tokens are orthogonal to the head, so their scores are
# zero. Assumption 1, as we read it, does not: the samples of a class share their opt token. (A footnote of the paper extends its
# results to antipodal opt tokens, without a proof in our copy.) Printed: the largest difference between scores
# that should be equal, and in seed 0 the largest cosine of two opt tokens and of two others.

# %%
for name, problem in problems.items():
    data, is_opt = problem.tokens, np.arange(T) == problem.tokens.opt[..., None]  # (seeds, n, T)
    other = np.sort(attention.scores(data, data.u))[..., :-1]  # without the opt token
    unit = data.X[0] / np.linalg.norm(data.X[0], axis=-1, keepdims=True)  # seed 0, (n, T, r)
    kinds = unit[is_opt[0]], unit[~is_opt[0]]
    cosines = (np.abs(a @ a.T - np.eye(len(a))).max() for a in kinds)
    print(f"{name}: scores differ by {np.ptp(other, axis=-1).max():.0e}; cosines up to",
          "{:.2f} (opt), {:.2f} (others)".format(*cosines))  # fmt: skip

# %% [markdown]
# ## The rules, in this page
#
# The gradient is that of notebook 00:
#
# $$-\nabla L = \frac1n \sum_i e^{-f_i} \sum_t p_{i,t} (\gamma_{i,t} - f_i)\, x_{i,t} z_i^\top, \qquad
# \gamma_{i,t} - f_i = \sum_s p_{i,s}(\gamma_{i,t} - \gamma_{i,s}).$$
#
# | rule | step |
# |---|---|
# | GD | $W_{t+1} = W_t - \eta \nabla L$ |
# | NGD (Eq. 4) | $W_{t+1} = W_t - \eta\, \nabla L / \lVert\nabla L\rVert$ |
# | NGD-mom | $W_{t+1} = W_t + M_t$, $\ M_t = 0.9\, M_{t-1} - \eta\, \nabla L / \lVert\nabla L\rVert$, $\ M_{-1} = 0$ |
# | Polyak, no cap (Eq. 3) | $W_{t+1} = W_t - \frac{L - L^*}{2 \lVert\nabla L\rVert^2} \nabla L$ |
# | Polyak | $W_{t+1} = W_t - \min\big(\frac{L - L^*}{2 \lVert\nabla L\rVert^2},\ \eta_{\max}\big) \nabla L$ |
#
# $\eta$ is the step size. $L^*$ is the infimum of the loss, that of a layer which sees only opt tokens. Late in training $\lVert\nabla L\rVert^2$ vanishes
# faster than $L-L^*$, so Polyak's factor of $\nabla L$ grows without bound. In practice it is capped at $\eta_{\max}$; the theory has no cap. Here is all of it for one draw.


# %%
def gap_and_descent(W):
    logits = np.einsum("itd,id->it", X, z @ W.T)  # x_it W z_i, (n, T)
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    f = (p * scores).sum(1)
    above = np.einsum("is,its->it", p, scores[:, :, None] - scores[:, None])  # gamma_t - f
    pulled = np.einsum("it,itd->id", np.exp(-f)[:, None] * p * above, X)  # (n, r)
    gap = np.exp(-best) * np.expm1((p * (best[:, None] - scores)).sum(1))  # e^-f - e^-best
    return gap.mean(), pulled.T @ z / n  # L - L*, -grad L (r, q)


def move(W, last, rule):  # W_{t+1} - W_t, from W_t and the last move
    gap, descent = gap_and_descent(W)
    norm = np.linalg.norm(descent)
    ngd, polyak = ngd_step / norm, gap / (2 * norm**2)
    etas = {"GD": gd_step, "NGD": ngd, "NGD-mom": ngd, "Polyak, no cap": polyak}
    etas["Polyak"] = min(polyak, polyak_cap)
    return (momentum if rule == "NGD-mom" else 0) * last + etas[rule] * descent


# %% [markdown]
# The library trains all seeds and all rules in one call, at a cost that does not depend on $d$, and in logarithms, so that no digits are
# lost below the smallest float. Paper A's Lemma 5 says of every small start that $p_{opt}(t)\ge c\,p_{opt}(0)$ in every sample (asked: $c=\frac12$),
# and, as we read it, that $p_{opt}$ does not fall while it is at most 1/2. To test it, NGD runs on `draws` draws of each kind.

# %%
update_rules = {
    "GD": rules.gd(gd_step),
    "NGD": rules.ngd(ngd_step),
    "NGD-mom": rules.ngd(ngd_step, momentum=momentum),
    "Polyak": rules.polyak(polyak_cap),
    "Polyak, no cap": rules.polyak(),
}
recorded, starts, histories, crowds = dynamics.log_spaced(steps, 200), {}, {}, {}
for name, problem in problems.items():
    starts[name] = dynamics.gaussian_start(problem, start_std, every)
    goal = {"start": starts[name], "targets": {"W_mm": targets[name].W}}
    histories[name] = dynamics.train(problem, update_rules, steps, recorded, **goal)
    crowd = drawn(range(draws), antipodal=name == "antipodal")
    start = dynamics.gaussian_start(crowd, start_std, range(draws))
    crowds[name] = dynamics.train(crowd, update_rules["NGD"], steps, recorded, start=start)

# %% [markdown]
# The page's own lines give the library's matrix.

# %%
at = int(np.searchsorted(recorded, 50))
for rule, history in histories["orthogonal"].items():
    W, last = starts["orthogonal"].inside[0], 0
    for _ in range(recorded[at]):
        last = move(W, last, rule)
        W = W + last
    np.testing.assert_allclose(W, history.weights(at)[0], atol=1e-9 * np.abs(W).max())
    print(f"{rule}: the same after {recorded[at]} steps, ||W|| = {np.linalg.norm(W):.4f}")

# %% [markdown]
# The library's gradient is the same formula, in logarithms.

# %%
print(inspect.getsource(attention.gradients))

# %% [markdown]
# ## Where it goes, and how fast
#
# * **Loss gap** and **missing weight.** Look at how Polyak without
#   a cap and NGD with momentum drop below the panel first, and how slowly GD falls. At the
#   mark Polyak reaches the dotted line, in the share of the next rule's iterations that stands there.
# * **Norm.** Look at NGD's slope, soon near 1: it grows by nearly one step length an iteration, the most it can.
# * **Weight of the opt token.** The first to rise is Polyak's, then GD's, that of NGD with momentum, NGD's. In Figure 2 NGD with momentum passes GD near 0.85, and near 1
#   NGD does too.
# * **Alignment** (Figure 2), the cosine between $W_t$ and $W_{mm}$, and **direction error**, the distance between their directions. Look at the slope of NGD, steeper than the dashed bound $t^{-1/2}$: its
#   exponent stands in the panel.
# * **Least** $p_{opt}(t)/p_{opt}(0)$ (Figure 5). Each grey line is one draw and follows its sample of smallest ratio. Look at the blue line, the one
#   draw that breaks Lemma 5 as we read it: there a sample's opt weight falls by nearly a fifth before it rises.

# %%
about = {
    name: f"Paper A, {number}: {name} class means; our setting, n={n}, T={T}, d={d}; synthetic, {seeds} seeds, float64"
    for name, number in (("orthogonal", "Figure 2"), ("antipodal", "Figure 5"))
}
shown = {"orthogonal": None, "antipodal": crowds["antipodal"]}  # Lemma 5 has a panel in Figure 5
figures = {name: paper_figures.draw(histories[name], about[name], shown[name]) for name in about}
figures["orthogonal"]

# %%
figures["antipodal"]

# %% [markdown]
# The cap costs Polyak its lead. Once it binds, the rule is gradient descent, and its [direction error](words.md) falls behind that of NGD.
# In the paper's Figure 2 Polyak's rule, with a cap, is ahead in all metrics; here it is not.

# %% [markdown]
# ## Claims
#
# A [claim](words.md) is a measured number, the worst over all seeds, samples and iterations, beside its bound, from a statement or ours.
# The rows `sharp` are predictions of ours. Late, pairs pull in the ratio of their duals ([notebook 40](40_law_of_margins.ipynb)): with some $s>0$, $-\nabla L\approx s\,W_{mm}$ and $L-L^*\approx s\sum_m\beta_m=s\lVert W_{mm}\rVert^2$. So NGD's
# margins grow by $\eta/\lVert W_{mm}\rVert$ a step, with momentum by $1/(1-0.9)$ times that, Polyak's without a cap by 1/2; $1-p_{opt}$ falls like $e^{-g}$. Failures are printed, all rows stand in the records of Figures [2](../figures/demo/fastrates_fig2.json) and [5](../figures/demo/fastrates_fig5.json). This page is a run of minutes (demo [scale](words.md)).

# %%
statements.quoted("A", STATEMENTS, "Lemma 5", "Lemma 6", "Lemma 7")

# %% [markdown]
# In Lemma 6 $c=1/\max_m\lVert A_m\rVert$ will do: under Assumption 2 $-\nabla L=\sum_m w_mA_m$ with all $w_m\ge0$, and $\langle A_m,W_{mm}\rangle\ge1$. Its row compares with this $c$.


# %%
def check(name):
    history, target = histories[name], targets[name]
    ngd, uncapped = history["NGD"], history["Polyak, no cap"]
    margin, late = 1 / target.norm, steps / 10
    lemma5 = [claim for rule in update_rules for claim in paper.lemma5(history[rule], rule)]
    lemma5 += paper.lemma5(crowds[name], f"NGD, {draws} draws")
    if name == "antipodal":
        lemma5 = [claims.remarked(claim, paper.NOT_ORTHOGONAL) for claim in lemma5]
    return claims.Table([
        paper.svm_certificate(target),
        *lemma5,
        paper.lemma6(problems[name].tokens, target),
        paper.lemma7(ngd, ngd_step),
        paper.direction(ngd, "NGD", late, "Theorem 1")[0],
        paper.margin_growth(ngd, "NGD", ngd_step * margin, steps / 2),
        paper.margin_growth(history["NGD-mom"], "NGD-mom", ngd_step * margin / (1 - momentum), steps / 2),
        paper.margin_growth(uncapped, "Polyak, no cap", np.full(seeds, 0.5), steps / 2),
        paper.polyak_step_norm(uncapped, target),
        paper.fastest_at_first(history),
    ])  # fmt: skip


# %% tags=["nbval-check-output"]
tables = {name: check(name) for name in problems}
tables["orthogonal"]

# %%
tables["antipodal"]

# %% [markdown]
# One claim fails, `lemma5.rises`, in one draw of a hundred with antipodal means: a $p_{opt}$ of at most 1/2 falls for a
# while. (The claim compares each recorded weight with the one before, the panel with the first.) Under Assumption 1, Lemma 5 as we read it
# excludes that, as there a sample's own part of the gradient is the larger. Here sample $j$ moves a margin of sample $i$ in proportion to $\langle z_i, z_j\rangle$ times an inner product of token differences, which may be negative. In a hundred draws with
# orthogonal means no weight of at most 1/2 falls.

# %% [markdown]
# ## A rule of your own
#
# `dynamics.custom` takes any step size $\eta_t$, as a function of $t$, $L - L^*$ and $\lVert\nabla L\rVert$. A constant is GD, a
# constant over $\lVert\nabla L\rVert$ is NGD. Here is one between; write yours in its place. *Prediction:* late in training $\lVert\nabla L\rVert$ falls
# exponentially in $\lVert W\rVert$. A step of this rule is proportional to $\sqrt{\lVert\nabla L\rVert}$, one of GD to $\lVert\nabla L\rVert$. If $\lVert\nabla L\rVert$ is $e^{-c\lVert W\rVert}$, a step lengthens $W$ by about this
# under GD and by about its root here: $\lVert W\rVert$ grows like $(\log t)/c$ under GD and like $2(\log t)/c$ here (late, $c=1/\lVert W_{mm}\rVert$). So after step 50 it grows by twice as much.


# %%
def mine(t, gap, norm):  # arrays, an entry for each seed
    return 0.1 / np.sqrt(norm)


raced = {"GD": update_rules["GD"], "mine": dynamics.custom(mine), "NGD": update_rules["NGD"]}
goal = {"start": starts["orthogonal"], "targets": {"W_mm": targets["orthogonal"]}}
races = dynamics.train(problems["orthogonal"], raced, steps, [50, steps], **goal)
for rule, history in races.items():
    of_W = np.median(history.norm, 0), np.median(history.direction_error["W_mm"], 0)
    print(f"{rule:4}: ||W|| {of_W[0].round(2)}, grown by {np.ptp(of_W[0]):.2f}; direction error {of_W[1].round(4)}")
W = starts["orthogonal"].inside[0]
for t in range(50):
    gap, descent = gap_and_descent(W)
    norm = np.linalg.norm(descent)
    W = W + mine(t, gap, norm) * descent
np.testing.assert_allclose(W, races["mine"].weights(0)[0], atol=1e-9 * np.abs(W).max())

# %% [markdown]
# ## What we saw
#
# Every rule selects the opt tokens and turns towards $W_{mm}$, GD so slowly that we do not see it arrive. How fast the [direction error](words.md) falls:
#
# | rule | paper A | here (Figure 2's problem), between steps 100 and 1,000 | in the decade to a million steps |
# |---|---|---|---|
# | GD | to 0, without a rate (Theorem 6) | | $t^{-0.03}$ |
# | NGD | $\tilde O(t^{-1/2})$ (Theorem 1) | $t^{-0.84}$ | $t^{-1.00}$ |
# | NGD-mom | | | $t^{-1.00}$ |
# | Polyak, no cap | $\tilde O(t^{-1/2})$ (Theorem 7) | | $t^{-1.00}$ |
#
# Empty: the paper states none, or we fitted none. The last column is from [notebook 11](11_long_horizon.ipynb). Why $1/t$ is the subject of [the law of the margins](40_law_of_margins.ipynb).
#
# ## Change this
#
# Predict first, then run.
#
# 1. Weaker signal, `signal = 0.5`. *Prediction:* the noise tokens stay and the opt tokens get shorter, yet every
#    margin of $W_{mm}$ must be at least 1. Is its norm larger or smaller, and does NGD find it more slowly?


# %%
def last_error(signal, std=start_std):
    problem = drawn(range(5), signal)
    target, start = svm.token_svm(problem.tokens), dynamics.gaussian_start(problem, std, range(5))
    goal = {"W_mm": target.W}
    history = dynamics.train(problem, rules.ngd(ngd_step), steps, start=start, targets=goal)
    return np.median(target.norm), np.median(history.direction_error["W_mm"][:, -1])


for strength in (signal, 0.5):
    norm, error = last_error(strength)
    print(f"signal {strength}: ||W_mm|| = {norm:.3f}, last error {error:.4f} (medians of 5 seeds)")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Larger: shorter opt tokens need a longer $W$. And more slowly: after the same steps the error is larger.
#
# </details>
#
# 2. A start that is not small. *Prediction:* the theorem asks for a small one. What does a start a
#    thousand times larger, of norm 300, do to the last error?

# %%
for std in (start_std, 1000 * start_std):
    print(f"start {std:g}: last error {last_error(signal, std)[1]:.4f}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# All steps together are `steps * ngd_step` = 25 long, against a start of norm 300: the direction is still that of the start.
# It does not show that the limit differs.
#
# </details>
#
# **To prove.** One sample of two tokens. Show that NGD from zero has the direction of $W_{mm}$ from the first step on.
#
# <details><summary>Solution</summary>
#
# There is one pair, so $-\nabla L(W) = c(W)\, A_1$ with $c(W) = e^{-f}\, p_1 p_2\, (\gamma_{opt} - \gamma_2) > 0$ at every $W$.
# So $W_t = \eta t\, A_1/\lVert A_1\rVert$. And $W_{mm} = A_1/\lVert A_1\rVert^2$: it has the margin 1, and by Cauchy-Schwarz no
# smaller matrix has.
#
# </details>

# %% tags=["set-up"]
# Set-up, no need to read.
for slug, name in (("fastrates_fig2", "orthogonal"), ("fastrates_fig5", "antipodal")):
    ngd = histories[name]["NGD"]
    error, miss = ngd.direction_error["W_mm"][:, -1], ngd.log_miss[:, -1].max(-1)
    numbers = {"norm_of_W_mm": np.median(targets[name].norm), "ngd_log_missing_weight": np.median(miss)}
    numbers |= {"ngd_direction_error": np.median(error), "ngd_direction_error_worst": error.max()}
    numbers["ngd_exponent"] = np.median(fits.exponent(ngd, "W_mm", steps / 10))
    numbers["polyak_over_next_best"] = paper.fastest_at_first(histories[name]).measured
    run.keep(figures[name], slug, about[name], tables[name], numbers)
