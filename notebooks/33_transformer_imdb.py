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
# # Mirror descent on film reviews: accuracy, attention and sparsity
#
# *Side road of page [45](45_atlas_of_networks.ipynb) · 10 minutes · [words](words.md).* By the end, you will be able to say when two rules may be compared by a network, and how such a comparison is decided.
#
# This page is about **paper C** (*Optimizing Attention with Mirror Descent*, arXiv 2410.14581), in particular its **experiments on IMDb**.
#
# **Question.** The exponent $p$ of mirror descent decides in which norm attention maximises its margin ([notebook 30](30_mirror_descent.ipynb)). Does a norm that favours sparse weights help a text classifier? That is, does the classifier generalise better, and does it have sparser weights and sharper attention?
#
# **The paper's answer.** Yes. **$\ell_{1.1}$ generalises best, then $\ell_3$, then $\ell_2$.** (We write $\ell_p$ for mirror descent with the exponent $p$.) In the table that is stored with the authors' code, the accuracies of the three rules with a network of size 3 are 82.6, 81.3 and 80.6 %. After training with $\ell_{1.1}$, the network has fewer large weights than after training with $\ell_2$, and it attends more sharply, that is, to fewer tokens. Our copy of the paper does not contain the experiments, so this answer is our reading of the results that are stored with the authors' code.
#
# ## The statement
#
# The network is a transformer encoder without biases. It has as many layers as heads; this number is its *size*. A classifier reads the output of the encoder at the first token. We train all parameters $\theta$ by $\ell_p$ mirror descent, entry by entry:
#
# $$|\theta_{t+1}|^{p-1}\,\mathrm{sgn}\,\theta_{t+1} = |\theta_t|^{p-1}\,\mathrm{sgn}\,\theta_t - \eta\, g_t .$$
#
# Here $g_t$ is the gradient of the loss, summed over the batch, and $\eta$ is the learning rate. For $p = 2$ this is gradient descent.
# No theorem of the paper covers such a network, so there are no hypotheses to check.
#
# The paper repeats its training ten times, always from a copy of the same initial model. **Here every seed has its own start, its own order of batches and its own dropout.** They are the same for all three rules, so the runs of a seed are *paired*: we compare two rules by their difference in each seed. We trained two networks:
#
# | | reduced network | paper's size |
# |---|---|---|
# | size (layers and heads), width | 2, 32 | 3, 384 |
# | a review is read up to | 256 tokens | 512 tokens |
# | batch, steps | 50, 9,600 (19 epochs) | 100, 4,000 (16 epochs) |
# | learning rates of $\ell_{1.1}$, $\ell_2$, $\ell_3$ | 0.002, 0.004, 0.002: for each rule the better of two in a race on three other seeds, by the accuracy on held-out training reviews | 0.0008, 0.0004, 0.000004: the paper's |
# | seeds | 7 | 4 |
# | verdicts | yes | no |
#
# We trained in two rounds, an exploratory one and one that decides (see below). The two rates of a rule in the race are the rate of the first round and the better of its neighbours. For $\ell_3$ it is different: the first round used 0.004, and with the next larger rate, 0.008, the network learned nothing. The protocol excludes a rate so close to failure, so the race was between 0.002 and 0.001.
#
# Size 3 is one of the paper's sizes. Our networks read whole words (the reduced network knows 8,000 of them), whereas the paper's network reads word pieces. Where dropout acts, and how the weights are drawn at the start, are our choices. The paper trains for 72 to 162 epochs, until 99.5 % of the training reviews are classified correctly.

# %% tags=["parameters"]
# Set-up, no need to read.
scale = "demo"
threads = 1

# %% tags=["set-up"]
# Set-up, no need to read.
import numpy as np
import torch
from scipy import stats

from companion import record
from lib.training import rules
from lib.training.studies import DEMO
from papers.studies import judged_reviews, kept_curves, reviews, second_round, smoke

run = record.start("33_transformer_imdb", "C", globals(), None)
torch.set_num_threads(threads)  # sums are split over threads, and another split rounds differently

# %% [markdown]
# ## The mirror step, written out

# %%
def mirror_step(theta, gradient, rate, p):
    image = theta.sign() * theta.abs() ** (p - 1) - rate * gradient
    return image.sign() * image.abs() ** (1 / (p - 1))


