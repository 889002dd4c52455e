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
# # Where the law bends: trained heads, several heads, other norms, and the map of its constant
#
# **Notebook 40** has a law for a fixed head: $\|W_t\|$ times the direction error tends to a constant $C$ that the token SVM's duals
# give. **Paper A** (arXiv 2402.05738) trains the head as well and proves $1/\log t$ (Theorem 3). It asks which data make joint
# training global. **Paper C** (arXiv 2410.14581) has rates for $\ell_p$ mirror descent (Lemma 29).
#
# **Question.** What becomes of the law when the head moves, when there are more heads, when a dual is zero, when the geometry is
# $\ell_p$? Where do runs stop ending in $(u_{mm},W_{mm})$?
#
# **Answer.** Runs obey the law in each case, with other duals. Where Theorem 3 has $1/\log t$ their error falls like $t^{-1/3}$:
# derived and measured, not proved. Joint training is not global: two samples with the tokens $\{1,0\}$ and $\{1,-3\}$ defeat it,
# which is proved.
#
# ## The statements
#
# | symbol | meaning |
# |---|---|
# | $A_m,\ g_m,\ W_{mm}=\sum_m\beta_mA_m,\ a_t$ | features, margins, token SVM with its duals, and level: as in notebook 40 |
# | $v=u_{mm}=\sum_i\nu_iy_ix_{i,opt}$ | head SVM of the opt tokens, with its duals |
# | $C,\ C_u$ | length of the residual across the solution, of $W$ and of the head |
# | $\eta(t+1)^{-p}$ | step length of both; paper A has $p=2/3$ |
# | $a_i=y_ix_{i,opt},\ b_i=y_ix_{i,other}$ | the two tokens of a sample in one dimension |
# | $D$ | directional Bregman divergence of $\ell_p$ mirror descent |
#
# **Hypotheses.** The run ends in one selection with margins that grow without end. The duals on the support are positive and its
# features independent. The selected token has the higher score there. Each is checked run by run, and refused by name.
#
# | what | statement | status |
# |---|---|---|
# | head and $W$ trained | $\lVert W_t\rVert\times$ error $\to C$, $\kappa_m=\nu_iy_iv^\top(x_{opt}-x_t)$; error $\sim t^{-(1-p)}$ | sketched in notebook 40's note; measured |
# | its curvature | $\lVert\nabla^2L\rVert/L\to\lambda_{\max}(\sum_i\nu_ix_ix_i^\top)/\lVert v\rVert^2$ | follows from the head's law; measured |
# | $d=1$, $T=2$ | $(u_{mm},W_{mm})$ is reached or missed with the sign of $\sum_i(a_i+b_i)$ | proved, short steps |
# | $H$ heads | one normalisation: $\lVert W_h\rVert\propto\lVert W_{mm,h}\rVert$; one per head: equal | the law on blocks; measured |
# | correlated tokens | no correlation below 1 changes the selection; settling takes longer | scores: proved; measured |
# | a dual at zero | as if it were $\lVert d_k\rVert^2/a_t$; error $\sim\log t/t$ | derived; measured |
# | several | duals $y_k/a_t$ of a second SVM | derived; measured |
# | partial support | what transients leave outside the span is the integral of a flow | limit of short steps; measured |
# | | and is bounded from tokens and head | proved for the saturated flow; measured |
# | $\ell_p$ | residual bounded in $W$; the start's part stays in the mirror image | derived; measured |
# | $p<2$ | steps like $t^{p-2}$ settle at any level | derived; measured |
#
# Criteria were [written before the runs](bends_protocol.md), changes are dated there.

# %% tags=["parameters"]
scale = "demo"
seeds = 2
joint_steps = 500_000
global_seeds = 20
head_steps = 20_000
map_steps = 20_000
sample_seeds = 20
zero_steps = 500_000
lp_steps = [50_000, 500_000]
exponents = [1.5, 1.75, 2.0]

# %%
from fractions import Fraction

import numpy as np

from lib import dynamics, svm
from lib.attention import coordinates, tokens
from lib.companion import claims, plots, record
from lib.papers.beyond import bends_figures as drawn
from lib.papers.beyond import margin_law_runs as runs
from lib.papers.beyond import margin_law_worlds as worlds

