"""The main results on one screen: six panels from the committed records.

For two panels we train small problems again, because no record has their curves: the
example of three tokens, and normalised GD on Figure 2's problem.
"""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import PlaceHolderLayoutEngine
from scipy.stats import binomtest

from companion import headlines, plots, record
from companion.claims import Claim
from lib import attention, dynamics, files, svm
from lib.attention import coordinates, tokens
from lib.dynamics import rules
from papers import pieces, verdicts
from papers.a import turning
from papers.law import margin_law

SIZE = (10.0, 8.0)  # inches
SHOWN = (0, 221, 238, 300, 10_000)  # iterations of the first panel
STEPS = 100_000  # steps of the second panel
SEEDS = 2
OURS = plots.look("measured").colour
STOPS = plots.look("stops").colour
# For the third panel: the usual name and the norm of each rule, by the ids of the
# claims.
RULES = {
    "steepest_l_1": ("steepest descent", r"$\ell_1$"),
    "steepest_nuclear": ("steepest descent", "nuclear"),
    "steepest_Frobenius": ("gradient descent", "Frobenius"),
    "steepest_spectral": ("steepest descent", "spectral"),
    "Muon": ("Muon", "spectral"),
    "steepest_l_inf": ("sign descent", r"$\ell_\infty$"),
    "Signum": ("Signum", r"$\ell_\infty$"),
    "Lion": ("Lion", r"$\ell_\infty$"),
}
UNREACHED = {
    "Adam_0_999": r"Adam, $\epsilon=0$",
    "Adam_0_999_epsilon": r"Adam, usual $\epsilon$",
    "Muon_Newton_Schulz": "Muon, Newton-Schulz",
    "AdaGrad": "AdaGrad",
    "SOAP": "SOAP",
}
# For the fifth panel: the beginning of the claims' names in the record of verdicts, the
# data, and what the paper says about each rule.
ON_TEXT = {"adam": "faster", "sps": "faster", "sngd": "faster"}
SPEED = (
    ("fig1", "sentence pairs", ON_TEXT),
    ("fig4", "comments", ON_TEXT),
    ("fig6", "digits", {"adam": "no gain", "sngd": "slower"}),
    ("fig7", "CIFAR-10", {"sngd": "slower"}),
)
NAMES = {"adam": "Adam", "sps": "Polyak", "sngd": "normalised SGD"}
RESULTS = (
    "1  In this example the layer turns to one direction, and so reads one token",
    "2  The error falls like 1/t, faster than proved",
    "3  {reached} of {rules} rules reach the margin of a norm",
    "4  Long rivals delay GD; few dimensions, all",
    "5  Speed of networks: {reproduced} of {judged} agree",
    "6  Regression: near-optimal",
)
# The places at which the words of each panel begin, as shares of the figure.
PLACES = (
    (0.01, 0.945),
    (0.01, 0.655),
    (0.515, 0.655),
    (0.01, 0.295),
    (0.40, 0.295),
    (0.745, 0.295),
)
SMALL = {"fontsize": 7.5}


def _saved(slug: str, scale: str) -> tuple[Mapping, Mapping[str, Claim]]:
    """Return the committed numbers of a figure, and its claims by id."""
    saved = record.read(files.ROOT / "figures" / scale / f"{slug}.json")
    claims = map(Claim.of, saved["claims"])
    return headlines.quantities(saved), {claim.id: claim for claim in claims}


def numbers() -> dict[str, float]:
    """Read the numbers of the poster from the committed records.

    Returns
    -------
    dict of str to float
        The numbers by name, each as it is in its record.
    """
    broken, _ = _saved("fastrates_assumptions", "demo")
    atlas, _ = _saved("atlas_map", "desk")
    bound, _ = _saved("fastrates_bound", "demo")
    start, _ = _saved("precond_fig2", "desk")
    found = {"ngd_exponent": bound["ngd_exponent"], "least_l_1": atlas["least_l_1"]}
    for name in ("ngd_corner", "gd_corner", "polyak_corner"):
        found[name] = broken[name]
    found["algorithm_1_end"] = start["end"]
    found["sgd_end"] = start["sgd_end"]
    return found


