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
# # What mirror descent on attention builds on: keys and queries, several tokens, the regularisation path
#
# *Side road of page [30](30_mirror_descent.ipynb) · 20 minutes · [words](words.md).* By the end, you will be able to say what changes if you train keys and queries, if several tokens of a sample are equally good, or if you follow the regularisation path.
#
# **Paper C** (*Optimizing Attention with Mirror Descent*, arXiv 2410.14581) **generalises** *Transformers as Support Vector
# Machines* (arXiv 2308.16898). This page tests results of the earlier paper, and paper C's **theorem on the regularisation path** (the path of the minimisers of the loss at growing norm).
#
# In [notebook 30](30_mirror_descent.ipynb) we train $W$ itself, and attention selects one token per sample.
#
# **Question.** What changes if we train keys and queries instead of $W$? What changes if, for some samples, a mixture of tokens is better than every single token? And what changes if, for each given norm, we minimise the loss completely?
#
# ## The statement
#
# We train the weights of one attention layer $f_i = y_i\, h(X_i^\top \mathrm{softmax}(X_i W z_i))$ with the logistic loss
# $L(W) = \frac1n \sum_i \log(1 + e^{-f_i})$. The head is $h(x) = u^\top x$ unless we say otherwise.
#
# | symbol | meaning | shape |
# |---|---|---|
# | $X_i$, $z_i$, $y_i$ | tokens $x_{i,t}$ (as rows), query and label of sample $i$ | $T \times d$, $d$, $\pm1$ |
# | $K$, $Q$ | key and query weights with $W = KQ^\top$ | $d \times d$ |
# | $\alpha_i$ | the token that sample $i$ selects in the end | |
# | $opt_i$ | the token with the largest score $y_iu^\top x_{i,t}$ | |
# | $O_i$ | the set of tokens that sample $i$ selects, if it selects several | |
# | $W_{mm}$ | the solution of the SVM for the tokens $opt_i$ in the norm $\lVert\cdot\rVert_{p,p}$ | $d \times d$ |
# | SVM in a norm | the problem of finding the $W$ of smallest norm $\lVert W\rVert$ with $(x_{i,\alpha_i} - x_{i,t})^\top Wz_i \ge 1$ for all $t \ne \alpha_i$ | $d \times d$ |
# | $\lVert W\rVert_*$, $\lVert W\rVert_F$, $\lVert W\rVert_{p,p}$ | nuclear norm (sum of singular values), Frobenius norm, $\ell_p$ norm of the entries | |
#
# **Hypotheses.** For the minimisers of the loss along a path of growing norm: the loss function is decreasing. With the head $u^\top x$, each sample has exactly one best token; we check this below. There is a $W$ that selects the tokens in question, so the SVM for these tokens has a solution; the solver checks this. For gradient descent this is not enough: its direction converges only to the solution for tokens that it selects, which depend on the start and need not be the best ones (the third figure shows this).
#
# | result | conclusion |
# |---|---|
# | $W$ trained | the direction of $W$ tends to that of the solution of the SVM in $\lVert\cdot\rVert_F$ |
# | $K$, $Q$ trained | the direction of $KQ^\top$ tends to that of a solution of the SVM in $\lVert\cdot\rVert_*$, with rank at most $\min(n, d)$ |
# | several tokens | the growing part of $W$ turns towards the matrix of smallest $\lVert W\rVert_F$ with $(x_{i,t} - x_{i,s})^\top Wz_i = 0$ for $t, s \in O_i$ and $\ge 1$ for $t \in O_i$, $s \notin O_i$ |
#
# The SVM in the nuclear norm can have several solutions; ours is the one that the solver returns.
#
# The earlier paper states the first two results for the minimisers of the loss along a path of growing norm. It states the first result for gradient descent as well. We measure the direction in which training ends, so for $(K,Q)$ our claims are a reading of the result.
#
# With several selected tokens, $W$ is a sum of two parts. One part stays finite and determines how the softmax weight is divided among the tokens of $O_i$. The other part grows and drives the weights of all other tokens to zero. A cell below prints paper C's theorem on the regularisation path.

# %% tags=["parameters"]
# Set-up, no need to read.
scale = "demo"
seeds = 8
n, T, d = 6, 8, 10
find_steps = 4000
exponents = [1.75, 2, 3]
pair_steps = 2000
rank_dimensions = [2, 3, 5, 8, 12]
rank_shapes = [[5, 5], [5, 10], [10, 5]]
several_dimensions = [4, 6, 8, 10]
rank_seeds, several_seeds, path_seeds = 3, 30, 3
path_multiples = [1, 2, 5, 10, 20, 50, 100]

# %% tags=["set-up"]
# Set-up, no need to read.
import numpy as np

from companion import claims, record, statements
from lib import attention
from lib.attention import tokens
from lib.seeds import stream
from papers.c import figures, predecessor
from papers.c.statements import STATEMENTS

