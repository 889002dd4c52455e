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
# # Mirror descent on attention chooses the geometry of the margin
#
# *Page 6 of 11 · before: [41](41_how_margins_settle.ipynb) · next: [44](44_atlas.ipynb) · 25 minutes · [words](words.md).* After it you can write a mirror step, and say which norm's margin it maximises.
#
# **Paper C** (*Optimizing Attention with Mirror Descent*, arXiv 2410.14581), **synthetic data of the authors' code**.
#
# In the end, training reads one *selected token* of each sample. Gradient descent turns attention towards the matrix that selects these tokens with the smallest *Euclidean* norm ([notebook 10](10_fixed_decoder.ipynb)).
#
# **Question.** Can another update rule choose another norm?

# %% tags=["parameters"]
# Set-up, no need to read.
scale = "demo"
seeds = 20
n, T, d = 6, 8, 10
exponents = [1.75, 2, 3]
iterations = [1500, 2000, 20000]
step_size = 0.1
path_seed = 1  # data of "One path"
first = 40  # so many first steps are recorded one by one

# %% tags=["set-up"]
# Set-up, no need to read.
import numpy as np

import lib
from companion import claims, record, statements
from papers.atlas.atlas import least_margins
from papers.c import figures, lemmas, section5
from papers.c.statements import STATEMENTS

run = record.start("30_mirror_descent", "C", globals())
steps = dict(zip(exponents, iterations, strict=True))
update_rules = {p: lib.MirrorDescent(p, step_size) for p in exponents}

# %% [markdown]
# ## The problem
#
# We train one attention layer $f_i = y_i\, u^\top X_i^\top \mathrm{softmax}(X_i W z_i)$ in $W$, with the logistic loss
# $L(W) = \frac1n \sum_i \log(1 + e^{-f_i})$. Here $X_i$ holds the tokens $x_{i,t}$ of sample $i$ as rows, $z_i$ is the query, $y_i=\pm1$ the label, and $u$ the fixed head.
#
# Let $\alpha_i$ be the selected token, that is, the token with the most weight at the last step. The *margin* $g_m=\langle A_m,W\rangle$ of a pair $m=(i,t)$ is the logit of $\alpha_i$ minus the logit of token $t$, so $A_m=(x_{i,\alpha_i}-x_{i,t})z_i^\top$.
# Many matrices make all margins positive, and $W$ keeps growing. So we compare matrices of equal size, and a norm decides what size is:
# $\lVert W\rVert_p = (\sum_{jk} \lvert W_{jk}\rvert^p)^{1/p}$ with $1 < p < \infty$. For $p$ near 1 a few large entries are cheap, and for large $p$ many equal entries are cheap.
#
# ![Balls of three norms grow until they touch the region where every margin is at least one; each touches at another matrix](drawings/balls.svg)
#
# ## The rule
#
# Gradient descent adds its step to $W$. *Mirror descent* adds its step to the *mirror image* $|W|^{p-1}\,\mathrm{sgn}(W)$, entry
# by entry, and then maps the result back:
#
# $$|W_{t+1}|^{p-1}\,\mathrm{sgn}(W_{t+1}) = |W_t|^{p-1}\,\mathrm{sgn}(W_t) - \eta\, \frac{\nabla L(W_t)}{\|\nabla L(W_t)\|_q} .$$
#
# The way back is the same map with the dual exponent $q = p/(p-1)$. For $p = 2$ the mirror image is $W$ itself, so the rule is normalised gradient
# descent. For $p<2$ an equal step moves a large entry of $W$ more than a small one, and for $p > 2$ it moves a large entry less.

# %%
def descent(data, W):
    return -lib.gradients(data, W[None], data.u, "logistic")[1][0]


def image(W, p):
    return np.sign(W) * np.abs(W) ** (p - 1)  # its inverse is image(., q)


def mirror_step(W, downhill, p):
    q = p / (p - 1)
    moved = image(W, p) + step_size * downhill / (np.abs(downhill) ** q).sum() ** (1 / q)
    return image(moved, q)


