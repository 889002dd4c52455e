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
# **Question.** A softmax attention layer reads a few tokens and answers yes or no. We train it on two examples. Which tokens does it learn to look at, and where does its weight matrix go?
#
# ![An arrow, the direction of the weights, turns to a dashed ray while one token of each example grows and the others shrink](../figures/turning.gif)
#
# In the film, a token grows with the weight that the layer gives it. The arrow is the direction of the weight matrix. It turns and then settles on the dashed ray. By the end of this page you can compute this ray with a pencil, without any training.
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
# | $X_i$ | the tokens $x_{i,1}, x_{i,2}, x_{i,3}$ of example $i$, one per row | 3 x 2 |
# | $y_i$ | its label, $+1$ or $-1$ | |
# | $z_i$ | its query, the vector that the tokens are compared with; here the first token | 2 |
# | $u$ | the head, which turns a token into a number; it stays fixed on this page | 2 |
# | $W$ | the attention weights, which we train | 2 x 2 |
#
# The index $t$ counts tokens in $x_{i,t}$, and training steps in $W_t$.

# %%
X = np.array([[[1, 0], [2, 0], [0, 1]],
              [[0, 1], [2, 1], [1, -1]]], float)  # fmt: skip
y = np.array([1.0, -1.0])
z = X[:, 0]  # (2 examples, 2)
u = np.array([0.0, 1.0])

# %% [markdown]
# ## The layer
#
# The query gives each token a *logit* $x_{i,t}^\top W z_i$. Softmax turns the logits of an example into positive weights that sum to one. The layer answers with the head's value of the weighted mean token:
#
# $$f_i = y_i\, u^\top X_i^\top p_i, \qquad p_i = \mathrm{softmax}(X_i W z_i).$$
#
# We multiply by the label, so that a large $f_i$ is a good answer. At $W = 0$ each of the three weights $p_{i,t}$ is 1/3.


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
# The *score* of a token is the answer that the layer would give if it looked at this token alone: $\gamma_{i,t} = y_i u^\top x_{i,t}$. The token with the highest score is called the *opt token*, and its index is $opt_i$. In both examples it is the last token, with score 1.

# %%
scores = y[:, None] * (X @ u)  # (examples, tokens)
opt = scores.argmax(1)
print("scores", scores.tolist())
print("opt", opt, "(counted from 0)")

# %% [markdown]
# ## Loss and gradient
#
# The loss $L(W) = \frac12 \sum_i e^{-f_i}$ falls when an answer improves. The chain rule gives its gradient. Since $f_i=\sum_t p_{i,t}\gamma_{i,t}$, the derivative of $f_i$ with respect to the logit of token $t$ is $p_{i,t}(\gamma_{i,t} - f_i)$. So it pays to raise the logit of a token that scores above the present answer, and to lower the others. The derivative of a logit with respect to $W$ is $x_{i,t} z_i^\top$. Together:
#
# $$-\nabla L = \frac12 \sum_i e^{-f_i} \sum_t p_{i,t}(\gamma_{i,t} - f_i)\; x_{i,t}\, z_i^\top .$$
#
# There is one trap. Once $p_{opt}$ is nearly 1, $\gamma_{opt} - f$ is the difference of two nearly equal numbers and loses its digits. So we sum differences of scores instead: $\gamma_t - f = \sum_s p_s (\gamma_t - \gamma_s)$.


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
# Normalised gradient descent (NGD) walks a fixed length $\eta$ downhill in every step:
#
# $$W_{t+1} = W_t - \eta\, \frac{\nabla L(W_t)}{\|\nabla L(W_t)\|} .$$
#
# We start in a wrong direction on purpose. Watch the weights of the opt tokens, the norm of $W$, and its direction $W/\lVert W\rVert$.


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
for t in (0, 10, 100, 1000, steps):
    weights, length = attend(path[t])[[0, 1], opt], np.linalg.norm(path[t])
    print(f"{t:6} weight of opt {weights.round(4)}  norm {length:6.2f}  direction {(path[t] / length).ravel().round(3)}")

