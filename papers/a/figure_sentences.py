"""What paper A's text says about the curves in its Figures 2, 3 and 5, one claim per
sentence.

Our copy of the text lacks the numbers of these figures: step sizes, caps, horizons and
sizes. So we know only what the text says about them. `figure2` and `figure3` measure
each sentence on the runs of one setting, and `sweep2` and `sweep3` on every setting of
a grid.

"Ahead" is our reading of "faster": one rule is ahead of another if no metric of the
figure has a smaller value for it. A sentence with "ahead" is about the recorded
iterations from `FIRST` to the horizon. We leave out the first iterations, because the
rules have hardly left the start by then, and a momentum of 0.9 needs about ten
iterations to build up.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import inf
from typing import Any, NamedTuple

import numpy as np

from companion import claims
from companion.claims import Claim
from lib import dynamics
from lib.attention.coordinates import Minimal
from lib.dynamics import History, Rule, Start
from papers.fits import exponent

FIRST = 20  # the first iteration at which "ahead" is required
# our upper bound on the factor of "slightly faster": about a tenth of a decade
SLIGHTLY = 1.25
# Our bound on "a similar rate" of two losses: their exponents differ by at most 5 %.
ALIKE = 0.05
# our bound on "slow down": the last step is at most half as long as the longest
SLOWED = 0.5
# Our bound on "after some time": the cap binds in the second half of the run.
HALF = 0.5

Metric = Callable[[History], np.ndarray]


def mean_log_miss(history: History) -> np.ndarray:
    """Return the logarithm of the mean of 1 - p_opt over samples, without underflow.

    Parameters
    ----------
    history : History
        Runs with `log_miss` of shape (runs, k, n).

    Returns
    -------
    ndarray, shape (runs, k)
    """
    largest = history.log_miss.max(-1, keepdims=True)
    return largest[..., 0] + np.log(np.exp(history.log_miss - largest).mean(-1))


# The metrics of the panels, as arrays (runs, k) of numbers that grow during training.
# Each metric orders the rules in the same way as its panel, but stays exact when the
# value in the panel rounds to one.
FIGURE2_METRICS: dict[str, Metric] = {
    "train loss": lambda history: -history.log_gap,
    "norm of W": lambda history: history.norm,
    "softmax score": lambda history: -mean_log_miss(history),
    "alignment of W": lambda history: -history.direction_error["W_mm"],
}
FIGURE3_METRICS: dict[str, Metric] = {
    **FIGURE2_METRICS,
    "norm of u": lambda history: history.head_norm,
    "alignment of u": lambda history: -history.head_direction_error["u_mm"],
}
# The values drawn in the panels of Figure 3, except the loss. The word "slightly" in
# the text refers to these values.
FIGURE3_DRAWN: dict[str, Metric] = {
    "norm of W": lambda history: history.norm,
    "norm of u": lambda history: history.head_norm,
    "softmax score": lambda history: history.opt_score,
    "alignment of W": lambda history: history.alignment["W_mm"],
    "alignment of u": lambda history: history.head_alignment["u_mm"],
}


class Sentence(NamedTuple):
    """A sentence of the text as a claim.

    `words` says what is measured and `bound` what is required ("≥ 1"). `section` says
    where the text makes the statement, and `short` is its wording in a figure.
    """

    words: str
    bound: str
    section: str
    short: str


AHEAD = (
    "share of recorded iterations t >= {first} at which {fast} is ahead of "
    "{slow} in {where}"
)


def _ahead(fast: str, slow: str, where: str, section: str, short: str) -> Sentence:
    words = AHEAD.format(first=FIRST, fast=fast, slow=slow, where=where)
    return Sentence(words, "≥ 1", section, short)


ALL_FOUR = "all four metrics"
ALL_SIX = "all six metrics"
FIGURE2 = {
    "ngd_ahead": _ahead("NGD", "GD", ALL_FOUR, "3.2", "normalised GD is ahead of GD"),
    "momentum": _ahead(
        "NGD-mom", "NGD", ALL_FOUR, "3.2", "momentum is ahead of normalised GD"
    ),
    "polyak_ahead": _ahead(
        "Polyak-step", "NGD", ALL_FOUR, "3.2", "Polyak's rule is ahead of normalised GD"
    ),
    "cap_binds": Sentence(
        "iteration after which Polyak-step's cap binds, over the horizon",
        f"≤ {HALF:g}",
        "3.2",
        "Polyak's step size meets its cap",
    ),
    "polyak_slows": Sentence(
        "Polyak-step: last step's length over the longest step's",
        f"≤ {SLOWED:g}",
        "3.2",
        "Polyak's rule slows down",
    ),
    "theorem1": Sentence(
        "NGD: exponent of the direction error in t over the last decade",
        "≤ -0.5",
        "3.2",
        "normalised GD turns as fast as proved",
    ),
}
CAPPED_IS_GD = Sentence(
    "after its cap binds, Polyak-step against GD with the step eta_max: relative "
    "difference of W_T",
    "≤ 1e-09",
    "3.2",
    "the capped rule is GD",
)
FIGURE3 = {
    "ahead_of_gd": _ahead(
        "each other rule", "GD", ALL_SIX, "5.1", "all rules are ahead of GD"
    ),
    "polyak_fastest.loss": _ahead(
        "Polyak-step",
        "both NGD rules",
        "the train loss",
        "5.1",
        "Polyak's rule is the fastest: loss",
    ),
    "polyak_fastest.all": _ahead(
        "Polyak-step",
        "both NGD rules",
        ALL_SIX,
        "5.1",
        "Polyak's rule is the fastest: all six",
    ),
    "losses_alike": Sentence(
        "log L of NGD-joint over that of NGD at the horizon",
        f"1 ± {ALIKE:g}",
        "5.1",
        "the losses of both forms are alike",
    ),
}
for _name in FIGURE3_DRAWN:
    FIGURE3[f"ahead.{_name}"] = Sentence(
        f"{_name}: smallest factor of NGD over NGD-joint, t >= {FIRST}",
        "≥ 1",
        "5.1",
        f"ahead of its joint form: {_name}",
    )
    FIGURE3[f"slightly.{_name}"] = Sentence(
        f"{_name}: largest factor of NGD over NGD-joint, t >= {FIRST}",
        f"≤ {SLIGHTLY:g}",
        "5.1",
        f"only slightly ahead: {_name}",
    )


@dataclass(frozen=True)
class Setting:
    """The free numbers of Figure 2, 3 or 5.

    In Figure 3 NGD has no cap: `ngd_cap` is inf.

    Attributes
    ----------
    gd_step, ngd_step : float
        The learning rates.
    ngd_cap, polyak_cap : float
        eta_max of NGD and NGD-mom, and of Polyak-step.
    horizon : int
        The last iteration drawn.
    """

    gd_step: float
    ngd_step: float
    ngd_cap: float
    polyak_cap: float
    horizon: int


GRID2 = {
    "gd_step": (0.1, 0.3, 1.0),
    "ngd_step": (0.025, 0.05, 0.1, 0.2),
    "ngd_cap": (10.0, 100.0, 1000.0, inf),
    "polyak_cap": (10.0, 100.0, 1e3, 1e4, 1e5),
    "horizon": (100, 300, 1000),
}
GRID3 = {
    "gd_step": (0.1, 0.3, 1.0),
    "ngd_step": (0.01, 0.03, 0.1, 0.3, 1.0),
    "ngd_cap": (inf,),
    "polyak_cap": (1.0, 10.0, 100.0, 1e4, inf),
    "horizon": (30, 100, 300, 1000, 10_000),
}
MOMENTUM = 0.9


def rules2(setting: Setting) -> dict[str, Rule]:
    """Return the four rules of Figure 2 by the paper's names."""
    cap = setting.ngd_cap
    return {
        "GD": dynamics.GD(setting.gd_step),
        "NGD": dynamics.NGD(setting.ngd_step, max_step=cap),
        "NGD-mom": dynamics.NGD(setting.ngd_step, max_step=cap, momentum=MOMENTUM),
        "Polyak-step": dynamics.Polyak(setting.polyak_cap),
    }


