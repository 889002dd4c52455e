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
# # Every statement of the paper, beside the number measured for it
#
# **Paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738): **Theorems
# 1-10, Lemmas 1-15, Eqs. 12 and 13, Remarks 1-4 and footnote 5**, one row or more for each.
#
# A row gives the statement with its number, the setting, what theory asks, what was measured (the worst over
# seeds, and over samples and iterations where they enter) and the margin: how many times over the bound is
# met. The absolute constants did not survive in the text at hand; those marked **our constant** are derived,
# for the exponential loss and under Assumption 2, in the docstrings of `lib.paper_a`, `lib.paper_a_data`,
# `lib.paper_a_joint` and `lib.paper_a_smoothness`. The last part breaks Assumptions 1 and 2 and counts which
# runs still reach $W_{mm}$.

# %% tags=["parameters"]
scale = "demo"
seeds = 20
n, T, d = 10, 6, 300
signal, noise = 3.0, 0.1
start_norm = 0.3
verified_d = 4000
steps = 10_000
ngd_step = 0.05
joint_n, joint_d, joint_signal = 8, 400, 3.0
joint_steps = 5000
joint_step = 0.3
draws = 200
grid_seeds = 40
grid_n, grid_T = 8, 5
grid_steps = 2000
dimensions = [256, 64, 32, 16, 8, 6]
ratios = [0.25, 1, 2, 4, 8, 16]
spreads = [0.0, 0.25, 0.5, 0.75, 0.9, 0.98]

# %%
from dataclasses import replace

import numpy as np

from lib import (
    dynamics,
    svm,  # fmt: skip
)
from lib.attention import coordinates, tokens
from lib.companion import claims, ledger, plots, record
from lib.dynamics import rules
from lib.papers.a import curvature, data_and_starts, fixed_head, phase_diagram
from lib.papers.a import joint as paper_a_joint

run = record.start("04_theory_ledger", "A", globals())
plots.set_style()

# %% [markdown]
# ## Fixed head: data, starts, training
#
# Three settings, all ours. *class means* and *antipodal*: Example 1 as in Figures 2 and 5. *high d*: Example
# 1 in Gaussian form, small and of such dimension that our sufficient form of Assumption 1 can be verified on
# every draw.
#
# Three starts. *small*: Gaussian, tiny (Lemma 4). *opposite*: $W_0 = -W_{mm}$. *local*: $W_0$ = the token
# SVM's solution for another, randomly chosen selection of tokens, a direction in which the local theory
# (2308.16898) says training may stay. The last two already have margins of 1 the wrong way. GD's step is one
# over a bound on the smoothness.

# %%
each = range(seeds)
problems = {
    "class means": coordinates.minimal(tokens.class_mean_tokens(each, n, T, d, signal, noise)),
    "antipodal": coordinates.minimal(
        tokens.class_mean_tokens(each, n, T, d, signal, noise, antipodal=True)
    ),
    "high d": coordinates.minimal(tokens.gaussian_tokens(each, n=4, T=3, d=verified_d)),
}
recorded = dynamics.log_spaced(steps, 120)
targets, histories = {}, {}
for name, problem in problems.items():
    data = problem.tokens
    targets[name] = svm.token_svm(data)
    local = svm.token_svm(data, data_and_starts.wrong_selection(data, each))
    starts = {
        "small": dynamics.gaussian_start(problem, start_norm / problem.token_basis.shape[1], each),
        "opposite": dynamics.Start(-targets[name].W, np.zeros(seeds)),
        "local": dynamics.Start(local.W, np.zeros(seeds)),
    }
    gd_step = 1 / fixed_head.smoothness(data).max()
    update_rules = {"NGD": rules.ngd(ngd_step), "GD": rules.gd(gd_step), "Polyak": rules.polyak()}
    known = {"W_mm": targets[name].W, "local": local.W}
    histories[name] = {
        start: dynamics.train(problem, update_rules, steps, recorded, start=W, targets=known)
        for start, W in starts.items()
    }

# %% [markdown]
# ## Fixed head: rows