# %%
run = record.start("41_where_the_law_bends", "A", globals())
plots.set_style()
every = range(seeds)

# %%
from lib.papers.beyond import (
    constant_claims,
    constant_map,
    correlated,
    counterexample,
    global_map,
    head_claims,
    head_law,
    joint_claims,
    joint_law,
    lp_claims,
    lp_decay,
    lp_law,
    outside_span,
    zero_dual,
    zero_duals,
)

# %% [markdown]
# ## 1. A head that moves
#
# **Why the law survives.** The head alone is a linear classifier: its own law says $|\ell_i'|\propto\nu_i$ in the end. The score gaps
# become $y_iv^\top(x_{opt}-x_t)$ times $\|u_t\|$. So $\kappa_m$ has a limit, and $W$ obeys notebook 40 with it. In a few lines,
# one problem of paper A's data model (DM):

# %%
data = coordinates.minimal(tokens.two_token_gaussian(0, n=4, T=2, d=40)).tokens
x, other, y, z = data.X[0, :, 1], data.X[0, :, 0], data.y[0], data.z[0]  # the opt token is second
nu = np.linalg.solve((y[:, None] * x) @ (y[:, None] * x).T, np.ones(4))  # all on the support
v = nu @ (y[:, None] * x)
kappa = nu * y * ((x - other) @ v)
K = ((x - other) @ (x - other).T) * (z @ z.T)  # T = 2: one pair a sample
beta = np.linalg.solve(K, np.ones(4))
assert (nu > 0).all() and (beta > 0).all()
ratio = np.log(kappa / beta)
offsets = ratio - beta @ ratio / beta.sum()
C = np.sqrt(offsets @ np.linalg.solve(K, offsets))
of = joint_law.predict(data)
assert np.isclose(C, of.law.constant[0]) and np.isclose(v @ v, of.head_law.norm[0] ** 2)
print(f"C = {C:.6f} for W, C_u = {of.head_law.constant[0]:.6f} for the head")

# %% [markdown]
# **The rule** (Eq. 13): each of $u$ and $W$ moves by $\eta(t+1)^{-2/3}$ along its own gradient. With $q_i=1-p_{i,opt}$ both are sums over
# samples. At $t=0$ the head is zero, so $W$ does not move.

# %%
u, W, eta = np.zeros(x.shape[1]), np.zeros((x.shape[1], z.shape[1])), 0.3
for t in range(50):
    q = 1 / (1 + np.exp(np.einsum("nd,de,ne->n", x - other, W, z)))  # weight of the other token
    gap = y * ((x - other) @ u)
    slope = np.exp(-(y * (x @ u) - q * gap))  # |l'_i|, exponential loss
    down_u = (slope * y) @ (x - q[:, None] * (x - other))
    down_W = ((slope * gap * q * (1 - q))[:, None] * (x - other)).T @ z
    step = eta * (t + 1) ** (-2 / 3)
    u = u + step * down_u / np.linalg.norm(down_u)
    W = W + step * down_W / max(np.linalg.norm(down_W), 1e-300)  # 0/0 = 0
by_lib = dynamics.train(data, dynamics.ngd(eta, decay=2 / 3), 50, [50], head="joint")
assert np.isclose(np.linalg.norm(W), by_lib.norm[0, 0]) and np.isclose(
    np.linalg.norm(u), by_lib.head_norm[0, 0]
)
print(
    f"||W|| = {np.linalg.norm(W):.6f}, ||u|| = {np.linalg.norm(u):.6f} after 50 steps, as lib.dynamics"
)

# %% [markdown]
# Now many seeds, far out, with the paper's factor, with $(t+1)^{-1/2}$ and without one. `joint.level` asks for more than the limit: at
# finite $t$ the head is $a_uv+\rho_u$, and $C$ with *that* head follows from duals and the sum of the steps.