torch.manual_seed(0)
inputs, labels = torch.randn(8, 5), torch.arange(8) % 3
for name, p in (("l1.1", 1.1), ("l3", 3.0)):
    layer = torch.nn.Linear(5, 3, bias=False).double()
    before = layer.weight.detach().clone()
    torch.nn.functional.cross_entropy(layer(inputs.double()), labels).backward()
    rules.optimiser(name, layer, rate=0.1).step()
    by_page = mirror_step(before, layer.weight.grad, 0.1, p)
    torch.testing.assert_close(layer.weight.detach(), by_page)
    print(f"{name}: the page's step is the library's")

# %% [markdown]
# ## What the data decide
#
# **The results on this page require no training.** The figures are drawn from runs that are stored in the repository. The first round was exploratory: three seeds of the reduced network, and four of the network of the paper's size. The second round has seven new seeds of the reduced network. We committed [its protocol](confirmation.md) before any run of it, and some details when the races for the learning rates had begun, but before any judged seed. Later additions concern all studies; page [51](51_fresh_seeds.ipynb) lists them. Film reviews were judged last, after the other five studies. The second round decides the claims; page [51](51_fresh_seeds.ipynb) explains how. (A *claim* is a statement of the paper that can be judged by a measured number. There are seven on this page: three about accuracy, three about sparsity, and one about attention.) To train the reduced network again, run `python -m papers.studies.confirm imdb_256` (9.3 processor hours with the race); [REPRODUCING](../REPRODUCING.md) says from which commit and with which folders. The network of the paper's size was trained on one H100; its twelve runs took 21 minutes, three at a time. [protocol.md](protocol.md) says how, at the end under "Paper C's reviews at its own size". Both need the data.
#
# **When may two rules be compared?** A network that has hardly learned anything says little about accuracy or attention. So the protocol has a condition for each rule, its *gate*, which is about the accuracy on all test reviews at the end of training. First, the mean over the seeds must be at least the paper's accuracy minus two standard deviations of the rule's own seeds. (The paper's accuracies are those of size 3, and our network is smaller.) Second, in every seed the accuracy must be above one half by two standard errors. If one of the two rules of a claim fails, the claim is undecided.
#
# In the first round the condition was stricter: the network had to be more accurate than a linear classifier on word counts (a *bag of words*). No network was, nor is the paper's, and so the first round decided nothing. We knew this when we chose the new condition, and we knew that in the first round the reduced network's mean accuracies of all three rules were above the paper's. The new condition is loosest for a rule whose seeds differ most. The next cell prints what it requires of the reduced network, and what it would require of the network of the paper's size, in which $\ell_3$ fails it.

# %%
study = second_round.read("imdb")
larger = kept_curves.kept("imdb_paper")
for name, runs in judged_reviews.networks(study, larger).items():
    print(name)
    for rule, paper in reviews.PAPER.items():
        last = np.array([run.hits.mean() for run in runs.runs(rule)])
        required = paper - 2 * last.std(ddof=1)
        chance = 0.5 + 2 * np.sqrt(last * (1 - last) / len(runs.runs(rule)[0].hits)).max()
        print(f"  {rule:4}: mean {last.mean():.1%}, required {required:.1%}; worst seed {last.min():.1%}, required {chance:.1%}")

# %% [markdown]
# A claim is judged by the confidence interval of the difference of the two rules over the seeds. The intervals of accuracies and of attention also cover the sampling error of the test reviews. Seven of the protocol's 21 claims are on this page. Since all 21 are tested together, Holm's procedure tests them in the order of their p-values, the smallest one first, each at a level of its own, and stops at the first claim that it cannot decide. A claim is *reproduced* if its whole interval at this level, the *corrected interval*, lies above 0, *not reproduced* if it lies below 0, and otherwise *undecided*. A claim that the procedure does not reach is undecided, even if the interval at which it would be tested excludes 0. (The levels come nearer to 95 % from claim to claim; that of the last one is 95 %.) In the table, the brackets are the 95 % intervals, so they need not agree with the verdicts. "p" is the p-value of the claim alone, and "Holm's p" is the corrected one. (The p of `sparsity.K` is 1, because its two estimates have opposite signs.)

# %%
study.claims

# %% [markdown]
# The next cell prints the corrected intervals. The claims about sparsity have two of them, and the verdict must be the same for both: one is for the end of training and the other ("matched") for equal training accuracy. The table shows only the first.

# %%
for claim in study.claims:
    for way in judged_reviews.ways(study, claim):
        low, high = way.corrected
        print(f"{claim.id:18} {way.name:10} {way.interval.estimate:+.4f}  ({low:+.4f} to {high:+.4f}, level {study.levels[claim.id]:.2%})")

