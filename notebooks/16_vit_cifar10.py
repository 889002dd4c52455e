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
# # A vision transformer on CIFAR-10: do all layers grow?
#
# *Side road of page [12](12_joint_training.ipynb) · 8 minutes · [words](words.md).* After it you can tell growth of a layer from a random walk.
#
# **Paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738), **Figure 7**.
#
# **Question.** The theory says that the norm of one attention layer grows without end. Do the weights of a whole vision transformer grow, too? And is the normalised step slower than stochastic gradient descent (SGD) again, as on [page 15](15_vit_mnist.ipynb)?
#
# **The paper's answer.** Yes, twice: normalised SGD is slower than SGD, and the weights of the layers grow.
#
# The *growth* of a layer with weights $\theta$ is $\lVert\theta_t\rVert/\lVert\theta_0\rVert-1$. If the growth is 0.3, the weights are 30 % longer than at the start. If it is negative, they are shorter. But noise makes weights grow, too, even if it favours no direction. So we compare with a random walk of the same steps $\Delta_s$. The root mean square of its length gives the growth $\sqrt{1+\sum_s\lVert\Delta_s\rVert^2/\lVert\theta_0\rVert^2}-1$. This comparison is ours. The paper only says that norms grow.

# %% tags=["parameters"]
# Set-up, no need to read.
scale = "demo"
threads = 1

# %% tags=["set-up"]
# Set-up, no need to read.
import torch
from torch.nn.functional import cross_entropy

from companion import record
from lib.training.studies import DEMO
from papers.studies import kept_curves, smoke, speed

run = record.start("16_vit_cifar10", "A", globals(), None)
torch.set_num_threads(threads)  # sums are split over threads, and another split rounds differently

# %% [markdown]
# ## Growth, in this page
#
# We take ten steps of SGD on one layer, and compute by hand the growth of this layer and the growth of a random walk with the same ten steps. This layer shrinks.

# %%
torch.manual_seed(0)
inputs, labels = torch.randn(64, 5), torch.randint(0, 3, (64,))
W = torch.nn.Linear(5, 3, bias=False).weight
first, walk = W.detach().clone(), 0.0
for _ in range(10):
    (g,) = torch.autograd.grad(cross_entropy(inputs @ W.T, labels), W)
    W = (W - 0.3 * g).detach().requires_grad_()
    walk += float((0.3 * g).square().sum())
grown = float(W.detach().norm() / first.norm()) - 1
by_chance = (1 + walk / float(first.square().sum())) ** 0.5 - 1
print(f"growth {grown:.3f}; of a random walk {by_chance:.3f}")

# %% [markdown]
# ## The whole network
#
# Training takes hours, so this page redraws committed curves. The claim "slower" is *reproduced* if the whole 95 % interval of the ratio of steps lies above 1, *not reproduced* if it lies below 1 or within 0.8 to 1.25, which counts as equally fast, and *undecided* otherwise.

# %%
kept = kept_curves.kept("fig7")
verdict = speed.table(kept, "fig7")
verdict

# %% [markdown]
# * **Steps to the training loss, divided by SGD's.** A dot is one seed; it is hollow if a run missed the target. The bar is the 95 % interval, and the line at 1 is SGD. If the paper is right, the bar of normalised SGD (SNGD) lies right of this line. Here it lies inside the grey area, in which two rules count as equally fast.
# * **Growth of the norm.** A dot is the growth $\|W_t\|/\|W_0\|-1$ of one weight matrix, and the tall line their median. An orange dot is a matrix that grows less than a random walk of its steps would.
#
# The second picture goes further than the paper. In its right panel each mark is one layer at the end. Layers above the thin line grew more than a random walk of the same steps. Layers below the line have hollow marks.

# %%
about = speed.caption(kept, "fig7", verdict)
figure = kept_curves.captioned(speed.draw(kept, "fig7"), about)
figure

# %%
speed.beside(kept)

# %% [markdown]
# ## What we saw
#
# **Here,** normalised SGD needs 0.94 of SGD's steps to the last target, with an interval from 0.81 to 1.10. So it is about as fast, and the claim that it is slower is not reproduced. The claim that norms grow is reproduced: all 19 matrices grow under SGD and Adam, and 18 under normalised SGD. Our own question has a mixed answer. Under Adam every layer grows more than a random walk would. Under SGD and normalised SGD the head grows less than a random walk. The protocol says it in its own words:

# %%
print(verdict.words())

# %% [markdown]
# ## Change this
#
# Predict first, then run. The cell trains a small network on embedded data, with one seed.
#
# 1. Which rule moves its weights most? *Prediction:* Adam moves every coordinate by about its rate, and SGD moves only those with a large gradient.

# %%
found = smoke.once(DEMO["cifar10"], {"SGD": 0.1, "Adam": 1e-3})
for rule in found.rates():
    print(rule, "largest growth of a layer's norm", f"{speed.growth(found, rule)[0].max():.3f}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# At these two rates neither rule does, because the largest growth is nearly the same.
#
# </details>
#
# **To prove.** Take a walk of independent steps $\Delta_s$ of mean zero from $\theta_0$. Show that the mean of $\lVert\theta_t\rVert^2$ is $\lVert\theta_0\rVert^2+\sum_s\mathbb E\lVert\Delta_s\rVert^2$.
#
# <details><summary>Solution</summary>
#
# $\lVert\theta+\Delta\rVert^2=\lVert\theta\rVert^2+2\langle\theta,\Delta\rangle+\lVert\Delta\rVert^2$. The middle term has mean zero, because $\Delta$ is independent of $\theta$ and has mean zero. Add up the steps.
#
# </details>
#
# ## The small print
#
# * *The network* is that of [page 15](15_vit_mnist.ipynb). Our copy of the paper lacks the sizes, batch and rates of Figure 7, so these settings are ours. They are smaller, with six epochs. We left out Polyak's step before the runs, because of its cost. There is no theorem here.
# * *The rules of judgement* were fixed before the runs, in [protocol.md](protocol.md). For the claim that norms grow, we judge the median over the matrices, for each of the three rules. We read this sentence as a claim only after the runs.
# * *Adam* needs 0.37 of SGD's steps, with an interval from 0.16 to 0.85. This is an observation. Our copy does not say how fast Adam is here. A summary by others says that Adam is about as fast as SGD on vision data.
# * *Accuracy on the test set:* Adam 59.6 %, SGD 51.2 %, normalised SGD 50.4 %, and logistic regression on the pixels 41.7 %.
# * *Many claims.* Each claim is judged alone, at the 95 % level, with its p-value. After Holm's correction for all 24 real-data claims, only our own claim on SGD's layers and a random walk stays decided. The claims that norms grow are not among the 24.
# * *Train it again* with `python -m lib.training cifar10_50000`, in 3.3 processor hours. This needs the data.

# %% tags=["set-up"]
# Set-up, no need to read.
if scale != "demo":  # a demo run redraws what is kept and records nothing
    numbers = speed.numbers(kept)
    kept_curves.save(run, "fastrates_fig7", "Figure 7", kept, figure, about, verdict, numbers=numbers)