# %% [markdown]
# ## What the rule should converge to
#
# Which norm does this rule choose? We expect the solution of the SVM in $\ell_p$: $W_{mm}$ has the least $\ell_p$ norm among all $W$ with every
# $g_m\ge1$. Then $\gamma_p=1/\lVert W_{mm}\rVert_p$ is the largest smallest margin of a matrix of norm 1. (With an exponent as its index, $\gamma$ is a margin and not a score.)
#
# **Why?** The mirror image is the gradient $\nabla\psi(W)$ of the *potential* $\psi(W)=\lVert W\rVert_p^p/p$. Suppose that the direction of $W_t$ converges. Suppose also that a token whose margin is the smallest has a lower score than the selected token of its sample.
#
# 1. Each step adds a multiple of $-\nabla L$ to $\nabla\psi(W)$.
# 2. Late in training only pairs of smallest margin pull noticeably. So $\nabla\psi(W_t)$ grows along a sum of their $A_m$ with positive weights.
# 3. The solution of the SVM satisfies the same equation, $\nabla\psi(W_{mm})=\sum_m\beta_mA_m$, with positive weights on the pairs of smallest margin. [Only one direction](mirror_descent.md) solves this equation.
#
# **How do we see it?** We compare the direction of $W$ with $W_{mm}$ in two ways.
#
# * The *divergence* is $D_\psi=1-\langle\nabla\psi(U),V\rangle$, where $U$ is $W$ and $V$ is $W_{mm}$, each divided by its $\ell_p$ norm. It is 0 only if the directions are equal. For $p=2$ it is one minus the cosine. (The code below computes $\psi(V)-\psi(U)-\langle\nabla\psi(U),V-U\rangle$. This is the same number, because $\psi(U)=\psi(V)$ and $\langle\nabla\psi(U),U\rangle=1$.)
# * The *ratio* is $r_p(W)=\min_mg_m/(\lVert W\rVert_p\,\gamma_p)$, the share of the largest margin that $W$ has. It is at most 1. The ratio shows small errors more clearly than the divergence does, [as the note explains](mirror_descent.md).

# %%
def divergence(W_mm, W, p):
    V, U = (M / (np.abs(M) ** p).sum() ** (1 / p) for M in (W_mm, W))  # length 1 in l_p
    psi = [(np.abs(M) ** p).sum() / p for M in (V, U)]
    return psi[0] - psi[1] - (image(U, p) * (V - U)).sum()


def ratios(tokens, W, ends):
    """r_s of W (runs, d, d) for the tokens it selects, by the norm s of the SVMs in `ends`."""
    least = least_margins(tokens, lib.mirror.selected_tokens(tokens, W), W[:, None])[:, 0]
    return {s: least / lib.norm_of(W, s) * solved.norm for s, solved in ends.items()}


# %% [markdown]
# What does the paper state? Our copy lacks the formulas of these definitions and the theorem, so we restore them.
# In these statements $k$ counts steps, so $W(k)$ is our $W_t$, and $v$ is the head $u$. The cone
# $C$ holds the matrices of norm at least $R$ whose $D_\psi$ is at most $\mu$.

# %%
statements.quoted("C", STATEMENTS, "lp-AttGD", "Definition 1", "lp-AttSVM", "Definition 3")

# %%
statements.quoted("C", STATEMENTS, "Theorem, convergence")

