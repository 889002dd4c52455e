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
# *Page 2 of 11 · before: [00](00_attention_by_hand.ipynb) · next: [11](11_long_horizon.ipynb) · 25 minutes · [words](words.md).* By the end, you will be able to solve, in three lines of code, for the matrix that attention turns to, and tell how fast each rule gets there.
#
# This page is about **paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738), **Figure 2**.
#
# **Question.** On [page 00](00_attention_by_hand.ipynb) the direction of $W$ converged to that of the solution of a support vector machine. Does this also happen for random data in many dimensions? Why, and how fast under each update rule?
#
# ## One layer, twenty examples
#
# ![Three tokens, their logits, softmax weights and weighted mean](drawings/layer.svg)
#
# The layer's answer is $f_i = y_i\, u^\top X_i^\top \mathrm{softmax}(X_i W z_i)$. Its loss is $L(W) = \frac1n\sum_i e^{-f_i}$. We train only $W$; the head $u$ stays fixed.
#
# | symbol | meaning | shape |
# |---|---|---|
# | $X_i$ | tokens $x_{i,1}, \dots, x_{i,T}$ of sample $i$ of $n$, as rows | $T \times d$ |
# | $z_i$ | its query: the first token, which is never the opt token | $d$ |
# | $y_i$ | its label, $\pm1$ | |
# | $\gamma_{i,t} = y_i\, u^\top x_{i,t}$ | score of a token: the answer if the layer reads it alone | |
# | $opt_i = \arg\max_t \gamma_{i,t}$ | the opt token, the one with the highest score | |
# | $p_{i,t}$; $p_{opt}$ | softmax weight of a token; softmax weight of the opt token of a sample | |
# | $W_t$ | the attention weights after $t$ steps (in $x_{i,t}$, $t$ counts tokens) | $d \times d$ |

# %% tags=["parameters"]
# Set-up, no need to read.
scale = "demo"
seeds = 20
draws = 100
n, T, d = 20, 10, 300
signal, noise = 3.0, 0.1
start_std = 1e-3
steps = 1000
horizon = 300
gd_step = 0.1
ngd_step = 0.05
ngd_cap = 100.0
momentum = 0.9
polyak_cap = 1000.0

# %% tags=["set-up"]
# Set-up, no need to read.
import numpy as np
from scipy.optimize import nnls

import lib
from companion import claims, record
from papers import fits
from papers.a import figure_sentences as sentences
from papers.a import figures as paper_figures
from papers.a import fixed_head as paper

run = record.start("10_fixed_decoder", "A", globals())

# %% [markdown]
# All samples with the same label (a *class*) share their opt token, the class mean. The two class means are orthogonal, and the head $u$ is proportional to their difference. So the score of the opt token is the same positive number in every sample. The other tokens are Gaussian noise, projected so that their scores are zero.
#
# The target is the max-margin matrix:
#
# $$W_{mm} = \arg\min_W \lVert W\rVert_F \ \text{ s.t. }\ (x_{i,opt} - x_{i,t})^\top W z_i \ge 1 \quad \forall i,\ t \ne opt_i .$$

# %%
def drawn(seeds, signal=signal):
    data = lib.class_mean_tokens(seeds, n, T, d, signal, noise)
    return lib.minimal(data)  # in an orthonormal basis of the tokens' span


problem = drawn(range(seeds))
target = lib.token_svm(problem.tokens)
bind = target.support.sum((1, 2)).min()
print(f"||W_mm|| = {np.median(target.norm):.3f}, median of {seeds} seeds")
print(f"in the seed with the fewest, {bind} of {T * n - n} constraints bind")