# %%
weights = np.array([attend(W)[[0, 1], opt] for W in path])  # (steps + 1, 2)
entries = (path / np.linalg.norm(path, axis=(1, 2), keepdims=True)).reshape(-1, 4)
first_look, (weight_axis, entry_axis) = plots.panels(1, 2)
weight_axis.semilogx(range(1, steps + 1), weights[1:], color=plots.look("NGD").colour)
entry_axis.semilogx(range(1, steps + 1), entries[1:], color=plots.look("NGD").colour)
weight_axis.set(title="Weight of the opt token", xlabel="iteration $t$")
entry_axis.set(title="The four entries of $W_t/\\|W_t\\|$", xlabel="iteration $t$")
first_look

# %% [markdown]
# The weights of the opt tokens go to one, and the norm grows on and on. But the direction converges: four numbers turn, and then stay. Which numbers are they?
#
# ## Find the direction by eye
#
# Suppose we want the opt token to beat every other token of its example by a logit of at least 1. Many matrices do that. The smallest of them is
#
# $$W_{mm} = \arg\min_W \|W\|_F \quad\text{subject to}\quad (x_{i,opt} - x_{i,t})^\top W z_i \ge 1 \ \text{ for all } i,\ t \ne opt_i .$$
#
# This is a *support vector machine* (SVM) without a bias. Its data points are the matrices $A_{i,t} = (x_{i,opt} - x_{i,t})\,z_i^\top$, one for each pair of the opt token and another token. The left side of the constraint is the *margin* of the pair, $g_{i,t} = \langle A_{i,t}, W\rangle$.
#
# Here we can solve it with a pencil. The queries are $z_1 = (1, 0)$ and $z_2 = (0, 1)$, so $W z_i$ is column $i$ of $W$, and each example constrains one column alone.
#
# * *Column 1.* The differences $x_{opt} - x_t$ are $(-1, 1)$ and $(-2, 1)$. The shortest vector whose product with the first is at least 1 is $(-\frac12, \frac12)$. Its product with the second is $\frac32$, so this constraint holds with room to spare.
# * *Column 2.* The differences are $(1, -2)$ and $(-1, -2)$. By symmetry the shortest vector is $(0, -\frac12)$. Both products are exactly 1. Such pairs are called *support vectors*.
#
# In the picture, each constraint allows a half-plane, which is shaded. The darker region satisfies both constraints, and the arrow is its point nearest to zero.


# %%
arrow = {"arrowstyle": "-|>", "color": plots.BLACK, "shrinkA": 0, "shrinkB": 0}


def constraints(axis, i, shortest):
    columns = np.stack(np.meshgrid(*[np.linspace(-1.5, 1.5, 301)] * 2), -1)  # (301, 301, 2)
    differences = X[i, opt[i]] - X[i, :2]  # (2 other tokens, 2)
    for allowed in np.moveaxis(columns @ differences.T >= 1, -1, 0):
        axis.contourf(columns[..., 0], columns[..., 1], allowed, [0.5, 1.5], colors=[plots.GREY], alpha=0.3)
    axis.annotate("", shortest, (0, 0), arrowprops=arrow)
    axis.set(title=f"Column {i + 1} of $W$", aspect="equal")
    axis.set(xlabel="first entry", ylabel="second entry")


by_eye, (first_column, second_column) = plots.panels(1, 2)
constraints(first_column, 0, (-0.5, 0.5))
constraints(second_column, 1, (0.0, -0.5))
by_eye

# %% [markdown]
# Is it really the smallest? A matrix $V$ is the smallest if three conditions hold (Karush, Kuhn and Tucker):
#
# 1. its margins are at least 1;
# 2. $V=\sum\beta_{i,t}A_{i,t}$ with weights $\beta_{i,t}\ge0$, the *duals*;
# 3. a dual is 0 if its margin is above 1.
#
# <details><summary>Proof</summary>
#
# Take any $W$ with margins $g_{i,t}\ge1$. By 2, $\langle V,W\rangle=\sum\beta_{i,t}\,g_{i,t}\ge\sum\beta_{i,t}$. By 2 and 3, $\langle V,V\rangle=\sum\beta_{i,t}$. So $\langle V,W\rangle\ge\langle V,V\rangle$, and by Cauchy-Schwarz $\lVert W\rVert\ge\lVert V\rVert$, with equality for $W=V$ alone.
#
# </details>
#
# Here column 1 is half of $(-1,1)$, and column 2 is an eighth of $(1,-2)+(-1,-2)$. The code checks all three conditions.

