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
# # Fresh seeds: which claims about real networks are decided?
#
# *Side road of page [50](50_what_we_know.ipynb) · 15 minutes · [words](words.md).* By the end, you will be able to tell an exploratory result from a decided one, and compute how many seeds a claim needs.
#
# This page is about **paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738), **Figures 1, 4, 6 and 7**, and about **paper C** (*Optimizing Attention with Mirror Descent*, arXiv 2410.14581), its experiments on IMDb and CIFAR-10.
#
# **Question.** The papers compare optimisers on real data. Which of their sentences does this companion confirm?
#
# **The papers' answer.** On language data, normalised SGD trains faster than SGD, and as we read the figures, so do Polyak's step and Adam. On images, normalised SGD is slower than SGD, and the norms of the weights grow; on digits Adam gains nothing. Under $\ell_{1.1}$ mirror descent the weights are sparser than under Adam (images) or $\ell_2$ (film reviews), and attention is sharper. Adam is ahead of $\ell_{1.1}$ early in training, and on film reviews $\ell_{1.1}$ is more accurate than $\ell_3$, and $\ell_3$ more accurate than $\ell_2$. Attention counts as sharper if it uses fewer tokens.
#
# Pages [14](14_bert.ipynb), [15](15_vit_mnist.ipynb), [16](16_vit_cifar10.ipynb), [33](33_transformer_imdb.ipynb) and [34](34_vit_mirror_descent.ipynb) explain the networks, the rules and the measurements. There was a first round with three seeds per study, and before it there were shorter studies ([outcomes](outcomes.md)). This page judges a second round, whose protocol was committed before its first run. These pages decide their claims by the runs of the second round, and show some runs of the first.

# %% tags=["parameters"]
# Set-up, no need to read.
scale = "demo"

# %% tags=["set-up"]
# Set-up, no need to read.
import numpy as np
import pandas as pd
from scipy import stats

from companion import record
from lib import files
from lib.training.curves import load
from papers.studies import fresh_seeds, judge
from papers.studies.family import FAMILY

pd.set_option("display.max_colwidth", None)
run = record.start("51_fresh_seeds", "A", globals(), counted=None)

# %% [markdown]
# ## Why three seeds decide almost nothing
#
# Two runs with the same seed have the same start and the same batches, and differ in the optimiser. For each seed we divide the number of steps that a rule needs to reach a target loss by the number of steps that SGD needs, and we take the logarithm. Let $m$ be the mean of these logarithms over $n$ seeds, and $s$ their standard deviation. The interval for the true mean is
#
# $$m \pm t_{n-1}\,\frac{s}{\sqrt n},$$
#
# where $t_{n-1}$ is a quantile of the $t$ distribution with $n-1$ degrees of freedom. A claim such as "faster" is decided if the interval lies on one side of 0.
#
# The protocol has 21 claims. If each of them were tested at 5 % and none of the effects existed, about one of them would be decided by chance. Holm's procedure prevents this. It sorts the claims by their p-values and tests the first one at the level 5 % / 21, the second one at 5 % / 20, and so on, until a claim is not decided; all later claims are then undecided, too.
#
# The next cell computes two things. The first is how many standard deviations $s$ the mean $m$ must be away from 0 so that the claim is decided. The second is the chance of this if one rule is truly faster by the factor 1.26 and $s=0.2$, which was a typical deviation of this logarithm in the first round.

# %%
def least_effect(n, level):
    """The smallest |m| / s that an interval of n seeds can tell from 0."""
    return stats.t.ppf(1 - level / 2, n - 1) / np.sqrt(n)


def chance(n, factor, s, level):
    """The chance that n seeds decide a claim whose rule is truly faster by the factor."""
    shift = np.log(factor) / s * np.sqrt(n)
    return stats.nct.sf(stats.t.ppf(1 - level / 2, n - 1), n - 1, shift)


