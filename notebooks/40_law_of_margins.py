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
# **Paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738) proves, under its assumptions, that
# normalised gradient descent (NGD) turns the attention weights $W_t$ into the direction of a max-margin matrix $W_{mm}$.
# The *direction error* $\big\lVert W_t/\|W_t\|-W_{mm}/\|W_{mm}\|\big\rVert$ is the distance between the two directions.
# Theorem 1 bounds this error by a multiple of $t^{-1/2}$, up to logarithms.
#
# A bound says how large the error can be at most. It does not say how large the error is, so it cannot tell you when to stop training.
#
# **Question.** How large *is* the error? Can you compute, before training, how many steps bring $W_t$ within one degree of $W_{mm}$?
#
# ## Two samples in the plane
#
# Take two samples of two tokens. In both samples the second token is zero and the query is the number 1, so $W$ is a vector in the plane.
# The first tokens are $(1,0)$ and $(0,\frac12)$, and both have the score 1.
# The *margin* of a sample is the logit of its first token minus the logit of its second token: $g_1=w_1$ and $g_2=\frac12w_2$.
#
# The *token SVM* asks for the shortest $W$ with both margins at least 1. Its solution is $W_{mm}=(1,2)$, which is the sum $1\cdot(1,0)+4\cdot(0,\frac12)$.
# The factors 1 and 4 are the *dual variables* of the SVM, or *duals* for short.
#
# Now we train by NGD. Watch the last two columns: the difference of the margins, and the error multiplied by $\|W_t\|$.

# %% tags=["parameters"]
# Set-up, no need to read.
scale = "demo"
seeds = 2
steps = 1_000_000
growing_steps = 2500

# %% tags=["set-up"]
# Set-up, no need to read.
import numpy as np

from companion import claims, plots, record, statements
from lib import attention, dynamics, svm
from lib.attention import coordinates, tokens
from papers.a import phase_diagram
from papers.a.statements import STATEMENTS
from papers.law import joint_law, margin_law, margin_law_figures, margins
from papers.law import margin_law_runs as runs
from papers.law import margin_law_steps as law_steps
from papers.ours import BOUNDS

run = record.start("40_law_of_margins", "A", globals())

# %%
A, W_mm, path = np.array([[1.0, 0.0], [0.0, 0.5]]), np.array([1.0, 2.0]), [np.zeros(2)]
for _ in range(1000):
    other = 1 / (1 + np.exp(A @ path[-1]))  # weight of the second token of each sample
    pull = np.exp(other - 1) * other * (1 - other)  # e^-f p (1 - p), exponential loss
    path.append(path[-1] + 0.1 * pull @ A / np.linalg.norm(pull @ A))  # NGD: a step of 0.1
for t in (1, 10, 100, 300, 1000):
    g, length = A @ path[t], np.linalg.norm(path[t])
    error = np.linalg.norm(path[t] / length - W_mm / np.linalg.norm(W_mm))
    print(f"t = {t:4}  margins {g.round(3)}  g_2 - g_1 = {g[1] - g[0]:.4f}", end="  ")
    print(f"error x ||W|| = {error * length:.4f}")

# %% [markdown]
# Both margins grow for ever, but their *difference* converges to $-\log4=-1.386$. The number 4 is the ratio of the two duals.
#
# Why? Both samples have the same loss and the same scores. Late in training, sample $i$ therefore pulls on $W$ with a force proportional to $e^{-g_i}$.
#
# 1. Each step is the sum of $(1,0)$ and $(0,\frac12)$, each multiplied by its pull. The step points along $W_{mm}$ if the pulls have the ratio $1:4$ of the duals, that is, if $g_2-g_1=-\log4$. Such a step does not change the difference.
# 2. If the difference is larger, sample 2 pulls less than its share, so the difference falls. If the difference is smaller, it rises.
# 3. In the end $W=(g_1,2g_2)=g_1\,(1,2)-(0,2\log4)$. So the path keeps a fixed distance from the ray through $W_{mm}$. This distance is $C=2\log4/\sqrt5=1.24$, the length of the part of $(0,2\log4)$ that is orthogonal to $(1,2)$.
#
# Seen from the origin, a fixed distance is an angle that shrinks like $1/\|W_t\|$.