def rules3(setting: Setting) -> dict[str, Rule]:
    """Return the four rules of Figure 3 by the paper's names."""
    return {
        "GD": dynamics.GD(setting.gd_step),
        "NGD": dynamics.NGD(setting.ngd_step),
        "NGD-joint": dynamics.NGD(setting.ngd_step, joint=True),
        "Polyak-step": dynamics.Polyak(setting.polyak_cap),
    }


def share_ahead(
    fast: History, slow: History, metrics: Mapping[str, Metric], horizon: int
) -> np.ndarray:
    """Return the share of records at which one rule is ahead of another in all metrics.

    A rule is ahead at a record if each of its values is at least as large as the other
    rule's.

    Parameters
    ----------
    fast, slow : History
        Two rules' runs with the same records.
    metrics : mapping of str to function
        Each function returns values of shape (runs, k) that grow during training.
    horizon : int
        The records with FIRST <= t <= horizon are compared.

    Returns
    -------
    ndarray, shape (runs,)
        The share, between 0 and 1. It is NaN if no record is compared.
    """
    counted = (fast.iterations >= FIRST) & (fast.iterations <= horizon)
    everywhere = np.ones((len(fast.norm), counted.sum()), bool)
    for metric in metrics.values():
        everywhere &= metric(fast)[:, counted] >= metric(slow)[:, counted]
    return everywhere.mean(1)


