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
# *Side road of page [12](12_joint_training.ipynb) · 8 minutes · [words](words.md).* By the end, you will be able to tell an undecided claim from a refuted one, and say what the fast rules gain on digits.
#
# This page is about **paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738), **Figure 6**.
#
# **Question.** Paper A says that, on language data, a network trains faster with normalised steps than with plain stochastic gradient descent (SGD); see [page 14](14_bert.ipynb). Is this also true for images?
#
# **The paper's answer.** No. The paper's counterexample is a vision transformer (ViT) that is trained on MNIST: normalised SGD is slower than SGD, and Adam is not significantly faster than SGD.
#
# We compare four rules: SGD, Adam, SNGD (normalised SGD) and SPS, which we call Polyak's rule. Page 14 gives their formulas, and code for SNGD and SPS. The network is a ViT for small data sets, which we take from the code that paper A names.

# %% tags=["parameters"]
# Set-up, no need to read.
scale = "demo"
threads = 1

# %% tags=["set-up"]
# Set-up, no need to read.
import torch

from companion import record
from lib.training.studies import DEMO
from papers.studies import kept_curves, paper_form, second_round, smoke, speed

run = record.start("15_vit_mnist", "A", globals(), None)
torch.set_num_threads(threads)  # sums are split over threads, and another split rounds differently

# %% [markdown]
# ## How many steps does each rule take?
#
# Training takes hours, so this page draws runs that are stored in the repository. We trained in two rounds. The first round had three seeds and was exploratory. The second round has 28 new seeds of SGD, Adam and normalised SGD, and we committed [its protocol](confirmation.md) before it began. The second round decides the claims; page [51](51_fresh_seeds.ipynb) explains how. (The protocol planned 24 seeds. A script measured on the first six how much the numbers of steps vary between the seeds of a rule, but compared no two rules. They varied more than planned, so by the rule of the protocol four more seeds were run. Polyak's rule was left out of this round, because no claim on digits is about it.)
#
# The protocol fixes three target values of the training loss, 0.3, 0.2 and 0.1, and the last and lowest of them decides the claims. The loss is that of 512 fixed training images, read every 10 steps. The target is reached when the mean of three successive readings is at most the target, and we count the steps up to the middle one of these readings. We take the number of steps that a rule needs to reach the last target, and divide this number by the number of steps that SGD takes with the same seed.
#
# For each rule we compute two confidence intervals of this ratio from the seeds: the usual 95 % interval, and a wider one, which is corrected by Holm's procedure for all 21 claims of the protocol. The corrected interval decides:
#
# | claim | reproduced if the corrected interval lies | not reproduced if it lies |
# |---|---|---|
# | normalised SGD is slower than SGD | above 1 | below 1; or between 0.8 and 1.25 with 1 inside it |
# | Adam gains nothing over SGD | above 1, or between 0.8 and 1.25 | below 0.8 |
#
# In all other cases a claim is *undecided*. Two rules count as equally fast between 0.8 and 1.25. The paper says that Adam is not *significantly* faster; what counts as significant is our reading. The next table has the verdicts. Its brackets are the 95 % intervals, so they need not agree with the verdicts: these are read from the corrected intervals, which are printed below the table. In a row, the number called p belongs to the claim alone, and Holm's p is corrected for all 21 claims. A claim about speed can be decided in two ways, because one rule is faster or because both are equally fast, and p is that of the way which comes first. For normalised SGD it is that of equal speed.

# %%
study = second_round.read("fig6")
study.claims

# %%
for claim, (low, high) in study.corrected.items():
    print(f"{claim}: corrected interval {low:.3f} to {high:.3f}")

# %% [markdown]
# The next figure decides the claims:
#
# * **Steps to the training loss, divided by SGD's.** Each dot shows the ratio for one seed; equal dots are stacked. The thick bar is the 95 % interval of the ratio, the thin bar is the corrected interval, and the number beside them is the mean ratio. The vertical line at 1 stands for SGD. If the paper is right, the thin bar of normalised SGD lies to the right of this line. The thin bar of Adam should then lie inside the grey area or to the right of the line, which would mean that Adam gains nothing.
# * **Training loss.** Each thin line shows the loss of one run, up to the step at which it reaches the target loss. Each large mark belongs to one rule. Its horizontal position is the number of steps that the runs of this rule take to reach the target loss (the geometric mean over the runs).

