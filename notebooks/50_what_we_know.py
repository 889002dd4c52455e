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
# *Page 11 of 11 · before: [42](42_where_the_law_bends.ipynb) · 5 minutes · [words](words.md).* After it you can explain to a colleague what attention learns, and what is not known.
#
# **Question.** What does attention learn, according to three papers, and what did we find when we measured it?
#
# **Answer.** In one sentence: *attention [selects](words.md) a token in each sample and turns to the matrix of largest margin for these tokens; the
# update rule decides in which norm.* The table below answers one question per line. All its numbers are read from the committed records.

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
# There are six panels, each under its result. Every number is read from a committed record. The first two panels train the
# smallest problems anew.

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
# * *A global theorem.* If the start is not small, which selection does training end in? The law of the margins
#   says how a run ends *after* it has selected its tokens. What decides the selection is open ([notebook 13](13_assumptions_broken.ipynb),
#   [notebook 32](32_predecessors.ipynb)).
# * *Adam's norm.* Adam with an epsilon maximises the margin in none of the norms that we tested, and neither does Muon with Newton-Schulz steps ([notebook 44](44_atlas.ipynb)). On single samples Adam comes near to a norm that the data choose, but some runs are still far from this norm after a million steps ([notebook 46](46_own_norms_and_decay.ipynb)).
# * *Networks.* The theorems are about one layer with fixed tokens. In a network the tokens move. For networks we only
#   compare optimisers, on small examples, and many comparisons stay undecided ([notebook 45](45_atlas_of_networks.ipynb)).
# * *The paper's own sizes.* Our copies of papers A and B lack step sizes, batches and most constants. So we reproduce their results at our own settings. For paper C's synthetic runs we have the paper's settings.
#
# ## To prove
#
# A rule takes $t$ steps of length $\eta$ in a norm $N$, from $W_0=0$. Let $N_{mm}$ be the smallest $N(W)$ with all margins
# at least 1. Show that the least margin of $W_t$ is at most $\eta t/N_{mm}$.
#
# <details><summary>Solution</summary>
#
# Let $g = \min_m\langle A_m, W_t\rangle > 0$. The matrix $W_t/g$ has all margins at least 1, so
# $N(W_t)/g \ge N_{mm}$. From $W_0=0$ the triangle inequality gives $N(W_t) \le \eta t$. Together,
# $g \le \eta t / N_{mm}$.
# </details>
#
# You find all claims, one by one, in [what did not hold](../figures/failures.md) and in the tables of statements of papers
# [A](19_theory_ledger.ipynb), [B](29_preconditioning_ledger.ipynb) and [C](39_mirror_ledger.ipynb).

# %% tags=["set-up"]
# Set-up, no need to read.
about = "The story in six panels, from the committed records of the figures that it names"
run.keep(picture, "poster", about, [], poster.numbers())
