# ---
# jupyter:
#   jupytext:
#     cell_metadata_filter: tags,-all
#     formats: ipynb,py:percent
#     notebook_metadata_filter: kernelspec,jupytext,-widgets,-papermill,-language_info
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The atlas: which margin does each optimiser maximise?
#
# *Page 7 of 11 · before: [30](30_mirror_descent.ipynb) · next: [45](45_atlas_of_networks.ipynb) · 20 minutes · [words](words.md).* By the end, you will be able to name the norm of each optimiser, and test it.
#
# **Paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738) proves, under its assumptions, that gradient descent turns the attention weights $W$ towards the direction of largest margin in the *Frobenius* norm.
#
# **Question.** In which norm does each optimiser maximise the margin of $W$? The norm shapes $W$: $\ell_1$ favours few large entries, the nuclear norm low rank, and $\ell_\infty$ many entries of equal size.
#
# ## Why a norm decides the direction
#
# $W$ is the sum of the training steps, so in every norm it is at most as long as all steps together. If each step gains as much margin for its length in one norm as the best matrix does, $W$ ends with the largest margin for its length in that norm.
#
# The step that gains the most margin for its length is the *steepest* step in this norm. The table shows in which norm each rule takes steepest steps. $G=-\nabla L(W)$ is the downhill direction, and $M$ and $v$ are running means of $G$ and $G^2$ that start at 0; squares, roots and quotients are taken entry by entry.
#
# | rule | one step, $W\leftarrow W+\eta D$ | steepest in | norm that it tends to, according to this page |
# |---|---|---|---|
# | normalised gradient descent | $D=G/\lVert G\rVert_F$ | Frobenius | Frobenius |
# | sign descent | $D=\mathrm{sgn}(G)$ | $\ell_\infty$ | $\ell_\infty$ |
# | mirror descent, $\ell_3$ | $D=G/\lVert G\rVert_{3/2}$, but $\eta D$ is added to $\mathrm{sgn}(W)\lvert W\rvert^2$, not to $W$ | none ([page 30](30_mirror_descent.ipynb)) | $\ell_3$, slowly |
# | Muon, exact | $M\leftarrow0.95M+0.05\,G$; $D=UV^\top$ is the *polar factor* of $M=USV^\top$ (compact singular value decomposition) | spectral, nearly | spectral |
# | Signum | $M\leftarrow0.9M+0.1\,G$; $D=\mathrm{sgn}(M)$ | $\ell_\infty$, nearly | $\ell_\infty$ |
# | Lion | $D=\mathrm{sgn}(0.9M+0.1\,G)$; then $M\leftarrow0.99M+0.01\,G$ | $\ell_\infty$, nearly | $\ell_\infty$ |
# | RMSprop | $v\leftarrow0.99v+0.01\,G^2$; $D=G/\sqrt v$ | $\ell_\infty$, nearly | $\ell_\infty$ |
# | Adam, $\epsilon=0$ | $M$ as in Signum; $v\leftarrow0.999v+0.001\,G^2$; $D=\hat M/\sqrt{\hat v}$ with $\hat M=M/(1-0.9^t)$, $\hat v=v/(1-0.999^t)$ | $\ell_\infty$, nearly | $\ell_\infty$, but in the slowest runs too slowly to get there in a million steps |
# | Adam, $\epsilon=10^{-8}$ | $D=\hat M/(\sqrt{\hat v}+\epsilon)$ | at first $\ell_\infty$; late in training Frobenius, with shrinking steps | nearest to $\ell_3$ after a million steps; we argue, but do not measure, that it goes on to Frobenius |
# | Muon, Newton-Schulz | $M$ as in Muon; $\tilde M=0.95M+0.05\,G$ (Nesterov's form) and $X=\tilde M/\lVert\tilde M\rVert_F$; five times $X\leftarrow3.4445\,X-4.775\,XX^\top X+2.0315\,(XX^\top)^2X$; $D=X$ | none | not the spectral norm on one data set; undecided on another |
#
# ## What we measure
#
# In every sample $i$, trained attention *selects* a token $\alpha_i$, whose softmax weight tends to 1. The *margin* of a pair $m=(i,t)$, $t\ne\alpha_i$, is the logit of token $\alpha_i$ minus the logit of token $t$. In terms of the tokens $x$ and the queries $z$, it is linear in $W$:
# $$g_m=\langle A_m,W\rangle,\qquad A_m=(x_{i,\alpha_i}-x_{i,t})\,z_i^\top .$$
#
# We divide the smallest margin by a norm $N(W)$, and then by the largest value $\gamma_N$ that this quotient can take (here $\gamma$ is a margin; in paper A it is a score):
# $$r_N(W)=\frac{\min_mg_m}{N(W)\,\gamma_N},\qquad\gamma_N=\max_{N(Q)\le1}\min_m\langle A_m,Q\rangle .$$
#
# This *ratio* is at most 1, and equals 1 if $W$ maximises the margin in $N$. The *token SVM* gives $\gamma_N=1/N(W_{mm})$ without training: $W_{mm}$ is the matrix of smallest norm $N$ whose margins are all at least 1.
#
# We compare seven norms:
#
# | norm | what it is |
# |---|---|
# | $\ell_1$, Frobenius ($\ell_2$), $\ell_3$ and $\ell_\infty$ | the norms of the vector of all entries |
# | *nuclear* | the sum of the singular values |
# | *spectral* | the largest singular value |
# | *head-wise* | the larger of the spectral norms of the two halves of the rows |
#
# The figure shows 17 of our [28 rules](optimisers.md) on 20 random data sets, after 1,000,000 steps, or [fewer if they are costly](optimisers.md#how-long-each-rule-runs) ([scale](words.md) desk, [record](../figures/desk/atlas_map.json), which has all rules). The step sizes are ours. With most rules a step raises the margins by about 0.02; Lion and RMSprop take a tenth of the step of their norm, and Adam and SOAP a fiftieth. (With the step of Signum, Lion had cycled in a pilot run.)
#
# ![Each optimiser's ratio in the predicted norm and in another](../figures/desk/atlas_map.png)
#
# If a rule maximises the margin in its own norm and in no other, its filled mark is at 1 and its hollow mark lies to the left. (In grey rows, this norm is a guess.) Why do the upper rows show this, and the lower ones not or not quite?

