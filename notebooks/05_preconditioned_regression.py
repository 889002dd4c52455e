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
# # Softmax attention trained to the global optimum by preconditioning
#
# **Paper B** (*Training Dynamics of Softmax Self-Attention: Fast Global Convergence via Preconditioning*,
# arXiv 2603.01514), **Figures 1 and 2**, Theorems 1 and 2.
#
# One attention layer $Z = (A; B)$ predicts $f_Z(x) = A\,\frac{\sum_i x_i e^{x^\top B x_i}}{\sum_i e^{x^\top B x_i}}$ and is
# trained on linear data $y = Mx + \varepsilon$, $x \sim N(0, \Sigma)$. With infinitely many samples its loss is a matrix
# factorisation,
#
# $$L(Z) = \tfrac12 \|A\Sigma B^\top\Sigma^{1/2} - M\Sigma^{1/2}\|_F^2 + \tfrac{k\sigma^2}2,$$
#
# and three changes make gradient descent reach its minimum at a geometric rate: a spectral start, the preconditioner
# $\mathrm{diag}(I, \hat\Sigma^{-1})$ and the regulariser
# $R(Z) = \frac18\|\Sigma^{1/2}(A^\top A - B^\top\Sigma B)\Sigma^{1/2}\|_F^2$.

# %% tags=["parameters"]
scale = "demo"
seeds = 2
d, k, n, batch = 5, 20, 10_000, 256
signal, noise, floor, start_std = 0.2, 0.045, 0.35, 1.0
steps = 2000
step_size = 0.1
best_steps = {
    "Algorithm 1": 0.1,
    "SGD": 0.4,
    "Adam": 0.1,
    "Muon": 0.01,
    "SOAP": 0.03,
    "Shampoo": 1.0,
}
tuning_seeds, tuning_grid = 0, [0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 1.0]
condition_floors = [0.35, 0.1, 0.03]
small_d, small_k = 2, 4
sizes = [16, 50, 160, 500, 1600]
oracle_steps, draws = 100, 128
start_sizes, repeats = [100, 1000, 10_000, 100_000], 10
monte_carlo, searches = 200_000, 1

# %%
import numpy as np
import seaborn

from lib import regression
from lib.companion import claims, plots, record
from lib.papers import fits
from lib.papers.b import experiments, figures, measurements, smoothness, theorems

run = record.start("05_preconditioned_regression", "B", globals())
plots.set_style()

# %% [markdown]
# ## Data
#
# As in Appendix A, $\Sigma$ and $M$ come from two Gaussian matrices, scaled so that A1-A3 hold: $\|\Sigma\| = 1$,
# $\lambda_{min}(\Sigma) \ge$ `floor`, $\|M\Sigma^{1/2}\|$ = `signal`. Sizes, scales and step size did not survive in the
# text at hand: **these are our settings**. So is the constant of A3: the self-logit $x^\top B x$ of an in-sample query
# must have $\mathbb E e^{c\,x^\top Bx} < \infty$ on the whole manifold of minima for $c = 1$.


# %%
def build(floor, of_seeds=range(seeds)):
    return experiments.experiment(
        of_seeds, n, start_std, d=d, k=k, signal=signal, noise=noise, floor=floor
    )


data = build(floor)
optimum = data.problems[0].optimal_loss
for seed, problem in enumerate(data.problems):
    held = problem.assumptions()
    print(f"seed {seed}: A1 lambda_min(Sigma) = {held['A1'][0]:.3f}; A2 sigma_d(M Sigma^1/2) = {held['A2'][0]:.3f};",
          f"A3 largest moment c = {held['A3'][0]:.3f}, needs > 1; all hold: {all(holds for _, holds in held.values())}")  # fmt: skip
print(f"irreducible loss k sigma^2 / 2 = {optimum:.5f}")

# %% [markdown]
# ## Algebra
#
# The closed forms against samples (in standard errors), and the one-point
# bounds (3) and (4), at the worst perturbation that a search finds, not only at random ones. The paper's constants are
# blank in the text at hand; ours are derived in `lib.manifold`. In the `left_right` norm the search attains our
# convexity constant: it cannot be improved.

# %%
small = regression.random_regression(0, small_d, small_k, signal, noise, floor)
algebra = claims.Table([
    *theorems.by_monte_carlo(data.problems[0], 0, monte_carlo),
    theorems.integrability_threshold(data.problems[0]),
    *theorems.one_point(theorems.curvatures(regression.random_regression(0, 3, 5, signal, noise, floor), searches)),
    smoothness.descent_lemma(data.problems[0]),
])  # fmt: skip
algebra