# %%
rest = np.log(4) * np.array([0.8, -0.4])  # across W_mm, with margins log 4 apart
about_ray = "Two samples of two tokens, NGD from zero, step 0.1; no randomness"
figure_ray = margin_law_figures.beside_the_ray(np.array(path), W_mm, rest)
plots.caption(figure_ray, about_ray)
beside = path[-1] - (path[-1] @ W_mm) / (W_mm @ W_mm) * W_mm
ray_off = abs(np.linalg.norm(beside) / np.linalg.norm(rest) - 1)
figure_ray

# %% [markdown]
# Left: the path runs beside the dashed ray and never meets it. Right: its distance from the ray converges to the dotted line, which we predicted from the duals alone.
#
# **How many steps reach one degree?** The angle $\theta$ between $W_t$ and $W_{mm}$ satisfies $\lVert W_t\rVert\sin\theta=C$, so one degree needs the length $C/\sin1°$.
# Each NGD step is 0.1 long, and late in training each step points almost along $W_{mm}$. So we predict $C/(0.1\,\sin1°)$ steps before we train.
# The first steps point elsewhere, so our prediction can be a few steps wrong.

# %%
one_degree = np.deg2rad(1)
print(f"predicted: {np.linalg.norm(rest) / (0.1 * np.sin(one_degree)):.0f} steps")
cosines = np.array(path[1:]) @ W_mm / np.linalg.norm(path[1:], axis=1) / np.linalg.norm(W_mm)
print(f"measured:  {1 + np.argmax(cosines > np.cos(one_degree))} steps")

# %% [markdown]
# ## The law, in its easiest form
#
# The same argument works for many samples, losses and rules. A *pair* $m=(i,t)$ is the token $\alpha_i$ that the run selects in sample $i$, together with another token $t$ of this sample.
#
# | symbol | meaning |
# |---|---|
# | $A_m=(x_{i,\alpha_i}-x_{i,t})z_i^\top$; $g_m=\langle A_m,W\rangle$ | the feature of a pair; its margin |
# | $W_{mm}=\sum_m\beta_mA_m$; *support* | the SVM's solution with its duals $\beta_m\ge0$; the pairs whose margin at $W_{mm}$ is exactly 1 |
# | $\kappa_m=\lvert\ell'(\gamma_{i,\alpha_i})\rvert\,(\gamma_{i,\alpha_i}-\gamma_{i,t})$ | how hard the loss $\ell$ pulls on a pair, before the factor $e^{-g_m}$; $\gamma$ are the scores |
# | $a_t=\langle W_t,W_{mm}\rangle/\lVert W_{mm}\rVert^2$; $o_m$ | the *margin level*; the *offset* of a pair, the limit of $g_m-a_t$ |
#
# **Theorem.** Start at $W_0=0$. Suppose that every pair is on the support with a positive dual, that the selected tokens have the higher scores, that the steps are short, and that the run gets far enough. Then
# $$\|W_t\|\,\sin\theta_t\to C,\qquad C=\|\rho_\perp\|,\qquad\langle A_m,\rho_\perp\rangle=o_m=\log\frac{\kappa_m}{\beta_m}-\text{mean}_\beta\log\frac{\kappa}{\beta}.$$
# Here $\text{mean}_\beta$ is the mean with the weights $\beta$. Subtracting it makes $\sum_m\beta_mo_m=0$, so that $\rho_\perp$ is orthogonal to $W_{mm}$. Only one matrix $\rho_\perp$ in the span of the $A_m$ has these inner products, so we find it by solving a linear system.
#
# **Why?** Late in training, $-\nabla L\approx\frac1n\sum_m\kappa_me^{-g_m}A_m$. The direction of $W_t$ can stay fixed only if this sum points along $W_{mm}=\sum_m\beta_mA_m$.
# So the pulls $\kappa_me^{-g_m}$ become proportional to the duals $\beta_m$. The logarithm of this proportion gives $o_m$.
#
# [The note](law_of_margins.md#the-law-that-notebook-40-measures) proves a general theorem under four hypotheses. There, pairs may lie off the support, and the start may differ from zero. The formula for $C$ stays, with the sum and the mean over the pairs on the support. The start and the pairs off the support contribute a component $\omega_\infty$ that is orthogonal to all $A_m$ of the support, and $\|W_t\|\times\text{error}_t\to\sqrt{C^2+\|\omega_\infty\|^2}$.
#
# What does paper A say about the direction?

