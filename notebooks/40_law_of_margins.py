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
# # The law of the margins: what the direction error of attention is
#
# *Page 4 of 11 · before: [11](11_long_horizon.ipynb) · next: [41](41_how_margins_settle.ipynb) · 30 minutes · [words](words.md).* After it you can compute, from the dual variables, the constant in the error of attention's direction.
#
# **Paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738) proves that normalised
# gradient descent (NGD) turns the attention weights $W_t$ into the direction of a max-margin matrix $W_{mm}$. The *direction
# error* is $\big\lVert W_t/\|W_t\|-W_{mm}/\|W_{mm}\|\big\rVert$. Theorem 1, printed below, bounds it by a multiple of $t^{-1/2}$,
# up to logarithms.
#
# **Question.** What *is* the error, exactly?
#
# **Answer.** Under the hypotheses below $\|W_t\|$ times the error tends to a constant. Where it is not zero, NGD's error is of the exact
# order $1/t$, so the exponent of Theorem 1 is not tight. One part of the constant belongs to the support vectors: its length $C$
# **follows from the dual variables of the SVM** of the tokens that the run selects. The start and the other pairs leave the rest.
#
# ## Two samples in the plane
#
# Take two samples of two tokens. The second token of each is zero, the query is the number 1, and so $W$ is a vector in the
# plane. The first tokens are $(1,0)$ and $(0,\frac12)$, both with the score 1. The *margin* of a sample is the logit of its
# first token less that of its second: $g_1=w_1$ and $g_2=\frac12w_2$.
#
# The shortest $W$ with both margins at least 1 is $W_{mm}=(1,2)$. It is $1\cdot(1,0)+4\cdot(0,\frac12)$, so the dual
# variables of this SVM are 1 and 4. Train by NGD and look at the columns.

# %% tags=["parameters"]
# Set-up, no need to read.
scale = "demo"
seeds = 2
steps = 1_000_000
growing_steps = 2500

# %% tags=["set-up"]
# Set-up, no need to read.
import numpy as np

from lib import attention, dynamics, svm
from lib.attention import coordinates, tokens
from lib.companion import claims, plots, record, statements
from papers.a import phase_diagram
from papers.a.statements import STATEMENTS
from papers.beyond import joint_law, margin_law
from papers.beyond import margin_law_figures as drawn
from papers.beyond import margin_law_runs as runs
from papers.beyond import margin_law_steps as law_steps
from papers.beyond import margins as measure
from papers.beyond.tolerances import BOUNDS

run = record.start("40_law_of_margins", "A", globals())

# %%
A, W_mm, W = np.array([[1.0, 0.0], [0.0, 0.5]]), np.array([1.0, 2.0]), np.zeros(2)
path, ray = [W], W_mm / np.linalg.norm(W_mm)
for t in range(1, 1001):
    q = 1 / (1 + np.exp(A @ W))  # weight of the second token
    c = np.exp(-(1 - q)) * q * (1 - q)  # |l'| p (1 - p), exponential loss
    W = W + 0.1 * c @ A / np.linalg.norm(c @ A)  # NGD: a step of length 0.1
    path.append(W)
    if t in (1, 10, 100, 300, 1000):
        g, length = A @ W, np.linalg.norm(W)
        error = np.linalg.norm(W / length - ray)
        print(
            f"t = {t:4}   margins {g[0]:7.3f} {g[1]:7.3f}   difference {g[1] - g[0]:7.4f}", end=""
        )
        print(f"   error x ||W|| {error * length:.4f}")

# %% [markdown]
# The library trains in logarithms, so it goes on where softmax weights are $e^{-1000}$. On this problem it must agree.

# %%
plane = attention.token_set(
    [[[1, 0], [0, 0]], [[0, 0.5], [0, 0]]], [1.0, 1.0], z=[[1.0], [1.0]], u=[1.0, 2.0]
)
by_lib = dynamics.train(plane, dynamics.ngd(0.1), 1000, [1000]).margins[0, 0, :, 0]
assert np.allclose(A @ W, by_lib, rtol=1e-9)
from_ray = np.array([-2.0, 1.0]) @ np.array(path).T / np.sqrt(5)
rest = np.log(4) * np.array([0.8, -0.4])  # what the duals say: across W_mm, margins log 4 apart
assert np.isclose(np.linalg.norm(rest), -from_ray[-1]) and abs(rest @ W_mm) < 1e-12

