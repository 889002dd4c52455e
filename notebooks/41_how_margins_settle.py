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
# *Page 5 of 11 · before: [40](40_law_of_margins.ipynb) · next: [30](30_mirror_descent.ipynb) · 25 minutes · [words](words.md).* By the end, you will be able to compute the step length below which small deviations die out, and gain many digits from two iterates.
#
# A *pair* $m$ consists of the token that attention selects in a sample and another token of this sample. Its *margin* $g_m$ is the logit of the selected token minus the logit of the other one. The *support* is the set of pairs whose margin at the solution $W_{mm}$ of the token SVM is exactly 1.
#
# By the law of [notebook 40](40_law_of_margins.ipynb), the margins of all pairs on the support grow like the *margin level* $a_t$, their mean weighted by the dual variables $\beta_m$ of the token SVM. The difference $g_m-a_t$ converges to a fixed *offset*, which the $\beta_m$ and the pulls of the loss on the pairs determine. **Paper A** (arXiv 2402.05738) proves to which direction $W_t$ converges.
#
# **Question.** How fast do the differences $g_m-a_t$ converge to the offsets? (For short, we say that the *offsets converge*.) With which step lengths do they never converge? And what can we learn from a run once they have converged?
#
# ## Two samples in the plane
#
# In the example of notebook 40, $W=(w_1,w_2)$ is a vector in the plane. The two samples have the margins $g_1=w_1$ and $g_2=\frac12w_2$ and the dual variables (*duals*) 1 and 4.
# The law says that $g_2-g_1$ converges to $-\log4$. We take 3000 steps of normalised gradient descent (NGD) with step lengths below and above a threshold $\eta^*$, which the next section derives. We call it the *longest step*: below it, small deviations from the offsets die out. (Large ones need not, as we will see.)

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
print(f"longest step eta* = {longest:.4f}; g_2 - g_1 + log 4 at steps 2997 to 3000:")
for multiple in (0.5, 0.98, 1.02, 1.5):
    history = dynamics.train(plane, dynamics.NGD(multiple * longest), 3000, range(2997, 3001))
    g = history.margins[0, -4:, :, 0]
    print(f"{multiple:5} eta*:", (g[:, 1] - g[:, 0] + np.log(4)).round(4))

# %% [markdown]
# If the step is shorter than $\eta^*$, the difference $g_2-g_1$ converges to $-\log4$. If the step is a little longer, the difference keeps jumping from one side of $-\log4$ to the other.
#
# <details><summary>How large are the jumps?</summary>
#
# Here the jumps are small if the step is just above $\eta^*$, and they become larger for longer steps. On other problems the jumps may be large even just above $\eta^*$.
#
# </details>
#
# ## Where the longest step comes from
#
# Let $A_m$ be the *feature* of a pair, the matrix with $g_m=\langle A_m,W\rangle$. Write $W_t=a_tW_{mm}+\rho+\omega$. The *residual* $\rho$ lies in the span of the $A_m$ of the support and is orthogonal to $W_{mm}$; it determines the differences $g_m-a_t$. The remaining part $\omega$ is orthogonal to this span. Late in training, $\rho$ follows gradient descent on $G(\rho)=\log\sum_m\kappa_me^{-\langle A_m,\rho\rangle}$, where $\kappa_m$ says how hard the loss pulls on the pair $m$.
#
# At the minimum of $G$, the Hessian has the eigenvalues $\lambda/\|W_{mm}\|^2$. The numbers $\lambda_1\le\dots\le\lambda_{\max}$ are the positive eigenvalues of $B^{1/2}KB^{1/2}$, where $K$ is the Gram matrix of the $A_m$ on the support and $B=\text{diag}(\beta)$. We leave out the eigenvector $\sqrt\beta$, which corresponds to $W_{mm}$.
#
# Late in training, a step of length $\eta$ raises the margins on the support by $h=\eta/\lVert W_{mm}\rVert$. It multiplies a small deviation from the offsets along the eigenvector of $\lambda$ by $1-h\lambda$. So all small deviations shrink if and only if $\eta<\eta^*=2\|W_{mm}\|/\lambda_{\max}$.
#
# We test this on one problem with tokens of length 1. Near the limit, a step changes the margins on the support by $g\leftarrow g+\eta Kc/\sqrt{c^\top Kc}$ with $c_m=\kappa_me^{-g_m}$. The code iterates this map with $\kappa_m=1$: the features of the support are independent here, so the duals are unique, and $\eta^*$ does not depend on $\kappa_m$. (If the features are dependent, several choices of duals give $W_{mm}$. The formula then needs those for which the offsets of the law exist, and these depend on $\kappa_m$.)

