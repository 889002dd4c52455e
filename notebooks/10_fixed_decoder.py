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
# **Paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738), **Figure 2**.
#
# **Question.** On [page 00](00_attention_by_hand.ipynb) the direction of $W$ converged to the solution of a support vector machine. Does this also happen for random data in many dimensions? How fast, and does it depend on the update rule?
#
# ## One layer, twenty examples
#
# ![Three tokens get a logit each from the query and W, the softmax makes weights of them, and the head reads the weighted mean](drawings/layer.svg)
#
# The layer answers $f_i = y_i\, u^\top X_i^\top \mathrm{softmax}(X_i W z_i)$. Its loss is $L(W) = \frac1n\sum_i e^{-f_i}$. We train only $W$, and the head $u$ stays fixed.
#
# | symbol | meaning | shape |
# |---|---|---|
# | $X_i$ | tokens $x_{i,1}, \dots, x_{i,T}$ of sample $i$ of $n$, as rows | $T \times d$ |
# | $z_i$ | its query, here the first token, which is never the opt token | $d$ |
# | $y_i$ | its label, $\pm1$ | |
# | $\gamma_{i,t} = y_i\, u^\top x_{i,t}$ | score of a token: the answer if the layer saw this token alone | |
# | $opt_i = \arg\max_t \gamma_{i,t}$ | the opt token, the one with the highest score | |
# | $p_{i,t}$; $p_{opt}$ | softmax weight of a token; of a sample's opt token | |
# | $W_t$ | the attention weights after $t$ steps | $d \times d$ |

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
from companion import claims, record, statements
from papers import fits
from papers.a import figure_sentences as sentences
from papers.a import figures as paper_figures
from papers.a import fixed_head as paper
from papers.a.statements import STATEMENTS

run = record.start("10_fixed_decoder", "A", globals())

# %% [markdown]
# All samples of a class share their opt token, which is the mean of the class. All other tokens are Gaussian noise, projected so that the head gives them score zero. The two class means are orthogonal, and the head $u$ is their difference, up to a factor: it gives all opt tokens the same positive score. The target is the max-margin matrix, the smallest $W$ under which every opt token wins by a logit of at least 1:
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
print(f"at least {bind} of {T * n - n} constraints bind")

# %% [markdown]
# ## Five update rules
#
# The gradient is the one of page 00. All rules go downhill. They differ in the length of the step.
#
# | rule | step |
# |---|---|
# | GD, gradient descent | $W_{t+1} = W_t - \eta \nabla L$ |
# | NGD, normalised GD (Eq. 4) | $W_{t+1} = W_t - \eta\, \nabla L / \lVert\nabla L\rVert$ |
# | NGD-mom, with momentum | $W_{t+1} = W_t + M_t$, $\ M_t = 0.9\, M_{t-1} - \eta\, \nabla L / \lVert\nabla L\rVert$, $\ M_{-1} = 0$ |
# | Polyak, no cap (Eq. 3) | $W_{t+1} = W_t - \frac{L - L^*}{2 \lVert\nabla L\rVert^2} \nabla L$ |
# | Polyak-step | the same, but the factor of $\nabla L$ is at most a constant, the *cap* |
#
# Here $L^*$ is the infimum of the loss, which a layer reaches that sees only opt tokens. It is positive, because the head is fixed. The library trains all seeds and rules in one call, in coordinates of the space that the tokens span, and it carries logarithms of the weights, so that tiny weights keep their digits.

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
# On a linear axis, every direction would soon look the same. So we draw what remains, on logarithmic axes: the *direction error*, the distance between $W_t/\lVert W_t\rVert$ and $W_{mm}/\lVert W_{mm}\rVert$.
#
# If NGD only kept the promise of the paper's theorem, its direction error would fall like the short dashed line, $t^{-1/2}$. How steeply does it fall?


# %%
about = f"Paper A, Figure 2: orthogonal class means; our setting, n={n}, T={T}, d={d}; synthetic, {seeds} seeds, float64"
about_beyond = about.replace("Paper A, ", "Beside ") + "; no caps"
beyond = paper_figures.figure2_beyond(free, about_beyond)
beyond

# %% [markdown]
# The direction error of NGD falls faster than the dashed line, with the exponent that stands at the curve. In the end it falls like $1/t$, as [page 11](11_long_horizon.ipynb) shows. GD hardly moves on this scale.

