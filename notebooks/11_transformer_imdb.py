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
# **Paper C** (*Optimizing Attention with Mirror Descent*, arXiv 2410.14581), its **experiments on IMDb**.
#
# An encoder with as many layers as heads, no biases, read out at the first token, is trained in all its parameters by
# $\ell_p$ mirror descent, entry by entry
#
# $$|\theta_{t+1}|^{p-1}\,\mathrm{sgn}\,\theta_{t+1} = |\theta_t|^{p-1}\,\mathrm{sgn}\,\theta_t - \eta\, g_t,$$
#
# with $g_t$ the gradient of the loss summed over the batch; $p = 2$ is gradient descent. The paper's findings:
# **$\ell_{1.1}$ generalises best, then $\ell_3$, then $\ell_2$** (at model size 3), and $\ell_{1.1}$ ends with fewer
# large weights than $\ell_2$. Its ten repeats start from copies of one initial model; **here every repeat has its own
# start and its own order of batches**.

# %% tags=["parameters"]
scale = "demo"
seeds = 2
train_rows = 2000
test_rows = 500
tokenizer = "words"
vocabulary_size = 200
length = 24
size, width, hidden = 3, 24, 96
dropout = 0.0
batch = 50
steps = 120
evaluations = 4
stop_accuracy = 0.995
held_out_rows = 400
grid_steps = 40
rates_1 = [1e-3, 2e-3]
rates_2 = [4e-3, 8e-3]
rates_3 = [2e-4, 4e-4]
window = 20
threshold = 0.06
accuracy_tolerance = 0.1
precision = "float32"
compiled = False
threads = 1

# %%
import numpy as np
import torch

from lib import training
from lib.companion import claims, plots, record
from lib.data import texts
from lib.networks import vocabulary, weight_statistics
from lib.networks.text import TextTransformer, attended, reviews_judge, summed_loss
from lib.training import comparison
from lib.training.mirror_descent import MirrorDescent

run = record.start("11_transformer_imdb", "C", globals())
plots.set_style()
torch.set_num_threads(threads)  # sums are split over threads, and another split rounds differently
exponents = {"l1.1": 1.1, "l2": 2.0, "l3": 3.0}

# %% [markdown]
# ## Data
#
# Real IMDb where `DATA_DIR` or `data/` holds it (or, beyond demo scale, from the hub); otherwise sentences about films
# that are put together here. With `tokenizer = "words"` the tokens are the training reviews' most frequent words, with
# "bert" those of the BERT vocabulary that the paper has. A review longer than `length` tokens is cut, an empty one is
# an error. Learning rates are judged on held-out training reviews, never on test reviews.

# %%
demo = scale == "demo"
train_set = texts.load("imdb", "train", demo=demo).sample(train_rows)
test_set = texts.load("imdb", "test", demo=demo).sample(test_rows)
identity = texts.identity("imdb", demo=demo)
words = vocabulary.choose(tokenizer, train_set.texts, vocabulary_size)
rest, held_out = train_set.hold_out(held_out_rows)
encoded = {
    id(part): words.encode(part.texts, length) for part in (train_set, test_set, rest, held_out)
}
cut = encoded[id(train_set)].cut / len(train_set)
print(
    f"{identity['name']} ({identity['source']}): {len(train_set):,} training, {len(test_set):,} test reviews,"
)
print(
    f"{len(words):,} words; {100 * cut:.0f} % of the training reviews are longer than {length} tokens and were cut"
)

# %% [markdown]
# ## Training
#
# As in the paper a run ends early, at the first evaluation where `stop_accuracy` of the training reviews (here: of the
# about `test_rows` of them, spread over the set) are classified correctly.


# %%
def network():
    return TextTransformer(len(words), length, size, width, hidden, dropout)