# %% [markdown]
# As we restore it, the theorem requires [locally optimal](words.md) tokens and a start in a thin cone around $W_{mm}$. It does not cover normalised steps. Our experiments start
# anywhere and normalise, so we measure what happens. [Notebook 31](31_rates_and_basins.ipynb) looks at starts and rates.
#
# ## Two examples by hand
#
# [Notebook 00](00_attention_by_hand.ipynb) finds each column of $W_{mm}$ by eye, but in its example every $\ell_p$ norm has the same solution. So we move one token of its example 1 from $(2,0)$ to $(\frac12, 0)$. Now one
# constraint binds in column 1. It belongs to $c = (-\frac12, 1)$, the opt token minus the moved token. The vector $w$ of
# smallest $\ell_p$ norm with $c^\top w \ge 1$ has the entries
#
# $$w_j = \mathrm{sgn}(c_j)\,|c_j|^{q-1} \big/ \textstyle\sum_k |c_k|^q ,$$
#
# because it attains equality in Hölder's inequality. As $p$ falls, $w$ turns towards the larger entry of $c$. *Prediction:*
# training from zero approaches the direction of $w$.

# %%
pair, c = lib.two_examples(), np.array([-0.5, 1.0])
X = pair.X[0].copy()
X[0, 1] = 0.5, 0
by_hand = lib.token_set(X, pair.y[0], pair.z[0], pair.u[0])
runs_by_hand = lib.train(by_hand, update_rules, steps, loss="logistic")
paths_by_hand, solutions_by_hand = {}, {}
for p, history in runs_by_hand.items():
    q = p / (p - 1)
    w = np.sign(c) * np.abs(c) ** (q - 1) / (np.abs(c) ** q).sum()
    np.testing.assert_allclose(lib.token_svm(by_hand, norm=p).W[0][:, 0], w, atol=1e-6)
    path = history.W[0, :, :, 0] / np.linalg.norm(history.W[0, -1, :, 0])
    trained = path[-1, 1] / path[-1, 0]
    paths_by_hand[p], solutions_by_hand[p] = path, w
    print(f"p = {p:g}: w = {w.round(3)}, slope {w[1] / w[0]:.3f}; of W_t {trained:.3f}")
about_rays = "Two examples by hand, example 1, both weights of column 1 from zero; no randomness"
figure_rays = figures.rays(paths_by_hand, solutions_by_hand, about_rays)
figure_rays

# %% [markdown]
# Each curve is column 1 of $W_t$, scaled so that it ends at length 1. It runs along the dotted ray of its own exponent.
#
# ## Which SVM does each exponent find?
#
# Now we use the setting of the authors' code with our own seeds. For each data set, tokens, queries and the head are uniform on the unit sphere, labels are fair coins, and the entries of $W_0$ are standard normal. Larger exponents need more steps, because $\lVert W_t\rVert_p^{p-1}$ grows at most like
# $\eta t$ (last exercise).

# %%
data = lib.unit_tokens(range(seeds), n, T, d)
start = lib.mirror.gaussian_start(data, range(seeds))
histories = lib.train(data, update_rules, steps, start=start, loss="logistic")
ends = section5.end_points(data, histories)
same = section5.divergences(histories, ends)
own = section5.divergences(histories, ends, own_tokens=True)

# %% [markdown]
# In `same`, all SVMs have the tokens that the run itself selects. In `own`, each SVM has the tokens that training with the SVM's exponent selects.
#
# The page's own lines give the library's matrices and divergences.

# %%
for p, history in histories.items():
    k, W = int(np.searchsorted(history.iterations, 50)), start[0]
    for _ in range(history.iterations[k]):
        W = mirror_step(W, descent(data.run(0), W), p)
    np.testing.assert_allclose(W, history.W[0, k], rtol=1e-7, atol=1e-9)
    D = divergence(start[0], W, p)  # from the start: any direction will do here
    np.testing.assert_allclose(D, history.divergence(start, p)[0, k], rtol=1e-7, atol=1e-12)
    print(f"p = {p:g}: the same after {history.iterations[k]} steps, D from the start {D:.4f}")

# %% [markdown]
# ## Claims
#
# Which SVM is nearest, on average and in every run? And do our means agree with the means of another implementation?
# A [claim](words.md) holds if the measured number keeps its bound.
#
# In the table, each row is an exponent of training, and each column is the exponent of an SVM. Below the table you see how many runs have their largest ratio in
# their own norm, and how many runs select locally optimal tokens.

