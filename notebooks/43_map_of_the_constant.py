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
# # The map of the constant: data, degenerate pairs, starts and other norms
#
# *Side road of page [41](41_how_margins_settle.ipynb) · 25 minutes · [words](words.md).* After it you can say what the constant depends on: data, degenerate pairs, start, norm.
#
# **[Notebook 40](40_law_of_margins.ipynb)** has a law: $\|W_t\|$ times the [direction error](words.md) of attention tends to a constant, from zero with
# every pair on the support the $C$ that the [dual variables](words.md) of the [token SVM](words.md) give. It refuses a dual at zero, and it has one norm. **Paper A** (arXiv 2402.05738)
# has the data models. **Paper C** (*Optimizing Attention with Mirror Descent*, arXiv 2410.14581) has rates for $\ell_p$ mirror
# descent (Lemma 29).
#
# **Question.** What does $C$ depend on? What takes its place where a dual is zero, where the start counts, where the geometry
# is $\ell_p$?
#
# **Answer.** $C$ falls with dimension and noise (not that on opt tokens), and rises with samples, correlation and, at fixed dimension, sequence length: the rate stays. A
# dual at zero costs a factor $\log t$. For $p<2$ a start can cost a power. All of this is of runs, at desk scale of 20 seeds: the
# table below says what is proved. This page runs less.
#
# ![The constant along nine axes of the data, each circle on its dash](../figures/desk/bends_constant.png)
#
# *The largest run (desk scale): the constant along nine axes of the data; a circle is a run, the dash under it what its duals predict. This page runs less.*
#
# ## Two samples in the plane
#
# Take two samples of two tokens, $(1,0)$ against zero and $(0,r)$ against zero, all with the query 1. Then $W$ is a vector in the
# plane, the [duals](words.md) are 1 and $1/r^2$, and the samples pull alike. The formula of notebook 40 takes six lines. Its exponent is
# $p=2$; other exponents are for other norms, in section 4.

# %% tags=["parameters"]
# Set-up, no need to read.
scale = "demo"
seeds = 2
map_steps = 20_000
sample_seeds = 20
zero_steps = 500_000
lp_steps = [50_000, 500_000]
exponents = [1.5, 1.75, 2.0]

# %% tags=["set-up"]
# Set-up, no need to read.
import numpy as np

from companion import claims, plots, record, statements
from lib import attention, dynamics, svm
from lib.attention import coordinates, tokens
from papers import ours, saturation
from papers.c.statements import STATEMENTS
from papers.law import (
    constant_map,
    lp_law,
    margin_law,
    margin_law_runs,
    zero_duals,
)
from papers.law import margin_law_figures as figures

run = record.start("43_map_of_the_constant", "A", globals())
every = range(seeds)


# %%
def constant(A, log_kappa, beta, w, p=2.0):
    D = np.abs(w) ** (2 - p) / (p - 1)  # 1 for p = 2
    r = D * (A.T @ np.linalg.solve((A * D) @ A.T, log_kappa - np.log(beta)))  # the offsets made
    size = (np.abs(w) ** p).sum() ** (1 / p)
    slope = np.sign(w) * np.abs(w / size) ** (p - 1)  # of the norm, at w
    across = r - w * (slope @ r) / size
    return np.sqrt(((p - 1) * np.abs(w / size) ** (p - 2) * across**2).sum())


for r in (0.25, 0.5, 1.0, 2.0, 4.0):
    beta = np.array([1.0, r**-2])
    C = constant(np.diag([1.0, r]), np.zeros(2), beta, np.array([1.0, 1 / r]))
    print(f"r = {r:4}: duals {beta}, C = {C:.4f}")

