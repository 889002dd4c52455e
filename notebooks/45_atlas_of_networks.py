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
# *Page 8 of 11 · before: [44](44_atlas.ipynb) · next: [12](12_joint_training.ipynb) · 25 minutes · [words](words.md).* By the end, you will be able to say how training keys and queries in place of W changes the norm, and how much of this change shows in a network.
#
# **Paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738) trains a single matrix $W$, and [notebook 44](44_atlas.ipynb) finds the norm in which each optimiser then maximises the margin. In networks, however, we train *keys* $K$ and *queries* $Q$, and $W$ is their product $KQ^\top$.
#
# **Question.** Does each optimiser still maximise the margin in the same norm if we train keys and queries? Does it do so in a small vision transformer? And if training could end with several selections of tokens, which of these selections does an optimiser choose?
#
# ## What to expect
#
# If we train $K$ and $Q$ by steepest descent in a norm $N$, the rule should keep $N(K)$ and $N(Q)$ small. In which norm is $W$ then small? Among all factors $K$ and $Q$ of $W$, we take those that are smallest in $N$. The square of their size is the *induced norm* of $W$,
# $$F_N(W)=\min\{\max(N(K),N(Q))^2:KQ^\top=W\}.$$
#
# | $N$ on each factor | steepest descent | $F_N(W)$ |
# |---|---|---|
# | Frobenius | normalised gradient descent | $\lVert W\rVert_*$, nuclear |
# | spectral | polar steps | $\lVert W\rVert_2$, spectral |
# | largest entry | sign descent | sign norm: $\min\{\sum_rw_r:W=\sum_rw_rx_ry_r^\top,\ w_r\ge0,\ x_r,y_r\in\{\pm1\}^d\}$, divided by $k$, for large $k$ (in our runs $k=d=10$) |
#
# Here $K$ and $Q$ are $d\times k$ matrices (`m` in the code is $k$). We predict that each rule maximises the margin in its induced norm. As on page 44, a *margin* is the logit of a sample's selected token minus the logit of another token of the sample. The *ratio* $r_N(W)$ is the smallest margin divided by $N(W)$, and then by the largest value that this quotient can take.

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
# ## The rules, by hand
#
# The downhill direction for $W$ is $G=-\nabla_WL$. By the chain rule, the downhill direction for $K$ is $GQ$, and that for $Q$ is $G^\top K$. Each rule turns these two matrices into its steps. The start is small but *not zero*, because at $K=Q=0$ both gradients vanish.

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
# <details><summary>How do we train for longer, and how do we compute the sign norm?</summary>
#
# In a longer run, this loop would stall once $e^{-2\langle A_m,W\rangle}$ underflows, whereas the library works with logarithms and can continue. To compute the sign norm of a matrix, and the largest margin in the sign norm, we solve linear programs, each of which has one variable for every matrix $xy^\top$ with $x,y\in\{\pm1\}^d$.
#
# </details>
#
# ## 1. The map with keys and queries
#
# We train with each rule twice: once on $(K,Q)$, and once on $W$ itself. The steps on the factors decay like $t^{-1/2}$, so the factors grow like $\sqrt t$, and the margins grow like $t$.

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
# Each pair of rows shows one rule, trained on $W$ and on $(K,Q)$. In each row, the cell of the predicted norm is outlined, and the largest ratio is bold. If the bold cells in the two rows of a pair are in different columns, training the factors has changed the norm. This happens for gradient descent and sign descent, but not for polar steps. (The table above also has Adam.)
#
# ![Ratios of three rules in seven norms](../figures/desk/networks_factors.png)
#
# *The same map at desk [scale](words.md). We [committed the predictions](networks_protocol.md) before these runs.*
#
# ## 2. Which selection wins?
#
# Different rules may select different tokens. Does each rule choose the [selection](words.md) with the largest possible margin in its own norm? The *score* of a token is the answer of a layer that reads this token alone. We test the rules in three settings: in runs from zero, in runs with *near ties* (the two best scores of a sample are only 0.01 apart), and in runs from a *wrong start*, at which tokens other than the best ones have the largest logits.
#
# Take two rules that end with different selections. For each of the two rules we ask: in the norm of this rule, does its own selection allow a larger margin than the selection of the other rule? We call each such question a *comparison*, and the rule *wins* it if the answer is yes.
#
# If the norms of both rules prefer the same selection, the rule that chose this selection wins and the other rule loses. So half of these comparisons are won even if the norms have no effect.
#
# <details><summary>Which pairs do we also count separately, and how do we compute the intervals?</summary>
#
# Pairs of rules whose norms prefer different selections are more informative, so the answer below counts these pairs separately. Because the comparisons within a seed depend on each other, we compute the intervals by a bootstrap over seeds.
#
# </details>

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
about_selections = f"Unit tokens, n=6, T=8, d=10; {selection_seeds} seeds, {selection_steps:,} steps; near ties: the two best scores {network.LEAD} apart; wrong start: other tokens lead at first"
figure_selections = plots.caption(networks_figures.selections(optimal), about_selections)
figure_selections

