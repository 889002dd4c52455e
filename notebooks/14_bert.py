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
# # Step-size rules on language: BERT on sentence pairs and on toxic comments
#
# *Side road of page [12](12_joint_training.ipynb) · 15 minutes · [words](words.md).* By the end, you will be able to write normalised and Polyak steps for a network, and read a comparison of optimisers with its intervals.
#
# This page is about **paper A** (*Implicit Bias and Fast Convergence Rates for Self-attention*, arXiv 2402.05738), **Figures 1 and 4**.
#
# **Question.** Adam trains language models faster than plain stochastic gradient descent (SGD). Is SGD also faster if only its step size adapts to the gradient?
#
# **The paper's answer.** Yes. When a pretrained BERT is fine-tuned, normalised SGD trains it faster than plain SGD does. As we read Figures 1 and 4, Polyak's rule and Adam are also faster than SGD.
#
# ## A sentence pair, and its tokens
#
# Figure 1 uses the data set MultiNLI, in which each row is a pair of sentences. The network must decide whether the second sentence follows from the first (entailment), contradicts it, or does neither. A tokenizer splits the pair into words and parts of words, and replaces each of these by a number.

# %% tags=["parameters"]
# Set-up, no need to read.
scale = "demo"
threads = 1

# %% tags=["set-up"]
# Set-up, no need to read.
import numpy as np
import torch
from tokenizers import Tokenizer
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from companion import record
from lib.data.texts import TextSet
from lib.networks import bert
from lib.training import rules
from lib.training.studies import DEMO
from papers import verdicts
from papers.studies import kept_curves, paper_form, second_round, smoke, speed
from papers.studies.family import centred_steps

run = record.start("14_bert", "A", globals(), None)
torch.set_num_threads(threads)  # sums are split over threads, and another split rounds differently

# %%
premises = ["The teacher in the library reads a letter at noon."] * 3
hypotheses = ["The teacher reads a letter.", "The teacher reads a sad letter.", "The teacher sleeps."]
labels = np.array([0, 1, 2])  # entailment, neutral, contradiction
data = TextSet(texts=premises, labels=labels, classes=3, name="three pairs", pairs=hypotheses)

weights = bert.weights(demo=True)
tokens = bert.tokenise(weights, data, length=24)
tokenizer = Tokenizer.from_file(str(weights.folder / "tokenizer.json"))
tokenizer.no_padding()
print(*tokenizer.encode(premises[0], hypotheses[0]).tokens)
print(tokens.inputs[0, 0, : tokens.lengths[0]].tolist())

# %% [markdown]
# ## Two rules, written out
#
# Let $\theta_t$ be the vector of all parameters of the network after $t$ steps, and $g_t$ the gradient of the loss $L_t$ on the current minibatch. The learning rate is $\eta$, and $\eta_{\max}$ is a cap on the step size. The constant $L^*$ is the smallest possible loss.
#
# | rule | step |
# |---|---|
# | SGD | $\theta_{t+1} = \theta_t - \eta\, g_t$ |
# | Adam | a step against the running mean of $g_t$, which is divided coordinate by coordinate by the square root of the running mean of $g_t^2$ |
# | SNGD, normalised SGD (Eq. 2, capped) | $\theta_{t+1} = \theta_t - \min(\eta / \lVert g_t\rVert,\ \eta_{\max})\, g_t$ |
# | SPS, Polyak's rule (Eq. 3, capped, $L^*=0$) | $\theta_{t+1} = \theta_t - \min(L_t / (2\lVert g_t\rVert^2),\ \eta_{\max})\, g_t$ |
#
# The paper's two rules, SNGD and SPS, move along $-g_t$ and choose only the length of the step. A step of SNGD has the length $\eta$ unless the cap shortens it. Without its cap, SPS takes half the step that would bring the loss to zero if the loss were linear. On this page we call SPS "Polyak's rule".


# %%
def sngd(theta, gradient, loss, rate, cap):
    return theta - min(rate / gradient.norm(), cap) * gradient


def sps(theta, gradient, loss, rate, cap):
    return theta - min(loss / (2 * gradient.norm() ** 2), cap) * gradient