# %% [markdown]
# ## Training
#
# Every combination of the three changes on the same minibatches, drawn without replacement from the `n` samples;
# P: preconditioner, R: regulariser. "spectral, P, R" is Algorithm 1, "random" is plain SGD. Other optimisers start at the
# same random point. Their step sizes are the best of a grid: fewest iterations to within 10 % of $L^*$ among those that
# end there on each of three other seeds (100 to 102).

# %%
makers = experiments.optimisers()
if tuning_seeds:
    others = range(100, 100 + tuning_seeds)
    tuned = experiments.tune(
        makers, tuning_grid, build(floor, others), batch, steps, others, level=0.1
    )
    print("best of the grid:", tuned, "- as used" if tuned == best_steps else "- NOT as used")

# %%
rules, starts = experiments.ablation(data, step_size)
rules |= {f"best {name}": make(best_steps[name]) for name, make in makers.items()}
rules["best two-sided"] = regression.PreconditionedRule(step_size, "left_right")
starts |= {name: data.random for name in rules if name.startswith("best")}
recorded = np.unique(np.concatenate([np.arange(20), np.linspace(20, steps, 199).astype(int)]))
source = regression.minibatches(data.X, data.Y, batch, range(seeds))
histories = regression.descend(source, rules, starts, data.covariance, steps, recorded)
excess = {
    name: history.excess(data.problems) / optimum for name, history in histories.items()
}  # (seeds, K) each
for name, history in histories.items():
    print(
        f"{name:16} (L - L*)/L* at the end: {np.median(excess[name][:, -1]):8.4f}, diverged: {(history.diverged >= 0).sum()}"
    )
conditions, times = experiments.conditioning(
    condition_floors, build, step_size, batch, steps, range(seeds), level=0.15
)

# %% [markdown]
# ## The scaling law
#
# Theorem 2 speaks of the oracle gradient: the expectation of the in-sample gradient over fresh batches of $n$ samples.
# The start lies off the manifold along its slowest mode, where a worst-case rate is met.

# %%
floors = measurements.scaling(small, sizes, oracle_steps, draws, range(seeds))
distances = measurements.spectral_distances(small, start_sizes, repeats)
bias = measurements.gradient_bias(small, sizes, 20 * draws, seeds)
law = claims.Table(
    [*theorems.theorem_2(floors), *theorems.powers(start_sizes, distances, sizes, bias)]
)
law

# %%
effects = {mark: experiments.factor_effect(excess, mark) for mark in "PR"}
figure_1 = figures.figure_1(excess, "spectral, P, R", "random")
figure_2 = figures.figure_2(excess, "random, P, R", "random")
ablated = [
    *figures.ablation(excess, effects["P"], effects["R"]),
    figures.conditioning(times, steps),
]
ratio = np.median(excess["best Algorithm 1"][:, -1] / excess["best SGD"][:, -1])
compared = [
    claims.at_most(
        "other.sgd",
        "Algorithm 1: last excess over that of SGD, each with its best step, median",
        "ours",
        ratio,
        1.0,
    )
]
training = claims.Table([*figure_1, *figure_2, *ablated, *compared])
training

# %% tags=["nbval-check-output"]
for name, table in (("algebra", algebra), ("scaling law", law), ("training", training)):
    print(f"{name}: {table.summary()}")

# %% [markdown]
# ## Figures
#
# Lines are medians over seeds, bands run from the smallest to the largest seed.

# %%
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"


def setting(number):
    sizes_of_data = f"d={d}, k={k}, n={n:,}, minibatch {batch}, step size {step_size:g}"
    return f"{number}; our setting, {sizes_of_data}; synthetic, {seeds} seeds, float64"


def save(figure, slug, number, about, table, numbers, tolerance=0.01):
    plots.caption(figure, about)
    rows = [
        {
            "name": "random_regression",
            "source": "synthetic",
            "revision": f"seeds 0-{seeds - 1}",
            "rows": n,
        }
    ]
    numbers = {name: None if np.isinf(value) else float(value) for name, value in numbers.items()}
    numbers = {
        name: record.Number(value, tolerance * abs(value or 1.0)) for name, value in numbers.items()
    }
    run.save(figure, slug, number, about, table, numbers, rows)
    return figure


def at(name, column):
    return np.median(excess[name][:, column])


# %%
def time_axis(axis, title):
    axis.set(title=title, yscale="log", xlabel="iteration $t$", xlim=(0, steps))
    axis.set_xscale("symlog", linthresh=10, linscale=0.6)
    axis.set_xticks([0, 10, 100, 1000], ["0", "10", "100", "1000"])