# %% [markdown]
# $C$ is zero where the duals are equal: there the path runs along the ray itself. Elsewhere it goes with the logarithm of their
# ratio, and with lengths. At $r=4$ and $r=\frac14$ the ratio is the same up to order, and $C$ differs by a factor of 4.
#
# ## The statements
#
# | symbol | meaning |
# |---|---|
# | $A_m,\ g_m$ | feature of a pair of tokens; its margin $\langle A_m,W\rangle$ |
# | $W_{mm}=\sum_m\beta_mA_m$ | token SVM of the opt tokens (the highest scores), with its duals |
# | support; tight; degenerate | $\beta_m>0$; $\langle A_m,W_{mm}\rangle=1$; tight with $\beta_m=0$ |
# | $\kappa_m$; $a_t$; $g_m-a_t$ | how hard the loss pulls on a pair, before the factor $e^{-g_m}$; margin level $\langle W_t,W_{mm}\rangle/\lVert W_{mm}\rVert^2$; offset |
# | $\sigma,\ n,\ T,\ d,\ \rho$ | noise of the tokens that are not opt, samples, tokens, dimension, correlation |
# | $\lambda_1,\ \lambda_{\max}$ | how fast wrong offsets die (notebook 41) |
# | $D_\psi$ | directional Bregman divergence of $\ell_p$ mirror descent; the error is $\sqrt{2D_\psi}$ |
#
# **Hypotheses.** The run ends in one [selection](words.md) with margins that grow without end. The selected token has the higher score on
# tight pairs. Each is checked run by run, and refused by name. Where a pair is [degenerate](words.md), the features of tight pairs are independent.
#
# | what | statement | status |
# |---|---|---|
# | data | $C$ from the duals | the law; measured |
# | | runs from zero select the opt tokens whatever the correlation of the others | measured, up to 0.999 |
# | one degenerate pair $k$ | as if its dual were $\lVert d_k\rVert^2/a_t$; error $\sim\log t/t$ | proved, short steps; measured |
# | several | duals $y_k/a_t$ of a second SVM | proved where all $y_k>0$, short steps; measured |
# | a start | its part off the span adds to $C$ in quadrature | the law; measured |
# | partial support | what transients leave outside the span is the integral of a flow | limit of short steps; measured |
# | | and is bounded from tokens and head | proved for the saturated flow; measured |
# | $\ell_p$ | error $\lVert W\rVert^{-1}$; what the start leaves off the span costs $\lVert W\rVert^{-(p-1)}$ | by an ansatz; measured |
# | $p<2$ | steps like $t^{p-2}$ converge at any level | linear stability; measured |
#
# Derivations are in [where_the_law_bends.md](where_the_law_bends.md), duals at zero in
# [law_of_margins.md](law_of_margins.md), criteria in [the protocol](bends_protocol.md). It says which of them
# history shows to be older than their runs, and dates what was changed. The page's formula, on a problem of class means:

# %%
data = coordinates.minimal(constant_map.AXES["noise"](0, 0.3)).tokens
solution = svm.token_svm(data)
beta, w = solution.duals[0].ravel(), solution.W[0].ravel()
A = coordinates.constraint_rows(coordinates.differences(data, data.opt), data.z)[0]
log_kappa, on = saturation.saturated_slopes(data)[0].ravel(), beta > 0
C = constant(A[on], log_kappa[on], beta[on], w)
assert np.isclose(C, margin_law.margin_law(data, solution).constant[0])
print(f"C = {C:.6f}")

# %% [markdown]
# ## 1. The map
#
# Class means, [opt tokens](words.md) at one of two means and noise of size $\sigma$, along nine axes. "long T" goes to $T=512$ with two
# samples in $15\,T$ dimensions. In "correlation" the tokens that are not opt, queries too, are correlated within a sample, or
# all of them. "imbalance" tilts the head and "raw noise" disturbs all tokens, so other tokens' scores change. There the run
# leaves the opt tokens where the first of the others overtakes: a closed form of tokens and head.

# %%
points = constant_map.along(every, map_steps)
map_kept = constant_map.kept(points)
print(f"{len(map_kept)} of {len(points)} runs meet the hypotheses at t = {map_steps:,}")
moved = ("imbalance", "raw noise")
crossings = {a: np.array([constant_map.score_crossing(a, s) for s in every]) for a in moved}
switches = {a: np.array([constant_map.switch(a, s) for s in every]) for a in moved}
print("runs switch at", {axis: round(float(at.mean()), 3) for axis, at in switches.items()})

# %% [markdown]
# **Noise cannot make the SVM infeasible** here: scaling the noise is a change of basis of tokens and queries, which proves it. More
# samples, longer sequences and fewer dimensions can. Cover (1965) counts how many random constraints are too many: twice the unknowns that they
# see, here $n(T-1)=2d(d-2)$. Where do half of the seeds lose $W_{mm}$?

# %%
few = range(sample_seeds)
lost, capacity = constant_map.capacities(few)
print("half of the seeds lose W_mm at", {axis: round(at[0], 2) for axis, at in lost.items()})