# %%
data = coordinates.minimal(tokens.unit_tokens(unit_seeds[:1], n=6, T=8, d=10)).tokens
solution = svm.token_svm(data)
law = margin_law.margin_law(data, solution)
X, z, opt = data.X[0], data.z[0], data.opt[0]  # (n, T, r), (n, q), (n,)
i, t = np.nonzero(np.arange(X.shape[1]) != opt[:, None])  # every pair
A = np.einsum("md,me->mde", X[i, opt[i]] - X[i, t], z[i]).reshape(len(i), -1)  # A_m, as rows
on = solution.duals[0].ravel() > 0  # the support
beta = solution.duals[0].ravel()[on]
K = A[on] @ A[on].T
root = np.sqrt(beta)
weighted = root[:, None] * K * root  # B^1/2 K B^1/2; sqrt(beta) is an eigenvector
values = np.linalg.eigvalsh(weighted - np.outer(root, root) / (root @ root))
longest = 2 * np.linalg.norm(solution.W[0]) / values[-1]
assert np.isclose(longest, law.longest_step()[0])
print(f"lambda from {law.slowest[0]:.4f} to {values[-1]:.4f}, so eta* = {longest:.4f}")

# %%
for multiple in (0.9, 0.98, 1.02, 1.1):
    g = -np.log(beta) + 1e-3 * np.linspace(-1, 1, on.sum())  # a little off log(kappa/beta)
    for _ in range(20_000):
        before, c = g, np.exp(g.min() - g)  # kappa = 1
        g = g + multiple * longest * K @ c / np.sqrt(c @ K @ c)
    moved = np.ptp(g - before)  # a common rise of the margins moves no offset
    print(f"{multiple} of the longest step: offsets still move by {moved:.1e} per step")

