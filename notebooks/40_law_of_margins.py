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
# *Page 4 of 11 · before: [11](11_long_horizon.ipynb) · next: [41](41_how_margins_settle.ipynb) · 30 minutes · [words](words.md).* By the end, you will be able to compute, from the dual variables, the constant in the error of attention's direction.
#
# **Paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738) proves, under its assumptions, that
# normalised gradient descent (NGD) turns the attention weights $W_t$ towards a max-margin matrix $W_{mm}$.
# But its Theorem 1 only bounds the *direction error* $\big\lVert W_t/\|W_t\|-W_{mm}/\|W_{mm}\|\big\rVert$ by a multiple of $t^{-1/2}$, up to logarithmic factors.
#
# **Question.** How large *is* this error? When can you compute, before training, how many steps bring $W_t$ within one degree of $W_{mm}$?
#
# ## Two samples in the plane
#
# Take two samples of two tokens each. The first tokens are $(1,0)$ and $(0,\frac12)$, both with the *score* 1 (the answer if the layer read this token alone). The second tokens are zero vectors with the score 0. The query is the number 1, so $W$ is a vector in the plane.
# The *margins*, the logit of the first token minus the logit of the second, are $g_1=w_1$ and $g_2=\frac12w_2$.
#
# The *token SVM* asks for the shortest $W$ whose margins are both at least 1, that is, $w_1\ge1$ and $w_2\ge2$. Its solution is $W_{mm}=(1,2)=1\cdot(1,0)+4\cdot(0,\frac12)$.
# The factors 1 and 4 are its *dual variables*, or *duals*.
#
# We run NGD and print the difference of the margins, and the error times $\|W_t\|$.

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
from papers.law import joint_law, margin_law, margin_law_figures, margin_theorem
from papers.law import margin_law_runs as runs
from papers.law import margin_law_steps as law_steps
from papers.ours import BOUNDS

run = record.start("40_law_of_margins", "A", globals())

# %%
A, W_mm, path = np.array([[1.0, 0.0], [0.0, 0.5]]), np.array([1.0, 2.0]), [np.zeros(2)]
for _ in range(1000):
    other = 1 / (1 + np.exp(A @ path[-1]))  # q, the weight of the second token of each sample
    pull = np.exp(other - 1) * other * (1 - other)  # e^-f q (1 - q), exponential loss
    path.append(path[-1] + 0.1 * pull @ A / np.linalg.norm(pull @ A))  # NGD: a step of 0.1
for t in (1, 10, 100, 300, 1000):
    g, length = A @ path[t], np.linalg.norm(path[t])
    error = np.linalg.norm(path[t] / length - W_mm / np.linalg.norm(W_mm))
    print(f"t = {t:4}  margins {g.round(3)}  g_2 - g_1 = {g[1] - g[0]:.4f}", end="  ")
    print(f"error x ||W|| = {error * length:.4f}")

# %% [markdown]
# Both margins grow, but their *difference* converges to $-\log4=-1.386$, where 4 is the ratio of the duals.
#
# Why? Let $q=1/(1+e^{g_i})$ be the softmax weight of the second token of sample $i$. The answer, the weighted mean of the scores 1 and 0, is $f=1-q$. By [page 00](00_attention_by_hand.ipynb), the sample pulls on $W$ with the force $e^{-f}q(1-q)$. Late in training $q$ is nearly $e^{-g_i}$, so the force is nearly proportional to $e^{-g_i}$.
#
# 1. Each step points along the sum of $(1,0)$ and $(0,\frac12)$, weighted by the pulls. If $g_2-g_1=-\log4$, sample 2 pulls four times as hard as sample 1, so the step points along $W_{mm}$ and does not change the difference.
# 2. The pull of sample 2 raises $g_2$ by only a quarter of its strength, because $\lVert(0,\frac12)\rVert^2=\frac14$. If the difference is larger than $-\log4$, sample 2 pulls less than four times as hard, so $g_1$ grows faster than $g_2$ and the difference falls. If the difference is smaller, it rises.
# 3. In the end $W=(g_1,2g_2)=g_1\,(1,2)-(0,2\log4)$. The first term lies on the ray through $W_{mm}$. The part of the second term orthogonal to this ray is $(0.8,-0.4)\log4$. Its length $C=2\log4/\sqrt5=1.24$ is the distance of the path from the ray.
#
# Seen from the origin, this fixed distance subtends an angle that shrinks like $1/\|W_t\|$.