# %% [markdown]
# So all constraints *bind*, that is, hold with equality, because noise tokens in 300 dimensions are nearly orthogonal.
#
# <details><summary>Why do all constraints bind?</summary>
#
# On page 00 one constraint held with room to spare. Why does none here? Suppose first that all noise tokens were equally long, and orthogonal to each other and to the class means. Add up the matrices $(x_{i,opt}-x_{i,t})z_i^\top$ of all constraints, each with the same weight $b>0$. Since the queries are noise tokens, too, the matrices of other samples do not contribute to the margin of a pair. So by symmetry all margins are equal, and some $b$ makes them 1. Positive weights with all margins 1 satisfy the conditions of page 00, so this sum is $W_{mm}$, and every constraint binds.
#
# The drawn tokens are only nearly orthogonal. This changes the weights for which all margins are 1, but in no seed does any of the 180 weights become zero or negative.
#
# </details>
#
# ## Four update rules
#
# * *GD*, gradient descent: $W_{t+1} = W_t - \eta \nabla L$. Its steps shrink with the gradient.
# * *NGD*, called *normalised GD* in figures: $W_{t+1} = W_t - \eta\, \nabla L / \lVert\nabla L\rVert$. Every step has the length $\eta$.
# * *NGD-mom*, NGD with momentum (*with momentum* in figures): $W_{t+1} = W_t + M_t$, with $M_t = 0.9\, M_{t-1} - \eta\, \nabla L / \lVert\nabla L\rVert$ and $M_{-1} = 0$. If the gradient keeps its direction, the steps become ten times as long as those of NGD, because $1+0.9+0.81+\dots=10$.
# * *Polyak's rule*: $W_{t+1} = W_t - \frac{L - L^*}{2 \lVert\nabla L\rVert^2} \nabla L$, where $L^*$ would be the loss if every $p_{opt}$ were 1. It takes half the step that would bring the loss to $L^*$ if the loss were linear. The outputs call this rule *Polyak, no cap*, since the paper's version caps its step size.
#
# We train on 20 random data sets (seeds), from a small random start. No step leaves the span of the tokens and queries, so the library works in coordinates of this span; `start.inside` is $W_0$ in these coordinates.