run = record.start("32_predecessors", "C", globals())

# %%
statements.quoted("C", STATEMENTS, "Theorem, path")

# %% [markdown]
# ## Data
#
# Tokens and queries are drawn uniformly from the unit sphere, labels are random, and the head is a fixed unit vector. The settings follow the code of arXiv 2308.16898 as far as we know this code, but our sizes are smaller. The next cell checks that each sample has exactly one best token. To do so, it prints the smallest difference between the best and the second-best score of a sample, which must be positive.

# %%
each = range(seeds)
data = tokens.unit_tokens(each, n, T, d)
few = tokens.unit_tokens(range(path_seeds), n, T, d)
scores = np.sort(attention.scores(data, data.u), -1)  # (seeds, n, T)
print(f"smallest lead of a best token: {(scores[..., -1] - scores[..., -2]).min():.4f}")

# %% [markdown]
# ## The rules, written out
#
# Let $G = \nabla_W L$. Then the gradients of the loss with respect to $K$ and $Q$ are $GQ$ and $G^\top K$. We normalise both steps:
#
# $$K \leftarrow K - \eta\,\frac{GQ}{\|GQ\|_F}, \qquad Q \leftarrow Q - \eta\,\frac{G^\top K}{\|G^\top K\|_F} .$$
#
# To make several tokens win, we use the head $h(x) = \sum_j \max(x_j, 0)$. For which samples is a mixture of tokens best? The function $h$ is convex, so its value at a mixture is at most its largest value at the tokens of this mixture. In a sample with label $+1$, the layer wants $h$ to be large, so a single token is always best. In a sample with label $-1$, the layer wants $h$ to be small. If no single token attains the smallest value of $h$ over all mixtures, a mixture of several tokens is best.
#
# Near a mixture $x$ without zero entries, this head is linear: $h(x)=v^\top x$ with $v_j = 1$ if $x_j > 0$ and $v_j=0$ otherwise.
#
# The next cell writes out a hundred steps of the training of $(K, Q)$ with the linear head $u^\top x$, and checks that they give the same product $KQ^\top$ as the library.

# %%
one, unit = data.run(0), lambda G: G / np.linalg.norm(G)
K, Q = stream(0, "start").uniform(-1, 1, (2, d, d)) / d**0.5
library = predecessor.train_key_query(one, K[None], Q[None], 0.1, [100])[0, -1]
for _ in range(100):
    G = -attention.gradients(one, (K @ Q.T)[None], one.u, "logistic")[1][0]
    K, Q = K + 0.1 * unit(G @ Q), Q + 0.1 * unit(G.T @ K)
np.testing.assert_allclose(K @ Q.T, library, rtol=1e-7, atol=1e-9)
print("singular values of K Q^T:", *np.linalg.svd(K @ Q.T)[1].round(1))

# %% [markdown]
# ## Four experiments
#
# 1. We train $(K, Q)$ and $W$ from random starts, whose entries are drawn like those of an untrained linear layer. For the tokens that each run selects, we solve the SVM in the nuclear norm and in the Frobenius norm. Then we compute the alignment (the cosine of the angle) of $KQ^\top$ and of $W$ with both solutions.
# 2. We solve the nuclear-norm SVM for problems of other sizes and compute the rank of its solution.
# 3. We train $W$ from zero with the fixed head $h$ for several tokens, which is defined above. Before we compute the alignment of $W$ with the solution for several tokens, we remove the part of $W$ that stays finite.
# 4. We minimise the loss on the spheres $\lVert W\rVert_{p,p}=R$ of growing radius $R$. The solver starts from $W_{mm}$, from the matrix at which mirror descent ends, and from three random matrices, and we keep the smallest loss that it finds. (So the claim is that no better selection than $opt$ was found, not that the solver finds $opt$ by itself.) For comparison we run $\ell_p$-AttGD (mirror descent) from zero.

# %%
recorded = np.unique(np.geomspace(1, pair_steps, 40).astype(int))
pairs, share = predecessor.keys_against_weights(data, each, recorded, 0.1)
ranked = lambda s: predecessor.rank_by_dimension(range(rank_seeds), *s, rank_dimensions)
by_dimension = {tuple(s): ranked(s) for s in rank_shapes}
mixed = lambda k, T=4: predecessor.several_tokens(range(several_seeds), 3, T, k, 0.1, 2001)
several = {k: mixed(k) for k in several_dimensions}
followed = lambda p, at: predecessor.path_against_descent(few, p, at, find_steps, 3)
paths = {p: followed(p, path_multiples) for p in exponents}
parents_table = claims.Table(predecessor.claims_on_parents(pairs, share, several, paths))
parents_table