# %%
rest = np.log(4) * np.array([0.8, -0.4])  # the part of -(0, 2 log 4) orthogonal to W_mm
about_ray = "Two samples of two tokens, NGD from zero, step 0.1; no randomness"
figure_ray = margin_law_figures.beside_the_ray(np.array(path), W_mm, rest)
plots.caption(figure_ray, about_ray)
beside = path[-1] - (path[-1] @ W_mm) / (W_mm @ W_mm) * W_mm
ray_off = abs(np.linalg.norm(beside) / np.linalg.norm(rest) - 1)
figure_ray

# %% [markdown]
# Left: the path approaches the dotted line, parallel to the dashed ray. Right: the distance from the ray converges to our prediction.
#
# **How many steps does it take to come within one degree?** Late in training, the angle $\theta_t$ between $W_t$ and $W_{mm}$ satisfies $\lVert W_t\rVert\sin\theta_t=C$. So $\theta_t$ is one degree when $W_t$ has the length $C/\sin1°$. Every step is 0.1 long, and late steps point almost along $W_{mm}$, so we predict about $C/(0.1\,\sin1°)$ steps.

# %%
one_degree = np.deg2rad(1)
print(f"predicted: {np.linalg.norm(rest) / (0.1 * np.sin(one_degree)):.0f} steps")
cosines = np.array(path[1:]) @ W_mm / np.linalg.norm(path[1:], axis=1) / np.linalg.norm(W_mm)
print(f"measured:  {1 + np.argmax(cosines > np.cos(one_degree))} steps")

