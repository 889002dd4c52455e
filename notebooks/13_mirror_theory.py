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
# # Mirror descent on attention: rates, basins, parents, and every lemma
#
# **Paper C** (*Optimizing Attention with Mirror Descent*, arXiv 2410.14581), **Lemmas 4 and 12-30**, and what it
# generalises (*Transformers as Support Vector Machines*, arXiv 2308.16898).
#
# Notebook [07](07_mirror_descent.ipynb) shows where $\ell_p$-AttGD ends. Here: how fast, from how far away, what happens
# to keys and queries and to the regularised problem, and every numbered lemma beside the number measured for it.
# $D$ is the directional Bregman divergence $D_\psi(W_{mm}/\|W_{mm}\|_{p,p}, W/\|W\|_{p,p})$.

# %% tags=["parameters"]
scale = "demo"
seeds = 8
n, T, d = 6, 8, 10
find_steps = 4000
rate_exponents = [1.5, 1.75, 2, 2.5, 3]
rate_steps = 40000
rate_step = 0.03
exponents = [1.75, 2, 3]
widths = [1e-5, 0.001, 0.01, 0.1, 0.2, 0.4, 0.7, 1.0]
multiples = [1, 10, 100]
local_steps = 1500
local_draws = 3
pair_steps = 2000
rank_dimensions = [2, 3, 5, 8, 12]
rank_shapes = [[5, 5], [5, 10], [10, 5]]
rank_seeds = 3
several_dimensions = [4, 6, 8, 10]
several_seeds = 30
path_seeds = 3
path_multiples = [1, 2, 5, 10, 20, 50, 100]
ledger_exponents = [1.3, 1.75, 2, 3]
ledger_steps = 4000
draws = 300

# %%
import numpy as np

from lib.attention import tokens
from lib.companion import claims, ledger, plots, record
from lib.papers.c import cones, ledger_rows, predecessor, rates
from lib.papers.c.statements import STATEMENTS

run = record.start("13_mirror_theory", "C", globals())
plots.set_style()

# %% [markdown]
# ## Locally optimal selections
#
# Paper C's data with our seeds. For every exponent, training from random starts finds selections of tokens; those that
# are locally optimal (every selected token scores above its support tokens) are what the theory speaks of.

# %%
each = range(seeds)
data = tokens.unit_tokens(each, n, T, d)
every_exponent = sorted({*rate_exponents, *exponents, *ledger_exponents})
found = {p: rates.found_selections(data, each, p, find_steps) for p in every_exponent}
print(
    "locally optimal selections:", {p: len(of.direction) for p, of in found.items()}, f"of {seeds}"
)

# %% [markdown]
# ## Rates
#
# From the edge of the cone $D = 0.001$ with $\|W_0\| = 100\|W_{mm}\|$; from wider cones nearer to zero some runs leave. Lemma 29 bounds $D$ by $\log r/r$, $(\log r)^2/r$ and
# $r^{1-p}$ for $p > 2$, $p = 2$ and $p < 2$, with $r = \|W(k)\|_{p,p}$. Normalised steps: they follow the same path and
# leave $r \sim \log k$ behind, which plain steps never do.

# %%
histories, divergences, rate_claims = {}, {}, []
for p in rate_exponents:
    histories[p], _ = rates.from_cone(found[p], rates.Edge(0.001, 100), rate_steps, rate_step)
    divergences[p] = histories[p].divergence(found[p].solution.W)
    rate_claims += rates.lemma29(histories[p], divergences[p])
rate_table = claims.Table(rate_claims)
rate_table

# %% tags=["nbval-check-output"]
slopes = {p: np.median(rates.slopes(histories[p], divergences[p])) for p in rate_exponents}
print(rate_table.summary())
for p, slope in slopes.items():
    print(
        f"p = {p:g}: D falls like r^{slope:.1f}; Lemma 29 promises r^{rates.theory(p)[0]:g} up to logarithms"
    )

# %% [markdown]
# $D$ falls with twice the exponent that Lemma 29 promises, as $r^{-2\min(p-1, 1)}$: the error of the direction falls at the
# promised rate, and $D$ is quadratic in it.

