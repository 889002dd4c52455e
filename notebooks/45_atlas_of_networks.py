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
# # The atlas for keys and queries, for competing selections, and in a vision transformer
#
# *Page 8 of 11 · before: [44](44_atlas.ipynb) · next: [12](12_joint_training.ipynb) · 25 minutes · [words](words.md).* After it you can say what keys and queries change, and what a network shows of it.
#
# **Paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738) trains one matrix $W$ alone.
# [Notebook 44](44_atlas.ipynb) maps which norm's margin each optimiser then maximises.
#
# **Question.** Does the map survive when keys and queries are trained in place of $W$, and in the attention of a small
# vision transformer? Which tokens does an optimiser pick when several selections compete?
#
# **Answer.** With keys and queries the map survives, with *other norms*: a rule's norm of $K$ and $Q$ induces one on $W=KQ^\top$, and that one
# counts. Gradient descent goes to the nuclear norm, polar steps stay with the spectral norm, both to 98 % or more of the largest margin in the
# median of ten runs. Sign descent goes to the norm of sums of sign products, in nine of ten runs and to 92 %; Adam with a long memory follows it
# in three of ten. Where selections compete from zero, the rules differ: steepest descent in the sum of entries and in the nuclear norm win most of their comparisons,
# the other four steepest rules win fewer than half of theirs. Pooled, the own norm wins 57 %, which is no rule's own share. Of 28 pairs of runs whose norms disagree
# 27 prefer each its own selection. With near ties and from a wrong start the pooled share is undecided. In the vision transformer one of four rankings is decided: gradient descent leads in the nuclear norm.
#
# ![Margins that five rules reach in seven norms, on keys and queries and on W; the norm predicted is outlined](../figures/desk/networks_factors.png)
#
# *The judged runs (desk [scale](words.md), the larger of two sizes; also [selections](../figures/desk/networks_selections.png), [network](../figures/desk/networks_vit.png)); predictions
# were [committed before the runs that count](networks_protocol.md). This page runs less.*
#
# ## The statement
#
# | symbol | meaning |
# |---|---|
# | $x_{i,t},\ z_i,\ y_i,\ u$ | token $t$, query and label of sample $i$; the fixed head |
# | $K,\ Q$ | keys and queries, $d\times k$ (`m` in the code is $k$); $W=KQ^\top$, the logit of a token is $x^\top Wz$ |
# | $\alpha_i$; $g_m=\langle A_m,W\rangle$ | the token that the run selects; its margin over token $t\ne\alpha_i$, with $m=(i,t)$, $A_m=(x_{i,\alpha_i}-x_{i,t})z_i^\top$ |
# | $N$; $F_N(W)$ | a norm of matrices; what it induces: $\min\{\max(N(K),N(Q))^2:KQ^\top=W\}$ |
# | $r_N(W)$ | the ratio: $\min_mg_m/N(W)$ over its largest possible value; at most 1 |
#
# | $N$ on each factor | steepest descent | $F_N(W)$ |
# |---|---|---|
# | Frobenius | normalised gradient descent | $\lVert W\rVert_*$, nuclear |
# | spectral | polar steps | $\lVert W\rVert_2$, spectral |
# | largest entry | sign descent | sign norm: $\min\{\sum_rw_r:W=\sum_rw_rx_ry_r^\top,\ x_r,y_r\in\{\pm1\}^d\}$, divided by $k$, for large $k$ |
#
# **Hypotheses.** The start is small and *not zero*: at $K=Q=0$ both gradients vanish. The run selects one token per sample; the loss
# has an exponential tail; steps decay.
#
# | statement | source | here |
# |---|---|---|
# | homogeneous models: steepest descent nears a *stationary* point of the margin in its norm | Tsilivis et al., 2410.22069 | softmax is not homogeneous, and stationary is less than best: measured |
# | the same for Muon, Signum, Adam without $\epsilon$ | Gronich, Vardi, 2602.16340 | measured for Adam |
# | gradient flow on keys and queries of softmax attention: the nuclear norm | Sheen, Chen, Wang, Zhou, 2403.08699; of the regularisation path Tarzanagh et al., 2308.16898 | measured for normalised steps |
# | $F_N$ for sign descent, competing selections, margins in a network | ours | measured |