# %% [markdown]
# ## The law
#
# The same argument works for many samples, losses and update rules. A *pair* $m=(i,s)$ consists of the token $\alpha_i$ that the run selects in sample $i$ and another token $s$.
#
# | symbol | meaning |
# |---|---|
# | $A_m=(x_{i,\alpha_i}-x_{i,s})z_i^\top$; $g_m=\langle A_m,W\rangle$ | the feature of a pair; its margin |
# | $W_{mm}=\sum_m\beta_mA_m$; *support* | the SVM's solution with its duals $\beta_m\ge0$; the pairs whose margin at $W_{mm}$ is exactly 1 |
# | $\kappa_m=\lvert\ell'(\gamma_{i,\alpha_i})\rvert\,(\gamma_{i,\alpha_i}-\gamma_{i,s})$ | how hard the loss $\ell$ pulls on a pair, apart from the factor $e^{-g_m}$; $\gamma$ are the scores |
# | $a_t=\langle W_t,W_{mm}\rangle/\lVert W_{mm}\rVert^2$ | the *margin level* at step $t$: the mean of the margins, weighted by the $\beta_m$, whose sum is $\lVert W_{mm}\rVert^2$ |
# | $o_m$ | the *offset* of a pair: the limit of $g_m-a_t$ |
#
# Let $L^*$ be the loss when every selected token has the weight 1. Once the weights of the other tokens are small,
# $$L-L^*\approx\frac1n\sum_m\kappa_me^{-g_m},\qquad-\nabla L\approx\frac1n\sum_m\kappa_me^{-g_m}A_m .$$
# [Page 00](00_attention_by_hand.ipynb) derives both formulas for the exponential loss, where $\lvert\ell'(\gamma)\rvert$ is $e^{-\gamma}$. We call $\kappa_me^{-g_m}$ the *pull* of a pair.
#
# **Deviations correct themselves.** Suppose that every pair is on the support and has a positive dual. Split $W_t=a_tW_{mm}+\rho_t$ with $\rho_t\perp W_{mm}$. Since $\langle A_m,W_{mm}\rangle=1$, the margins are $g_m=a_t+\langle A_m,\rho_t\rangle$. We show that late in training $\rho_t$ follows gradient descent on
# $$F(\rho)=\log\sum_m\kappa_me^{-\langle A_m,\rho\rangle},\qquad\rho\perp W_{mm}.$$
#
# 1. *The ratios of the pulls depend only on $\rho_t$.* Let $\pi_m$ be the pull of $m$ divided by the sum of all pulls. The common factor $e^{-a_t}$ cancels, so $\pi_m=\kappa_me^{-\langle A_m,\rho_t\rangle}/\sum_k\kappa_ke^{-\langle A_k,\rho_t\rangle}$.
# 2. *$\rho_t$ descends on $F$.* Since $-\nabla L$ is a multiple of $\bar A=\sum_m\pi_mA_m$, a step of $W_t$ along the negative gradient is $\eta'\bar A$ with some $\eta'>0$ (under NGD, $\eta'=\eta/\lVert\bar A\rVert$). The part of this step orthogonal to $W_{mm}$ is the step of $\rho_t$. Differentiating $F$ shows that this part of $\bar A$ is $-\nabla F(\rho_t)$. So $\rho_{t+1}=\rho_t-\eta'\,\nabla F(\rho_t)$. If $W_0=0$, $\rho_t$ stays in the span of the $A_m$.
# 3. *In this span, $F$ has a minimum at exactly one point, $\rho_\perp$.* The box "When is this proved?" shows it.
# 4. *At this minimum the pulls are proportional to the duals.* At $\rho_\perp$, $\nabla F=0$, so $\bar A$ points along $W_{mm}=\sum_m\beta_mA_m$. If the $A_m$ are independent, it follows that $\kappa_me^{-\langle A_m,\rho_\perp\rangle}=c\,\beta_m$ with some constant $c$, so $\langle A_m,\rho_\perp\rangle=\log(\kappa_m/\beta_m)-\log c$. Weighted by $\beta_m$, these left sides sum to $\langle W_{mm},\rho_\perp\rangle=0$. So $\log c=\text{mean}_\beta\log(\kappa/\beta)$, the mean with the weights $\beta_m$.
#
# The distance of $W_t$ from the ray is $\lVert\rho_t\rVert$.
#
# **Theorem (the law).** Start at $W_0=0$. Suppose that every pair is on the support and has a positive dual, and that in each pair the selected token has the higher score. Suppose that the step lengths sum to infinity, but that each step is so short that the descent on $F$ is stable: for NGD, $\eta\lVert W_{mm}\rVert D^2<8$, where $D$ is the largest distance between two $A_m$. Finally, suppose that the run gets far enough, to a level $a_t\ge a^*$ from which on the formula for $-\nabla L$ is accurate enough ([the note](law_of_margins.md#theorem) defines $a^*$). Then $\rho_t\to\rho_\perp$, and
# $$\|W_t\|\times\text{error}_t\to C=\|\rho_\perp\|,\qquad\langle A_m,\rho_\perp\rangle=o_m=\log\frac{\kappa_m}{\beta_m}-\text{mean}_\beta\log\frac{\kappa}{\beta}.$$
# If the $A_m$ are independent, this linear system determines $\rho_\perp$.
#
# <details><summary>The law in the plane</summary>
#
# In the plane, $\kappa$ is constant, so $\log(\kappa/\beta)=(0,-\log4)$ up to an additive constant, and the mean is $-0.8\log4$. So $o=(0.8,-0.2)\log4$, and $\rho_\perp=(0.8,-0.4)\log4$ as before.
#
# </details>
#
# <details><summary>When is this proved? (One minimum; dependent $A_m$; short steps; far enough)</summary>
#
# *One minimum.* First we show that $F$ has a minimum in the span of the $A_m$. Let $\rho\ne0$ lie in the span. Then $\sum_m\beta_m\langle A_m,\rho\rangle=\langle W_{mm},\rho\rangle=0$. The products $\langle A_m,\rho\rangle$ are not all 0 and all $\beta_m$ are positive, so at least one product is negative. Hence $F(s\rho)\to\infty$ as $s\to\infty$. A convex function that tends to infinity along every ray has a minimum, so it remains to show that $F$ is convex, and that the minimum is attained at only one point. The curvature of $F$ along a unit matrix $v\perp W_{mm}$ is the variance of the numbers $\langle A_m,v\rangle$ with the weights $\pi_m$. A variance is never negative, so $F$ is convex. The variance is zero only if all these numbers are equal. Weighted by the $\beta_m$, the numbers add up to $\langle W_{mm},v\rangle=0$, so they would all be 0, which is impossible for a unit matrix in the span. So $F$ is strictly convex on the span and has only one minimum there.
#
# *Dependent $A_m$.* If the $A_m$ are not independent, several choices of duals give the same $W_{mm}$. The law holds with the duals that are proportional to the pulls at $\rho_\perp$.
#
# *Short steps.* The numbers $\langle A_m,v\rangle$ lie in an interval of length $D$, the largest distance between two $A_m$, so their variance is at most $D^2/4$. Gradient descent on a convex function is stable if its step size, multiplied by the curvature, is below 2. So step sizes below $8/D^2$ are short enough. NGD's step size on $F$ is $\eta'=\eta/\lVert\bar A\rVert$. Since $\langle A_m,W_{mm}\rangle=1$ for all pairs, $\langle\bar A,W_{mm}\rangle=1$, and hence $\lVert\bar A\rVert\ge1/\lVert W_{mm}\rVert$. So for NGD, *short* means that
# $$\eta\,\lVert W_{mm}\rVert\,D^2<8 .$$
# In the plane, the left side is $0.1\cdot\sqrt5\cdot1.25=0.28$. [The note](law_of_margins.md#theorem) states the conditions for other rules and shows that longer steps are short enough, too, if the run is near the limit.
#
# *Far enough* means that, at some step, the level $a_t$ is at least a number $a^*$ (in the note it is called $A$). Why is one such step enough? As the level rises, the weights of the other tokens shrink exponentially, and so do the relative errors of our formula for $-\nabla L$. The errors of all later steps therefore have a finite sum, like a geometric series. From the level $a^*$ on, this sum is too small to carry the run away from the law. The number $a^*$ depends on the tokens, on the scores, on the step size, and on how far the $g_m-a_t$ still are from the $o_m$; it is defined by inequality (8) of [the note](law_of_margins.md#theorem), where it is called $A$. The section "Many runs" computes $a^*$ for its runs and for the example in the plane. In the plane the level is too low at step 50 and high enough at step 100.
#
# </details>
#
# Paper A's bound is:

# %%
statements.quoted("A", STATEMENTS, "Theorem 1")

# %% [markdown]
# ## The formula in code
#
# We predict $C$ for the data of [page 10](10_fixed_decoder.ipynb) with seed 0, and compare it with a run from zero.

# %%
def law_of(data):  # the A_m of the support, W_mm, the offsets and rho_perp, for the exponential loss
    X, y, z, u = data.X[0], data.y[0], data.z[0], data.u[0]  # (n, T, r), (n,), (n, q), (r,)
    gamma = y[:, None] * (X @ u)  # the scores, (n, T)
    opt, best = gamma.argmax(1), gamma.max(1)
    i, s = np.nonzero(np.arange(X.shape[1]) != opt[:, None])  # every pair
    A = np.einsum("md,me->mde", X[i, opt[i]] - X[i, s], z[i]).reshape(len(i), -1)  # A_m, as rows
    kappa = np.exp(-best[i]) * (best[i] - gamma[i, s])
    beta = svm.token_svm(data).duals[0].ravel()
    W_mm = beta @ A
    on = beta > 0  # the support, because ...
    assert (on == (A @ W_mm < 1 + 1e-6)).all()  # ... here a dual is positive exactly if the margin is 1
    log_ratio = np.log(kappa[on] / beta[on])
    o = log_ratio - beta[on] @ log_ratio / beta[on].sum()  # the offsets
    rho = A[on].T @ np.linalg.solve(A[on] @ A[on].T, o)  # rho_perp
    print(f"C = {np.linalg.norm(rho):.6f} from the duals, {on.sum()} of {on.size} pairs on the support")
    return A[on], W_mm, o, rho


def error(W, W_mm):  # the direction error
    return np.linalg.norm(W / np.linalg.norm(W) - W_mm / np.linalg.norm(W_mm))


figure2 = dict(n=20, T=10, d=300, signal=3.0, noise=0.1)
fig2 = coordinates.minimal(tokens.class_mean_tokens(0, **figure2))
_, V, _, _ = law_of(fig2.tokens)
W = dynamics.train(fig2, dynamics.NGD(0.025), 50_000, [50_000]).weights(-1)[0].ravel()
print(f"||W_t|| x error = {np.linalg.norm(W) * error(W, V):.6f} at t = 50,000")