for n in (3, 6, 12, 16, 28):
    alone, first = least_effect(n, 0.05), least_effect(n, 0.05 / 21)
    decided = chance(n, 1.26, 0.2, 0.05 / 21)
    print(f"{n:2} seeds: |m| >= {alone:.2f} s alone, {first:5.2f} s as the first of 21; chance {decided:.0%}")

# %% [markdown]
# With three seeds and $s=0.2$, the first of 21 claims is decided only if the measured speeds differ by a factor of about ten. With 16 seeds a measured factor of 1.2 is enough, and a true factor of 1.26 is detected with a chance of four in five.
#
# ## What was fixed, and when
#
# | date (2026) | commit | what was fixed | seeds of that study in the repository |
# |---|---|---|---|
# | 28 November, 12:22 | ea8f95ef | [the protocol](confirmation.md), and the code of the runs | 0 |
# | 28 November, 12:58 | d029537a | the code that judges; the level at which a corrected verdict is read; a claim that cannot be judged counts with p = 1. The first races were running | 0 |
# | 28 November, 13:02 | f7e5cecd | the name of the commit from which the runs are made: ea8f95ef in place of ca7d5918, with the same code (see below) | 0 |
# | 29 November, 05:47 | ba12e356 | blinded look at digits: 28 seeds | 15 |
# | 29 November, 19:21 | 01af40e8 | blinded look at sentence pairs: 16 seeds | 6 |
# | 29 November, 22:03 | 8aed7b57 | blinded look at comments: 28 seeds | 6 |
# | 30 November, 07:28 | 7cb69225 | studies are judged one after the other, and until then their claims count with p = 1 | 70 of 72 of the first three studies |
# | 30 November, 08:03 | 62472e0e | the last seeds of these three studies; then they were judged | 72 of 72 |
# | 30 November, 08:34 | c5c9b166 | what the verdicts on digits can still become (see below) | those three studies are judged |
# | 30 November, 11:23 | 0cf90c01 | nothing: a look that the protocol does not allow (see below) | 5 of 6 of paper C's vision study |
# | 30 November, 11:37 | 9cced660 | the last seed of paper C's vision study; then it was judged | 6 of 6 |
# | 30 November, 17:23 | 6d40cb33 | which verdict holds if an interval lies both on one side of 1 and between 0.8 and 1.25 (see below) | four studies are judged |
# | 30 November, 18:12 | c771bc81 | blinded look at paper A's study of CIFAR-10: 14 seeds | 6 |
# | 30 November, 18:25 | f07d30a2 | an error of the code stops the judge, and is no longer a claim that cannot be judged (see below) | four studies are judged |
# | 30 November, 19:14 | f3106567 | the last seed of this study; then it was judged | 14 of 14 |
# | 1 December, 04:12 | 8bf3b2d3 | the last seed of film reviews; then this study was judged. The pictures of page [33](33_transformer_imdb.ipynb) had been coded and tested on invented runs before | 7 of 7 |
#
# The protocol fixes the following points:
#
# * *Seeds.* They start at 30, and none of them had been run before. The number of seeds of each study was chosen by a simulation from the effects and deviations of the first round. A study of speed has three target losses; [protocol.md](protocol.md) lists them, and the last one decides.
# * *Learning rates.* For each rule, the first round's rate and the better of its two neighbours in the grid are compared on three seeds: the trial seed of the first round and two new ones. The better rate is used. A rate is no candidate if the next larger rate did not train in the first round. On film reviews $\ell_3$ learned nothing at 0.008, so 0.004 was excluded, although the first round had used it; the race chose 0.002 and not 0.001. The race there also changed the rate of $\ell_2$, from 0.008 to 0.004. (Polyak's rule on CIFAR-10 had no race; its cap was fixed in advance.) No choice uses test data.
# * *One look.* When the seeds 30 to 35 of a study of speed have run, a script computes from them the standard deviation of the logarithm of the steps within each rule, but no ratio. If it is larger than planned, more seeds are run. This raised the numbers for comments and for digits from 24 to 28. (On CIFAR-10 the deviation over these six seeds was less than half of the planned one.)
# * *The family.* The 21 claims, their measurements and the words of the verdicts are listed. A verdict other than "undecided" is given only after Holm's correction for all 21 claims.
#
# A study was judged when all its seeds had run. From then on the estimates, 95 % intervals and p-values of its claims are final. But Holm's procedure was applied to all 21 claims again whenever another study was judged. The corrected p-values of the earlier claims could then only become smaller, so an undecided claim could become decided. One verdict on digits has changed in this way, as we explain below.
#
# That no ratio of a study was computed before the commit with its last seed is our word: the files of the seeds lay in the repository from the day on which they had run. Only the races, which choose the learning rates, had to be looked at earlier. But once we looked against the protocol: the histogram of page [34](34_vit_mirror_descent.ipynb) was drawn from five seeds of the vision study before the sixth had run. It shows which share of the weights is small under each rule, which is close to what the claim about sparser weights is about. No run and no rule was changed after this look. The code that judges was tidied after the commit d029537a. One change is more than that: since f07d30a2, made just before paper A's study of CIFAR-10 was judged, an error of the code stops the judge, and only runs that give no interval count with p = 1. The code of d029537a, run on today's files, gives the same estimates, intervals, p-values and verdicts for all 21 claims. Forty minutes after the protocol, the commit f7e5cecd changed one entry of `confirm.toml`: the name of the commit whose code makes the runs. The hash of this code, which every file of a seed must have, stayed the same. On 29 November the wording of the protocol was edited throughout; the history of the file shows that no rule and no number was changed. On 30 November, after digits had been judged, commit 6d40cb33 added which verdict holds if an interval lies on one side of 1 and between 0.8 and 1.25. The protocol of the first round and the code already had this rule; the protocol of the second round had left it out. This concerns one claim, that normalised SGD is slower on digits: without the correction, its interval lies both above 1 and between 0.8 and 1.25.
#
# *How the 21 claims were chosen.* They were fixed before the first fresh seed, but after the results of the first round. The first round had 24 claims. Three of them had already been given up there, and we left them out: that Adam gains nothing on CIFAR-10 (paper A does not say how fast Adam is there), that $\ell_{1.1}$ and Adam end equally accurate (our runs are too short for this), and the growth of norms under Polyak's rule. (That rule runs here, too, with a cap that was not tuned, and is slow: page [16](16_vit_cifar10.ipynb) shows it.) The first two had not been reproduced in a study before the first round, so leaving them out can only make our record look better. The norm of every matrix must now grow, which is our reading of paper A's sentence that it sees growth; in the first round it had to exceed that of a random walk, and two of three such claims were not reproduced. For paper C's film reviews, a network no longer has to beat a bag of words, but has to reach the paper's own accuracy, less two standard deviations. This matters: our network does not beat the bag of words in either round, so by the old condition all seven claims on film reviews would be undecided. The Hoyer index, which measures sparsity, was chosen after still earlier runs on film reviews; by the measure before it, the values were not sparser there. The next table lists the 21 claims. Some are sentences of the papers, and others are our reading of a figure.