def capped_since(history: History, cap: float) -> np.ndarray:
    """Return the index of the first record from which on every step is at the cap.

    The result has the shape (runs,). For a run whose last recorded step is below the
    cap, the result is the number of records.
    """
    below = history.log_step < np.log(cap) - 1e-12
    last_below = below.shape[1] - below[:, ::-1].argmax(1)
    return np.where(below.any(1), last_below, 0)


def values2(runs: Mapping[str, History], setting: Setting) -> dict[str, np.ndarray]:
    """Measure the sentences of `FIGURE2`, and return {name: values (runs,)}.

    `runs` has the rules of `rules2`, all with the same records. The horizon of the
    `setting` is one of the recorded iterations.
    """
    ngd = runs["NGD"]
    polyak = runs["Polyak-step"]
    horizon = setting.horizon

    def ahead(fast: str, slow: str):
        return share_ahead(runs[fast], runs[slow], FIGURE2_METRICS, horizon)

    # When the cap binds, and how long Polyak's steps are, up to the horizon.
    drawn = polyak.iterations <= horizon
    below = polyak.log_step[:, drawn] < np.log(setting.polyak_cap) - 1e-12
    last_below = np.where(below, polyak.iterations[drawn], 0).max(1)
    log_length = polyak.log_step[:, drawn] + polyak.log_gradient[:, drawn]
    return {
        "ngd_ahead": ahead("NGD", "GD"),
        "momentum": ahead("NGD-mom", "NGD"),
        "polyak_ahead": ahead("Polyak-step", "NGD"),
        "cap_binds": last_below / horizon,
        "polyak_slows": np.exp(log_length[:, -1] - log_length.max(1)),
        "theorem1": exponent(ngd, "W_mm", horizon / 10, horizon),
    }