# %% [markdown]
# The margins grow for ever. Their *difference* rests at $-\log4$, the logarithm of the ratio of the [duals](words.md). Why? The sample
# $i$ pulls on $W$ in proportion to $e^{-g_i}$. The direction of $W$ rests when the two pulls are in the ratio $1:4$ of the
# duals, so when $g_1-g_2=\log4$. A fixed difference keeps the path at a fixed distance from the ray, and an angle at a
# fixed distance falls like one over the length.

# %%
figure = drawn.beside_the_ray(np.array(path), W_mm, rest)
figure

# %% [markdown]
# Left: look at the path, which runs beside the dashed ray and never meets it. Right: look at its distance from the ray,
# which rests at the dotted line, predicted from the duals alone.
#
# ## The statement
#
# | symbol | meaning |
# |---|---|
# | $x_{i,t},\ z_i,\ y_i,\ u$ | tokens, query and label of sample $i$; the fixed head |
# | $s_i$; $m=(i,t)$, $t\ne s_i$ | the token that the run selects in sample $i$; a *pair* |
# | $A_m=(x_{i,s_i}-x_{i,t})z_i^\top$ | feature of a pair |
# | $g_m=\langle A_m,W\rangle$ | its *margin*: logit of the selected token less logit of the other |
# | $\gamma_{i,t}=y_iu^\top x_{i,t}$, $\ell$ | score of a token; the loss, here exponential or logistic |
# | $\kappa_m=\lvert\ell'(\gamma_{i,s_i})\rvert\,(\gamma_{i,s_i}-\gamma_{i,t})$ | how hard the loss pulls on the pair, before the factor $e^{-g_m}$ |
# | $W_{mm}=\sum_m\beta_mA_m$ | the token SVM: least norm with all $\langle A_m,W\rangle\ge1$; its duals $\beta_m\ge0$ |
# | $S$, *support*; $D$ | the pairs with $\langle A_m,W_{mm}\rangle=1$; the largest $\lVert A_m-A_k\rVert$ on it |
# | $a_t=\langle W_t,W_{mm}\rangle/\lVert W_{mm}\rVert^2$ | *margin level*; $g_m-a_t$ is the *offset* of a margin |
# | $\eta$, $\eta^*$ | length of an NGD step; the longest at which *small* wrong offsets die ([notebook 41](41_how_margins_settle.ipynb)) |
#
# **Hypotheses.** $\ell'<0$ is locally Lipschitz; how fast $\ell$ falls at large scores does not matter, since scores are bounded here.
# * (D) $W_{mm}=\sum_mb_mA_m$ with $b_m>0$ on all of $S$, for one choice of $b$. Tokens may be repeated.
# * (G) On $S$ the selected token has the higher score.
# * (H) No momentum, and short steps: $\eta\|W_{mm}\|D^2<8$ for NGD, $\|W_{mm}\|D<4$ for Polyak's rule where the
#   selected tokens score highest; for gradient descent (GD) any bounded steps with an infinite sum.
# * (A) The start has a level $a_0\ge A$, a number that can be computed from tokens, head, loss, step and $W_0$.
#
# **Theorem.** The run selects these tokens for ever, $a_t\to\infty$, and on the support
# $$g_m=a_t+\log\frac{\kappa_m}{\beta_m}-\text{mean}_\beta+o(1),\qquad W_t=a_tW_{mm}+\rho_\perp+\omega_\infty+o(1).$$
# Here $\beta$ are the duals, and if there are many, those nearest to $\kappa$ in relative entropy. $\text{mean}_\beta$ is the
# $\beta$-weighted mean of the logarithms. $\rho_\perp\perp W_{mm}$ is the one matrix in the span of
# the $A_m$, $m\in S$, with these offsets. $\omega_\infty$ is orthogonal to that span. Hence
# $$\|W_t\|\times\text{error}_t\to\sqrt{C^2+\|\omega_\infty\|^2},\qquad C=\|\rho_\perp\|.$$
# The second $o(1)$ is at most $K\,(1+a_t-a_0)\,e^{-q(a_t-a_0)}$, the first $\lVert A_m\rVert$ times that; $K$ and $q$ are explicit too.
# $C$ is the same for every rule and start that select these tokens; the loss enters only through $\kappa$. $\omega_\infty$ is what $W_0$
# and the pairs off the support left. It is zero if $W_0=0$ and all pairs are on the support.
#
# **Why.** Once the other tokens' weights are small, $-\nabla L=\frac1n\sum_m\kappa_me^{-g_m}A_m$. The direction rests only where
# this is along $W_{mm}=\sum_m\beta_mA_m$, so where $\kappa_me^{-g_m}\propto\beta_m$. Take logarithms. That it
# does come to rest follows because the offsets perform gradient descent on a convex function,
# $\log\sum_m\kappa_me^{-\langle A_m,\rho\rangle}$.
#
# **What is proved, what is measured.** Statement, proof and constants are in [law_of_margins.md](law_of_margins.md). The theorem
# is local: below the level $A$ it is silent. Near $\rho_\perp$ it also holds with momentum, and for steps up to the linear threshold
# $\eta^*$. So we admit runs whose steps are shorter than $\eta^*$, which is (H'), and ask of their own iterates, below, which
# are *proved*. Far from $\rho_\perp$ (H') is not enough: in notebook 41 a run with momentum at $0.9\,\eta^*$ ends in a cycle.
#
# **Where they are checked.** `margin_law` checks (D) and (G). `margin_law_runs.compare` checks (H') and what can be seen of
# a [selection](words.md) that stays, without looking at the error: the least margin is at least 5 and the offsets rest. A run that fails one is
# refused, and told why.
#
# Paper A's statement of the direction, hypotheses included:

# %%
statements.quoted("A", STATEMENTS, "Theorem 1")

# %% [markdown]
# ## The formula, in a few lines
#
# One small problem: unit tokens, all scores different, not every pair on the support. Tokens and duals are all it takes.

# %%
problem = coordinates.minimal(tokens.unit_tokens([1], n=6, T=8, d=10))
data = problem.tokens.run(0)
solution, others = svm.token_svm(data), coordinates.others(data.opt, 8)
A = coordinates.constraint_rows(coordinates.differences(data, data.opt), data.z)[0]  # A_m, as rows
gamma = attention.scores(data, data.u)  # (1, n, T)
own = np.take_along_axis(gamma, data.opt[..., None], -1)
kappa = (np.exp(-own) * (own - np.take_along_axis(gamma, others, -1))).ravel()  # exponential loss
beta = solution.duals[0].ravel()
on = beta > 0  # the support
log_ratio = np.log(kappa[on] / beta[on])
predicted = log_ratio - beta[on] @ log_ratio / beta[on].sum()  # the offsets
rho = A[on].T @ np.linalg.solve(A[on] @ A[on].T, predicted)  # rho_perp

# %%
law = margin_law.margin_law(data, solution)
assert np.allclose(predicted, law.offsets[law.support])
assert np.isclose(np.linalg.norm(rho), law.constant[0])
assert abs(rho @ solution.W[0].ravel()) < 1e-9  # across W_mm
print(f"C = {law.constant[0]:.6f}, ||W_mm|| = {law.norm[0]:.4f}, {on.sum()} of {on.size} on S")

# %% [markdown]
# The offsets of a run after 100,000 steps, beside this prediction:

# %%
history = dynamics.train(problem, dynamics.ngd(0.5), 100_000, [0, 100_000])
level = measure.along_and_off(history.weights(1), solution.W)[0] / law.norm
offsets = (history.margins[0, 1] - level[0])[law.support[0]]
print("predicted", *(f"{value:7.3f}" for value in predicted[:6]))
print("measured ", *(f"{value:7.3f}" for value in offsets[:6]))
print(f"largest error of an offset at t = 100,000: {np.abs(offsets - predicted).max():.1e}")

# %% [markdown]
# ## Data and runs
#
# Five settings differ in rule, loss, scores, start and support. A run counts if its hypotheses hold *before* its error is
# looked at: the selection is made, (D) and (G) hold, the step is short enough, and the run is long enough. Long enough
# means that, by the theory, wrong offsets have decayed to $10^{-7}$. They decay like $e^{-\lambda_1a_t}$, with $\lambda_1$ from the duals.