# %%
listed = [{"claim": name, "what the paper says": claim.text, "where": fresh_seeds.source(claim)} for name, claim in FAMILY.items()]
pd.DataFrame(listed).set_index("claim")

# %% [markdown]
# ## What the seeds decide

# %%
studies = judge.full_studies()
verdicts = judge.judge(studies)
table = fresh_seeds.table(verdicts)
table

# %%
figure = fresh_seeds.forest(verdicts, fresh_seeds.first_round())
figure

# %% [markdown]
# Each row is one claim. The first block is about speed, the second one about the growth of norms, the third one about the sparsity of the weights, and the last two about film reviews. Growth is that of the weight matrix that grows least, so that all matrices grow if it does. The dot is the estimate, the thick bar its 95 % interval, and the thin bar its corrected interval. The printed numbers are the estimate and the corrected interval. This is the interval at the level at which Holm's procedure tests the claim. The procedure does not reach the claims after the first one that it cannot decide. For these it is the level at which they would be tested if all claims before them had been decided, so for the last ones this interval is hardly longer than the 95 % interval. For sparsity on film reviews the bars show the end of the runs, and for "weights sparser" on CIFAR-10 they show equal training loss. A hollow dot is an undecided claim. A grey diamond is the estimate of the first round from three seeds. The claims on film reviews have no diamond, because they were not judged in the first round.
#
# * A claim is **reproduced** if Holm's procedure reaches it and its thin bar lies inside the grey area. (The claims about sparsity on film reviews need this at the end of the runs and at equal training accuracy; page [33](33_transformer_imdb.ipynb) shows both.)
# * It is not reproduced if the thin bar lies on the other side of the black line.
# * Two rules count as equally fast if the thin bar lies between 0.8 and 1.25, the dotted lines. So a claim of "faster" or "slower" is not reproduced if its thin bar lies there and contains 1.
# * "Adam gains nothing" has rules of its own: it is reproduced if the thin bar lies between 0.8 and 1.25 or wholly above 1, and not reproduced only if it lies below 0.8.
#
# The diamonds are not quite comparable with the dots. On language data and digits the first round counted the steps to a reading that is one later. On comments Polyak's rule and normalised SGD had another cap, and in paper C's study $\ell_{1.1}$ had another learning rate. The growth of norms has no diamonds, because the first round measured it in another way.
#
# ## One claim by hand
#
# The files of the seeds are in `figures/desk/confirm`, one per seed. Each has one run per rule, and each run has a *clock*: the training loss on fixed rows, read every few steps. We recompute the claim that Adam is faster than SGD on the toxic comments of paper A's Figure 4. A run has reached the target 0.4 when the mean of three successive readings is at most 0.4, and we count the steps up to the middle one of them.