# %%
about = second_round.caption(study)
figure = kept_curves.captioned(second_round.draw(study), about)
figure

# %% [markdown]
# The next figure shows the step sizes that the rules took in these runs. A line is the median over the runs that have not ended yet, and each small mark is the end of a run. SGD's step size is its learning rate, 0.4, the line at the top. Adam is missing, because each of its coordinates has a step size of its own. The step size of normalised SGD is its learning rate divided by the length of the gradient; it is drawn as a running mean over 200 steps, which stays below SGD's (single steps can be longer).

# %%
speed.beside(study.curves)

# %% [markdown]
# The next figure has the form of the paper's Figure 6, and no claim is decided by it. Its runs are those of the first round, in which we also trained with Polyak's rule and measured the test accuracy during training. The figure shows the training loss of the minibatches and the test accuracy, both over epochs. Until about epoch 7.5 the loss of Adam is smaller than that of SGD in every seed, and at epoch 8.5 it is a little larger. (The claims are about the loss 0.1, which the rules reach at epoch 2 to 3.) At the end, the losses of normalised SGD and of Polyak's rule lie above both. In the lower panel, the accuracies at the end differ by less than one percentage point. The 95 % intervals there are over the seeds, and leave out the error that is due to the choice of the test images. A run of this round stops early if its loss on fixed training images has fallen to 0.03.

# %%
first_round = kept_curves.kept("fig6")
paper_form.figure(first_round)

# %% [markdown]
# Was the comparison fair? Before the first round we tried four learning rates of each rule, with one seed. The next figure shows how many steps each of these trials took to the last target. Where a mark is missing, the target was not reached in the 1,200 to 1,800 steps of the trial. (For Polyak's rule the horizontal axis is its cap, the upper limit on its step size.) A ring marks the learning rate with the fewest steps, which was used in the first round. If the ring were at the end of the range that we tried, a learning rate outside this range might be better still. Each ring lies inside the range, with one exception: Polyak's rule is best with the largest value of its cap. A larger cap would change nothing, because no step reaches even this one. Normalised SGD takes nearly equally many steps with three of its four rates.
#
# Before the second round, the best rate of SGD, Adam and normalised SGD was compared with the better of its neighbours on three seeds (the one from before, and two new ones), by the median of the numbers of steps. All three rules kept their rates. But for normalised SGD this was close: with the rate 0.2 it took 1470, 1230 and 1240 steps, and with the rate 0.4 it took 1480, 1310 and 960, so that the geometric mean would have chosen 0.4. For SGD the other rate, 0.8, diverged with one of the three seeds. The verdict on normalised SGD is less robust than its interval suggests, then: over the best two rates of both rules, the ratio of the median numbers of steps lies between 0.63 and 1.42 (page [51](51_fresh_seeds.ipynb)).

# %%
speed.rates(first_round)

# %% [markdown]
# ## What we saw
#
# **Here,** the claim that normalised SGD is slower is *not reproduced*, by a narrow margin, and the claim that Adam gains nothing is *undecided*. Normalised SGD takes 1.11 times as many steps as SGD (1.03 to 1.20). This interval lies above 1, as the paper says. But the corrected interval, 0.996 to 1.245, contains 1 and lies just within the bounds of equal speed, which the figure hardly shows. So by the protocol the two rules count as equally fast. (Before the study on CIFAR-10 was judged, the corrected interval was a little longer, and the claim was undecided. If two more claims of the protocol had been decided, it would be shorter and lie above 1. So this verdict says more about the number of decided claims than about digits.) Adam takes 0.70 times as many steps as SGD (0.63 to 0.78), so it is faster than SGD; but the claim that Adam gains nothing would be *not reproduced* only if the corrected interval lay below 0.8, and this interval reaches to 0.81. On language data, by contrast, all claims of page [14](14_bert.ipynb) are reproduced.
#
# At the first two targets normalised SGD is clearly slower than SGD, with intervals well above 1, and only at the last one do the two come close; page [51](51_fresh_seeds.ipynb) has the ratios.
#
# In the first round, with three seeds, normalised SGD took 1.40 times as many steps as SGD, and Adam 0.95 times as many. (That round counted the steps to the last of the three readings, not to the middle one, which hardly changes the ratios.) The intervals of that round were wide, and contain the new ratios. The next cell shows its verdicts, which are not corrected.