# %% tags=["parameters"]
# Set-up, no need to read.
scale = "demo"
seeds = 2
steps = 20_000
selection_seeds = 10
selection_steps = 3000
vit_seeds = 2
vit_rows, vit_held, vit_steps = 1000, 64, 60
vit_shape = {"width": 32, "depth": 2, "heads": 4, "hidden": 64}
rules = ["NGD", "Signum", "Muon", "Adam"]
rates = [[0.03, 0.1], [3e-4, 1e-3], [0.01, 0.03], [1e-3, 3e-3]]

# %% tags=["set-up"]
# Set-up, no need to read.
import numpy as np
import torch

from companion import claims, plots, record
from lib import attention, dynamics
from lib.attention import tokens
from lib.data import images
from lib.dynamics.in_coordinates import factored
from papers.atlas import atlas, atlas_rules, factored_atlas, networks_figures
from papers.atlas import network_margins as network

run = record.start("45_atlas_of_networks", "A", globals())
torch.set_num_threads(1)  # sums are split over threads, and another split rounds differently

# %% [markdown]
# ## The rules, in this page
#
# With $G=-\nabla_WL$ the chain rule gives $GQ$ for $K$ and $G^\top K$ for $Q$. Each rule takes its direction of both.

# %%
data = tokens.unit_tokens(range(seeds), n=6, T=8, d=10)
one = data.run(0)


def polar(G):
    U, S, V = np.linalg.svd(G)
    kept = S > 1e-12 * S[0]  # six samples: six singular values of ten
    return U[:, kept] @ V[kept]


by_hand = {"frobenius": lambda G: G / np.linalg.norm(G), np.inf: np.sign, "spectral": polar}
K_0, Q_0 = factored.small_start(data, range(seeds), 10, size=0.1)
for norm, direction in by_hand.items():
    K, Q = K_0[0], Q_0[0]
    for t in range(100):
        G = -attention.gradients(one, (K @ Q.T)[None], one.u)[1][0]
        K, Q = (M + 0.05 * (t + 1) ** -0.5 * direction(D) for M, D in ((K, G @ Q), (Q, G.T @ K)))
    rule = {"a": dynamics.SteepestDescent(norm, 0.05, decay=0.5)}
    W = factored.train(one, rule, K_0[:1], Q_0[:1], [100])["a"].W[0, 0]
    assert np.allclose(K @ Q.T, W, rtol=0, atol=1e-9)
    print(f"{norm!s:9} singular values of W:", *np.linalg.svd(W)[1][:5].round(3))

# %% [markdown]
# If you run this loop longer, it stalls once $e^{-2\langle A_m,W\rangle}$ underflows. `lib.dynamics.in_coordinates.factored` keeps a logarithm for every sample.
#
# The sign norm is a linear program over all sign products, and its largest margin too. A product $xy^\top$ costs
# $\max|x|\max|y|$.
#
# ## 1. The map with keys and queries
#
# Each rule on $(K,Q)$, and the same rule on $W$ alone. Steps on factors decay like $t^{-1/2}$: factors then grow like
# $\sqrt t$ and margins like $t$.

# %%
rows = factored_atlas.rows()
both, alone, _ = factored_atlas.run(data, rows, steps, range(seeds))
factor_claims = factored_atlas.predictions(rows, both, alone)
factor_table = claims.Table(sorted(factor_claims, key=lambda claim: claim.holds))
factor_table

# %%
about_factors = f"Unit tokens, n=6, T=8, d=10, $K$ and $Q$ of {factored_atlas.COLUMNS} columns; {seeds} seeds, {steps:,} steps"
figure_factors = plots.caption(networks_figures.factor_map(rows, both, alone), about_factors)
figure_factors

# %% [markdown]
# Look at each pair of rows. Where the outlined cell moves between $(K,Q)$ and $W$, the parameters that are trained have
# changed the norm. Polar steps are the ones whose cell stays.
#
# ## 2. Which tokens, where selections compete
#
# Three ways: from zero; with the two best scores 0.01 apart; from a start at which wrong tokens lead. Take two rules that ended
# in different selections, and ask each: under *your* norm, does your own [selection](words.md) have the larger best margin? Each question is
# a *comparison*, won if the answer is yes. If norms had no effect, half of the comparisons would be won. For if both norms prefer the same selection, one of the two rules has chosen it
# and wins, and the other loses. Pairs whose norms prefer different selections tell more; the **Answer** counts them. The comparisons of one seed depend on each other, so that intervals are bootstraps over seeds.