# %% tags=["parameters"]
# Set-up, no need to read.
scale = "demo"
seeds = 2
steps = 20_000

# %% tags=["set-up"]
# Set-up, no need to read.
import numpy as np
import pandas as pd
from IPython.display import HTML

import lib
from companion import claims, plots, record
from lib import files
from papers.atlas import atlas, atlas_figures, atlas_rules, atlas_used

run = record.start("44_atlas", "A", globals())
keep = files.folder("runs") / "atlas"  # run by run: a long map that is interrupted goes on
times = np.unique(np.geomspace(1, steps, 40).round().astype(int))

# %% [markdown]
# ## The steepest steps, four of them in code
#
# The steepest step $D$ in the norm $N$ maximises $\langle G,D\rangle$ subject to $N(D)\le1$. In $G=USV^\top$, let $U_k$, $V_k$ be the columns of $U$, $V$ and $S_1\ge S_2\ge\dots$ the singular values.
#
# | norm | bound for $N(D)\le1$ | attained by |
# |---|---|---|
# | Frobenius | $\langle G,D\rangle\le\lVert G\rVert_F$ (Cauchy-Schwarz) | $D=G/\lVert G\rVert_F$ |
# | $\ell_\infty$ | $\langle G,D\rangle\le\sum\lvert G_{jk}\rvert$, because $\lvert D_{jk}\rvert\le1$ (Hölder) | $D=\mathrm{sgn}(G)$ |
# | $\ell_1$ | $\langle G,D\rangle\le\max\lvert G_{jk}\rvert$, because $\sum\lvert D_{jk}\rvert\le1$ (Hölder) | $D=\mathrm{sgn}(G_{jk})$ at the largest $\lvert G_{jk}\rvert$, else 0 |
# | $\ell_3$ | $\langle G,D\rangle\le\lVert G\rVert_{3/2}$ (Hölder with the exponents $\frac32$ and 3) | $D=\mathrm{sgn}(G)\lvert G\rvert^{1/2}$, divided by its $\ell_3$ norm |
# | spectral | $\langle G,D\rangle=\sum_kS_k\,U_k^\top DV_k\le\sum_kS_k$, because $U_k$ and $V_k$ have length 1 and $D$ lengthens no vector (von Neumann) | $D=UV^\top$, because $U_k^\top UV^\top V_k=1$ |
# | nuclear | $\langle G,D\rangle=\sum_k\sigma_k\,p_k^\top Gq_k\le S_1$, because $D=\sum_k\sigma_kp_kq_k^\top$ with unit vectors $p_k,q_k$ and $\sum\sigma_k\le1$, and $G$ lengthens no vector by more than the factor $S_1$ | $D=U_1V_1^\top$ |
# | head-wise | $\langle G,D\rangle$ is at most the sum of the spectral bounds of the two halves, because each half of $D$ has its own constraint | the polar factor of each half |
#
# The data are six samples of eight random tokens of length 1 in ten dimensions. *Prediction:* after 800 steps, the largest ratio in each row is on the diagonal.