# %%
def steps(run, target):
    at, loss = run.clock["at"], run.clock["loss"]
    means = np.convolve(loss, np.ones(3) / 3, mode="valid")  # entry k: readings k, k + 1, k + 2
    return at[np.flatnonzero(means <= target)[0] + 1]


logs = []
for path in sorted((files.ROOT / "figures/desk/confirm/civil_comments_400").glob("[0-9]*.npz")):
    of_rule = {curve.rule: curve for curve in load(path).curves}
    logs.append(np.log(steps(of_rule["Adam"], 0.4) / steps(of_rule["SGD"], 0.4)))
n, mean, deviation = len(logs), np.mean(logs), np.std(logs, ddof=1)
half = stats.t.ppf(0.975, n - 1) * deviation / np.sqrt(n)
ratio, low, high = np.exp([mean, mean - half, mean + half])
print(f"by hand, {n} seeds: Adam needs {ratio:.3f} of SGD's steps ({low:.3f} to {high:.3f})")
for verdict in verdicts:
    if verdict.claim == "fig4.adam":
        print(f"by the judge: {verdict.estimate:.3f} ({verdict.low:.3f} to {verdict.high:.3f})")

# %% [markdown]
# The judge's interval is a little wider, because the judge adds the error of reading the clock only every 20 steps. On comments this clock is coarse: Adam needs about 60 steps. So we also look at something that depends less on the size of the ratios: in how many seeds a rule needs fewer steps than SGD, and the p-value of Wilcoxon's signed-rank test, which is not corrected. (It is computed in the normal approximation, because some ratios are equal; where all seeds agree, the exact one would be smaller.)

# %%
for verdict in verdicts:
    rule, *rival = FAMILY[verdict.claim].rules
    if rival == ["SGD"]:
        study = studies[verdict.study]
        both = zip(study.of(rule), study.of("SGD"), strict=True)
        apart = np.array([np.log(steps(a, study.targets[-1]) / steps(b, study.targets[-1])) for a, b in both])
        rank = stats.wilcoxon(apart).pvalue
        print(f"{verdict.claim}: fewer steps in {sum(apart < 0)} of {len(apart)} seeds, as many in {sum(apart == 0)}; p {rank:.1g}")