# %%
figure, axes = plots.panels(1, len(rate_exponents), height=2.4)
for axis, p in zip(axes, rate_exponents, strict=True):
    size, values = histories[p].norm[:, 1:], divergences[p][:, 1:]
    axis.plot(size.T, values.T, color=plots.COLOURS["NGD"], alpha=0.4, linewidth=0.8)
    a, b, text = rates.theory(p)
    r = np.geomspace(size.min(), size.max(), 50)
    bound = r**a * np.log(r) ** b
    axis.plot(r, bound * np.median(values[:, 0]) / bound[0], "--", color="0.3", label=text)
    axis.set(
        xscale="log",
        yscale="log",
        title=f"p = {p:g}: $r^{{{slopes[p]:.2f}}}$",
        xlabel=r"$r = \|W\|_{p,p}$",
    )
    axis.xaxis.set_minor_formatter("")
    axis.legend(fontsize="x-small", loc="lower left")
axes[0].set_ylabel("divergence $D$")
about = f"Lemma 29 (dashed, its constant fitted to the start), a line per seed; our starts, paper C's data: n={n}, T={T}, d={d}, ≤ {seeds} seeds"
plots.caption(figure, about)
source = [
    {"name": "unit_tokens", "source": "synthetic", "revision": f"seeds 0-{seeds - 1}", "rows": n}
]
numbers = {
    f"slope_{p:g}".replace(".", "_"): record.Number(slope, 0.05) for p, slope in slopes.items()
}
run.save(figure, "mirror_rates", "Lemma 29, rates", about, rate_table, numbers, source)
figure

# %% [markdown]
# ## How wide are the basins?
#
# Starts on the edge of cones of growing divergence around each selection, near to and far from the origin. Theory promises
# convergence for thin cones ($\mu_0$ is printed below) and large $\|W_0\|$, so the claim is about the largest; nearer to
# the origin some runs leave even from $D = 10^{-5}$, and far out most stay from cones that are much wider than promised.

# %%
kept = {
    (p, m): rates.captured(found[p], widths, m, local_steps, local_draws)
    for p in exponents
    for m in multiples
}
far = {p: kept[p, multiples[-1]] for p in exponents}
local_table = claims.Table(rates.local_claims(far, widths, multiples[-1]))
guaranteed = {p: np.median(cones.radius(found[p])) for p in exponents}
local_table

# %% tags=["nbval-check-output"]
print(local_table.summary())
for p in exponents:
    print(f"p = {p:g}: guaranteed mu_0 {guaranteed[p]:.1e};",
          f"90 % stay up to D = {max(mu for mu, share in zip(widths, kept[p, multiples[-1]]) if share >= 0.9):g}")  # fmt: skip

# %%
figure, axes = plots.panels(1, len(multiples), height=2.3)
for axis, m in zip(axes, multiples, strict=True):
    for p in exponents:
        axis.plot(
            widths,
            kept[p, m],
            "o-",
            color=plots.COLOURS.get(f"p = {p:g}"),
            label=f"p = {p:g}",
            markersize=3.5,
        )
    axis.set(
        xscale="log",
        ylim=(0, 1.05),
        xlabel="divergence $D$ of the start",
        title=f"$\\|W_0\\| = {m}\\,\\|W_{{mm}}\\|$",
    )
axes[0].set_ylabel("share that ends at\nthe cone's selection")
plots.legend(figure, axes[0])
about = f"locally optimal selections, {local_draws} starts each; our starts, paper C's data: n={n}, T={T}, d={d}, ≤ {seeds} seeds, float64"
plots.caption(figure, about)
numbers = {
    f"kept_{p:g}_{m}".replace(".", "_"): record.Number(kept[p, m][-1], 0.05) for p, m in kept
}
run.save(figure, "mirror_local", "local convergence", about, local_table, numbers, source)
figure

# %% [markdown]
# ## Parents
#
# Training $(K, Q)$ instead of $W = KQ^\top$ leads to the SVM of least *nuclear* norm, of low rank; a head for which mixtures
# of tokens are best selects several; and the regularisation path $\arg\min_{\|W\|_{p,p}\le R} L$ goes to the *globally*
# optimal selection, where gradient descent from zero may stop at a local one.

# %%
recorded = np.unique(np.geomspace(1, pair_steps, 40).astype(int))
pairs = predecessor.keys_against_weights(data, each, recorded, 0.1)
by_dimension = {
    tuple(s): predecessor.rank_by_dimension(range(rank_seeds), *s, rank_dimensions)
    for s in rank_shapes
}
several = {
    k: predecessor.several_tokens(range(several_seeds), 3, 4, k, 0.1, 2001)
    for k in several_dimensions
}
few = tokens.unit_tokens(range(path_seeds), n, T, d)
paths = {
    p: predecessor.path_against_descent(few, p, path_multiples, find_steps, 3) for p in exponents
}
parents_table = claims.Table(
    predecessor.claims_on_parents(pairs, by_dimension, rank_dimensions, several, paths)
)
parents_table