# %%
table = claims.Table(section5.bregman_claims(same, histories))
table

# %% tags=["nbval-check-output"]
means = {pair: values[:, -1].mean() for pair, values in same.items()}
print("p | mean last divergence from", *exponents, "| median ratio | own largest, locally optimal")
for p in exponents:
    W = histories[p].W[:, -1]
    share = ratios(data, W, ends[p])
    own_largest = np.sum(share[p] >= np.max([*share.values()], 0))
    optimal = lemmas.locally_optimal(lemmas.select(data, lib.mirror.selected_tokens(data, W), p)).sum()
    medians = "  ".join(f"{np.median(values):.3f}" for values in share.values())
    print(f"{p:4g} |", "  ".join(f"{means[p, s]:.4f}" for s in exponents),
          f"| {medians} | {own_largest}, {optimal} of {seeds}")  # fmt: skip

# %% [markdown]
# On the diagonals the divergence is smallest and the ratio largest, both in the run's own norm. But the ratio is below 1, most of all for $p=3$, whose $\lVert W\rVert_p$ grows slowest. [Notebook 43](43_map_of_the_constant.ipynb) shows how this gap
# shrinks as $\lVert W\rVert_p$ grows.
# In the larger run (desk scale) one check fails, `bregman.table.2`: our mean for $p = 2$ is twice the mean of the other implementation.
#
# In each panel of the figure, the lowest curve belongs to the panel's own exponent.

# %%
about = f"Paper C, authors' code, our seeds: n={n}, T={T}, d={d}; synthetic, {seeds} seeds, float64; lines: means, bands: 80 % of the runs"
figure = figures.divergences(histories, same, about)
figure

# %% [markdown]
# ## One path
#
# Here we follow the paths on one data set from $W_0 = 0$. Each path ends nearest to its own SVM, and its ratio is largest in its own norm. The path of
# $p = 3$ has about three quarters of the largest $\ell_3$ margin. For $p = 2$ and $p = 3$ the selected tokens are not locally optimal, so our "why" does not apply. [The note](mirror_descent.md) says why these paths cannot have ended. We do not know why they come so near.

# %%
single = lib.unit_tokens(path_seed, n, T, d)
paths = lib.train(single, update_rules, steps, loss="logistic")
path_ends = section5.end_points(single, paths)
for p, history in paths.items():
    share = ratios(single, history.W[:, -1], path_ends[p])
    print(f"trained with p = {p:4g}:", *(f"r_{s:g} = {r[0]:.3f} " for s, r in share.items()))
path_table = claims.Table(section5.path_claims(paths, path_ends))
path_table

# %% [markdown]
# ## Head and attention together
#
# $\ell_p$-JointGD moves $W$ and $u$ by the same rule, each with its own gradient norm. Both start at zero, on the two
# samples of the authors' code. If a gradient is zero, the parameter does not move. *Prediction:* $W$ turns to the $\ell_p$ token SVM. The head turns to the SVM that
# classifies the selected tokens, so it has the least $\lVert u\rVert_p$ with $y_iu^\top x_{i,\alpha_i}\ge1$.

# %%
joint_data = section5.joint_instance()
recorded = np.union1d(np.arange(first + 1), np.geomspace(first, max(iterations), 80).astype(int))
joint = lib.train(joint_data, update_rules, steps, recorded, head="joint", loss="logistic")
joint_ends = section5.end_points(joint_data, joint)
selected = {p: lib.mirror.selected_tokens(joint_data, history.W[:, -1]) for p, history in joint.items()}
heads = {p: lib.head_svm(joint_data, selected[p], p) for p in joint}
joint_table = claims.Table(section5.joint_claims(joint_data, joint, joint_ends, heads))
joint_table

# %% [markdown]
# Left: each path ends near the mark of its own SVM. The path of $p = 3$ misses its mark most, and it misses the mark of $u$ more than the mark of $W$. Its marks lie elsewhere, because training with $p = 3$ selects another token of the first sample, as in the authors' runs.
# Middle and right: both directions still turn after thousands of steps, long after the selection is made.