# %%
data = lib.unit_tokens(range(seeds), n=6, T=8, d=10)
one = data.run(0)


def polar(G):
    U, S, V = np.linalg.svd(G)  # numpy's V is the transpose
    kept = S > 1e-12 * S[0]  # six samples: six singular values of ten
    return U[:, kept] @ V[kept]


def largest(G):
    return np.where(np.abs(G) == np.abs(G).max(), np.sign(G), 0.0)


def descend(direction, count):
    # In a long run this loop stalls: G shrinks like e^{-g} for the smallest margin g, and its norm squares
    # the entries, so that e^{-2 g} underflows. The library keeps logarithms.
    W = np.zeros((10, 10))
    for _ in range(count):
        W = W + 0.05 * direction(-lib.gradients(one, W[None], one.u)[1][0])
    return W


def ratio(data, W, norm):  # min_m g_m / (N(W) gamma_N), for the tokens that W (runs, d, d) selects
    chosen = lib.logits(data, W).argmax(-1)
    margin = atlas.least_margins(data, chosen, W[:, None])[:, 0]
    return margin * lib.token_svm(data, chosen, norm).norm / lib.norm_of(W, norm)


norms = ("frobenius", np.inf, 1, "spectral")
directions = dict(zip(norms, (lambda G: G / np.linalg.norm(G), np.sign, largest, polar)))
for norm, direction in directions.items():
    W = descend(direction, 800)
    print(f"descent in {norm!s:9}", *(f"{N}: {ratio(one, W[None], N)[0]:.3f} " for N in norms))

# %%
# A check: after 50 steps, each of the four directions agrees with the library's rule.
for norm in norms:
    by_lib = lib.train(one, lib.SteepestDescent(norm, 0.05), 50, record=[50])
    assert np.allclose(descend(directions[norm], 50), by_lib.W[0, 0], rtol=0, atol=1e-9)

# %% [markdown]
# The prediction holds. No ratio is 1 yet, because the margins grow only a little in 800 steps.
#
# ## Why the norm of the step is the norm of the margin
#
# Suppose that the selected tokens no longer change, and that each has a higher *score* (the answer of a layer that reads this token alone) than the other tokens of its sample. (In a few runs of this page another token has a higher score, but hardly any weight; see [the sources](atlas_sources.md).) Late in training, the softmax weight of token $t$ is nearly $e^{-g_m}$, so the loss $L$ exceeds its infimum $L^*$ approximately by a sum with one term per pair:
# $$L-L^*\approx Z=\sum_m\kappa_me^{-g_m},\qquad G\approx Z\sum_m\pi_mA_m,\qquad\pi_m=\kappa_me^{-g_m}/Z .$$
# Here $\kappa_m>0$ is proportional to the difference between the two scores, and the shares $\pi_m$ sum to 1. [Page 00](00_attention_by_hand.ipynb) derives both formulas. We treat them as exact: this is a *model*, not a proof. Let $a_m=\langle A_m,D\rangle$, and let $b$ bound $\lvert a_m\rvert$ for all $m$ and all $D$ with $N(D)\le1$.
#
# 1. The step $\eta D$ multiplies each term of $Z$ by $e^{-\eta a_m}$, however small the term is.
# 2. By Taylor's theorem, $e^{-\eta a_m}\le1-\eta a_m+c\,\eta^2$ with $c=\frac12b^2e^{\eta b}$. Averaging with the shares as weights gives $Z_{t+1}/Z_t\le1-\eta\langle\sum\pi_mA_m,D\rangle+c\,\eta^2$.
# 3. By definition of $\gamma_N$, there is a $Q$ of norm 1 with $\langle A_m,Q\rangle\ge\gamma_N$ for every $m$. The steepest $D$ does at least as well as $Q$, so $\langle\sum\pi_mA_m,D\rangle\ge\gamma_N$.
# 4. Since $1+x\le e^x$, multiplying over all steps gives $Z\le\exp(c_0-\gamma_N\sum\eta_t+c\sum\eta_t^2)$, where $c_0$ is $\log Z$ at the start and $c$ is the constant of item 2 for the largest $\eta_t$. The pair with the smallest margin alone gives $Z\ge(\min_m\kappa_m)\,e^{-\min_mg_m}$. Hence $\min_mg_m\ge\gamma_N\sum\eta_t-c\sum\eta_t^2-c_1$ with $c_1=c_0-\log\min_m\kappa_m$.
# 5. If training starts at $W=0$, the triangle inequality gives $N(W)\le\sum\eta_t$. If $\min_mg_m\ge0$, we divide and obtain
#
# $$1\;\ge\;r_N(W)\;\ge\;1-\frac{c_1+c\sum\eta_t^2}{\gamma_N\sum\eta_t}.$$
#
# For $\eta_t=t^{-1/2}$ we have $\sum\eta_t\approx2\sqrt t$ and $\sum\eta_t^2\approx\log t$, so the lower bound tends to 1. For constant steps it tends to $1-c\,\eta/\gamma_N$. How far below 1 does the ratio end for $\eta=0.05$, and what does $W$ look like?

