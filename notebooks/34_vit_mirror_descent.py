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
# # Mirror descent against Adam on a vision transformer
#
# **Paper C** (*Optimizing Attention with Mirror Descent*, arXiv 2410.14581), its **vision experiment** on CIFAR-10.
#
# **Question.** Does mirror descent reach Adam's accuracy with sparser weights?
#
# **The paper's answer.** Adam and $\ell_{1.1}$ mirror descent end equal (0.80 to 0.82 after 1,000 epochs), Adam is
# ahead early, and **the weights of $\ell_{1.1}$ are sparser**.
#
# **Here:** after 30 epochs Adam has 48.2 % and $\ell_{1.1}$ 40.4 %; whether they end alike after 1,000 is **not tested at
# this horizon**. At equal training loss the weights of $\ell_{1.1}$ are sparser, its Hoyer index higher by 0.085:
# **reproduced**. Adam is ahead early, it needs 0.42 of the steps to the same accuracy: **reproduced** too, but by a
# measure that we chose after the runs.
#
# ## The statement
#
# $g_t$ is the mini-batch gradient, $\theta$ all parameters of the network, $\eta$ a rate, $1<p\le2$ an exponent.
#
# | rule | step |
# |---|---|
# | $\ell_p$ mirror descent | $\lvert\theta_{t+1}\rvert^{p-1}\mathrm{sgn}\,\theta_{t+1} = \lvert\theta_t\rvert^{p-1}\mathrm{sgn}\,\theta_t - \eta\, g_t$, entry by entry |
# | Adam | moments of $g_t$, per coordinate |
#
# The network is the plain vision transformer (ViT), without the two additions for small data sets that notebooks 15
# and 16 use: shifted patches and locality attention. Pictures are cropped and mirrored at random. The paper's sizes are 512 wide, 6 deep, patch 4, 48 pixels, 1,000 epochs. **Ours are smaller**, and stand in
# [protocol.md](protocol.md). There is no theorem here, so there are no hypotheses to check.

# %% tags=["parameters"]
scale = "demo"
threads = 1
loss_tolerance = 0.15

# %%
from dataclasses import replace

import torch
from torch.nn.functional import cross_entropy

from lib.companion import claims, plots, record
from lib.training import MirrorDescent, rules
from lib.training.studies import DEMO
from papers import kept_curves, smoke
from papers.c import reviews_figure, vision

run = record.start("34_vit_mirror_descent", "C", globals(), None)
plots.set_style()
torch.set_num_threads(threads)  # sums are split over threads, and another split rounds differently

# %% [markdown]
# ## The mirror step, in this page
#
# The step is an addition in the mirror image $|\theta|^{p-1}\mathrm{sgn}\,\theta$. For $p = 1.1$ the way back
# is a tenth power: entries that are small in the image become tiny, and the weights sparse.


# %%
def mirror_step(theta, gradient, rate, p):
    image = theta.sign() * theta.abs() ** (p - 1) - rate * gradient
    return image.sign() * image.abs() ** (1 / (p - 1))


torch.manual_seed(0)
inputs, labels = torch.randn(8, 5), torch.arange(8) % 3
for name, p in (("l1.1", 1.1), ("l2", 2.0)):
    layer = torch.nn.Linear(5, 3, bias=False).double()
    before = layer.weight.detach().clone()
    cross_entropy(layer(inputs.double()), labels).backward()
    rules.RULES[name](layer.parameters(), 0.1, None).step()
    by_page = mirror_step(before, layer.weight.grad, 0.1, p)
    torch.testing.assert_close(layer.weight.detach(), by_page)
    print(f"{name}: the page's step is the library's")

