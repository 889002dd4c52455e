"""`train`, the one function for all rules, which sends each rule to its engine."""

from collections.abc import Mapping, Sequence
from typing import Any, overload

import numpy as np

from lib import attention
from lib.attention import coordinates
from lib.attention.token_sets import TokenSet
from lib.dynamics import gradient_descent, in_coordinates, mirror_descent, own_rules
from lib.dynamics.history import History, Weights
from lib.dynamics.in_coordinates.rules import InCoordinates, MirrorDescent
from lib.dynamics.measures import checked_targets, of_weights
from lib.dynamics.recording import check_head, checked_start, record_times
from lib.dynamics.reduced import FORMS
from lib.dynamics.rules import Rule, check_rule
from lib.dynamics.starts import Start
from lib.seeds import whole_number
from lib.svm.max_margin import MaxMargin

# The names of the engines. They differ in the coordinates in which they see W.
ALONG_GRADIENT, IN_MIRROR, COMPILED, OWN = "gradient", "mirror", "compiled", "own"


@overload
def train(
    tokens: TokenSet | coordinates.Minimal,
    rules: Rule,
    steps: int,
    record: Sequence[int] | np.ndarray | None = None,
    start: Start | np.ndarray | None = None,
    *,
    targets: Mapping[str, np.ndarray | MaxMargin] | None = None,
    head: str = "fixed",
    head_targets: Mapping[str, np.ndarray | MaxMargin] | None = None,
    loss: str = "exponential",
    product: str | None = None,
) -> History: ...
@overload
def train(
    tokens: TokenSet | coordinates.Minimal,
    rules: Mapping[Any, Rule],
    steps: int | Mapping[Any, int],
    record: Sequence[int] | np.ndarray | None = None,
    start: Start | np.ndarray | None = None,
    *,
    targets: Mapping[str, np.ndarray | MaxMargin] | None = None,
    head: str = "fixed",
    head_targets: Mapping[str, np.ndarray | MaxMargin] | None = None,
    loss: str = "exponential",
    product: str | None = None,
) -> dict[Any, History]: ...
def train(
    tokens: TokenSet | coordinates.Minimal,
    rules: Rule | Mapping[Any, Rule],
    steps: int | Mapping[Any, int],
    record: Sequence[int] | np.ndarray | None = None,
    start: Start | np.ndarray | None = None,
    *,
    targets: Mapping[str, np.ndarray | MaxMargin] | None = None,
    head: str = "fixed",
    head_targets: Mapping[str, np.ndarray | MaxMargin] | None = None,
    loss: str = "exponential",
    product: str | None = None,
) -> History | dict[Any, History]:
    r"""Train attention with one or several update rules and record the path.

    It minimises the loss of paper A,

    .. math:: L = \frac1n \sum_i \ell(y_i u^\top X_i^\top \mathrm{softmax}(X_i W z_i))

    over W, or over W and u. Each rule runs in the engine that suits it:

    * `GD`, `NGD`, `Polyak`, `Custom` and a rule of your own with `log_step` run in
      coordinates of the span of the tokens, so that the cost does not grow with the
      dimension of the tokens. Quantities that would underflow are stored as logarithms.
    * `MirrorDescent`, and the other rules that see the coordinates of W (`Adam`,
      `Muon`, ...), run in a compiled loop, on W in the coordinates of the tokens.
    * A rule of your own with `direction` runs in numpy, on W in the coordinates of the
      tokens.

    Parameters
    ----------
    tokens : TokenSet or Minimal
        The data sets, one per run. They contain the head u. It stays fixed, or joint
        training starts from it. Rules that see coordinates need a TokenSet.
    rules : Rule or mapping of str to Rule
        One update rule, such as ``dynamics.NGD(0.1)``, or several rules by name. The
        rules of a mapping may be of different classes. For a mapping, the result is a
        dict of histories with the same keys.
    steps : int or mapping of str to int
        The number of iterations: one number for all rules, or one number for each name.
    record : sequence of int, optional
        The iterations to record, ascending, within 0 ... `steps`. Training ends at the
        last one. If `steps` is a mapping, each rule records those iterations that do
        not exceed its own number of steps. Default: ``log_spaced(steps)``.
    start : Start or ndarray (runs, d, d_z), optional
        W_0. Default: zero. Only rules along the gradient accept a Start. An array must
        be in the coordinates of the original TokenSet, even if `tokens` is a Minimal.
    targets : mapping of str to MaxMargin or ndarray, optional
        Directions with which W_t is compared, for example
        ``{"W_mm": svm.token_svm(tokens)}``. An array must have the shape of W: (runs,
        d, d_z) for a TokenSet, (runs, r, q) for a Minimal.
    head : {"fixed", "joint"}
        Whether u stays fixed or is trained together with W. Only rules along the
        gradient, and `MirrorDescent` on all samples, can train u.
    head_targets : mapping of str to MaxMargin or ndarray, optional
        Directions with which u_t is compared, for example
        ``{"u_mm": svm.head_svm(tokens)}``. An array must have the shape of u: (runs, d)
        for a TokenSet, (runs, r) for a Minimal. If the head is fixed, these targets are
        checked, but u is not compared with them.
    loss : str
        One of ``attention.LOSSES``. `MirrorDescent` and the other compiled rules that
        see coordinates accept only ``attention.COMPILED_LOSSES``.
    product : {"gram", "factored"}, optional
        How to multiply with the Gram matrix of the m = n(T-1) pairs of tokens. "gram"
        forms this matrix once; each step then reads m^2 numbers. "factored" never forms
        it; each step then reads n r (T + q) numbers. Up to rounding, the two settings
        give the same steps. Default: the cheaper one. Only rules along the gradient use
        this argument.

    Returns
    -------
    History or dict of str to History
        What was recorded: one history for a single rule, a dict of histories for a
        mapping. A run whose gradient is zero ends as "stalled", and a run that leaves
        the range of float64 ends as "diverged". The entries after its end are NaN. In
        ``History.log_gap``, L* is the loss at the largest scores if the head is fixed,
        and 0 in joint training.

    Raises
    ------
    ValueError
        If `loss`, `head` or `product` is unknown; if `steps` is not a whole number, or
        names no number for one of the rules, or is a mapping for a single rule; if
        `record`, `start` or a target has the wrong shape or order, or contains numbers
        that are not finite; if a target is zero, or was solved for other tokens; if the
        sizes of tokens, queries or head lie outside 1e-100 ... 1e100; if a target and
        W_0 (or a head target and u_0) both have a part outside the span of tokens and
        queries, because the angle between these two parts is not known; if a rule does
        not accept the given loss, head, start or type of `tokens`, has batches of more
        than n samples, or has a number of blocks that does not divide the number of
        rows of W; if a rule of your own returns a step of the wrong shape, or returns
        NaN at the first step.
    TypeError
        If `rules` contains anything that is not a Rule; if `tokens` is neither a
        TokenSet nor a Minimal; if targets are not a mapping; if a start, a target, or
        what a rule of your own returns contains anything but real numbers.
    MemoryError
        If the Gram matrix or the records of rules along the gradient would not fit into
        memory.

    Examples
    --------
    >>> from lib import attention, dynamics, svm
    >>> data = attention.two_examples()
    >>> rules = {"GD": dynamics.GD(1.0), "NGD": dynamics.NGD(0.1)}
    >>> rules["Muon"] = dynamics.Muon(0.1)
    >>> targets = {"W_mm": svm.token_svm(data)}
    >>> runs = dynamics.train(data, rules, 1000, targets=targets)
    >>> for name, run in runs.items():
    ...     print(name, float(run.direction_error["W_mm"][0, -1].round(4)))
    GD 0.1533
    NGD 0.0094
    Muon 0.4894

    In these data, the token SVMs for p = 1.5, 2 and 3 have the same solution. The
    direction of W turns towards this solution, and the larger p is, the more slowly it
    turns:

    >>> rules = {p: dynamics.MirrorDescent(p) for p in (1.5, 2.0, 3.0)}
    >>> runs = dynamics.train(
    ...     data, rules, 1000, record=[10, 100, 1000], loss="logistic"
    ... )
    >>> for p, run in runs.items():
    ...     print(p, run.divergence(targets["W_mm"].W, p)[0].round(3))
    1.5 [0.289 0.001 0.   ]
    2.0 [0.171 0.004 0.   ]
    3.0 [0.092 0.027 0.004]
    """
    attention.check_loss(loss)
    check_head(head)
    if product is not None and product not in FORMS:
        raise ValueError(f"product = {product!r}; it must be {' or '.join(FORMS)}")
    if isinstance(rules, Mapping):
        named = rules
    else:
        named = {"": rules}
        if isinstance(steps, Mapping):
            raise ValueError(
                f"steps = {steps!r}; a single rule needs one number, and a dict needs "
                "a dict of rules with the same names"
            )
    engines = {name: _engine(rule) for name, rule in named.items()}
    times = {name: _times(name, steps, record) for name in named}
    data = coordinates.token_set_of(tokens)
    ends = checked_targets(targets, data)
    head_ends = checked_targets(head_targets, data, of_head=True)
    measured = {
        "targets": ends,
        "head": head,
        "head_targets": head_ends,
        "loss": loss,
    }

    histories: dict[Any, History] = {}
    along = {name: named[name] for name in named if engines[name] == ALONG_GRADIENT}
    if along:
        own_times = {name: times[name] for name in along}
        histories |= gradient_descent.run(
            tokens, along, own_times, start, product=product, **measured
        )
    others = {name: named[name] for name in named if name not in along}
    if others:
        for name, rule in others.items():
            _check_sees_coordinates(rule, engines[name], tokens, head, loss)
        raws = _in_coordinates(data, others, engines, times, start, head, loss)
        for name, raw in raws.items():
            W, u = raw.pop("W"), raw.pop("u", None)
            if u is None:  # only `mirror_descent` can train the head, and returns it
                u = np.repeat(data.u[:, None], W.shape[1], 1)
            raw["path"] = Weights(W, u)
            histories[name] = of_weights(data, times[name], raw, **measured)
    if isinstance(rules, Mapping):
        return {name: histories[name] for name in named}
    return histories[""]


