"""Parts 2 and 3 of notebooks/networks_protocol.md.

Part 2 asks at which of several selections of tokens a rule ends, in the attention
model. Part 3 measures the heads of a vision transformer. In a head, token t has the
logit x_t^T W z for the query z, with W = W_K^T W_Q / sqrt(d_h). W_K and W_Q are (d_h,
d), and x and z are tokens after the layer's LayerNorm. The margin of a query is the
largest logit minus the second largest. We compare rules by a low quantile of the
margins over all queries, divided by N(W) and by the mean of ||x||^2. No SVM is solved
here.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from companion.claims import Claim, judged
from lib import attention, dynamics, svm
from lib.attention import TokenSet, unit_tokens
from lib.data import images
from lib.networks import VisionTransformer
from lib.seeds import stream
from lib.training import Batches, Trainer, initialised
from lib.training.study import TUNING_SEED
from papers import verdicts
from papers.atlas import atlas
from papers.atlas.atlas_rules import word as plain
from papers.atlas.factored_atlas import NORMS, SIGN, WHOLE
from papers.ours import RESAMPLES, claim

QUANTILE = 0.1  # the quantile of the margins over all queries
# Whatever rule is tested, Adam trains the biases, LayerNorms, embeddings and head, at
# this learning rate.
REST_RATE = 1e-3
SOURCE = "ours, beyond paper A's Theorem 1"
FEWEST = 3  # with fewer seeds a ranking is undecided
HALF = 0.5
ADAM = "Adam, 0.999"
FIRST = {"spectral": "Muon", "l_inf": "Signum", SIGN: "Signum", "nuclear": "NGD"}
MOMENTUM = 0.9
LEAD = 0.01  # by how much the best score exceeds the second best in nearly tied samples
HOLD = 5.0  # the margin that a wrong start gives to the wrong tokens
SHAPE = dict(n=6, T=8, d=10)
# The constants of Adam.
MEMORY = 0.999
EPSILON = 1e-8
PLAIN: dict[str, Any] = {
    "shift": None,
    "mask_diagonal": False,
    "learn_temperature": False,
}


def _polar(M: Tensor) -> Tensor:
    """Return U V^T of M = U S V^T (..., r, c).

    Directions with a singular value below 1e-6 of the largest become 0.
    """
    U, S, V = torch.linalg.svd(M, full_matrices=False)
    return (U * (S > 1e-6 * S[..., :1])[..., None, :]) @ V


def _unit(M: Tensor) -> Tensor:
    """Divide each matrix in M (..., r, c) by its Frobenius norm; a zero matrix stays
    zero.
    """
    size = M.norm(dim=(-2, -1), keepdim=True)
    return M / torch.where(size > 0, size, 1.0)


# The direction of a step as a function of the mean gradient. Adam computes its own.
DIRECTIONS: dict[str, Any] = {
    "NGD": _unit,
    "Signum": torch.sign,
    "Muon": _polar,
    "Adam": None,
}


class _ByMatrix(torch.optim.Optimizer):
    """Optimise the matrices of the blocks by one rule, and all other parameters by
    Adam.

    A step for a matrix M is M <- M - rate D(m), where m is a moving average of
    gradients (MOMENTUM), and D is the entry of the rule in DIRECTIONS. A matrix with
    three times as many rows as columns holds W_Q, W_K and W_V, and is treated as three
    matrices. For all other parameters Adam has the rate REST_RATE. The constructor
    raises ValueError for an unknown rule, or for a rate that is not positive or not
    finite.
    """

    def __init__(self, model: VisionTransformer, rule: str, rate: float) -> None:
        if rule not in DIRECTIONS or not 0 < rate < math.inf:
            raise ValueError(
                f"rule = {rule!r}, rate = {rate}: choose one of {[*DIRECTIONS]}, > 0"
            )
        named = dict(model.named_parameters())
        names = [
            name
            for name, p in named.items()
            if name.startswith("blocks.") and p.ndim == 2
        ]
        matrices = [named.pop(name) for name in names]
        rest = [p for p in named.values() if p.requires_grad]
        groups = [{"params": matrices, "lr": rate, "rule": rule}]
        super().__init__(
            [*groups, {"params": rest, "lr": REST_RATE, "rule": "Adam"}], {}
        )

    @torch.no_grad()
    def step(self, closure: Any = None):
        """Take one step, and return the loss of `closure`, or None if there is no
        closure.
        """
        with torch.enable_grad():
            loss = None if closure is None else closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.sub_(self._direction(p, group["rule"]), alpha=group["lr"])
        return loss

    def _direction(self, p: Any, rule: str):
        """Return the direction of the step of p, in the shape of p, and update the
        moments.

        The step is minus the rate times this direction.
        """
        state = self.state[p]
        if not state:
            state.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
        state["t"] += 1
        m = state["m"].lerp_(p.grad, 1 - MOMENTUM)
        if (direction := DIRECTIONS[rule]) is None:
            v = state["v"].mul_(MEMORY).addcmul_(p.grad, p.grad, value=1 - MEMORY)
            m_hat = m / (1 - MOMENTUM ** state["t"])
            return m_hat / ((v / (1 - MEMORY ** state["t"])).sqrt() + EPSILON)
        if m.shape[0] == 3 * m.shape[1]:
            parts = m.shape[0] // m.shape[1]
        else:
            parts = 1
        return direction(m.reshape(parts, -1, m.shape[1])).reshape(m.shape)


@dataclass(frozen=True)
class Setting:
    """A network and its data.

    `name` is the image set, `rows` and `held_out` are the numbers of images for
    training and for holding out, and `shape` has the sizes of the network.
    """

    rows: int
    held_out: int
    steps: int
    shape: Mapping[str, int]
    name: str = "cifar10"
    patch: int = 8
    batch: int = 50

    def load(self, demo: bool) -> tuple[Any, Any]:
        """Return the training set and the held-out images, all from the train split.

        With `demo`, the hub is not used (see `images.load`). The method raises
        ValueError if the set has no more images than `rows`.
        """
        whole = images.load(
            self.name, "train", rows=self.rows + self.held_out, demo=demo
        )
        if len(whole) <= self.rows:
            raise ValueError(f"{self.rows} rows leave none of {len(whole)} to hold out")
        return whole[: self.rows], whole.images[self.rows :]


def _untrained(setting: Setting, data: Any, seed: int) -> VisionTransformer:
    """Build the network from which every rule starts with this seed."""
    channels, size = data.images.shape[1:3]

    def build():
        return VisionTransformer(
            size, setting.patch, channels, data.classes, **setting.shape, **PLAIN
        )

    return initialised(build, seed).eval()


def trained(
    setting: Setting, data: Any, rule: str, rate: float, seed: int
) -> tuple[Any, np.ndarray]:
    """Train the network by `rule` on the ImageSet `data`.

    The function returns the network and the loss at every step (steps,). The loss is
    NaN after a run has diverged.
    """
    model = _untrained(setting, data, seed)
    batches = Batches(
        inputs=data.images,
        targets=data.labels,
        size=setting.batch,
        seed=seed,
        transform=data.standardise(),
    )
    optimizer = _ByMatrix(model, rule, rate)
    loss = Trainer(model, optimizer, batches, setting.steps, cpu=True).run().loss
    rest = np.full(setting.steps - len(loss), np.nan)  # a run that diverged ends early
    return model.eval(), np.concatenate([loss, rest])


def tuned(
    setting: Setting, data: Any, rates: Mapping[str, Sequence[float]], last: int
) -> dict:
    """Train with every rule at every learning rate, and return the mean loss of the
    `last` steps.

    The result is {rule: {rate: loss}}. The loss is infinite for a run that diverged.
    The seed is TUNING_SEED.
    """

    def end(rule: str, rate: float):
        losses = trained(setting, data, rule, rate, TUNING_SEED)[1]
        loss = float(np.mean(losses[-last:]))
        if not math.isfinite(loss):
            return math.inf
        return loss

    return {
        rule: {rate: end(rule, rate) for rate in grid} for rule, grid in rates.items()
    }


@dataclass(frozen=True)
class _MarginReading:
    """The margins of a network's heads.

    `quantile` (layers, heads) is a low quantile of the margins over all queries.
    `ratio` (layers, heads, norms) is this quantile divided by N(W) and by the mean of
    ||x||^2, with the norms in the order of NORMS. `W` has the shape (layers, heads, d,
    d).
    """

    ratio: np.ndarray
    quantile: np.ndarray
    W: np.ndarray


Readings = Mapping[str, Sequence[_MarginReading]]  # by rule, one per seed


def _product(K: Any, Q: Any):
    """Return W = K^T Q / sqrt(d_h), of shape (..., d, d), for K and Q (..., d_h, d)."""
    return np.swapaxes(K, -1, -2) @ Q / math.sqrt(K.shape[-2])


@torch.no_grad()
def _entrances(network: VisionTransformer, pictures: Tensor) -> list[Tensor]:
    """Return the input of every block's attention, after its LayerNorm, as arrays (b,
    T, d).
    """
    first = network.class_token.expand(len(pictures), -1, -1)
    tokens = torch.cat([first, network.tokens(pictures)], 1) + network.positions
    entered = []
    for block in network.blocks:
        entered.append(block.attention_norm(tokens))
        tokens = block(tokens)
    return entered


def _norms(K: np.ndarray, Q: np.ndarray) -> np.ndarray:
    """Return N(W) (..., norms) for the norms of NORMS, from the factors K and Q (...,
    d_h, d) of W.

    For the sign norm the value is only an upper bound on N(W).
    """
    W = _product(K, Q)
    root = math.sqrt(K.shape[-2])
    whole = [svm.norm_of(W, norm) for norm in WHOLE.values()]
    return np.stack(
        [*whole, root * np.abs(K).max((-2, -1)) * np.abs(Q).max((-2, -1))], -1
    )


def _keys_and_queries(network: VisionTransformer) -> tuple[np.ndarray, np.ndarray]:
    """Return W_K and W_Q of every head, as two float64 arrays (layers, heads, d_h,
    d).
    """
    attentions: list[Any] = [block.attention for block in network.blocks]
    heads = attentions[0].heads
    projections = [attention.project.weight.detach() for attention in attentions]
    stacked = torch.stack(projections).double().numpy()  # (layers, 3 d, d)
    Q, K, _ = np.split(stacked, 3, axis=1)
    layers, d, _ = Q.shape
    by_head = (layers, heads, d // heads, d)
    return K.reshape(by_head), Q.reshape(by_head)


def read(
    network: VisionTransformer, pictures: Tensor, quantile: float = QUANTILE
) -> _MarginReading:
    """Measure the margins of a network on standardised pictures (b, channels, s, s).

    The network must be in evaluation mode. The margin of a head is the given `quantile`
    over all queries of all pictures.
    """
    K, Q = _keys_and_queries(network)
    W = _product(K, Q)
    layers, heads, _, _ = W.shape
    low = np.zeros((layers, heads))
    scale = np.zeros((layers, heads))
    for layer, entered in enumerate(_entrances(network, pictures)):
        x = entered.double().numpy()  # (b, T, d)
        scale[layer] = (x**2).sum(-1).mean()
        for head in range(heads):
            # The margin of a query is its largest logit minus the second largest.
            logits = x @ W[layer, head].T @ np.swapaxes(x, 1, 2)
            ascending = np.sort(logits, -1)
            leads = ascending[..., -1] - ascending[..., -2]
            low[layer, head] = np.quantile(leads, quantile)
    relative = (low / scale)[..., None]
    return _MarginReading(ratio=relative / _norms(K, Q), quantile=low, W=W)


Disputes = Mapping[tuple[str, str], np.ndarray]


def won(disputes: Disputes, rules: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Count the disputes that a rule's own selection wins, and all disputes, as two
    arrays (seeds,).

    Only the disputes between two of `rules` count. In the dispute (a, b), the selection
    of a wins if, in the norm of a, it has a larger margin than the selection of b (see
    `disputes`).
    """
    values = np.array(
        [v for (a, b), v in disputes.items() if a in rules and b in rules]
    )
    return (values > 0).sum(0), np.isfinite(values).sum(0)