# %% tags=["nbval-check-output"]
optimal = np.mean([path["optimal"].mean() for path in paths.values()])
print(f"descent from zero reaches the globally optimal selection in {optimal:.0%} of its runs")
for k in several_dimensions:
    by_label = predecessor.share_with_several(range(several_seeds), 3, 4, k, 0.1, 2001)
    print(f"d = {k}: several tokens in", *(f"{share:.0%} of the samples with label {label:+d}" for label, share in by_label.items()))

# %% [markdown]
# There are three figures.
#
# * **Alignment.** The first figure shows the alignment during training, on the left for $(K,Q)$ and on the right for $W$. At the end of training, the alignment of $KQ^\top$ is near one with the SVM solution in the nuclear norm, and well below one with the SVM solution in the Frobenius norm. For the trained $W$ it is the other way round.
# * The left panel of the second figure shows the mean rank of the nuclear-norm solution. The rank is at most $\min(n, d)$, and in higher dimensions it is well below this bound. A point is missing if there is no data set of this size for which some $W$ makes the required selections.
# * The right panel of the second figure shows one minus the alignment of the growing part of $W$ with the solution for several tokens. Each mark shows one data set. The numbers beside the marks are medians. They are largest at $d=4$ and smallest at $d=6$. (The claim about the dimension compares only the largest dimension with the smallest one.)
# * In the third figure, each mark shows where one run of mirror descent from zero ends. A circle means that the run selects the best tokens, as the minimisers of the loss on large spheres do, and a cross means that it selects other tokens.

# %%
about_parents = f"arXiv 2308.16898, reduced: {seeds} seeds; synthetic"
about_ranks = f"{rank_seeds} seeds for the rank, for several tokens {several_seeds} less those that select every token; edge: $10^{{-6}}$ or below"
about_path = f"arXiv 2308.16898, reduced: {path_seeds} seeds; synthetic"
figure_parents = figures.parents(recorded, pairs, about_parents)
figure_parents

# %%
figures.ranks((rank_dimensions, by_dimension), several, about_ranks)

# %%
figure_path = figures.descents(paths, about_path)
figure_path

# %% [markdown]
# ## What we saw
#
# **Answer.** The parameters that we train decide in which norm the margin is maximised. With $(K, Q)$, $KQ^\top$ turns to the solution in the nuclear norm, and so nearly to a matrix of low rank; with $W$, training turns to the solution in the Frobenius norm. With the convex head, a mixture of several tokens can be best only for samples with label $-1$. At the end of training, several tokens have a softmax weight above $10^{-3}$ in nearly all samples with label $-1$. The same holds for about a third of the samples with label $+1$, although a single token is best for them. So this count alone does not tell where a mixture is best. The growing part of $W$ comes close to the direction of the SVM solution for these tokens in the median, but in some data sets it is still far away. The minimisers along the regularisation path select the globally optimal tokens for every data set, but mirror descent from zero reaches them only in some runs.
#
# ![Trained keys and queries turn towards the nuclear-norm solution, and a trained W towards the Frobenius-norm solution](../figures/desk/mirror_parents.png)
#
# *The larger run (desk scale): the alignment of $KQ^\top$ and of $W$ with the SVM solutions in the two norms.*
#
# ## Change this
#
# Predict first, then run.
#
# 1. Make the radius $R$ ten times as large. *Hint:* the direction of the minimiser on the sphere makes an angle of order $1/R$ with its limit, and the divergence $D$ from the SVM solution is quadratic in this angle. *Predict:* does $D$ fall to one hundredth of its value?

# %%
wider = followed(2, [10, 100, 1000])["path"]
print("R = 10, 100, 1000 ||W_mm||: D =", *(f"{D:.2g}" for D in np.median(wider, 0)))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Nearly. The larger $R$ is, the closer the factor by which $D$ falls is to one hundredth.
#
# </details>
#
# **To prove.** Suppose that $(K,Q)$ has the smallest $\lVert K\rVert_F^2+\lVert Q\rVert_F^2$ among all pairs of matrices for which the margins of $KQ^\top$ are at least 1. Show that $W=KQ^\top$ then has the smallest nuclear norm among all $W$ whose margins are at least 1. [Notebook 45](45_atlas_of_networks.ipynb) has the solution.

# %% tags=["set-up"]
# Set-up, no need to read.
word = lambda key: f"{key[0]}_{key[1]}".replace(", ", "").lower()
numbers = {word(key): np.median(curve[:, -1]) for key, curve in pairs.items()}
numbers["descent_optimal"] = optimal
of_path = [claim for claim in parents_table if claim.id.startswith("parents.path")]
found = {"descent_optimal": numbers.pop("descent_optimal")}
run.keep(figure_parents, "mirror_parents", about_parents, [c for c in parents_table if c not in of_path], numbers)
run.keep(figure_path, "mirror_path", about_path, of_path, found, setting={"seeds": path_seeds})
