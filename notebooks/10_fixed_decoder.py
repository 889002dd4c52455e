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
# **Question.** On [page 00](00_attention_by_hand.ipynb) the direction of $W$ converged to that of the solution of a support vector machine. Does this also happen for random data in many dimensions, how fast, and under which update rules?
#
# ## One layer, twenty examples
#
# ![Three tokens, their logits, softmax weights and weighted mean](drawings/layer.svg)
#
# The layer answers $f_i = y_i\, u^\top X_i^\top \mathrm{softmax}(X_i W z_i)$. Its loss is $L(W) = \frac1n\sum_i e^{-f_i}$. We train only $W$; the head $u$ stays fixed.
#
# | symbol | meaning | shape |
# |---|---|---|
# | $X_i$ | tokens $x_{i,1}, \dots, x_{i,T}$ of sample $i$ of $n$, as rows | $T \times d$ |
# | $z_i$ | its query: the first token, which is never the opt token | $d$ |
# | $y_i$ | its label, $\pm1$ | |
# | $\gamma_{i,t} = y_i\, u^\top x_{i,t}$ | score of a token: the answer if the layer reads it alone | |
# | $opt_i = \arg\max_t \gamma_{i,t}$ | the opt token, the one with the highest score | |
# | $p_{i,t}$; $p_{opt}$ | softmax weight of a token; that of the opt token of a sample | |
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
# All samples of a class share their opt token, which is the mean of the class. The two class means are orthogonal, and the head $u$ is proportional to their difference. So $y_iu^\top x_{i,opt}$ is the same positive number for all samples. The other tokens are Gaussian noise, projected such that their scores are zero. The target is the max-margin matrix:
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
# So every constraint belongs to a support vector. On page 00, satisfying one constraint left another with room to spare. Here it does not, because noise tokens in high dimension are nearly orthogonal.
#
# ## Five update rules
#
# | rule | step |
# |---|---|
# | GD, gradient descent | $W_{t+1} = W_t - \eta \nabla L$ |
# | NGD, normalised GD (Eq. 4) | $W_{t+1} = W_t - \eta\, \nabla L / \lVert\nabla L\rVert$ |
# | NGD-mom, with momentum | $W_{t+1} = W_t + M_t$, $\ M_t = 0.9\, M_{t-1} - \eta\, \nabla L / \lVert\nabla L\rVert$, $\ M_{-1} = 0$ |
# | Polyak, no cap (Eq. 3) | $W_{t+1} = W_t - \frac{L - L^*}{2 \lVert\nabla L\rVert^2} \nabla L$ |
# | Polyak-step | the same, with a cap |
#
# A *cap* is the largest factor by which a rule may multiply $\nabla L$. NGD and NGD-mom may also have one, but not in the first figure. The infimum $L^*$ of the loss, here positive, is its value if every $p_{opt}$ were 1; no $W$ reaches it. Polyak's step is half of the step that would bring a linear loss to $L^*$. Since $W$ never moves outside the span of the tokens and queries, the library works in coordinates of this span.

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
# The figure shows the *direction error*, the distance between $W_t/\lVert W_t\rVert$ and $W_{mm}/\lVert W_{mm}\rVert$. Theorem 1 bounds this error for NGD by a multiple of $t^{-1/2}$, up to logarithms. The short dashed line has this slope.


# %%
about = f"Paper A, Figure 2: orthogonal class means; our setting, n={n}, T={T}, d={d}; synthetic, {seeds} seeds, float64"
about_beyond = about.replace("Paper A, ", "Beside ") + "; no caps"
beyond = paper_figures.figure2_beyond(free, about_beyond)
beyond

# %% [markdown]
# From step 100 to 1,000, the error of NGD falls faster than the dashed line, with the exponent beside the curve. It does not yet fall like $1/t$, as on [page 11](11_long_horizon.ipynb), because the differences between the margins are still changing ([page 41](41_how_margins_settle.ipynb)). The curve of GD flattens, because $\lVert W_t\rVert$ grows only like $\log t$.