def capped_is_gd(
    runs: Mapping[str, History], problem: Minimal, setting: Setting
) -> float:
    """Compare Polyak's rule, from when its cap binds in all runs, with GD that starts
    from the same W and has the step size eta_max.

    Returns
    -------
    float
        The largest relative difference between the two W over the runs, at the horizon,
        which is one of the recorded iterations. It is NaN if the cap does not bind
        before the horizon.
    """
    polyak = runs["Polyak-step"]
    begin = int(capped_since(polyak, setting.polyak_cap).max())
    end = int(np.searchsorted(polyak.iterations, setting.horizon))
    if begin >= end:
        return np.nan
    W = polyak.weights(begin)
    steps = int(polyak.iterations[end] - polyak.iterations[begin])
    rule = dynamics.GD(setting.polyak_cap)
    plain = dynamics.train(
        problem, rule, steps, [steps], start=Start(W, np.zeros(len(W)))
    )
    assert isinstance(plain, History)  # one rule, one history
    difference = np.linalg.norm(plain.weights(0) - polyak.weights(end), axis=(1, 2))
    return float((difference / np.linalg.norm(polyak.weights(end), axis=(1, 2))).max())


def values3(runs: Mapping[str, History], setting: Setting) -> dict[str, np.ndarray]:
    """Measure the sentences of `FIGURE3`, and return {name: values (runs,)}.

    `runs` has the rules of `rules3`, all with the same records. Some of the recorded
    iterations lie between `FIRST` and the horizon of the `setting`.
    """
    gd, ngd, joint, polyak = (runs[name] for name in rules3(setting))
    horizon = setting.horizon
    counted = (ngd.iterations >= FIRST) & (ngd.iterations <= horizon)
    loss = {"train loss": FIGURE3_METRICS["train loss"]}

    def least_ahead(pairs: Any, metrics: Any):
        return np.min([share_ahead(*pair, metrics, horizon) for pair in pairs], axis=0)

    at_horizon = np.flatnonzero(ngd.iterations <= horizon)[-1]
    over_gd = [(rule, gd) for rule in (ngd, joint, polyak)]
    over_ngd = [(polyak, rule) for rule in (ngd, joint)]
    values = {
        "ahead_of_gd": least_ahead(over_gd, FIGURE3_METRICS),
        "polyak_fastest.loss": least_ahead(over_ngd, loss),
        "polyak_fastest.all": least_ahead(over_ngd, FIGURE3_METRICS),
        "losses_alike": joint.log_gap[:, at_horizon] / ngd.log_gap[:, at_horizon],
    }
    for name, metric in FIGURE3_DRAWN.items():
        factor = metric(ngd)[:, counted] / metric(joint)[:, counted]
        values[f"ahead.{name}"] = factor.min(1)
        values[f"slightly.{name}"] = factor.max(1)
    return values


def _claim(id: str, sentence: Sentence, values: Any, source: str, why: str) -> Claim:
    return claims.bounded(id, sentence.words, source, sentence.bound, values, why=why)


def claims_of(
    figure: str,
    sentences: Mapping[str, Sentence],
    values: Mapping[str, np.ndarray],
    why: Mapping[str, str] | None = None,
    ours: bool = False,
) -> list[Claim]:
    """Return one claim per sentence, about the worst of the sentence's values.

    Parameters
    ----------
    figure : str
        The first part of the claims' ids, such as "fig2".
    sentences : mapping of str to Sentence
    values : mapping of str to ndarray
        The values of each sentence by its name, as `values2` or `values3` return them.
    why : mapping of str to str, optional
        By a sentence's name, the reason to give if the sentence fails.
    ours : bool
        Whether the text says these sentences about another figure, so that the claims
        about this figure are ours.
    """
    made = []
    for name, sentence in sentences.items():
        source = f"paper A, Section {sentence.section}"
        if ours:
            source = f"ours, beside {source}"
        else:
            source = f"{source} (our reading)"
        reason = (why or {}).get(name, "")
        made.append(_claim(f"{figure}.{name}", sentence, values[name], source, reason))
    return made