# %% [markdown]
# ## The target, in three lines
#
# On page 00 we solved this by eye. With 180 constraints we need a computer, but only three lines. Let $A_m = (x_{i,opt} - x_{i,t})\, z_i^\top$ for each *pair* $m = (i, t)$ of an opt token and another token. Find weights $b \ge 0$ that minimise $\lVert\sum_m b_m A_m\rVert^2 + (1 - \sum_m b_m)^2$. This is a non-negative least-squares problem. Then $W_{mm} = \sum_m \beta_m A_m$, with the dual variables $\beta = b/(1 - \sum_m b_m)$.
#
# <details><summary>Why is this the solution?</summary>
#
# Half the derivative with respect to $b_m$ is $\langle A_m, \sum_k b_k A_k\rangle - (1 - \sum_k b_k)$. At the minimum it is zero if $b_m > 0$, and it is not negative if $b_m = 0$. Divide by $1 - \sum_k b_k$: every margin of $W_{mm}$ is at least 1, and exactly 1 if $\beta_m > 0$. These are the three conditions of page 00.
#
# May we divide? At the minimum, $b_m$ times the half derivative is 0. Sum over $m$: $\lVert\sum_m b_m A_m\rVert^2 = (1 - \sum_m b_m)\sum_m b_m$, so the least value is $1 - \sum_m b_m$. If it were 0, weights $b \ge 0$ of sum 1 would give $\sum_m b_m A_m = 0$. Then the mean of all margins with these weights would be 0 for every $W$, and no $W$ would satisfy the constraints. The code checks that this is not so.
#
# </details>

# %%
data = problem.tokens
X, y, z, u = data.X[0], data.y[0], data.z[0], data.u[0]  # (n, T, r), (n,), (n, q), (r,); r, q: dimensions of the spans
scores = y[:, None] * (X @ u)  # (n, T)
opt, best = scores.argmax(1), scores.max(1)
i, t = np.nonzero(np.arange(T) != opt[:, None])  # every pair
A = np.einsum("md,me->mde", X[i, opt[i]] - X[i, t], z[i]).reshape(len(i), -1)  # (m, r q)

b, residual = nnls(np.vstack([A.T, np.ones(len(A))]), np.eye(A.shape[1] + 1)[-1])
assert residual > 1e-6, "no W satisfies the constraints"  # its square is 1 - sum b
beta = b / (1 - b.sum())
W_mm = (beta @ A).reshape(X.shape[-1], -1)
np.testing.assert_allclose(W_mm, target.W[0], atol=1e-8)
print(f"least margin {(A @ W_mm.ravel()).min():.6f}, ||W_mm|| = {np.linalg.norm(W_mm):.6f}")

# %% [markdown]
# ## What the theorems say

# %%
statements.quoted("A", STATEMENTS, "Assumption 1", "Assumption 2", "Theorem 1")

# %% [markdown]
# $\tilde O$ leaves out powers of $\log t$. Theorems 6 and 7 have the same hypotheses. Together they say:
#
# | rule | limit of the direction | rate, paper A | here, steps 100 to 1,000 | here, the decade to a million steps |
# |---|---|---|---|---|
# | GD (Theorem 6) | $W_{mm}$ | none stated | | $t^{-0.03}$ |
# | NGD (Theorem 1) | $W_{mm}$ | $\tilde O(t^{-1/2})$ | $t^{-0.68}$ | $t^{-1.00}$ |
# | NGD-mom | none stated | none stated | | $t^{-1.00}$ |
# | Polyak (Theorem 7) | $W_{mm}$ | $\tilde O(t^{-1/2})$ | | $t^{-1.00}$ |
#
# An empty cell means that we fitted nothing. The last column is from page 11.
#
# ## One step, in this page
#
# Here is a step of each rule, for seed 0, without the library.


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


# %% [markdown]
# Fifty steps of these lines give the library's matrices.

# %%
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
# ## The paper's Figure 2
#
# Paper A draws its Figure 2 with caps. Section 3.2 says: "note that NGD is significantly faster than standard GD"; momentum "results in a performance boost"; "Polyak step-size leads to even faster convergence than NGD across all metrics, including the train loss". Once Polyak's steps reach the cap, they "are identical to standard GD updates", "hence, the rates are much faster in the beginning, but slow down as training progresses".
#
# Our copy lacks the step sizes and caps. So we let these sentences choose: [page 18](18_figures_2_and_5.ipynb) tries 720 settings, and all six sentences are true in 45 of them. We draw one of these.
#
# We read "faster" as *ahead*: at every recorded iteration from 20 to the horizon, in every seed, a rule is further in all four panels. So NGD should lie below GD in the first panel and above it in the others, momentum should be ahead of NGD, and Polyak-step ahead of NGD. The mark shows where Polyak's cap begins to bind. The train loss stops at $L^*$, the thin grey line.


# %%
setting = sentences.Setting(gd_step, ngd_step, ngd_cap, polyak_cap, horizon)
capped = lib.train(problem, sentences.rules2(setting), steps, recorded, **goal)
best_scores = lib.scores(problem.tokens, problem.tokens.u).max(-1)  # (seeds, n)
figure = paper_figures.figure2(capped, setting, np.exp(-best_scores).mean(-1), about)
figure

# %% [markdown]
# A *claim* is a measured number beside its bound, here for the worst seed and iteration. All claims about the text of Figure 2 hold.

# %% tags=["nbval-check-output"]
values = sentences.values2(capped, setting)
values["capped_is_gd"] = sentences.capped_is_gd(capped, problem, setting)
words = sentences.FIGURE2 | {"capped_is_gd": sentences.CAPPED_IS_GD}
table = claims.Table(sentences.claims_of("fig2", words, values))
table

