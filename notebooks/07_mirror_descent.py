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
# # Mirror descent on attention chooses the geometry of the margin
#
# **Paper C** (*Optimizing Attention with Mirror Descent*, arXiv 2410.14581), **Section 5, synthetic data**.
#
# $\ell_p$-AttGD is mirror descent with the potential $\psi(W) = \frac1p\|W\|_{p,p}^p$: entry by entry
#
# $$|W^+|^{p-1}\mathrm{sgn}(W^+) = |W|^{p-1}\mathrm{sgn}(W) - \eta\, g, \qquad g = \nabla L(W) / \|\nabla L(W)\|_{q,q},
# \quad \tfrac1p + \tfrac1q = 1,$$
#
# on one attention layer $f_i = v^\top X_i^\top \mathrm{softmax}(X_i W z_i)$ with the logistic loss. The claim: $W$ grows
# without bound and turns towards the max-margin selection of its own geometry,
#
# $$W_{mm} = \arg\min_W \|W\|_{p,p} \quad\text{s.t.}\quad (x_{i,\alpha_i} - x_{i,t})^\top W z_i \ge 1 \quad
# \forall i,\ t \ne \alpha_i ,$$
#
# $\alpha_i$ being the token that sample $i$ ends up selecting. How near is measured by the directional Bregman divergence
# $D_\psi(W_{mm}/\|W_{mm}\|_{p,p},\ W/\|W\|_{p,p})$.

# %% tags=["parameters"]
scale = "demo"
seeds = 20
n, T, d = 6, 8, 10
exponents = [1.75, 2, 3]
iterations = [1500, 2000, 20000]
step_size = 0.1
path_seed = 1
first = 100

# %%
import numpy as np

from lib import mirror, svm
from lib.attention import tokens
from lib.companion import claims, plots, record
from lib.papers.c import cones, section5

run = record.start("07_mirror_descent", "C", globals())
plots.set_style()
steps = dict(zip(exponents, iterations, strict=True))
update_rules = {p: mirror.MirrorRule(p, step_size) for p in exponents}

# %% [markdown]
# ## Which SVM does each exponent find?
#
# Tokens and queries uniform on the unit sphere, labels random, head $v$ a fixed unit vector, $W_0$ with standard normal
# entries: the paper's setting with our own seeds, which also seed $W_0$. All seeds and exponents are trained in one call.

# %%
data = tokens.unit_tokens(range(seeds), n, T, d)
start = mirror.gaussian_start(data, range(seeds))
histories = mirror.train(data, update_rules, steps, start)
ends = section5.end_points(data, histories)
same = section5.divergences(histories, ends)
own = section5.divergences(histories, ends, own=True)

# %%
chosen = {p: mirror.selected_tokens(data, histories[p].W[:, -1]) for p in exponents}
settled = {p: cones.locally_optimal(cones.selection(data, chosen[p], p)).sum() for p in exponents}
table = claims.Table(section5.bregman_claims(same, histories))
table

# %% tags=["nbval-check-output"]
print("last divergence, mean over seeds; columns: SVM with q =", *exponents)
for kind, found in (("same tokens for all q", same), ("tokens of training with q", own)):
    print(f"{kind}:")
    for p in exponents:
        print(f"  p = {p:g}:", "  ".join(f"{section5.table(found)[p, q]:.4f}" for q in exponents))
print(
    "own SVM, median:",
    "  ".join(f"p = {p:g}: {np.median(same[p, p][:, -1]):.4f}" for p in exponents),
)
print(
    "runs whose tokens are locally optimal:",
    "  ".join(f"p = {p:g}: {settled[p]} of {seeds}" for p in exponents),
)
print(table.summary())