# %% [markdown]
# **Correlated tokens** score 0 as before. Whether runs from zero still select the opt tokens is measured (`map.stays`): Theorem 1 of
# paper A does not say it, as its Assumption 1 asks for nearly orthogonal tokens. As $\rho$ grows differences of tokens shrink and
# $\lambda_1\to0$. So from some $\rho$ on a run of given length is refused as too short. Which $\rho$ is predicted from the duals and the
# [margin level](words.md) $a_t=t/\lambda_{\max}$ that these steps should reach; `map.level` tests it. At $\rho=1$ within samples the other
# tokens of each are one token, and the law is that of two tokens.

# %%
onsets = [constant_map.onset(few, steps) for steps in (5000, 20_000)]
stay = constant_map.stays(few)
merged = [constant_map.repeated(seed, 20_000) for seed in few]
for one in onsets:
    value, low, high = (1 - part for part in one.half(one.measured))
    print(f"{one.steps:,} steps are too few for half of the seeds at rho = {value:.3f} ", end="")
    print(f"[{high:.3f}, {low:.3f}]; by the duals at {1 - one.half(one.predicted)[0]:.3f}")
map_claims = [*constant_map.map_claims(points), *constant_map.onset_claims(onsets)]
map_claims += constant_map.end_claims(stay, merged)
map_claims += [constant_map.switch_claim(a, crossings[a], switches[a]) for a in moved]
map_claims += capacity
map_table = claims.Table(map_claims)
map_table

# %%
about_map = f'n=6, T=5, d=120 (T, correlation: 960; long T: n=2, d=15T), t = {map_steps:,} (long T: {constant_map.ENOUGH["long T"]:,}), {seeds} seeds; dashes: from duals, circles: runs'
figure_map = plots.caption(figures.constants(points), about_map)
figure_map

# %% [markdown]
# Each run has a prediction of its own, the dash under its circle. Top: look at the noise, towards $C\propto\sigma^{-2}$, since the features
# grow like $\sigma^2$ while the offsets rest. Dotted are the switches, beyond the values on the map. Middle: look at $T$ and $n$, where
# $C$ grows by a factor each doubling, and at $d$, where it falls. Solutions are lost at one to two times Cover's count along $n$ and $d$,
# and along $T$ later, as all constraints of a sample share its query. Third row: with $T/d$ held, $C$ falls along $T$; correlation raises it,
# since duals grow as differences of tokens shrink. The title says how far the worst run is off, and what was asked for.
#
# ## 2. A dual at zero
#
# One sample has the margins $w_1$ and $w_1+w_2$. Both are 1 at $W_{mm}=(1,0)$, but the second pair is *degenerate*: its dual is 0, and
# $\log(\kappa/\beta)$ is infinite. Where do the margins rest? They do not. $dw_2/dw_1=\kappa_2e^{-w_2}/(\kappa_1+\kappa_2e^{-w_2})$ gives
# $w_2\approx\log(\kappa_2w_1/\kappa_1)$. So $w_2=\|W_t\|\times$ error grows like $\log t$. Here $\kappa_1=1$ and $\kappa_2=1.5$:

# %%
corner = attention.token_set(
    [[[0.0, 0.0], [-1.0, 0.0], [-1.0, -1.0]]], [1.0], z=[[1.0]], u=[1.0, 0.5]
)
decades = 10 ** np.arange(2, 7)
bent = dynamics.train(
    corner, dynamics.NGD(0.1), decades[-1], decades, targets={"W_mm": [[[1.0], [0.0]]]}
)
off = (bent.norm * bent.direction_error["W_mm"])[0]
print("||W_t|| x error ", off.round(3))
print("log(1.5 ||W_t||)", np.log(1.5 * bent.norm[0]).round(3))
assert np.abs(off - np.log(1.5 * bent.norm[0])).max() < 0.2

# %% [markdown]
# **In general** $W$ must move along $W_{mm}+d_k/a_t$, with $d_k$ in the span of the tight features, $\langle A_k,d_k\rangle=1$ and 0 on the
# others. The pull that this takes is $\|d_k\|^2/a_t$ beside the duals. So $\beta_k$ is replaced by $\|d_k\|^2/a_t$.
#
# **Several degenerate pairs** share the work: $W$ moves along $W_{mm}+D/a_t$. Here $D$ has the least norm with $\langle A_m,D\rangle=0$ on the
# support and $\langle A_k,D\rangle\ge1$ on the degenerate pairs: a second SVM. Its duals $y_k$, over $a_t$, stand where the first SVM's are zero.