# %%
statements.quoted("A", STATEMENTS, "Theorem 1")

# %% [markdown]
# ## The formula, in a few lines
#
# We compute $C$ for one small problem, in which some pairs are off the support.

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
law = margin_law.margin_law(data, solution)  # the library's
assert np.isclose(np.linalg.norm(rho), law.constant[0])
print(f"C = {np.linalg.norm(rho):.6f}, {on.sum()} of {on.size} pairs on the support")

# %% [markdown]
# Now we train for 100,000 steps and compare the offsets of the run with this prediction.

# %%
history = dynamics.train(problem, dynamics.NGD(0.5), 100_000, [0, 100_000])
level = margins.along_and_off(history.weights(1), solution.W)[0] / law.norm
offsets = (history.margins[0, 1] - level[0])[law.support[0]]
print("predicted", *(f"{value:7.3f}" for value in predicted[:6]))
print("measured ", *(f"{value:7.3f}" for value in offsets[:6]))
print(f"largest error of an offset at t = 100,000: {np.abs(offsets - predicted).max():.1e}")

# %% [markdown]
# ## Data and runs
#
# The five settings below differ in rule, loss, scores, start and support. Before we look at the error of a run, we *refuse* the run if it is too short, if its steps are too long, or if a dual or a score violates the hypotheses. We *admit* all other runs.

# %%
every = range(seeds)
gaussian = tokens.gaussian_tokens(every, n=10, T=6, d=300)
unequal = phase_diagram.skewed(gaussian, 0.5, every)
start = dynamics.gaussian_start(coordinates.minimal(unequal), 0.01, range(1000, 1000 + seeds))
sizes = dict(n=20, T=10, d=300, signal=3.0, noise=0.1)  # paper A, Figure 2
means = tokens.class_mean_tokens(every, **sizes)
antipodal = tokens.class_mean_tokens(every, **sizes, antipodal=True)
unit = tokens.unit_tokens(every, n=6, T=8, d=10)
momentum, small_step = dynamics.NGD(0.025, momentum=0.9), dynamics.NGD(0.1)
settings = [
    runs.LawSetting("class means, NGD", means, dynamics.NGD(0.025)),
    runs.LawSetting("antipodal, momentum, logistic", antipodal, momentum, "logistic"),
    runs.LawSetting("Gaussian, Polyak", gaussian, dynamics.Polyak()),
    runs.LawSetting("unequal scores, Gaussian start", unequal, small_step, "logistic", start),
    runs.LawSetting("unit tokens, partial support", unit, dynamics.NGD(0.5)),
]
compared = [one for setting in settings for one in runs.compare(setting, steps)]
kept, out = runs.kept(compared), [one for one in compared if one.refusal]
print(f"{len(kept)} of {len(compared)} runs are admitted at t = {steps:,}")
print(*(f"refused: {one.setting.name}, seed {one.run}, {one.premise}" for one in out), sep="\n")

# %% [markdown]
# An admitted run is *proved* if one of its iterates satisfies a theorem of the note. To how many runs does this apply?

# %%
proofs = [(one.proof(), one.proof(early=True), one.proof(True, True)) for one in kept]
proved, early, everywhere = np.sum([[proof.holds for proof in row] for row in proofs], 0).tolist()
print(f"proved of {len(kept)} runs: {proved} from the last iterate on, {early} from t/10 on;",
      f"by hypothesis 3 as it stands {everywhere}")  # fmt: skip