def judge(name, part, rows):
    every = slice(
        None, None, max(1, len(part) // rows)
    )  # spread over the set, which may be sorted by label
    found = reviews_judge(encoded[id(part)].ids[every], torch.from_numpy(part.labels[every].copy()))
    return lambda model: {
        f"{name}_{key.removeprefix('test_')}": value for key, value in found(model).items()
    }


def train_one(rule, rate, seed, data, judged, steps, points=()):
    model = training.initialised(network, seed)
    if compiled:
        model.compile()
    batches = training.Batches(encoded[id(data)].ids, torch.from_numpy(data.labels), batch, seed)
    judges = judge("test", judged, len(judged)), judge("training", data, test_rows)
    optimizer = MirrorDescent(model.parameters(), rate, exponents[rule])
    options = dict(
        loss=summed_loss, evaluate=lambda model: judges[0](model) | judges[1](model), evaluate_at=points,
        stop=lambda found: found["training_accuracy"] >= stop_accuracy, label=f"{rule} {rate:g}, seed {seed}",
    )  # fmt: skip
    return model, training.train(model, optimizer, batches, steps, precision=precision, **options)


def held_out_loss(rule, rate):
    return train_one(rule, rate, 100, rest, held_out, grid_steps)[1].metrics.get(
        "test_loss", [np.nan]
    )[-1]


candidates = {"l1.1": rates_1, "l2": rates_2, "l3": rates_3}
grid = {
    rule: {rate: held_out_loss(rule, rate) for rate in values}
    for rule, values in candidates.items()
}
chosen = comparison.choose(grid)
print(comparison.table(grid, chosen), "\nat the grid's edge:", comparison.at_edge(grid, chosen))

# %%
points = np.linspace(0, steps, evaluations + 1).astype(int)
trained = {
    rule: [train_one(rule, rate, seed, train_set, test_set, steps, points) for seed in range(seeds)]
    for rule, rate in chosen.items()
}
histories = {rule: [history for _, history in runs] for rule, runs in trained.items()}
loss = {
    rule: values / batch for rule, values in comparison.stacked(histories, "loss").items()
}  # (seeds, steps) a rule
accuracy = comparison.stacked(histories, "test_accuracy")  # (seeds, points) a rule
for rule, runs in trained.items():
    print(
        f"{rule:5} test accuracy {training.at_end(accuracy[rule]).round(4)}; {', '.join(h.status for _, h in runs)}"
    )
learnt = {
    rule: training.at_end(v)
    for rule, v in comparison.stacked(histories, "training_accuracy").items()
}  # (seeds,)
epochs = {rule: np.isfinite(v).sum(1).mean() * batch / len(train_set) for rule, v in loss.items()}

# %% [markdown]
# ## The paper's table beside ours
#
# Theirs: model size 3, width 384, ten repeats of one start, mean and standard deviation over repeats. Ours: mean and
# standard deviation over starts. "Largest" is the best evaluation of a run, which looks at the test set; it is shown
# because the paper shows it, and no claim rests on it. The order of the last accuracies is what the claims are about.
# **At desk scale the paper's order does not come out**: three epochs instead of 72 to 162 leave every rule far below
# the paper's accuracies, $\ell_{1.1}$ and $\ell_2$ within their spread, and $\ell_3$, at the upper edge of its grid, first.

# %%
theirs = {
    "l1.1": (0.8347, 0.8257),
    "l2": (0.8166, 0.8061),
    "l3": (0.8257, 0.8133),
}  # largest, last; size 3
last = {rule: training.at_end(values) for rule, values in accuracy.items()}  # (seeds,)
print("rule   theirs: largest  last   | ours: largest         last             training  epochs")
for rule, values in accuracy.items():
    best = np.nanmax(values, 1)
    print(
        f"{rule:5}          {theirs[rule][0]:.4f}   {theirs[rule][1]:.4f} |      {best.mean():.4f} ± {best.std():.4f}"
        f"   {last[rule].mean():.4f} ± {last[rule].std():.4f}  {learnt[rule].mean():.3f}     {epochs[rule]:.1f}"
    )
gap = {rule: np.mean(last["l1.1"] - last[rule]) for rule in ("l2", "l3")}
starts = [
    torch.cat([p.detach().flatten() for p in training.initialised(network, seed).parameters()])
    for seed in range(2)
]

# %%
about_imdb = [
    claims.at_least("order.l2", "l1.1 beats l2: last test accuracy, difference", "paper C, IMDb", gap["l2"], 0),
    claims.at_least("order.l3", "l1.1 beats l3: last test accuracy, difference", "paper C, IMDb", gap["l3"], 0),
    claims.at_least("order.l3.l2", "l3 beats l2: last test accuracy, difference", "paper C, IMDb",
                    gap["l2"] - gap["l3"], 0),
]  # fmt: skip
table = claims.Table([
    claims.at_least("starts", "repeats differ: distance of two starts over their norm", "ours",
                    float((starts[0] - starts[1]).norm() / starts[0].norm()), 0.1),
    claims.at_least("learns", "best mean test accuracy", "ours", np.nanmax([v.mean() for v in last.values()]), 0.55),
    *(about_imdb if identity["name"] == "imdb" else []),
])  # fmt: skip
table

# %% tags=["nbval-check-output"]
print(
    f"{len(exponents)} values of p, {size} layers of {size} heads, biases: {any('bias' in n for n, _ in network().named_parameters())}"
)

# %%
figure, axes = plots.panels(1, 4, height=2.5)
for k, rule in enumerate(exponents):
    smooth = training.running_mean(loss[rule], window)
    plots.band(axes[0], np.arange(steps) + 1, smooth, rule)
    plots.band(axes[1], points, 100 * accuracy[rule], rule, marker="o", markersize=2.5)
    colour = plots.COLOURS[rule]
    axes[3].plot([k - 0.12], [100 * theirs[rule][1]], "_", color=colour, markersize=12)
    axes[3].plot([k + 0.12] * seeds, 100 * last[rule], ".", color=colour)
plots.rate_grid(axes[2], grid, chosen)
axes[0].set(title="Training loss", xlabel="Step")
axes[1].set(title="Test accuracy (%)", xlabel="Step")
axes[3].set(title="Paper –, ours · (%)", xticks=range(3), xticklabels=exponents)
plots.legend(figure, axes[0])
stamp = "DEMO DATA: " if identity["source"] == "demo" else ""
lengths = " to ".join(sorted({f"{f(epochs.values()):.1f}" for f in (min, max)}, key=float))
setting = (
    f"{stamp}{identity['name']} ({identity['source']}), {len(train_set):,} training and {len(test_set):,} test reviews cut to"
    f" {length} tokens (512), {len(words):,} {'words' if tokenizer == 'words' else 'BERT tokens'} (30,522);\nencoder of"
    f" size {size}, width {width} (384), MLP {hidden} (1,536), dropout {dropout:g} (0.2), batch {batch} (100), {steps:,}"
    f" steps\nor training accuracy {stop_accuracy:g}: {lengths} epochs (72 to 162), {seeds} seeds (10); rates chosen on {held_out_rows:,}"
    f" held-out reviews (at the grid's edge: {', '.join(comparison.at_edge(grid, chosen)) or 'none'})"
)
about = f"Paper C's IMDb experiment, reduced (the paper's sizes in brackets):\n{setting}"
plots.caption(figure, about)
numbers = {
    f"{rule.replace('.', '_')}_test_accuracy": record.Number(
        v.mean() if np.isfinite(v).all() else None, accuracy_tolerance
    )
    for rule, v in last.items()
}
shared = dict(data=[identity], device=trained["l2"][0][1].device, dtype=precision)
run.save(figure, slug="mirror_imdb", number="IMDb table", caption=about.replace("\n", " "), claims=table,
         numbers=numbers, **shared)  # fmt: skip
figure

# %% [markdown]
# ## Which tokens are selected
#
# The weights with which the first token attends, mean over heads of the last layer, on the first test reviews of each
# label. A darker cell is a larger weight. How many tokens a row of weights $a$ uses is $\exp(-\sum_t a_t \log a_t)$,
# between 1 and the number of tokens; the mean over 200 test reviews, as a share of their tokens, is printed and claimed.
# The paper sees $\ell_{1.1}$ select most sharply; at desk scale the three are equal within a few per cent.

# %%
sample = encoded[id(test_set)].ids[:200]
present = (sample != vocabulary.PADDING).sum(1)  # (reviews,)
maps = {
    rule: torch.stack([model.attention(sample) for model, _ in runs])
    for rule, runs in trained.items()
}
used = {rule: float((attended(a)[:, :, -1].mean(-1) / present).mean()) for rule, a in maps.items()}
print(
    "share of the tokens used, last layer:",
    ", ".join(f"{rule} {value:.3f}" for rule, value in used.items()),
)
unsummed = max(float((a.sum(-1) - 1).abs().max()) for a in maps.values())
sharper = claims.at_most(
    "sharper", "tokens used by l1.1 over l2's, last layer", "paper C", used["l1.1"] / used["l2"], 1
)
sharp = claims.Table([
    claims.at_most("sum", "attention weights sum to 1: worst error", "ours", unsummed, 1e-5),
    *([sharper] if identity["name"] == "imdb" else []),
])  # fmt: skip
sharp

# %%
names = words.names
shown = [int(np.flatnonzero(test_set.labels[:200] == label)[0]) for label in (1, 0)]
figure, axes = plots.panels(2, 1, height=1.9)
for ax, row in zip(axes, shown):
    count = min(int(present[row]), 32)
    shares = np.stack(
        [maps[rule][0, row, -1].mean(0)[:count].numpy() for rule in exponents]
    )  # (rules, tokens)
    ax.imshow(shares / shares.max(1, keepdims=True), cmap="Greens", aspect="auto", vmin=0, vmax=1)
    ax.set_xticks(range(count), [names[k] for k in sample[row, :count]], rotation=90, fontsize=6)
    ax.set(
        yticks=range(3),
        yticklabels=list(exponents),
        title=f"A review of label {test_set.labels[row]}",
    )
    ax.grid(False)
plots.caption(
    figure,
    f"Attention of the first token, last layer, seed 0, each row over its largest weight:\n{setting}",
)
numbers = {
    f"{rule.replace('.', '_')}_tokens_used": record.Number(value, 0.15)
    for rule, value in used.items()
}
run.save(figure, slug="mirror_attention", number="attention maps", caption=setting.replace("\n", " "), claims=sharp,
         numbers=numbers, **shared)  # fmt: skip
figure

# %% [markdown]
# ## How large the weights are
#
# The paper counts the entries of $K$, $Q$, $V$ above 0.06 in a model of size 6, in this order (which it leaves
# unsaid): $\ell_{1.1}$ 18,206, 13,964 and 7,643, $\ell_2$ 27,224, 14,654 and 10,127. At another width the start has
# another scale, so the share above 0.06 is shown with a number without scale: the even share
# $(\sum|w|)^2 / (N \sum w^2)$, 1 where all entries are equally large. At desk scale three epochs move the weights little
# from their start, so the differences are small: in even shares they have the paper's sign, above 0.06 not in every part.

# %%
parts = {"K": "key", "Q": "query", "V": "value"}
entries = {
    (rule, part): [
        [W for name, W in weight_statistics.matrices(m).items() if f".{parts[part]}." in name]
        for m, _ in runs
    ]
    for rule, runs in trained.items()
    for part in parts
}  # {(rule, part): seeds lists of one matrix a layer}
above = {
    key: np.mean([weight_statistics.share_above(found, threshold) for found in runs])
    for key, runs in entries.items()
}
even = {
    key: np.mean([weight_statistics.effective_share(W) for found in runs for W in found])
    for key, runs in entries.items()
}
for part in parts:
    print(
        part,
        ", ".join(
            f"{rule}: above {above[rule, part]:.3f}, even share {even[rule, part]:.3f}"
            for rule in exponents
        ),
    )
about_weights = [
    *(claims.at_most(f"above.{part}", f"{part}: entries above {threshold:g}, l1.1 over l2", "paper C, sparsity",
                     above["l1.1", part] / above["l2", part], 1) for part in parts),
    *(claims.at_most(f"even.{part}", f"{part}: even share, l1.1 over l2", "paper C, sparsity, our measure",
                     even["l1.1", part] / even["l2", part], 1) for part in parts),
]  # fmt: skip
start = np.median(
    [
        weight_statistics.effective_share(W)
        for W in weight_statistics.matrices(training.initialised(network, 0).blocks).values()
    ]
)
sparse = claims.Table([
    claims.close("start", "even share at the start, that of uniform entries", "ours", start, 0.75, 0.02),
    *(about_weights if identity["name"] == "imdb" else []),
])  # fmt: skip
sparse

# %%
figure, axes = plots.panels(1, 3, height=2.5)
for ax, part in zip(axes, parts):
    for rule in exponents:
        plots.magnitudes(
            ax, [W for found in entries[rule, part] for W in found], rule, smallest=1e-4
        )
    ax.axvline(threshold, linestyle=":", color="0.3")
    ax.set(title=f"{part}: share of entries (%)")
plots.legend(figure, axes[0])
plots.caption(figure, f"Magnitudes of the weights at the end, all layers and seeds:\n{setting}")
numbers = {
    f"{rule.replace('.', '_')}_above_{part}": record.Number(v, 0.1)
    for (rule, part), v in above.items()
}
run.save(figure, slug="mirror_sparsity", number="weight histograms", caption=setting.replace("\n", " "), claims=sparse,
         numbers=numbers, **shared)  # fmt: skip
figure