# %%
every = range(seeds)
gaussian = tokens.gaussian_tokens(every, n=10, T=6, d=300)
unequal = phase_diagram.skewed(gaussian, 0.5, every)
start = dynamics.gaussian_start(coordinates.minimal(unequal), 0.01, range(1000, 1000 + seeds))
sizes = dict(n=20, T=10, d=300, signal=3.0, noise=0.1)  # paper A, Figure 2
means = tokens.class_mean_tokens(every, **sizes)
antipodal = tokens.class_mean_tokens(every, **sizes, antipodal=True)
unit = tokens.unit_tokens(every, n=6, T=8, d=10)
momentum, small_step = dynamics.ngd(0.025, momentum=0.9), dynamics.ngd(0.1)
settings = [
    runs.LawSetting("class means, NGD", means, dynamics.ngd(0.025)),
    runs.LawSetting("antipodal, momentum, logistic", antipodal, momentum, "logistic"),
    runs.LawSetting("Gaussian, Polyak", gaussian, dynamics.polyak()),
    runs.LawSetting("unequal scores, Gaussian start", unequal, small_step, "logistic", start),
    runs.LawSetting("unit tokens, partial support", unit, dynamics.ngd(0.5)),
]

# %%
compared = [one for setting in settings for one in runs.compare(setting, steps)]
kept = runs.kept(compared)
print(f"{len(kept)} of {len(compared)} runs meet the hypotheses at t = {steps:,}")
for one in compared:
    if one.refusal:
        print(f"{one.setting.name}: {one.refusal}")
elsewhere = sum((one.selected != one.tokens.opt).any() for one in kept)
print(f"{elsewhere} of them selected other tokens than the opt tokens, and obey their own SVM")

# %% [markdown]
# **Which runs does the theorem prove?** We take the last iterate, and without momentum also that at $t/10$, as a start. If it satisfies
# the hypotheses, all that follows it is proved, not measured; the numbers are float64, without interval arithmetic. $A$ is the level
# that the iterate at $t/10$ needs, beside the one it has; $K$ and $q$ are the constants of what is left. Medians over the runs that
# are proved from there; *by (H)*: with its short steps alone.

# %%
head = "proved from last, from t/10, by (H)", "A", "level", "K", "q"
print(f"{head[0]:44}", *(f"{name:>8}" for name in head[1:]))
proofs = {id(one): [one.proof(), one.proof(early=True), one.proof(True, True)] for one in kept}
constants = ("A", "level", "K", "q")
for setting in settings:
    of = [proofs[id(one)] for one in kept if one.setting.name == setting.name]
    counts = [sum(proof.holds for proof in column) for column in zip(*of, strict=True)]
    early = [proof for _, proof, _ in of if proof.holds]
    medians = [np.median([getattr(one, name) for one in early] or np.nan) for name in constants]
    text = " ".join(f"{median:8.3g}" for median in medians)
    print(f"{setting.name:30}", *(f"{c}/{len(of)}" for c in counts), "", text)
proved, early, everywhere = (sum(of[k].holds for of in proofs.values()) for k in range(3))
for one in kept:
    if not proofs[id(one)][0].holds:
        print(f"not proved: {one.setting.name}, seed {one.run}: {proofs[id(one)][0].why}")
print(
    f"{proved} of {len(kept)} runs proved, {early} from t/10 on, {everywhere} by (H) from there on"
)

# %% [markdown]
# ## Claims
#
# Tolerances were set before the runs. Two of the claims read the law backwards: the share of the gradient that a
# pair pulls, $\kappa_me^{-g_m}$ over the sum of all, tends to its share of the duals. So a layer's margins alone give its support
# vectors, and weak duality verifies them.

# %%
table = claims.Table(sorted(runs.all_claims(kept), key=lambda claim: claim.holds))
named = {claim.id: claim for claim in table}
table

# %% [markdown]
# Tests hold these claims against versions of the law that are a little wrong; each is noticed (`tests/papers/test_margin_law.py`).

# %%
about_offsets = f"Left: unit tokens, n=6, T=8, d=10, NGD at t = 100,000. Right: {len(kept)} runs at t = {steps:,}"
figure_offsets = plots.caption(
    drawn.offsets(predicted, offsets, kept), about_offsets + "; synthetic, float64"
)
figure_offsets

# %% [markdown]
# Left: look at the bars, measured, which end at the ticks, predicted. Right: look at the smallest duals, at the lower left.
# They lie on the diagonal as well.