def compare(ours, label):
    figure, (loss, relative) = plots.panels(1, 2, height=2.6)
    for name, text, colour in ((ours, label, BLUE), ("random", "SGD, random start", "black")):
        plots.band(loss, recorded, optimum * (1 + excess[name]), text, colour)
        plots.band(relative, recorded, excess[name], text, colour)
    loss.axhline(optimum, linestyle="--", color="0.4", label="optimum $L^* = k\\sigma^2/2$")
    loss.set(
        title="Population loss $L(Z_t)$",
        yscale="log",
        xlabel="iteration $t$",
        ylim=(optimum / 2, None),
    )
    time_axis(relative, "Excess over the optimum, $(L - L^*)/L^*$")
    plots.legend(figure, loss)
    return figure


# %%
numbers = dict(
    start=at("spectral, P, R", 0),
    end=at("spectral, P, R", -1),
    sgd_start=at("random", 0),
    sgd_end=at("random", -1),
)
figure = compare("spectral, P, R", "Algorithm 1, spectral start")
save(figure, "precond_fig1", "Figure 1", setting("Figure 1"), figure_1, numbers)

# %%
numbers = dict(
    end=at("random, P, R", -1),
    end_worst=excess["random, P, R"][:, -1].max(),
    sgd_end=at("random", -1),
)
figure = compare("random, P, R", "Algorithm 1, same random start")
save(figure, "precond_fig2", "Figure 2", setting("Figure 2"), figure_2, numbers)

# %% [markdown]
# From a random start the regulariser does the work: without it $A$ and $B$ stay unbalanced and the loss stalls. On our
# well-conditioned $\Sigma$ the preconditioner changes nothing measurable, so that its claim holds or fails by chance. It
# matters where $\Sigma$ is ill conditioned (right), and there the two-sided one, gradient descent in the coordinates in
# which the problem is plain matrix factorisation, hardly feels the conditioning at all: **ours, not the paper's**. From
# the spectral start nothing is left to do but to stay, and all four rules do; the plateau is minibatch noise and the
# $O(1/m)$ bias of a minibatch of $m$ keys.

# %%
figure, axes = plots.panels(1, 3, height=2.7)
for axis, start in zip(axes, ("spectral", "random"), strict=False):
    for parts, text, colour, line in (("", "neither", "black", "-"), (", P", "P only", ORANGE, "-"),
                                      (", R", "R only", GREEN, "-"), (", P, R", "P and R", BLUE, "--")):  # fmt: skip
        plots.band(axis, recorded, excess[start + parts], text, colour, linestyle=line)
    time_axis(axis, f"{start.capitalize()} start: $(L - L^*)/L^*$")
for name, colour in (("R only", GREEN), ("P and R", BLUE), ("two-sided P and R", PINK)):
    plots.band(
        axes[2],
        conditions.mean(1),
        np.minimum(times[name], 1.2 * steps).T,
        name,
        colour,
        marker="o",
        markersize=3,
    )
axes[2].axhline(steps, linestyle=":", color="0.4")
axes[2].set(
    title="Iterations to within 15 % of $L^*$",
    xscale="log",
    xlabel="condition number of $\\Sigma$",
    ylim=(0, 1.3 * steps),
)
axes[2].minorticks_off()
axes[2].set_xticks(conditions.mean(1), [f"{number:.0f}" for number in conditions.mean(1)])
axes[0].set_ylim(1e-4, 1e-1)
axes[2].text(conditions.mean(1).min(), 1.06 * steps, "not reached", fontsize="small", color="0.4")
axes[1].plot([], [], color=PINK, label="two-sided P and R (ours)")
plots.legend(figure, axes[1])
numbers = {
    name.replace(", ", "_").lower(): at(name, -1) for name in rules if not name.startswith("best")
}
numbers |= {
    "preconditioner_effect": np.median(effects["P"]),
    "regulariser_effect": np.median(effects["R"]),
}
about = setting("Ablation, P preconditioner, R regulariser")
save(figure, "precond_ablation", "ablation", about, ablated, numbers)

# %%
figure, (path, bottom, powers) = plots.panels(1, 3, height=2.6)
for j, colour in enumerate(seaborn.color_palette("viridis", len(sizes))):
    plots.band(
        path,
        floors.iterations,
        floors.excess[j],
        f"$n={sizes[j]}$" if j in (0, len(sizes) - 1) else "_",
        colour,
    )