# %%
data_model = tokens.two_token_gaussian(every, n=8, T=2, d=400, signal=3.0)
joint_of = joint_law.predict(data_model)
joint_runs = joint_law.train(joint_of, joint_law.paper_rules(), joint_steps)
joint_table = claims.Table(
    sorted(joint_claims.joint_claims(joint_runs), key=lambda claim: claim.holds)
)
paper = joint_runs["p = 2/3"]
print(f"head: C_u up to {joint_of.head_law.constant.max():.3f}, frozen off the span "
      f"{paper.outside[:, 1].max():.3f}, of which the first step left "
      f"{0.3 * np.linalg.norm(joint_of.frozen, axis=1).max():.3f}")  # fmt: skip
print(f"curvature: ||Hessian||/L ends at {paper.curvature[:, -1].round(3)[:3]} and stays")
joint_table

# %%
figure = drawn.joint(joint_runs)
about_joint = f"(DM), n=8, T=2, d=400, zero start; {seeds} seeds, t = {joint_steps:,}; synthetic, float64; dotted: from duals"
plots.caption(figure, about_joint)
figure_joint = figure
figure

# %% [markdown]
# Left: look at the dotted lines, which know duals and step lengths alone, under the measured ones. Right: look at the diagonal; three
# marks a seed lie on each other. Lemma 3 (iii) allows $\|\nabla^2L\|/L$ to grow like $t^{2/3}$; it tends to a constant.
#
# **The head** errs more than $C_u$ says. Its first step, with all weights even, goes along the mean of all tokens, and later steps add
# to that while weights are not yet zero. What lies off the opt tokens' span is frozen for ever.
#
# ## 2. Global, or not
#
# One dimension, $T=2$, the opt token as the query. Take samples $\{1,0\}$ and $\{1,-3\}$, labels $+1$, opt token first. Then
# $u_{mm}=W_{mm}=1$, and $u=W=c\to\infty$ drives the loss to 0. From zero:
# * The first step moves $u$ by the sign of $(1+0)+(1-3)=-1$: down.
# * While $u<0$, $W$ moves down; while $W\le0$, both $p_i\le1/2$.
# * At $u=0$, $W\le0$ the pull on $u$ is $p_1+(4p_2-3)\le-1/2$: down. It points up only where $e^{3.5\lvert u\rvert}>2$, so below $-1/6$.
# * So with steps of $u$ up to $1/6$, $u\le0$ for ever. Sample 1 then has $f_1=p_1u\le0$, and the loss stays at $1/2$ or more.
#
# The page in rational numbers; `counterexample.verify` has every line, and that no smaller one exists.

# %%
pairs = ((1, 0), (1, -3))
half = Fraction(1, 2)
assert sum(a + b for a, b in pairs) == -1
pull_1, pull_2 = ([p * a + (1 - p) * b for p in (0, half)] for a, b in pairs)  # linear in p
assert max(pull_1) + max(pull_2) == -half
least = min(-s for s in pull_2) / max(pull_1)  # how much larger l_1 must be than l_2
assert least == 2 and max(pull_1) - min(pull_2) == Fraction(7, 2)
x, series, term = Fraction(7, 2) / 6, Fraction(0), Fraction(1)
for k in range(1, 20):  # e^x by its series; what is left out is below the last term
    series, term = series + term, term * x / k
assert series + 2 * term < 2
facts = counterexample.verify()
for fact in facts:
    print("yes" if fact.holds else "NO ", fact.said)
assert all(fact.holds for fact in facts)

# %%
postcard = counterexample.problem(counterexample.POSTCARD)
tried = {
    "NGD": dynamics.ngd(0.1),
    "Eq. 13": dynamics.ngd(1 / 6, decay=2 / 3),
    "GD": dynamics.gd(0.1),
    "Eq. 2": dynamics.ngd(0.1, joint=True),
}
for name, rule in tried.items():
    sign, lowest = counterexample.end(postcard, rule, 3000)
    print(
        f"{name:7} ends with u and W {'below' if sign < 0 else 'above'} 0, least loss {lowest:.4f}"
    )
line = counterexample.agreement(counterexample.random_problems(400), dynamics.ngd(0.01), 5000)

# %% [markdown]
# **The data model beyond its conditions.** The opt token is $\alpha$ times as long as the other. With $d$ small or $\alpha$ near 1 the first
# step scores some other token higher. $\alpha^*(d)$ is where that happens to half of the seeds, a formula without a fit.