# %%
out = [one for one in compared if one.refusal]
alone = sum(one.duals_alone for one in kept)
about_diagonal = (
    f"Five settings, {seeds} seeds each, t = {steps:,}; synthetic, float64; {len(out)} runs refused; "
    f"filled: {alone} runs in which C is the whole error"
)
figure_diagonal = plots.caption(drawn.diagonal(kept), about_diagonal)
figure_diagonal

# %% [markdown]
# Left: look at the diagonal: $C$ from the duals, and what the run has across $W_{mm}$ in the span of the support. In filled marks
# that is all of $\|W_t\|$ times the error. In open ones $\omega_\infty$ comes on top; `law.constant` reads it off the run at $t/10$ and
# judges the sum. Right: look at how far right of 1 the open marks lie: that is what $\omega_\infty$ adds.
#
# ## One line for all rules
#
# Figure 2's problem. If the law holds, the late [direction error](words.md) depends on the rule only through $\|W_t\|$. GD with constant steps
# and Polyak's rule with a constant cap end at $\|W_t\|\approx\log t$, where nothing has settled. GD with steps that grow like
# $e^{t}$, and Polyak's rule with a cap that grows like $e^{0.8t}$, go on along the path.

# %% tags=["nbval-check-output"]
fig2 = coordinates.minimal(tokens.class_mean_tokens(0, **sizes))
target = svm.token_svm(fig2.tokens)
fig2_law = margin_law.margin_law(fig2.tokens, target)
collapsed, short = law_steps.figure2_runs(fig2, target.W, growing_steps)
rates = law_steps.settling_rate(collapsed["NGD"], fig2_law)
unseen = [law_steps.not_yet(history, "W_mm", fig2_law, name) for name, history in short.items()]
met = law_steps.collapse(collapsed, "W_mm", fig2_law)
collapse_table = claims.Table([met, *unseen, law_steps.settles_at(rates)])
collapse_table

# %%
meets = law_steps.within_from(collapsed, "W_mm", fig2_law)
print(f"within 1 % of the line beyond ||W_t|| = {meets:.0f}, every rule")
about_collapse = "Figure 2's problem, n=20, T=10, d=300; seed 0; GD and Polyak with constant steps or cap: t up to 100,000"
figure_collapse = plots.caption(drawn.collapse(collapsed | short, fig2_law), about_collapse)
figure_collapse

# %% [markdown]
# Left: look at the printed $\|W_t\|$, from which on all rules are on the dotted line, and at where the broad bands end. Right: look at the
# slopes, which are the dotted line's: the distance from the law dies like $e^{-\lambda_1a_t}$ for every rule.
#
# ## The head may move
#
# The law knows the head only through $\kappa$. When $u$ is trained with $W$, $\kappa$ moves. If the head
# obeys the law of its own SVM $v=\sum_i\nu_iy_ix_{i,s_i}$, with duals $\nu_i$, then $\lvert\ell'_i\rvert\propto\nu_i$, and the law of $W$ has
# $\kappa_m=\nu_i\,y_iv^\top(x_{i,s_i}-x_{i,t})$. [Notebook 42](42_where_the_law_bends.ipynb) is about this case.

# %%
together = joint_law.from_start(
    tokens.gaussian_tokens(every, n=6, T=4, d=200), dynamics.ngd(0.1), [100_000, 200_000]
)
joint_table = claims.Table(joint_law.start_claims(together))
joint_table

# %% [markdown]
# ## What we saw
#
# Where the hypotheses held, the direction error was $\sqrt{C^2 + \omega_\infty^2}/\lVert W_t\rVert$, with $C$ from the
# SVM's duals. In some runs $\omega_\infty$ was zero, so that $C$ is the whole error; in the others it was read off the run at
# $t/10$. Every rule met the same line, except gradient descent with constant steps and Polyak's rule with a constant cap, which are too slow to see it.

# %% [markdown]
# **Whose it is.** For linear classifiers the residual and its equations are due to Soudry et al. (arXiv 1710.10345), normalised
# steps to Nacson et al. (1803.01905) and, with a $1/t$ rate, Ji and Telgarsky (1906.04540), a lower bound for them to Wang, Min and Wu (2311.14387).
# Next-token prediction has a direction and a finite part too (2403.08081, with attention; 2402.18551). That attention ends along
# a [token SVM](words.md) is in 2308.16898. Added here, *for attention*: the constant with head and loss in $\kappa$, steps of fixed length, the exact
# order $1/t$, and the measurements. The note says what differs from each.