# %% [markdown]
# All pairs are on the support, and $C$ accounts for the whole error.
#
# **Other starts, and pairs off the support.** On page 00 the run did not start at zero, and one pair was off the support. What changes?
#
# Inside the span of the support's $A_m$, the descent on $F$ forgets the start and the early pulls, so $C$ stays the same. The part of $W_t$ orthogonal to this span converges to a matrix $\omega_\infty$.
#
# <details><summary>Why does the orthogonal part converge?</summary>
#
# The pulls of support pairs lie in the span of their $A_m$, so they never change the part of $W_t$ orthogonal to this span. This part comes from the start and from the pulls of the pairs off the support. The margins of these pairs grow faster than those on the support, so their pulls fade.
#
# </details>
#
# By Pythagoras ([proof](law_of_margins.md#theorem)),
# $$\|W_t\|\times\text{error}_t\to\sqrt{C^2+\|\omega_\infty\|^2}.$$
# For the run of page 00, this product was 0.966:

# %%
def outside(W, A):  # the part of W outside the span of the rows of A
    return W - A.T @ np.linalg.lstsq(A.T, W, rcond=None)[0]


by_hand = attention.two_examples()  # page 00
A, V, predicted, rho = law_of(by_hand)
W_0 = np.array([[1.5, 1.5], [-1.0, 1.0]])
history = dynamics.train(by_hand, dynamics.NGD(0.02), 10_000, [0, 10_000], start=W_0[None])
first, last = (history.weights(k)[0].ravel() for k in (0, 1))
print("offsets / log 2: predicted", (predicted / np.log(2)).round(4), end=", ")
print("measured", ((A @ last - last @ V / (V @ V)) / np.log(2)).round(4))
for name, W in (("start", first), ("end", last)):
    print(f"{name:5}: the part outside the span is", outside(W, A).reshape(2, 2).round(3).tolist())
omega = np.linalg.norm(outside(last, A))
print(f"sqrt(C^2 + {omega:.3f}^2) = {np.hypot(np.linalg.norm(rho), omega):.3f};", end=" ")
print(f"||W_t|| x error = {np.linalg.norm(last) * error(last, V):.3f}")

# %% [markdown]
# The offsets and the product are as predicted.
#
# <details><summary>Where the 0.49 and 0.69 of page 00 come from</summary>
#
# The duals of page 00 are $\frac12,\frac18,\frac18$, and $\kappa$ is twice as large in example 2 as in example 1. So $\log(\kappa/\beta)$ is $(1,4,4)\log2$ up to an additive constant. Its mean, weighted by the duals, is $2\log2$, so the offsets are $(-1,2,2)\log2$. On page 00, column 1 of $W_t$ was $\log2/\sqrt2=0.49$ too short, and column 2 was $\log2=0.69$ too long. These lengths follow from the offsets, because along their rays the columns are $g_1(-\frac12,\frac12)$ and $g_2(0,-\frac12)$. The part outside the span is left over from the start, but the pull of the pair off the support reversed its sign.
#
# </details>
#
# Now take six samples of eight random unit tokens each:

# %%
problem = coordinates.minimal(tokens.unit_tokens([1], n=6, T=8, d=10))
data = problem.tokens
A, V, predicted, rho = law_of(data)
law = margin_law.margin_law(data, svm.token_svm(data))  # the library's
assert np.isclose(np.linalg.norm(rho), law.constant[0])

history = dynamics.train(problem, dynamics.NGD(0.5), 100_000, [0, 10_000, 50_000, 100_000])
early, half, late = (history.weights(k)[0].ravel() for k in (1, 2, 3))
offsets = A @ late - late @ V / (V @ V)  # g_m - a_t
print("predicted offsets", *(f"{value:7.3f}" for value in predicted[:6]))
print("measured offsets ", *(f"{value:7.3f}" for value in offsets[:6]))
print(f"largest error of an offset at t = 100,000: {np.abs(offsets - predicted).max():.1e}")

