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
# # Beyond Theorem 1: the law of the margins
#
# **Paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738) proves that normalised
# gradient descent (NGD) turns $W_t/\|W_t\|$ towards $W_{mm}/\|W_{mm}\|$ with an error of at most $\tilde O(t^{-1/2})$.
#
# **Question.** What *is* the error?
#
# **Answer.** It tends to $\sqrt{C^2+\|\omega_\infty\|^2}/\|W_t\|$, which for NGD is of order $1/t$. **$C$ follows from the dual
# variables of the token SVM.** $\omega_\infty$ is zero where all pairs are support vectors and $W_0=0$. Elsewhere it is read off
# the run.
#
# ## The statement
#
# | symbol | meaning |
# |---|---|
# | $x_{i,t},\ z_i,\ y_i,\ u$ | tokens, query and label of sample $i$; the fixed head |
# | $s_i$; $m=(i,t)$, $t\ne s_i$ | the token that the run selects in sample $i$; a *pair* |
# | $A_m=(x_{i,s_i}-x_{i,t})z_i^\top$ | feature of a pair |
# | $g_m=\langle A_m,W\rangle$ | its *margin*: logit of the selected token less logit of the other |
# | $\kappa_m=\lvert\ell'(\gamma_{i,s_i})\rvert\,(\gamma_{i,s_i}-\gamma_{i,t})$, $\gamma_{i,t}=y_iu^\top x_{i,t}$ | how hard the loss pulls on the pair, before $e^{-g_m}$ |
# | $W_{mm}=\sum_m\beta_mA_m$ | the token SVM of the selection: least norm with $\langle A_m,W\rangle\ge1$; its duals $\beta$ |
# | $S$, *support* | the pairs with $\langle A_m,W_{mm}\rangle=1$ |
# | $a_t=\langle W_t,W_{mm}\rangle/\|W_{mm}\|^2$ | *margin level*; $g_m-a_t$ is the *offset* of a margin |
#
# **Hypotheses.** (S) $W_t/\|W_t\|\to W_{mm}/\|W_{mm}\|$ and $\|W_t\|\to\infty$: paper A's Theorem 1 gives it under its
# assumptions; here it is looked at run by run. (D) The $A_m$ on $S$ are linearly independent and their $\beta_m$ positive.
# (G) On $S$ the selected token has the higher score. (H') Steps are shorter than $\eta^*$, see below. `svm.margin_law`
# checks (D) and (G). `margin_law_runs.compare` checks (H') and what can be seen of (S) without looking at the error: the
# selection is made (least margin $\ge5$) and the offsets rest. Both refuse by name.
#
# The proof needs more than (H'): $\eta\|W_{mm}\|M^2<2$ with $M$ the largest $\|A_m\|$ on $S$ (Polyak: $\|W_{mm}\|M<2$), and no
# momentum. Runs are admitted up to the linear threshold $\eta^*$; how many lie in the proved range is printed below.
#
# **Law.** On the support
# $$g_m=a_t+\log\frac{\kappa_m}{\beta_m}-\text{mean}_\beta+o(1),\qquad W_t=a_tW_{mm}+\rho_\perp+\omega_\infty+o(1),$$
# where $\text{mean}_\beta$ is the $\beta$-weighted mean of the logarithms and $\rho_\perp\perp W_{mm}$ is the one matrix in the
# span of the $A_m$, $m\in S$, with these offsets. $\omega_\infty$ is orthogonal to that span. Hence
# $$\|W_t\|\times\text{error}_t\to\sqrt{C^2+\|\omega_\infty\|^2},\qquad C=\|\rho_\perp\|.$$
# $C$ is the same for every rule and start, and depends on the loss through $\kappa$ alone. $\omega_\infty$ is what $W_0$ and
# the pairs off the support left: zero if $W_0=0$ and all pairs are on the support, measured early in the run otherwise.
#
# **Why, in two lines.** Once weights are small, $-\nabla L=\frac1n\sum_m\kappa_me^{-g_m}A_m$. The direction rests only where
# this is along $W_{mm}=\sum_m\beta_mA_m$, so where $\kappa_me^{-g_m}\propto\beta_m$; take logarithms.
#
# For linear classifiers and gradient descent the same residual stands in Soudry et al. (2018). New here: attention, steps
# of fixed length and how long they may be, the lower bound, a trained head, and that all of it is measured.
# [law_of_margins.md](law_of_margins.md) has the proof and says what is only measured.

