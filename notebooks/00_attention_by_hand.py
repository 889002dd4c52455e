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
# # Attention by hand
#
# *Page 1 of 11 · next: [10](10_fixed_decoder.ipynb) · 15 minutes · [words](words.md).* After it you can write a softmax attention layer, its gradient and its training in 25 lines, and find by eye where it goes.
#
# **Question.** A softmax attention layer reads a few tokens and answers yes or no. We train it on two
# examples. Which tokens does it learn to look at, and towards which weight matrix does it move?
#
# **Answer.** Here it looks at one token of each example, the one that alone would give the best answer. The matrix $W$ grows
# on and on, but its *direction* comes nearer and nearer to that of the solution of a small geometric problem, which
# you can solve by eye. Paper A (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv
# 2402.05738) proves this under assumptions, printed below, that these two examples do not satisfy. That the problem is a support
# vector machine is due to arXiv 2306.13596 and, for a matrix $W$ as here, 2308.16898.
#
# ![An arrow, the direction of the weights, turns to a dashed ray while one token of each example grows and the others shrink](../figures/turning.gif)
#
# You need to know what a gradient is, and a little numpy.

# %% tags=["parameters"]
# Set-up, no need to read.
scale = "demo"
seeds = 1
steps = 10_000
step_size = 0.02

# %% tags=["set-up"]
# Set-up, no need to read.
import numpy as np

import lib
from companion import claims, plots, record, statements
from papers import pieces
from papers.a.statements import STATEMENTS

run = record.start("00_attention_by_hand", "A", globals())

# %% [markdown]
# ## Two examples, three tokens each
#
# | symbol | meaning | shape here |
# |---|---|---|
# | $X_i$ | the tokens $x_{i,1}, x_{i,2}, x_{i,3}$ of example $i$, one in each row | 3 x 2 |
# | $y_i$ | its label, $+1$ or $-1$ | |
# | $z_i$ | its query: what the layer compares the tokens with; here the first token | 2 |
# | $u$ | the head, which turns an attended token into a number; fixed in this page | 2 |
# | $W$ | the attention weights, which we train | 2 x 2 |
# | $t$ | as an index of $x$, $p$, $\gamma$, $A$, $g$ and $\beta$: the number of a token; as an index of $W$: the number of a training step | |

# %%
X = np.array([[[1, 0], [2, 0], [0, 1]],
              [[0, 1], [2, 1], [1, -1]]], float)  # fmt: skip
y = np.array([1.0, -1.0])
z = X[:, 0]  # (2 examples, 2)
u = np.array([0.0, 1.0])

# %% [markdown]
# ## The layer
#
# The query asks each token for a *logit* $x_{i,t}^\top W z_i$. Softmax turns the logits of an example
# into positive weights of sum one. The answer is the head's value of the weighted mean token:
#
# $$f_i = y_i\, u^\top X_i^\top p_i, \qquad p_i = \mathrm{softmax}(X_i W z_i),$$
#
# with the label multiplied in, so that a large $f_i$ is a good answer. $p_{i,t}$ is the weight of token $t$; at $W = 0$ each is 1/3.


# %%
def softmax(logits):
    weights = np.exp(logits - logits.max(-1, keepdims=True))  # the largest becomes e^0
    return weights / weights.sum(-1, keepdims=True)


def attend(W):
    logits = np.einsum("itd,de,ie->it", X, W, z)  # x_it W z_i, (examples, tokens)
    return softmax(logits)


print(attend(np.zeros((2, 2))))

# %% [markdown]
# ## Scores, and the token worth looking at
#
# The *score* of a token is what the answer would be if the layer looked at this token alone,
# $\gamma_{i,t} = y_i u^\top x_{i,t}$. The one token with the highest score is called **opt**, its index $opt_i$. Here it is
# the last token of both examples, with score 1.

