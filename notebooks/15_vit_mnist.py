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
# # Step-size rules on a vision transformer: handwritten digits
#
# *Side road of page [12](12_joint_training.ipynb) · 8 minutes · [words](words.md).* After this page you can say on which data the fast rules do not help.
#
# **Paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738), **Figure 6**.
#
# **Question.** Paper A says that normalised steps train faster than plain stochastic gradient descent (SGD) on language data ([page 14](14_bert.ipynb)). Is this also true on images?
#
# **The paper's answer.** No. The paper's counterexample is a vision transformer (ViT) on MNIST: normalised SGD trains more slowly than SGD, and Adam is not significantly faster than SGD.
#
# Page 14 gives formulas for the rules SGD, Adam, SNGD (normalised SGD) and SPS (Polyak's step, called "Polyak's rule" in the figures), and code for the last two. The network is a ViT for small data sets, taken from the code that paper A names.

# %% tags=["parameters"]
# Set-up, no need to read.
scale = "demo"
threads = 1

# %% tags=["set-up"]
# Set-up, no need to read.
import torch

from companion import record
from lib.training.studies import DEMO
from papers.studies import kept_curves, smoke, speed

run = record.start("15_vit_mnist", "A", globals(), None)
torch.set_num_threads(threads)  # sums are split over threads, and another split rounds differently

# %% [markdown]
# ## How many steps does each rule take?
#
# Training takes hours, so this page draws training curves that are stored in the repository. The study sets three target losses for the training data; the claims are judged by the last of them. We count the steps that a rule takes to reach this target, and divide them by the number that SGD takes with the same seed.
#
# We compute the 95 % confidence interval of this ratio. The claim that normalised SGD is slower is *reproduced* if the whole interval lies above 1. This claim is *not reproduced* if the interval lies below 1, or between 0.8 and 1.25, the range in which we call two rules equally fast. Otherwise it is *undecided*. The claim that Adam gains nothing over SGD is reproduced if the interval lies above 1 or between 0.8 and 1.25.

# %%
kept = kept_curves.kept("fig6")
verdict = speed.table(kept, "fig6")
verdict

# %% [markdown]
# The first of the next two figures decides the claims:
#
# * **Steps to the training loss, divided by SGD's.** Each dot shows the ratio for one seed; a hollow dot means that a run missed the target. Each bar shows the 95 % interval of the ratio, the number beside the bar is the mean ratio, and the line at 1 stands for SGD. If the paper is right, the bar of normalised SGD lies to the right of this line. Adam gains nothing if its bar lies inside the grey area or to the right of the line.
# * **Training loss.** Each thin line shows one run, up to the step that reaches the target loss. Each large mark shows the geometric mean of the numbers of steps in which the runs of one rule reach the target loss.
#
# The second figure adds the test accuracy during training, the final accuracy on all rows of the test data (large marks), and the step sizes that the rules took.

# %%
about = speed.caption(kept, "fig6", verdict)
figure = kept_curves.captioned(speed.draw(kept, "fig6"), about)
figure

# %%
speed.beside(kept)

# %% [markdown]
# Was the comparison fair? We tried several learning rates for each rule. In the next figure, a ring marks the learning rate that reached the last target in the fewest steps. Each ring lies inside the range of learning rates that we tried, except that SPS is best with its largest cap. A larger cap would change nothing, because no step reaches this one.

# %%
speed.rates(kept)

# %% [markdown]
# ## What we saw
#
# **Here,** normalised SGD takes 1.40 times as many steps as SGD to reach the last target. The interval is 1.01 to 1.93, so the paper's claim is reproduced. Adam takes 0.95 times as many steps as SGD, with the interval 0.53 to 1.70, so the claim that Adam gains nothing is undecided. These are the verdicts, in the wording of the table:

# %%
print(verdict.words())

# %% [markdown]
# ## Change this
#
# Make a prediction, then run the cell. It trains a small network on a small built-in data set, with one seed.
#
# 1. Multiply the learning rate of SNGD by ten. *Hint:* each step is ten times as long, whatever the gradient is. *Predict:* does the loss fall faster, or does it not fall at all?

# %%
small = DEMO["mnist"]
for rate in (0.1, 1.0):
    print("rate", rate, smoke.last_losses(small, {"SNGD": rate}))

# %% [markdown]
# <details><summary>Answer</summary>
#
# The loss falls faster here. With steps of length 0.1, so few steps do not move the weights far enough.
#
# </details>
#
# You can also repeat the other exercise of [page 14](14_bert.ipynb) here, with a rule of your own.
#
# ## The small print
#
# * *The network* is `vit_for_small_dataset` of lucidrains/vit-pytorch, after Lee, Lee and Song (2021). Before cutting the image into patches, it stacks the image with four copies of itself, each shifted by one pixel along an axis; so every patch also contains the corresponding pixels of the shifted copies. (Lee, Lee and Song shift by half a patch along the diagonals.) One of our tests copies the weights of our network into a plain version of that code, to compare the two. Our copy of the paper lacks the depth, the width, the patch size, the batch size and the learning rates, so these settings are ours. No theorem of the paper covers this network.
# * *The criteria* were fixed before the runs, in [protocol.md](protocol.md). They require that the network is more accurate than logistic regression and nearest neighbours on the same images, and it is.
# * *Other targets.* For the first two targets, the interval of normalised SGD extends below 1. Adam reaches both of these targets faster than SGD.
# * *Many claims.* We judge each claim separately, at the 95 % level, and give its p-value. After Holm's correction for the 24 claims of [the protocol](protocol.md) ([page 14](14_bert.ipynb) compares them with the 21 claims in the README), the claim about normalised SGD is undecided, because there are only three seeds.
# * *An earlier study* used a smaller network with other shifts, 10,000 images and five seeds. Its ratios were 1.19 for normalised SGD and 0.81 for Adam.
# * *To train again,* run `python -m lib.training mnist_60000` (2.4 processor hours). You need the data for this.

# %% tags=["set-up"]
# Set-up, no need to read.
if scale != "demo":  # a demo run redraws what is kept and records nothing
    numbers = speed.numbers(kept)
    kept_curves.save(run, "fastrates_fig6", "Figure 6", kept, figure, about, verdict, numbers=numbers)
