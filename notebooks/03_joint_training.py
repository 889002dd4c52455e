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
# # Training head and attention together
#
# **Paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738), **Figure 3**.
#
# The layer $f_i = y_i\, u^\top X_i^\top \mathrm{softmax}(X_i W z_i)$ is trained in $u$ **and** $W$ from zero,
# with the loss $L = \frac1n\sum_i e^{-f_i}$ and each of the two normalised by itself (Eq. 13):
#
# $$W_{t+1} = W_t - \frac{\eta}{(t+1)^{p}}\frac{\nabla_W L}{\|\nabla_W L\|}, \qquad
# u_{t+1} = u_t - \frac{\eta}{(t+1)^{p}}\frac{\nabla_u L}{\|\nabla_u L\|}, \qquad p = 2/3.$$
#
# The claims: $L \le O(e^{-c\,t^{1/3}})$ (Theorem 2), $\|W_t\|$ and $\|u_t\|$ grow like $t^{1/3}$ (Lemma 12,
# Theorem 3), $W_t$ turns towards the token SVM's $W_{mm}$ at least at rate $1/\log t$ (Theorem 3), and $u_t$
# reaches a constant factor of the largest margin $\gamma^* = 1/\|u_{mm}\|$ (Theorem 4), where
#
# $$u_{mm} = \arg\min_u \|u\| \quad\text{s.t.}\quad y_i\, u^\top x_{i,opt} \ge 1 \quad \forall i.$$
#
# Figure 3 runs Eq. 13 without the factor $(t+1)^{-2/3}$ ("NGD"); the variant that the theorems speak of is
# "NGD, decay".

# %% tags=["parameters"]
scale = "demo"
seeds = 20
n, T, d = 8, 2, 400
signal = 3.0
opt_first = 3
steps = 10_000
gd_step = 1.0
ngd_step = 0.3
exponent = 0.6666666666666666  # 2/3

# %%
from dataclasses import replace

import numpy as np

from lib import dynamics, svm
from lib.attention import coordinates, tokens
from lib.companion import claims, plots, record
from lib.dynamics import rules
from lib.papers.a import figure3, fixed_head, joint_training

run = record.start("03_joint_training", "A", globals())
plots.set_style()

# %% [markdown]
# ## Data
#
# Data model (DM): in each sample one opt token $\sim N(0, \alpha^2\sigma^2 I)$ with $\alpha$ = `signal` and
# $\sigma^2 d = 1$, and one additional token $\sim N(0, \sigma^2 I)$; labels $\mathrm{sign}(u_*^\top
# x_{i,opt})$. The query is the first token; in `opt_first` of the samples that is the opt token. Sizes and
# step sizes did not survive in the text at hand: **these are our settings**.

# %%
drawn = tokens.two_token_gaussian(range(seeds), n, T, d, signal)
is_opt = np.arange(n)[:, None] < opt_first  # (n, 1)
problem = coordinates.minimal(replace(drawn, z=np.where(is_opt, drawn.X[:, :, -1], drawn.z)))
data = problem.tokens
attention_svm, head_svm = svm.token_svm(data), svm.head_svm(data)
for name, found in (("W_mm", attention_svm), ("u_mm", head_svm)):
    print(f"||{name}|| = {np.median(found.norm):.3f} (median of {seeds} seeds)")

# %% [markdown]
# ## Training
#
# At $t = 0$ the head is zero, all scores are equal and $\nabla_W L = 0$: Eq. 13 takes $0/0 = 0$, so that $u$
# moves first. "NGD-joint" normalises the gradient of $(u, W)$ as one vector (Eq. 2); Polyak uses $L^* = 0$
# and no cap.

# %%
update_rules = {
    "GD": rules.gd(gd_step),
    "NGD": rules.ngd(ngd_step),
    "NGD-joint": rules.ngd(ngd_step, joint=True),
    "Polyak": rules.polyak(),
    "NGD, decay": rules.ngd(ngd_step, decay=exponent),
}
compared = list(figure3.REFERENCE)
recorded = np.unique([*dynamics.log_spaced(steps, 150), *compared])
histories = dynamics.train(
    problem, update_rules, steps, recorded, targets={"W_mm": attention_svm.W},
    head="joint", head_targets={"u_mm": head_svm.value},
)  # fmt: skip
decayed, ngd, joint = (histories[name] for name in ("NGD, decay", "NGD", "NGD-joint"))

# %% [markdown]
# ## Claims
#
# Each row is the worst over all seeds (and samples, and iterations). Fits are over the last decade of $t$.