# %% [markdown]
# A mean is mostly the few runs that settled late and are still turning: with 100 seeds (desk scale) three of them nearly
# double the mean of $p = 2$ and put it a factor 2.0 above that of the reference, which had 8 seeds; that claim does not
# hold there. Runs whose tokens are not locally optimal have not settled at all.
#
# Every run of every exponent ends nearest to the SVM of its own exponent, as long as all SVMs select the same tokens. The
# paper compared with SVMs of the tokens that training *with the other exponent* had selected; then different tokens add
# their own, much larger distance off the diagonal (lower row).


# %%
def draw(found, axes, label):
    for axis, p in zip(axes, exponents, strict=True):
        for q in exponents:
            time = histories[p].iterations[1:]
            plots.band(
                axis, time, found[p, q][:, 1:], f"q = {q:g}", plots.COLOURS.get(f"p = {q:g}"), 0.8
            )
        axis.set(xscale="log", yscale="log", ylim=(1e-4, 3), title=f"training with p = {p:g}")
    axes[0].set_ylabel(f"divergence\n{label}")


about = f"paper C's setting, our seeds: n={n}, T={T}, d={d}; synthetic, {seeds} seeds, float64; bands hold 80 %"
figure, axes = plots.panels(2, 3, height=2.0)
draw(same, axes[:3], "same tokens for all q")
draw(own, axes[3:], "tokens of training with q")
for axis in axes[3:]:
    axis.set_xlabel("iteration $t$")
plots.legend(figure, axes[0])
plots.caption(figure, about)
rows = [
    {"name": "unit_tokens", "source": "synthetic", "revision": f"seeds 0-{seeds - 1}", "rows": n}
]
numbers = {f"p{p:g}_q{q:g}".replace(".", "_"): record.Number(value, 1e-6)
           for (p, q), value in section5.table(same).items()}  # fmt: skip
run.save(
    figure,
    "mirror_bregman",
    "Section 5, directional Bregman divergence",
    about,
    table,
    numbers,
    rows,
)
figure

# %% [markdown]
# ## The paths
#
# One data set, $W_0 = 0$, two entries of $W$, as in the paper; broken lines: the directions of the three SVMs. The bend at
# the end of the path for $p = 3$ is no error: the tokens that this run has selected for 20,000 iterations are not locally
# optimal, and it is about to leave them for others.

# %%
single = tokens.unit_tokens(path_seed, n, T, d)
paths = mirror.train(single, update_rules, steps)
path_ends = section5.end_points(single, paths)
path_table = claims.Table(section5.path_claims(paths, path_ends))
path_table

# %% tags=["nbval-check-output"]
for p in exponents:
    chosen = mirror.selected_tokens(single, paths[p].W[:, -1])
    stays = cones.locally_optimal(cones.selection(single, chosen, p))[0]
    print(f"p = {p:g} selects the tokens", *chosen[0], f"locally optimal: {stays}")
print(path_table.summary())

# %%
figure, axes = plots.panels(1, 3, height=2.4)
for axis, p in zip(axes, exponents, strict=True):
    W = paths[p].W[0]
    axis.plot(
        W[:, 0, 1],
        W[:, 2, 3],
        ".-",
        color=plots.COLOURS.get(f"p = {p:g}"),
        markersize=3,
        label="path",
    )
    for q, dashes in zip(exponents, ((4, 2), (4, 2, 1, 2), (1, 1)), strict=True):
        ray = path_ends[p][q].W[0][[0, 2], [1, 3]]
        ray *= 1.1 * np.hypot(W[-1, 0, 1], W[-1, 2, 3]) / np.hypot(*ray)
        axis.plot(
            [0, ray[0]],
            [0, ray[1]],
            dashes=dashes,
            color=plots.COLOURS.get(f"p = {q:g}"),
            label=f"SVM, q = {q:g}",
        )
    axis.set(title=f"training with p = {p:g}", xlabel="$W_{12}$")
    axis.legend(fontsize="x-small")