# %%
scores = y[:, None] * (X @ u)  # (examples, tokens)
opt = scores.argmax(1)
print("scores", scores.tolist())
print("opt", opt, "(counted from 0)")

# %% [markdown]
# ## Loss and gradient
#
# The loss is $L(W) = \frac12 \sum_i e^{-f_i}$: it falls when an answer improves. Its gradient follows
# from the chain rule. As $f_i=\sum_t p_{i,t}\gamma_{i,t}$, its derivative for the logit of token $t$ is $p_{i,t}(\gamma_{i,t} - f_i)$:
# raising the logit of a token that scores above the present answer raises $f_i$, below it lowers $f_i$. The logit's derivative for $W$ is $x_{i,t} z_i^\top$. So
#
# $$-\nabla L = \frac12 \sum_i e^{-f_i} \sum_t p_{i,t}(\gamma_{i,t} - f_i)\; x_{i,t}\, z_i^\top .$$
#
# One trap: once $p_{opt}$ is nearly 1, $\gamma_{opt} - f$ is the difference of two nearly equal numbers,
# and loses its digits. So we sum differences of scores: $\gamma_t - f = \sum_s p_s (\gamma_t - \gamma_s)$.


# %%
def descent_direction(W):
    p = attend(W)
    f = (p * scores).sum(1, keepdims=True)  # (examples, 1)
    above = np.einsum("is,its->it", p, scores[:, :, None] - scores[:, None])  # gamma_t - f
    pull = np.exp(-f) * p * above  # (examples, tokens)
    return np.einsum("it,itd,ie->de", pull, X, z) / len(y)  # -grad L, (2, 2)


print(descent_direction(np.zeros((2, 2))).round(3))

# %% [markdown]
# ## One step, and ten thousand
#
# Normalised gradient descent (NGD, Eq. 4 of paper A) goes a fixed length $\eta$ downhill.
#
# $$W_{t+1} = W_t - \eta\, \frac{\nabla L(W_t)}{\|\nabla L(W_t)\|} .$$
#
# We start in a wrong direction on purpose. Watch the weight of the [opt tokens](words.md): it goes to one.


# %%
def train(steps, step_size, normalised=True):
    path = [start]
    for _ in range(steps):
        downhill = descent_direction(path[-1])
        length = np.linalg.norm(downhill) if normalised else 1.0
        path.append(path[-1] + step_size * downhill / length)
    return np.array(path)  # (steps + 1, 2, 2)


if steps < 2000:
    raise ValueError(f"steps = {steps}; the last decade is fitted and drawn, so give 2000 or more")
start = np.array([[1.5, 1.5], [-1.0, 1.0]])  # in a wrong direction, on purpose
path = train(steps, step_size)
for t in (0, 10, 100, 1000):
    weights, length = attend(path[t])[[0, 1], opt], np.linalg.norm(path[t])
    print(f"{t:5} weight of opt {weights.round(4)} norm {length:.2f}")

# %% [markdown]
# ## Where does it go?
#
# Paper A answers for data that satisfy its assumptions. $\tilde O$ leaves out powers of $\log t$; $W_{mm}$ is defined right after.

# %%
statements.quoted("A", STATEMENTS, "Assumption 1", "Assumption 2", "Theorem 1")