# %% [markdown]
# We take a hundred steps of SNGD on our three pairs, with a small BERT that starts from random weights. Each step has length 0.1, however large the gradient is. A network that assigns equal probabilities to the three classes has the loss $\log 3 = 1.10$, which we call the loss of guessing.

# %%
def train(rate):
    """Take a hundred steps of SNGD, and print the loss and the length of the gradient."""
    torch.manual_seed(0)
    network = bert.small_classifier(weights, classes=3).eval()  # without dropout
    for step in range(101):
        loss = cross_entropy(network(tokens.inputs), tokens.labels)
        network.zero_grad()
        loss.backward()
        theta = parameters_to_vector(network.parameters())  # (number of weights,)
        gradient = parameters_to_vector(weight.grad for weight in network.parameters())
        moved = sngd(theta, gradient, loss, rate, cap=100.0)
        vector_to_parameters(moved.detach(), network.parameters())
        if step % 20 == 0:
            print(f"step {step:3}: loss {loss.item():.2f}, length of the gradient {gradient.norm().item():.2f}")


train(0.1)

# %% [markdown]
# The next cell checks that the library's optimisers take the same steps as these two functions.

# %%
torch.manual_seed(0)
inputs, labels = torch.randn(8, 5), torch.arange(8) % 3
for name, rule in (("SNGD", sngd), ("SPS", sps)):
    layer = torch.nn.Linear(5, 3, bias=False)
    before, found = layer.weight.detach().clone(), cross_entropy(layer(inputs), labels)
    found.backward()
    optimizer = rules.optimiser(name, layer, rate=0.3, cap=0.3)
    optimizer.step(lambda loss=found: loss)
    by_page = rule(before, layer.weight.grad, found.detach(), 0.3, 0.3)
    torch.testing.assert_close(layer.weight.detach(), by_page)
    print(f"{name}: the page's step is the library's")

# %% [markdown]
# ## Six comparisons
#
# It takes hours to train a pretrained encoder, so this page draws runs that are stored in the repository. We trained in two rounds. The first round had three seeds and was exploratory. The second round has 16 seeds on sentence pairs and 28 seeds on comments, which are new, and we committed [its protocol](confirmation.md) before it began. The second round decides the claims; page [51](51_fresh_seeds.ipynb) explains how. (For comments the protocol planned 24 seeds. After six seeds of each study, a script measured how much the numbers of steps vary between the seeds of a rule, but compared no two rules. On comments they varied more than planned, so by the rule of the protocol four more seeds were run.)
#
# For each data set the protocol fixes three target values of the training loss: 1.0, 0.9 and 0.8 for sentence pairs, and 0.6, 0.5 and 0.4 for comments. The claims are judged by the last target. The loss is that of 256 fixed training rows, read every 20 steps. The target is reached when the mean of three successive readings is at most the target. We count the steps up to the middle one of these readings; the run ends at the last of them, one reading later. We take the number of steps that a rule needs to reach the target, and divide this number by the number of steps that SGD needs with the same seed. A ratio below 1 means that the rule is faster than SGD.
#
# The comparison should be fair to every rule, so the learning rate of each rule was chosen, too. In the first round we tried four rates or more of each rule. The best one and the better of its neighbours were then compared on three seeds that decide no claim, and the rate with the smaller median number of steps was taken. If the two medians were equal, as in four of the eight comparisons, the rate of the first round was kept. On sentence pairs these are 0.025 for SGD, 0.0001 for Adam and 0.1 for normalised SGD; on comments 0.025, 0.0002 and 0.2. Polyak's rule has no learning rate. For it, the cap was chosen in the same way, 0.2 on both data sets, and normalised SGD has the same cap. (In the first round the cap on comments was 0.4, for both rules.) A minibatch has 16 rows.
#
# We compute two confidence intervals for the ratio. One is the usual 95 % interval. The other one is wider, because the protocol judges 21 claims together: it is corrected by Holm's procedure (page 51), which keeps the chance that any of the verdicts is wrong below 5 %. The paper's claim that a rule is faster than SGD is *reproduced* if the whole corrected interval lies below 1. The claim is *not reproduced* if this interval lies above 1, or if it contains 1 and lies between 0.8 and 1.25, the range in which we call two rules equally fast. Otherwise the claim is *undecided*. The next table has the verdicts on sentence pairs, with the 95 % intervals. In a row, the number called p belongs to the claim alone, and Holm's p is corrected for all 21 claims. Below the table are the corrected intervals.