# %% [markdown]
# ## Accuracy
#
# For each network size and each rule, the authors' table gives two accuracies in percent, as means over the runs: the accuracy after the last epoch and, here in brackets, the largest accuracy over all epochs.
#
# | | size 3 | size 4 | size 6 |
# |---|---|---|---|
# | $\ell_{1.1}$ | 82.6 (83.5) | 82.9 (83.4) | 78.1 (82.6) |
# | $\ell_2$ | 80.6 (81.7) | 80.0 (81.1) | 80.1 (81.0) |
# | $\ell_3$ | 81.3 (82.6) | 80.9 (82.4) | 79.5 (80.7) |
#
# At size 6 the order after the last epoch is another one: there $\ell_{1.1}$ is last, and its runs differ most. Our claims are about the order at size 3. The upper part of the figure compares our accuracies at the end with those of size 3 after the last epoch. The claims are about the differences between rules, in the lower part. There the accuracy of a run is the mean over its last four evaluations on all 25,000 test reviews, so the differences are others than in the upper part: $\ell_{1.1}$ is ahead of $\ell_2$ by 1.0 points in the lower part, and by 1.4 in the upper one. (A run is evaluated every 400 steps.) A star is the difference of the paper's accuracies after the last epoch. In which of the three pairs is the paper's order reproduced?

# %%
def picture(kind):
    """The figure of one kind of claims, and its caption."""
    about = judged_reviews.caption(study, larger, kind)
    return kept_curves.captioned(judged_reviews.draw(study, larger, kind), about), about


pictures = {kind: picture(kind) for kind in judged_reviews.KINDS}
pictures["imdb"][0]

# %% [markdown]
# The next cell shows how far the runs have come: the share of training reviews that are classified correctly at the end, measured on every tenth of the 25,000. The paper stops at 99.5 %. It also shows the largest accuracy of a run and the mean of its last four, on every tenth test review.

# %%
for name, runs in judged_reviews.networks(study, larger).items():
    reached = {rule: [run.metrics["training_accuracy"][-1] for run in runs.runs(rule)] for rule in reviews.PAPER}
    print(f"{name:24}", *(f"{rule}: {np.mean(each):.1%}" for rule, each in reached.items()), sep="  ")
    for rule in reviews.PAPER:
        accuracy = np.array([run.metrics["test_accuracy"] for run in runs.runs(rule)])  # (seeds, evaluations)
        print(f"  {rule:4}: largest accuracy {accuracy.max(1).mean():.1%}, mean of the last four {accuracy[:, -4:].mean():.1%}")

# %% [markdown]
# ## How large the weights are
#
# The authors' notebook counts the entries above 0.06 in absolute value in a model of size 6. As we read its cells, these are the entries of the key, query and value matrices $K$, $Q$ and $V$. The counts for these three matrices are 18,206, 13,964 and 7,643 after training with $\ell_{1.1}$, and 27,224, 14,654 and 10,127 after training with $\ell_2$.
#
# A count depends on its threshold. So our claims are about the **Hoyer index**, which needs none. (We chose this index after runs that came before both rounds. By our first measure, values were not sparser, and for keys and queries nothing was decided; see [outcomes.md](outcomes.md).) The index is 0 if all entries of a matrix have the same absolute value, and 1 if only one entry is not zero. We compare the indices under two rules at the end of training, and also at equal training accuracy ("matched"): at the largest training accuracy that both runs of a seed reach, when each first reaches it. The upper part of the figure has the paper's counts and ours, for the network of the paper's size; the lower part has the differences that are judged. In the network of the paper's size, about 142,000 of the 442,368 entries of a matrix are above 0.06 already before training, far more than the paper counts at the end in its larger network. This suggests that the paper's start had another scale. The figure shows by how much fewer entries there are under $\ell_{1.1}$, but with our scale such counts mostly measure the start.

# %%
pictures["sparsity"][0]

# %% [markdown]
# In the next figure, the grey ticks are the indices before training. Which rules make the weights sparser than they are there, and which less sparse?

# %%
reviews.index_figure(judged_reviews.networks(study, larger))

# %% [markdown]
# Does the paper's own measure agree with the index in the reduced network? The next cell prints the counts of entries above 0.06 for both networks. (In the reduced network each kind of matrix has 2,048 entries, in the network of the paper's size 442,368.)

# %%
for name, runs in judged_reviews.networks(study, larger).items():
    print(f"{name:26}", *(f"{part:>10}" for part in reviews.PARTS))
    for row, counted in reviews.count_rows(runs):
        row = row.replace("$\\ell_{", "l").replace("}$", "")
        print(f"  {row:24}", *(f"{count:>10}" for count in counted))