# %% [markdown]
# ## A max-margin direction from training alone
#
# Once the offsets have converged, the residual is the same at steps $t$ and $2t$, so it cancels in $W_{2t}-W_t$. Does this difference give the direction of $W_{mm}$ without solving an SVM?
#
# Under gradient descent (GD), the direction of the difference is hardly more accurate than that of $W_t$ if $\lambda_1$ is small. So for GD we choose nearly orthogonal tokens, $T=2$ per sample, for which $\lambda_1$ is near 1.

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
# In both panels, the solid line shows the direction error of the iterate $W_{2t}$, and the dashed line shows that of the difference $W_{2t}-W_t$. Left (NGD): the dashed line falls away from the solid line and ends at the level of rounding errors. Right (GD): the dashed line falls about as steeply as the short grey line. Its power of $t$ is that of the bound in result 2 below; the factor $\log t$ in it is measured.
#
# Two results, which hold under the hypotheses of the law, explain the figure.
#
# 1. *Rate.* If a rule takes short steps along the negative gradient, a small deviation from the offsets along the eigenvector of $\lambda$ shrinks like $e^{-\lambda a_t}$, so the slowest one shrinks like $e^{-\lambda_1a_t}$. Two other things push the margins off their offsets: softmax weights that are not yet saturated, with a strength of order $e^{-a_t}$, and pairs off the support, with $e^{-\epsilon a_t}$, where $1+\epsilon$ is the smallest margin of $W_{mm}$ off the support. If $\lambda_1$ is larger than 1 or $\epsilon$, they set the rate.
# 2. *Difference.* $W_{2t}-W_t=(a_{2t}-a_t)W_{mm}$, up to the deviations that have not yet died out. Under NGD the direction error of this difference is exponentially small in $t$. Under GD it falls at least as fast as a power of $t$, whereas the direction error of $W_t$ itself is a constant divided by $\log t$.
#
# <details><summary>Which power of $t$?</summary>
#
# Under GD the direction error of the difference is at most $t^{-q}$ for every $q<\min(\lambda_1,1,\epsilon)$. If $\lambda_1$ is near 1, as in this problem, we measure an extra factor $\log t$.
#
# </details>
#
# ## How long a step may be
#
# Is $\eta^*$ also the longest step when we train attention? With momentum $\mu$ (each step adds $\mu$ times the step before), a step raises the margins by $h/(1-\mu)$, and the threshold becomes $\eta^*=2(1+\mu)\|W_{mm}\|/\lambda_{\max}$. We start each run in the converged state, except that its residual is 1 % too long, and report how much the differences $g_m-a_t$ still move over the last 64 iterations.

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
# Each mark shows the movement for one seed and one step length. In both panels, the movement jumps at the dotted line, the predicted threshold.
#
# ![Moves of the offsets against the step: a jump at the threshold](../figures/desk/law_steps.png)
#
# *The same figure for the larger runs (desk [scale](words.md)). With momentum, one of the five runs cycles even with a step of 0.9 times the threshold.*
#
# <details><summary>Why does this run cycle?</summary>
#
# For this run, a deviation of 1 % in the residual is not small. A *claim* compares a measured number with a bound. We added our claims about steps of 0.9 and 0.5 times the threshold after we had seen this cycle, so these claims are not predictions.
#
# </details>
#
# **Can a run cycle with steps below $\eta^*$ if there is no momentum?** Take three samples of two tokens each in the plane, all with the query 1. Their features are $(1,1)$, $(1,0)$ and $(1,-1)$, and the loss pulls $e^3$ times as hard on the middle feature as on each of the other two. (These features are dependent, so here $\eta^*$ depends on the pulls.) Then $W_{mm}=(1,0)$, and the offsets are determined by the second coordinate of $W$, which we call the offset here.

# %%
e = np.exp(-3.0)
longest = (1 + 2 * e) / e
for start in (0.1, 5.0):
    w = start
    for _ in range(3000):
        c = np.array([e * np.exp(-w), 1, e * np.exp(w)])  # kappa_m e^{-g_m}, up to a common factor
        pull = c @ np.array([[1, 1], [1, 0], [1, -1]])
        w = w + 0.9 * longest * pull[1] / np.linalg.norm(pull)
    print(f"0.9 of eta* = {longest:.2f}, start {start}: offset {abs(w):.4f} after 3000 steps")
step_claims.append(law_steps.cycle_without_momentum())

# %% [markdown]
# Started at 0.1, the offset converges to 0. Started at 5, it does not: it ends at a distance of about 7, and jumps from one side of 0 to the other at every step (the cell prints the distance alone).
#
# <details><summary>Why does the start matter? And does a trained layer cycle, too?</summary>
#
# The middle sample does not move this offset. If the offset is near 0, nearly all of each step goes along the middle feature, and the two outer samples pull only weakly, so runs with long steps converge. If the offset is far from 0, one outer sample dominates the step, and steps of the same length are too long.
#
# A trained attention layer behaves in the same way. We test this with the claim `law.cycle`, which is in the record of the figure above.
#
# </details>
#
# The three features are linearly dependent. In [the note](law_of_margins.md) we **conjecture** that NGD without momentum converges for every $\eta<\eta^*$ if the features of the support are linearly independent. The next cell searches for a counterexample among random supports with independent features. For each support we try 20 starting points, always with steps of length $0.9\,\eta^*$.

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
# A run whose offsets oscillate need not be in a cycle.
#
# <details><summary>Why not? And what does the search simplify?</summary>
#
# In a cycle, the mean of the pulls would be proportional to the duals (Proposition 3 of the note). The runs that we followed have nearly dependent features. In these runs the mean of the pulls is far from proportional to the duals, so they are not in a cycle, but drift.
#
# In the search the softmax weights are saturated, as they are late in training.
#
# </details>

