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
# *Page 1 of 11 · next: [10](10_fixed_decoder.ipynb) · 15 minutes · [words](words.md).* By the end, you will be able to write a softmax attention layer, its gradient and its training in 25 lines, and find by eye where it goes.
#
# **Question.** A softmax attention layer reads a few tokens and answers yes or no. We train it on two examples. Which tokens does it learn to look at, and in which direction does its weight matrix grow?
#
# In the film below, the size of a token shows the weight that the layer gives it. The arrow in each example is the weight matrix $W$ times the example's query $z_i$, and its length is drawn on a logarithmic scale. The arrow turns towards the dashed ray, whose direction you will compute with a pencil.
#
# ![In each example an arrow turns towards a dashed ray, while one token grows and the others shrink](../figures/turning.gif)

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
from companion import claims, plots, record
from papers import pieces

run = record.start("00_attention_by_hand", "A", globals())
if steps < 2000:
    raise ValueError(f"steps = {steps}; the last decade is fitted and drawn, so give 2000 or more")

# %% [markdown]
# ## Two examples, three tokens each
#
# | symbol | meaning | shape here |
# |---|---|---|
# | $X_i$ | the tokens $x_{i,1}, x_{i,2}, x_{i,3}$ of example $i$, one per row | 3 x 2 |
# | $y_i$ | its label, $+1$ or $-1$ | |
# | $z_i$ | its query, the vector with which the tokens are compared; here the first of the three tokens | 2 |
# | $u$ | the head, which turns a token into a number; it stays fixed on this page | 2 |
# | $W$ | the attention weights, which we train | 2 x 2 |
#
# The index $t$ counts tokens in $x_{i,t}$ and training steps in $W_t$.

# %%
X = np.array([[[1, 0], [2, 0], [0, 1]],
              [[0, 1], [2, 1], [1, -1]]], float)  # fmt: skip
y = np.array([1.0, -1.0])
z = X[:, 0]  # (2 examples, 2)
u = np.array([0.0, 1.0])

# %% [markdown]
# ## The layer
#
# The query gives each token a *logit* $x_{i,t}^\top W z_i$. Softmax turns the logits of an example into positive weights that sum to one. The head turns the weighted mean of the tokens into the answer:
#
# $$f_i = y_i\, u^\top X_i^\top p_i, \qquad p_i = \mathrm{softmax}(X_i W z_i).$$
#
# Because of the factor $y_i$, a large $f_i$ means a good answer.


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
# The *score* of a token is the answer $f_i$ that the layer gives if it looks at this token alone: $\gamma_{i,t} = y_i u^\top x_{i,t}$. The token with the highest score is the *opt token*, with index $opt_i$ (green in the film).

# %%
scores = y[:, None] * (X @ u)  # (examples, tokens)
opt = scores.argmax(1)
print("scores", scores.tolist())
print("opt", opt, "(counted from 0)")

# %% [markdown]
# ## Loss and gradient
#
# The loss $L(W) = \frac12 \sum_i e^{-f_i}$ falls when an answer improves. The derivative of the softmax weight $p_s$ with respect to the logit of token $t$ is $p_t(1-p_t)$ for $s=t$ and $-p_sp_t$ otherwise. So the derivative of $f_i=\sum_s p_{i,s}\gamma_{i,s}$ with respect to this logit is $p_{i,t}(\gamma_{i,t} - f_i)$: raising the logit of a token improves the answer if the token's score is above the present answer. The derivative of the logit with respect to $W$ is $x_{i,t} z_i^\top$. By the chain rule,
#
# $$-\nabla L = \frac12 \sum_i e^{-f_i} \sum_t p_{i,t}(\gamma_{i,t} - f_i)\; x_{i,t}\, z_i^\top .$$
#
# The code computes $\gamma_t - f$ as $\sum_s p_s (\gamma_t - \gamma_s)$; exercise 4 shows why.


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
# Every step of normalised gradient descent (NGD) goes along the negative gradient and has the same length $\eta$. (Lengths and norms of matrices are Frobenius norms, the square root of the sum of the squared entries.)
#
# $$W_{t+1} = W_t - \eta\, \frac{\nabla L(W_t)}{\|\nabla L(W_t)\|} .$$


# %%
def train(steps, step_size, normalised=True):
    path = [start]
    for _ in range(steps):
        downhill = descent_direction(path[-1])
        length = np.linalg.norm(downhill) if normalised else 1.0
        path.append(path[-1] + step_size * downhill / length)
    return np.array(path)  # (steps + 1, 2, 2)