# %% tags=["nbval-check-output"]
print(parents_table.summary())
optimal = np.mean([path["optimal"].mean() for path in paths.values()])
print(
    f"descent from zero reaches the globally optimal selection in {100 * optimal:.0f} % of runs, the path in all"
)

# %%
figure, axes = plots.panels(2, 2, height=2.3)
for (what, norm), colour in zip(
    [k for k in pairs if isinstance(k, tuple)], ("NGD", "GD", "Polyak", "Adam"), strict=True
):
    plots.band(
        axes[0], recorded, pairs[what, norm], f"{what}: {norm.capitalize()}", plots.COLOURS[colour]
    )
axes[0].set(
    xscale="log", title="alignment with the two SVMs", xlabel="iteration $t$", ylim=(-0.1, 1.05)
)
axes[0].legend(fontsize="x-small")
for (size, length), rank in by_dimension.items():
    axes[1].plot(rank_dimensions, rank, "o-", markersize=3.5, label=f"n={size}, T={length}")
axes[1].set(title="rank of the nuclear-norm SVM, mean", xlabel="dimension $d$", ylim=(0, None))
axes[1].legend(fontsize="x-small")
axes[2].boxplot(
    [v[1][np.isfinite(v[1])] for v in several.values()],
    tick_labels=several_dimensions,
    whis=(0, 100),
)
axes[2].set(
    title="several tokens: alignment with their SVM", xlabel="dimension $d$", ylim=(None, 1.02)
)
for p, found_path in paths.items():
    plots.band(
        axes[3], path_multiples, found_path["path"], f"p = {p:g}", plots.COLOURS.get(f"p = {p:g}")
    )
axes[3].set(
    xscale="log",
    yscale="log",
    title="regularisation path: $D$ to the opt tokens' SVM",
    xlabel=r"$R / \|W_{mm}\|$",
)
axes[3].legend(fontsize="x-small")

# %%
about = f"settings of 2308.16898, reduced: {seeds} seeds (rank {rank_seeds}, several tokens {several_seeds}, path {path_seeds}); synthetic, float64"
plots.caption(figure, about)
last = {f"{what}_{norm}".replace(", ", "").lower(): record.Number(np.median(pairs[what, norm][:, -1]), 1e-4)
        for what, norm in (k for k in pairs if isinstance(k, tuple))}  # fmt: skip
numbers = last | {"descent_optimal": record.Number(optimal, 1e-9)}
run.save(figure, "mirror_parents", "parent results", about, parents_table, numbers, source)
figure

# %% [markdown]
# ## The ledger
#
# Every statement of the appendix at hand, and the theorems by their content: its kind, the number measured, the bound,
# and the smallest wrong world that the row catches (`make falsify`). The text lost its constants: a *form* has one of
# ours, derived in the docstrings of `lib.papers.c`. Lemmas 17, 23 and 26 are identities, and tests.

# %%
sizes = ledger_rows.Sizes(
    seeds=seeds,
    n=n,
    T=T,
    d=d,
    find_steps=find_steps,
    rate_exponents=tuple(rate_exponents),
    rate_steps=rate_steps,
    rate_step=rate_step,
    exponents=tuple(ledger_exponents),
    steps=ledger_steps,
    draws=draws,
    path_seeds=path_seeds,
)
collected = [row for section in ledger_rows.SECTIONS.values() for row in section(sizes)]
rows = ledger.with_power(ledger.in_order(collected, STATEMENTS), "mirror_ledger")
table = ledger.LedgerTable(rows, STATEMENTS)
table

# %% tags=["nbval-check-output"]
print(table.summary())

# %%
figure = ledger.draw(table, STATEMENTS)
about = f"all statements of paper C's appendix: rows that fail and hold, and what they catch; our settings; synthetic, ≤ {seeds} seeds, float64"
plots.caption(figure, about)
numbers = {
    "claims": record.Number(len(table), 0),
    "claims_that_hold": record.Number(sum(row.holds for row in table), 0),
}
saved = run.save(
    figure,
    "mirror_ledger",
    "every lemma",
    about,
    table,
    numbers,
    source,
    ledger.statements(STATEMENTS),
)
ledger.save(table, STATEMENTS, saved, "Paper C (2410.14581), lemma by lemma")
figure