# %% [markdown]
# ## Change this
#
# **The loss.** Prediction: the logistic loss has another $\kappa$, so another $C$; the ratio stays 1.

# %%
loss = "logistic"  # or "exponential"
other = runs.compare(runs.LawSetting(loss, data, dynamics.ngd(0.5), loss), 100_000)[0]
print(f"{loss}: C = {other.law.constant[0]:.4f}, {law.constant[0]:.4f} above")
print(f"error over prediction: {other.measured.error[-1] / other.predicted:.10f}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# So it is: $C$ changes a little, the error over its prediction is 1 to nine digits.
#
# </details>
#
# **The scores.** Prediction: twice the head makes every score gap twice as large, but $\lvert\ell'\rvert$ changes by another
# factor in each sample. So the offsets change, and $C$ with them, unless all selected tokens score alike.

# %%
for name, of in {"unit tokens": data, "class means": means.run(0)}.items():
    doubled = attention.token_set(of.X, of.y, of.z, 2 * of.u, of.opt)
    of_both = [margin_law.margin_law(d, svm.token_svm(d)).constant[0] for d in (of, doubled)]
    print(f"{name}: C = {of_both[0]:.4f}, with twice the head {of_both[1]:.4f}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# So it is: on unit tokens $C$ changes, on class means, where all selected tokens score alike, it does not.
#
# </details>
#
# **The start.** Prediction: a Gaussian $W_0$ changes $\omega_\infty$ and so the error, but neither $C$ nor the ratio.

# %%
for std in (0.0, 2.0):
    W_0 = dynamics.gaussian_start(problem, std, [7])
    begun = runs.compare(
        runs.LawSetting("start", problem.tokens, dynamics.ngd(0.5), start=W_0), 100_000
    )[0]
    print(f"std {std:g}: C = {begun.law.constant[0]:.4f}, outside {begun.measured.outside:.4f}, "
          f"error over prediction {begun.measured.error[-1] / begun.predicted:.10f}")  # fmt: skip

# %% [markdown]
# <details><summary>Answer</summary>
#
# So it is: the part outside the span grows, $C$ stays, and the ratio is 1. From zero the pairs off the support alone leave a part.
#
# </details>
#
# **To prove.** Show that $C = 0$ if and only if $\kappa_m/\beta_m$ is the same for all pairs on the support, where the $A_m$ there are
# linearly independent.
#
# <details><summary>Solution</summary>
#
# $C^2 = o^\top G^{-1} o$ with the Gram matrix $G$ of the support, which is positive definite, so $C = 0$ if and only if all
# offsets $o_m$ are 0. They are $\log(\kappa_m/\beta_m)$ less a mean of these logarithms with positive weights: all 0 if and only
# if the logarithms are equal.
#
# </details>

# %% tags=["set-up"]
# Set-up, no need to read.
size = lambda id: record.Number(abs(named[id].measured), BOUNDS[id])
numbers = {
    "constant": record.Number(law.constant[0], 1e-8),
    "worst_offset": size("law.offsets"),
    "worst_dual": size("law.duals"),
}
read_off = [named["law.offsets"], named["law.duals"]]
run.keep(figure_offsets, "law_offsets", about_offsets, read_off, numbers)
numbers = {"runs": len(kept), "refused": len(out), "duals_alone": alone}
numbers |= {"proved": proved, "proved_early": early, "proved_everywhere": everywhere}
numbers |= {"read_off": len(kept) - alone, "elsewhere": int(elsewhere)}
for one in out:
    where = f"{one.setting.name}, seed {one.run}, {one.premise}"
    name = "refused_" + "".join(c if c.isalnum() else "_" for c in where.lower())
    numbers[name] = one.amount
numbers |= {"worst": size("law.constant"), "worst_residual": size("law.residual")}
run.keep(figure_diagonal, "law_diagonal", about_diagonal, [*table, *joint_table], numbers)
numbers = {"constant": fig2_law.constant[0], "settling": rates[0]}
of = (figure_collapse, "law_collapse", about_collapse, collapse_table, numbers)
run.keep(*of, setting={"seeds": [0]})