# %%
def fixed_rows(name):
    data, target, found = problems[name].tokens, targets[name], histories[name]["small"]
    ngd, gd, polyak = (found[rule] for rule in ("NGD", "GD", "Polyak"))
    late, setting = steps / 10, f"{name}, start small"
    yield from ledger.rows("Theorem 1", setting, seeds, *fixed_head.theorem1(ngd, "W_mm", late)[1:])
    yield from ledger.rows(
        "Theorem 5", setting, seeds, fixed_head.theorem5(ngd, "W_mm", ngd_step, data, target)
    )
    yield from ledger.rows("Theorem 6", setting, seeds, *fixed_head.theorem6(gd, "W_mm", late),
                           remark="a limit: a run can show the approach, not the end")  # fmt: skip
    yield from ledger.rows("Theorem 7", setting, seeds,
                           *fixed_head.theorem7(polyak, "W_mm", data, target, late)[1:])  # fmt: skip
    yield from ledger.rows("Lemma 1", setting, seeds, fixed_head.lemma1(ngd, ngd_step, data, target, late),
                           fixed_head.margin_growth(ngd, "NGD", ngd_step / target.norm, late))  # fmt: skip
    yield from ledger.rows(
        "Lemma 5", setting, seeds, *(fixed_head.lemma5(h, rule) for rule, h in found.items())
    )
    yield from ledger.rows("Lemma 6", setting, seeds,
                           *(fixed_head.lemma6(h, r, data, target, "W_mm") for r, h in found.items()))  # fmt: skip
    yield from ledger.rows(
        "Lemma 7", setting, seeds, *fixed_head.lemma7(ngd, ngd_step, data, target)
    )
    yield from ledger.rows(
        "Lemma 10", setting, seeds, fixed_head.lemma10(ngd, "W_mm", data, target)
    )
    yield from ledger.rows("Eq. 12", setting, seeds, fixed_head.growth_linear(ngd))


collected = list(fixed_rows("class means"))

# %%
for name, found in histories.items():
    for start, trained in found.items():
        statement = "Footnote 5" if name == "antipodal" else "Remark 1"
        checked = [
            fixed_head.remark1(history, "W_mm", rule, start) for rule, history in trained.items()
        ]
        collected += ledger.rows(statement, f"{name}, start {start}", seeds, *checked)
        for statement, rule in (("Theorem 1", "NGD"), ("Theorem 7", "Polyak")):
            rate = fixed_head.rate(trained[rule], "W_mm", rule, statement, steps / 10)
            collected += ledger.rows(statement, f"{name}, start {start}", seeds, rate)
    left = fixed_head.leaves(list(found["local"].values()), "local")
    collected += ledger.rows("Section 3.1", f"{name}, start local", seeds, left)
kept = "Theorem 5", "Theorem 6", "Lemma 5", "Lemma 6", "Lemma 10"
collected += [
    replace(row, statement="Footnote 5") for row in fixed_rows("antipodal") if row.statement in kept
]

# %% [markdown]
# ## Data and starts: rows
#
# Statements that hold with probability $1-\delta$ are measured as the fraction of draws on which they fail,
# with $\delta = 0.1$.

# %%
many = range(draws)
wide = coordinates.minimal(tokens.class_mean_tokens(many, n, T, d, signal, noise))
size = data_and_starts.start_size(wide.tokens)
start = dynamics.gaussian_start(wide, size, many)
collected += ledger.rows(
    "Lemma 4", "class means", draws, *data_and_starts.lemma4(wide.tokens, start, size, d)
)
for name in ("class means", "high d"):
    around = data_and_starts.lemma2(problems[name].tokens, targets[name], each)
    for statement, claim in zip(("Lemma 2", "Lemma 9"), around, strict=True):
        collected += ledger.rows(statement, name, seeds, claim)
collected += ledger.rows(
    "Lemma 8", "high d", seeds, *data_and_starts.lemma8(problems["high d"].tokens)
)
drawn = tokens.two_token_gaussian(many, joint_n, 2, joint_d, joint_signal)
collected += ledger.rows(
    "Lemma 11", "(DM)", draws, *data_and_starts.lemma11(drawn, joint_signal, joint_d**-0.5)
)

# %% [markdown]
# ## Joint training: data, training, rows
#
# Data model (DM) from zero by Eq. 13, with its exponent 2/3 and with others; the same with $T = 4$, the
# additional token repeated; and the linear predictor on the opt tokens alone (Remark 3).