path.plot(floors.iterations, floors.exact, color="black", label="$n=\\infty$")
theory = floors.exact[0] * floors.factor**floors.iterations
path.plot(
    floors.iterations,
    theory,
    ":",
    color=ORANGE,
    linewidth=2.5,
    label=r"$(1-\eta\lambda_{min})^{2t}$",
)
path.set(
    title="Excess loss, oracle gradient",
    yscale="log",
    xlabel="iteration $t$",
    ylim=(floors.floor.min() / 30, None),
)
plots.band(bottom, sizes, floors.floor.T, "floor", BLUE, marker="o", markersize=3)
for power, height in ((-1, np.median(floors.floor[0])), (-2, np.median(floors.floor[0]) / 4)):
    plots.power_law(bottom, (sizes[0], sizes[-1]), power, height, f"$n^{{{power}}}$")
    bottom.text(
        sizes[1],
        height * (sizes[1] / sizes[0]) ** power * (3 if power == -1 else 0.1),
        f"$n^{{{power}}}$",
        color="0.3",
    )
plots.band(powers, start_sizes, distances, "start", GREEN, marker="o", markersize=3)
plots.band(powers, sizes, bias, "bias", PINK, marker="o", markersize=3)
for axis, title in (
    (bottom, "Floor of the excess loss"),
    (powers, "Spectral start and gradient bias"),
):
    axis.set(title=title, xscale="log", yscale="log", xlabel="samples $n$")
powers.set_ylim(bias.min() / 4, None)
plots.legend(figure, path)

# %%
exponents = dict(floor=fits.power_fit(sizes, floors.floor.T), start=fits.power_fit(start_sizes, distances),
                 bias=fits.power_fit(sizes, bias))  # fmt: skip
for axis, name, what, place in ((bottom, "floor", "measured", (0.05, 0.06)), (powers, "start", "distance of start", (0.3, 0.9)),
                                (powers, "bias", "gradient bias", (0.05, 0.06))):  # fmt: skip
    value, error = exponents[name]
    axis.text(*place, f"{what}: $n^{{{value:.2f} \\pm {error:.1g}}}$", transform=axis.transAxes, fontsize="small",
              color={"floor": BLUE, "start": GREEN, "bias": PINK}[name])  # fmt: skip
numbers = {f"{name}_exponent": value for name, (value, _) in exponents.items()} | {
    "factor": floors.factor
}
about = f"Theorem 2; our setting, d={small_d}, k={small_k}, {draws} draws an iteration; synthetic, {seeds} seeds, float64"
save(figure, "precond_scaling", "Theorem 2", about, law, numbers, tolerance=0.02)

# %% [markdown]
# With its own best step SGD comes within 10 % of $L^*$ late and on some seeds only. Adam, Muon and SOAP with their best
# steps get there **sooner** than Algorithm 1, without regulariser or knowledge of $\Sigma$, but settle at a higher floor.
# The two-sided preconditioner (ours) is soonest and ends as low as Algorithm 1.

# %%
figure, (path, reached) = plots.panels(1, 2, height=2.9)
colours = {
    "Algorithm 1": BLUE,
    "two-sided": PINK,
    "SGD": "black",
    "Adam": GREEN,
    "Muon": ORANGE,
    "SOAP": "#56B4E9",
    "Shampoo": "#E69F00",
}
numbers = {}
for row, (name, colour) in enumerate(colours.items()):
    values = excess[f"best {name}"]
    needed = experiments.first_below(recorded, values, 0.1)
    plots.band(path, recorded, values, name, colour)
    reached.plot(
        np.minimum(needed, 1.2 * steps),
        np.full(seeds, row),
        "o",
        color=colour,
        markersize=4,
        alpha=0.7,
    )
    key = name.lower().replace(" ", "_").replace("-", "_")
    numbers |= {f"{key}_end": np.median(values[:, -1]), f"{key}_within_10": np.median(needed)}
time_axis(path, "From the random start: $(L - L^*)/L^*$")
path.set_ylim(2e-3, 3e4)
reached.axvline(steps, linestyle=":", color="0.4")
reached.set(
    title="Iterations to within 10 % of $L^*$",
    xlabel="iteration $t$ (beyond the line: not reached)",
    xlim=(0, 1.3 * steps),
)
reached.set_yticks(
    range(len(colours)), [f"{name}, {best_steps.get(name, step_size):g}" for name in colours]
)
reached.invert_yaxis()
about = setting("Other optimisers, each with its best step (named)").replace(
    f", step size {step_size:g}", ""
)
save(figure, "precond_optimizers", "other optimisers", about, compared, numbers, tolerance=0.1)