def draw() -> Figure:
    """Draw the poster.

    Returns
    -------
    Figure
        Six panels, each with its result written above it.
    """
    # A figure without a layout engine gets the layout engine of the style when Jupyter
    # shows it.
    figure = Figure(figsize=SIZE, layout=PlaceHolderLayoutEngine(True, True))
    place = figure.add_axes
    turns = [place((0.02 + 0.195 * k, 0.735, 0.18, 0.185)) for k in range(len(SHOWN))]
    rate = place((0.06, 0.42, 0.40, 0.205))
    norms = place((0.66, 0.42, 0.23, 0.205))
    broken = place((0.135, 0.05, 0.12, 0.205))
    speed = place((0.555, 0.05, 0.12, 0.205))
    regression = place((0.87, 0.05, 0.085, 0.205))
    _turning(turns)
    _rate(rate)
    _norms(norms)
    _broken(broken)
    _speed(speed)
    _regression(regression)

    # The words above each panel. They belong to its axes, so that a narrow version of
    # the poster, which is put together from the panels, has them too. The first panel
    # has five axes, and its words belong to none of them.
    assumptions, _ = _saved("fastrates_assumptions", "demo")
    start, _ = _saved("precond_fig2", "desk")
    readings = (
        "Size: softmax weight. Number in a token: its score. Arrow: $W_tz$, longer with"
        " training (log scale). Dashed: the direction of largest margin.",
        "Distance of the direction from the largest margin's. Dotted:"
        " $C/\\Vert W_t\\Vert$,\nwhere $C$ is computed from the SVM and nothing is"
        " fitted.",
        "Margin divided by the largest possible, in the worst run, for some rules."
        " Filled:\nthe norm at the right. Hollow: 1 minus its least lead over the"
        " others. Cross: best of all.",
        f"Seeds of {assumptions['seeds']} that reach the direction of largest\n"
        f"margin in {assumptions['steps']:,} steps, with 95 % intervals.",
        "Steps divided by SGD's (bars: 95 %, thin: corrected).\nRight: the paper."
        " Blue: reproduced; orange: not; grey: open.",
        "Loss above the optimum from a random start,\n"
        f"median of {start['seeds']} seeds. Best: step of page 22.",
    )
    _, claims = _saved("verdicts", "desk")
    judged = [claims[name].verdict for name, *_ in _speed_claims()]
    reached, rules_in_all = _reached()
    counts = {
        "reached": reached,
        "rules": rules_in_all,
        "reproduced": judged.count(verdicts.REPRODUCED),
        "judged": len(judged),
    }
    owners = (figure, rate, norms, broken, speed, regression)
    for result, at, owner, reading in zip(
        RESULTS, PLACES, owners, readings, strict=True
    ):
        x, y = at
        above = y + 0.013 + 0.008 * reading.count("\n")
        result = result.format(**counts)
        bold = {"fontsize": 10, "fontweight": "bold"}
        grey = {"va": "center", "color": plots.INKS["shade"], **SMALL}
        for height, words, style in ((above, result, bold), (y, reading, grey)):
            place, transform = (x, height), figure.transFigure
            if owner is not figure:  # `plots.heading` makes room above, and moves axes
                inside = owner.transAxes.inverted()
                place = inside.transform(figure.transFigure.transform(place))
                transform = owner.transAxes
            owner.text(*place, words, transform=transform, **style)
    return figure


def _turning(axes: list[Axes]) -> None:
    """Draw one example while it trains: tokens, their weights, and the arrow W_t z."""
    example = 0
    data = attention.two_examples()
    path = turning.path(np.array(SHOWN))
    scores = attention.scores(data, data.u)[0, example]
    query = data.z[0, example]
    towards = turning.directions(svm.token_svm(data).W[0])[example]
    above = {"textcoords": "offset points", "ha": "center"}
    centred = {"ha": "center", "va": "center", "zorder": 4}
    for axis, t, W in zip(axes, SHOWN, path, strict=True):
        # The direction of largest margin.
        ray = np.outer([0, 2.6], towards)
        axis.plot(ray[:, 0], ray[:, 1], **plots.BOUND)

        # The tokens, with their scores and weights.
        weights = attention.weights(data, W[None])[0, example]
        for k, (x, y) in enumerate(data.X[0, example]):
            colour = plots.GREY
            if k == data.opt[0, example]:
                colour = plots.look("best token").colour
            # The smallest disc is large enough for its score. The words are above the
            # disc, so that a larger disc moves them up.
            size = 90 + 585 * weights[k]
            lift = np.sqrt(size) / 2 + 3
            axis.scatter(x, y, s=size, color=colour, zorder=3)
            score = f"{scores[k]:.0f}"
            axis.text(x, y, score, color=plots.PAPER, **centred, **SMALL)
            weight = f"{100 * weights[k]:.0f} %"
            axis.annotate(weight, (x, y), (0, lift), **above, **SMALL)

        # The arrow W_t z, whose length grows like a logarithm.
        arrow = W @ query
        size = np.linalg.norm(arrow)
        length = 0.55 + 0.28 * np.log2(1 + size)
        tip = length * arrow / size
        style = {"arrowstyle": "-|>", "color": OURS, "linewidth": 2.4}
        axis.annotate("", tip, (0, 0), arrowprops=style, zorder=5)
        axis.set(xlim=(-2.2, 2.9), ylim=(-1.5, 2.3), aspect="equal")
        axis.axis("off")
        axis.text(0.35, -1.4, f"$t$ = {t:,}", ha="center", fontsize=9)