# %% tags=["parameters"]
scale = "demo"
seeds = 2
steps = 1_000_000
doublings = 20
growing_steps = 2500
unit_seeds = [1, 3, 5]
multiples = [0.5, 0.9, 0.98, 1.02, 1.1, 1.5, 2.0]
cycle_steps = 10_000

# %%
import numpy as np

from lib import attention, dynamics, svm
from lib.attention import coordinates, tokens
from lib.companion import claims, plots, record
from lib.dynamics import margins as measure
from lib.papers.a import phase_diagram
from lib.papers.beyond import margin_law_claims as law_claims
from lib.papers.beyond import margin_law_figures as drawn
from lib.papers.beyond import margin_law_networks as networks
from lib.papers.beyond import margin_law_premises as premises
from lib.papers.beyond import margin_law_runs as runs
from lib.papers.beyond import margin_law_steps as law_steps
from lib.papers.beyond import margin_law_worlds as worlds
from lib.svm import margin_law

# %%
run = record.start("40_law_of_margins", "A", globals())
plots.set_style()

# %% [markdown]
# ## The formula, in a few lines
#
# One small problem: unit tokens, all scores different, not every pair on the support. The law is made from
# tokens and duals alone, with the numbers of the table above.

# %%
problem = coordinates.minimal(tokens.unit_tokens(unit_seeds[:1], n=6, T=8, d=10))
data, others = problem.tokens.run(0), coordinates.others(problem.tokens.opt, 8)
solution = svm.token_svm(data)
selected = np.take_along_axis(data.X, data.opt[..., None, None], 2)
delta = (selected - np.take_along_axis(data.X, others[..., None], 2))[0]  # (n, T-1, r)
A = np.einsum("nti,nj->ntij", delta, data.z[0]).reshape(delta[..., 0].size, -1)  # (m, r q)
gamma = data.y[..., None] * (data.X @ data.u[:, None, :, None])[..., 0]  # (1, n, T)
own = np.take_along_axis(gamma, data.opt[..., None], -1)
gaps = (own - np.take_along_axis(gamma, others, -1))[0]  # (n, T-1)
kappa = (np.exp(-own[0]) * gaps).ravel()  # exponential loss

# %%
beta = solution.duals[0].ravel()
on = beta > 0
log_ratio = np.log(kappa[on] / beta[on])
predicted = log_ratio - beta[on] @ log_ratio / beta[on].sum()  # the offsets
rho = A[on].T @ np.linalg.solve(A[on] @ A[on].T, predicted)  # rho_perp, flattened
law = margin_law.margin_law(data, solution)
assert np.allclose(predicted, law.offsets[law.support])
assert np.isclose(np.linalg.norm(rho), law.constant[0])
assert abs(rho @ solution.W[0].ravel()) < 1e-9  # across W_mm
print(f"C = {law.constant[0]:.6f}, ||W_mm|| = {law.norm[0]:.4f}, {on.sum()} of {on.size} on S")

# %% [markdown]
# **The rule.** NGD moves $W$ by $\eta$ along $-\nabla L/\|\nabla L\|$. With $-n\nabla L=\sum_mc_mA_m$ and $K=AA^\top$ the
# margins move by themselves: $g\leftarrow g+\eta Kc/\sqrt{c^\top Kc}$. Here
# $c_{(i,t)}=\lvert\ell'(f_i)\rvert\,p_{i,t}(f_i-\gamma_{i,t})$, exactly, and $\kappa_me^{-g_m}$ in the limit.