# %%
free_rules = {
    "GD": lib.GD(gd_step),
    "NGD": lib.NGD(ngd_step),
    "NGD-mom": lib.NGD(ngd_step, momentum=momentum),
    "Polyak, no cap": lib.Polyak(),
}
recorded = np.unique([*lib.log_spaced(steps, 200), horizon])
start = lib.gaussian_start(problem, start_std, range(seeds))
goal = {"start": start, "targets": {"W_mm": target.W}}
free = lib.train(problem, free_rules, steps, recorded, **goal)
early = int(np.searchsorted(recorded, steps // 10))
for rule, history in free.items():
    error = np.median(history.direction_error["W_mm"], axis=0)
    print(f"{rule:15} direction error: {error[early]:.4f} after {recorded[early]} steps, {error[-1]:.4f} after {steps:,}")

# %% [markdown]
# The figure shows the *direction error*, the distance between $W_t/\lVert W_t\rVert$ and $W_{mm}/\lVert W_{mm}\rVert$. For NGD, Theorem 1 of paper A bounds this error by a multiple of $t^{-1/2}$, up to logarithms. The short dashed line has the slope of this bound.

# %%
about = f"Paper A, Figure 2: orthogonal class means; our setting, n={n}, T={T}, d={d}; synthetic, {seeds} seeds, float64"
about_beyond = about.replace("Paper A, ", "Beside ") + "; no caps"
beyond = paper_figures.figure2_beyond(free, about_beyond)
beyond

# %% [markdown]
# Every rule turns $W_t$ towards $W_{mm}$. From step 100 to 1,000, the curve of NGD falls faster than the dashed line, while the curve of GD flattens.
#
# ## Why should training find this matrix?
#
# A *pair* $m = (i, t)$ consists of the opt token of sample $i$ and another token. Let $A_m = (x_{i,opt} - x_{i,t})\, z_i^\top$. The *margin* $g_m=\langle A_m,W\rangle$ is the opt token's logit minus the other token's logit.
#
# 1. *The loss sees the smallest margin.* By page 00, $L-L^*\approx\frac\kappa n\sum_m e^{-g_m}$ once every $p_{opt}$ is close to 1. Here $\kappa=e^{-\gamma_{opt}}(\gamma_{opt}-\gamma_t)$ is the same number for all pairs. So $-\log(L-L^*)$ equals the smallest margin up to a bounded term.
# 2. *The gradient pushes only the tightest pairs.* With the same $\kappa$, $-\nabla L\approx\frac\kappa n\sum_m e^{-g_m}A_m$. The *pull* $e^{-g_m}$ of a pair matters only if the pair is *tight*: its margin must be close to the smallest one.
# 3. *The pushes add up.* As $W_t$ grows, the start and the early pushes matter less and less, so $W_t$ approaches a sum of the $A_m$ of the tightest pairs, with nonnegative weights. Then $W_t$, divided by its smallest margin, nearly satisfies the conditions of page 00: all margins are at least 1, and only pairs with margin 1 have nonzero weight. So this matrix is nearly $W_{mm}$.
#
# This is not a proof: it assumes that every $p_{opt}$ tends to 1 and that the direction of $W_t$ converges. (On [page 13](13_assumptions_broken.ipynb), the direction converges to that of another selection.)
#
# ## The target in three lines of code
#
# By page 00 we need weights $\beta_m\ge0$ such that $V=\sum_k\beta_kA_k$ satisfies $\langle A_m,V\rangle\ge1$, with equality if $\beta_m>0$. Then $V=W_{mm}$, and the $\beta_m$ are its *dual variables*, or *duals*. These are the optimality conditions of the *dual problem* of the SVM: minimise $\frac12\lVert\sum_m\beta_mA_m\rVert^2-\sum_m\beta_m$ over $\beta\ge0$. The derivative with respect to $\beta_m$ is $\langle A_m,V\rangle-1$; at a minimum it is at least 0, and exactly 0 if $\beta_m>0$.
#
# Up to a common factor, the same weights solve a problem of non-negative least squares, for which scipy has a solver: minimise $\lVert\sum_m b_m A_m\rVert^2 + (1 - \sum_m b_m)^2$ over $b\ge0$.
#
# <details><summary>Why do these weights solve the least-squares problem?</summary>
#
# Differentiating with respect to $b_m$ shows that, at the minimum,
#
# $$\Big\langle A_m,\sum_kb_kA_k\Big\rangle\ \ge\ 1-\sum_kb_k,\qquad\text{with equality if }b_m>0 .$$
#
# The right-hand side is positive if some $W$ satisfies the constraints. Dividing by it shows that $\beta=b/(1-\sum_kb_k)$ satisfies our conditions.
#
# </details>

# %%
data = problem.tokens
X, y, z, u = data.X[0], data.y[0], data.z[0], data.u[0]  # (n, T, r), (n,), (n, q), (r,); r, q: dimensions of the spans
scores = y[:, None] * (X @ u)  # (n, T)
opt, best = scores.argmax(1), scores.max(1)
i, t = np.nonzero(np.arange(T) != opt[:, None])  # every pair
A = np.einsum("md,me->mde", X[i, opt[i]] - X[i, t], z[i]).reshape(len(i), -1)  # (m, r q)

b, residual = nnls(np.vstack([A.T, np.ones(len(A))]), np.eye(A.shape[1] + 1)[-1])  # the right-hand side is (0, ..., 0, 1)
# The least value, residual**2, is 1 - sum b: at the minimum, b_m times the derivative by b_m is 0 for every m.
# If it were 0, we would have sum b A = 0 with sum b = 1. Then the mean of the margins with the weights b
# would be 0 for every W, and no W would satisfy the constraints.
assert residual > 1e-6, "no W satisfies the constraints"
beta = b / (1 - b.sum())
W_mm = (beta @ A).reshape(X.shape[-1], -1)
np.testing.assert_allclose(W_mm, target.W[0], atol=1e-8)
print(f"seed 0: least margin {(A @ W_mm.ravel()).min():.6f}, ||W_mm|| = {np.linalg.norm(W_mm):.6f}")

# %% [markdown]
# ## Does the idea hold in this run?
#
# If the idea holds, the differences of the margins become small compared with the margins. The late pulls themselves, not only their sums over the steps, become proportional to the duals, because any other pulls would change these differences until the pulls are in this proportion ([page 40](40_law_of_margins.ipynb)). Then the steps point along $W_{mm}=\sum_m\beta_mA_m$.

# %%
for k in (0, early, len(recorded) - 1):
    g = A @ free["NGD"].weights(k)[0].ravel()  # the margins of all pairs, seed 0
    pull = np.exp(g.min() - g)
    cosine = pull @ beta / np.linalg.norm(pull) / np.linalg.norm(beta)
    angle = np.rad2deg(np.arccos(cosine))
    print(f"step {recorded[k]:4}: margins {g.min():6.2f} to {g.max():6.2f}; angle between pulls and duals {angle:4.1f}°")

# %% [markdown]
# Both predictions hold. After 1,000 steps, all 180 margins lie within 3 % of each other. Their differences do not vanish: they converge to values at which the pulls $e^{-g_m}$ are proportional to the $\beta_m$, so $g_m-g_k\to\log(\beta_k/\beta_m)$.
#
# ## How fast?
#
# The error is about the length of the part of $W_t$ orthogonal to the ray through $W_{mm}$, divided by $\lVert W_t\rVert$. Late steps change this part less and less, because they turn towards $W_{mm}$. If the angle between the steps and $W_{mm}$ falls fast enough, their orthogonal parts have a finite sum. [Page 40](40_law_of_margins.ipynb) derives this.
#
# So we compare the rules at equal $\lVert W_t\rVert$. The last column shows the length of the orthogonal part under Polyak's rule: it grows between the lengths 4 and 100 of $W_t$, and then nearly stops growing.

# %%
# Median errors at the first recorded step at which the median of ||W_t|| reaches a length.
print("length " + "".join(f"{rule:>20}" for rule in free) + "   Polyak: error x ||W_t||")
for length in (4, 8, 45, 100, 400):
    row = f"{length:6} "
    for history in free.values():
        norm = np.median(history.norm, axis=0)
        k = int(np.argmax(norm >= length))
        error = np.median(history.direction_error["W_mm"][:, k])
        entry = f"{error:.4f} (step {recorded[k]})" if norm[k] >= length else "not reached"
        row += f"{entry:>20}"
    print(f"{row}{error * norm[k]:26.2f}")  # the last rule is Polyak's

# %% [markdown]
# From length 8 on, the errors in a row are nearly equal, although the rules need very different numbers of steps. NGD only reaches length 50, so its curve does not yet have its final slope.
#
# From length 100 on, the error is nearly a constant divided by $\lVert W_t\rVert$, so the length of the steps determines how the error falls with $t$. Let $c=1/\lVert W_{mm}\rVert$. Since $W_t$ is nearly $\lVert W_t\rVert\,cW_{mm}$, its margins are nearly $c\lVert W_t\rVert$, and $L-L^*$ falls like $e^{-c\lVert W_t\rVert}$. If the pulls are proportional to the duals, points 1 and 2 give, for some $s>0$,
#
# $$L-L^*\approx s\sum_m\beta_m=s\lVert W_{mm}\rVert^2,\qquad-\nabla L\approx s\sum_m\beta_mA_m=s\,W_{mm},\qquad\text{so}\quad\lVert\nabla L\rVert\approx c\,(L-L^*).$$
#
# <details><summary>Why is the sum of the duals the square of the max-margin matrix's norm?</summary>
#
# The sum of the duals is $\sum_m\beta_m\langle A_m,W_{mm}\rangle=\lVert W_{mm}\rVert^2$, since at $W_{mm}$ all margins are 1.
#
# </details>
#
# Under GD, the length of a step is proportional to $\lVert\nabla L\rVert$. So, up to constant factors, $d\lVert W\rVert/dt=e^{-c\lVert W\rVert}$, with the solution $\lVert W\rVert=\log(ct)/c$. Under the other rules, the length of a late step is constant:
#
# | rule | length of a late step | $\lVert W_t\rVert$ grows like | so the error falls like | bound in paper A | fit on [page 11](11_long_horizon.ipynb) |
# |---|---|---|---|---|---|
# | GD | $\eta\lVert\nabla L\rVert$, tends to 0 | $(\log t)/c$ | $1/\log t$ | none (Theorem 6 gives only the limit, the direction of $W_{mm}$) | $t^{-0.03}$ |
# | NGD | $\eta$ | $t$ | $1/t$ | $\tilde O(t^{-1/2})$ (Theorem 1) | $t^{-1.00}$ |
# | NGD-mom | $10\,\eta$ | $t$ | $1/t$ | none | $t^{-1.00}$ |
# | Polyak's rule | $\frac{L-L^*}{2\lVert\nabla L\rVert}\to\lVert W_{mm}\rVert/2$ | $t$ | $1/t$ | $\tilde O(t^{-1/2})$ (Theorem 7) | $t^{-1.00}$ |
#
# $\tilde O$ omits powers of $\log t$. The last column shows exponents fitted over the last decade before a million steps. In this decade $1/\log t$ itself falls only like $t^{-0.08}$. GD's error falls even more slowly, since the orthogonal part of $W_t$ still grows there: after a million steps GD has not reached its late regime ([page 40](40_law_of_margins.ipynb)).
#
# ## A rule of your own
#
# Here are the four rules in numpy, for seed 0.

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


def move(W, last, rule, cap=np.inf):  # W_{t+1} - W_t, from W_t and the last move
    gap, descent = gap_and_descent(W)
    norm = np.linalg.norm(descent)
    if rule == "GD":
        eta = gd_step
    elif rule.startswith("NGD"):
        eta = ngd_step / norm
    else:
        eta = gap / (2 * norm**2)
    kept = momentum if rule == "NGD-mom" else 0
    return kept * last + min(eta, cap) * descent

# %%
# These lines and the library give the same matrices.
at = int(np.searchsorted(recorded, 50))
for rule in free_rules:
    W, last = start.inside[0], 0
    for _ in range(recorded[at]):
        last = move(W, last, rule)
        W = W + last
    known = free[rule].weights(at)[0]
    np.testing.assert_allclose(W, known, atol=1e-9 * np.abs(W).max())
    print(f"{rule}: the same after {recorded[at]} steps, ||W|| = {np.linalg.norm(W):.4f}")

# %% [markdown]
# `lib.Custom` accepts any step size that is a function of $t$, $L - L^*$ and $\lVert\nabla L\rVert$. Our rule lies between GD and NGD.
#
# *Prediction.* The length of a step of our rule is proportional to the square root of the gradient's norm, and so to $e^{-c\lVert W\rVert/2}$. Hence $\lVert W\rVert$ grows like $2(\log t)/c$. From step 50 to 1,000, GD should add $(\log 20)/c$ to the norm, and our rule twice as much.

# %%
def mine(t, gap, norm):  # arrays, an entry for each seed; write your own rule here
    return 0.1 / np.sqrt(norm)


# With step size 1.0, GD is late in training by step 50.
raced = {"GD": lib.GD(1.0), "mine": lib.Custom(mine), "NGD": free_rules["NGD"]}
aim = {"start": start, "targets": {"W_mm": target}}
log_growth = np.median(target.norm) * np.log(steps / 50)
print(f"predicted growth of ||W||: GD {log_growth:.2f}, mine {2 * log_growth:.2f}")
races = lib.train(problem, raced, steps, [50, steps], **aim)
for rule, history in races.items():
    of_W = np.median(history.norm, 0), np.median(history.direction_error["W_mm"], 0)
    print(f"{rule:4}: ||W|| {of_W[0].round(2)}, grown by {np.ptp(of_W[0]):.2f}; direction error {of_W[1].round(4)}")
W = start.inside[0]
for t in range(50):
    gap, descent = gap_and_descent(W)
    norm = np.linalg.norm(descent)
    W = W + mine(t, gap, norm) * descent
np.testing.assert_allclose(W, races["mine"].weights(0)[0], atol=1e-9 * np.abs(W).max())

# %% [markdown]
# Our rule brings $W_t$ to a length near 8, with nearly the same error as the other rules at this length.
#
# ## What we saw
#
# 1. On these data every rule turns $W_t$ towards $W_{mm}$, because the gradient pushes only the pairs with the smallest margins.
# 2. The direction error is the length of a bounded orthogonal part divided by $\lVert W_t\rVert$, so a rule is fast if it makes $W_t$ grow fast.
# 3. Under NGD $\lVert W_t\rVert$ grows like $t$, so NGD converges faster than $t^{-1/2}$, the power in the paper's bound. Under GD the norm grows only like $\log t$, so we do not see GD converge.
#
# ## Change this
#
# 1. Take a weaker signal, `signal = 0.5`, which means shorter opt tokens among the same noise tokens. *Predict:* is $W_{mm}$ larger, and is NGD slower?

# %%
def last_error(signal, std=start_std):
    problem = drawn(range(5), signal)
    target, start = lib.token_svm(problem.tokens), lib.gaussian_start(problem, std, range(5))
    goal = {"W_mm": target.W}
    history = lib.train(problem, lib.NGD(ngd_step), steps, start=start, targets=goal)
    return np.median(target.norm), np.median(history.direction_error["W_mm"][:, -1])


for strength in (signal, 0.5):
    norm, error = last_error(strength)
    print(f"signal {strength}: ||W_mm|| = {norm:.3f}, last error {error:.4f} (medians of 5 seeds)")

# %% [markdown]
# <details><summary>Answer</summary>
#
# $W_{mm}$ is four times as large, because with shorter opt tokens a larger $W$ is needed for margins of 1. But NGD is far from four times slower: at the same $t$ its error is larger by only about a quarter. The norm $\lVert W_t\rVert$ is about 50 in both runs, so similar errors mean that the two matrices $W_t$ have orthogonal parts of similar length. So the orthogonal part does not grow in proportion to $W_{mm}$.
#
# </details>
#
# 2. Take a start a thousand times as large, with norm 300. *Predict:* what happens to the final error?

# %%
for std in (start_std, 1000 * start_std):
    print(f"start {std:g}: last error {last_error(signal, std)[1]:.4f}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The final error is large. The total length of all steps is `steps * ngd_step` = 50, so $W$ still points roughly in its initial direction. This does not show that the limit of the direction is a different one.
#
# </details>
#
# ## Checking the paper
#
# <details><summary>Do the theorems apply?</summary>
#
# The theorems assume that the tokens are nearly orthogonal (Assumption 1), that the scores of the other tokens are equal (Assumption 2) and that the start is small. Assumption 2 holds, because all noise tokens have score zero. We do not know whether Assumption 1 holds, because its inequality is missing from our copy of the paper. [Page 13](13_assumptions_broken.ipynb) quotes the assumptions and uses a sufficient condition of ours; the cosines that the next cell prints are too large for this condition to hold.
#
# </details>

# %%
data, is_opt = problem.tokens, np.arange(T) == problem.tokens.opt[..., None]  # (seeds, n, T)
other = np.sort(lib.scores(data, data.u))[..., :-1]  # without the opt token
unit = data.X[0] / np.linalg.norm(data.X[0], axis=-1, keepdims=True)  # seed 0, (n, T, r)
noise_tokens = unit[~is_opt[0]]  # (n (T - 1), r)
cosines = np.abs(noise_tokens @ noise_tokens.T - np.eye(len(noise_tokens)))
print(f"scores that should be equal differ by {np.ptp(other, axis=-1).max():.0e}")
print(f"cosines of two noise tokens reach {cosines.max():.2f} (seed 0)")

# %% [markdown]
# *Are the paper's sentences about its Figure 2 true here?* Yes, in the setting of the next figure.
#
# <details><summary>Which setting, and what are caps?</summary>
#
# In paper A, the rules in this figure have caps. A *cap* is the largest factor by which a rule may multiply $\nabla L$. Polyak's rule with a cap is called Polyak-step (*Polyak's rule* in the figure). Our copy of the paper lacks the step sizes and caps, so [page 18](18_figures_2_and_5.ipynb) tries 720 settings. In 45 of them, all six sentences are true. Our figure shows one of these 45 settings, so it shows only that such settings exist. In this setting the cap is 100 for NGD and NGD-mom, and 1,000 for Polyak-step. The curves of the norm bend where NGD and NGD-mom reach their caps, because a rule at its cap is GD with the cap as its step size (NGD-mom at its cap is GD with momentum).
#
# </details>

# %%
setting = sentences.Setting(gd_step, ngd_step, ngd_cap, polyak_cap, horizon)
capped = lib.train(problem, sentences.rules2(setting), steps, recorded, **goal)
best_scores = lib.scores(problem.tokens, problem.tokens.u).max(-1)  # (seeds, n)
for rule, cap in (("NGD", ngd_cap), ("NGD-mom", ngd_cap), ("Polyak-step", polyak_cap)):
    since = sentences.capped_since(capped[rule], cap).max()
    print(f"{rule} is at its cap from t = {recorded[since]} on in every seed")
figure = paper_figures.figure2(capped, setting, np.exp(-best_scores).mean(-1), about)
figure

# %% [markdown]
# <details><summary>The claims in the next table: how we read these sentences</summary>
#
# Each row of the folded table is a *claim*: a measured number beside the bound that it must meet. Here the number is that of the worst seed. The first six claims test the paper's sentences. We read "faster" as *ahead*: a rule is ahead of another rule if it has a lower loss and a higher value in each of the other three panels. The paper calls $p_{opt}$ the softmax score. The *alignment* is the cosine of the angle between $W_t$ and $W_{mm}$. The exponent is fitted over steps 30 to 300 of a run with caps, so it differs from the exponent in the first figure. The seventh claim compares Polyak-step at its cap, `eta_max`, with GD.
#
# </details>

# %% tags=["nbval-check-output"]
values = sentences.values2(capped, setting)
values["capped_is_gd"] = sentences.capped_is_gd(capped, problem, setting)
words = sentences.FIGURE2 | {"capped_is_gd": sentences.CAPPED_IS_GD}
table = claims.Table(sentences.claims_of("fig2", words, values))
table

# %% [markdown]
# <details><summary>More claims: three lemmas of the paper, and the growth of the margins</summary>
#
# The claims of the next cell are listed in [the record](../figures/demo/fastrates_fig2_beyond.json), the file that stores the numbers of the first figure. They test our predictions for the growth of the margins, and three lemmas of paper A, for which we use our own readings and constants ([page 19](19_theory_ledger.ipynb)):
#
# * Lemma 5: no $p_{opt}$ falls below half of its initial value, and none falls while it is at most $\frac12$.
# * Lemma 6: every gradient step has a component along $W_{mm}$: $\langle-\nabla L,W_{mm}\rangle\ge\lVert\nabla L\rVert/\max_m\lVert A_m\rVert$.
# * Lemma 7: under NGD the norm $\lVert W_t\rVert$ grows like $t$. Our claim is that it grows by $\eta$ per step.
#
# </details>

# %% tags=["nbval-check-output"]
# The claims of the record; no need to read.
crowd = drawn(range(draws))
crowd_start = lib.gaussian_start(crowd, start_std, range(draws))
crowd_ngd = lib.train(crowd, free_rules["NGD"], steps, recorded, start=crowd_start)
lemma5 = [claim for rule in free_rules for claim in paper.lemma5(free[rule], rule)]
lemma5 += paper.lemma5(capped["Polyak-step"], "Polyak-step")
lemma5 += paper.lemma5(crowd_ngd, f"NGD, {draws} draws")
ngd, uncapped = free["NGD"], free["Polyak, no cap"]
margin, late = 1 / target.norm, steps / 10
accelerated = ngd_step * margin / (1 - momentum)
beyond_table = claims.Table([
    paper.svm_certificate(target),
    *lemma5,
    paper.lemma6(problem.tokens, target),
    paper.lemma7(ngd, ngd_step),
    paper.direction(ngd, "NGD", late, "Theorem 1")[0],
    paper.margin_growth(ngd, "NGD", ngd_step * margin, steps / 2),
    paper.margin_growth(free["NGD-mom"], "NGD-mom", accelerated, steps / 2),
    paper.margin_growth(uncapped, "Polyak, no cap", np.full(seeds, 0.5), steps / 2),
    paper.polyak_step_norm(uncapped, target),
    paper.fastest_at_first(capped, "Polyak-step"),
])  # fmt: skip
print(beyond_table.summary())

# %% tags=["set-up"]
# Set-up, no need to read.
end = int(np.searchsorted(recorded, horizon))
error = capped["NGD"].direction_error["W_mm"][:, end]
numbers = {"ngd_direction_error": np.median(error), "ngd_direction_error_worst": error.max()}
numbers["ahead_from"] = sentences.FIRST
numbers["polyak_over_next_best"] = paper.fastest_at_first(capped, "Polyak-step").measured
run.keep(figure, "fastrates_fig2", about, table, numbers)
error, miss = ngd.direction_error["W_mm"][:, -1], ngd.log_miss[:, -1].max(-1)
numbers = {"norm_of_W_mm": np.median(target.norm), "ngd_log_missing_weight": np.median(miss)}
numbers |= {"ngd_direction_error": np.median(error), "ngd_direction_error_worst": error.max()}
numbers["ngd_exponent"] = np.median(fits.exponent(ngd, "W_mm", steps / 10))
run.keep(beyond, "fastrates_fig2_beyond", about_beyond, beyond_table, numbers)