def share(count: np.ndarray, asked: np.ndarray) -> tuple[float, float, float]:
    """Return the share of won disputes, and the ends of its 95 % bootstrap interval.

    `count` and `asked` (seeds,) are the disputes won and all disputes, from `won`. The
    bootstrap resamples the seeds. The share and the two ends are NaN if there is no
    dispute.
    """
    if not asked.any():
        return np.nan, np.nan, np.nan
    drawn = stream(0, "resamples").integers(0, len(asked), (RESAMPLES, len(asked)))
    with np.errstate(invalid="ignore"):
        shares = count[drawn].sum(1) / asked[drawn].sum(1)
    low, high = np.nanquantile(shares, [0.025, 0.975])
    return float(count.sum() / asked.sum()), float(low), float(high)


def apart(disputes: Disputes, rules: Sequence[str]) -> tuple[int, int]:
    """Count the pairs of rules whose norms prefer different selections, over all runs.

    The function returns two counts: the pairs in which each norm prefers the selection
    of its own rule, and all pairs in which the two norms prefer different selections. A
    pair of rules is counted once for every run with a dispute.
    """
    pairs = np.array(
        [(disputes[a, b], disputes[b, a]) for a, b in combinations(rules, 2)]
    )
    each_own = int((pairs > 0).all(1).sum())
    return each_own, each_own + int((pairs < 0).all(1).sum())