# %%
figures = {"multi_nli": "fig1", "civil_comments": "fig4"}
studies = {name: second_round.read(fig) for name, fig in figures.items()}
studies["multi_nli"].claims

# %%
for claim, (low, high) in studies["multi_nli"].corrected.items():
    print(f"{claim}: corrected interval {low:.2f} to {high:.2f}")


# %%
def picture(name):
    """The figure of a study and its caption."""
    about = second_round.caption(studies[name])
    return kept_curves.captioned(second_round.draw(studies[name]), about), about


shown = {name: picture(name) for name in figures}
shown["multi_nli"][0]

# %% [markdown]
# We decide the claims by this figure:
#
# * **Steps to the training loss, divided by SGD's.** Each dot shows the ratio for one seed; equal dots are stacked. The thick bar is the 95 % interval of the ratio, and the thin bar is the corrected interval. The line at 1 represents SGD. If the paper is right, every thin bar lies to the left of this line, in the grey area.
# * **Training loss.** Each thin line shows one run, up to a small dot at the step at which it reaches the target loss. Each large mark shows the geometric mean of the numbers of steps that the runs of one rule need to reach this loss.
#
# The next figure shows the step sizes that the rules took in these runs. A line is the median of running means over 50 steps, over the runs that have not ended yet, and each small mark is the end of a run. SGD's step size is its learning rate, 0.025. Adam is missing, because each of its coordinates has a step size of its own. A step size is the factor before $g_t$ in the table of rules above. At first the step sizes of the other two rules are larger than SGD's, and after about 300 steps they are slightly smaller.

# %%
speed.beside(studies["multi_nli"].curves)

# %% [markdown]
# The next figure has the form of the paper's Figure 1, and no claim is decided by it. It shows the training loss of the minibatches and the test accuracy, both over epochs. Its runs are those of the first round, in which we measured the test accuracy during training. At first Polyak's rule is behind SGD. But at epoch 0.72, at which the shortest of all runs ends, all three other rules are ahead of SGD, in every seed. A run of this round stops when the training loss has fallen to 0.75, a little below the last target, so all rules end at about the same loss, and the faster rules end earlier. Their accuracies at the end, in the lower panel, differ by less than three percentage points. The 95 % intervals there are over the seeds, and leave out the error that is due to the choice of the test rows.

# %%
first_round = {name: kept_curves.kept(fig) for name, fig in figures.items()}
paper_form.figure(first_round["multi_nli"])

# %% [markdown]
# Figure 4 uses the data set CivilComments. Each comment is either toxic or not, and often a few words of the comment decide which. Are all three rules faster than SGD on these data, too?

# %%
studies["civil_comments"].claims

# %%
for claim, (low, high) in studies["civil_comments"].corrected.items():
    print(f"{claim}: corrected interval {low:.2f} to {high:.2f}")

# %%
shown["civil_comments"][0]

# %% [markdown]
# On comments the two rules differ in their step sizes. Normalised SGD keeps a step size about twice that of SGD. The step size of Polyak's rule is mostly equal to its cap, 0.2, in the first step, and then falls; in the second half of a run it is mostly smaller than SGD's. (The figure shows this fall late and small, since each of its points is a mean over the 50 steps before it.) Nevertheless Polyak's rule reaches the target as early as normalised SGD does. So it may also matter when the steps are large.

# %%
speed.beside(studies["civil_comments"].curves)

# %% [markdown]
# The next figure has the form of the paper's Figure 4. Its runs are again those of the first round, with the cap 0.4, and no claim is decided by it. In each of its three seeds, Adam and Polyak's rule lower the loss faster than SGD. (Among the 28 seeds of the second round there are a few in which Polyak's rule or normalised SGD needs more steps than SGD.) The accuracies at the end differ by less than two percentage points.

# %%
paper_form.figure(first_round["civil_comments"])