# %% [markdown]
# ## Does a verdict depend on how we count?
#
# The protocol asks us to report other measures of speed beside each verdict. The next table has the p-value of the test that the ratio is 1, and then the ratio with its 95 % interval at each of the three target losses. The next two columns change the way of counting: a falling curve is fitted to the readings (the isotonic fit), or the steps are counted to the last and not to the middle of the three readings, as in the first round. The last column is from the races. There both rules have two learning rates, which gives four ratios of their median steps over three seeds; the column has the smallest and the largest of these. (Two of these ranges have equal ends, because the medians at the two rates are equal on the clock.)

# %%
pd.DataFrame(fresh_seeds.other_measures(verdicts)).set_index("claim")

# %% [markdown]
# ## What we saw
#
# **Here,** twelve of the 21 claims are reproduced, two are not reproduced, and seven are undecided. Four of the 21 claims are sentences of paper A, all about normalised SGD: the two on language data are reproduced, and the two on images are not (one of them, on digits, by a margin that depends on the correction). The others are our reading of its figures or of paper C's code. All six claims of paper A about language data are **reproduced** after the correction. On sentence pairs, Adam needs 0.52 times as many steps as SGD, Polyak's rule 0.60 times and normalised SGD 0.65 times as many. On comments, the ratios are 0.35, 0.71 and 0.69. In the first round, three of these six claims were undecided even without a correction. For these six claims, the estimates lie below 1 by every measure in the table above, but how far below depends on the measure: for Adam on comments, the ratio is 0.30 to 0.42, depending on how we count, and up to 0.50 at other learning rates. (At the first target on comments, Adam needs 20 steps in every seed. This is the smallest number that the clock can give, so the true ratio may be smaller there than the table says.) At the first target, the claim about normalised SGD on comments would be undecided after the correction.
#
# Both claims of paper C about a vision transformer are **reproduced**. To reach the best test accuracy of $\ell_{1.1}$, Adam needs 0.25 times as many steps as $\ell_{1.1}$. This number has three limits. $\ell_{1.1}$ is at its best near the end of its runs, so a longer run would give another number. At fixed accuracies, which page [34](34_vit_mirror_descent.ipynb) adds, Adam needs 0.37 times as many steps to 40 % (0.26 to 0.52) and 0.24 times to 45 % (0.20 to 0.30), so the direction does not depend on this, but the size does. The interval contains no term for the noise of accuracies that are measured on 2,000 images; and since the best of many noisy accuracies lies too high, the noise can make the ratio too small. And the measure itself was chosen after the runs of an earlier study; by the measure before it, the claim was undecided there ([outcomes](outcomes.md)).
#
# At equal training loss the Hoyer index of the weights is higher under $\ell_{1.1}$, by 0.072. In the first round it was higher by only 0.023, at half the learning rate of $\ell_{1.1}$. The rate seems to be the reason: in the two new seeds of the race, the difference is 0.016 and 0.024 at the first round's rate, and 0.065 and 0.067 at the new one. So the six seeds decide that the weights are sparser at this rate and at equal training loss, but how much sparser they are is a matter of the rate. At equal loss $\ell_{1.1}$ has taken three to four times as many steps as Adam. After equally many steps its index is higher, too (0.246 against 0.195), but in the first round it was not (0.192 against 0.195). Page [34](34_vit_mirror_descent.ipynb) draws the weights and recomputes both claims by hand.
#
# On CIFAR-10, normalised SGD needs 0.97 times as many steps as SGD (0.93 to 1.01). Even the corrected interval, 0.90 to 1.04, lies between 0.8 and 1.25 and contains 1. So the claim that normalised SGD is slower is **not reproduced**: the two rules count as equally fast, at all three targets. In 8 of the 14 seeds they even need the same number of steps on our clock. The p-value of this claim, 2e-7, is that of equal speed: it is the level at which the interval just lies between 0.8 and 1.25. The test of a ratio of 1 has p = 0.09. That norms grow is **reproduced** under Adam and under SGD, where all weight matrices grow in every seed; the one that grows least, that of the positions, grows by 3.9 % and by 0.27 %. Under normalised SGD it grows by 0.01 % in the mean, and in one seed it shrinks, so there the claim is **undecided**. Do the norms grow by more than those of a random walk with steps of the same lengths? This was the question of the first round, and the protocol asks us to report it, too: all matrices do so under Adam, but not under SGD or normalised SGD.
#
# On film reviews, two claims of paper C are **reproduced**: that $\ell_{1.1}$ is more accurate than $\ell_2$, by 1.0 percentage points, and that its values are sparser, by 0.057 in the Hoyer index. The other five are **undecided**. $\ell_{1.1}$ is above $\ell_3$ by 1.2 points, which would be decided without the correction. $\ell_3$ is below $\ell_2$ by 0.3 points, and $\ell_{1.1}$ uses more tokens than $\ell_2$ in the mean, against the paper's order and mostly because of one seed; both intervals contain 0. Keys and queries are sparser under $\ell_{1.1}$ at equal training accuracy, but at the end their intervals contain 0, and the protocol asks for both. A larger network, of the paper's size, has four seeds and is not judged; there attention is sharper under $\ell_{1.1}$ in every seed, and $\ell_3$ fails the condition for a comparison. The verdicts are about the end of runs of 19 epochs; page [33](33_transformer_imdb.ipynb) says why this matters.
#
# On digits, the verdicts depend on how many of the 21 claims are decided.
#
# * *Adam gains nothing* is **undecided**. Adam needs 0.70 times as many steps as SGD, and even its corrected interval, 0.60 to 0.81, lies below 1 (p = 2e-7 against a ratio of 1). So at these learning rates Adam is faster than SGD. (Over the best two rates of both rules, the ratio lies between 0.41 and 0.91.) But the protocol calls the claim that it gains nothing *not reproduced* only if the interval lies below 0.8, our bound. At 95 % it does; the corrected interval does not.
# * *Normalised SGD is slower* is **not reproduced**, by a narrow margin. It needs 1.11 times as many steps as SGD. At 95 % the interval lies above 1, as the paper says. The corrected interval, 0.996 to 1.245, contains 1 and lies just within 0.8 to 1.25, so the two rules count as equally fast. When four studies had been judged, this interval was 0.989 to 1.254, and the claim was undecided. The runs are the same; only the number of decided claims has changed.
#
# The second claim can be decided in two ways, and each has a p-value of its own. The ratio may differ from 1, so that the claim is reproduced: p = 0.008. Or the two rules may count as equally fast, so that the claim is *not* reproduced: p = 0.005. The protocol takes the smaller one, and so the table of verdicts has 0.005, although this number speaks against the claim. If more of the other claims had been decided, the corrected interval would be shorter, and at last it would lie above 1: *reproduced*. This would be so if two more claims were decided with smaller p-values. So the verdict says more about the number of decided claims than about digits. The next cell lists what the protocol could have given. We wrote this down ([outcomes](outcomes.md), commit c5c9b166) when three studies had been judged.