# %% [markdown]
# ## The target, in three lines
#
# Let $A_m = (x_{i,opt} - x_{i,t})\, z_i^\top$ for each *pair* $m = (i, t)$ of an opt token and another token. The point nearest to zero in the convex hull of the $A_m$ has the direction of $W_{mm}$. We replace the condition that its weights sum to one by a penalty: find $b \ge 0$ that minimise $\lVert\sum_m b_m A_m\rVert^2 + (1 - \sum_m b_m)^2$ (non-negative least squares). Then $W_{mm} = \sum_m \beta_m A_m$, with the dual variables $\beta = b/(1 - \sum_m b_m)$.
#
# <details><summary>Why is this the solution?</summary>
#
# Half the derivative with respect to $b_m$ is $\langle A_m, \sum_k b_k A_k\rangle - (1 - \sum_k b_k)$. At the minimum it is zero if $b_m > 0$, and not negative otherwise. Divide by $1 - \sum_k b_k$, which is positive unless no $W$ satisfies the constraints: every margin of $W_{mm}$ is at least 1, and exactly 1 if $\beta_m > 0$. These are the conditions of page 00.
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
# The least value, residual**2, is 1 - sum b: at the minimum, b_m times the half derivative is 0 for every m.
# If it were 0, we would have sum b A = 0 with sum b = 1. Then the mean of the margins with the weights b
# would be 0 for every W, and no W would satisfy the constraints.
assert residual > 1e-6, "no W satisfies the constraints"
beta = b / (1 - b.sum())
W_mm = (beta @ A).reshape(X.shape[-1], -1)
np.testing.assert_allclose(W_mm, target.W[0], atol=1e-8)
print(f"seed 0: least margin {(A @ W_mm.ravel()).min():.6f}, ||W_mm|| = {np.linalg.norm(W_mm):.6f}")

# %% [markdown]
# ## What the theorems say
#
# The theorems below assume nearly orthogonal tokens (Assumption 1), equal scores of the other tokens (Assumption 2) and a small start; [page 13](13_assumptions_broken.ipynb) quotes the assumptions. We do not know whether Assumption 1 holds here. $\tilde O$ leaves out powers of $\log t$.
#
# | rule | limit of the direction | rate, paper A | decade to a million steps ([page 11](11_long_horizon.ipynb)) |
# |---|---|---|---|
# | GD (Theorem 6) | $W_{mm}$ | none stated | $t^{-0.03}$ |
# | NGD (Theorem 1) | $W_{mm}$ | $\tilde O(t^{-1/2})$ | $t^{-1.00}$ |
# | NGD-mom | none stated | none stated | $t^{-1.00}$ |
# | Polyak (Theorem 7) | $W_{mm}$ | $\tilde O(t^{-1/2})$ | $t^{-1.00}$ |
#
# ## One step of each rule, for seed 0


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
# ## The paper's Figure 2
#
# Paper A draws its Figure 2 with caps, and says, in short:
#
# 1. NGD is ahead of GD.
# 2. NGD-mom is ahead of NGD.
# 3. Polyak-step is ahead of NGD.
# 4. Polyak-step reaches its cap.
# 5. Then it slows down.
# 6. The direction of NGD converges as fast as Theorem 1 says.
#
# *Ahead* is our reading of "faster": in every seed and at every recorded iteration from 20 to 300, the rule has the lower loss and is higher in the other three panels. (The paper calls $p_{opt}$ the softmax score. The *alignment* is the cosine of the angle to $W_{mm}$.)
#
# Our copy of the paper lacks the step sizes and caps. [Page 18](18_figures_2_and_5.ipynb) quotes the text and tries 720 settings; all six statements are true in 45. The figure shows one of these settings, so it shows only that they exist. Its caps are 100 for NGD and NGD-mom, and 1,000 for Polyak-step.


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
# The mark shows where Polyak-step reaches its cap. The curves of the norm for NGD and NGD-mom bend where these rules reach theirs, at the printed iterations. At its cap, a rule is GD with the cap as step size (NGD-mom is GD with momentum).
#
# A *claim* is a measured number beside its bound, here for the worst seed. The seventh claim compares Polyak-step at its cap, `eta_max`, with GD. The exponent is for steps 30 to 300 with caps, so it differs from that in the first figure.