start = np.array([[1.5, 1.5], [-1.0, 1.0]])  # in a wrong direction, on purpose
path = train(steps, step_size)
for t in (0, 10, 100, 1000, steps):
    weights, length = attend(path[t])[[0, 1], opt], np.linalg.norm(path[t])
    print(f"{t:6} weight of opt {weights.round(4)}  norm {length:6.2f}  direction {(path[t] / length).ravel().round(3)}")

# %%
weights = np.array([attend(W)[[0, 1], opt] for W in path])  # (steps + 1, 2)
entries = (path / np.linalg.norm(path, axis=(1, 2), keepdims=True)).reshape(-1, 4)
first_look, (entry_axis,) = plots.panels(1, 1, height=2.4)
places = ("row 1, column 1", "row 1, column 2", "row 2, column 1", "row 2, column 2")
ends = []
for place, values, like in zip(places, entries.T, plots.SERIES[:4], strict=True):
    entry_axis.semilogx(range(1, steps + 1), values[1:], **like.line)
    ends.append((values[-1], place, like.colour))
entry_axis.set(title="The four entries of $W_t/\\|W_t\\|$", xlabel="iteration $t$", xlim=(1, steps))
pieces.end_labels(entry_axis, ends)
first_look

# %% [markdown]
# The softmax weights of the opt tokens go to one, and after a while the norm of $W$ keeps growing, but the direction of $W$ converges. To which four numbers?
#
# ## Find the direction by eye
#
# Suppose we want the logit of the opt token to exceed that of every other token in its example by at least 1. The smallest matrix with this property is
#
# $$W_{mm} = \arg\min_W \|W\|_F \quad\text{subject to}\quad (x_{i,opt} - x_{i,t})^\top W z_i \ge 1 \ \text{ for all } i,\ t \ne opt_i .$$
#
# This is a *support vector machine* (SVM) without a bias. Its data points are the matrices $A_{i,t} = (x_{i,opt} - x_{i,t})\,z_i^\top$, one for each pair of the opt token and another token. The left-hand side is the *margin* of the pair, $g_{i,t} = \langle A_{i,t}, W\rangle$, the sum of the products of the entries of both matrices. If we scale every $W$ with positive margins so that its smallest margin is 1, the smallest $W$ has the largest margin relative to its norm. Hence $W_{mm}$ is called the *max-margin* matrix.
#
# Since $z_1 = (1, 0)$ and $z_2 = (0, 1)$, each example constrains one column of $W$, the column $W z_i$.
#
# * *Column 1.* The differences $x_{opt} - x_t$ are $(-1, 1)$ and $(-2, 1)$. The shortest vector whose inner product with the first difference is at least 1 is $(-\frac12, \frac12)$. Its inner product with the second is $\frac32$, so this constraint holds with room to spare.
# * *Column 2.* The differences are $(1, -2)$ and $(-1, -2)$. Mirroring the plane in the vertical axis swaps the two constraints, so the shortest vector lies on this axis: it is $(0, -\frac12)$. Both inner products are exactly 1. Pairs whose margin is exactly 1 are called *support vectors*.
#
# In the next figure, each shaded half-plane contains the columns that one constraint allows. The arrow ends at the point nearest to zero in the darker region, where both constraints hold.


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
# A matrix $V$ is this smallest matrix if three conditions hold (Karush, Kuhn and Tucker):
#
# 1. its margins are at least 1;
# 2. $V=\sum\beta_{i,t}A_{i,t}$ with weights $\beta_{i,t}\ge0$, the *duals*;
# 3. the dual of a pair is 0 if the margin of the pair is above 1.
#
# <details><summary>Proof</summary>
#
# Take any $W$ whose margins $g_{i,t}$ are at least 1. By condition 2, $\langle V,W\rangle=\sum\beta_{i,t}\,g_{i,t}\ge\sum\beta_{i,t}$. By conditions 2 and 3, $\langle V,V\rangle=\sum\beta_{i,t}$. So $\langle V,W\rangle\ge\langle V,V\rangle$, and by Cauchy-Schwarz $\lVert W\rVert\ge\lVert V\rVert$, with equality only if $W=V$.
#
# </details>
#
# Only the first column of $A_{1,t}$ is not zero: it is the difference $x_{opt}-x_t$. Column 1 of $W_{mm}$, $(-\frac12,\frac12)$, is half of the first difference $(-1,1)$, so the duals of example 1 are $\beta_1=(\frac12,0)$. In the same way, column 2, $(0,-\frac12)$, is an eighth of $(1,-2)+(-1,-2)$, so $\beta_2=(\frac18,\frac18)$.