# %%
g, K, eta = np.zeros(len(A)), A @ A.T, 0.5
for _ in range(50):
    odds = np.exp(-g.reshape(gaps.shape))  # of the other tokens to the selected one
    p = odds / (1 + odds.sum(1, keepdims=True))
    lag = (p * gaps).sum(1, keepdims=True)  # gamma_s - f
    c = (np.exp(lag - own[0]) * p * (gaps - lag)).ravel()
    g = g + eta * K @ c / np.sqrt(c @ K @ c)
by_lib = dynamics.train(problem, dynamics.ngd(eta), 50, [50]).margins[0, 0].ravel()
assert np.allclose(g, by_lib, rtol=1e-9, atol=1e-9)
print(f"largest margin after 50 steps: {g.max():.6f}, lib.dynamics: {by_lib.max():.6f}")

# %% [markdown]
# The page's loop loses digits where a softmax weight nears 1; `lib.dynamics` keeps logarithms and goes on. The offsets after
# 100,000 steps, beside the prediction:

# %%
history = dynamics.train(problem, dynamics.ngd(eta), 100_000, [0, 100_000])
level = measure.along_and_off(history.weights(1), solution.W)[0] / law.norm
offsets = (history.margins[0, 1] - level[0])[law.support[0]]
print("predicted", *(f"{value:7.3f}" for value in predicted[:6]))
print("measured ", *(f"{value:7.3f}" for value in offsets[:6]))
print(f"largest error of an offset at t = 100,000: {np.abs(offsets - predicted).max():.1e}")

# %% [markdown]
# ## Data and runs
#
# Five settings: NGD, NGD with momentum, Polyak's step; both losses; equal and unequal scores; zero and Gaussian starts; all
# pairs on the support, and some. A run counts if its hypotheses hold *before* its error is looked at: the selection is
# made, (D) and (G) hold, the step is short enough, and $e^{-\lambda a_t}\le10^{-7}$ says that the run is long enough.