def _engine(rule: Any) -> str:
    """Return the name of a rule's engine.

    Raises TypeError if the rule is not a Rule, and otherwise the errors that
    `check_rule` raises.
    """
    if not isinstance(rule, Rule):
        raise TypeError(
            f"rules holds {rule!r}; it takes a rule such as lib.NGD(0.1), or a dict of "
            "rules by their names"
        )
    # A plain class with an `__init__` of its own may not have been checked yet.
    check_rule(rule)
    # A subclass of a compiled rule can have its own `direction`, so this comes first.
    if rule.has_direction:
        return OWN
    if isinstance(rule, MirrorDescent) and not rule.batch_size:
        return IN_MIRROR
    if isinstance(rule, InCoordinates | MirrorDescent):
        return COMPILED
    return ALONG_GRADIENT


def _times(
    name: Any,
    steps: int | Mapping[Any, int],
    record: Sequence[int] | np.ndarray | None,
) -> np.ndarray:
    """Return the iterations (k,) to record for one rule, up to its number of steps.

    Raises ValueError if `steps` is a mapping without this name, if no iteration in
    `record` is within the rule's own number of steps, and in the cases that
    `record_times` lists.
    """
    if not isinstance(steps, Mapping):
        return record_times(record, steps)
    if name not in steps:
        raise ValueError(f"steps has no rule {name!r}; it names {list(steps)}")
    own = whole_number(f"steps[{name!r}]", steps[name])
    if record is not None:
        record = record_times(record, None)
        record = record[record <= own]
    return record_times(record, own)