# %%
W_mm = np.array([[-0.5, 0.0], [0.5, -0.5]])
beta = np.array([[1 / 2, 0], [1 / 8, 1 / 8]])
A = np.einsum("itd,ie->itde", X[[0, 1], opt][:, None] - X[:, :2], z)  # opt is the third token
margins = np.einsum("itde,de->it", A, W_mm)
assert (margins >= 1).all()
assert (beta >= 0).all() and (np.einsum("it,itde->de", beta, A) == W_mm).all()
assert (beta * (margins - 1) == 0).all()
print(margins)
print("direction of W_mm", (W_mm / np.linalg.norm(W_mm)).ravel().round(3))

# %% [markdown]
# ## Is this where training goes?
#
# Divided by its norm $\frac{\sqrt3}2$, $W_{mm}$ has the entries printed in the last line. After 10,000 steps, the entries of $W_t/\lVert W_t\rVert$ were $(-0.577, 0, 0.574, -0.581)$.
#
# The *direction error* is the distance between the normalised matrices $W_t/\lVert W_t\rVert$ and $W_{mm}/\lVert W_{mm}\rVert$.

# %%
unit = path[1:] / np.linalg.norm(path[1:], axis=(1, 2), keepdims=True)
error = np.linalg.norm(unit - W_mm / np.linalg.norm(W_mm), axis=(1, 2))
for t in (1, 10, 100, 1000, steps):
    print(t, f"direction error: {error[t - 1]:.4f}, times ||W||: {error[t - 1] * np.linalg.norm(path[t]):.3f}")