# %%
last_decade = steps / 10
table = claims.Table([
    fixed_head.svm_certificate(attention_svm),
    fixed_head.svm_certificate(head_svm, "u_mm"),
    *joint_training.growth(decayed, "NGD, decay", 1 - exponent, last_decade),
    *joint_training.growth(ngd, "NGD", 1, last_decade),
    *joint_training.theorem2(decayed, ngd_step, head_svm, last_decade),
    *joint_training.theorem3(decayed, "W_mm", last_decade),
    *joint_training.theorem4(decayed, data, head_svm, since=1),
    joint_training.head_direction(decayed, "u_mm", last_decade),
    joint_training.lemma12(decayed, ngd_step),
    *joint_training.lemma13(decayed, data, last_decade),
])  # fmt: skip
table

# %% [markdown]
# Section 5.1 reads off Figure 3 that all rules are faster than GD, that Polyak is the fastest, that the loss
# falls at about the same rate for NGD and NGD-joint, and that NGD is ahead in the other metrics. In our
# setting it is far ahead in $W$: one normalisation for both (NGD-joint, Polyak) leaves $W$ almost nothing
# once $\|\nabla_W L\| \ll \|\nabla_u L\|$, so that $\|W_t\|$ grows no faster than $\log t$ while $\|u_t\|$
# grows like $t$.

# %%
ratio, section = np.median(joint.log_gap[:, -1] / ngd.log_gap[:, -1]), "paper A, Section 5.1"
drawn_there = {name: history for name, history in histories.items() if name != "NGD, decay"}
compared_rules = claims.Table([
    fixed_head.fastest_at_first(drawn_there, "Polyak", 0.01),
    *figure3.slower_than_others(histories, "GD", ("NGD", "NGD-joint", "Polyak")),
    claims.close("same.loss", "log L of NGD-joint over that of NGD, last record", section, ratio, 1, 0.05),
    *figure3.ahead(ngd, joint, ("NGD", "NGD-joint"), "W_mm", "u_mm", since=10),
])  # fmt: skip
compared_rules

# %% [markdown]
# The same problem was computed once more, by other code and for one other draw of the data; the median over
# seeds agrees with that reference within a factor 1.5 in every quantity and at every iteration compared.

# %%
measured = {t: figure3.measured(decayed, "W_mm", "u_mm", data, head_svm, t) for t in compared}
reference = claims.Table(figure3.against_reference(measured))
reference

# %% tags=["nbval-check-output"]
for name, part in (("theory", table), ("Figure 3", compared_rules), ("reference", reference)):
    print(f"{name}: {part.summary()}")

# %% [markdown]
# ## Figure
#
# Lines are medians over seeds, bands run from the smallest to the largest seed. Alignment is the cosine; its
# axis is logarithmic in the distance from 1.

# %%
series = {
    "Train loss, $\\log_{10} L$": lambda h: h.log_gap / np.log(10),
    "Norm $\\|W_t\\|$": lambda h: np.where(h.norm > 0, h.norm, np.nan),
    "Norm $\\|u_t\\|$": lambda h: h.head_norm,
    "Mean softmax weight of opt token": lambda h: h.opt_score,
    "Alignment with $W_{mm}$": lambda h: h.direction_error["W_mm"] ** 2 / 2,
    "Alignment with $u_{mm}$": lambda h: h.head_direction_error["u_mm"] ** 2 / 2,
}
figure, axes = plots.panels(2, 3)
for axis, (title, values) in zip(axes, series.items(), strict=True):
    for name, history in histories.items():
        plots.band(axis, recorded[1:], values(history)[:, 1:], name)
    axis.set(title=title, xscale="log", xlim=(1, steps))
axes[0].set_ylim(-30, 1)
for axis in axes[1:3]:
    axis.set(yscale="log", ylim=(0.1, 1e4))
    plots.power_law(
        axis, (10, steps), 1 / 3, 3 * ngd_step * 10 ** (1 / 3), r"$3\eta t^{1/3}$ (Lemma 12)"
    )
for axis in axes[4:]:
    plots.toward_one(axis, 1e-8)
for axis in axes[3:]:
    axis.set_xlabel("iteration $t$")
plots.legend(figure, axes[1])

# %%
about = f"Figure 3: (DM), from zero; our setting, n={n}, T={T}, d={d}; synthetic, {seeds} seeds, float64"
plots.caption(figure, about)
numbers = {
    f"{name.replace(' ', '_').replace('|', '')}_at_{t}": record.Number(np.median(value), 1e-5)
    for t, values in measured.items() for name, value in values.items()
}  # fmt: skip
numbers["norm_of_W_mm"] = record.Number(np.median(attention_svm.norm), 1e-6)
numbers["norm_of_u_mm"] = record.Number(np.median(head_svm.norm), 1e-6)
rows = [
    {
        "name": "two_token_gaussian",
        "source": "synthetic",
        "revision": f"seeds 0-{seeds - 1}",
        "rows": n,
    }
]
run.save(
    figure,
    "fastrates_fig3",
    "Figure 3",
    about,
    [*table, *compared_rules, *reference],
    numbers,
    rows,
)
figure
