"""Drawing of paper C's real-data figures from the kept curves of its two studies."""

from itertools import product

import numpy as np
from matplotlib.figure import Figure

from lib.companion import plots
from lib.companion.claims import Claim, Table
from lib.networks.measures import EDGES
from lib.training.curves import Curves
from papers import kept_curves, pieces
from papers.c import reviews, vision
from papers.kept_curves import shown, together
from papers.verdicts import Interval

WHEN = {"start": "start", "last": "end"}


def rates(curves: Curves) -> Figure:
    """Held-out accuracy of every rate that was tried; a ring marks the rate chosen."""
    late = lambda run: 100 * float(reviews.late(run))
    return kept_curves.rates_figure(curves, late, "Held-out accuracy (%)")


def _differences(ax, rows: list[tuple[str, Interval, Claim]], scale=1.0, also=()) -> None:
    """A forest of (name, interval, its claim), with room for the values `also`."""
    bars = []
    for name, measured, claim in rows:
        values = scale * np.array([measured.estimate, measured.low, measured.high])
        word = claim.verdict if claim.interval else "not judged"
        words = f"{values[0]:+.{3 - round(np.log10(scale))}f} {word}"  # all to one digit
        points = scale * measured.values
        bar = pieces.Bar(name, *values, claim.verdict, points=tuple(points), words=words)
        bars.append(bar)
    shown = [value for bar in bars for value in (0.0, bar.low, bar.high, *bar.points, *also)]
    room = 0.1 * (max(shown) - min(shown))
    pieces.forest(ax, bars, (min(shown) - room, max(shown) + room))


def accuracy_figure(curves: Curves) -> Figure:
    """Loss, accuracy, the paired differences that are judged; stars: the paper's."""
    figure, axes = plots.panels(1, 3, height=2.9)
    kept_curves.losses(axes[0], curves)
    kept_curves.accuracies(axes[1], curves)
    rows, judged = [], reviews.accuracy_table(curves)
    paper = [100 * (reviews.PAPER[a] - reviews.PAPER[b]) for a, b in reviews.PAIRS]
    for (a, b), claim in zip(reviews.PAIRS, judged, strict=True):
        apart = reviews.late_difference(curves, a, b)
        rows.append((f"{shown(a)} less {shown(b)}", apart, claim))
    _differences(axes[2], rows, 100, paper)
    axes[2].plot(paper, range(len(paper)), "*", color=plots.BLACK, markersize=7)
    axes[2].set(title="Accuracy, mean of the last four", xlabel="Difference, points, sampled rows")
    return plots.legend(figure, axes[0])


def sparsity_figure(curves: Curves) -> Figure:
    """How magnitudes move, Hoyer index; l1.1 less l2, at the end and matched."""
    figure, axes = plots.panels(2, 3, height=2.1)
    (index, judged), grid = axes[3:5], axes[0].get_gridspec()
    axes[5].remove()
    judged.set_subplotspec(grid[1, 1:])

    def share(rule, name):  # per cent of the entries of all runs
        counts = np.sum([run.end[name] for run in curves.runs(rule)], axis=0)
        return 100 * counts / counts.sum()

    for k, part in enumerate(reviews.PARTS):
        for place, rule in enumerate(curves.rates()):
            look = plots.look(rule)
            line = look.line | dict(zorder=4 - place)  # the first, l1.1, on top
            start, last = (share(rule, f"{when}.histogram.{part}") for when in WHEN)
            axes[k].stairs(last - start, EDGES, label=shown(rule), baseline=None, **line)
            ends = [reviews.at_end(run, f"hoyer.{part}") for run in curves.runs(rule)]
            x = k + 0.22 * (place - 1)
            index.plot([x] * len(ends), ends, ms=2.5, mfc="none", **look.mark)
            index.plot(x, np.mean(ends), ms=5, **look.mark)
            number = dict(ha="center", fontsize=6, rotation=90, color=look.colour)
            index.text(x, max(ends) + 0.012, f"{np.mean(ends):.3f}", **number)
        axes[k].axvline(0.06, label="0.06, the paper's threshold", **plots.LEVEL)
        axes[k].set(title=f"{part}: entries, end less start", xlabel="Magnitude")
        axes[k].set(xscale="log", xlim=(4e-3, 1.5))
    axes[0].set_ylabel("change of share, points")
    index.set_xticks(range(len(reviews.PARTS)), reviews.PARTS)
    index.set(title="Hoyer index", xlim=(-0.5, len(reviews.PARTS) - 0.5))
    index.set_ylim(None, index.get_ylim()[1] + 0.05)
    rows = []
    for part, claim in zip(reviews.PARTS, reviews.sparsity_table(curves), strict=True):
        metric = f"hoyer.{part}"
        rows.append((part, reviews.apart(curves, metric), claim))
        rows.append((f"{part}, matched", reviews.matched_apart(curves, metric), claim))
    _differences(judged, rows)
    judged.set(title=f"Hoyer index, {shown('l1.1')} less {shown('l2')}")
    return plots.legend(figure, axes[0])