# %%
idle, _ = zero_duals.study(every, 1, zero_steps, step=0.5)
some = range(max(seeds, 3))  # where degenerate pairs meet
two, three = (zero_duals.study(some, count, zero_steps)[0] for count in (2, 3))
several = two + three
print(f"runs with one dual at zero: {len(idle)} of {seeds}; two: {len(two)}, three: {len(three)}")

# %% [markdown]
# ## 3. What lies off the span
#
# **A start** off the span of the support adds in quadrature. **Pairs off the support** pull as well while their margins are
# small. With $a_t$ as the clock all rules follow one flow of $n(T-1)$ numbers, given by tokens and head. What a pair has pulled
# raises its own margin and weakens its next pull. A first-order sum, along the margins of the law, leaves this out: it is mostly too large.
# A bound is proved for the saturated flow, in which $-n\nabla L=\sum_m\kappa_me^{-g_m}A_m$
# at all times: there $\log\sum_m\kappa_me^{-g_m}+a_t$ never rises.

# %%
pairs_of = tokens.gaussian_tokens(every, n=6, T=3, d=60)
W_0 = dynamics.gaussian_start(coordinates.minimal(pairs_of), 0.1, [s + 1000 for s in every])
setting = margin_law_runs.LawSetting("start", pairs_of, dynamics.NGD(0.1), start=W_0)
begun = margin_law_runs.kept(margin_law_runs.compare(setting, 200_000))
whole = [one for one in begun if one.law.support.all()]
start_off = max((abs(one.measured.error[-1] / one.predicted - 1) for one in whole), default=np.nan)
starts = ours.claim("start.outside", start_off)
studied = [zero_duals.left_study(name, every, 50_000)[0] for name in zero_duals.PROBLEMS]
left = sum(studied, [])
ratio = np.array([one.first / one.measured[-1] for one in left])
bounds = np.array([one.bound / one.measured[-1] for one in left])
print(f"over the norm: first-order sum {ratio.min():.2g} to {ratio.max():.2g}, ", end="")
print(f"bound {bounds.min():.2g} to {bounds.max():.2g}")

# %% [markdown]
# ## 4. Other norms
#
# **$\ell_p$ mirror descent** moves the mirror image $|W|^{p-1}\mathrm{sgn}(W)$ down the gradient. It has the duals of the $\ell_p$ SVM, and a
# residual that is bounded in $W$: error $\|W\|^{-1}$. What the start leaves off the span stays in the mirror image, which grows
# like $\|W\|^{p-1}$: error $\|W\|^{-(p-1)}$. $D_\psi$ is quadratic in the error, so the exponent of paper C's Lemma 29, printed below,
# is met twice over.
#
# **Steps for $p<2$.** A step of length $\eta$ raises the margins by $h\propto\eta\,a_t^{2-p}$, and offsets converge as long as $h<2/\lambda_{\max}$. A
# constant step raises them by more and more, and cycles from a predicted $t^*$ on. Steps $\eta_t\propto t^{p-2}$ keep $h$ what it is, and
# $\|W_t\|$ grows like $t$. Three premises of the runs from zero and from a start came after a first round in which 6 of 19
# claims had failed: see the protocol.

# %%
statements.quoted("C", STATEMENTS, "Lemma 29")

# %%
powers, onset = [], []
for p in exponents:
    size, count = (30_000, lp_steps[0]) if p <= 2 else (15_000, lp_steps[1])
    found, refused = lp_law.study(every, p, size, count)
    powers += found
    print(f"p = {p:g}: {len(found) // 2} of {seeds} problems", *refused.values(), sep="\n  ")
    if p < 2:
        onset += lp_law.onset_claims(p, lp_law.onsets(every, p, 2000)[0])
settled = sum((lp_law.decay_study(every, p, 20_000)[0] for p in (1.5, 1.75)), [])

# %%
bent_claims = [*zero_duals.zero_claims(idle), *zero_duals.zeros_claims(several), starts]
bent_claims += [*zero_duals.left_claims(left), *lp_law.lp_claims(powers), *onset]
bent_table = claims.Table(bent_claims + lp_law.steps_claims(settled))
bent_table