# %%
alphas, dimensions = [1.05, 1.2, 1.4, 1.7, 2.0, 3.0], [16, 64, 256, 1024]
found_map = global_map.measure(range(global_seeds), alphas, dimensions, dynamics.ngd(0.1), 5000)
for row, d in enumerate(dimensions):
    value, low, high = found_map.threshold(row)
    bound = global_map.half_at_once(d, 8)
    print(
        f"d = {d:5}: half of the seeds at alpha = {value:.3f} [{low:.3f}, {high:.3f}], alpha* = {bound:.3f}"
    )
global_table = claims.Table([line, *global_map.global_claims(found_map)])
for claim in global_table:
    if claim.remark:
        print(f"{claim.id}: {claim.remark}")
global_table

# %%
path = dynamics.train(postcard, dynamics.ngd(0.1), 100, range(101), head="joint")
figure = drawn.reached(found_map, path)
about_global = f"Left: (DM), n=8, T=2, {global_seeds} seeds, NGD, zero start; dotted: alpha*(d). Right: the counterexample, NGD, loss at 1/2 dotted"
plots.caption(figure, about_global)
figure_global = figure
figure

# %% [markdown]
# Left: look at the dotted $\alpha^*(d)$ beside the step from dark to bright. The protocol asked for more than that: no threshold above
# $\alpha^*$, and hardly a run that a right first step does not save. Both fail by little, and stand above as failed; the claims
# `global.agree` and `global.formula` came later. Right: look at the loss, which stops at $1/2$ while $u$ and $W$
# run the wrong way.
#
# ## 3. Several heads
#
# $f_i=\sum_hf_{h,i}$, one $W_h$ a head; $|\ell_i'|$ is that of the sum. One common normalisation descends on all $W_h$ as one parameter, whose
# SVM separates into blocks: equal margins, norms in the ratio of the SVM norms. One normalisation per head makes norms equal. The third
# head shares the opt tokens of the first. That is allowed: its constraints are in a block of its own.

# %%
head_of = head_law.predict(head_law.three_heads(every))
common, each = (head_law.train(head_of, 0.1, head_steps, together) for together in (True, False))
for refusal in (*common.refusals.values(), *each.refusals.values()):
    print(refusal)
head_table = claims.Table(head_claims.head_claims(common, each))
kept_heads = int(common.kept.sum()), int(each.kept.sum())
head_table

# %%
figure = drawn.heads(common, each)
about_heads = f"Gaussian tokens, n=6, T=4, d=400, three fixed heads, NGD, t = {head_steps:,}; {seeds} seeds; synthetic"
plots.caption(figure, about_heads)
figure_heads = figure
figure

# %% [markdown]
# Left: look at the diagonal: the common normalisation spreads the norms as the SVMs say, the other holds them at 1. Right: look at how
# $C_h$ does not depend on which.
#
# ## 4. The map of the constant
#
# The rate stays and $C$ moves. Example 1 along nine axes: "long T" goes to $T=512$ with two samples in $15\,T$ dimensions, and in
# "correlation" the tokens that are not opt, queries too, are correlated within a sample, or all of them. Where other tokens' scores change, the run leaves the opt tokens exactly where
# the first of them overtakes: a closed form of tokens and head. Where some constraint does not carry $W_{mm}$, what lies off the span
# at $t/10$ is read off the run and added to $C$ in quadrature.

# %%
points = constant_map.along(every, map_steps)
map_kept = constant_claims.kept(points)
print(f"{len(map_kept)} of {len(points)} runs meet the hypotheses at t = {map_steps:,}")
for refused in [p.refusal for p in points if p.refusal][:6]:
    print(refused)
moved = ("imbalance", "raw noise")
crossings = {a: np.array([constant_map.score_crossing(a, s) for s in every]) for a in moved}
switches = {a: np.array([constant_map.switch(a, s) for s in every]) for a in moved}
for axis in moved:
    low, high = claims.interval(switches[axis])
    print(f"{axis}: runs switch at {switches[axis].mean():.3f} on average [{low:.3f}, {high:.3f}]")

# %% [markdown]
# **Noise cannot make the SVM infeasible** here: scaling the noise is a change of basis of tokens and queries. More samples, longer
# sequences and fewer dimensions can.