# %%
joint_about = "Paper C, the fixed instance of the authors' code: n=2, T=3, d=2, both from zero; float64"
joint_figure = figures.joint(joint, joint_ends, heads, joint_about)
joint_figure

# %% [markdown]
# ## What we saw
#
# ![In each panel one exponent is trained; the curve of its own SVM is the lowest](../figures/desk/mirror_bregman.png)
#
# *The larger run (desk [scale](words.md)) has 100 seeds, and this page has 20. Each panel trains one exponent. The curves show how far the direction of $W$ is from the solutions of three SVMs.*
#
# **Answer.** Yes, as far as these runs go: the exponent of mirror descent chooses the norm. Every run ends nearest to the
# SVM of its own exponent, for the tokens that it selects, and its largest ratio is in its own norm. The ratio is still below 1, so no run has reached its SVM.
#
# <details><summary>What this does not show</summary>
#
# Our copy of the paper has no version number. It contains a part of the appendix, but no main theorem and no experiments. For linear models the limit is known (arXiv 2205.12808). [The note](mirror_descent.md) says what we take from the authors' code.
#
# </details>
#
# ## Change this
#
# Predict first, then run.
#
# 1. A sparser geometry, `p = 1.2`. *Prediction:* a $p$ near 1 prefers few large
#    entries. How many entries of $W_t$ hold 90 % of $\sum_{jk} |W_{jk}|$?

# %%
def entries_for(share, W):
    size = np.sort(np.abs(W).ravel())[::-1]
    return int(np.searchsorted(np.cumsum(size), share * size.sum())) + 1


for p, count in ((1.2, 1000), (2, 2000), (3, 20000)):
    rule = lib.MirrorDescent(p, step_size)
    W = lib.train(single, rule, count, loss="logistic").W[0, -1]
    print(f"p = {p:g}: {entries_for(0.9, W)} of {W.size} entries hold 90 % of the sum")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The nearer $p$ is to 1, the fewer entries. This is already true after the first step, because the way back, $\lvert\cdot\rvert^{q-1}$, enlarges differences. So it tells us more about the map than about training.
#
# </details>
#
# **To prove.** Show that $\lVert W_t\rVert_p^{p-1} \le \eta t$ for the normalised rule from zero. [The note](mirror_descent.md) has the solution.

# %% tags=["set-up"]
# Set-up, no need to read.
def named(name, values):
    return {f"{name}_{p:g}".replace(".", "_"): value for p, value in values.items()}


means = {f"p{p:g}_q{s:g}".replace(".", "_"): mean for (p, s), mean in means.items()}
means |= {f"own_p{p:g}_q{s:g}".replace(".", "_"): values[:, -1].mean() for (p, s), values in own.items()}
last = {p: paths[p].divergence(path_ends[p][p].W, p)[0, -1] for p in exponents}
means |= named("path_divergence", last)
slope_off = [
    abs(path[-1, 1] / path[-1, 0] / (solutions_by_hand[p][1] / solutions_by_hand[p][0]) - 1)
    for p, path in paths_by_hand.items()
]
by_hand_setting = {"n": 2, "T": 3, "d": 2, "seeds": []}
run.keep(figure_rays, "mirror_rays", about_rays, [], {"worst_slope": max(slope_off)}, setting=by_hand_setting)
run.keep(figure, "mirror_bregman", about, [*table, *path_table], means)
last = {p: joint[p].divergence(joint_ends[p][p].W, p)[0, -1] for p in joint}
of_head = {p: joint[p].head_divergence(heads[p].value, p)[0, -1] for p in joint}
of, both = {"n": 2, "T": 3, "d": 2, "seeds": []}, named("divergence", last) | named("head", of_head)
run.keep(joint_figure, "mirror_joint", joint_about, joint_table, both, setting=of)