def attention_figure(curves: Curves) -> Figure:
    """Tokens used by layer, start and end; the difference in the last, judged."""
    figure, (left, right) = plots.panels(1, 2, height=2.7)
    (claim,) = reviews.attention_table(curves)
    apart = reviews.attention_difference(curves)
    _differences(right, [("", apart, claim)], scale=100)
    right.set(title=f"Last layer, {shown('l2')} less {shown('l1.1')}", xlabel="Points")
    rules = list(curves.rates())
    layers = reviews.tokens_used(curves, rules[0]).shape[-1]
    for k, rule in enumerate(rules):
        look = plots.look(rule)
        for layer, (when, face) in product(range(layers), (("start", "none"), ("last", None))):
            values = 100 * reviews.tokens_used(curves, rule, when)[..., layer].mean(1)
            x = layer + 0.29 * (k - 1) + (0.06 if when == "last" else 0)
            label = f"{shown(rule)}, {WHEN[when]}" if not layer else None
            left.plot([x] * len(values), values, ms=2.5, mfc=face, **look.mark)
            left.plot(x, values.mean(), ms=6, mfc=face, label=label, **look.mark)
            if when == "last" and layer == layers - 1:
                words = f"{values.mean():.0f} %"
                pieces.beside(left, x, values.mean(), words, look.colour, (6, 0))
    left.set(title="Tokens used by attention", ylim=(-5, 108), xlabel="Layer")
    left.set_ylabel("exp(entropy), % of the tokens")
    left.set_xlim(-0.5, layers - 0.45)
    left.set_xticks(range(layers), range(1, layers + 1))
    return plots.legend(figure, left)


def maps(curves: Curves) -> Figure:
    """The last attention weights of two reviews, first seed, all on one scale."""
    first = {rule: curves.runs(rule)[0] for rule in curves.rates()}
    words = next((r.end["words"] for r in first.values() if "words" in r.end), None)
    shares = np.stack([run.end["last.maps"][:, -1] for run in first.values()], 1)
    figure, grid = plots.panels(2, 1, height=1.8)
    for row, ax in enumerate(grid):
        image = ax.imshow(shares[row], cmap="Greens", aspect="auto", vmin=0, vmax=shares.max())
        names = words[row] if words is not None else range(shares.shape[-1])
        ax.set_xticks(range(shares.shape[-1]), names, rotation=90, fontsize=6)
        ax.set_yticks(range(len(first)), map(shown, first))
        ax.set(title=f"Attention weights, a review of label {1 - row}")
        ax.grid(False)
    figure.colorbar(image, ax=grid, label="weight", shrink=0.8)
    return figure


def vision_figure(curves: Curves) -> Figure:
    """Loss, test accuracy with steps to equal accuracy, Hoyer against the loss."""
    figure, axes = plots.panels(1, 3, height=2.7)
    kept_curves.losses(axes[0], curves)
    kept_curves.accuracies(axes[1], curves)
    steps = vision.steps_to_accuracy(curves)
    levels = vision.matched(curves, "test_accuracy", vision.RULES, "test_accuracy")
    early, sparser = vision.table(curves)
    ends = []
    for k, rule in enumerate(vision.RULES):
        look, runs = plots.look(rule), curves.runs(rule)
        axes[1].plot(steps[k], 100 * levels[k], markersize=4, mfc="none", **look.mark)
        x, y = (together([run.metrics[name] for run in runs]) for name in ("control_loss", "hoyer"))
        axes[2].plot(x.T, y.T, color=look.colour, linewidth=0.7, alpha=0.6)
        axes[2].plot(np.median(x, 0), np.median(y, 0), **look.line)
        ends.append((y[:, -1].mean(), f"{y[:, -1].mean():.3f}", look.colour))
    notes = (
        (axes[1], (0.36, 0.35), "Adam", early, "of the steps"),
        (axes[2], (0.04, 0.96), shown("l1.1"), sparser, "more\nat equal loss"),
    )
    for ax, place, rule, claim, what in notes:
        words = claim.verdict
        if claim.interval:
            number, low, high = (f"{value:.2g}" for value in (claim.measured, *claim.interval))
            words = f"{rule}: {number} {what}\n({low} to {high}),\n{words}"
        pieces.note(ax, words, *place, va="top")
    axes[2].set(title="Hoyer index", xlabel="Training loss, falling")
    axes[2].invert_xaxis()
    pieces.end_labels(axes[2], ends)
    return plots.legend(figure, axes[0])


def caption(number: str, curves: Curves, marks: str, table: Table) -> str:
    """Marks of figure `number`, why it is not judged, setting, rates, verdicts."""
    study = curves.configuration
    for claim in [claim for claim in table if not claim.interval][:1]:
        marks += f"; not judged: {claim.statement.partition(': ')[2]}"
    short = any(len(run.loss) < study["horizon"] for run in curves.judged())
    early = f"a run ends early at {study['stop']}" if short else "no run ended early"
    chosen = ", chosen by held-out accuracy."
    number = f"Paper C, {number}"
    return kept_curves.caption(number, curves, marks, table, chosen, f"; {early}")