omega = np.linalg.norm(outside(early, A))
print(f"||omega_inf|| = {omega:.2f}, read off this run at t = 10,000")
print(f"||W_t|| x error, from C and the omega read off: {np.hypot(np.linalg.norm(rho), omega):.2f}")
print(f"||W_t|| x error, measured at t = 100,000:       {np.linalg.norm(late) * error(late, V):.2f}")
print(f"error of W_t: {error(late, V):.1e}; of W_t - W_(t/2): {error(late - half, V):.1e}")
print("in the plane: W_1000 =", path[1000].round(4), " W_1000 - W_500 =", (path[1000] - path[500]).round(4))

# %% [markdown]
# The offsets follow the law. Most of the error comes from $\omega_\infty$, for which we know no formula. (Page [43](43_map_of_the_constant.ipynb) computes it for short steps, by integrating a flow from the start of the run to its end.)
#
# <details><summary>Two iterates give the direction without this error</summary>
#
# Since $W_t-a_tW_{mm}$ converges, it hardly changes late in training. So it cancels in $W_t-W_{t/2}$, and only $(a_t-a_{t/2})W_{mm}$ remains. In the plane this remainder is $22.3607\cdot(1,2)$. The last two lines printed above show the effect.
#
# </details>
#
# ## Many runs
#
# We compare runs in [five settings](law_of_margins.md#five-settings) with the law.
#
# <details><summary>What the code checks</summary>
#
# A `LawSetting` contains the tokens, update rule, loss and start of some runs. The function `compare` trains these runs and computes $C$ and the direction error of each. A run that is too short or violates a hypothesis gets a `refusal` and is excluded. It is too short if, at the rate that the law predicts, more than $10^{-7}$ of its first deviation is left at the end ([the rules](law_of_margins.md#the-law-that-notebook-40-measures)). The function `prove` checks at one step of a run whether the steps are short and whether the level has reached $a^*$; `Local` holds the constants that this check needs. The theorem above is for starts at zero and a full support without momentum. The note has its versions for momentum, for other starts and for pairs off the support, and `prove` takes the version that fits the run. It computes in float64, without bounds on the rounding errors.
#
# </details>

# %%
every = range(seeds)
gaussian = tokens.gaussian_tokens(every, n=10, T=6, d=300)
unequal = phase_diagram.skewed(gaussian, 0.5, every)
start = dynamics.gaussian_start(coordinates.minimal(unequal), 0.01, range(1000, 1000 + seeds))
means = tokens.class_mean_tokens(every, **figure2)
antipodal = tokens.class_mean_tokens(every, **figure2, antipodal=True)
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
for one in out:
    print(f"excluded: {one.setting.name}, seed {one.run}, {one.premise}")
proved = sum(one.proof().holds for one in kept)
print(f"{len(kept)} of {len(compared)} runs are compared with the law at t = {steps:,}")
print(f"in {proved} of these {len(kept)} runs the limit is proved: the last step meets the hypotheses of a theorem")

# The same test in the plane, whose margins are w_1 and w_2 / 2.
plane = attention.token_set(
    [[[1, 0], [0, 0]], [[0, 0.5], [0, 0]]], [1.0, 1.0], z=[[1.0], [1.0]], u=[1.0, 2.0]
)
plane_law = margin_law.margin_law(plane, svm.token_svm(plane))
local = margin_theorem.Local(plane, plane_law, plane.opt, "exponential")
for t in (50, 100):
    proof = margin_theorem.prove(local, dynamics.NGD(0.1), (path[t] * [1, 0.5])[:, None])
    print(f"plane, t = {t:3}: level a_t = {proof.level:.2f}, a* = {proof.A:.2f}, far enough: {proof.holds}")

# %%
about_offsets = f"Bars: unit tokens, n=6, T=8, d=10, NGD at t = 100,000. Text: {len(kept)} runs of five settings at t = {steps:,}"
figure_offsets = margin_law_figures.offsets(predicted, offsets, kept)
plots.caption(figure_offsets, about_offsets + "; synthetic, float64")

# %% [markdown]
# If the law holds, the bars (for the unit tokens above) end at the predicted ticks. So if we know the $\kappa_m$, we can read the duals off the margins, up to a common factor: $\beta_m$ is proportional to $\kappa_me^{-g_m}$.

# %%
alone = sum(one.duals_alone for one in kept)
about_diagonal = f"Five settings, {seeds} seeds each, t = {steps:,}; synthetic, float64; {len(out)} runs excluded as too short; filled: {alone} runs in which C is the whole error"
figure_diagonal = plots.caption(margin_law_figures.diagonal(kept), about_diagonal)
figure_diagonal