# %% [markdown]
# ## Which tokens are selected
#
# How many tokens does attention with the weights $a_t$ effectively use? We measure this number by $\exp(-\sum_t a_t \log a_t)$, which lies between 1 and the number of tokens. Here $a_t$ are the weights with which the first token attends to the tokens in the last layer, averaged over the heads. For each of 404 test reviews we divide the number by the number of tokens of the review. The upper part of the next figure shows the means over the reviews, and the lower part the difference that is judged. It is positive if attention is sharper under $\ell_{1.1}$.

# %%
pictures["attention"][0]

# %% [markdown]
# The next figure shows an example from the network of the paper's size: the first words of one review, which we chose, under the first seed. Each box shows a word. Its shade shows the attention weight that the first token gives to it in the last layer, averaged over the heads. All rows share one colour scale. Most of the attention weight lies on later words of the review, which are not shown.

# %%
reviews.words_figure(larger)

# %% [markdown]
# ## What we saw
#
# Can we get the estimates and the 95 % intervals in the table of verdicts by hand? The next cell does so for the five claims that compare $\ell_{1.1}$ with $\ell_2$. (The term `rows` is the sampling error of the test reviews.)

# %%
def interval(values, rows=0.0):
    t, z = stats.t.ppf(0.975, len(values) - 1), stats.norm.ppf(0.975)
    half = np.sqrt(t**2 * np.var(values, ddof=1) / len(values) + z**2 * rows)
    return f"{np.mean(values):.4f} ({np.mean(values) - half:.4f} to {np.mean(values) + half:.4f})"


def of_rows(apart):
    """The variance of the mean of `apart` (seeds, rows) that is due to the rows."""
    return apart.mean(0).var(ddof=1) / apart.shape[1]


first, second = (study.runs.of(rule) for rule in ("l1.1", "l2"))
late = [np.array([run.metrics["every_test_accuracy"][-4:].mean() for run in runs]) for runs in (first, second)]
hits = [np.array([run.hits for run in runs], float) for runs in (first, second)]
print("accuracy, l1.1 minus l2", interval(late[0] - late[1], of_rows(hits[0] - hits[1])))
for part in reviews.PARTS:
    last = [np.array([run.metrics[f"hoyer.{part}"][-1] for run in runs]) for runs in (first, second)]
    print(f"Hoyer index of {part}, l1.1 minus l2", interval(last[0] - last[1]))
used = [np.array([run.end["last.tokens_used"][:, -1] / run.end["present"] for run in runs]) for runs in (first, second)]
print("share of tokens, l2 minus l1.1", interval((used[1] - used[0]).mean(1), of_rows(used[1] - used[0])))

