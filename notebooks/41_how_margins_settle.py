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
# # How margins converge: a max-margin direction from two iterates, and the longest step
#
# *Page 5 of 11 · before: [40](40_law_of_margins.ipynb) · next: [30](30_mirror_descent.ipynb) · 25 minutes · [words](words.md).* After it you can name the longest step that converges, and gain many digits from two iterates.
#
# [Notebook 40](40_law_of_margins.ipynb) has a law for the end of a run: the margins of the support pairs stand apart by fixed
# *offsets*, which the [dual variables](words.md) of the [token SVM](words.md) give. **Paper A** (*Implicit Bias and Fast Convergence Rates for
# Self-attention*, arXiv 2402.05738) proves the direction that such runs end in.
#
# **Question.** How fast do offsets converge, with which steps do they never converge, and what can one read off a run that has?
#
# **Answer.** A wrong offset dies like $e^{-\lambda a_t}$ at [margin level](words.md) $a_t$, with eigenvalues $\lambda$ from the [duals](words.md). The
# largest eigenvalue gives a longest step $\eta^*$ of normalised gradient descent (NGD): with longer ones offsets never rest. Far from rest some
# shorter ones fail, too. Where offsets have converged they cancel in $W_{2t}-W_t$, which then has the max-margin direction up to
# rounding. On real tokens, sentences as a frozen encoder hands them on, the duals give the constant as well.
#
# ![How much offsets still move, against the step over the longest one: a jump at 1](../figures/desk/law_steps.png)
#
# *The larger of two sizes of run (desk [scale](words.md)); a mark is a seed. The dotted line is the largest step that we predict to converge. Beyond it the offsets never settle. With momentum one seed fails to settle below it as well.*
#
# ## Two samples in the plane
#
# Take the two samples of notebook 40: $W$ is a vector in the plane, the margins are $g_1=w_1$ and $g_2=\frac12w_2$, and the
# duals are 1 and 4. The law says that $g_2-g_1$ rests at $-\log4$. How far off is a run after 3000 steps of various lengths?

# %% tags=["parameters"]
# Set-up, no need to read.
scale = "demo"
seeds = 2
doublings = 20
unit_seeds = [1, 3, 5]
multiples = [0.5, 0.9, 0.98, 1.02, 1.1, 1.5, 2.0]
cycle_steps = 10_000
sentence_seeds = 1
sentence_count = 10
sentence_step = 0.004
sentence_steps = 30_000

# %% tags=["set-up"]
# Set-up, no need to read.
import numpy as np

from companion import claims, plots, record
from lib import attention, dynamics, svm
from lib.attention import coordinates, tokens
from lib.data import texts
from lib.networks import bert
from papers.law import margin_law, margin_law_figures, real_tokens
from papers.law import margin_law_steps as law_steps
from papers.ours import claim

run = record.start("41_how_margins_settle", "A", globals())

# %%
plane = attention.token_set(
    [[[1, 0], [0, 0]], [[0, 0.5], [0, 0]]], [1.0, 1.0], z=[[1.0], [1.0]], u=[1.0, 2.0]
)
plane_law = margin_law.margin_law(plane, svm.token_svm(plane))
longest = plane_law.longest_step()[0]
print(f"longest step eta* = {longest:.4f}; wrong offsets after 2997 to 3000 steps:")
for multiple in (0.5, 0.98, 1.02, 1.5):
    history = dynamics.train(plane, dynamics.NGD(multiple * longest), 3000, range(2997, 3001))
    g = history.margins[0, -4:, :, 0]
    print(f"{multiple:5} eta*:", (g[:, 1] - g[:, 0] + np.log(4)).round(4))