# %%
few = range(sample_seeds)
noises = {"noise": [0.01, 0.1, 1.0, 10.0, 100.0], "n": [18], "d": [6], "T": [5]}
by_noise = constant_map.solvable(few, noises)
searched = {"n": (list(range(10, 32, 2)), {"T": 5, "d": 6}),
            "T": (list(range(3, 13)), {"n": 12, "d": 6}),
            "d": (list(range(4, 10)), {"n": 18, "T": 5})}  # fmt: skip
capacity, lost = [], {}
for axis, (tried, others) in searched.items():
    has = constant_map.solvable(few, {axis: tried} | {k: [v] for k, v in others.items()})
    lost[axis], own = constant_claims.capacity(axis, tried, has, others)
    capacity += own
    print("half of the seeds lose W_mm at {} = {:.2f} [{:.2f}, {:.2f}]".format(axis, *lost[axis]))

# %% [markdown]
# **Correlated tokens** score 0 as before, so no correlation $\rho<1$ makes a run leave the opt tokens. But differences of tokens shrink:
# the slowest wrong offset dies like $e^{-\lambda_1a_t}$ with $\lambda_1\to0$, and a run of given length is refused from some $\rho$ on. Duals say from
# which, with $a_t=t/\lambda_{\max}$. A refusal goes by the duals' $\lambda_1$ too, at the level that the run has: `map.short` tests that level. At $\rho=1$ within samples the other tokens of each are one token, and the law is that of two tokens.

# %%
onsets = [correlated.onset(few, steps) for steps in (5000, 20_000)]
stay = correlated.stays(few)
merged = [correlated.repeated(seed, 20_000) for seed in few]
for one in onsets:
    value, low, high = (1 - part for part in one.half(one.measured))
    print(f"{one.steps:,} steps are too few for half of the seeds at rho = {value:.3f} "
          f"[{high:.3f}, {low:.3f}]; by the duals at {1 - one.half(one.predicted)[0]:.3f}")  # fmt: skip

# %%
map_table = claims.Table([
    *constant_claims.map_claims(points),
    *correlated.onset_claims(onsets),
    *correlated.end_claims(stay, merged),
    *(constant_claims.switch_claim(a, crossings[a], switches[a]) for a in moved),
    constant_claims.noise_blind(by_noise),
    *capacity,
])  # fmt: skip
map_table

# %%
figure = drawn.constants(points, switches)
about_map = f"Example 1: n=6, T=5, d=120; T, correlation: d=960; long T: n=2, d=15T; {seeds} seeds, t = {map_steps:,}; line: duals, marks: runs, dotted: switches"
plots.caption(figure, about_map)
figure_map = figure
figure

# %% [markdown]
# Look at the noise: towards $C\propto\sigma^{-2}$, since the features grow like $\sigma^2$ while the offsets rest. Look at $T$ and $n$, which cost a factor each
# doubling, and at $d$, which pays it back. Dotted: the switches, far beyond the values on the map. Solutions are lost at one to two times
# Cover's count along $n$ and $d$; along $T$ later, as all constraints of a sample share its query. Look at the last row: with $T/d$ held, $C$
# falls along $T$; correlation raises it, since duals grow as differences of tokens shrink.
#
# ## 5. Duals at zero, starts, and other norms
#
# **A tight pair $k$ whose dual is zero** breaks the law's $1/t$ (notebook 40). The new law: $\beta_k$ is replaced by $\|d_k\|^2/a_t$, with $d_k$ in
# the span of the tight features, $\langle A_k,d_k\rangle=1$ and 0 on the others. For $W$ must move along $W_{mm}+d_k/a_t$. **A start** off the
# span adds in quadrature. **$\ell_p$ mirror descent** has the duals of the $\ell_p$ SVM, and a residual bounded in $W$: error $\|W\|^{-1}$. What the
# start leaves off the span stays in the mirror image, which grows like $\|W\|^{p-1}$: error $\|W\|^{-(p-1)}$. $D$ is quadratic in the error,
# so Lemma 29's exponent is met twice over. For $p<2$ a constant step raises the margins by more and more, and cycles from a
# predicted $t^*$ on. Three premises of these runs came after a first round in which 6 of 19 claims had failed, five of them by single
# seeds: see the protocol.