def _rate(axis: Axes) -> None:
    """Draw the direction error of normalised GD, the law's prediction and Theorem 1's
    slope.
    """
    data = coordinates.minimal(
        tokens.class_mean_tokens(range(SEEDS), 20, 10, 300, 3.0, 0.1)
    )
    target = svm.token_svm(data.tokens)
    recorded = dynamics.log_spaced(STEPS, 120)
    history = dynamics.train(
        data, rules.NGD(0.025), STEPS, recorded, targets={"W_mm": target.W}
    )
    law = margin_law.margin_law(data.tokens, target)
    t = history.iterations[1:]
    error = np.median(history.direction_error["W_mm"], axis=0)[1:]
    norm = np.median(history.norm, axis=0)[1:]
    axis.plot(t, error, color=OURS, linewidth=2.6)
    predicted = np.median(law.constant) / norm
    axis.plot(t[predicted < 1], predicted[predicted < 1], **plots.PREDICTED)
    axis.set(xscale="log", yscale="log", xlim=(1, STEPS), xlabel="step $t$")
    plots.slope(axis, (2e3, 2e4), -0.5, 0.06, "Theorem 1, slope only", (8, 5))
    axis.text(1.5, 0.09, "measured", color=OURS, **SMALL)
    pieces.beside(axis, t[-25], predicted[-25], "predicted", place=(-8, -8))


def _reached() -> tuple[int, int]:
    """Return how many rules of the atlas reach the margin of a norm, and how many rules
    it has.
    """
    _, claims = _saved("atlas_map", "desk")
    rules_of = {"own": set(), "lower": set(), "none": set()}
    holding = {"own": set(), "lower": set(), "none": set()}
    for name, claim in claims.items():
        kind, _, rule = name.removeprefix("atlas.").partition(".")
        if kind in rules_of:
            rules_of[kind].add(rule)
            if claim.holds:
                holding[kind].add(rule)
    reached = holding["own"] & holding["lower"]
    return len(reached), len(rules_of["own"] | rules_of["none"])


def _norms(axis: Axes) -> None:
    """Draw each rule's margin ratio in its own norm, in the worst run, and 1 minus the
    smallest lead of this ratio over the best one in another norm.
    """
    _, claims = _saved("atlas_map", "desk")
    names = []
    for row, (rule, (name, norm)) in enumerate(RULES.items()):
        own = claims[f"atlas.own.{rule}"].measured
        behind = 1 + claims[f"atlas.lower.{rule}"].measured
        axis.plot([behind, own], [row, row], color=plots.FAINT, linewidth=1.5)
        axis.plot(behind, row, "o", color=plots.GREY, mfc=plots.PAPER, ms=5)
        axis.plot(own, row, "o", color=OURS, ms=6, clip_on=False)
        _right(axis, row, norm, OURS)
        names.append(name)
    for row, (rule, name) in enumerate(UNREACHED.items(), start=len(RULES)):
        best = claims[f"atlas.none.{rule}"].measured
        axis.plot(best, row, "X", color=STOPS, ms=6)
        _right(axis, row, "none", STOPS)
        names.append(name)
    axis.axvline(1, **plots.LEVEL)
    axis.set(xlim=(-0.03, 1.02), ylim=(len(names) - 0.5, -0.6))
    _rows(axis, names)


def _rows(axis: Axes, names: list[str]) -> None:
    """Write the names of a panel's rows to its left."""
    axis.set_yticks(range(len(names)), names, fontsize=7.5)
    axis.tick_params(axis="y", length=0)
    axis.grid(False, axis="y")


def _right(axis: Axes, row: float, words: str, colour: str, x: float = 1.05) -> None:
    """Write words to the right of a panel, at the height of a row."""
    style = {"transform": axis.get_yaxis_transform(), "va": "center", "color": colour}
    axis.text(x, row, words, **style, **SMALL)