axes[0].set_ylabel("$W_{34}$")
about = f"paper C's setting, our seed {path_seed}: n={n}, T={T}, d={d}, $W_0 = 0$, up to {max(iterations):,} iterations; synthetic, float64"
plots.caption(figure, about)
numbers = {f"divergence_{p:g}".replace(".", "_"): record.Number(paths[p].divergence(path_ends[p][p].W)[0, -1], 1e-7)
           for p in exponents}  # fmt: skip
rows = [{"name": "unit_tokens", "source": "synthetic", "revision": f"seed {path_seed}", "rows": n}]
run.save(figure, "mirror_path", "Section 5, paths", about, path_table, numbers, rows)
figure

# %% [markdown]
# ## Head and attention together
#
# $\ell_p$-JointGD moves $W$ and $v$ by the same rule, each normalised by its own dual norm, both from zero, on the paper's
# fixed instance. $W$ must turn to the $\ell_p$ token SVM and $v$ to the $\ell_p$ SVM of the selected tokens.

# %%
joint_data = section5.joint_instance()
recorded = np.union1d(np.arange(first + 1), np.geomspace(first, max(iterations), 80).astype(int))
joint = mirror.train(joint_data, update_rules, steps, head="joint", record=recorded)
joint_ends = section5.end_points(joint_data, joint)
heads = {
    p: svm.head_svm(joint_data, mirror.selected_tokens(joint_data, joint[p].W[:, -1]), p)
    for p in joint
}
joint_table = claims.Table(section5.joint_claims(joint_data, joint, joint_ends, heads))
joint_table

# %% tags=["nbval-check-output"]
for p in exponents:
    print(
        f"p = {p:g} selects the tokens", *mirror.selected_tokens(joint_data, joint[p].W[:, -1])[0]
    )
print(joint_table.summary())

# %%
figure, axes = plots.panels(2, 2, height=2.2)
for p, history in joint.items():
    colour, unit = plots.COLOURS.get(f"p = {p:g}"), history.norm[0, -1]
    W, v = history.W[0, :, 0] / unit, history.v[0] / history.head_norm[0, -1]
    target, head = joint_ends[p][p], heads[p]
    for axis, path, end in (
        (axes[0], W, target.W[0, 0] / target.norm),
        (axes[1], v, head.value[0] / head.norm),
    ):
        axis.plot(*path.T, color=colour, label=f"p = {p:g}")
        axis.plot(*end, "o", color=colour, markerfacecolor="none")
    chosen = mirror.selected_tokens(joint_data, history.W[:, -1])
    weight = section5.selected_weight(joint_data, history.W[:, : first + 1], chosen)[0].mean(-1)
    axes[2].plot(weight, color=colour)
    axes[3].plot(
        section5.logistic_probability(joint_data, history)[0, : first + 1].mean(-1), color=colour
    )
axes[0].set(title="$W$ over its last norm; o: $\\ell_p$-SVM", xlabel="$W_{11}$", ylabel="$W_{12}$")
axes[1].set(title="$v$ over its last norm; o: $\\ell_p$-SVM", xlabel="$v_1$", ylabel="$v_2$")
axes[2].set(title="softmax weight of the selected token", xlabel="iteration $t$", ylim=(0.2, 1.05))
axes[3].set(title="probability of the label", xlabel="iteration $t$", ylim=(0.4, 1.05))
plots.legend(figure, axes[0])

# %%
about = "paper C's fixed instance, n=2, T=3, d=2, both from zero; lower panels: mean over the two samples; float64"
plots.caption(figure, about)
numbers = {f"divergence_{p:g}".replace(".", "_"): record.Number(joint[p].divergence(joint_ends[p][p].W)[0, -1], 1e-8)
           for p in exponents}  # fmt: skip
rows = [
    {"name": "joint_instance", "source": "synthetic", "revision": "paper C, Section 5", "rows": 2}
]
run.save(figure, "mirror_joint", "Section 5, joint training", about, joint_table, numbers, rows)
figure