# %% [markdown]
# Below $\eta^*$ the margins come to rest. Just above it they jump from one side to the other for ever, in a small cycle. The longer
# the step, the larger the cycle. On other problems the cycle just above $\eta^*$ may be large.
#
# ## The statement
#
# | symbol | meaning |
# |---|---|
# | $A_m,\ g_m$; $W_{mm}=\sum_m\beta_mA_m$ | feature of a pair of tokens, its margin $\langle A_m,W\rangle$; token SVM: least norm with all margins at least 1, and its duals |
# | $W_t$ | $W$ after $t$ steps |
# | $S$; $K$; $B$ | support: pairs with $\langle A_m,W_{mm}\rangle=1$; Gram matrix of its $A_m$; $\text{diag}(\beta)$ on it |
# | $a_t=\langle W_t,W_{mm}\rangle/\lVert W_{mm}\rVert^2$ | margin level; $g_m-a_t$ is the offset |
# | $\kappa_m$ | how hard the loss pulls on a pair, before the factor $e^{-g_m}$; offsets rest at $\log(\kappa_m/\beta_m)$ less their mean |
# | $\lambda_1\le\dots\le\lambda_{\max}$ | positive eigenvalues of $B^{1/2}KB^{1/2}$ without that of $\sqrt\beta$, which belongs to $W_{mm}$ itself |
# | $\rho$, $\omega$ | $W_t=a_tW_{mm}+\rho+\omega$: the residual that makes the offsets, in the span of the $A_m$ on $S$; what lies off it |
# | $\eta$, $\mu$; $h$ | step and momentum of NGD; $h=\eta/\lVert W_{mm}\rVert$, by how much a step raises the margins without momentum (with it $h/(1-\mu)$) |
# | $\epsilon$ | least margin of $W_{mm}$ off $S$, less 1 |
#
# **Hypotheses.** The direction tends to $W_{mm}$ and the norm to infinity. On $S$ the duals are positive, and the selected token has the
# higher score.
#
# **How they converge.** Without momentum a step multiplies a small wrong offset along the eigenvector of $\lambda$ by $1-h\lambda$. Three things follow.
# 1. *Rate.* With short steps a wrong offset dies like $e^{-\lambda a_t}$, the slowest like $e^{-\lambda_1a_t}$, under every rule.
# 2. *Longest step.* Small wrong offsets die exactly for $\eta<\eta^*=2(1+\mu)\|W_{mm}\|/\lambda_{\max}$.
# 3. *Difference.* $W_{2t}-W_t=(a_{2t}-a_t)W_{mm}$ up to what still moves. Its [direction error](words.md) is exponentially small in $t$
#    for NGD. For gradient descent (GD), with $\|W_t\|\sim\log t$, it is at most $t^{-q}$ for every $q<\min(\lambda_1,1,\epsilon)$, whereas
#    the error of $W_t$ itself is a constant divided by $\log t$.
#
# **Why.** The residual $\rho$ performs gradient descent on $G(\rho)=\log\sum_m\kappa_me^{-\langle A_m,\rho\rangle}$. At its minimum the Hessian has
# the eigenvalues $\lambda/\|W_{mm}\|^2$. Gradient descent on a quadratic with curvature $\lambda$ converges for steps below $2/\lambda$.
#
# **What is proved** ([law_of_margins.md](law_of_margins.md)), and what is measured:
#
# | | proved | measured |
# |---|---|---|
# | rate, difference | as bounds | that they are reached |
# | steps above $\eta^*$ | the offsets of the law repel | cycles of period two just above it |
# | steps below $\eta^*$ | a *large* cycle exists, in an example below | with momentum too |
# | two pairs on $S$, no momentum | no cycle below $\eta^*$ | |
# | independent features, no momentum | no cycle of period two below $\eta^*$ | hardly any other |
#
# That gradient descent on a loss with a finite minimiser may cycle below the linear threshold is known for logistic regression
# (Meng et al., arXiv 2406.05033).
#
# ## The rule, in a few lines
#
# One problem of unit tokens. On the support, margins near the limit move by $g\leftarrow g+\eta Kc/\sqrt{c^\top Kc}$, $c_m=\kappa_me^{-g_m}$.
# The eigenvalues say when this map converges, whatever the $\kappa_m$. The page's map, with all $\kappa_m=1$, does what they say.

