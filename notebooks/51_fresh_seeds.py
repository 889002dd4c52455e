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
# **The papers' answer.** On language data, normalised SGD, Polyak's step and Adam train faster than SGD. On images, normalised SGD is slower than SGD, and Adam gains nothing. Under $\ell_{1.1}$ mirror descent the weights are sparser than under Adam or $\ell_2$.
#
# Pages [14](14_bert.ipynb), [15](15_vit_mnist.ipynb), [16](16_vit_cifar10.ipynb), [33](33_transformer_imdb.ipynb) and [34](34_vit_mirror_descent.ipynb) explain the networks, the rules and the measurements. They show a first round of three seeds per study. This page shows a second round, whose protocol was committed before its first run.

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

run = record.start("51_fresh_seeds", "A", globals(), counted=None)

# %% [markdown]
# ## Why three seeds decide nothing
#
# Two runs with the same seed have the same start and the same batches, and differ in the optimiser. For each seed we divide the number of steps that a rule needs to reach a target loss by the number of steps that SGD needs, and we take the logarithm. Let $m$ be the mean of these logarithms over $n$ seeds, and $s$ their standard deviation. The interval for the true mean is
#
# $$m \pm t_{n-1}\,\frac{s}{\sqrt n},$$
#
# where $t_{n-1}$ is a quantile of the $t$ distribution with $n-1$ degrees of freedom. A claim such as "faster" is decided if the interval lies on one side of 0.
#
# The papers make 21 such claims. If each of them is tested at 5 %, about one of 21 wrong claims would seem to be confirmed. Holm's procedure prevents this: it sorts the claims by their p-values and tests the first one at the level 5 % / 21, the second one at 5 % / 20, and so on, until a claim fails. The next cell computes how many standard deviations $s$ the mean $m$ must be away from 0 so that the first claim is decided.

# %%
def least_effect(n, level):
    """The smallest |m| / s that an interval of n seeds can tell from 0."""
    return stats.t.ppf(1 - level / 2, n - 1) / np.sqrt(n)


for n in (3, 6, 12, 16, 28):
    print(f"{n:2} seeds: {least_effect(n, 0.05):5.2f} s alone, {least_effect(n, 0.05 / 21):5.2f} s among 21 claims")

# %% [markdown]
# In the first round, the standard deviation of the logarithm was typically 0.2 for a pair of runs. With three seeds, the first of 21 claims is therefore decided only if the two rules differ by a factor of about ten. With 16 seeds, a factor of 1.2 is enough.
#
# ## What was fixed before the runs
#
# [The protocol](confirmation.md) was committed on 28 November 2026, before the first run of the second round. It fixes the following points:
#
# * **Seeds.** They start at 30, and none of them had been run before. The number of seeds of each study was chosen by a simulation from the effects and deviations of the first round.
# * **Learning rates.** The best two rates of the first round are compared on three other seeds, and the better one is used. No choice uses test data.
# * **One look.** After six seeds, a script computes the standard deviation of a study, but no ratio. If it is larger than planned, more seeds are run. This raised the numbers for comments and for digits from 24 to 28.
# * **The family.** The 21 claims, their measurements and the words of the verdicts are listed. "Reproduced" and "not reproduced" are said only after Holm's correction for all 21 claims.
#
# A study is judged once, when all its seeds have run. The claims of the studies that are still running count with the p-value 1. When they are judged, the corrected p-values of the other claims can only become smaller.
#
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
# Each row is one claim. The dot is the estimate, the thick bar its 95 % interval, and the thin bar its interval at the level at which Holm's procedure tests the claim. **A claim is reproduced if its thin bar lies inside the grey area,** and it is not reproduced if the bar lies on the other side of the line, or between 0.8 and 1.25, the range in which we call two rules equally fast. A hollow dot is an undecided claim. The grey diamond shows the estimate of the first round, from three seeds.
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
# The judge's interval is a little wider, because the judge adds the error of reading the clock only every 20 steps.
#
# ## Does a verdict depend on how we count?
#
# The protocol asks us to report some other ways to measure speed beside each verdict: the ratio at each of the three target losses, the ratio if a falling curve is fitted to the readings, and the ratio by the first round's count of steps, which is one reading later. The last column has the smallest and the largest ratio if either rule uses one of its best two learning rates.

# %%
pd.DataFrame(fresh_seeds.other_measures(verdicts)).set_index("claim")

# %% [markdown]
# ## What we saw
#
# **Here,** all seeds of three studies have run, so 8 of the 21 claims are judged. All six claims about language data are **reproduced** after the correction. On sentence pairs, Adam needs 0.52 times as many steps as SGD, Polyak's rule 0.60 times and normalised SGD 0.65 times as many. On comments, the ratios are 0.35, 0.71 and 0.69. In the first round, three of these six claims were undecided. The table above shows that none of the six verdicts depends on the target loss, on the way of counting or on the choice between the best two learning rates.
#
# On digits, both claims are **undecided** after the correction. Normalised SGD needs 1.11 times as many steps as SGD. Its 95 % interval lies above 1, as the paper says, but its corrected p-value is 0.07. Adam needs 0.70 times as many steps as SGD, although the paper says that Adam gains nothing. Its 95 % interval lies below 0.8, but its corrected p-value is 0.22. On digits the other measures matter: to the first target, normalised SGD needs 1.49 times as many steps as SGD. With the best two learning rates of each rule, the ratio of normalised SGD lies anywhere between 0.63 and 1.42.
#
# So on our small networks the advantage of the fast rules on language data is not an accident of the seeds, whereas the comparison on digits is close. The other 13 claims wait for their seeds.
#
# ## Change this
#
# Make a prediction, then run the cell.
#
# 1. Use only the first seeds of the study above. *Hint:* the effect is large compared with the deviation. *Predict:* how many seeds suffice to decide the claim as the first of 21?

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
# * *Rates and machine.* The rates of the rules are in the protocol. All runs are in float32, with one thread on a CPU, by the code of one commit. A file with other code, another version of torch, other rates or another number of threads is refused.
# * *The gate.* Speed is judged only if the network is more accurate than plain classifiers on the same rows. In the first round, the networks of these studies were.
# * *The simulation* that chose the numbers of seeds is `papers/studies/simulate.py`. If the true effects are those of the first round, 15.2 of 21 claims are decided on average.
# * *To repeat:* `python -m papers.studies.judge` with the names of studies prints their verdicts from the files of the seeds, and `python -m papers.studies.confirm` with the name of a study trains its seeds again.

# %% tags=["set-up"]
# Set-up, no need to read.
if scale != "demo":  # a demo run redraws what is kept and records nothing
    caption = fresh_seeds.caption(studies, verdicts)
    made = caption, table, fresh_seeds.numbers(verdicts), fresh_seeds.data(studies)
    run.keep(figure, fresh_seeds.RECORD, *made, dtype="float32", setting={"seeds": fresh_seeds.seeds(studies)})
