"""The law of the margins on real tokens.

The tokens are word pieces in the last layer of a frozen encoder, and the query is the
first token. The head is a linear probe, and W_0 = 0.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from matplotlib.figure import Figure

from companion import plots
from companion.claims import Claim
from lib.attention import TokenSet, coordinates, model, token_set
from lib.data.texts import TextSet
from lib.dynamics import Rule, train
from lib.networks import bert
from lib.svm import token_svm
from papers import pieces
from papers.law import margins as measure
from papers.law.margin_law import MarginLaw, PremiseFails, margin_law
from papers.law.tolerances import SATURATED
from papers.ours import claim

RIDGE = 0.01  # ridge penalty of the probe, divided by the mean square of its input


@dataclass(frozen=True)
class _Sentences:
    """Sentences of equal length, as the `tokens` of one run and as `words`, n lists of
    T word pieces each.
    """

    tokens: TokenSet
    words: list[list[str]]


def sentences(data: TextSet, count: int, shortest: int = 12) -> _Sentences:
    """Select the first `count` sentences of one length, half of them with the lowest
    label and half with the highest.

    The length is the smallest one from `shortest` to 126 word pieces for which there
    are enough rows. X (1, count, length, d) holds the packaged encoder's last hidden
    states between [CLS] and [SEP], and z (1, count, d) holds the hidden state of [CLS].
    The head is a linear probe, a ridge regression of y on the mean token; y is -1 for
    the lowest label and 1 for the highest. The function raises ValueError if no length
    has enough rows of each of the two labels, or if `count` is odd or below 2.
    """
    from tokenizers import Tokenizer
    from transformers import AutoModel

    if count < 2 or count % 2:
        raise ValueError(
            f"count is {count}; it needs an even number, half of it of either label"
        )
    weights = bert.weights(demo=True)
    rows = bert.tokenise(weights, data, 128, whole=True)
    for length in range(shortest + 2, 129):
        of_length = rows.lengths == length
        pair = [of_length & (rows.labels == label) for label in (0, data.classes - 1)]
        if min(int(fitting.sum()) for fitting in pair) >= count // 2:
            break
    else:
        of = f"no length from {shortest} to 126 word pieces, where the search ends, has"
        raise ValueError(f"{data.name}: {of} {count // 2} rows of each of two labels")
    rows = rows.take(
        torch.cat([torch.nonzero(fitting)[: count // 2, 0] for fitting in pair])
    )
    ids, segments = rows.inputs[..., :length].long().unbind(1)
    encoder = AutoModel.from_pretrained(weights.folder).eval()
    with torch.no_grad():
        hidden = (
            encoder(input_ids=ids, token_type_ids=segments)
            .last_hidden_state.double()
            .numpy()
        )
    y = np.where(rows.labels.numpy() == 0, -1.0, 1.0)
    X = hidden[:, 1:-1]
    z = hidden[:, 0]
    # The mean token of each sentence. The head is fitted to predict y from this mean.
    mean = X.mean(1)
    penalty = RIDGE * (mean**2).sum(1).mean()
    u = mean.T @ np.linalg.solve(mean @ mean.T + penalty * np.eye(count), y)
    tokenizer = Tokenizer.from_file(str(weights.folder / "tokenizer.json"))
    words = [
        [tokenizer.id_to_token(piece) for piece in row[1:-1]] for row in ids.tolist()
    ]
    return _Sentences(token_set(X, y, z, u), words)


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """One run compared with its law.

    If a hypothesis of the law fails, `refusal` says which one, and the fields below it
    may be missing.
    """

    iterations: np.ndarray  # (k,)
    weights: np.ndarray  # (k, n, T) the softmax of each sentence
    refusal: str = ""
    selected: np.ndarray | None = None  # (n,)
    law: MarginLaw | None = None
    residual: np.ndarray | None = (
        # (k,): the norm of the part of W_t that is in the support's span and orthogonal
        # to W_mm. It tends to C.
        None
    )
    left: np.ndarray | None = (
        None  # (k,) e^{-rate a_t}, the fraction of transients that remains by the law
    )
    plain: float = np.nan  # the C that would follow if every kappa were 1

    @property
    def ratio(self) -> float:
        """Return the measured constant divided by the predicted one, at the last
        record.
        """
        return float(self.residual[-1] / self.law.constant[0])


def read(tokens: TokenSet, rule: Rule, steps: int, records: int = 13) -> _Reading:
    """Train W by `rule`, and compare its residual with the law's constant C.

    The residual is the part of W in the support's span that is orthogonal to W_mm. A
    run is excluded, with the reason as `refusal`, if it ends early, if its least margin
    is below SATURATED, if a hypothesis of the law fails, or if its steps are too long.
    `tokens` has a single run. There are at most `records` records after the start.
    """
    problem = coordinates.minimal(tokens)
    tokens = problem.tokens
    kept = np.unique(np.geomspace(1, steps, records).round().astype(int))
    history = train(problem, rule, steps, [0, *kept])
    if not np.isfinite(history.margins[0, -1]).all():
        why = f"the run {history.status[0]} at iteration {history.ended[0]}"
        return _Reading(iterations=history.iterations, weights=np.empty(0), refusal=why)
    W = [history.weights(k) for k in range(len(history.iterations))]
    logits = np.concatenate([model.logits(tokens, w) for w in W])
    weights = np.exp(logits - np.logaddexp.reduce(logits, -1, keepdims=True))
    selected = measure.selection(history, tokens.opt)
    reading = _Reading(
        iterations=history.iterations, weights=weights, selected=selected[0]
    )
    margin = measure.relative_margins(history, tokens.opt, selected)[0, -1].min()
    if margin < SATURATED:
        return replace(
            reading, refusal=f"selection made: the least margin is {margin:.2g}"
        )
    try:
        solution = token_svm(tokens, selected)
        law = margin_law(tokens, solution, selected)
        even = margin_law(
            tokens, solution, selected, log_slopes=np.zeros(solution.duals.shape)
        )
    except (PremiseFails, RuntimeError) as refused:
        return replace(reading, refusal=getattr(refused, "named", str(refused)))
    across = [
        measure.residual(tokens, selected, law.support, w, solution.W)[0] for w in W
    ]
    level = [measure.along_and_off(w, solution.W)[0] / law.norm for w in W]
    length = np.exp(history.log_step[0, -1] + history.log_gradient[0, -1])
    longest = law.longest_step(rule.momentum)[0]
    refusal = ""
    if length >= longest:
        refusal = f"short steps: {length:.3g} needs {longest:.3g}"
    return replace(
        reading,
        refusal=refusal,
        law=law,
        residual=np.array(across),
        left=np.array([law.remaining(a)[0] for a in level]),
        plain=float(even.constant[0]),
    )


def claims(readings: list[_Reading]) -> list[Claim]:
    """Check the predictions of the protocol: the value of C, and that C depends on
    kappa.

    There are two measured values: the share of the runs whose C is within 1 % of the
    prediction, and the least amount by which the predicted C of a run would change if
    every kappa were 1. Both values are NaN if all runs are excluded.
    """
    kept = [reading for reading in readings if not reading.refusal]
    if kept:
        share = np.mean([abs(reading.ratio - 1) <= 0.01 for reading in kept])
    else:
        share = np.nan
    apart = (abs(reading.plain / reading.law.constant[0] - 1) for reading in kept)
    plain = min(apart, default=np.nan)
    return [
        claim("law.real_constant", share, "", len(kept)),
        claim("law.real_kappa", plain),
    ]


def draw(readings: dict[str, list[_Reading]]) -> Figure:
    """Draw the measured constant divided by the predicted one.

    `readings` has the readings of at most two data sets, by name. Excluded runs are
    left out.
    """
    figure, (axis,) = plots.panels(1, 1, height=3.0)
    ends = []
    off = []
    looks = [plots.SERIES[k] for k in (0, 2)]  # orange is for what fails
    for (name, runs), like in zip(readings.items(), looks, strict=False):
        last = []
        for one in runs:
            if one.refusal:
                continue
            ratio = one.residual[1:] / one.law.constant
            axis.plot(one.iterations[1:], ratio, lw=0.8, **like.line)
            last.append(ratio[-1])
            off.append(abs(one.ratio - 1))
        if last:
            ends.append((np.median(last), name.replace(" ", "\n", 1), like.colour))
    axis.axhline(1, **plots.PREDICTED)
    axis.set(xscale="log", yscale="log", xlabel="iteration $t$")
    axis.set_ylabel("constant of the law,\nmeasured / predicted")
    axis.margins(x=0)
    pieces.plain_ticks(axis.yaxis)
    pieces.end_labels(axis, ends, 9)
    if off:
        words = f"{len(off)} runs end on the line,\noff by {max(off):.1e} at most"
        pieces.note(axis, words, y=0.3)
    return figure


def draw_sentence(sentences: _Sentences, reading: _Reading) -> Figure:
    """Draw the first of `sentences` at several times of training.

    The shade of each word is its softmax weight.
    """
    figure, (axis,) = plots.panels(1, 1, height=1.2)
    axis.set(xlim=(0, 104), ylim=(-0.6, 2.8))
    axis.axis("off")
    plain = dict(fontsize=7.5, family="monospace", va="center", in_layout=False)
    records = (1, len(reading.iterations) // 2, len(reading.iterations) - 1)
    rows = [(0, k) for k in records]
    for height, (which, k) in zip((2.2, 1.2, 0.2), rows, strict=True):
        axis.text(0, height, f"t = {reading.iterations[k]:,}", **plain)
        left = 13.0  # characters
        for word, weight in zip(
            sentences.words[which], reading.weights[k, which], strict=True
        ):
            if word.startswith("##"):  # continues the word before it
                word = word[2:]
                left = left - 0.8
            box = dict(
                facecolor=plots.look("NGD").colour, alpha=float(weight), lw=0, pad=1.0
            )
            colour = plots.PAPER if weight > 0.6 else plots.BLACK
            axis.text(
                left, height, word.replace("$", r"\$"), bbox=box, color=colour, **plain
            )
            left += len(word) + 1.2
    return figure