# %%
about_disputes = "bars: 95 % over seeds; only the last row has a verdict; thin line: one half"
plots.caption(networks_figures.comparisons(disputes, list(chosen)), about_disputes)

# %% [markdown]
# In the first picture, near ties mislead a rule if its filled mark lies far to the left of its circle. Adam's mark moves most. But Adam also takes steps a tenth as long as those of the other rules, and all rules run for the same number of steps, so we cannot tell whether this is due to the rule or to its step size.
#
# In the second picture, each mark shows the share of comparisons that a rule wins. The last row pools the six rules of steepest descent. A mark to the right of one half means that the selection of this rule often allows the larger margin. (If two norms prefer the same selection, one of the two rules wins and the other loses. So if some rules win more than half of these comparisons, others win less. Only pairs whose norms disagree can show that both rules follow their own norms; the answer below counts them.) In the runs from zero, the mark lies to the right of one half for four of the seven rules on this page, and for three rules at desk scale. For steepest descent in $\ell_3$, the whole bar lies to the left of one half.
#
# ## 3. The attention layers of a vision transformer
#
# We train a smaller version of the plain network of [notebook 34](34_vit_mirror_descent.ipynb). The rule that we test trains the weight matrices of the transformer blocks, and Adam trains all other parameters. In head $h$, the attention matrix is $W=W_K^\top W_Q/\sqrt{d_h}$.
#
# Here the margin of a query is its largest logit minus its second largest. We divide the 10 % quantile of these margins by $N(W)$ and by the mean of $\lVert x\rVert^2$ over the tokens $x$ that enter the layer. Instead of the sign norm we use its upper bound $\sqrt{d_h}\max\lvert W_K\rvert\max\lvert W_Q\rvert$. **We solve no SVM here**, so these ratios allow us to compare rules, but they say nothing about the largest possible margin.
#
# A *ranking* predicts which rule has the largest ratio in a given norm. We predicted four: Muon in the spectral norm, Signum in $\ell_\infty$ and in the sign norm, and normalised gradient descent in the nuclear norm. (They compare networks after the same number of steps, whose losses differ. The rates do not decay.) We call the ranking *reproduced* only if the predicted rule is ahead of every other rule. For each ranking, the figure shows the comparison with the closest rival, whose interval begins lowest.
#
# <details><summary>Why does this product bound the sign norm, and how do we choose the learning rates?</summary>
#
# The matrix $W$ is a sum of $d_h$ products $xy^\top$, divided by $\sqrt{d_h}$, and each product has the sign norm $\max\lvert x\rvert\max\lvert y\rvert$.
#
# For each rule, we use a separate seed to choose the learning rate with the smallest final training loss, and we do not use this seed again.
#
# </details>

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
# A ranking is decided if its whole bar lies on one side of 0, and if there are at least three seeds. This small run has too few seeds to decide any ranking.
#
# ## What we saw
#
# **Answer.** If we train keys and queries, steepest descent follows the norm that its factors induce. At desk scale, gradient descent then favours the nuclear norm, whereas polar steps stay with the spectral norm. In the median of ten runs, each of these two rules reaches 98 % or more of the largest margin in its norm. For sign descent, the ratio in the sign norm is the largest in nine of ten runs, and its median is 92 %. (This norm is the induced one only for large $k$, which may be why the share is smaller here.) For Adam with a long memory, the ratio in the sign norm is the largest in three of ten runs. We had predicted the sign norm for sign descent in every run, and for Adam in more than half of the runs, so these predictions fail.
#
# If selections compete in runs from zero, the rules differ from one another. The share of won comparisons says little (see above), but three rules win more than half of theirs: steepest descent in $\ell_1$, steepest descent in the nuclear norm, and Adam. The other four rules of steepest descent win less than half of theirs. The pooled share is 57 %. In 28 pairs of runs the norms of the two rules prefer different selections, and in 27 of these pairs each norm prefers the selection of its own rule. With near ties, and also from a wrong start, we cannot tell whether the pooled share exceeds one half; there the norms prefer different selections in 43 and 46 pairs, and each prefers that of its own rule in 26 and 33 of them.
#
# In the vision transformer, only one of the four rankings is decided: gradient descent has the largest ratio in the nuclear norm. Three of the four learning rates lie at the edge of their grids, so other rates might change the rankings.
#
# See also the figures of the desk runs for the [selections](../figures/desk/networks_selections.png) and for the [network](../figures/desk/networks_vit.png).
#
# <details><summary>What this assumes, and whose it is</summary>
#
# The prediction assumes that the run selects one token per sample, that the loss has an exponential tail, and that the steps decay. It carries over a result on homogeneous models, in which a rule approaches a *stationary* point of the margin in its norm ([sources](atlas_sources.md)). Because softmax is not homogeneous, and a stationary point need not be the maximum, we measure the margin.
#
# Sheen, Chen, Wang and Zhou (2403.08699) showed for gradient flow that training keys and queries leads to the nuclear norm, and Tarzanagh et al. (2308.16898) showed it for the regularisation path. Our steps, in contrast, are normalised. The norm $F_N$ for sign descent, the study of competing selections and the measurement of margins in a network are ours.
#
# </details>
#
# ## Change this
#
# **The columns.** If $K$ and $Q$ have only one column, $W$ has rank one, so its nuclear norm equals its spectral norm. *Prediction:* if the run selects one token per sample at all, the ratio of this $W$ in the nuclear norm is far smaller than that of a $W$ trained with ten columns.

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
# The prediction holds: the ratio with one column is less than half of the ratio with ten columns. With three columns, the ratio is already about as large as with ten.
#
# </details>
#
# **To prove.** Show that $\lVert KQ^\top\rVert_*\le\frac12(\lVert K\rVert_F^2+\lVert Q\rVert_F^2)$, and that for every $W$ of rank at most $k$ there are $K$ and $Q$ with $KQ^\top=W$ that attain equality. So the Frobenius norm of the factors induces the nuclear norm.
#
# <details><summary>Solution</summary>
#
# Write $W=KQ^\top=U\,\mathrm{diag}(\sigma)V^\top$. Then $\lVert W\rVert_*=\mathrm{tr}(U^\top KQ^\top V)=\langle K^\top U,Q^\top V\rangle\le\lVert K^\top U\rVert_F\lVert Q^\top V\rVert_F\le
# \lVert K\rVert_F\lVert Q\rVert_F$, and a product of two numbers is at most half of the sum of their squares. Equality holds for $K=U\,\mathrm{diag}(\sqrt\sigma)$ and $Q=V\,\mathrm{diag}(\sqrt\sigma)$.
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