def _broken(axis: Axes) -> None:
    """Draw how many seeds reach W_mm in the mildest case, and in two cases in which
    fewer of them do.
    """
    found, _ = _saved("fastrates_assumptions", "demo")
    seeds = found["seeds"]
    cases = {
        "short rivals,\nno ties": dict.fromkeys(
            ("NGD", "GD", "Polyak"), found["phase.intact"]
        ),
        "long, nearly\ntied rivals": {
            "NGD": found["ngd_corner"],
            "GD": found["gd_corner"],
            "Polyak": found["polyak_corner"],
        },
        "few dimensions,\nworst cell": {
            "NGD": found["phase.NGD"],
            "GD": found["phase.GD"],
            "Polyak": found["phase.Polyak, no cap"],
        },
    }
    words = {"NGD": "normalised GD", "GD": "GD", "Polyak": "Polyak's rule"}
    for row, shares in enumerate(cases.values()):
        for k, (rule, share) in enumerate(shares.items()):
            height = row + 0.27 * (k - 1)
            low, high = binomtest(round(share * seeds), seeds).proportion_ci(
                method="wilson"
            )
            colour = OURS if share > 0.95 else STOPS
            axis.plot([low, high], [height] * 2, color=colour, alpha=0.4, linewidth=4)
            axis.plot(share, height, "o", color=colour, ms=4.5, clip_on=False)
            count = f"{share * seeds:.0f}"
            _right(axis, height, f"{count}  {words[rule]}", colour, 1.08)
    axis.set(xlim=(0, 1.02), ylim=(len(cases) - 0.45, -0.5))
    ticks = [0, 0.5, 1]
    axis.set_xticks(ticks, [f"{tick * seeds:.0f}" for tick in ticks], fontsize=7.5)
    _rows(axis, list(cases))


def _speed_claims() -> list[tuple[str, str, str, str]]:
    """Return the claims of the fifth panel that fresh seeds have judged, as tuples of
    the claim's name, its data, its rule, and what the paper says.
    """
    _, claims = _saved("verdicts", "desk")
    rows = []
    for figure, data, of_rules in SPEED:
        for rule, says in of_rules.items():
            name = f"{figure}.{rule}"
            if name in claims:
                rows.append((name, data, rule, says))
    return rows


def _speed(axis: Axes) -> None:
    """Draw the number of steps to a common loss, divided by SGD's, for the claims that
    fresh seeds have judged.
    """
    found, claims = _saved("verdicts", "desk")
    names = []
    said = ""
    for row, (name, data, rule, says) in enumerate(_speed_claims()):
        claim = claims[name]
        colour = plots.look(claim.verdict).colour
        axis.plot(claim.interval, [row, row], color=colour, linewidth=4, alpha=0.45)
        ends = [found[f"{name}.corrected_{end}"] for end in ("low", "high")]
        axis.plot(ends, [row, row], color=colour, linewidth=1)
        axis.plot(claim.measured, row, "o", color=colour, ms=5)
        _right(axis, row, says, colour)
        # The first row of a data set names it.
        if data != said:
            names.append(f"{data}   {NAMES[rule]}")
        else:
            names.append(f"   {NAMES[rule]}")
        said = data
    axis.set(xscale="log", xlim=(0.19, 2.8), ylim=(len(names) - 0.5, -0.6))
    plots.threshold(axis, 1, "as SGD", upright=True, at=1.02, place=(0, 1))
    axis.set_xticks([0.25, 0.5, 1, 2], ["¼", "½", "1", "2"])
    axis.minorticks_off()
    _rows(axis, names)


def _regression(axis: Axes) -> None:
    """Draw the final excess loss of regression by rule."""
    start, _ = _saved("precond_fig2", "desk")
    best, _ = _saved("precond_optimizers", "desk")
    parts, _ = _saved("precond_ablation", "desk")
    ends = {
        "SGD, same step": (start["sgd_end"], plots.GREY),
        "SGD, best step": (best["sgd_end"], plots.GREY),
        "Adam, best step": (best["adam_end"], plots.GREY),
        "regulariser alone": (parts["random_r"], OURS),
        "Algorithm 1": (start["end"], OURS),
    }
    for row, (value, colour) in enumerate(ends.values()):
        axis.plot(value, row, "o", color=colour, markersize=6)
        _right(axis, row, pieces.percent(value), colour)
    axis.set(xscale="log", xlim=(4e-3, 1.5), ylim=(len(ends) - 0.5, -0.5))
    axis.set_xticks([0.01, 0.1, 1], ["1 %", "10 %", "100 %"])
    axis.minorticks_off()
    _rows(axis, list(ends))