# %% [markdown]
# All ten admitted runs are proved, and five of these runs satisfy the note's hypothesis 3 on short steps. At desk [scale](words.md), the larger of our two sizes of run, all 96 admitted runs are proved, and 39 of these runs satisfy hypothesis 3.
#
# ## Claims
#
# A [claim](words.md) is a measured number beside a bound that we chose before the runs. [The note](law_of_margins.md#what-follows) derives the claims on duals, differences and certificates.

# %%
table = claims.Table(runs.all_claims(kept))
table

# %%
about_offsets = f"Unit tokens, n=6, T=8, d=10, NGD at t = 100,000; in words: {len(kept)} runs at t = {steps:,}"
figure_offsets = margin_law_figures.offsets(predicted, offsets, kept)
plots.caption(figure_offsets, about_offsets + "; synthetic, float64")

# %% [markdown]
# If the law holds, the measured bars end at the predicted ticks. So we can read the duals of a run off its margins. The words give the largest error of all runs.

# %%
alone = sum(one.duals_alone for one in kept)
about_diagonal = f"Five settings, {seeds} seeds each, t = {steps:,}; synthetic, float64; {len(out)} runs excluded as too short; filled: {alone} runs in which C is the whole error"
figure_diagonal = plots.caption(margin_law_figures.diagonal(kept), about_diagonal)
figure_diagonal

# %% [markdown]
# Left: if the law holds, every run lies on the diagonal ([all 96 runs at desk scale](../figures/desk/law_diagonal.png)). The vertical axis is the length of the part of $W_t$ that lies in the span of the support and is orthogonal to $W_{mm}$. Right: where $\omega_\infty$ adds to the error, the mark is open and lies to the right of 1. We read $\omega_\infty$ off the run at $t/10$.
#
# ## One line for all rules
#
# If $\omega_\infty=0$, the late error depends on the rule only through $\|W_t\|$. So all rules should fall on one line. Do they?
#
# We take the problem of paper A's Figure 2. Gradient descent (GD) with constant steps and Polyak's rule with a constant cap are slow, because the gradient shrinks exponentially in the margins. We therefore also run GD with steps that grow like $e^{t}$, and Polyak's rule with a cap that grows like $e^{0.8t}$.

# %% tags=["nbval-check-output"]
fig2 = coordinates.minimal(tokens.class_mean_tokens(0, **sizes))
target = svm.token_svm(fig2.tokens)
fig2_law = margin_law.margin_law(fig2.tokens, target)
collapsed, short = law_steps.figure2_runs(fig2, target.W, growing_steps)
collapse_table = claims.Table(law_steps.figure2_claims(collapsed, short, "W_mm", fig2_law))
collapse_table

# %%
about_collapse = "Figure 2's problem, n=20, T=10, d=300; seed 0; normalised GD with and without momentum, GD and Polyak's rule, logistic and exponential loss; crosses: t = 100,000"
figure_collapse = plots.caption(
    margin_law_figures.collapse(collapsed | short, fig2_law), about_collapse
)
figure_collapse

# %% [markdown]
# All rules reach the dotted line near $\|W_t\|=100$. The two labelled marks are the ends of GD with constant steps and of Polyak's rule with a constant cap. How fast the distance from the law shrinks is the subject of [notebook 41](41_how_margins_settle.ipynb), which computes the rate from the duals.
#
# **What if the head is trained too?** Then the ratios of the $\kappa_m$ converge, and $W$ obeys the law with their limits, which [notebook 42](42_where_the_law_bends.ipynb) derives. Here we check one example.

# %%
start_zero = tokens.gaussian_tokens(every, n=6, T=4, d=200)
together = joint_law.from_start(start_zero, dynamics.NGD(0.1), [100_000, 200_000])
joint_table = claims.Table(joint_law.start_claims(together))
joint_table