# %%
# The largest <A, D> over N(D) <= 1: the bounds of the table, with A in place of G.
largest_gain = {
    "frobenius": np.linalg.norm,
    np.inf: lambda A: np.abs(A).sum(),
    1: lambda A: np.abs(A).max(),
    "spectral": lambda A: np.linalg.norm(A, "nuc"),
    "nuclear": lambda A: np.linalg.norm(A, 2),
}
print("          |       gap       | ratio after  | singular values   | entries, as shares of the largest")
print("          | c eta / gamma_N | 20,000 steps | above 1 % of the  | above     | above")
print("          |                 |              | largest, of 10    | 1 %       | 99 %, of 100")
for norm, gain in largest_gain.items():
    W = lib.train(one, lib.SteepestDescent(norm, 0.05), 20_000, record=[20_000]).W[:, -1]
    chosen = lib.logits(one, W).argmax(-1)
    b = max(gain(A) for A in atlas.features(one, chosen[0])[0])
    gap = b**2 / 2 * np.exp(0.05 * b) * 0.05 * lib.token_svm(one, chosen, norm).norm[0]
    S, sizes = np.linalg.svd(W[0])[1], np.abs(W[0]) / np.abs(W[0]).max()
    shape = f"{(S > S[0] / 100).sum():17} | {(sizes > 0.01).sum():9} | {(sizes > 0.99).sum():5}"
    print(f"{norm!s:9} | {gap:15.2f} | {ratio(one, W, norm)[0]:12.3f} | {shape}")