# %% [markdown]
# ## Real tokens
#
# Do the hypotheses of the law hold for tokens from text? We pass sentences through a frozen text encoder, and train only $W$, from zero. The run on this page uses stand-ins that come with the library: ten sentences made from templates for each of two data sets, sentence pairs and comments. The larger run below uses real sentences from MultiNLI and CivilComments. If the law holds, the length of the residual of $W_t$ tends to the law's constant $C$, which we compute from the duals and from how hard the loss pulls on each pair. (The part of $W_t$ outside the span is not tested here.)
#
# <details><summary>What are the tokens, the query and the head?</summary>
#
# A token is the last hidden state of a word piece, and the query is the last hidden state of the token [CLS]. The head comes from a ridge regression of the labels on the mean token. [The protocol](bends_protocol.md) lists our predictions and bounds.
#
# </details>

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
figure_real = plots.caption(real_tokens.draw(readings), about_real)
figure_real

# %% [markdown]
# Each line shows one run. It ends on the dotted line, which we computed from the duals and the pulls. The next picture has real sentences, 50 in each run.
#
# ![On real sentences, too, the runs end at the predicted constant](../figures/desk/law_real.png)
#
# *The same figure for MultiNLI and CivilComments (desk scale, private samples).* The last picture shows one sentence three times during training. A darker word has a larger softmax weight. At first attention is spread over all words, and in the end it reads a single word.

# %%
real_tokens.draw_sentence(*examples["sentence pairs"])

# %% [markdown]
#
# ## What we saw
#
# **Answer.** With short steps a small deviation from the offsets shrinks like $e^{-\lambda a_t}$, unless unsaturated weights or pairs off the support make it slower, and the rates $\lambda$ can be computed from the duals. With steps just below the predicted longest step $\eta^*$ the offsets converged, and with steps just above it they cycled. We also found cycles with steps below $\eta^*$, either with momentum or with linearly dependent features. Of the random supports with linearly independent features, few had a run that oscillated for long.
#
# Once the offsets have converged, the residual cancels in $W_{2t}-W_t$. For NGD, the direction of this difference was many orders of magnitude closer to the max-margin direction than that of the iterate. On tokens of real sentences, too (in the larger run), the duals, with the pulls of the loss, predict the length of the residual.
#
# [The note](law_of_margins.md) says which of these results we can prove.
#
# ## Change this
#
# **The second iterate.** *Prediction:* in the difference $W_{2t}-W_t$, the later iterate need not be $W_{2t}$. The difference $W_{t'}-W_t$ has the same direction for every later $t'$, but the computed direction loses digits to rounding if $t'$ is near $t$.

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
# The prediction holds. If the two iterates are a hundred times closer together in time, the direction of their difference loses about two digits.
#
# </details>
#
# **To prove.** Consider gradient descent on $\frac\lambda2x^2$ with the step size $h$. Show for which $h$ it converges. What does it do at $h=2/\lambda$?
#
# <details><summary>Solution</summary>
#
# Each step is $x\leftarrow(1-h\lambda)x$, so gradient descent converges if and only if $\lvert1-h\lambda\rvert<1$, that is, if $0<h<2/\lambda$. For $h=2/\lambda$ the factor is $-1$, so $x$ jumps between two values forever. With $h=\eta/\lVert W_{mm}\rVert$ and $\lambda=\lambda_{\max}$, the condition $h=2/\lambda$ becomes $\eta=\eta^*$ without momentum.
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