# %% [markdown]
# ## A rule of your own
#
# Can we predict a rule between GD and NGD? `lib.Custom` takes any step size $\eta_t$, as a function of $t$, $L - L^*$ and $\lVert\nabla L\rVert$. A constant gives GD, and a constant divided by $\lVert\nabla L\rVert$ gives NGD. Here is a rule in between. You can write your own rule in its place.
#
# *Prediction.* Late in training $\lVert\nabla L\rVert$ is about $e^{-c\lVert W\rVert}$, with $c=1/\lVert W_{mm}\rVert$, because the smallest margin is then nearly $\lVert W\rVert/\lVert W_{mm}\rVert$. A step of GD is as long as the gradient, so $\lVert W\rVert$ grows like $(\log t)/c$. A step of our rule is as long as the square root of the gradient, so $\lVert W\rVert$ grows like $2(\log t)/c$. After step 50 it should grow by twice as much as under GD.


# %%
def mine(t, gap, norm):  # arrays, an entry for each seed
    return 0.1 / np.sqrt(norm)


raced = {"GD": lib.GD(1.0), "mine": lib.Custom(mine), "NGD": free_rules["NGD"]}
aim = {"start": start, "targets": {"W_mm": target}}
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
# ## What we saw
#
# Every rule selects the opt tokens and turns towards $W_{mm}$. GD is so slow that we do not see it arrive. Normalised steps arrive faster than the paper's bound promises. Is the bound loose, or is the horizon too short? [Page 11](11_long_horizon.ipynb) trains for a million steps.
#
# ## Change this
#
# Predict first, then run.
#
# 1. Take a weaker signal, `signal = 0.5`. The noise tokens stay as they are and the opt tokens get shorter, yet every margin of $W_{mm}$ must be at least 1. *Prediction:* is its norm larger or smaller, and does NGD find it more slowly?


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
# The norm is larger, because shorter opt tokens need a longer $W$. NGD finds it more slowly: after the same number of steps the error is larger.
#
# </details>
#
# 2. Take a start that is not small. *Prediction:* what does a start that is a thousand times larger, with norm 300, do to the final error?

# %%
for std in (start_std, 1000 * start_std):
    print(f"start {std:g}: last error {last_error(signal, std)[1]:.4f}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# All steps together are `steps * ngd_step` = 50 long, and the start has norm 300. So $W$ still has about the direction of the start. This does not show that the limit differs.
#
# </details>
#
# **To prove.** Take one sample of two tokens. Show that NGD from zero has the direction of $W_{mm}$ from the first step on.
#
# <details><summary>Solution</summary>
#
# There is one pair, so $-\nabla L(W) = c(W)\, A_1$ with $c(W) = e^{-f}\, p_1 p_2\, (\gamma_{opt} - \gamma_2) > 0$ at every $W$. Hence $W_t = \eta t\, A_1/\lVert A_1\rVert$. And $W_{mm} = A_1/\lVert A_1\rVert^2$, because this matrix has margin 1, and by Cauchy-Schwarz every matrix with margin 1 is at least as large.
#
# </details>
#
# ## The small print
#
# Which hypotheses hold here? Assumption 2 holds, because the head gives all noise tokens score zero. Assumption 1, as we read it, requires nearly orthogonal noise tokens. Their cosines fall like $d^{-1/2}$. Lemma 8 of the paper says that such data (Example 1, as we read it) satisfy both assumptions with high probability. Our copy lacks the numbers in the lemma's condition. We know one sufficient form of Assumption 1, and at $d=300$ the cosines are not yet small enough for it. [Page 13](13_assumptions_broken.ipynb) measures from which $d$ on they are.

# %%
data, is_opt = problem.tokens, np.arange(T) == problem.tokens.opt[..., None]  # (seeds, n, T)
other = np.sort(lib.scores(data, data.u))[..., :-1]  # without the opt token
unit = data.X[0] / np.linalg.norm(data.X[0], axis=-1, keepdims=True)  # seed 0, (n, T, r)
noise_tokens = unit[~is_opt[0]]  # (n (T - 1), r)
cosines = np.abs(noise_tokens @ noise_tokens.T - np.eye(len(noise_tokens)))
print(f"scores that should be equal differ by {np.ptp(other, axis=-1).max():.0e}")
print(f"cosines of two noise tokens reach {cosines.max():.2f} (seed 0)")

# %% [markdown]
# * Sizes, noise and step sizes are ours, because our copy of the paper lacks them. So are the formula of NGD-mom and its 0.9, and the choice of the query.
# * As we read the theorems, their rules have no caps. The paper validates Theorem 1 with caps, but our first figure uses no caps.
# * The support vector machine is due to arXiv 2306.13596 and 2308.16898. The rates are paper A's.
# * Lemmas 5 to 7 of the paper and our predictions for the growth of the margins are checked as claims, too. [Page 19](19_theory_ledger.ipynb) prints the lemmas, and [the record](../figures/demo/fastrates_fig2_beyond.json) lists every claim.

# %% tags=["nbval-check-output"]
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