def selection_claims(optimal: Mapping, disputes: Mapping[str, Disputes]) -> list[Claim]:
    """Check part 2 of the protocol.

    `optimal` and `disputes` have the results of the functions with these names, for
    each entry of `settings`.
    """
    steepest = [name for name in optimal["from zero"] if name != ADAM]

    def means(way: str):
        return {name: shares.mean() for name, shares in optimal[way].items()}

    zero = means("from zero")
    ties = means("near ties")
    lowest = min(steepest, key=lambda name: zero[name])
    change = max(ties[n] - zero[n] for n in zero)
    why = f"The prediction is refuted by {lowest}"
    claims = [
        claim("select.most", zero[lowest], why=why),
        claim("select.fewer", change),
    ]
    for way, values in disputes.items():
        count, asked = won(values, steepest)
        _, low, high = estimate = share(count, asked)
        text = (
            f"{way}: share of {asked.sum()} disputes won, own selection of "
            "larger own-norm margin"
        )
        word = verdicts.decided(low > HALF, high < HALF)
        id = f"select.own.{plain(way)}"
        claims.append(
            judged(id, text, SOURCE, estimate, "> 0.5", verdict=word, seeds=len(asked))
        )
    adam = ties[ADAM] - min(ties[name] for name in steepest)
    return [*claims, claim("select.adam", adam)]