# %% [markdown]
# If the law holds, every run lies on the diagonal ([at desk scale, all 96 do](../figures/desk/law_diagonal.png); four more runs were too short). A mark is open if $\omega_\infty$ contributes to the error.
#
# <details><summary>The claims in the next table</summary>
#
# Each row of the folded table is a [claim](words.md): a measured number beside a bound that we chose before the runs ([explanations](law_of_margins.md#claims)). No claim fails.
#
# </details>

# %%
table = claims.Table(runs.all_claims(kept))
table

# %% [markdown]
# ## One line for all rules
#
# If $\omega_\infty=0$, the error late in training depends on the rule only through $\|W_t\|$. So on page 10's data (Figure 2), the errors of all rules, plotted against $\|W_t\|$, should fall on one line. (Here even both losses share it: all opt tokens (those with the highest score of their sample) have one score, and all other tokens the score 0, so all $\kappa_m$ are equal under either loss, and $C$ does not depend on the loss.) We also run two slow rules with growing steps.
#
# <details><summary>Which rules are slow, and how fast do their steps grow?</summary>
#
# Gradient descent (GD) with a constant step size is slow, because the gradient shrinks like $e^{-a_t}$. Polyak's rule with a constant *cap* (the largest factor by which it may multiply the gradient) is slow, too. Both rules only reach $\lVert W_t\rVert\approx10$, where $\rho_t$ is still too short and the law is not yet valid. So we also run GD with a growing step size, and Polyak's rule with a growing cap.
#
# The step size of GD grows like $e^t$, and the cap of Polyak's rule grows like $e^{0.8t}$. Why these two rates? If the step size of GD grows like $e^t$, then $a_t$ eventually rises by 1 per step, because only then is $e^{t}e^{-a_t}$ constant. Without a cap, each step of Polyak's rule eventually raises $a_t$ by $\frac12$, so the factor by which the rule multiplies the gradient grows like $e^{a_t}$, that is, like $e^{t/2}$. A cap that grows faster than this factor soon has no effect, and $e^{0.8t}$ is one example of such a cap. The code stores the logarithms of these numbers, because $e^t$ overflows.
#
# </details>

# %%
target = svm.token_svm(fig2.tokens)
fig2_law = margin_law.margin_law(fig2.tokens, target)
collapsed, short = law_steps.figure2_runs(fig2, target.W, growing_steps)
about_collapse = "Figure 2's problem, n=20, T=10, d=300; seed 0; normalised GD with and without momentum, GD and Polyak's rule, logistic and exponential loss; crosses: t = 100,000"
figure_collapse = plots.caption(
    margin_law_figures.collapse(collapsed | short, fig2_law), about_collapse
)
figure_collapse

# %% [markdown]
# Each curve shows one rule with one loss. The curves reach the dotted line near $\|W_t\|=100$, but the slow rules end at the crosses.
#
# **Can we tell before training whether the law already holds at one degree?** Page [41](41_how_margins_settle.ipynb) shows that the slowest deviation of the margins from their offsets shrinks like $e^{-\lambda_1a_t}$, where the number $\lambda_1$ follows from the duals and the features. If $W_t$ has the length $C/\sin1°$, its level $a_t$ is about this length divided by $\lVert W_{mm}\rVert$. So before training we compute $\lambda_1a_t$ there. The law holds if this number is well above 1.

# %%
problems = {"in the plane": (plane_law, svm.token_svm(plane)), "Figure 2": (fig2_law, target)}
for name, (its_law, its_svm) in problems.items():
    length = its_law.constant[0] / np.sin(one_degree)
    died_out = its_law.slowest[0] * length / its_svm.norm[0]
    print(f"{name:12} predicted length {length:.1f}, lambda_1 times the level {died_out:.2f}")
some = np.arange(0, 3001, 20)
begins = dynamics.train(fig2, dynamics.NGD(0.025), some[-1], some, targets={"W_mm": target.W})
close = begins.direction_error["W_mm"][0, 1:] < 2 * np.sin(one_degree / 2)
print(f"Figure 2: within one degree at the length {begins.norm[0, 1 + close.argmax()]:.1f}")