# %% [markdown]
# $W$ has the shapes that the introduction describes. The ratios are nearer to 1 than the bound guarantees: it allows larger gaps, for $\ell_\infty$ even one above 1.
#
# <details><summary>Why do the ratios rise further?</summary>
#
# Item 2 of the argument assumes the worst case. If all margins rise by the same $a_m=\gamma_N$, each training step multiplies $Z$ by exactly $e^{-\eta\gamma_N}$, and nothing is lost. In most norms, the smallest margins end up rising almost equally. In $\ell_1$ and the nuclear norm, the steps raise different margins in turn, so something is lost. There, however, the inner product in item 3 is larger than $\gamma_N$, which makes up for the loss. We [measured this](atlas_sources.md#why-the-norm-of-the-step-is-the-norm-of-the-margin), but did not prove it.
#
# </details>
#
# ## What theory predicts
#
# A rule *reaches* the norm $N$ if, in every run, its ratio in $N$ is at least 0.99 and the largest of its seven ratios. Before the large runs, we predicted which norm each rule reaches. For rules that we expected to reach *none*, we guessed the *nearest* norm, the one with the largest ratio in at least half of the runs.
#
# | rule | predicted | why |
# |---|---|---|
# | steepest descent in $N$ | reaches $N$ | The bound above applies. |
# | mirror descent, $\ell_3$ | reaches $\ell_3$ | [Page 30](30_mirror_descent.ipynb) derives it. |
# | Muon, exact | reaches the spectral norm | $M$ forgets older gradients within 20 steps or so. In this time we expect the shares $\pi_m$ to change little. (For gradient descent the differences between the margins converge, [page 40](40_law_of_margins.ipynb); for these rules we did not prove it.) So $M$ points almost along $G$. |
# | Signum | reaches $\ell_\infty$ | As for Muon, $M$ points almost along $G$; it forgets older gradients within 10 steps or so. |
# | Lion | reaches $\ell_\infty$ | As for Signum, the step is the sign of a mean of recent $G$. |
# | RMSprop | reaches $\ell_\infty$ | $v$ follows $G^2$, so $D$ is nearly a matrix of signs. |
# | Adam, $\epsilon=0$ | none; nearest $\ell_\infty$ | $D$ is nearly a multiple of a matrix of signs, but the long memory of $v$ keeps the steps small. We expected the margin to be about 1 % below the largest at the end. |
# | Adam, $\epsilon=10^{-8}$ | none; nearest $\ell_\infty$ | Where $\sqrt v$ is far below $\epsilon$, $D\approx M/\epsilon$, so the steps shrink with the gradient. |
# | Muon, Newton-Schulz | none; nearest spectral | The singular values of $X$ that begin above 0.002 end between 0.68 and 1.21, not at 1. Smaller ones end lower: 0.001 becomes 0.47, and 0.0001 becomes 0.05. |
#
# <details><summary>Five more rules for which we predicted none</summary>
#
# We added the last column after the runs. It says what happens in the long run in the model above.
#
# | rule | step direction $D$ | guessed nearest | why none | in the long run |
# |---|---|---|---|---|
# | AdaGrad | $G/\sqrt{\sum G^2}$ | $\ell_\infty$ | The sum stops growing, so the steps shrink. | elsewhere: with a fixed sum the rule is gradient descent in rescaled entries, so its norm depends on its early gradients (not checked) |
# | Shampoo, sums | $(\sum GG^\top)^{-1/4}\,G\,(\sum G^\top G)^{-1/4}$ | spectral | As for AdaGrad, the sums stop growing. | elsewhere, like AdaGrad (not checked) |
# | steepest, Frobenius, per sample | $G/\lVert G\rVert_F$, where $G$ comes from one sample; the samples take turns | Frobenius | Every sample gets steps of length 1, but the parts of $W_{mm}$ that belong to different samples have different lengths. | elsewhere (by argument only) |
# | Adam, $\epsilon=0$, per sample | as Adam, where $G$ comes from one sample at a time | Frobenius | $v$ averages the squared gradients of single samples, so $D$ is not a matrix of signs. | elsewhere ([for linear models](atlas_sources.md); not checked) |
# | SOAP | Adam in the eigenvectors of running means of $GG^\top$ and $G^\top G$ | spectral | Division by $\sqrt v$ enlarges the noise off the diagonal. | unknown |
#
# [The note](optimisers.md#the-rules-in-the-order-of-the-map) explains the other rows of the map.
#
# </details>
#
# ## What was measured
#
# For each rule, the table shows the worst of its 20 large runs.
#
# | rule | $N$ (predicted or guessed) | $r_N$ in the worst run | runs in which $r_N$ is the largest ratio | reached? |
# |---|---|---|---|---|
# | steepest descent, seven norms | each its own | at least 0.991 | all runs | yes |
# | mirror descent, $\ell_3$ | $\ell_3$ | 0.978 | all runs | no: $\lVert W\rVert_3$ grows only like $\sqrt t$ |
# | Muon, exact | spectral | 0.998 | all runs | yes |
# | Signum | $\ell_\infty$ | 0.999 | all runs | yes |
# | Lion | $\ell_\infty$ | 0.995 | all runs | yes |
# | RMSprop | $\ell_\infty$ | 0.996 | all runs | yes |
# | Adam, $\epsilon=0$ | $\ell_\infty$ | 0.973 | all runs | no |
# | Adam, $\epsilon=10^{-8}$ | $\ell_\infty$ | 0.575 | no run (in all runs, the $\ell_3$ ratio is) | no |
# | Muon, Newton-Schulz | spectral | 0.650 | 12 of 20 runs | no |
#
# For 17 of 28 rules we predicted a norm. In every run, the ratio in this norm is the largest, and all 17 rules except mirror descent reach it. The other 11 rules reach none, as predicted, but five guesses of the nearest norm are refuted.
#
# <details><summary>The refuted guesses</summary>
#
# | rule | guessed nearest | runs of 20 in which it is nearest | nearest instead |
# |---|---|---|---|
# | Adam, $\epsilon=10^{-8}$ | $\ell_\infty$ | 0 | $\ell_3$ in all runs |
# | AdaGrad | $\ell_\infty$ | 0 | $\ell_3$ in all runs |
# | SOAP | spectral | 1 | nuclear, Frobenius or spectral, depending on the data set |
# | Shampoo, sums | spectral | 6 | Frobenius, $\ell_3$ or spectral, depending on the data set |
# | Adam, $\epsilon=0$, per sample | Frobenius | 7 | $\ell_3$ in 13 runs |
#
# We do not know why AdaGrad is nearest to $\ell_3$.
#
# </details>
#
# **Too slow, or elsewhere?** A rule that reaches no norm may be *too slow*: its gap $1-r_N$ in some norm tends to 0, but needs more than a million steps. Otherwise it *goes elsewhere*. We test two rules on two data sets:

# %%
print("1 - r_N in the guessed norm | 100,000 steps | 300,000 steps")
for name in ("Adam, 0.999", "Muon, Newton-Schulz"):  # the first is Adam with epsilon = 0
    row = atlas_rules.rows()[name]
    path = lib.train(data, row.rule, 300_000, record=[100_000, 300_000])
    early, late = (1 - ratio(data, path.W[:, k], atlas.NORMS[row.highest]) for k in (0, 1))
    print(f"{name:19} {row.highest:>7} | {early[0]:6.3f} {early[1]:6.3f} | {late[0]:6.3f} {late[1]:6.3f}")

# %% [markdown]
# Three times as many steps cut Adam's gaps to about a third. With Newton-Schulz steps, the gap on the second data set does not shrink. On the first it shrinks by less than a quarter, which is inconclusive.
#
# ## Adam limits its own speed
#
# Why is Adam without $\epsilon$ too slow?

# %%
eta = atlas_rules.step("l_inf") / 50  # the step of the map


def adam(count, epsilon=0.0):
    W = M = v = np.zeros((10, 10))
    for t in range(1, count + 1):
        G = -lib.gradients(one, W[None], one.u)[1][0]
        M, v = 0.9 * M + 0.1 * G, 0.999 * v + 0.001 * G**2
        W = W + eta * M / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + epsilon)
    return W


by_lib = lib.train(one, lib.Adam(eta), 300, record=[300])
assert np.allclose(adam(300), by_lib.W[0, 0], rtol=0, atol=1e-9)

# %% [markdown]
# Suppose that the margins grow by $\delta$ per step, and all entries of $G$ keep their signs and shrink like $e^{-\delta t}$. Then the squared gradient $s$ steps ago was $e^{2\delta s}G^2$, so late in training $v$ is a geometric series. With $0.999\,e^{2\delta}\approx1-0.001+2\delta$,
# $$v=0.001\sum_{s\ge0}(0.999\,e^{2\delta})^s\,G^2=\frac{0.001}{1-0.999\,e^{2\delta}}\,G^2\approx\frac{0.001}{0.001-2\delta}\,G^2=\frac{G^2}{1-2000\,\delta}\qquad\text{if }\delta<0.0005 .$$
#
# The step is $D\approx\mathrm{sgn}(G)\sqrt{1-2000\,\delta}$, because $M\approx G$. So in this model Adam is sign descent with shorter steps, and its $\ell_\infty$ ratio tends to 1. Sign descent would raise the margins by $\eta\gamma_N$ per step ($N=\ell_\infty$), so Adam's $\delta$ solves
# $$\delta=\eta\gamma_N\,\sqrt{1-2000\,\delta}.$$
#
# This $\delta$ is below 0.0005 for *every* $\eta$, because $v$ can lose only 0.1 % per step: if $G^2$ falls faster, $D$ shrinks. We test the formula with three step sizes:

# %%
print("step size | growth of margins per step: sign descent, predicted, measured | gamma N(W) - min g")
for factor in (1, 4, 16):
    path = lib.train(one, lib.Adam(factor * eta), 20_000, record=[19_000, 20_000])
    chosen = lib.logits(one, path.W[:, -1]).argmax(-1)
    gamma = 1 / lib.token_svm(one, chosen, np.inf).norm[0]
    before, after = atlas.least_margins(one, chosen, path.W)[0]
    by_sign = factor * eta * gamma
    delta = np.sqrt(by_sign**2 + 1e6 * by_sign**4) - 1e3 * by_sign**2  # the root of the equation
    lacking = gamma * np.abs(path.W[0, -1]).max() - after
    print(f"{factor:3} x eta | {by_sign:28.6f} {delta:16.6f} {(after - before) / 1000:13.6f} | {lacking:18.2f}")

# %% [markdown]
# The predictions are correct to within 2 %.
#
# <details><summary>How large is the gap then, and how large is it for RMSprop?</summary>
#
# The gap is $1-r_N=(\gamma_NN(W)-\min_mg_m)/(\gamma_NN(W))$. The numerator, printed in the last column, hardly grows; in the first row it is 1.78. In this row the margins grow by 0.0003 per step, so after a million steps the denominator is about 300, and the gap would be 0.6 %. The numerator depends on the data set. The two gaps printed further above are 0.023 and 0.087 after 300,000 steps. If they go on falling like $1/t$, they are 0.7 % and 2.6 % after a million steps. In the worst of the 20 large runs, the gap is 2.7 %.
#
# RMSprop forgets ten times as fast as Adam. With its factor 0.99, the denominator in the formula for $v$ is $1-200\,\delta$, and $\delta$ stays below 0.005.
#
# </details>
#
# **And with $\epsilon=10^{-8}$?** Late in training, this Adam is gradient descent, which turns $W$ towards the Frobenius direction. After 100,000 steps we switch to normalised gradient descent, which should follow almost this path faster. (By the table above, normalised gradient descent goes to Frobenius from zero. So the cell shows where it goes from Adam's point, not where Adam itself goes.)

# %%
with_epsilon = lib.train(data, lib.Adam(eta, epsilon=1e-8), 100_000, record=[40_000, 100_000])
onwards = lib.train(data, lib.SteepestDescent("frobenius", 0.05), 10_000, start=with_epsilon.W[:, -1], record=[1000, 10_000])
print(f"{'':34}| smallest margin | ratio: l_inf  |      l_3      |   Frobenius")
for title, path in ("Adam", with_epsilon), ("normalised gradient descent", onwards):
    for k, count in enumerate(path.iterations):
        W = path.W[:, k]
        margin = atlas.least_margins(data, lib.logits(data, W).argmax(-1), W[:, None])[:, 0]
        shares = " | ".join("{:6.3f} {:6.3f}".format(*ratio(data, W, N)) for N in (np.inf, 3.0, "frobenius"))
        print(f"{title:27}{count:7,}|{margin[0]:8.1f}{margin[1]:8.1f} | {shares}")

# %% [markdown]
# From Adam's point, where the ratio in $\ell_3$ is the largest, normalised gradient descent turns to Frobenius. That Adam does so, too, follows only if the late approximation above is right. Gradient descent needs a time of order $e^g$ to reach the margin $g$, so a million Adam steps do not suffice.
#
# ## What we saw
#
# **Answer.** Steepest descent approaches the largest margin in its own norm: for all seven norms, its ratio is at least 0.991 in all 20 runs. Muon with an exact polar factor reaches the spectral norm, and Signum, Lion and RMSprop reach $\ell_\infty$. Adam reaches no norm in a million steps. Without $\epsilon$ it tends to $\ell_\infty$ according to our model, but too slowly (the worst ratio is 0.973). With $\epsilon=10^{-8}$, it is nearest to $\ell_3$, and we argue that it goes on to Frobenius.
#
# <details><summary>What this does not show, and whose it is</summary>
#
# * Adam's step [changes during training](47_schedules_and_memory.ipynb), so it may be the wrong question to ask for a *fixed* norm. If Adam is trained on single samples, [the data choose](46_own_norms_and_decay.ipynb) its norm.
# * Two rules have the ratio 0.000 in their worst run. The undamped natural gradient raises the margins of one sample only, and in one run SOAP hardly separates the tokens that it selects from the others.
# * The tokens on this page are random, and $W$ is trained as one matrix. [Notebook 45](45_atlas_of_networks.ipynb) trains keys and queries, and also a small network.
# * The derivation of the bound above is only a sketch. [Page 40](40_law_of_margins.ipynb) proves the Frobenius case under its hypotheses.
# * [The sources](atlas_sources.md) say who proved what, and [the protocol](atlas_protocol.md) says what we committed before the runs.
#
# </details>
#
# ## Change this
#
# **The norm.** *Prediction:* steepest descent in $\ell_4$, which is not on the map, has its largest ratio in $\ell_4$.