# %% [markdown]
# ## What we saw
#
# **Here,** all six claims are reproduced. On sentence pairs, Adam needs 0.52 times as many steps as SGD, Polyak's rule 0.60 times and normalised SGD 0.65 times as many. On comments, the ratios are 0.35, 0.71 and 0.69. So in our small networks SGD is also faster on language data if only its step size adapts to the gradient. Adam has the smallest ratio on both data sets, but no claim compares the three rules with each other.
#
# A ratio depends on how steps are counted. On comments this matters for Adam: its runs take about 60 steps, and the clock is read every 20 steps. By other counts its ratio lies between 0.30 and 0.42, and at other learning rates it is up to 0.50 (page [51](51_fresh_seeds.ipynb)); it is below 1 by all of them.
#
# Is Adam also faster than the other two rules? The next cell divides the numbers of steps seed by seed. The protocol did not plan this comparison, so these 95 % intervals decide nothing.

# %%
for name, of in studies.items():
    target = of.runs.targets[-1]
    steps = {rule: np.array([centred_steps(run, target) for run in of.runs.of(rule)]) for rule in ("Adam", "SPS", "SNGD")}
    for rule in ("SPS", "SNGD"):
        measured = verdicts.ratio_interval(steps["Adam"] / steps[rule])
        print(f"{name}: Adam needs {measured.estimate:.2f} of {rule}'s steps ({measured.low:.2f} to {measured.high:.2f})")

# %% [markdown]
# In the first round all six ratios lay below 1, too. But with three seeds the intervals were wide: three claims were undecided, and after a correction for the number of claims none of the six was decided. That round counted the steps to the last of the three readings, not to the middle one. The next cell shows the verdicts of that round, which are not corrected. ("In the trials" gives the range of the ratio over two learning rates of both rules, each tried with one seed.)

# %%
for name, fig in figures.items():
    print(speed.table(first_round[name], fig).words())

# %% [markdown]
# ## Change this
#
# Make a prediction, then run the cell. The second cell trains on generated sentence pairs; if you have set `DATA_DIR`, it trains on a sample of the real data instead, and the answer may differ.
#
# 1. Train on the three pairs with steps of SNGD that are ten times as short, and ten times as long. *Hint:* the hundred steps above had the length 0.1, and the loss fell below 0.3. *Predict:* does the loss fall faster with the longer steps?

# %%
for rate in (0.01, 1.0):
    print("steps of length", rate)
    train(rate)

# %% [markdown]
# <details><summary>Answer</summary>
#
# With neither length does the loss fall much below the loss of guessing. A hundred steps of length 0.01 do not lead far enough. With steps of length 1, the loss jumps up and down, because a step stays as long when the gradient gets smaller. So the learning rate of SNGD has to fit the network and the number of steps, like that of SGD.
#
# </details>
#
# 2. Add a rule of your own, as a function that returns an optimiser. The rule in this cell steps against the sign of the gradient, with one seed. *Hint:* every coordinate moves by the learning rate in every step. *Predict:* which of the three learning rates is best?

# %%
def sign(parameters, rate):
    return torch.optim.Adam(parameters.values(), rate, betas=(0.0, 0.0))


small = DEMO["multi_nli"]
for rate in (1e-4, 1e-3, 1e-2):
    print("rate", rate, smoke.last_losses(small, {"sign": rate}, rules={"sign": sign}))

# %% [markdown]
# <details><summary>Answer</summary>
#
# The middle one. Only with the learning rate 0.001 is the last loss below the loss of guessing, 1.10. With 0.0001 the 60 steps are too short, and with 0.01 they are too long. Usual learning rates of Adam are small for the same reason: Adam, too, moves every coordinate by about the learning rate.
#
# </details>

# %% tags=["set-up"]
# Set-up, no need to read.
if scale != "demo":  # a demo run redraws what is kept and records nothing
    for name, fig in figures.items():
        study = studies[name]
        made = study.curves, *shown[name], second_round.table(study)
        numbers = second_round.numbers(study)
        kept_curves.save(run, f"fastrates_{fig}", f"Figure {fig[3:]}", *made, numbers=numbers)