# %% [markdown]
# In the plane the law holds long before one degree, and the number of steps was predicted well. On the data of Figure 2 it does not hold yet: $\lambda_1a_t$ is below 1, and the predicted length is too large by almost a third, because the orthogonal part of $W_t$ is still shorter than $C$. (The figure shows that the curves reach the dotted line only near $\lVert W_t\rVert=100$.)
#
# <details><summary>The claims in the next table</summary>
#
# The claim `law.collapse` is about the curves on the line, `law.unseen` is about the crosses, and `law.settling` belongs to page 41. No claim fails.
#
# </details>

# %% tags=["nbval-check-output"]
collapse_table = claims.Table(law_steps.figure2_claims(collapsed, short, "W_mm", fig2_law))
collapse_table

# %% [markdown]
# ## What we saw
#
# **Answer.** Late in training the direction error is a constant divided by $\|W_t\|$. If $\omega_\infty=0$ and we know which tokens the run selects, we can compute this constant before training, and hence the number of steps to one degree, if the law already holds there; $\lambda_1$ times the level says before training whether it does. If $\omega_\infty$ is not zero, we read it off the run. Under NGD, $\|W_t\|$ grows like $t$. So unless the constant is zero, the error falls like $1/t$, which is faster than the bound $t^{-1/2}$.
#
# <details><summary>Who found this first?</summary>
#
# For linear classifiers, the limit $\rho_\perp$ is due to Soudry et al. (arXiv 1710.10345).
#
# </details>
#
# ## Change this
#
# **The loss.** *Prediction:* the logistic loss changes $\kappa$ and $C$, but the error divided by its predicted value stays 1.

# %%
loss = "logistic"  # or "exponential"
other = runs.compare(runs.LawSetting(loss, data, dynamics.NGD(0.5), loss), 100_000)[0]
print(f"C: {other.law.constant[0]:.4f} with the {loss} loss, {law.constant[0]:.4f} with the exponential")
print(f"error divided by prediction: {other.measured.error[-1] / other.predicted:.10f}")

# %% [markdown]
# **The start.** *Prediction:* a Gaussian $W_0$ changes $\omega_\infty$ and the error, but not $C$.

# %%
for std in (0.0, 2.0):
    W_0 = dynamics.gaussian_start(problem, std, [7])
    begun = runs.LawSetting("start", problem.tokens, dynamics.NGD(0.5), start=W_0)
    one = runs.compare(begun, 100_000)[0]
    print(f"std {std:g}: C = {one.law.constant[0]:.4f}, ||omega_inf|| = {one.measured.outside:.4f}, "
          f"error divided by prediction {one.measured.error[-1] / one.predicted:.10f}")  # fmt: skip

# %% [markdown]
# <details><summary>Answer</summary>
#
# Both predictions hold. In the run from zero, only the pairs off the support contribute to $\omega_\infty$.
#
# </details>
#
# **To prove.** Show that $C=0$ if and only if all $\kappa_m/\beta_m$ on the support are equal. (The note has the solution.)

# %% tags=["set-up"]
# Set-up, no need to read.
proved_early, everywhere = (
    sum(one.proof(*how).holds for one in kept) for how in ((True,), (True, True))
)
# One example with a trained head (notebook 42): its claims belong to the record of the diagonal.
start_zero = tokens.gaussian_tokens(every, n=6, T=4, d=200)
together = joint_law.from_start(start_zero, dynamics.NGD(0.1), [100_000, 200_000])
joint_claims = joint_law.start_claims(together)
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
numbers |= dict(proved=proved, proved_early=proved_early, proved_everywhere=everywhere)
numbers |= dict(elsewhere=int(elsewhere), worst=size("law.constant"))
for one in out:
    named = f"refused {one.setting.name}, seed {one.run}, {one.premise}".lower()
    numbers["".join(c if c.isalnum() else "_" for c in named)] = one.amount
numbers["worst_residual"] = size("law.residual")
run.keep(figure_diagonal, "law_diagonal", about_diagonal, [*table, *joint_claims], numbers)
numbers = {"constant": fig2_law.constant[0], "settling": collapse_table[-1].measured}
of = (figure_collapse, "law_collapse", about_collapse, collapse_table, numbers)
run.keep(*of, setting={"seeds": [0]})