# %%
def joint_run(data, decays):
    problem = coordinates.minimal(data)
    recorded = dynamics.log_spaced(joint_steps, 60)
    recorded = np.union1d(
        recorded, np.minimum(recorded + 1, joint_steps)
    )  # pairs (t, t+1), for Lemma 3
    update_rules = {decay: rules.ngd(joint_step, decay=decay) for decay in decays}
    attention, head = svm.token_svm(problem.tokens), svm.head_svm(problem.tokens)
    trained = dynamics.train(problem, update_rules, joint_steps, recorded, targets={"W_mm": attention.W},
                             head="joint", head_targets={"u_mm": head.value})  # fmt: skip
    return problem.tokens, attention, head, trained


two = tokens.two_token_gaussian(each, joint_n, 2, joint_d, joint_signal)
data, attention, head, by_decay = joint_run(two, (0, 1 / 2, 2 / 3, 4 / 5))
four = tokens.two_token_gaussian(each, joint_n, 4, joint_d, joint_signal)
data4, attention4, head4, by_decay4 = joint_run(four, (2 / 3,))
linear = paper_a_joint.linear_predictor(coordinates.minimal(two))
same_rules = {decay: rules.ngd(joint_step, decay=decay) for decay in by_decay}
by_decay_linear = dynamics.train(linear, same_rules, joint_steps, head="joint")

# %%
eq13, late = by_decay[2 / 3], joint_steps / 10
growth = paper_a_joint.growth(eq13, "Eq. 13", 1 / 3, late)
bound, sharp = paper_a_joint.theorem2(eq13, joint_step, head, late)
size, rate = paper_a_joint.theorem3(eq13, joint_step, "W_mm", data, attention, since=late)
joint_rows = {
    "Theorem 2": [growth[0], bound],
    "Theorem 3": [rate],
    "Theorem 4": [paper_a_joint.theorem4(eq13, data, head, since=1)],
    "Theorem 8": [sharp],
    "Theorem 9": [growth[1], size, fixed_head.lemma6(eq13, "Eq. 13", data, attention, "W_mm")],
    "Theorem 10": [paper_a_joint.theorem10(eq13, data, head, late)],
    "Lemma 3": curvature.lemma3(eq13, data, head, since=100),
    "Lemma 12": [paper_a_joint.lemma12(eq13, joint_step), growth[2]],
    "Lemma 13": paper_a_joint.lemma13(eq13, data, joint_step),
    "Lemma 14": [data_and_starts.lemma14(data, head)],
    "Lemma 15": [curvature.lemma15(eq13, data)],
    "Remark 4": curvature.remark4(eq13, data, head, since=late),
}
for statement, checked in joint_rows.items():
    collected += ledger.rows(statement, "(DM)", seeds, *checked)

# %%
for decay in (0, 1 / 2, 2 / 3):
    for name, trained in (
        ("attention", by_decay[decay]),
        ("linear predictor", by_decay_linear[decay]),
    ):
        collected += ledger.rows(
            "Remark 3", "(DM)", seeds, paper_a_joint.remark3(trained, name, decay, late)
        )
repeated = [paper_a_joint.theorem2(by_decay4[2 / 3], joint_step, head4, late)[0],
            paper_a_joint.theorem4(by_decay4[2 / 3], data4, head4, since=1),
            *paper_a_joint.lemma13(by_decay4[2 / 3], data4, joint_step, "T = 4")]  # fmt: skip
collected += ledger.rows(
    "Section 4.2", "(DM), T = 4", seeds, *repeated, remark="p_opt starts at 1/T, not 1/2"
)
ratio = {
    decay: (trained.log_gap[:, -1] / eq13.log_gap[:, -1]) for decay, trained in by_decay.items()
}
text, source = "last log L with (t+1)^-{} over that with (t+1)^-2/3", "paper A, Section 4.1"
inside = claims.at_most("eq13.inside", text.format("4/5"), source, ratio[4 / 5].max(), 1.0)
outside = claims.at_least("eq13.outside", text.format(0), "ours", ratio[0].min(), 1.0)
collected += ledger.rows("Eq. 13", "(DM)", seeds, inside)
collected += ledger.rows(
    "Eq. 13", "(DM)", seeds, outside, remark="the proof needs p ≥ 2/3, this problem does not"
)
collected += [
    ledger.unchecked(
        "Remark 2", "compares two proofs; Lemma 2 is checked with n = 10 and n = 4 samples"
    ),
    ledger.unchecked("Condition 1", "its absolute constants are blank in the text at hand"),
]