def truths(
    figure: str, sentences: Mapping[str, Sentence], values: Mapping[str, np.ndarray]
) -> dict[str, bool]:
    """Return, for each sentence, whether it is true of all runs of a setting."""
    made = claims_of(figure, sentences, values)
    return {name: claim.holds for name, claim in zip(sentences, made, strict=True)}


class Sweep(NamedTuple):
    """The sentences that are true in each setting; `true` has the shape (settings,
    sentences).
    """

    settings: list[Setting]
    sentences: list[str]
    true: np.ndarray

    @property
    def shares(self) -> dict[str, float]:
        """Return the share of settings in which each sentence is true."""
        return dict(zip(self.sentences, self.true.mean(0), strict=True))

    @property
    def best(self) -> list[Setting]:
        """Return the settings in which the largest number of sentences is true."""
        count = self.true.sum(1)
        chosen = np.flatnonzero(count == count.max())
        return [self.settings[k] for k in chosen]

    @property
    def most(self) -> int:
        """Return how many sentences are true at once in the best settings."""
        return int(self.true.sum(1).max())

    def share(self, sentence: str, chosen: Callable[[Setting], bool]) -> float:
        """Return the share of the `chosen` settings in which one sentence is true.

        It is NaN if no setting is chosen.
        """
        rows = [k for k, setting in enumerate(self.settings) if chosen(setting)]
        return float(self.true[rows, self.sentences.index(sentence)].mean())

    def of(self, setting: Setting) -> dict[str, bool]:
        """Return which sentences are true in one setting."""
        row = self.true[self.settings.index(setting)]
        return dict(zip(self.sentences, row, strict=True))


def _grid(grid: Mapping[str, tuple]) -> Iterator[Setting]:
    for values in product(*grid.values()):
        yield Setting(**dict(zip(grid, values, strict=True)))


def _swept(
    grid: Any,
    figure: str,
    sentences: Mapping[str, Sentence],
    rules_of: Callable[..., Any],
    train: Callable[..., Any],
    values_of: Callable[..., Any],
) -> Sweep:
    """Train each rule of the grid once, then measure every setting.

    `rules_of` returns the rules of a setting by name, `train` turns {text: rule} into
    {text: history}, and `values_of` measures the sentences on the runs of a setting.
    The function returns the Sweep.
    """
    settings = list(_grid(grid))
    # Settings share rules: equal rules are trained once.
    needed = {str(rule): rule for each in settings for rule in rules_of(each).values()}
    trained = train(needed)
    true = []
    for setting in settings:
        runs = {name: trained[str(rule)] for name, rule in rules_of(setting).items()}
        true.append([*truths(figure, sentences, values_of(runs, setting)).values()])
    return Sweep(settings=settings, sentences=list(sentences), true=np.array(true))


def sweep2(problem: Minimal, goal: Mapping, records: np.ndarray) -> Sweep:
    """Measure Figure 2's sentences in every setting of `GRID2`.

    Parameters
    ----------
    problem : Minimal
        The data of all runs.
    goal : mapping
        The `start` and the `targets` of `dynamics.train`.
    records : ndarray of int
        Iterations to record; all horizons of the grid are among them.

    Returns
    -------
    Sweep
    """
    last = int(max(GRID2["horizon"]))

    def train(rules: Any):
        return dynamics.train(problem, rules, last, records, **goal)

    return _swept(GRID2, "fig2", FIGURE2, rules2, train, values2)


def sweep3(problem: Minimal, goal: Mapping, records: np.ndarray) -> Sweep:
    """Measure Figure 3's sentences in every setting of `GRID3`.

    The parameters are those of `sweep2`. `goal` also has the `head_targets`, since the
    head is trained too.
    """
    last = int(max(GRID3["horizon"]))

    def train(rules: Any):
        return dynamics.train(problem, rules, last, records, head="joint", **goal)

    return _swept(GRID3, "fig3", FIGURE3, rules3, train, values3)