# %%
idle, refused_idle = zero_dual.unit_runs(every, 0.5, zero_steps)
print(f"{len(idle)} of {seeds} runs with a dual at zero", *refused_idle.values(), sep="\n")
pairs_of = tokens.gaussian_tokens(every, n=6, T=3, d=60)
W_0 = dynamics.gaussian_start(coordinates.minimal(pairs_of), 0.1, [s + 1000 for s in every])
begun = runs.compare(runs.LawSetting("start", pairs_of, dynamics.ngd(0.1), start=W_0), 200_000)
whole = [one for one in runs.kept(begun) if one.law.support.all()]
print(f"starts: {len(whole)} of {seeds} runs settled with all constraints on the support")
start_off = max((abs(one.measured.error[-1] / one.predicted - 1) for one in whole), default=np.nan)
starts = claims.close(
    "start.outside", "Gaussian W_0: error over its prediction, less 1, worst run",
    zero_dual.OURS, start_off, 0.0, 1e-4,
)  # fmt: skip

# %%
powers, onset = [], []
for p in exponents:
    size, count = (30_000, lp_steps[0]) if p <= 2 else (15_000, lp_steps[1])
    found, refused_lp = lp_law.study(every, p, size, count)
    powers += found
    print(f"p = {p:g}: {len(found) // 2} of {seeds} problems", *refused_lp.values(), sep="\n  ")
    if p < 2:
        moves, refused_onset = lp_law.onsets(every, p, 2000)
        print(f"  cycles: {len(moves)} of {seeds}", *refused_onset.values())
        onset += lp_claims.onset_claims(p, moves)

# %% [markdown]
# **Several idle pairs** share the work: $W$ moves along $W_{mm}+D/a_t$, with $D$ the least $\|D\|$ such that $\langle A_m,D\rangle=0$ on the support and
# $\langle A_k,D\rangle\ge1$ on the idle tight pairs: a second SVM. Its duals $y_k$, over $a_t$, stand where the first SVM's are zero.
#
# **Off the support's span** lies what slack pairs pulled while their margins were small. With $a_t$ as the clock all rules follow one flow
# of $n(T-1)$ numbers, given by tokens and head. It reacts on itself: the first-order sum of the pulls is many times too large. A
# bound is proved for the saturated flow, from the fact that $\log\sum_m\kappa_me^{-g_m}+a_t$ never rises.
#
# **Steps for $p<2$.** A step of length $\eta$ raises the margins by $h\propto\eta\,a_t^{2-p}$, and offsets settle as long as $h<2/\lambda_{\max}$.
# So $\eta_t\propto t^{p-2}$ keeps $h$ what it is, and $\|W_t\|$ grows like $t$.

# %%
left, refused_left = [], {}
for name in outside_span.PROBLEMS:
    found, refused = outside_span.study(name, every, 50_000)
    left, refused_left = left + found, refused_left | refused
several, settled, some = [], [], range(max(seeds, 3))  # where idle pairs meet
for count in (2, 3):
    found, refused = zero_duals.study(some, count, zero_steps)
    several, refused_left = several + found, refused_left | refused
    print(f"{count} duals at zero: {len(found)} of {len(some)} runs", *refused.values(), sep="\n  ")
for p in (1.5, 1.75):
    found, refused = lp_decay.study(every, p, 20_000)
    settled += found
    print(f"p = {p:g}: {len(found)} of {seeds} problems", *refused.values(), sep="\n  ")
print(f"outside the span: {len(left)} of {2 * seeds} problems")
ratio = np.array([one.first / one.measured[-1] for one in left])
bounds = np.array([one.bound / one.measured[-1] for one in left])
print(f"over the norm: first-order sum {ratio.min():.2g} to {ratio.max():.2g}, "
      f"bound {bounds.min():.2g} to {bounds.max():.2g}")  # fmt: skip

# %%
bent_table = claims.Table([
    *zero_dual.zero_claims(idle), *zero_duals.zeros_claims(several), starts,
    *outside_span.left_claims(left), *lp_claims.lp_claims(powers), *onset,
    *lp_decay.steps_claims(settled),
])  # fmt: skip
bent_table