# %% [markdown]
# ## The ledger
#
# Where a constant is ours, a row tests the form of the statement and not the paper's number: a margin of 2 with our
# constant says nothing about the paper's. Sharp rows (marked "ours", without a constant to choose) are the harder test.

# %%
table = ledger.in_order(collected)
checked = claims.Table(row.claim for row in table if row.claim)
checked

# %% tags=["nbval-check-output"]
print(checked.summary())
print(f"{len(set(row.statement for row in table))} statements, {len(table)} rows")

# %% [markdown]
# ## Breaking the assumptions
#
# *Assumption 1* breaks when tokens overlap: in low dimension $d$, or as the other tokens grow against the opt
# tokens. *Assumption 2* breaks when the other tokens' scores differ: a random part of the head, orthogonal to
# the opt tokens, gives them scores of up to `spread` times the opt score, which stays the best. A run has
# reached $W_{mm}$ when it selects the opt token of every sample and its alignment with $W_{mm}$ is at least
# 0.9 at the end.

# %%
grid_rules = {"NGD": rules.ngd(ngd_step), "GD": rules.gd(1.0), "Polyak": rules.polyak()}
axes_of = {"dimension $d$": [(d, 1.0) for d in dimensions],
           "length, other / opt tokens": [(dimensions[1], ratio) for ratio in ratios]}  # fmt: skip
diagrams = {
    label: phase_diagram.phase_diagram(
        range(grid_seeds), grid_n, grid_T, cells, spreads, grid_rules, grid_steps
    )
    for label, cells in axes_of.items()
}
phase = claims.Table(phase_diagram.broken(list(diagrams.values()), list(grid_rules)))
phase

# %% [markdown]
# What the diagram shows, for one setting: up to moderate violations every run still ends at $W_{mm}$, so that
# the two assumptions are sufficient and far from necessary. In low dimension the three rules fail on about
# the same draws. Long other tokens with nearly tied scores hurt GD and Polyak and leave NGD alone: steps in
# proportion to the gradient carry the softmax into saturation at a wrong token. GD partly recovers with more
# iterations, Polyak does not.
#
# ## Figures

# %%
figure = ledger.draw(table)
about = f"all statements of paper A, a mark per claim; our settings and constants; synthetic, ≥ {seeds} seeds, float64"
plots.caption(figure, about)
rows = [
    {"name": name, "source": "synthetic", "revision": f"seeds 0-{seeds - 1}"}
    for name in (*problems, "(DM)")
]
held = sum(claim.holds for claim in checked)
numbers = {"claims": record.Number(len(checked), 0), "claims_that_hold": record.Number(held, 0)}
run.save(figure, "fastrates_ledger", "every statement", about, checked, numbers, rows)
ledger.save(table, "fastrates_ledger", scale, "Paper A (2402.05738), statement by statement")
figure

# %%
figure, panels = plots.panels(2, 3, height=2.5)
for row, (label, diagram) in enumerate(diagrams.items()):
    for panel, rule in zip(panels[3 * row : 3 * row + 3], grid_rules, strict=True):
        image = plots.percentages(panel, diagram[rule], (dimensions, ratios)[row], spreads)
        panel.set(title=rule, xlabel=label)
    panels[3 * row].set_ylabel("spread of other scores")
figure.colorbar(
    image, ax=list(panels), label="fraction of seeds that reach $W_{mm}$", aspect=40, pad=0.01
)
about = (f"Theorem 1's assumptions broken (lower row: d={dimensions[1]}); percent of runs at t={grid_steps:,}; "
         f"our setting, n={grid_n}, T={grid_T}; synthetic, {grid_seeds} seeds, float64")  # fmt: skip
plots.caption(figure, about)
fractions = {f"{rule.lower()}_row_{row}": record.Number(np.nanmean(diagram[rule]), 0.01)
             for row, diagram in enumerate(diagrams.values()) for rule in grid_rules}  # fmt: skip
rows = [{"name": "bounded_tokens", "source": "synthetic", "revision": f"seeds 0-{grid_seeds - 1}"}]
run.save(figure, "fastrates_assumptions", "assumptions of Theorem 1", about, phase, fractions, rows)
figure