# %%
data = coordinates.minimal(tokens.unit_tokens(unit_seeds[:1], n=6, T=8, d=10)).tokens
solution = svm.token_svm(data)
law = margin_law.margin_law(data, solution)
on = solution.duals[0].ravel() > 0
beta = solution.duals[0].ravel()[on]
K = coordinates.gram(coordinates.differences(data, data.opt), data.z)[0][np.ix_(on, on)]
root = np.sqrt(beta)
bent = root[:, None] * K * root  # B^1/2 K B^1/2, of which sqrt(beta) is an eigenvector
values = np.linalg.eigvalsh(bent - np.outer(root, root) / (root @ root))
longest = 2 * np.linalg.norm(solution.W[0]) / values[-1]
assert np.isclose(longest, law.longest_step()[0])
print(f"lambda from {law.slowest[0]:.4f} to {values[-1]:.4f}, so eta* = {longest:.4f}")

# %%
for multiple in (0.9, 0.98, 1.02, 1.1):
    g = -np.log(beta) + 1e-3 * np.linspace(-1, 1, on.sum())  # a little off log(kappa/beta)
    for _ in range(20_000):
        before, c = g, np.exp(g.min() - g)  # kappa = 1
        g = g + multiple * longest * K @ c / np.sqrt(c @ K @ c)
    wrong = np.ptp(g - before)  # a common rise is no move of an offset
    print(f"{multiple} of the longest step: offsets still move by {wrong:.1e} a step")

# %% [markdown]
# ## A max-margin direction from training alone
#
# The residual is the same at $t$ and at $2t$, so it cancels in $W_{2t}-W_t$. No SVM is asked. For GD the difference gains little
# where $\lambda_1$ is small, so GD gets a problem with $\lambda_1$ near 1: nearly orthogonal tokens, $T=2$.

# %%
every = range(seeds)
fig2 = coordinates.minimal(tokens.class_mean_tokens(0, n=20, T=10, d=300, signal=3.0, noise=0.1))
pair = coordinates.minimal(tokens.gaussian_tokens(every, n=8, T=2, d=400, signal=3.0))
target, pair_target = svm.token_svm(fig2.tokens), svm.token_svm(pair.tokens)
fig2_law = margin_law.margin_law(fig2.tokens, target)
pair_law = margin_law.margin_law(pair.tokens, pair_target)
doubled = 2 ** np.arange(2, doublings + 1)
long = dynamics.train(fig2, dynamics.NGD(0.025), doubled[-1], doubled, targets={"W_mm": target.W})
flat = dynamics.train(pair, dynamics.GD(0.5), doubled[-1], doubled, targets={"W_mm": pair_target.W})
long_errors = law_steps.difference_errors(long, target.W)
flat_errors = law_steps.difference_errors(flat, pair_target.W)

for name, history, errors in (("NGD", long, long_errors), ("GD, T = 2", flat, flat_errors)):
    plain, better = history.direction_error["W_mm"][:, -1].max(), errors[:, -1].max()
    print(f"{name}: W_2t {plain:.1e}, W_2t - W_t {better:.1e} at 2t = {doubled[-1]:,}")

# %%
difference_table = claims.Table([
    *law_steps.ngd_claims(long, "W_mm", long_errors, fig2_law),
    law_steps.gd_order(flat, flat_errors, pair_law),
])  # fmt: skip
difference_table

# %%
about_difference = f"Left: NGD on Figure 2's problem, seed 0; right: GD on Gaussian tokens, n=8, T=2, d=400, {seeds} seeds; synthetic"
both = (long, long_errors, fig2_law), (flat, flat_errors, pair_law)
figure_difference = plots.caption(margin_law_figures.differences(*both), about_difference)
figure_difference

# %% [markdown]
# Left: look at the dashed line, which leaves the solid one and ends at rounding. Right: look at the slope of the dashed line
# beside the dotted one. Where $\lambda_1$ is near 1, as here, a factor $\log t$ comes with the power: that is measured.
#
# ## How long a step may be
#
# Runs start converged, with the residual made 1 % too long. Either this disturbance dies or it grows. Reported is how much an
# offset moves over the last 64 iterations.

