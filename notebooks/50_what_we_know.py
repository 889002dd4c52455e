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
# # What we know
#
# *Page 11 of 11 · before: [42](42_where_the_law_bends.ipynb) · 5 minutes · [words](words.md).* By the end, you will be able to explain to a colleague what attention learns, and what is not known.
#
# **Question.** What does attention learn, according to three papers, and what did we find when we measured it?
#
# **Answer.** In one sentence: *a layer of attention with fixed tokens usually [selects](words.md) one token in each sample and turns towards a matrix with the largest margin for these tokens, and the update rule
# decides in which norm this margin is the largest; of the 28 rules that we tested, 16 reached the largest margin of a norm.* The table below answers one question per row. All numbers in this table are read from the committed *records*, the files with the measured numbers behind the figures.

# %% tags=["parameters"]
# Set-up, no need to read.
scale = "demo"

# %% tags=["set-up"]
# Set-up, no need to read.
from IPython.display import Markdown

from companion import record
from companion.tables import figures
from lib import files
from papers import poster

run = record.start("50_what_we_know", "A", globals(), counted=None)

# %% [markdown]
# ## On one screen
#
# The next figure has six panels, and the title of each panel states its result. The measured numbers come from the committed records, except those of the first two panels, for which
# we train two small problems again.

# %%
picture = poster.draw()
picture

# %% [markdown]
# ## Question by question

# %%
entries = [one for _, of in figures.index(files.ROOT / "figures") for one in of if one.row]
lines = []
for number, entry in enumerate(sorted(entries, key=lambda entry: entry.row)):
    if number % 6 == 0:
        lines += ["", "| question | the papers say | measured here | page |", "|---|---|---|---|"]
    saved = record.read(files.ROOT / "figures" / entry.scale / f"{entry.slug}.json")
    found, page = figures.filled(entry.finding, saved), entry.notebook.name
    lines += [f"| {entry.asks} | {entry.says} | {found} | [{page[:2]}]({page}.ipynb) |"]
Markdown("\n".join(lines))

# %% [markdown]
# ## What is not known
#
# * *A global theorem.* At which selection does training end, from a given start and even from zero? The law of the margins
#   describes the end of a run *after* the run has selected its tokens, but we do not know what decides this selection ([notebook 13](13_assumptions_broken.ipynb),
#   [notebook 32](32_predecessors.ipynb)).
# * *Adam's norm.* Within a million steps, Adam with an epsilon has not reached the largest margin in any of the norms that we tested, and neither has Muon with Newton-Schulz steps ([notebook 44](44_atlas.ipynb)). If Adam trains on single samples, it comes close to the largest margin in a norm that depends on the data, but after a million steps not all runs are within one per cent of it ([notebook 46](46_own_norms_and_decay.ipynb)).
# * *Networks.* The theorems are about one layer with fixed tokens, whereas in a network the tokens that a layer receives change during training. For networks we only
#   compare optimisers on small examples, and many of these comparisons remain undecided ([notebook 45](45_atlas_of_networks.ipynb)).
# * *The papers' own sizes.* Our copies of papers A and B do not give the step sizes, the batch sizes or most of the constants of the experiments, so we reproduce these experiments with settings of our own. For the synthetic runs of paper C we use the settings of its authors' code.
#
# ## To prove
#
# Suppose that training starts at $W_0=0$ and takes $t$ steps, each of length $\eta$ in a norm $N$. Let $N_{mm}$ be the smallest value of $N(W)$ among the matrices $W$ whose margins are all
# at least 1. Show that the smallest margin of $W_t$ is at most $\eta t/N_{mm}$.
#
# <details><summary>Solution</summary>
#
# Let $g = \min_m\langle A_m, W_t\rangle$ be the smallest margin. If $g\le0$, there is nothing to show. If $g>0$, all margins of $W_t/g$ are at least 1, so
# $N(W_t)/g \ge N_{mm}$. Since $W_0=0$, the triangle inequality gives $N(W_t) \le \eta t$. The two inequalities together give
# $g \le \eta t / N_{mm}$.
# </details>
#
# A *claim* pairs a measured number with the bound that it must meet. The page [what did not hold](../figures/failures.md) lists the claims that fail and those that are undecided. The claims about each numbered statement of the papers are in the tables of statements for papers
# [A](19_theory_ledger.ipynb), [B](29_preconditioning_ledger.ipynb) and [C](39_mirror_ledger.ipynb).

# %% tags=["set-up"]
# Set-up, no need to read.
about = "The story in six panels, from the committed records of the figures that it names"
run.keep(picture, "poster", about, [], poster.numbers())