# %%
every = range(seeds)
gaussian = tokens.gaussian_tokens(every, n=10, T=6, d=300)
unequal = phase_diagram.skewed(gaussian, 0.5, every)
start = dynamics.gaussian_start(coordinates.minimal(unequal), 0.01, range(1000, 1000 + seeds))
sizes = dict(n=20, T=10, d=300, signal=3.0, noise=0.1)  # paper A, Figure 2
means = tokens.class_mean_tokens(every, **sizes)
antipodal = tokens.class_mean_tokens(every, **sizes, antipodal=True)
unit = tokens.unit_tokens(every, n=6, T=8, d=10)
momentum = dynamics.ngd(0.025, momentum=0.9)
settings = [
    runs.LawSetting("class means, NGD", means, dynamics.ngd(0.025)),
    runs.LawSetting("antipodal, momentum, logistic", antipodal, momentum, "logistic"),
    runs.LawSetting("Gaussian, Polyak", gaussian, dynamics.polyak()),
    runs.LawSetting(
        "unequal scores, Gaussian start", unequal, dynamics.ngd(0.1), "logistic", start
    ),
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
slow = min(kept, key=lambda one: min(one.law.slowest[0], one.law.excess[0]))
rate = slow.law.slowest[0], slow.law.excess[0]
proved = sum(one.proved for one in kept)
print(f"{proved} of {len(kept)} have steps as short as the proof needs; the others measure more")
print(f"slowest: {slow.setting.name}, lambda_1 = {rate[0]:.1e}, excess = {rate[1]:.1e}")

# %% [markdown]
# **Duals without a solver.** The law reads both ways. The share of the gradient that a pair pulls, $\kappa_me^{-g_m}$ over the
# sum of all, tends to its share of the duals. So the support vectors of a layer whose SVM nobody solved can be read off its
# margins. With a difference of iterates they prove themselves: weak duality closes the gap to rounding (`law.certificate`).
#
# ## Claims
#
# Failures first. Tolerances were set before the runs.

# %%
table = claims.Table(sorted(law_claims.all_claims(kept), key=lambda claim: claim.holds))
named = {claim.id: claim for claim in table}
table

# %% [markdown]
# **Would these claims notice?** Each is held against worlds in which the law is a little wrong. A change of one pair is made
# where $C$ depends on it least. What catches what:

# %%
noticed = worlds.caught(kept, law_claims.all_claims)
for world, ids in noticed.items():
    print(f"{world:32} {', '.join(id.removeprefix('law.') for id in ids) or 'NOTHING'}")

# %% tags=["nbval-check-output"]
print("error x ||W_t|| -> C, exponent", round(named["law.exponent"].measured, 2))

# %%
figure = drawn.offsets(predicted, offsets, kept)
shares = [law_claims.dual_shares(one)[1] for one in kept]
print(f"largest over smallest dual of one run: up to {max(s.max() / s.min() for s in shares):,.0f}")
about_offsets = f"Left: unit tokens, n=6, T=8, d=10, NGD at t = 100,000. Right: {len(kept)} runs at t = {steps:,}"
plots.caption(figure, about_offsets + "; synthetic, float64")
figure_offsets = figure
figure

# %% [markdown]
# Left: look at how the bars, measured, end at the ticks, predicted. Right: look at the smallest duals, far below the
# largest as the line printed above says: these lie on the diagonal as well.

# %%
figure = drawn.diagonal(kept)
refused = len(compared) - len(kept)
alone = sum(one.duals_alone for one in kept)
about_diagonal = (
    f"Five settings, {seeds} seeds each, t = {steps:,}; synthetic, float64; {refused} runs refused; "
    f"filled: {alone} runs predicted from duals alone"
    + "".join(
        f"; refused: {one.setting.name}, seed {one.run} ({one.premise})"
        for one in compared
        if one.refusal
    )
)
plots.caption(figure, about_diagonal)
figure_diagonal = figure
figure

# %% [markdown]
# Left: look at the diagonal. Filled marks are predicted from duals alone; open ones take $\omega_\infty$ from the same run at
# $t/10$. The claim `law.residual` tests $C$ in every run without $\omega_\infty$. Right: look at the distance between the marks
# and the dotted line, the error that was asked for.
#
# ## One line for all rules
#
# Figure 2's problem. The direction error depends on the rule only through $\|W_t\|$. Constant GD and capped Polyak steps end
# at $\|W_t\|\approx\log t$, where nothing has settled. The same rules with steps that grow like $e^{t}$ or $e^{0.4t}$ go on
# along the path and fall onto the line.

# %%
fig2 = coordinates.minimal(tokens.class_mean_tokens(0, **sizes))
target = svm.token_svm(fig2.tokens)
fig2_law = margin_law.margin_law(fig2.tokens, target)
in_time = lambda rule, count, loss="exponential": dynamics.train(
    fig2, rule, count, targets={"W_mm": target.W}, loss=loss
)
collapsed = {
    "GD, growing steps": in_time(law_steps.growing_gd(1.0, 1.0), growing_steps),
    "GD, growing, logistic": in_time(law_steps.growing_gd(1.0, 1.0), growing_steps, "logistic"),
    "Polyak, growing cap": in_time(law_steps.growing_polyak(10.0, 0.8), growing_steps),
    "NGD": in_time(dynamics.ngd(0.025), 100_000),
    "NGD, logistic": in_time(dynamics.ngd(0.025), 100_000, "logistic"),
    "NGD-mom": in_time(dynamics.ngd(0.025, momentum=0.9), 20_000),
    "Polyak, no cap": in_time(dynamics.polyak(), 10_000),
}

# %%
short = {
    "GD": in_time(dynamics.gd(1.0), 100_000),
    "Polyak": in_time(dynamics.polyak(10.0), 100_000),
}
rates = law_steps.settling_rate(collapsed["NGD"], fig2_law)
collapse_table = claims.Table([
    law_steps.collapse(collapsed, "W_mm", fig2_law),
    *(law_steps.not_yet(history, "W_mm", fig2_law, name) for name, history in short.items()),
    law_steps.settles_at(rates),
])  # fmt: skip
collapse_table

# %%
figure = drawn.collapse(collapsed | short, fig2_law)
meets = {}  # the ||W_t|| from which on a rule stays within 1 % of the law
for name, history in collapsed.items():
    ratio = law_steps.ratio_to_law(history, "W_mm", fig2_law)[0, 1:]
    far = history.norm[0, 1:][~(np.abs(ratio - 1) <= 0.01)]
    meets[name] = far.max()
print(f"within 1 % of the line beyond ||W_t|| = {max(meets.values()):.0f}, every rule")
about_collapse = "Figure 2's problem, n=20, T=10, d=300; seed 0; GD and Polyak with constant steps or cap: t up to 100,000"
plots.caption(figure, about_collapse)
figure_collapse = figure
figure

# %% [markdown]
# Left: look at where all rules meet the dotted line (the printed $\|W_t\|$), and where the broad bands end. Right: look at the
# slopes, which are the dotted line's: the distance from the law dies like $e^{-\lambda_1a_t}$ for every rule.
#
# ## A max-margin direction from training alone
#
# $\rho_\perp$ is the same at $t$ and at $2t$, so it cancels in $W_{2t}-W_t$. For NGD what is left falls exponentially, down to
# rounding. For GD, with $\|W_t\|\sim\log t$, the plain error is of order $1/\log t$; the difference's is
# at most $t^{-q}$ for every $q<\min(\lambda_1,1,\epsilon)$, with $1+\epsilon$ the least margin of $W_{mm}$ off $S$. Where
# $\lambda_1$ is near 1, as here, a factor $\log t$ comes with it: that is measured. The difference is worth most where tokens
# are nearly orthogonal and $T=2$, and next to nothing to GD where $\lambda_1$ is small; both $\lambda_1$ are printed.

# %%
doubled = 2 ** np.arange(2, doublings + 1)
long = dynamics.train(fig2, dynamics.ngd(0.025), doubled[-1], doubled, targets={"W_mm": target.W})
long_errors = law_steps.difference_errors(long, target.W)
pair = coordinates.minimal(tokens.gaussian_tokens(every, n=8, T=2, d=400, signal=3.0))
pair_target = svm.token_svm(pair.tokens)
pair_law = margin_law.margin_law(pair.tokens, pair_target)
flat = dynamics.train(pair, dynamics.gd(0.5), doubled[-1], doubled, targets={"W_mm": pair_target.W})
flat_errors = law_steps.difference_errors(flat, pair_target.W)
print(f"lambda_1: T = 2 {pair_law.slowest.min():.3f} and more, Figure 2 {fig2_law.slowest[0]:.4f}")
for name, history, errors in (("NGD", long, long_errors), ("GD, T = 2", flat, flat_errors)):
    plain, better = history.direction_error["W_mm"][:, -1].max(), errors[:, -1].max()
    print(f"{name}: W_2t {plain:.1e}, W_2t - W_t {better:.1e} at 2t = {doubled[-1]:,}")
difference_table = claims.Table([
    law_steps.long_run(long, "W_mm", fig2_law),
    law_steps.gain(long, "W_mm", long_errors),
    law_steps.gd_order(flat, flat_errors, pair_law),
])  # fmt: skip
difference_table

# %%
figure = drawn.differences((long, long_errors, fig2_law), (flat, flat_errors, pair_law))
about_difference = "Left: NGD on Figure 2's problem, seed 0. Right: GD on Gaussian tokens, n=8, T=2, d=400; synthetic, float64"
plots.caption(figure, about_difference)
figure_difference = figure
figure

# %% [markdown]
# Left: look at the dashed line, which leaves the solid one and ends at rounding. Right: look at the slope of the dashed line
# beside the dotted one.
#
# ## A head that moves, and a network
#
# **Trained head.** When $u$ is trained with $W$, $\kappa_m$ moves. The head obeys the law of its own SVM
# $v=\sum_i\nu_iy_ix_{i,s_i}$, so $\lvert\ell'_i\rvert\propto\nu_i$, and the law of $W$ holds with
# $\kappa_m=\nu_i\,y_iv^\top(x_{i,s_i}-x_{i,t})$: **both SVMs' duals**. The head's direction errs by $O(1/t)$, and the offsets
# follow at that order.

# %%
together = networks.joint(
    tokens.gaussian_tokens(every, n=6, T=4, d=200), dynamics.ngd(0.1), [100_000, 200_000]
)
joint_table = claims.Table(networks.joint_claims(together))
joint_table

# %% [markdown]
# **A small vision transformer**, as in notebooks 15 and 16: two blocks, one head, 16 images, NGD on all parameters. The class
# token's attention in the last block is read at $t$ and $2t$. Tokens, queries and values move as well, and $W=K^\top Q$ is a
# product: no hypothesis of the law holds.

# %%
seen = []
for network, pictures, labels in networks.trained_networks([300, 600]):
    seen.append(networks.read(network, pictures, labels))
readings, weights = zip(*seen, strict=True)
turned = networks.turned(weights[-1], weights[-2], weights[-1])
last = readings[-1]
print(
    f"The loss is {last.loss:.1e}, yet the median of the largest weight is {last.weight:.2f} and "
    f"the smallest margin {last.least_margin:.1e}; even attention over 17 tokens has {1 / 17:.2f}."
)
print(
    f"{last.toward:.0%} of the pairs are pulled towards the largest logit; cosine of the pull and W: "
    f"{last.rest:.2f}, of W_2t - W_t and W_2t: {turned:.2f}."
)
print(
    f"Pulls and the SVM's duals: rank correlation {last.rank:.2f}; the law refuses: {last.refusal}."
)

# %% [markdown]
# ## Three ways to break it
#
# **1. Steps that are too long.** A step that raises the margins by $h$ multiplies a wrong offset in the mode $\lambda$ by
# $1-h\lambda$; $\lambda$ runs over the eigenvalues of $B^{1/2}KB^{1/2}$ off $\sqrt\beta$, $B=\text{diag}(\beta)$. So small wrong
# offsets die for $\eta<\eta^*=2(1+\mu)\|W_{mm}\|/\lambda_{\max}$ (momentum $\mu$) and cycle beyond, as at the edge of stability.
# With momentum a large cycle can live below $\eta^*$ as well: a run that still moves is refused ("offsets at rest"). Offsets that only look
# stuck are a slow mode as a rule; the smallest $\lambda_1$ of the unit tokens is printed. Then a *longer* step, still below
# $\eta^*$, settles them.

# %%
unit_tokens = tokens.unit_tokens(unit_seeds, n=6, T=8, d=10)
unit_rates = [one.law.slowest[0] for one in kept if one.setting.name.startswith("unit")]
print(f"smallest lambda_1 among the unit tokens above: {min(unit_rates):.1e}")
found = [law_steps.cycles(unit_tokens, multiples, momentum, cycle_steps) for momentum in (0.0, 0.9)]
steps_table = claims.Table([
    *law_steps.threshold(found, 0.98, 1.02),
    *(law_steps.short_step(found, multiple) for multiple in (0.9, 0.5)),
])  # fmt: skip
too_long = runs.compare(runs.LawSetting("", unit_tokens.run(0), dynamics.ngd(4.0)), 100_000)
print(too_long[0].refusal)
steps_table

# %%
figure = drawn.cycles(found)
about_steps = f"Unit tokens, n=6, T=8, d=10, seeds {unit_seeds}; NGD from the settled state with its residual 1 % off"
plots.caption(figure, about_steps)
figure_steps = figure
figure

# %% [markdown]
# Both panels: look at the jump at the dotted line, the predicted threshold; one line per seed. The claims at 0.9 and 0.5
# came later than the others, when this figure had shown a cycle at 0.9. Right: one run cycles at 0.9 as well; it stands among
# seeds 1, 3, 5, 6, 7. A residual 1 % off is no small disturbance to a run with momentum.
#
# **2. A tight pair that carries nothing.** Margins $w_1$ and $w_1+w_2$ are both 1 at $W_{mm}=(1,0)$, but the second has
# $\beta=0$: $\log(\kappa/\beta)$ is infinite. The page's equation $\dot w_2/\dot w_1=\kappa_2e^{-w_2}/(\kappa_1+\kappa_2e^{-w_2})$ gives
# $w_2\approx\log(\kappa_2w_1/\kappa_1)$. The error is of order $\log t/t$: **the law's $1/t$ fails**, by a factor that grows.
# A repeated token is refused as well, since its duals are not unique.

# %%
corner = attention.token_set(
    [[[0.0, 0.0], [-1.0, 0.0], [-1.0, -1.0]]], [1.0], z=[[1.0]], u=[1.0, 0.5]
)
bent = dynamics.train(
    corner, dynamics.ngd(0.1), 1_000_000, 10 ** np.arange(2, 7), targets={"W_mm": [[[1.0], [0.0]]]}
)
print(
    "||W_t|| x error   ",
    *(f"{value:8.4f}" for value in (bent.norm * bent.direction_error["W_mm"])[0]),
)
print("log(1.5 ||W_t||)  ", *(f"{value:8.4f}" for value in np.log(1.5 * bent.norm[0])))
X = np.concatenate([unit.X, unit.X[:, :, -1:]], 2)
repeated = attention.token_set(X, unit.y, unit.z, unit.u, unit.opt).run(0)
for name, broken in {"a dual at zero": corner, "repeated tokens": repeated}.items():
    try:
        margin_law.margin_law(broken, svm.token_svm(broken))
    except ValueError as refusal:
        print(f"{name}: {refusal}")

# %% [markdown]
# **3. Too short a run, an unmade or an impossible selection.** $e^{-\lambda_1a_t}$ must be small. GD with constant steps has
# $a_t\approx\log t$; the steps that it would need on Figure 2's problem are printed.

# %%
opposed = attention.token_set(
    [[[1.0, 0.0], [-1.0, 0.0]], [[-1.0, 0.0], [1.0, 0.0]]], [1.0, 1.0],
    z=[[1.0], [1.0]], u=[1.0, 0.0], opt=[0, 0],
)  # fmt: skip
tried = {
    "GD, 100,000 steps": (means.run(0), dynamics.gd(1.0), 100_000),
    "NGD, 100 steps": (gaussian.run(0), dynamics.ngd(0.1), 100),
    "NGD, 20 short steps": (unit.run(0), dynamics.ngd(0.01), 20),
}
for name, (of, rule, count) in tried.items():
    print(f"{name}: {runs.compare(runs.LawSetting(name, of, rule), count)[0].refusal}")
needed = -np.log(premises.SETTLED) / min(fig2_law.slowest[0], fig2_law.excess[0], 1.0)
print(f"GD on Figure 2's problem: a_t = {needed:.0f}, so about e^{needed:.0f} steps")
try:
    svm.token_svm(opposed)
except svm.Infeasible as refusal:
    print(f"an impossible selection: {refusal}")

# %% [markdown]
# ## What we saw

# %%
print(
    "The error is sqrt(C^2 + omega^2)/||W_t||: C from the SVM's duals; omega is zero where all pairs "
    f"are support vectors and W_0 = 0 ({alone} runs), otherwise read off the run at t/10 "
    f"({len(kept) - alone} runs)."
)
worst, gain = abs(named["law.constant"].measured), difference_table[1].measured
print(
    f"In {len(kept)} of {len(compared)} runs the hypotheses held, and there the direction error was "
    f"the predicted one to a relative {worst:.0e}."
)
print(
    f"The difference of two iterates is {gain:.0e} times nearer to the max-margin direction than the "
    "iterate, and the SVM's duals stand in the margins."
)
print(
    "The law breaks where steps pass the threshold, where a tight pair carries nothing, and where the "
    f"run is too short: GD ends at a norm of {short['GD'].norm[0, -1]:.0f}, where nothing has settled."
)

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
# **The step.** Prediction: below `longest_step` the ratio is 1, above the run is refused. Try 0.9, 1.1, and a momentum.

# %%
multiple, mu = 0.9, 0.0
longest = law.longest_step(mu)[0]
stepped = runs.compare(
    runs.LawSetting("step", data, dynamics.ngd(multiple * longest, momentum=mu)), 100_000
)[0]
print(
    stepped.refusal
    or f"error over prediction: {stepped.measured.error[-1] / stepped.predicted:.10f}"
)

# %% [markdown]
# **The start.** Prediction: a Gaussian $W_0$ changes $\omega_\infty$ and so the error, but neither $C$ nor the ratio.

# %%
std = 0.05
W_0 = dynamics.gaussian_start(problem, std, [7])
begun = runs.compare(
    runs.LawSetting("start", problem.tokens, dynamics.ngd(0.5), start=W_0), 100_000
)[0]
print(
    begun.refusal
    or f"C = {begun.law.constant[0]:.4f}, outside the span {begun.measured.outside:.4f}"
)
print(begun.refusal or f"error over prediction: {begun.measured.error[-1] / begun.predicted:.10f}")

# %% [markdown]
# ## Records
#
# The figures above, saved with their claims and numbers.

# %%
rows = [{"name": "unit_tokens and others", "source": "synthetic", "revision": f"seeds 0-{seeds - 1}", "rows": 6}]  # fmt: skip
title = "beyond Theorem 1"
numbers = {
    "constant": record.Number(law.constant[0], 1e-8),
    "worst_offset": record.Number(abs(named["law.offsets"].measured), law_claims.OFFSET),
    "worst_dual": record.Number(abs(named["law.duals"].measured), law_claims.DUAL),
}
read_off = [named["law.offsets"], named["law.duals"]]
run.save(figure_offsets, "law_offsets", title, about_offsets, read_off, numbers, rows)

# %%
numbers = {
    "runs": record.Number(len(kept), 0),
    "refused": record.Number(refused, 0),
    "worst": record.Number(worst, law_claims.CONSTANT),
    "proved": record.Number(proved, 0),
    "duals_alone": record.Number(alone, 0),
    "read_off": record.Number(len(kept) - alone, 0),
    "worst_residual": record.Number(abs(named["law.residual"].measured), law_claims.RESIDUAL),
    "elsewhere": record.Number(int(elsewhere), 0),
}
for one in (one for one in compared if one.refusal):
    where = f"{one.setting.name}, seed {one.run}, {one.premise}"
    name = "refused_" + "".join(c if c.isalnum() else "_" for c in where.lower())
    numbers[name] = record.finite(one.amount, 0.5 * abs(np.nan_to_num(one.amount)))
every_claim = [*table, *joint_table]
run.save(figure_diagonal, "law_diagonal", title, about_diagonal, every_claim, numbers, rows)

# %%
numbers = {
    "constant": record.Number(fig2_law.constant[0], 1e-8),
    "settling": record.Number(rates[0], 1e-2),
}
run.save(figure_collapse, "law_collapse", title, about_collapse, collapse_table, numbers, rows)
numbers = {
    "ngd_log10_gain": record.Number(float(np.log10(gain)), 1.0),
    "gd_plain": record.Number(np.median(flat.direction_error["W_mm"][:, -1]), 1e-6),
    "gd_difference": record.Number(np.median(flat_errors[:, -1]), 1e-8),
}
run.save(
    figure_difference, "law_difference", title, about_difference, difference_table, numbers, rows
)
numbers = {"move_at_1.02": record.Number(steps_table[1].measured, 0.05)}
run.save(figure_steps, "law_steps", title, about_steps, steps_table, numbers, rows)
