"""Predict the direction error of a run by the law of the margins.

The law gives C from the duals of the SVM. If some pairs are off the support of the SVM,
they add a part omega to W early in training, which has to be measured on the run.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lib.attention import TokenSet, coordinates, model
from lib.dynamics import History
from lib.dynamics.history import SAME_RUN, Coefficients
from lib.representation import Shapes
from lib.svm import token_svm
from papers.law import margins
from papers.law.margin_law import MarginLaw, margin_law, require
from papers.saturation import gaps_of_scores

# The law can be trusted once at most this share remains of everything that must decay
# first.
TRUSTED = 0.01
OUT_OF_REACH = 1e12  # more steps than anybody would train for
# A logarithm counts as constant over the second half of a run if it changes by less
# than this.
CONSTANT = 0.1


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Prediction(Shapes):
    """The prediction for a run by the law of the margins, as `predict` returns it.

    Parameters
    ----------
    law : MarginLaw
        The law of the tokens that the run selects.
    selected : ndarray of int (runs, n)
        The tokens that the run selects.
    outside : ndarray (runs,)
        ||omega||, the norm of the part of W outside the span of the support.
    iteration : int
        The iteration at which `outside` was measured.
    direction_error : ndarray (runs, k)
        The predicted direction error at every record of the run.
    measured : ndarray (runs, k)
        The measured direction error of the run: the distance from the direction of the
        SVM solution for the tokens that the run selects. It is NaN where W = 0.
    remaining : ndarray (runs, k)
        How much of the transients remains: the larger of two fractions, that of the
        error of the offsets at the record, and that of the pull of pairs off the
        support at `iteration`. Trust the prediction where this fraction is below 0.01.
    steps_needed : ndarray (runs,)
        The approximate number of steps, counted from the start, after which the last
        entry of `remaining` is below 0.01 in a run with the same rule. It is NaN if the
        steps of the rule follow neither of the two laws that `predict` states.
    """

    law: MarginLaw
    selected: np.ndarray
    outside: np.ndarray
    iteration: int
    direction_error: np.ndarray
    measured: np.ndarray
    remaining: np.ndarray
    steps_needed: np.ndarray

    def __repr__(self) -> str:
        words = super().__repr__()
        far = np.flatnonzero(self.remaining[:, -1] >= TRUSTED)
        if not far.size:
            return words
        r = far[np.argmax(self.remaining[far, -1])]
        most = np.max(self.steps_needed[far])  # NaN if one of the entries is NaN
        if most <= OUT_OF_REACH:
            advice = f"train for about {most:.2g} steps"
        elif most > OUT_OF_REACH:
            advice = f"it would take {most:.2g} steps, so train with NGD"
        else:
            advice = f"double the steps until it is below {TRUSTED}"
        return (
            f"{words[:-1]}, not yet to be trusted in {far.size} of "
            f"{len(self.remaining)} runs: "
            f"remaining = {self.remaining[r, -1]:.2g} in run {r}; {advice})"
        )


def predict(
    tokens: TokenSet | coordinates.Minimal,
    run: History,
    *,
    loss: str = "exponential",
    momentum: float | None = None,
) -> Prediction:
    r"""Predict the direction error of runs from their tokens and their norms.

    Once all transients have decayed, the distance between the directions of W_t and of
    W_mm is

    .. math:: 2 \sin\tfrac12 \arcsin \frac{\sqrt{C^2 + \|\omega\|^2}}{\|W_t\|}

    Here W_mm solves the SVM of the tokens that the run selects at its last record, and
    C follows from the duals of this SVM. The matrix omega is the part of W_t outside
    the span of the SVM's support. Nothing is fitted, but omega is measured on the run.
    It is zero if W_0 = 0 and all pairs are on the support.

    Parameters
    ----------
    tokens : TokenSet or Minimal
        The tokens on which the run was trained, with the head.
    run : History
        What ``lib.train`` returned for one rule along the gradient, with a fixed head.
    loss : str, optional
        The loss with which the run was trained, one of ``lib.LOSSES``.
    momentum : float, optional
        The momentum of the rule, on which it depends how long a step may be. By default
        it is taken from the run. You need this argument only for a file of an earlier
        version, which lacks the momentum.

    Returns
    -------
    Prediction
        The arrays ``direction_error`` and ``measured`` (runs, k) have the predicted and
        the measured direction error at every record. The prediction is the square root
        of 2 where ||W_t|| is less than the square root in the formula, and ``measured``
        is NaN where W_t = 0. ``remaining`` (runs, k) is the remaining share of the
        transients that must decay before the formula holds: trust the prediction where
        this share is below 0.01. If it is not below 0.01 at the end, ``steps_needed``
        (runs,) says about how many steps a new run needs. The ``repr`` of the result
        says so, too. ``outside`` (runs,) is the norm of omega, measured at
        ``iteration``. ``selected`` (runs, n) are the tokens that the run selects, and
        ``law`` is the `MarginLaw`.

    Raises
    ------
    PremiseFails
        If a premise of the law fails. The premises are those of `margin_law`, and two
        more: "selection made" fails if the selected tokens change after a tenth of the
        run, and "short steps" fails if the steps are so long that the margins of the
        support keep oscillating.
    Infeasible
        If no W gives all selected tokens the largest logits.
    ValueError
        If a run has ended early; if the head was trained too; if the rule does not step
        along the gradient; if tokens, head, loss or momentum are not those of the run;
        if the run lacks its momentum and the argument is missing or not in [0, 1).
    TypeError
        If an argument has the wrong type.

    Notes
    -----
    The prediction is our theorem, proved in ``notebooks/law_of_margins.md``. It holds
    for rules that step along the gradient (`GD`, `NGD`, `Polyak`, `Custom`), with or
    without momentum, if their steps are short enough. Adam, Muon and sign descent
    converge to other directions.

    We measure omega at the first record from a tenth of the run on. Before that, omega
    still changes: the pairs off the support pull with a weight that decays like
    :math:`e^{-\epsilon a_t}`, where epsilon is ``law.excess`` and a_t is <W_t,
    W_mm>/||W_mm||^2. If we measured later, less of the run would be left to predict.
    The size of this pull at the record enters ``remaining``.

    The required length of a run follows from its level a_t, because all transients
    decay with it: a_t has to reach log(100) / min(slowest, excess, 1) at the end of the
    run, and log(100) / excess at a tenth of it, with the rates of ``law``. We find the
    iteration at which a_t gets there in the records. If it lies beyond the run, we
    extrapolate a_t in the two cases in which its growth is known. If the length of the
    steps falls like :math:`t^{-c}` with 0 <= c < 1 (c = 0 for `NGD`, and in the end for
    `Polyak`), a_t grows like :math:`t^{1-c}`. If the step size is constant, as for
    `GD`, the gradient decays like :math:`e^{-a_t}`, so that :math:`e^{a_t}` grows by
    the same amount in every step. The second half of the run shows which of the two
    cases applies, and what c is. In all other cases ``steps_needed`` is NaN: double the
    number of steps until ``remaining`` is as small as you need it. Under `GD` the
    number may be out of reach; then use `NGD`, whose direction has the same limit if it
    selects the same tokens.

    A history stores W within the span of tokens and queries. If W_0 has a part outside
    this span, we compute the norm of this part from the first record; in this case
    iteration 0 must be recorded.

    Examples
    --------
    In these data some pairs are off the support. C alone would predict too small an
    error.

    >>> import lib
    >>> from papers.law.prediction import predict
    >>> tokens = lib.gaussian_tokens(seeds=[2])
    >>> run = lib.train(tokens, lib.NGD(0.5), 100_000)
    >>> found = predict(tokens, run)
    >>> int(found.law.support.sum()), found.law.support.size
    (47, 50)
    >>> print(found.law.constant.round(3), found.outside.round(3))
    [3.892] [3.663]
    >>> print((found.measured / found.direction_error)[0, -1].round(6))
    1.0
    >>> print((found.measured / found.law.direction_error(run.norm))[0, -1].round(3))
    1.373
    >>> bool(found.remaining[0, -1] < 0.01)
    True
    """
    problem = coordinates.minimal(tokens)
    data = problem.tokens
    _check_kind(run)
    momentum = _momentum(run, momentum)
    tenth = int(np.argmax(run.iterations >= run.iterations[-1] / 10))
    _check_tokens(data, run, tenth, loss)

    # The law of the tokens that the run selects.
    selected = run.selected(data)
    _check_selection(run, data, selected, tenth)
    solution = token_svm(data, selected)
    law = margin_law(data, solution, selected, loss)
    _check_steps(run, law, momentum)

    # The part of W outside the span of the support.
    outside_coordinates = run.norm_outside
    inside = margins.outside_support(data, selected, law.support, run.weights(tenth))
    outside = np.hypot(inside, outside_coordinates)

    # The measured values, record by record.
    measured = np.empty(run.norm.shape)
    level = np.empty(run.norm.shape)
    for k in range(len(run.iterations)):
        W = run.weights(k)
        measured[:, k] = margins.direction_error(W, solution.W, outside_coordinates)
        level[:, k] = margins.along_and_off(W, solution.W)[0] / law.norm
    level = np.maximum(level, 0.0)
    pull = _pull_outside(law, level[:, tenth])
    remaining = np.maximum(law.remaining(level), pull[:, None])
    return Prediction(
        law=law,
        selected=selected,
        outside=outside,
        iteration=int(run.iterations[tenth]),
        direction_error=law.direction_error(run.norm, outside),
        measured=np.where(run.norm > 0, measured, np.nan),
        remaining=remaining,
        steps_needed=_steps_needed(run, law, level, remaining),
    )


def _check_kind(run: History) -> None:
    """Raise TypeError or ValueError unless the law can apply to this run."""
    if isinstance(run, Mapping):
        names = ", ".join(map(repr, run))
        raise TypeError(f"run holds several histories: give one of run[...], {names}")
    if not isinstance(run, History):
        raise TypeError(
            f"run = {type(run).__name__}; it must be a History, which lib.train returns"
        )
    if not isinstance(run.path, Coefficients):
        raise ValueError(
            "the rule of this run does not step along the gradient, and the law holds "
            "for rules that do: train with GD, NGD, Polyak, Custom or a rule of your "
            "own with log_step"
        )
    if len(run.path.signed):
        raise ValueError(
            "the head was trained together with W, and the law is about a fixed head: "
            "papers.law.joint_law has the law of a trained head"
        )
    early = np.flatnonzero(run.status != "completed")
    if early.size:
        r = early[0]
        raise ValueError(
            f"run {r} ended as {str(run.status[r])!r} at iteration {run.ended[r]}: "
            "give a history whose runs took all their steps"
        )


def _momentum(run: History, momentum: float | None) -> float:
    """Return the momentum of the rule that made a run.

    The function raises ValueError if the given momentum differs from the run's, or if
    neither is known.
    """
    recorded = float(run.momentum[0])
    if np.isnan(recorded):
        if momentum is None:
            raise ValueError(
                "the run does not say the momentum of its rule, since its file is of "
                "an earlier version: give it, momentum=0.0 for a rule without momentum"
            )
        return momentum
    if momentum is not None and momentum != recorded:
        raise ValueError(
            f"momentum = {momentum!r}, but the rule of this run has {recorded:g}: "
            "leave momentum out, since it is read off the run"
        )
    return recorded


def _check_tokens(tokens: TokenSet, run: History, k: int, loss: str) -> None:
    """Raise ValueError unless W at record k has the margins and the loss that the run
    recorded.

    `tokens` are in minimal coordinates.
    """
    W = run.weights(k)
    shape = len(tokens.y), tokens.X.shape[-1], tokens.z.shape[-1]
    pairs = coordinates.others(tokens.opt, tokens.shape[2]).shape
    same = W.shape == shape and run.margins[:, k].shape == pairs
    if same:
        logits = model.logits(tokens, W)
        recorded = run.margins[:, k]
        found = gaps_of_scores(logits, tokens.opt)
        # The margin of a masked token is NaN in a history.
        close = np.isclose(found, recorded, rtol=SAME_RUN, atol=SAME_RUN)
        same = bool((close | np.isnan(recorded)).all())
    if not same:
        raise ValueError(
            "the run was trained on other tokens, since its W gives other margins on "
            "these: give the tokens that it was trained on"
        )
    at = model.slopes(logits, model.scores(tokens, tokens.u), loss)
    recorded = run.log_gap[:, k]
    close = np.isclose(at.log_gap, recorded, rtol=SAME_RUN, atol=SAME_RUN)
    r = int(np.argmin(close))
    if not close[r]:
        raise ValueError(
            f"run {r} recorded log(L - L*) = {recorded[r]:.6g} at iteration "
            f"{run.iterations[k]}, and its W has {at.log_gap[r]:.6g} with this head "
            f"and the {loss} loss: give the head and the loss that it was trained with"
        )


def _check_selection(
    run: History, tokens: TokenSet, selected: np.ndarray, tenth: int
) -> None:
    """Raise PremiseFails if a run did not yet select these tokens at record `tenth`."""
    changed = (run.selected(tokens, tenth) != selected).sum(1)
    r = int(changed.argmax())
    reason = (
        f"{changed[r]} of {selected.shape[1]} samples selected another token at "
        f"iteration {run.iterations[tenth]} than at the end: train longer or with "
        "larger steps, so that the selection settles within a tenth of the run"
    )
    require(changed[r] == 0, "selection made", changed[r], reason, r)


def _check_steps(run: History, law: MarginLaw, momentum: float) -> None:
    """Raise PremiseFails if the last step of a run is too long for the law."""
    step = np.exp(run.log_step[:, -1] + run.log_gradient[:, -1])
    longest = law.longest_step(momentum)
    r = int(np.argmax(step / longest))
    reason = (
        f"with steps of length {step[r]:.3g} the margins of the support go on "
        f"oscillating; with momentum = {momentum:g} a step must be shorter than "
        f"{longest[r]:.3g}: train with shorter steps"
    )
    require(step[r] < longest[r], "short steps", step[r] / longest[r], reason, r)


def _pull_outside(law: MarginLaw, level: np.ndarray) -> np.ndarray:
    """Return e^{-excess a}, the pull of pairs off the support at a = `level`.

    The result has the shape (runs,). It is zero if there are no such pairs.
    """
    whole = np.isinf(law.excess)
    rate = np.where(whole, 0.0, law.excess)
    return np.where(whole, 0.0, np.exp(-rate * level))


def _steps_needed(
    run: History, law: MarginLaw, level: np.ndarray, remaining: np.ndarray
) -> np.ndarray:
    """Return the number of steps after which `remaining` is below TRUSTED.

    The result has the shape (runs,). The number is NaN if it is not known. `level` and
    `remaining` (runs, k) are a_t and the field of `Prediction` at the records.
    """
    slowest = np.minimum(np.minimum(law.slowest, law.excess), 1.0)
    at_end = -np.log(TRUSTED) / slowest
    at_tenth = -np.log(TRUSTED) / law.excess  # zero if all pairs are on the support
    needed = np.empty(len(level))
    for r in range(len(level)):
        last = _reached(run, r, level[r], at_end[r])
        needed[r] = np.maximum(last, 10 * _reached(run, r, level[r], at_tenth[r]))
    # In a run that has few records, little may remain long before its first one.
    long_enough = remaining[:, -1] < TRUSTED
    needed[long_enough] = np.fmin(needed[long_enough], run.iterations[-1])
    return np.ceil(needed)


def _reached(run: History, r: int, level: np.ndarray, wanted: float) -> float:
    """Return the iteration from which run r has a level of at least `wanted`.

    `level` (k,) has the levels at the records. Beyond the run the level is extrapolated
    by one of the two laws that `predict` states; the result is NaN if neither applies.
    A level of 0 or less is reached from the start, whether this is recorded or not.
    """
    if wanted <= 0:
        return 0.0
    below = np.flatnonzero(level < wanted)
    if not below.size:
        return float(run.iterations[0])
    if below[-1] + 1 < len(level):
        return float(run.iterations[below[-1] + 1])
    end = run.iterations[-1]
    half = int(np.argmax(run.iterations >= end / 2))
    steps = end - run.iterations[half]
    gain = level[-1] - level[half]
    if not (steps > 0 and gain > 0):
        return np.nan
    log_size = run.log_step[r, half:]
    log_length = log_size + run.log_gradient[r, half:]
    missing = wanted - level[-1]
    if np.ptp(log_size) < CONSTANT <= np.ptp(log_length):
        # The result is infinite if the level is out of reach.
        with np.errstate(over="ignore"):
            return end + steps * np.expm1(missing) / -np.expm1(-gain)
    # The length of the steps, as e^b t^(-c).
    log_t = np.log(run.iterations[half:])
    slope, b = np.polyfit(log_t, log_length, 1)
    power = 1 + min(slope, 0.0)  # 1 - c
    if np.abs(b + slope * log_t - log_length).max() < CONSTANT and power > 0:
        grown = end**power - run.iterations[half] ** power
        return (end**power + grown * missing / gain) ** (1 / power)
    return np.nan