# %%
chosen = atlas_rules.steepest_rows()
adam = dynamics.Adam(atlas_rules.step("l_inf") / 10)
chosen[network.ADAM] = atlas_rules.Row(adam, None, "l_inf")
ways = network.settings(range(selection_seeds))
optimal, disputes = {}, {}
for way, (of, start) in ways.items():
    ended = network.ended(of, chosen, selection_steps, start)
    optimal[way] = network.optimal(of, ended)
    disputes[way] = network.disputes(chosen, ended, atlas.BestMargins(of))

# %%
selection_claims = network.selection_claims(optimal, disputes)
selection_table = claims.Table(sorted(selection_claims, key=lambda claim: claim.holds))
selection_table

# %%
about_selections = f"Unit tokens, n=6, T=8, d=10; {selection_seeds} seeds, {selection_steps:,} steps; near ties: the two best scores {network.LEAD} apart; wrong start: other tokens lead at first; bars (right): 95 % over seeds; last row judged; dotted: 0.9, half"
figure_selections = plots.caption(networks_figures.selections(optimal, disputes), about_selections)
figure_selections

# %% [markdown]
# Left: squares lie far left of circles where near ties mislead a rule, Adam's furthest. Right: a row is a rule, the last one pools the six steepest
# rules and is judged. A rule that follows its own norm lies right of one half. From zero only three of the seven rules do, and the bar of
# $\ell_3$ lies wholly left of it.
#
# ## 3. The attention layers of a vision transformer
#
# The plain network of [notebook 34](34_vit_mirror_descent.ipynb), smaller. The rule acts on the matrices of its blocks; all else is trained by
# Adam. Head $h$ has $W=W_K^\top W_Q/\sqrt{d_h}$. A query's margin is its largest logit minus the second; their 10 % quantile
# over $N(W)$ and the mean $\lVert x\rVert^2$ is compared, the sign norm by its bound $\sqrt{d_h}\max\lvert W_K\rvert\max\lvert W_Q\rvert$. **No SVM is solved**: these ratios compare rules, and say nothing of the largest possible.
#
# A rule is *reproduced* as first only if it is ahead of every other: the row shows the rival whose interval begins lowest.
#
# Rates first: the least training loss at the end, on a seed that is not used below.

# %%
setting = network.Setting(vit_rows, vit_held, vit_steps, vit_shape)
train_set, held = setting.load(scale == "demo")
pictures = train_set.standardise()(held)
grids = dict(zip(rules, rates, strict=True))
tried = network.tuned(setting, train_set, grids, last=50)
best_rate = {rule: min(losses, key=losses.get) for rule, losses in tried.items()}
at_edge = sum(rate in (grids[rule][0], grids[rule][-1]) for rule, rate in best_rate.items())
print("rates chosen", best_rate)
networks, ends = {}, {}
for rule, rate in best_rate.items():
    made = [network.trained(setting, train_set, rule, rate, s) for s in range(vit_seeds)]
    networks[rule] = [model for model, _ in made]
    ends[rule] = np.array([loss[-50:].mean() for _, loss in made])
found = {rule: [network.read(one, pictures) for one in own] for rule, own in networks.items()}
vit_table = claims.Table(network.ranking_claims(found))
vit_table

# %%
pictures_from = images.identity("cifar10", demo=scale == "demo")
sizes = ", ".join(f"{name} {size}" for name, size in vit_shape.items())
about_vit = f"Plain ViT, {sizes}; {pictures_from['name']}, {vit_rows:,} rows, {vit_steps:,} steps; {at_edge} of {len(rules)} rates at the edge of their grids; ratio: 10 % quantile of margins over norm and mean ‖x‖²; bars: 95 % over {vit_seeds} seeds"
figure_vit = plots.caption(networks_figures.ranking(found), about_vit)
figure_vit