# %%
figure = drawn.bent(powers, idle, several, left, settled)
about_bent = f"Top left: n=4, T=2, d=10, seed 0, dashed: Gaussian start. Right: {len(idle)} runs with one idle pair, squares: more, dotted: predicted. Bottom: {len(left)}, {len(settled)} runs"
plots.caption(figure, about_bent)
figure_bent = figure
figure

# %% [markdown]
# Top left: look at the dashed lines for $p<2$, which fall with the power $p-1$, and at the solid ones, all of slope $-1$. Top right: look at
# the dotted predictions, of slope 1 in $\log a_t$, through the marks. Bottom left: look at the circles on the diagonal, and at how far
# right of them most crosses lie. Bottom right: look at the jump between the two lengths on either side of 1, and at constant steps, which
# reach the same $\|W\|$ in a cycle.
#
# ## Would these claims notice?
#
# Each part is held against worlds in which a dual, an exponent or a normalisation is wrong. What catches what:

# %%
names = list(joint_runs)
parts = [
    (list(joint_runs.values()), lambda of: joint_claims.joint_claims(dict(zip(names, of))), joint_claims.WORLDS),
    ([found_map], lambda of: global_map.global_claims(*of), global_map.WORLDS),
    ([common, each], lambda of: head_claims.head_claims(*of), head_claims.WORLDS),
    (points, constant_claims.map_claims, constant_claims.WORLDS),
    (onsets, correlated.onset_claims, correlated.ONSET_WORLDS),
    (merged, lambda of: correlated.end_claims(stay, of), correlated.WORLDS),
    (idle, zero_dual.zero_claims, zero_dual.WORLDS),
    (several, zero_duals.zeros_claims, zero_duals.WORLDS),
    (left, outside_span.left_claims, outside_span.WORLDS),
    (powers, lp_claims.lp_claims, lp_claims.WORLDS),
    (settled, lp_decay.steps_claims, lp_decay.WORLDS),
]  # fmt: skip

# %%
unnoticed = []
for things, claims_of, wrong in parts:
    for world, ids in worlds.caught(things, claims_of, wrong).items():
        print(f"{world:32} {', '.join(ids[:3]) or 'NOTHING'}{' ...' if len(ids) > 3 else ''}")
        unnoticed += [] if ids else [world]

# %% tags=["nbval-check-output"]
print(
    "rational proof complete:",
    all(fact.holds for fact in facts),
    "| unnoticed worlds:",
    len(unnoticed),
)

# %% [markdown]
# ## What we saw

# %%
worst_limit = max(np.abs(joint_claims.limit_errors(one)).max() for one in joint_runs.values())
worst_level = max(np.abs(joint_claims.level_errors(one)).max() for one in joint_runs.values())
rate = np.mean(joint_claims.exponents(paper))
print(
    f"Joint training: the law from both SVMs' duals holds to {worst_limit:.1%}, at the head's "
    f"level to {worst_level:.2%}; the paper's steps give the exponent {rate:.3f}."
)
needed = [
    found_map.threshold(row)[0] / global_map.half_at_once(d, 8) - 1
    for row, d in enumerate(dimensions)
]
print(
    "It is not global: {1, 0} and {1, -3} end at a loss of 1/2. In (DM) the length that is needed "
    f"is the first step's to {needed[-1]:.1%} at d = {dimensions[-1]}, but {abs(needed[0]):.0%} of it "
    f"off at d = {dimensions[0]}."
)
print(
    f"Heads, {kept_heads[0]} and {kept_heads[1]} of {seeds} runs settled: norms as the SVMs or "
    f"equal, to {abs(head_table[0].measured):.1%} and {abs(head_table[2].measured):.2%}."
)

# %%
worst_map = max(abs(constant_claims.relative(p)) for p in map_kept)
print(f"Errors are C's in all {len(map_kept)} settled runs of the map, to {worst_map:.0e}.")
tables = joint_table, global_table, head_table, map_table, bent_table
failing = [claim.id for table in tables for claim in table if not claim.holds]
print("Claims that failed:", ", ".join(failing) or "none")

# %% [markdown]
# ## Change this
#
# **The counterexample.** Prediction: $\{1,0\}$ with $\{1,-1\}$ has the sum $1+0>0$, so both end above 0; with $\{1,-2\}$ it is 0 and the start
# is a stationary point.