# %% [markdown]
# **Here,** two of the seven claims are **reproduced**, and five are **undecided**.
#
# * *Accuracy.* Under $\ell_{1.1}$ the network classifies more test reviews correctly than under $\ell_2$, by 1.0 percentage points (corrected interval 0.2 to 1.7): **reproduced**. This is about the sign: in the paper the difference is 2.0 points, which lies above our interval. $\ell_{1.1}$ is also above $\ell_3$, by 1.2 points, and the 95 % interval lies above 0, but the corrected interval, -0.3 to 2.8, does not. $\ell_3$ is below $\ell_2$ by 0.3 points (-1.1 to 0.6). So where $\ell_3$ belongs is undecided.
# * *Sparsity.* The values are sparser under $\ell_{1.1}$ than under $\ell_2$: **reproduced**. Their Hoyer index is higher by 0.057 at the end (0.044 to 0.069) and by 0.066 at equal training accuracy (0.050 to 0.082). Keys and queries are sparser at equal training accuracy, too, by 0.007 and 0.004. But at the end the differences are -0.001 and 0.001, with intervals that contain 0. Both must agree, so these claims are undecided. Compared with the start, $\ell_{1.1}$ and $\ell_2$ make all three kinds of matrices sparser, and $\ell_3$ makes them less sparse. The paper's own measure, the number of entries above 0.06, agrees for the values in all seven seeds; for keys and queries it shows no clear difference.
# * *Attention.* Under $\ell_{1.1}$ the last layer uses 30 % of the tokens, and under $\ell_2$ 23 %, against the paper's order. But in one seed $\ell_{1.1}$ uses more than 60 %, and in two seeds it is the sharper rule. The corrected interval of the difference, -26 to 11 points, decides nothing.
# * *The network of the paper's size,* which is not judged, differs in two points. There $\ell_{1.1}$ attends more sharply than $\ell_2$ in every seed, as in the paper, and $\ell_3$ is the least accurate rule. But it fails the condition above, and classifies only 81 % of its training reviews correctly, so this says nothing about the paper's order. So the verdicts hold for our reduced network after 19 epochs, and need not hold for others.
#
# Is $\ell_{1.1}$ better, or only less far in its training? After equally many steps it has the lowest training accuracy, 90.4 % (93.7 % under $\ell_2$ and 95.5 % under $\ell_3$), and the highest test accuracy, 85.2 % (83.8 and 83.7 %). A run that is stopped at its best would give other differences. The largest accuracy of a run and the mean of its last four are known on every tenth test review. (This is a harder sample, on which a bag of words is 1.4 points less accurate, so these numbers cannot be compared with the ones above.) They are 85.1 and 84.2 % under $\ell_{1.1}$, 84.5 and 83.3 % under $\ell_2$, and 85.1 and 83.1 % under $\ell_3$. So $\ell_{1.1}$ and $\ell_3$ are about equally accurate at their best, and $\ell_3$ falls most afterwards; but the largest of many noisy accuracies is too large, and more so for a rule whose accuracy fluctuates more. In the network of the paper's size, $\ell_{1.1}$ has the highest training accuracy as well as the highest test accuracy. So our runs do not answer this question. The claims are about the end of our runs, and these end earlier than the paper's. No claim of the protocol is about the largest accuracies of the authors' table.
#
# Before the judged seeds had run, the [protocol](confirmation.md) wrote down what we expected from the first round: that $\ell_{1.1}$ is above $\ell_2$ and that the values are sparser would be reproduced, that attention is sharper would not be reproduced, and the other four claims would be undecided. Two claims were reproduced as expected, and four were undecided as expected. That attention is sharper is undecided, too, whereas we had expected that it would not be reproduced.
#
# The next cell shows what the runs of the first round say: three seeds of the reduced network, and four of the network of the paper's size. By the rule of that round all claims are undecided, since a linear classifier is more accurate. After the verdict, each line gives two quantities that do not count for it: the p-value after Holm's correction for the seven claims, and the measured difference with the 95 % interval by which the claim would be judged. The accuracies of the reduced network were measured on every tenth test review, and $\ell_2$ and $\ell_3$ had other learning rates, 0.008 and 0.004. (Page [51](51_fresh_seeds.ipynb) tells of another study in which the rate changes a difference of Hoyer indices about threefold.) The lines about sparsity have two differences, at the end and at equal training accuracy. For the network of the paper's size, we decided how to judge all four seeds when we already knew the results of two of them.

# %%
print("reduced network, first round:", reviews.summary(kept_curves.kept("imdb")), "", sep="\n")
print("network of the paper's size:", reviews.summary(larger), sep="\n")

# %% [markdown]
# ## Change this
#
# Predict first, then run. Each cell trains a small network with one seed on demo data, which come with the library. If you have set `DATA_DIR`, the cells train on a sample of the real data instead, and the answers may differ.
#
# 1. Train $\ell_2$ at one tenth of its learning rate. *Hint:* the loss is summed over the batch of 50 reviews, so a learning rate for this loss acts like a learning rate 50 times as large for the mean loss. *Predict:* is the learning rate 0.0004 already large enough?

# %%
small = DEMO["imdb"]
for rate in (0.0004, 0.004):
    print("rate", rate, smoke.last_losses(small, {"l2": rate}))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Hardly. The network does learn something, because its final loss is below the loss of random guessing, $\log 2 = 0.69$. But this loss is about twice as high as the final loss with the learning rate 0.004.
#
# </details>
#
# 2. Use Adam instead of mirror descent. *Prediction:* with Adam, the learning rate need not be adapted to a loss that is a sum over the batch. Why is that so?

# %%
print(smoke.last_losses(small, {"Adam": 1e-3}))

# %% [markdown]
# <details><summary>Answer</summary>
#
# Adam divides by the size of the gradient, so the sum and the mean over the batch give the same step. With an ordinary learning rate, Adam ends with a smaller loss than $\ell_2$ with either of its two learning rates.
#
# </details>

# %% tags=["set-up"]
# Set-up, no need to read.
if scale != "demo":  # a demo run redraws what is kept and records nothing
    numbers = judged_reviews.numbers(study, larger)
    for kind, (figure, about) in pictures.items():
        of_kind = judged_reviews.KINDS[kind]
        made = figure, about, of_kind.earlier(larger)
        kept_curves.save(run, of_kind.slug, of_kind.number, study.curves, *made, numbers=numbers)