# %% [markdown]
# Look at whether all three bars of a block lie right of 0: only then the rule predicted first is first. The rival that decides has
# the verdict beside it.
#
# ## What we saw
#
# At desk scale: with keys and queries trained, gradient descent goes to the nuclear norm and polar steps stay with the spectral one, as
# predicted; sign descent approaches the norm that its factors induce. Where selections compete from zero, two of the six steepest descents and Adam
# prefer their own selection in their own norm, and four win fewer than half of their comparisons; the pooled share hides that. In the small vision transformer most rankings
# are undecided.
#
# ## Change this
#
# **The columns.** Prediction: with one column $W$ has rank one, so nuclear and spectral norm are equal and so are their numerators;
# the nuclear ratio is then far below that of ten columns, if one column selects one token per sample at all.

# %%
best = atlas.BestMargins(data)
for m in (1, 3, 10):
    K, Q = factored.small_start(data, range(seeds), m)
    rule = {"gd": dynamics.SteepestDescent(2, factored_atlas.step("nuclear"), decay=0.5)}
    path = factored.train(data, rule, K, Q, [steps // 2, steps])["gd"]
    print(f"m = {m}: nuclear ratio", atlas.ratios(path, best).last[:, 1].round(3), path.status)

# %% [markdown]
# <details><summary>Answer</summary>
#
# So it is: one column has less than half of the ratio of ten, and three columns are enough.
#
# </details>
#
# **To prove.** Show that $\lVert KQ^\top\rVert_*\le\frac12(\lVert K\rVert_F^2+\lVert Q\rVert_F^2)$, and that some $K$, $Q$ attain it. So the Frobenius
# norm of the factors induces the nuclear norm.
#
# <details><summary>Solution</summary>
#
# With $W=KQ^\top=U\,\mathrm{diag}(\sigma)V^\top$: $\lVert W\rVert_*=\mathrm{tr}(U^\top KQ^\top V)=\langle K^\top U,Q^\top V\rangle\le\lVert K^\top U\rVert_F\lVert Q^\top V\rVert_F\le
# \lVert K\rVert_F\lVert Q\rVert_F$, and a product is at most half of the sum of squares. $K=U\,\mathrm{diag}(\sqrt\sigma)$ and $Q=V\,\mathrm{diag}(\sqrt\sigma)$ attain it.
#
# </details>

# %% tags=["set-up"]
# Set-up, no need to read.
numbers = {}
for kind, ran, of in (("both", both, "norm"), ("alone", alone, "alone_norm")):
    for name, row in rows.items():
        last = ran[name].last[:, factored_atlas.NORMS.index(getattr(row, of))]
        numbers[f"{kind}_{network.plain(name)}"] = np.median(last)
runs = [*both.values(), *alone.values()]
numbers |= dict(steady=sum(int(one.steady.sum()) for one in runs), runs=len(runs) * seeds)
run.keep(figure_factors, "networks_factors", about_factors, factor_table, numbers)
numbers, steepest = {}, [name for name in chosen if name != network.ADAM]
for way, of in optimal.items():
    shares = {network.plain(name): share.mean() for name, share in of.items()}
    (won, all_of), counted = (f(disputes[way], steepest) for f in (network.won, network.apart))
    counts = dict(zip(("won", "disputes", "own", "apart"), (won.sum(), all_of.sum(), *counted)))
    numbers |= {f"{network.plain(way)}_{name}": share for name, share in shares.items()}
    numbers |= {f"{name}_{network.plain(way)}": int(count) for name, count in counts.items()}
    for rule in chosen:  # each rule's own share, against all others, as its row of the picture
        own = {pair: values for pair, values in disputes[way].items() if pair[0] == rule}
        share, _, _ = network.share(*network.won(own, list(chosen)))
        numbers[f"own_share_{network.plain(way)}_{network.plain(rule)}"] = share
source = dict(name="unit_tokens", source="synthetic", rows=6)
source["revision"] = f"seeds 0-{selection_seeds - 1}"
of = (figure_selections, "networks_selections", about_selections, selection_table, numbers)
run.keep(*of, [source], setting={"seeds": selection_seeds})
numbers = {f"rate_{rule}": rate for rule, rate in best_rate.items()}
numbers |= {f"loss_{rule}": loss.mean() for rule, loss in ends.items()}
leads = zip(network.FIRST, vit_table, strict=True)
numbers |= {f"lead_{network.plain(norm)}": claim.measured for norm, claim in leads}
of = (figure_vit, "networks_vit", about_vit, vit_table, numbers, [pictures_from])
run.keep(*of, dtype="float32", setting={"seeds": vit_seeds})