# %% [markdown]
# Does this page satisfy them? Equal scores of the other tokens: yes, see the printed scores. Nearly
# orthogonal tokens: no, the first two of example 1 are parallel, and neither is the opt token. A small start: no, so that there is something
# to see. So the theorem promises nothing here. The direction nears, all the same, as we measure below, that of
#
# $$W_{mm} = \arg\min_W \|W\|_F \quad\text{subject to}\quad (x_{i,opt} - x_{i,t})^\top W z_i \ge 1 \ \text{ for all } i,\ t \ne opt_i .$$
#
# In words: the smallest matrix under which the logit of every opt token is at least 1 above that of every other token of its example.
# It is a support vector machine (SVM) without a bias. Its data points are matrices, each made from a pair of tokens, opt and another: $A_{i,t} = (x_{i,opt} - x_{i,t})\,z_i^\top$. The *margin* of a
# pair is $g_{i,t} = \langle A_{i,t}, W\rangle$, the left side above.
#
# Why this one? Put $f=\sum_sp_s\gamma_s$ into the gradient's sum of one example, and join the terms of $(s,t)$ and $(t,s)$:
#
# $$\sum_t p_t(\gamma_t-f)\,x_t=\tfrac12\sum_{s,t}p_sp_t(\gamma_s-\gamma_t)(x_s-x_t) .$$
#
# Tokens other than opt have equal scores, so a pair of two of them drops out; only pairs with opt remain. So $-\nabla L$ is a sum of the $A_{i,t}$ with positive weights, proportional to $e^{-f_i}\,p_{opt}\,p_t\,(\gamma_{opt}-\gamma_t)$.
# As $p_t=p_{opt}\,e^{-g}$, late in training a pair whose margin is larger by $\delta$ counts $e^{-\delta}$ times as much, up to bounded factors: only pairs of nearly the smallest margin count. The SVM's solution, too, is a sum of
# the $A_{i,t}$ of smallest margin with weights $\ge0$, as shown below. That alone does not make the two sums agree: [notebook 40](40_law_of_margins.ipynb) shows
# why their weights become proportional.
#
# **By eye.** The queries are $z_1 = (1, 0)$ and $z_2 = (0, 1)$, so $W z_i$ is column $i$ of $W$, and
# the two columns can be found apart.
#
# * Column 1: the differences $x_{opt} - x_t$ are $(-1, 1)$ and $(-2, 1)$. The shortest vector with
#   product at least 1 with the first is $(-\frac12, \frac12)$. Its product with the second is
#   $\frac32$: satisfied, with room to spare.
# * Column 2: the differences are $(1, -2)$ and $(-1, -2)$. By symmetry the answer is $(0, -\frac12)$.
#   Both products are 1: both constraints bind. Such pairs are called *support vectors*.
#
# **Proof, in three lines.** Three conditions (Karush, Kuhn, Tucker) make a matrix $V$ the smallest:
#
# 1. its margins are at least 1;
# 2. $V=\sum\beta_{i,t}A_{i,t}$ with weights $\beta_{i,t}\ge0$, the [duals](words.md);
# 3. a weight is 0 where the margin is above 1.
#
# Take any $W$ with margins $g_{i,t}\ge1$. By 2, $\langle V,W\rangle=\sum\beta_{i,t}\,g_{i,t}\ge\sum\beta_{i,t}$; by 2 and 3, $\langle V,V\rangle=\sum\beta_{i,t}$. So $\langle V,W\rangle\ge\langle V,V\rangle$, and by Cauchy-Schwarz $\lVert W\rVert\ge\lVert V\rVert$, with equality for $W=V$ alone.
# Here column 1 is half of $(-1,1)$, and column 2 an eighth of $(1,-2)+(-1,-2)$.

# %%
W_mm = np.array([[-0.5, 0.0], [0.5, -0.5]])
beta = np.array([[1 / 2, 0], [1 / 8, 1 / 8]])
A = np.einsum("itd,ie->itde", X[[0, 1], opt][:, None] - X[:, :2], z)  # opt is the third token
margins = np.einsum("itde,de->it", A, W_mm)
assert (margins >= 1).all()
assert (beta >= 0).all() and (np.einsum("it,itde->de", beta, A) == W_mm).all()
assert (beta * (margins - 1) == 0).all()
print(margins)

# %%
unit = path[1:] / np.linalg.norm(path[1:], axis=(1, 2), keepdims=True)
error = np.linalg.norm(unit - W_mm / np.linalg.norm(W_mm), axis=(1, 2))
for t in (1, 10, 100, 1000, steps):
    print(t, f"direction error: {error[t - 1]:.4f}, times ||W||: {error[t - 1] * np.linalg.norm(path[t]):.3f}")