# %%
print(speed.table(first_round, "fig6").words())

# %% [markdown]
# ## Change this
#
# Make a prediction, then run the cell, which trains a small network on a small built-in data set with one seed. (If you have set `DATA_DIR`, it trains on a sample of the real data instead, and the answer may differ.)
#
# 1. Multiply the learning rate of SNGD by ten, and by ten again. *Hint:* each step is then ten times as long, whatever the gradient is. *Predict:* does the loss fall faster than before, or does it no longer fall at all? A network that guesses has the loss $\log 10 = 2.30$.

# %%
small = DEMO["mnist"]
for rate in (0.03, 0.3, 3.0):
    print("rate", rate, smoke.last_losses(small, {"SNGD": rate}))

# %% [markdown]
# <details><summary>Answer</summary>
#
# First it falls faster, and then it no longer falls at all. With steps of length 0.03, the weights do not move far enough in so few steps. With steps of length 3, the loss at the end is above the loss of guessing.
#
# </details>
#
# You can also repeat the other exercise of [page 14](14_bert.ipynb) here, with a rule of your own.
#
# ## The small print
#
# * *The network* is `vit_for_small_dataset` of lucidrains/vit-pytorch, after Lee, Lee and Song (2021). Before the network cuts an image into patches, it stacks the image with four copies of itself, each shifted by one pixel along an axis. Every patch therefore also contains the corresponding pixels of the shifted copies. (Lee, Lee and Song shift the image by half a patch along the diagonals.) To check our implementation, one of our tests copies the weights of our network into a plain version of the lucidrains code and compares the outputs of the two. Our copy of paper A does not give the depth, the width, the patch size, the batch size or the learning rates, so these settings are ours: width 64, depth 4, two heads, patches of 7 by 7 pixels, minibatches of 128 images, and the learning rates 0.4 for SGD, 0.001 for Adam and 0.2 for normalised SGD. No theorem of the paper covers this network.
# * *The criteria* were fixed before the runs. They require that the best rule makes the network more accurate than logistic regression and nearest neighbours on the same images. This was so in the first round, whose runs went on to a lower loss. The runs of the second round end at the target loss. There the accuracy is 96.6 to 96.7 %, a little below that of nearest neighbours, 97.0 %.
# * *Other targets.* The verdicts above are for the last target. Page [51](51_fresh_seeds.ipynb) has the ratios at all three targets.
# * *How the verdict changed.* The studies were judged one after the other, and when more of the 21 claims were decided, the corrected intervals became shorter. This has turned the claim about normalised SGD from *undecided* to *not reproduced*; page [51](51_fresh_seeds.ipynb) says more.
# * *Many claims.* [The protocol of the first round](protocol.md) had 24 claims; none of those on this page was decided after Holm's correction.
# * *An earlier study* used a smaller network with other shifts, 10,000 images and five seeds. In that study, normalised SGD took 1.19 times as many steps as SGD, and Adam took 0.81 times as many steps as SGD.
# * *To train again,* run `python -m papers.studies.confirm mnist_60000` (3 processor hours); [REPRODUCING](../REPRODUCING.md) says from which commit and with which folders. This command needs the MNIST data.

# %% tags=["set-up"]
# Set-up, no need to read.
if scale != "demo":  # a demo run redraws what is kept and records nothing
    made = study.curves, figure, about, second_round.table(study)
    numbers = second_round.numbers(study)
    kept_curves.save(run, "fastrates_fig6", "Figure 6", *made, numbers=numbers)