late = np.arange(steps // 10, steps + 1)
slope = np.polyfit(np.log(late), np.log(error[late - 1]), 1)[0]
print(f"over the last decade the error falls like t^{slope:.2f}")

# %% [markdown]
# The error goes to zero, while its product with $\lVert W_t\rVert$ hardly changes after step 1,000. So the error falls like $1/\lVert W_t\rVert$. To see why, we draw the film's arrows $W_tz_i$, the columns of $W_t$, at their true length. Each blue line is the path of an arrow's tip until step 1,000. The dashed ray has the direction of the corresponding column of $W_{mm}$.

# %%
blue = plots.look("measured").colour
rays = W_mm / np.linalg.norm(W_mm, axis=0)  # the columns of W_mm at length 1, as columns
true_length, axes = plots.panels(1, 2, height=2.8)
axes[0].set(xlim=(-11, 4), ylim=(-2, 11))
axes[1].set(xlim=(-7, 8), ylim=(-11.5, 1.5))
for i, axis in enumerate(axes):
    tips = path @ z[i]  # column i + 1 of every W_t, (steps + 1, 2)
    ray = rays @ z[i]
    axis.plot(*np.outer([0, 14], ray).T, **plots.BOUND)
    axis.plot(*tips[:1001].T, color=blue)
    print(f"column {i + 1}")
    for t in (0, 300, 1000, steps):
        nearest = max(tips[t] @ ray, 0) * ray  # the point of the ray nearest to the tip
        away, length = np.linalg.norm(tips[t] - nearest), np.linalg.norm(tips[t])
        place = "({:.2f}, {:.2f})".format(*tips[t])
        print(f"  step {t:6}: {place:18} length {length:6.2f}, {away:.3f} from its ray")
        if t <= 1000:
            axis.plot(*tips[t], "o", color=blue)
            pieces.beside(axis, *tips[t], f"step {t:,}", blue, (6, 3))
    axis.set(title=f"Column {i + 1} of $W_t$ and its ray", aspect="equal")
    axis.set(xlabel="first entry", ylabel="second entry")
for t in (1000, steps):
    nearest = (path[t] * W_mm).sum() / (W_mm**2).sum() * W_mm
    off = path[t] - nearest
    too_long = (off * rays).sum(0)  # along the ray of each column
    beside = np.linalg.norm(off - too_long * rays, axis=0)  # orthogonal to it
    print(f"step {t:6}: W_t minus the nearest multiple of W_mm has the length {np.linalg.norm(off):.3f};")
    print(f"  its columns, along their rays: {too_long.round(3)}, orthogonal to them: {beside.round(3)}")
true_length

# %% [markdown]
# Column 1 runs beside its ray: its distance from the ray is 0.46 both at step 1,000 and at step 10,000, while the column becomes twelve times as long. So the angle between the column and its ray falls to a twelfth. Column 2 reaches its ray.
#
# <details><summary>Why is the product of error and norm 0.966 and not 0.46?</summary>
#
# The direction error is the chord of the angle between $W_t$ and the ray of $W_{mm}$. For small angles, the chord times $\lVert W_t\rVert$ is the distance of $W_t$ from this ray. The lengths of the columns contribute to this distance, too: compared with the nearest matrix on this ray, column 1 is 0.49 too short and column 2 is 0.69 too long. Indeed, $0.462^2+0.490^2+0.693^2\approx0.966^2$.
#
# [Page 40](40_law_of_margins.ipynb) predicts 0.49 and 0.69 from the duals and from the factors $\kappa$ that we introduce below; together these two numbers contribute $\sqrt{0.490^2+0.693^2}\approx0.849$. The distance 0.46 is left over from the start and from the pair with room to spare, because the other pairs never move column 1 along $(1,1)$, the direction orthogonal to its ray.
#
# </details>

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
error_axis.plot(iterations, error, color=blue)
plots.slope(error_axis, (steps / 10, 0.9 * steps), -1, error[steps // 10 - 1] / 2, "$1/t$, slope only", (-5, -5))
error_axis.set(title="Distance of the direction from that of $W_{mm}$")
error_axis.set(xscale="log", yscale="log", xlabel="iteration $t$", xlim=(1, steps))
pieces.end_labels(error_axis, [(error[-1], f"$t^{{{slope:.2f}}}$", blue)], 8.5)
plots.caption(figure, "Ours: two examples of three tokens, normalised GD from a wrong start")

# %% [markdown]
# The weights of the opt tokens rise to one (left). A late step makes $W_t$ longer by nearly $\eta$, so eventually $\lVert W_t\rVert$ grows like $t$, and the error falls like $1/t$ (right). The fitted exponent is not yet $-1$, because $\lVert W_t\rVert$ grows 12-fold, not tenfold, in the last decade: early steps turned $W_t$ rather than lengthening it.
#
# ## Why this matrix?
#
# In the gradient, substitute $f=\sum_sp_s\gamma_s$ into the sum over the tokens of one example:
#
# $$\sum_t p_t(\gamma_t-f)\,x_t=\sum_{s,t}p_sp_t(\gamma_t-\gamma_s)\,x_t=\tfrac12\sum_{s,t}p_sp_t(\gamma_s-\gamma_t)(x_s-x_t) .$$
#
# (For the second equality, average the middle sum and the same sum with $s$ and $t$ swapped.) Here the other tokens have equal scores, so only the pairs with the opt token remain, and each appears twice. The margin $g$ of a pair is the difference of its two logits, so $p_t=p_{opt}\,e^{-g_t}$. Hence
#
# $$-\nabla L=\tfrac12\sum_{i,t}e^{-f_i}\,p_{i,opt}^2\,(\gamma_{i,opt}-\gamma_{i,t})\,e^{-g_{i,t}}A_{i,t}.$$
#
# All weights of the $A_{i,t}$ are positive. Late in training $p_{opt}\to1$ and $f_i\to\gamma_{i,opt}$, so
#
# $$-\nabla L\approx\tfrac12\sum_{i,t}\kappa_{i,t}\,e^{-g_{i,t}}A_{i,t},\qquad\kappa_{i,t}=e^{-\gamma_{i,opt}}(\gamma_{i,opt}-\gamma_{i,t}).$$
#
# <details><summary>The loss, and unequal scores</summary>
#
# Let $L^*=\frac12\sum_ie^{-\gamma_{i,opt}}$ be the loss if every $p_{opt}$ were 1. Since $\gamma_{i,opt}-f_i=\sum_tp_{i,t}(\gamma_{i,opt}-\gamma_{i,t})$ is small late in training, $e^{-f_i}\approx e^{-\gamma_{i,opt}}(1+\gamma_{i,opt}-f_i)$. With $p_{i,t}\approx e^{-g_{i,t}}$ this gives $L-L^*\approx\frac12\sum_{i,t}\kappa_{i,t}\,e^{-g_{i,t}}$. For $n$ examples, $\frac1n$ replaces $\frac12$.
#
# If the scores of the other tokens differ, pairs that do not contain the opt token contribute, too. But the factor of such a pair is a product of two small softmax weights ([page 13](13_assumptions_broken.ipynb)), so both approximations remain true.
#
# </details>
#
# If a pair's margin gets ahead of the other margins, its factor $e^{-g}$ becomes relatively small. A pair whose margin lags behind then gets nearly all of the push and catches up. So all pairs that are still pushed late in training have nearly the smallest margin.
#
# Now suppose that the direction of $W_t$ converges while $\lVert W_t\rVert\to\infty$. Then the start and the early steps become negligible, so the limit is a sum of $A_{i,t}$ with weights $\ge0$. If a pair's margin is not the smallest at the limit, this margin gets ahead without bound, so the pair's weight is zero. If we scale the limit so that its smallest margin is 1, it satisfies conditions 1 to 3, so it is $W_{mm}$.
#
# <details><summary>Why is the smallest margin of the limit positive?</summary>
#
# Let the limit be $V=\sum c_{i,t}A_{i,t}$ with $\lVert V\rVert=1$, and let $g$ be its smallest margin. Only pairs with the margin $g$ have a nonzero weight, so $1=\langle V,V\rangle=\sum c_{i,t}\langle A_{i,t},V\rangle=g\sum c_{i,t}$. Since the weights are not negative, $g>0$.
#
# </details>
#
# ## What we saw
#
# In each example, the layer learns to read the token that would give the best answer on its own. Its weight matrix keeps growing, in the direction of the smallest matrix for which the logits of these tokens exceed the other logits of their example by at least 1.
#
# <details><summary>Does paper A prove this?</summary>
#
# Paper A (arXiv 2402.05738) proves that the direction converges to that of $W_{mm}$ if the tokens are nearly orthogonal (its Assumption 1), the other tokens have equal scores (Assumption 2), and the start is small ([page 13](13_assumptions_broken.ipynb) quotes the theorem). Here these scores are equal, but two tokens of example 1 are parallel and the start is not small. So the theorem says nothing about this run.
#
# </details>
#
# ## Change this
#
# 1. Use ten times the step size. *Predict:* do you get the same direction after one tenth as many iterations?

# %%
longer = train(steps // 10, 10 * step_size)[-1]
print(np.round(longer / np.linalg.norm(longer), 3), "against", np.round(unit[-1], 3), sep="\n")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Yes. If the steps are short, NGD follows nearly the same curve for every step size, and the step size only determines how fast it moves along this curve.
#
# </details>
#
# 2. Use plain gradient descent (GD) instead of normalised steps. *Predict:* after the same number of iterations, is $\|W\|$ one half, one tenth or one fiftieth as large?

# %%
plain = train(steps, step_size, normalised=False)[-1]
print(f"GD: {np.linalg.norm(plain):.2f}, NGD: {np.linalg.norm(path[-1]):.2f}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# About one fiftieth as large. The steps of GD shrink with the gradient, like $e^{-g}$, where $g$ is the smallest margin. Near the ray of $W_{mm}$, whose own smallest margin is 1, $g$ is nearly $c\lVert W\rVert$ with $c=1/\lVert W_{mm}\rVert$. So, up to constant factors, $d\lVert W\rVert/dt=e^{-c\lVert W\rVert}$. The solution grows like $(\log t)/c$, whereas $\lVert W\rVert$ grows like $t$ under NGD.
#
# </details>
#
# 3. Move the second token of example 1 a little, and then to $(-1, 0)$. *Predict:* which of the two moves changes $W_{mm}$?

# %%
for moved in ((1.8, 0.0), (-1.0, 0.0)):
    tokens = X.copy()
    tokens[0, 1] = moved
    print(moved, lib.token_svm(lib.token_set(tokens, y, z, u)).W[0].round(3).tolist())

# %% [markdown]
# <details><summary>Answer</summary>
#
# After the first move, the constraint of the pair with the moved token still holds with room to spare, so $W_{mm}$ does not change. After the second move, this pair is a support vector, and column 1 of $W_{mm}$ changes.
#
# </details>
#
# 4. Compute $\gamma_t - f$ for the opt tokens by subtraction. *Predict:* how many digits of the result are correct after 2,500 iterations?

# %%
p = attend(path[min(2500, steps)])
f = (p * scores).sum(1, keepdims=True)
print("by subtraction", (scores - f)[:, 2])
print("by differences of scores", (p * (scores[:, 2:] - scores)).sum(1))

# %% [markdown]
# <details><summary>Answer</summary>
#
# None: $\gamma_{opt}$ and $f$ agree in all their digits, so subtraction gives exactly zero. The sum over differences of scores loses no digits.
#
# </details>
#
# [Page 01](01_explorer.ipynb) lets you vary the settings with sliders.

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
about = "Two examples of three tokens in the plane (ours), trained by normalised gradient descent from a start in a wrong direction. Left: the softmax weight of the opt token of each example. Right: the distance of the directions of $W_t$ and $W_{mm}$. One problem, no randomness."
numbers = dict(end=error[-1], exponent=slope)
run.keep(figure, "fastrates_by_hand", about, table, numbers)