# %% [markdown]
# ## What we saw
#
# **Answer.** Late in training the direction error is a constant divided by $\|W_t\|$. The constant needs the tokens that the run selects; here these are the best tokens in all but the runs on unit tokens. Its second part, $\omega_\infty$, we read off the run at $t/10$. So the prediction is complete before training where $\omega_\infty=0$, as in the first example. Under NGD, $\|W_t\|$ grows like $t$. So if the constant is not zero, the error falls like $1/t$. Theorem 1 only promises $t^{-1/2}$.
#
# We check on the computer that a run gets far enough. The rest is proved. For linear classifiers, $\rho_\perp$ is due to Soudry et al. (arXiv 1710.10345). [The note](law_of_margins.md#before-this) says what is new for attention.
#
# ## Change this
#
# **The loss.** The logistic loss changes $\kappa$ and therefore $C$. *Prediction:* error divided by prediction stays 1.

# %%
loss = "logistic"  # or "exponential"
other = runs.compare(runs.LawSetting(loss, data, dynamics.NGD(0.5), loss), 100_000)[0]
print(f"{loss}: C = {other.law.constant[0]:.4f}, {law.constant[0]:.4f} above")
print(f"error over prediction: {other.measured.error[-1] / other.predicted:.10f}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# It does, to nine digits, and $C$ changes a little.
#
# </details>
#
# **The start.** *Prediction:* a Gaussian $W_0$ changes $\omega_\infty$ and therefore the error, but it changes neither $C$ nor error divided by prediction.

# %%
for std in (0.0, 2.0):
    W_0 = dynamics.gaussian_start(problem, std, [7])
    begun = runs.LawSetting("start", problem.tokens, dynamics.NGD(0.5), start=W_0)
    one = runs.compare(begun, 100_000)[0]
    print(f"std {std:g}: C = {one.law.constant[0]:.4f}, outside {one.measured.outside:.4f}, "
          f"error over prediction {one.measured.error[-1] / one.predicted:.10f}")  # fmt: skip

# %% [markdown]
# <details><summary>Answer</summary>
#
# The prediction holds. From zero, only the pairs off the support leave a part outside the span.
#
# </details>
#
# **To prove.** Show that $C = 0$ if and only if $\kappa_m/\beta_m$ is the same for all pairs on the support. [The note](law_of_margins.md#the-law-that-notebook-40-measures) has the solution.

# %% tags=["set-up"]
# Set-up, no need to read.
of_id = {claim.id: claim for claim in table}
size = lambda id: record.Number(abs(of_id[id].measured), BOUNDS[id])
numbers = dict(worst_offset=size("law.offsets"), worst_dual=size("law.duals"))
numbers["constant"] = record.Number(law.constant[0], 1e-8)
read_off = [of_id["law.offsets"], of_id["law.duals"]]
ray = claims.at_most("ray", "distance from the ray at the end, relatively off the one from the duals", "ours, from paper A, Theorem 1", ray_off, 0.01)
run.keep(figure_ray, "law_ray", about_ray, [ray], {"off": ray_off, "C": float(np.linalg.norm(rest))}, setting={"seeds": []})
run.keep(figure_offsets, "law_offsets", about_offsets, read_off, numbers)
elsewhere = sum((one.selected != one.tokens.opt).any() for one in kept)
numbers = dict(runs=len(kept), refused=len(out), duals_alone=alone, read_off=len(kept) - alone)
numbers |= dict(proved=proved, proved_early=early, proved_everywhere=everywhere)
numbers |= dict(elsewhere=int(elsewhere), worst=size("law.constant"))
for one in out:
    named = f"refused {one.setting.name}, seed {one.run}, {one.premise}".lower()
    numbers["".join(c if c.isalnum() else "_" for c in named)] = one.amount
numbers["worst_residual"] = size("law.residual")
run.keep(figure_diagonal, "law_diagonal", about_diagonal, [*table, *joint_table], numbers)
numbers = {"constant": fig2_law.constant[0], "settling": collapse_table[-1].measured}
of = (figure_collapse, "law_collapse", about_collapse, collapse_table, numbers)
run.keep(*of, setting={"seeds": [0]})