# %%
p = 4.0
W = lib.train(data, lib.SteepestDescent(p, 0.03), 20_000, record=[20_000]).W[:, -1]
print(*(f"{N}: {np.median(ratio(data, W, N)):.3f}" for N in (1.0, "nuclear", "frobenius", 3.0, p, "spectral", np.inf)), sep=", ")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The prediction holds, and the $\ell_4$ ratio is within 1 % of 1. To test a rule of your own, write `directions["mine"] = ...` above the loop of the first code cell.
#
# </details>
#
# ## For checking: the small run
#
# The next cells train only 20,000 steps.
#
# <details><summary>What holds in the small run</summary>
#
# This page trains all 28 rules on two data sets. Of the 57 *claims* (measured numbers, each with a bound that it must meet), 15 fail, 12 of them because the ratio is still rising at the end. In the large runs 51 of the 57 claims hold. In the small run, too, the ratio in the predicted norm is the largest in every upper row of the figure.
#
# </details>

# %%
rows = atlas_rules.rows()


def place_on_map(name):  # first the rules with a predicted norm, then by norm
    return rows[name].reached is None, atlas.column(rows[name].highest)


in_order = {name: rows[name] for name in sorted(rows, key=place_on_map)}
decays = atlas_used.decay_rows()
tenth = {name: row for name, row in decays.items() if name.endswith(" 10")}
on_page_46 = atlas_used.other_rows() | tenth
listed = [("44", *line) for line in atlas_rules.listing(in_order)]
listed += [("46", *line) for line in atlas_rules.listing(on_page_46)]
columns = ["page", "rule", "step", "norm predicted", "nearest source"]
every = claims.html(pd.DataFrame(listed, columns=columns))
HTML(f"<details><summary>Who predicted what, here and on page 46</summary>{every}</details>")

# %%
best = atlas.BestMargins(data)
paths = atlas_rules.trained(data, rows, steps, times, keep)
found = atlas.atlas(paths, best)

# %%
about_map = f"Unit tokens, n=6, T=8, d=10; {seeds} seeds, up to {steps:,} steps; filled: predicted norm, median, bar: its runs; hollow: best other; grey: predicted below 0.99; Adam: $\\beta_2=0.999$"
figure_map = plots.caption(atlas_figures.dumbbells(rows, found), about_map)
figure_map

# %% [markdown]
# <details><summary>The claims of the next table</summary>
#
# The [protocol](atlas_protocol.md) sets the bound of each claim. It calls Adam without $\epsilon$ "Adam, 0.999", and Adam with $\epsilon=10^{-8}$ "Adam, 0.999, epsilon".
#
# | claim | holds if |
# |---|---|
# | `own` | the ratio in the predicted norm is at least 0.99 in every run |
# | `lower` | the ratio in the predicted norm is the largest in every run |
# | `none` (we predicted none) | in every norm the ratio is at most 0.99 in some run |
# | `nearest` (we predicted none) | the guessed norm has the largest ratio in at least half of the runs |
# | `bounded` | no ratio exceeds 1 |
#
# Of the 15 claims that fail here, 12 are `own`. The two Adam rows coincide in the small run, because the gradients are still far larger than $\epsilon$. "Natural, damped by trace" fails with 0.98995, just below the bound. Two guesses that the large runs refute pass here, because each is correct in one of the two runs: those for Adam with $\epsilon$ and for Shampoo with sums. A source that begins with "ours, beyond" marks our own prediction.
#
# </details>

# %%
table = claims.Table(sorted(atlas_rules.predictions(rows, found), key=lambda claim: claim.holds))
table

# %% tags=["set-up"]
# Set-up, no need to read.
own_norm = {name: row.reached for name, row in atlas_rules.steepest_rows().items()}
at_end = lambda name, of: found[name].last[:, atlas.column(of)].min()
numbers = {f"least_{atlas_rules.word(of)}": at_end(name, of) for name, of in own_norm.items()}
numbers["steady"] = int(sum(one.steady.sum() for one in found.values()))
run.keep(figure_map, "atlas_map", about_map, table, numbers | {"runs": len(rows) * seeds})