# %%
for third in (-1, -2, -3, -4):
    again = counterexample.problem(((1, 0), (1, third)))
    print(
        f"{{1, {third}}}: sign", counterexample.end(again, dynamics.ngd(0.1), 3000)[0], "of u and W"
    )

# %% [markdown]
# **The decay.** Prediction: the error goes like one over the sum of the steps, whatever $p$. With $p=0.8$ that sum is near
# $5(t^{0.2}-0.9)$, so over these records the exponent is not yet its limit $-0.2$.

# %%
p = 0.8
slower = joint_law.train(
    joint_law.predict(data_model.run(0)), {"yours": dynamics.ngd(1.0, decay=p)}, 200_000
)["yours"]
length = [joint_law.path_length(slower.rule, int(t)) for t in slower.iterations]
steeper = np.polyfit(np.log(slower.iterations), -np.log(length), 1)[0]
print(f"exponent {joint_claims.exponents(slower)[0]:.3f}, from the sum of the steps {steeper:.3f}")
print(f"||W|| x error over C, less 1: {joint_claims.limit_errors(slower)[0]:.4f}")

# %% [markdown]
# **The noise.** Prediction: ten times the noise divides $C$ by about 100 where noise already rules; no noise makes the SVM infeasible.

# %%
for noise in (1.0, 10.0):
    one = constant_map.point("noise", noise, 0, 20_000)
    print(
        one.refusal
        or f"noise {noise:g}: C = {one.comparison.law.constant[0]:.2e}, off by {constant_claims.relative(one):.0e}"
    )
dense = tokens.class_mean_tokens(0, n=40, T=5, d=6)
try:
    svm.token_svm(dense)
except (svm.Infeasible, RuntimeError) as refusal:
    print(f"40 samples in 6 dimensions: {refusal}")

# %% [markdown]
# ## Records
#
# The figures above, saved with their claims and numbers.

# %%
rows = [{"name": "two_token_gaussian and others", "source": "synthetic", "revision": f"seeds 0-{seeds - 1}", "rows": 8}]  # fmt: skip
title = "beyond Theorem 3"
numbers = {
    "exponent": record.Number(rate, 0.005),
    "worst_limit": record.Number(worst_limit, 1e-3),
    "worst_level": record.Number(worst_level, 1e-3),
    "curvature": record.Number(paper.curvature[0, -1], 1e-4),
}
run.save(figure_joint, "bends_joint", title, about_joint, joint_table, numbers, rows)
numbers = {
    f"alpha_{d}": record.Number(found_map.threshold(row)[0], 1e-6)
    for row, d in enumerate(dimensions)
}
numbers["facts"] = record.Number(len(facts), 0)
run.save(figure_global, "bends_global", title, about_global, global_table, numbers, rows)

# %%
numbers = {
    "common": record.Number(abs(head_table[0].measured), 1e-3),
    "each": record.Number(abs(head_table[2].measured), 1e-3),
    "settled": record.Number(kept_heads[0], 0),
}
run.save(figure_heads, "bends_heads", "beyond Theorem 1", about_heads, head_table, numbers, rows)
numbers = {
    "runs": record.Number(len(map_kept), 0),
    "worst": record.Number(worst_map, 1e-6),
    "short": record.Number(1 - onsets[-1].half(onsets[-1].measured)[0], 0.005),
    "imbalance": record.Number(switches["imbalance"].mean(), 0.02),
    "raw_noise": record.Number(switches["raw noise"].mean(), 0.01),
} | {f"lost_{axis}": record.Number(found[0], 0.01) for axis, found in lost.items()}
run.save(figure_map, "bends_constant", "beyond Theorem 1", about_map, map_table, numbers, rows)
numbers = {
    claim.id.replace(".", "_"): record.Number(claim.measured, 0.01)
    for claim in bent_table
    if claim.id.startswith(("lp.zero", "lp.start"))
} | {"first_least": record.Number(ratio.min(), 0.01), "first_most": record.Number(ratio.max(), 0.1)}
run.save(figure_bent, "bends_powers", "beyond Lemma 29", about_bent, bent_table, numbers, rows)