def _level(readings: Sequence[_MarginReading]) -> np.ndarray:
    """Return the median over layers and heads of a rule's log ratio.

    The result has the shape (seeds, norms).
    """
    return np.array([np.median(np.log(reading.ratio), (0, 1)) for reading in readings])


def leads(readings: Readings, rule: str, norm: str) -> dict[str, np.ndarray]:
    """Return by how much the ratio of `rule` exceeds that of every other rule, in a
    norm.

    The result has the differences of the levels (seeds,), by the name of the other
    rule.
    """
    levels = {
        name: _level(seeds)[:, NORMS.index(norm)] for name, seeds in readings.items()
    }
    return {
        name: levels[rule] - other for name, other in levels.items() if name != rule
    }


def deciding_lead(
    readings: Readings, rule: str, norm: str
) -> tuple[str, str, verdicts.Interval]:
    """Decide whether `rule` has the largest ratio in a norm.

    "Yes" requires a positive lead over all rivals, and "no" requires a negative lead
    over one of them. With fewer than FEWEST seeds the verdict is undecided, and with
    fewer than two seeds the function raises ValueError.

    The function returns the verdict, the rival that decides, and the paired interval of
    the lead over this rival. After a "no" this is the rival for which the upper end of
    the interval is lowest, and otherwise the one for which the lower end is lowest.
    """
    if len(readings[rule]) < 2:
        raise ValueError("a ranking needs two seeds or more")
    ahead = leads(readings, rule, norm)
    intervals = {name: verdicts.mean_interval(values) for name, values in ahead.items()}
    behind = any(each.high < 0 for each in intervals.values())
    if behind:
        rival = min(intervals, key=lambda name: intervals[name].high)
    else:
        rival = min(intervals, key=lambda name: intervals[name].low)
    if len(readings[rule]) < FEWEST:
        word = verdicts.UNDECIDED
    else:
        word = verdicts.decided(intervals[rival].low > 0, behind)
    return word, rival, intervals[rival]


def ranking_claims(readings: Readings) -> list[Claim]:
    """Check part 3 of the protocol: which rule has the largest ratio in four norms."""
    claims = []
    for norm, rule in FIRST.items():
        word, rival, interval = deciding_lead(readings, rule, norm)
        text = (
            f"ViT, {norm}: log ratio of {rule} less that of {rival}, the rival "
            "that decides"
        )
        values = interval.values.mean(), interval.low, interval.high
        name = f"vit.{norm.replace(' ', '_')}"
        claims.append(
            judged(
                name,
                text,
                SOURCE,
                values,
                "> 0",
                verdict=word,
                seeds=len(interval.values),
            )
        )
    return claims


def counted(readings: Readings) -> np.ndarray:
    """Return, for each rule, the share of all heads in which its ratio is the largest.

    The result has the shape (rules, norms). The share is over layers, heads and seeds.
    If two ratios are equal, the first of the two rules counts as the one with the
    largest.
    """
    ratios = np.array(
        [[reading.ratio for reading in seeds] for seeds in readings.values()]
    )
    largest = ratios.argmax(0)
    return np.array([(largest == k).mean((0, 1, 2)) for k in range(len(readings))])