# %%
unit_tokens = tokens.unit_tokens(unit_seeds, n=6, T=8, d=10)
found = [law_steps.cycles(unit_tokens, multiples, momentum, cycle_steps) for momentum in (0.0, 0.9)]
step_claims = law_steps.threshold(found, 0.98, 1.02)
step_claims += [law_steps.short_step(found, multiple) for multiple in (0.9, 0.5)]
claims.Table(step_claims)

# %%
seeds_named = f"{', '.join(map(str, unit_seeds[:-1]))} and {unit_seeds[-1]}"
about_steps = f"Unit tokens, n=6, T=8, d=10, {len(unit_seeds)} seeds ({seeds_named}); NGD from the settled state with its residual 1 % off"
figure_steps = plots.caption(margin_law_figures.cycles(found), about_steps)
figure_steps

# %% [markdown]
# Both panels: look at the jump at the dotted line, the predicted threshold; one mark per seed and step. The claims at 0.9 and 0.5 are no
# predictions: they were added when this figure, with the five seeds of desk scale, had shown a cycle at 0.9. One of the five seeds
# cycles there, with momentum: for it a residual 1 % off is no small disturbance.
#
# **Without momentum** a cycle needs other data. Take three samples of two tokens in the plane, all with the query 1, with the
# features $(1,1)$, $(1,0)$, $(1,-1)$ of which the middle one pulls $e^3$ times as hard. $W_{mm}=(1,0)$, and the second coordinate of $W$ is the
# offset. The middle sample does not move it. Near 0 this sample takes nearly all of the step, and the outer ones pull back softly: long
# steps are allowed. Far away an outer one pulls alone.

# %%
e = np.exp(-3.0)
longest = (1 + 2 * e) / e
for w in (0.1, 5.0):
    for _ in range(3000):
        c = np.array([e * np.exp(-w), 1, e * np.exp(w)])  # kappa_m e^{-g_m}, up to a common factor
        pull = c @ np.array([[1, 1], [1, 0], [1, -1]])
        w = w + 0.9 * longest * pull[1] / np.linalg.norm(pull)
    print(f"0.9 of eta* = {longest:.2f}: after 3000 steps the offset is {abs(w):.4f} off")
step_claims.append(law_steps.cycle_without_momentum())

# %% [markdown]
# From 0.1 it converges, from 5 it jumps from side to side for ever; attention itself, trained, does the same (`law.cycle`). The three
# features are dependent. The note has a **conjecture**: where those of $S$ are independent, NGD without momentum converges for every
# $\eta<\eta^*$. A search among random independent supports, 20 starts each, saturated steps of 0.9 of $\eta^*$:

# %%
searched, sizes = 25 * seeds, range(2, 8)
alone, left = np.transpose([law_steps.search(searched, m, longer=100_000) for m in sizes])
pushed, _ = law_steps.search(100, 2, momentum=0.9)
step_claims.append(claim("law.two_pairs", alone[0] / searched))
searched *= len(sizes)
print(
    f"to and fro: {sum(alone)} of {searched:,} supports after 3000 steps, {sum(left)} after 100,000;"
)
print(f"with momentum 0.9 {pushed} of 100 supports of two pairs")

# %% [markdown]
# A run that goes to and fro need not be in a cycle. In a cycle the mean of the pulls would be the duals (the note, Proposition 3). In those
# that we followed it is far from them: their features are nearly dependent, and they drift.

# %% [markdown]
# ## Real tokens
#
# Do the hypotheses ever hold on tokens that nobody drew? Sentence pairs (MultiNLI) and comments (CivilComments) pass through a
# frozen encoder. A token is a word piece's last hidden state, the query that of [CLS], the head a ridge regression of the labels on
# the mean token. $W$ alone is trained, from zero. The residual of $W_t$ should tend to $C=\lVert\rho_\perp\rVert$, from the duals.
# Predictions and bounds stand in [bends_protocol.md](bends_protocol.md).