# %%
digits = studies["mnist_60000"]
for name in ("fig6.sngd", "fig6.adam"):
    ranks = judge.verdicts_by_rank(FAMILY[name], digits)
    for word in dict.fromkeys(ranks.values()):
        open_claims = [k for k, verdict in ranks.items() if verdict == word]
        print(f"{name}: {word} if {min(open_claims)} to {max(open_claims)} of 21 claims are not yet decided")

# %% [markdown]
# On digits the verdicts also depend on the rest of the protocol. To the first two targets, normalised SGD needs 1.49 and 1.32 times as many steps as SGD, and the intervals lie well above 1. Had one of these targets been chosen, the claim would be reproduced; only at the last target, which the protocol chose, do the two rules come close. For normalised SGD, the smallest ratio of the races, 0.63, compares with SGD at the learning rate 0.8, at which one of two new runs of SGD diverged.
#
# So at these learning rates, on these data and networks, the advantage of the fast rules on language data is not an accident of the seeds. On digits, Adam keeps a part of this advantage. Normalised SGD shows none: on digits it is slower at the first two targets, and at the last one the difference is small; on CIFAR-10 the two count as equally fast. Each interval holds for one learning rate of each rule; it does not cover the choice of the rate.
#
# How fragile are the verdicts? Thirteen of the fourteen decided claims would be decided even if each of them were tested at the level 5 % / 21. Only the claim about normalised SGD on digits needs the later levels of Holm's procedure.
#
# What had we expected? The protocol wrote it down. Twelve claims were expected to be reproduced; eleven of them are, and the twelfth, that normalised SGD is slower on digits, is *not reproduced*. Three were expected to be not reproduced: normalised SGD being slower on CIFAR-10, which is not, and the growth of norms under normalised SGD and sharper attention, which are undecided. Of the other six, which were left open or expected to be undecided, five are undecided, and normalised SGD on comments is reproduced.
#
# ## Change this
#
# Make a prediction, then run the cell.
#
# 1. Use only the first seeds of the study above. *Hint:* the effect is large compared with the deviation. *Predict:* how many seeds suffice to decide the claim at the level 5 % / 21?