# %% [markdown]
# ## The same from the library
#
# `lib` trains many problems in one call, and keeps logarithms, so that a vanishing gradient loses no digits. It must give the same
# numbers. By the proof above, for every $\beta\ge0$, no matrix with margins of at least 1 is smaller than $\sum\beta/\lVert\sum\beta A\rVert$. The *duality gap* is how far $\|W\|$ lies above
# that, as a share of $\|W\|$. Last come three
# [claims](words.md): each compares a measured number with a bound, ours or that of the theorem, whose hypotheses do not hold here.

# %%
data = lib.token_set(X, y, z, u)
target = lib.token_svm(data)
goal = {"start": start[None], "targets": {"W_mm": target}}
history = lib.train(data, lib.NGD(step_size), steps, **goal)
at = history.iterations[1:] - 1
np.testing.assert_allclose(target.W[0], W_mm, atol=1e-9)
np.testing.assert_allclose(history.norm[0, -1], np.linalg.norm(path[-1]), rtol=1e-9)
np.testing.assert_allclose(history.direction_error["W_mm"][0, 1:], error[at], atol=1e-9)
print("duality gap of the library's solution:", f"{target.gap.max():.0e}")

# %% tags=["nbval-check-output"]
late = np.arange(steps // 10, steps + 1)
slope = np.polyfit(np.log(late), np.log(error[late - 1]), 1)[0]
table = claims.Table([
    claims.at_least("opt", "softmax weight of the opt token at the end, smaller of the two",
                    "paper A, Lemma 1, outside its hypotheses (our constant)", attend(path[-1])[[0, 1], opt].min(), 0.999),
    claims.at_most("direction", "direction error at the end", "paper A, Theorem 1, outside its hypotheses (our constant)", error[-1], 0.01),
    claims.at_most("rate", "its exponent in t over the last decade", "paper A, Theorem 1, outside its hypotheses", slope, -0.5),
])  # fmt: skip
table

# %% [markdown]
# ## What it looks like
#
# Look at the left and the middle: each curve is $W_t z_i$, a column of $W_t$, from its start (circle) on. A logit is the product of a token
# with it, so both live in the plane of the tokens. Each curve runs off beside the dashed ray, the direction of $W_{mm} z_i$. The distance of
# $W_t$ from its ray, too, stays bounded while $W_t$ grows ([notebook 40](40_law_of_margins.ipynb) says why), so its angle shrinks. Look at the right: the *direction error*, the distance of the two directions, falls like $1/\|W_t\|$.


# %%
def shortened(v):
    """The points of v with the same directions, their lengths r drawn as log(1 + r)."""
    length = np.linalg.norm(v, axis=-1, keepdims=True)
    return v * np.log1p(length) / np.maximum(length, 1e-12)


def draw(axis, i):
    best = plots.look("best token").colour
    axis.scatter(*shortened(X[i]).T, color=plots.GREY, s=14, zorder=3, label="token")
    axis.scatter(*shortened(X[i, opt[i]]), color=best, s=60, marker="*", zorder=4, label="opt token")
    ray = shortened(np.outer([0, 150], W_mm @ z[i] / np.linalg.norm(W_mm @ z[i])))
    axis.plot(*ray.T, label="direction of $W_{mm} z_i$", **plots.BOUND)
    walked = shortened(path @ z[i])
    blue = plots.look("measured").colour
    axis.plot(*walked.T, color=blue, label="$W_t z_i$")
    axis.plot(*walked[0], "o", color=blue, markersize=4)
    axis.set(title=f"Example {i + 1}", aspect="equal", xticks=[], yticks=[])
    axis.set(xlabel="first coordinate", ylabel="second coordinate")


figure, axes = plots.panels(1, 3, height=2.6)
draw(axes[0], 0)
draw(axes[1], 1)
plots.legend(figure, axes[0])
axes[2].loglog(np.arange(1, steps + 1), error, color=plots.look("NGD").colour)
plots.power_law(axes[2], (1_000, steps), -1, 2 * error[1_000], "$1/t$")
axes[2].text(4_000, error[1_000], "$1/t$", color=plots.GREY)
axes[2].set(xlabel="iteration $t$", title="Direction error")
blue = plots.look("NGD").colour
pieces.end_labels(axes[2], [(error[-1], f"{error[-1]:.4f}", blue)])
pieces.beside(axes[2], 2_000, error[1_999], f"$t^{{{slope:.2f}}}$", blue, (-6, -2))
plots.caption(
    figure,
    "Ours: two examples of three tokens, NGD from a wrong start (circle); lengths on a log scale",
)

# %% [markdown]
# ## What we saw
#
# The softmax weight of the opt token nears 1, and the matrix $W$ keeps growing. Its direction nears that of the max-margin
# matrix, which we found by hand, without training.
#
# ## Change this
#
# Predict first, then run.
#
# 1. Ten times the step. *Prediction:* the same direction after a tenth of the iterations?

# %%
longer = train(steps // 10, 10 * step_size)[-1]
print(np.round(longer / np.linalg.norm(longer), 3), "against", np.round(unit[-1], 3), sep="\n")

# %% [markdown]
# <details><summary>Answer</summary>
#
# It is: the norm grows by about one step length an iteration, so both are about equally long, and the error goes by the length.
#
# </details>
#
# 2. Plain gradient descent instead of normalised steps. The gradient vanishes as $W$ grows.
#    *Prediction:* how large is $\|W\|$ after the same number of iterations: as large, half, a tenth?

# %%
plain = train(steps, step_size, normalised=False)[-1]
print(f"GD: {np.linalg.norm(plain):.2f}, NGD: {np.linalg.norm(path[-1]):.2f}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Far less than a tenth. GD's steps shrink with the gradient, like $e^{-g}$ in the smallest margin $g$: its norm grows like $\log t$, that of NGD like $t$.
#
# </details>
#
# 3. Move the second token of example 1, which is not a support vector, a little. *Prediction:* does
#    $W_{mm}$ change? Then move it to $(-1, 0)$, on the other side of the opt token. Does it now?

# %%
for moved in ((1.8, 0.0), (-1.0, 0.0)):
    tokens = X.copy()
    tokens[0, 1] = moved
    print(moved, lib.token_svm(lib.token_set(tokens, y, z, u)).W[0].round(3).tolist())

# %% [markdown]
# <details><summary>Answer</summary>
#
# The first move changes nothing: the token's constraint stays satisfied with room to spare. The second
# makes it a support vector, and column 1 changes.
#
# </details>
#
# 4. The trap. Compute $\gamma_t - f$ of the opt tokens by subtraction, as one would at first.
#    *Prediction:* what is left of it after 2,500 iterations?

# %%
p = attend(path[min(2500, steps)])
f = (p * scores).sum(1, keepdims=True)
print("by subtraction", (scores - f)[:, 2])
print("by differences of scores", (p * (scores[:, 2:] - scores)).sum(1))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Nothing: subtraction gives exactly zero. The differences of scores keep all digits.
#
# </details>
#
# **Next.** Notebook 10 has random problems in high dimension, five update rules, and one of your own. Notebook 01 has sliders.

# %% tags=["set-up"]
# Set-up, no need to read.
about = "Two examples of three tokens in the plane (ours), trained by normalised gradient descent from a start in a wrong direction. Left and middle: $W_t z_i$ over the first 700 iterations, and the direction of $W_{mm} z_i$. Right: the distance of the directions of $W_t$ and $W_{mm}$. One problem, no randomness."
numbers = dict(end=error[-1], exponent=slope)
run.keep(figure, "fastrates_by_hand", about, table, numbers)