# %%
W_mm = np.array([[-0.5, 0.0], [0.5, -0.5]])
beta = np.array([[1 / 2, 0], [1 / 8, 1 / 8]])
A = np.einsum("itd,ie->itde", X[[0, 1], opt][:, None] - X[:, :2], z)  # opt is the third token
margins = np.einsum("itde,de->it", A, W_mm)
assert (margins >= 1).all()
assert (beta >= 0).all() and (np.einsum("it,itde->de", beta, A) == W_mm).all()
assert (beta * (margins - 1) == 0).all()
print(margins)

# %% [markdown]
# ## Is this where training goes?
#
# The *direction error* is the distance between the unit matrices $W_t/\lVert W_t\rVert$ and $W_{mm}/\lVert W_{mm}\rVert$. We print it, and its product with the norm of $W_t$.

# %%
unit = path[1:] / np.linalg.norm(path[1:], axis=(1, 2), keepdims=True)
error = np.linalg.norm(unit - W_mm / np.linalg.norm(W_mm), axis=(1, 2))
for t in (1, 10, 100, 1000, steps):
    print(t, f"direction error: {error[t - 1]:.4f}, times ||W||: {error[t - 1] * np.linalg.norm(path[t]):.3f}")
late = np.arange(steps // 10, steps + 1)
slope = np.polyfit(np.log(late), np.log(error[late - 1]), 1)[0]
print(f"over the last decade the error falls like t^{slope:.2f}")

# %% [markdown]
# The error goes to zero, and the product stays bounded: the error falls like $1/\lVert W_t\rVert$. In the film, each arrow $W_t z_i$ grows beside the dashed ray of $W_{mm}$, at a bounded distance, so its angle to the ray shrinks. On the left, the weight of the best token of each example rises to one. On the right, the direction error falls in the end as steeply as the short dashed line, like $1/t$.

# %%
figure, (weight_axis, error_axis) = plots.panels(1, 2, height=2.8)
iterations = np.arange(1, steps + 1)
for i, dash in enumerate(("-", "--")):
    weight_axis.plot(iterations, weights[1:, i], dash, color=plots.look("best token").colour)
    reached = int((weights[:, i] > 0.5).argmax())
    place = (-4, 4) if i == 1 else (5, -4)
    pieces.beside(weight_axis, reached, 0.5, f"example {i + 1}", plots.look("best token").colour, place)
plots.threshold(weight_axis, 1 / 3, "equal weights", at=0.02)
weight_axis.set(title="Weight of the best token", xscale="log", xlabel="iteration $t$", xlim=(1, steps))
weight_axis.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
blue = plots.look("measured").colour
error_axis.plot(iterations, error, color=blue)
plots.slope(error_axis, (steps / 10, 0.9 * steps), -1, error[steps // 10 - 1] / 2, "$1/t$, slope only", (-5, -5))
error_axis.set(title="Distance of the direction from that of $W_{mm}$")
error_axis.set(xscale="log", yscale="log", xlabel="iteration $t$", xlim=(1, steps))
pieces.end_labels(error_axis, [(error[-1], f"$t^{{{slope:.2f}}}$", blue)], 8.5)
plots.caption(figure, "Ours: two examples of three tokens, normalised GD from a wrong start")

# %% [markdown]
# ## Why this matrix?
#
# Put $f=\sum_sp_s\gamma_s$ into the gradient's sum of one example, and join the terms of $(s,t)$ and $(t,s)$:
#
# $$\sum_t p_t(\gamma_t-f)\,x_t=\tfrac12\sum_{s,t}p_sp_t(\gamma_s-\gamma_t)(x_s-x_t) .$$
#
# The tokens other than opt have equal scores here, so only pairs with the opt token remain. Hence $-\nabla L$ is a sum of the $A_{i,t}$ with positive weights. Such a weight is proportional to $p_t=p_{opt}\,e^{-g}$. So late in training, a pair whose margin is larger by $\delta$ counts about $e^{-\delta}$ times as much, and only the pairs of nearly the smallest margin matter. The SVM's solution is a sum of exactly such pairs. Why the weights of both sums also become proportional is the subject of [notebook 40](40_law_of_margins.ipynb).
#
# ## What we saw
#
# The layer learns to read the one token of each example that alone would give the best answer. Its weight matrix grows without end, but its direction converges. We found the limit by hand: it is the direction of the smallest matrix that lets these tokens win. Does this also happen for random data in 300 dimensions, and how fast? That is the question of [notebook 10](10_fixed_decoder.ipynb).
#
# ## What the theorem says, and why it does not apply here
#
# Paper A (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738) proves this convergence under assumptions. ($\tilde O$ leaves out powers of $\log t$.)

# %%
statements.quoted("A", STATEMENTS, "Assumption 1", "Assumption 2", "Theorem 1")

# %% [markdown]
# Do our two examples satisfy them? The scores of the other tokens are equal, so Assumption 2 holds. But the first two tokens of example 1 are parallel, which is far from nearly orthogonal, and our start is not small. So the theorem promises nothing here, and the direction converges all the same. The support vector machine is due to arXiv 2306.13596 and, for a matrix $W$, to 2308.16898.
#
# ## Change this
#
# Predict first, then run.
#
# 1. Take ten times the step size. *Prediction:* do you get the same direction after a tenth of the iterations?

# %%
longer = train(steps // 10, 10 * step_size)[-1]
print(np.round(longer / np.linalg.norm(longer), 3), "against", np.round(unit[-1], 3), sep="\n")

# %% [markdown]
# <details><summary>Answer</summary>
#
# You do. The norm grows by about one step length per iteration, so both matrices are about equally long, and the error depends on the length.
#
# </details>
#
# 2. Use plain gradient descent (GD) instead of normalised steps. The gradient vanishes as $W$ grows. *Prediction:* how large is $\|W\|$ after the same number of iterations: as large, half as large, or a tenth?

# %%
plain = train(steps, step_size, normalised=False)[-1]
print(f"GD: {np.linalg.norm(plain):.2f}, NGD: {np.linalg.norm(path[-1]):.2f}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Far less than a tenth. The steps of GD shrink with the gradient, like $e^{-g}$ in the smallest margin $g$. So the norm of $W$ grows like $\log t$ under GD, but like $t$ under NGD.
#
# </details>
#
# 3. Move the second token of example 1, which is not a support vector, a little. *Prediction:* does $W_{mm}$ change? Then move it to $(-1, 0)$, on the other side of the opt token. Does $W_{mm}$ change now?

# %%
for moved in ((1.8, 0.0), (-1.0, 0.0)):
    tokens = X.copy()
    tokens[0, 1] = moved
    print(moved, lib.token_svm(lib.token_set(tokens, y, z, u)).W[0].round(3).tolist())

# %% [markdown]
# <details><summary>Answer</summary>
#
# The first move changes nothing, because the token's constraint still holds with room to spare. The second move makes the token a support vector, and column 1 changes.
#
# </details>
#
# 4. Fall into the trap: compute $\gamma_t - f$ of the opt tokens by subtraction. *Prediction:* how much of it remains after 2,500 iterations?

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
# **Next.** [Notebook 10](10_fixed_decoder.ipynb) has random problems in high dimension, more update rules, and one of your own. [Notebook 01](01_explorer.ipynb) has sliders.

# %% tags=["set-up"]
# Set-up, no need to read.
data = lib.token_set(X, y, z, u)
target = lib.token_svm(data)
goal = {"start": start[None], "targets": {"W_mm": target}}
history = lib.train(data, lib.NGD(step_size), steps, **goal)
at = history.iterations[1:] - 1
np.testing.assert_allclose(target.W[0], W_mm, atol=1e-9)
np.testing.assert_allclose(history.norm[0, -1], np.linalg.norm(path[-1]), rtol=1e-9)
np.testing.assert_allclose(history.direction_error["W_mm"][0, 1:], error[at], atol=1e-9)
table = claims.Table([
    claims.at_least("opt", "softmax weight of the opt token at the end, smaller of the two",
                    "paper A, Lemma 1, outside its hypotheses (our constant)", attend(path[-1])[[0, 1], opt].min(), 0.999),
    claims.at_most("direction", "direction error at the end", "paper A, Theorem 1, outside its hypotheses (our constant)", error[-1], 0.01),
    claims.at_most("rate", "its exponent in t over the last decade", "paper A, Theorem 1, outside its hypotheses", slope, -0.5),
])  # fmt: skip
about = "Two examples of three tokens in the plane (ours), trained by normalised gradient descent from a start in a wrong direction. Left and middle: $W_t z_i$ over the first 700 iterations, and the direction of $W_{mm} z_i$. Right: the distance of the directions of $W_t$ and $W_{mm}$. One problem, no randomness."
numbers = dict(end=error[-1], exponent=slope)
run.keep(figure, "fastrates_by_hand", about, table, numbers)