def _near_ties(tokens: TokenSet):
    """Return a TokenSet in which the second-best token of each sample has a score only
    LEAD below the best score.

    The token is moved along the head u. Other tokens do not change.
    """
    scores = attention.scores(tokens, tokens.u)  # (runs, n, T)
    order = np.argsort(-scores, -1)
    first, second = (
        np.take_along_axis(scores, order[..., k, None], -1) for k in (0, 1)
    )
    lift = tokens.y[..., None] * (first - LEAD - second)
    toward = tokens.u / (tokens.u**2).sum(-1, keepdims=True)
    X = tokens.X.copy()
    moved = np.take_along_axis(X, order[..., 1, None, None], 2)
    moved = moved + lift[..., None] * toward[:, None, None]
    np.put_along_axis(X, order[..., 1, None, None], moved, 2)
    return replace(tokens, X=X)


def _wrong_start(tokens: TokenSet, seeds: Sequence[int]):
    """Return W_0 (runs, d, d_z): HOLD times the solution of the token SVM for random
    tokens that are not the opt tokens.

    Tokens are drawn until the SVM has a solution; the loop never ends if there is none.
    """
    _, n, T, _ = tokens.shape
    starts = []
    for opt, seed in zip(tokens.opt, seeds, strict=True):
        draws = stream(seed, "selection")
        run = len(starts)
        while len(starts) == run:
            wrong = (opt + draws.integers(1, T, n)) % T
            try:
                starts.append(HOLD * svm.token_svm(tokens.run(run), wrong[None]).W[0])
            except svm.Infeasible:
                continue
    return np.array(starts)


class _Ended(NamedTuple):
    """How the runs of a rule end: the selected tokens, and whether the selection is
    final.
    """

    selection: np.ndarray  # (runs, n)
    # (runs,): whether the selection is the same as after half of the steps, and the
    # selected tokens have the largest logits without a tie.
    kept: np.ndarray


def settings(seeds: Sequence[int]) -> dict[str, tuple[TokenSet, np.ndarray | None]]:
    """Return three problems in which selections compete, by name.

    A problem is a pair of tokens and W_0, where W_0 is None for a start from zero.
    """
    data = unit_tokens(seeds, **SHAPE)
    return {
        "from zero": (data, None),
        "near ties": (_near_ties(data), None),
        "wrong start": (data, _wrong_start(data, seeds)),
    }


def ended(
    tokens: TokenSet, rows: Mapping, steps: int, start: np.ndarray | None
) -> dict[str, _Ended]:
    """Train with every rule for `steps` steps, and return where the runs of each rule
    ended.

    `rows` has a Row per rule, and `start` is W_0, or None for zero.
    """
    rules = {name: row.rule for name, row in rows.items()}
    paths: Any = dynamics.train(
        tokens, rules, steps, start=start, record=[steps // 2, steps]
    )
    ends = {}
    for name, path in paths.items():
        first, last = (atlas.selected(tokens, path.W[:, k]) for k in (0, 1))
        ahead = atlas.least_margins(tokens, last, path.W)[:, -1] > 0
        ends[name] = _Ended(
            last, (first == last).all(1) & ahead & (path.status == "completed")
        )
    return ends


def optimal(tokens: TokenSet, runs: Mapping[str, _Ended]) -> dict[str, np.ndarray]:
    """Return, by rule, the share of samples in which a run selects the opt token.

    The result has the shape (runs,).
    """
    return {name: (end.selection == tokens.opt).mean(1) for name, end in runs.items()}


def disputes(rows: Mapping, runs: Mapping, best: atlas.BestMargins) -> dict:
    """Compare the selections of two rules by the largest margin that each selection
    allows.

    A dispute is a run in which the rules a and b end at different selections s_a and
    s_b, and each of the two selections is final. The value of the dispute is
    log(gamma_N(s_a) / gamma_N(s_b)), where N is the norm of a, and gamma_N(s) = max
    {min_m <A_m, W> : N(W) <= 1} is the largest margin for the selection s.

    Returns
    -------
    dict
        The values (runs,) by (a, b). They are NaN for a run without a dispute.
    """
    logs = {}
    for a, b in permutations(rows, 2):
        apart = (
            (runs[a].selection != runs[b].selection).any(1)
            & runs[a].kept
            & runs[b].kept
        )
        logs[a, b] = np.full(len(apart), np.nan)
        for run in np.flatnonzero(apart):
            ends = (runs[name].selection[run] for name in (a, b))
            gammas = [best.gamma(run, selected, rows[a].highest) for selected in ends]
            logs[a, b][run] = np.log(gammas[0] / gammas[1])
    return logs