def _check_sees_coordinates(
    rule: Rule,
    engine: str,
    tokens: TokenSet | coordinates.Minimal,
    head: str,
    loss: str,
) -> None:
    """Raise ValueError if a rule that sees coordinates does not accept an argument."""
    if not isinstance(tokens, TokenSet):
        raise ValueError(
            f"tokens is a Minimal, but {rule} sees the coordinates of the tokens, "
            "which it does not keep: give the TokenSet"
        )
    if head == "joint" and engine != IN_MIRROR:
        raise ValueError(
            f'head = "joint", but {rule} trains W alone: rules along the gradient, '
            "such as NGD, and MirrorDescent on all samples train the head"
        )
    if engine != OWN and loss not in attention.COMPILED_LOSSES:
        raise ValueError(
            f"loss must be one of {attention.COMPILED_LOSSES} for {rule}, not {loss!r}"
        )


def _in_coordinates(
    tokens: TokenSet,
    rules: Mapping[Any, Any],
    engines: Mapping[Any, str],
    times: Mapping[Any, np.ndarray],
    start: Start | np.ndarray | None,
    head: str,
    loss: str,
) -> dict[Any, dict[str, Any]]:
    """Train with the engines that see coordinates, and return the records by rule.

    Each record is a dict of arrays by name, with W (runs, k, d, d_z), status and ended
    (runs,), and log_gap (runs, k). `mirror_descent` adds u (runs, k, d), whether or not
    the head is trained. Raises ValueError if `start` is a Start, or if its shape is not
    (runs, d, d_z).
    """
    shape = len(tokens.y), tokens.shape[-1], tokens.z.shape[-1]
    if isinstance(start, Start):
        raise ValueError(
            f"start is a Start, but {next(iter(rules.values()))} sees the coordinates "
            f"of W_0: give an array {shape}, such as lib.mirror.gaussian_start draws"
        )
    if start is None:
        W_0 = np.zeros(shape)
    else:
        W_0 = checked_start(start, shape)
    of_engine: dict[str, dict[Any, Any]] = {IN_MIRROR: {}, COMPILED: {}, OWN: {}}
    for name, rule in rules.items():
        of_engine[engines[name]][name] = rule
    raws: dict[Any, dict[str, Any]] = {}
    if of_engine[IN_MIRROR]:
        raws |= mirror_descent.run(
            tokens, of_engine[IN_MIRROR], times, W_0, head=head, loss=loss
        )
    if of_engine[COMPILED]:
        raws |= in_coordinates.run(tokens, of_engine[COMPILED], times, W_0, loss=loss)
    for name, rule in of_engine[OWN].items():
        raws[name] = own_rules.run(tokens, rule, times[name], W_0, loss=loss)
    return raws