# %%
names = {"multi_nli": "sentence pairs", "civil_comments": "comments"}
readings, examples, data_rows = {}, {}, [bert.weights(demo=True).as_row()]
for key, name in names.items():
    every_text = texts.load(key, "train", demo=True)
    data_rows.append(texts.identity(key, demo=True))
    readings[name] = []
    for seed in range(sentence_seeds):
        shuffled = every_text.sample(len(every_text) - 1, seed)
        of = real_tokens.sentences(shuffled, sentence_count)
        one = real_tokens.read(of.tokens, dynamics.NGD(sentence_step), sentence_steps)
        readings[name].append(one)
        examples.setdefault(name, (of, one))
        print(name, one.refusal or f"C = {one.law.constant[0]:.4f}, residual / C = {one.ratio:.6f}")
real_runs = [one for several in readings.values() for one in several]
real_table = claims.Table(real_tokens.claims(real_runs))
real_table

# %%
stand_in = data_rows[1]["source"] == "demo"
which = ("", ", private samples") if not stand_in else ("Stand-ins for ", "")
about_real = f"Ours. {which[0]}MultiNLI and CivilComments{which[1]}; frozen MiniLM encoder; one line a run, on {sentence_count} sentences; runs a data set: {sentence_seeds}; NGD, steps {sentence_step}"
figure_real = plots.caption(real_tokens.draw(readings, examples["sentence pairs"]), about_real)
figure_real

# %% [markdown]
# Above: each line ends on the dotted one, which knows the duals and no run. Below: the words that a sentence's attention spreads
# over at first, and the one that is left.
#
# ## What we saw
#
# The difference of two iterates of NGD was many orders of magnitude nearer to the max-margin direction than the iterate. Just
# below the predicted longest step the offsets converged, just above it they cycled; below it we found cycles with momentum and,
# without it, with dependent features. Of the random independent supports hardly any went to and fro for long.
#
# ## Change this
#
# **The second iterate.** Prediction: $W_{2t}-W_t$ needs no doubling. $W_{t'}-W_t$ for any other $t'$ has the same direction, with
# more rounding the nearer they are.

# %%
at = [90_000, 99_000, 99_990, 100_000]
late = dynamics.train(fig2, dynamics.NGD(0.025), at[-1], at)
for k in range(len(at) - 1):
    step = late.weights(-1)[0] - late.weights(k)[0]
    off = step / np.linalg.norm(step) - target.W[0] / target.norm[0]
    print(f"W_{at[-1]} - W_{at[k]}: direction error {np.linalg.norm(off):.1e}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# So it is: a hundred times nearer costs two digits, rounding and nothing else.
#
# </details>
#
# **To prove.** Gradient descent on $\frac\lambda2x^2$ with steps $h$. For which $h$ does it converge, and what does it do at $h=2/\lambda$?
#
# <details><summary>Solution</summary>
#
# $x\leftarrow(1-h\lambda)x$, so it converges if and only if $\lvert1-h\lambda\rvert<1$, that is $0<h<2/\lambda$. At $h=2/\lambda$ the factor is $-1$: $x$
# jumps between two values for ever. With $h=\eta/\lVert W_{mm}\rVert$ and $\lambda=\lambda_{\max}$ this is $\eta^*$ without momentum.
#
# </details>

# %% tags=["set-up"]
# Set-up, no need to read.
numbers = {"ngd_log10_gain": np.log10(difference_table[1].measured)}
numbers["gd_plain"] = np.median(flat.direction_error["W_mm"][:, -1])
numbers["gd_difference"] = np.median(flat_errors[:, -1])
run.keep(figure_difference, "law_difference", about_difference, difference_table, numbers)
numbers = {"move_at_1.02": step_claims[1].measured, "two_pairs_with_momentum": pushed}
numbers |= dict(searched=searched, to_and_fro=int(sum(alone)), cycles_left=int(sum(left)))
setting = {"seeds": unit_seeds}
run.keep(figure_steps, "law_steps", about_steps, step_claims, numbers, setting=setting)
kept_real = [one for one in real_runs if not one.refusal]
worst = max((abs(one.ratio - 1) for one in kept_real), default=np.nan)
numbers = {"runs": len(real_runs), "kept": len(kept_real), "worst": worst}
setting = {"seeds": list(range(sentence_seeds))}
run.keep(figure_real, "law_real", about_real, real_table, numbers, data_rows, setting=setting)