# %% [markdown]
# ## What the data decide
#
# The protocol was fixed before the runs and stands in [protocol.md](protocol.md): rates, seeds, target
# losses, intervals, and what counts as **reproduced**, **not reproduced** or **undecided**. The measure of
# the early lead is a later one. **No study is
# trained here.** The numbers and pictures of this section are redrawn in seconds from the committed curves of
# those runs; `python -m lib.training vit` trains them anew in 0.6 processor
# hours, and needs the data.
#
# A row is judged by itself, at 95 %; its p is the level at which it would just be decided. Held against all 24
# claims of the real-data studies together (Holm's rule, 5 %), the row on sparsity stays, and that on the early lead
# does not count, since its measure was chosen after the runs.
# `python -m papers.redraw` prints that table.
#
# The early lead is read as in the paper's plot: the steps of both rules to the same test accuracy, here the best that
# both reach. Sparsity is compared at the same training loss, since weights move as long as there is loss. The Hoyer index
# is 0 where all entries of a matrix are equally large, and 1 where one is left.

# %%
kept = kept_curves.kept("vit", needed=scale != "demo")
verdict = kept and vision.table(kept)
verdict

# %% [markdown]
# * **Training loss, test accuracy.** Look at how far apart the two rules end. A thin line is a seed. The marks
#   are the steps to the best accuracy that both reach, a pair for each seed.
# * **Hoyer index.** A line is a seed; the loss falls from left to right. Look at one training loss: which line is higher?

# %%
MARKS = "lines: medians, thin: runs; marks: the best accuracy that both reach, by seed"
about = kept and reviews_figure.caption("vision experiment", kept, MARKS, verdict)
figure = kept and kept_curves.captioned(reviews_figure.vision_figure(kept), about)
figure

# %% [markdown]
# A ring marks the rate that was chosen. Look at whether it lies inside its grid.

# %%
kept and reviews_figure.rates(kept)

# %% [markdown]
# ## What we saw
#
# In the words of the protocol, from the committed curves:

# %%
print(verdict.words() if kept else "undecided: the study vit has not run to its end")

# %% [markdown]
# ## Smoke test
#
# At demo scale the two rules take a few dozen steps on coloured shapes that are drawn here (or on CIFAR-10 where it is
# at hand). It shows that the code runs. **It says nothing about the paper's claims.**

# %%
live = smoke.train(DEMO["vit"]) if scale == "demo" else None
smoked = live and kept_curves.smoke_figure(live)
smoked

# %% tags=["nbval-check-output"]
print(", ".join(live.configuration["rates"]) if live else "not at this scale")

# %% [markdown]
# ## Change this
#
# Predict first, then run. Each cell trains the small network of the smoke test with one seed, for 200 steps in place of
# 80: after 80 all losses are still near that of guessing, $\log 10 = 2.30$. One seed cannot rank losses that differ by
# less than a tenth.
#
# 1. The mirror exponent. *Prediction:* $\ell_2$ is SGD. At the same rate, is $\ell_{1.1}$ slower or faster?

# %%
longer = replace(DEMO["vit"], horizon=200)
print(smoke.last_losses(longer, {"l1.1": 0.05, "l2": 0.05}))

# %% [markdown]
# Neither by much: at this rate the two end about a tenth apart.
#
# 2. Your own rule: one line in `RULES`, here mirror descent with $p = 1.5$. *Prediction:* between
#    $\ell_{1.1}$ and $\ell_2$?

# %%
rules.RULES["l1.5"] = lambda parameters, rate, cap: MirrorDescent(parameters, rate, 1.5)
print(smoke.last_losses(longer, {"l1.5": 0.05}))

# %% [markdown]
# It is not: it ends above both. The mirror image lies between theirs, and the loss need not.
#
# 3. A smaller $p$. *Prediction:* the way back from the mirror image is the power $1/(p-1)$, so for $p = 1.05$ most
#    entries hardly move at this rate. Does the loss fall more slowly than for $p = 1.1$ above?

# %%
rules.RULES["l1.05"] = lambda parameters, rate, cap: MirrorDescent(parameters, rate, 1.05)
print(smoke.last_losses(longer, {"l1.05": 0.05}))

# %% [markdown]
# It does not: it ends no higher than $p = 1.1$.

# %%
made = (kept, figure, about, verdict)
if live:
    told = kept_curves.smoke_caption("vision experiment", live)
    made = (live, smoked, told, claims.Table())
numbers = smoke.numbers(live, loss_tolerance) if live else vision.numbers(kept)
kept_curves.save(run, "mirror_vit", "vision experiment", *made, numbers)