# %% tags=["nbval-check-output"]
values = sentences.values2(capped, setting)
values["capped_is_gd"] = sentences.capped_is_gd(capped, problem, setting)
words = sentences.FIGURE2 | {"capped_is_gd": sentences.CAPPED_IS_GD}
table = claims.Table(sentences.claims_of("fig2", words, values))
table

# %% [markdown]
# ## A rule of your own
#
# `lib.Custom` takes any step size, as a function of $t$, $L - L^*$ and $\lVert\nabla L\rVert$. Here is a rule between GD and NGD.
#
# *Prediction.* Late in training the smallest margin is nearly $c\lVert W\rVert$ with $c=1/\lVert W_{mm}\rVert$, so the gradient is about as long as $e^{-c\lVert W\rVert}$. Under GD, $d\lVert W\rVert/dt=e^{-c\lVert W\rVert}$ gives $\lVert W\rVert=\log(ct)/c$. A step of our rule is as long as the square root of the gradient, so $\lVert W\rVert$ grows like $2(\log t)/c$. From step 50 to 1,000, GD should add $(\log 20)/c$ to the norm, and our rule twice as much.


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
# ## What we saw
#
# Every rule selects the opt tokens and turns towards $W_{mm}$. GD is so slow that we do not see it arrive. NGD converges faster than the paper's bound requires. [Page 11](11_long_horizon.ipynb) trains for a million steps.
#
# ## Change this
#
# 1. Take a weaker signal, `signal = 0.5`: shorter opt tokens among the same noise tokens. *Prediction:* is $W_{mm}$ larger, and is NGD slower?


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
# $W_{mm}$ is four times as large, because shorter opt tokens need a larger $W$ for margins of 1. But NGD is only a little slower. The error is the length of the part of $W_t$ beside the ray, divided by $\lVert W_t\rVert$, which is about 50 in both runs. That part mainly separates the noise tokens of a sample from each other, and these have not changed.
#
# </details>
#
# 2. Take a start that is a thousand times as large, with norm 300. *Prediction:* what happens to the final error?

# %%
for std in (start_std, 1000 * start_std):
    print(f"start {std:g}: last error {last_error(signal, std)[1]:.4f}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The total length of all steps is `steps * ngd_step` = 50, so $W$ still has about the direction of the start. This does not show that the limit differs.
#
# </details>
#
# ## The small print
#
# Assumption 2 holds, because all noise tokens have score zero. We know one sufficient form of Assumption 1, and at $d=300$ the cosines between noise tokens are too large for it ([page 13](13_assumptions_broken.ipynb)).

# %%
data, is_opt = problem.tokens, np.arange(T) == problem.tokens.opt[..., None]  # (seeds, n, T)
other = np.sort(lib.scores(data, data.u))[..., :-1]  # without the opt token
unit = data.X[0] / np.linalg.norm(data.X[0], axis=-1, keepdims=True)  # seed 0, (n, T, r)
noise_tokens = unit[~is_opt[0]]  # (n (T - 1), r)
cosines = np.abs(noise_tokens @ noise_tokens.T - np.eye(len(noise_tokens)))
print(f"scores that should be equal differ by {np.ptp(other, axis=-1).max():.0e}")
print(f"cosines of two noise tokens reach {cosines.max():.2f} (seed 0)")

# %% [markdown]
# The last claims ([the record](../figures/demo/fastrates_fig2_beyond.json) lists them) test Lemmas 5 to 7 ([page 19](19_theory_ledger.ipynb)) and our predictions for the growth of the margins.

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