# %%
for n in (2, 3, 4, 6, 12):
    effect = abs(np.mean(logs[:n])) / np.std(logs[:n], ddof=1)
    print(f"{n:2} seeds: effect {effect:5.1f} s, needed {least_effect(n, 0.05 / 21):5.1f} s")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Four seeds suffice. With two or three seeds the effect is about as large, but the effect that is needed is far larger, because so few seeds say little about the deviation.
#
# </details>
#
# ## The small print
#
# * *Networks, data and targets* are those of the first round, so this page is about small networks: the lower three layers of a six-layer sentence encoder, and small vision transformers. The samples of MultiNLI and CivilComments are not public. No theorem of the papers covers these networks.
# * *Rates and machine.* The rates of the rules are on the pages of the studies, and the protocol has the candidates. All runs are in float32, with one thread on a CPU, by the code of one commit. The kind of processor differs between seeds. A file with other code, another version of torch, other rates or another number of threads is refused.
# * *Pairs.* Two runs with the same seed share their start and their batches. On language data and digits this did not make the ratios more precise, and for some rules less so: the correlation of a rule's steps with SGD's lies between -0.5 and 0.3. On CIFAR-10 it is 0.6 for normalised SGD, and pairing makes the interval shorter. The intervals do not assume any correlation. They cover the choice of seeds, but not the choice of learning rates, data or network.
# * *The smallest p-value* that we compute is $e^{-30}$, about $10^{-13}$.
# * *The gate.* Speed is judged only if the network is more accurate than plain classifiers on the same rows. In the first round, the networks of these studies were. The gate is not computed from the new runs, because most of them end at their target: on digits they end at an accuracy of 96.6 to 96.7 %, a little below that of three nearest neighbours, 97.0 %. On film reviews the gate is another one: a rule is compared if its accuracy reaches the paper's, less two standard deviations. All three rules pass it; page [33](33_transformer_imdb.ipynb) has the numbers.
# * *The simulation* that chose the numbers of seeds is `papers/studies/simulate.py`. If the true effects are those of the first round, 15.2 of 21 claims are decided on average.
# * *To repeat:* `python -m papers.studies.judge` with the names of studies prints their verdicts from the files of the seeds, and `python -m papers.studies.confirm` with the name of a study trains its seeds again.

# %% tags=["set-up"]
# Set-up, no need to read.
if scale != "demo":  # a demo run redraws what is kept and records nothing
    caption = fresh_seeds.caption(studies, verdicts)
    made = caption, table, fresh_seeds.numbers(verdicts), fresh_seeds.data(studies)
    run.keep(figure, fresh_seeds.RECORD, *made, dtype="float32", setting={"seeds": fresh_seeds.seeds(studies)})