# %%
about_bent = "n=4, T=2, d=10, seed 0; dashed: Gaussian start; synthetic, float64"
figure_bent = plots.caption(figures.powers(powers), about_bent)
figure_bent

# %%
about_outside = f"{len(left)} runs, n=6; dotted: equal; synthetic, float64"
figure_outside = plots.caption(figures.outside(left), about_outside)
figure_outside

# %%
about_idle = f"Left: circles, {len(idle)} of {seeds} seeds. Right: {len(settled)} runs"
plots.caption(figures.idle_and_moves(idle, several, settled), about_idle)

# %% [markdown]
# First picture: the dashed lines for $p<2$ fall with the power $p-1$, and the solid ones all have slope $-1$. Second: the
# marks of the flow lie on the diagonal, and those of the first-order sum far right of it. Third, left: the dotted prediction,
# $\log a_t$, goes through the marks of every run. Right: the offsets jump between the two lengths on either side of 1, and
# constant steps reach the same $\|W\|$ in a cycle.
#
# ## What we saw
#
# The errors are those that $C$ predicts in all converged runs of the map. The offset of a degenerate pair grows like
# $\log a_t$, as derived. In $\ell_p$ the error falls like $1/\lVert W\rVert$ from zero; from a start, with $p<2$, like
# $\lVert W\rVert^{-(p-1)}$.
#
# **At desk scale**, with 20 seeds, [the map](../figures/desk/bends_constant.png) and [its bends](../figures/desk/bends_powers.png) have
# two more rows that fail: `map.noise`, since the opt tokens still count, and `outside.first`, since the first-order sum knows small
# weights only and misses where little is left.
#
# ## Change this
#
# **The corner.** Prediction: the second score gap ten times as large makes $\kappa_2$ ten times as large, so $w_2$ larger by
# $\log10\approx2.30$, at the same slope.

# %%
for tilt in (0.5, 14.0):
    steeper = attention.token_set(corner.X[0], [1.0], z=[[1.0]], u=[1.0, tilt])
    history = dynamics.train(steeper, dynamics.NGD(0.1), decades[-1], decades)
    print(f"w_2, kappa_2 = {1 + tilt:4}", np.diff(history.margins[0, :, 0])[:, 0].round(3))

# %% [markdown]
# <details><summary>Answer</summary>
#
# They do: the two rows come to lie 2.30 apart.
#
# </details>
#
# **To prove.** Show that $C=2\lvert\log r\rvert/\sqrt{1+r^2}$ for the two samples in the plane.
#
# <details><summary>Solution</summary>
#
# $W_{mm}=(1,1/r)$. A residual $\rho\perp W_{mm}$ is $c\,(1/r,-1)$, and its margins are $c/r$ and $-cr$. They must lie
# $\log(\beta_2/\beta_1)=-2\log r$ apart: $c\,(1/r+r)=-2\log r$. So $C=\lvert c\rvert\sqrt{1/r^2+1}
# =\frac{2\lvert\log r\rvert\,r}{1+r^2}\cdot\frac{\sqrt{1+r^2}}{r}=\frac{2\lvert\log r\rvert}{\sqrt{1+r^2}}$.
#
# </details>

# %% tags=["set-up"]
# Set-up, no need to read.
worst = max(abs(constant_map.relative(p)) for p in map_kept)
numbers = {"runs": len(map_kept), "worst": worst}
numbers |= {"short": 1 - onsets[-1].half(onsets[-1].measured)[0]}
numbers |= {axis.replace(" ", "_"): at.mean() for axis, at in switches.items()}
numbers |= {f"lost_{axis}": found[0] for axis, found in lost.items()}
run.keep(figure_map, "bends_constant", about_map, map_table, numbers)
powers_of = [claim for claim in bent_table if claim.id.startswith(("lp.zero", "lp.start"))]
numbers = {claim.id.replace(".", "_"): claim.measured for claim in powers_of}
of_outside = [claim for claim in bent_table if claim.id.startswith(("outside.", "start.outside"))]
of_bent = [claim for claim in bent_table if claim not in of_outside]
run.keep(figure_bent, "bends_powers", about_bent, of_bent, numbers, setting={"seeds": [0]})
numbers = {"first_least": ratio.min(), "first_most": ratio.max()}
run.keep(figure_outside, "bends_outside", about_outside, of_outside, numbers)
