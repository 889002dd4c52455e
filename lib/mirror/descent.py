"""Train a token set by l_p mirror descent: lp-AttGD and lp-JointGD of paper C.

Descent runs in the tokens' own coordinates, since mirror descent is not rotation
equivariant.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lib import attention
from lib.attention import coordinates
from lib.attention.token_sets import TokenSet, check_sizes
from lib.compiled import status
from lib.dynamics import recording
from lib.mirror import geometry, kernel
from lib.representation import Shapes
from lib.seeds import gaussian


@dataclass(frozen=True)
class MirrorRule:
    """One lp-AttGD rule: the exponent p and the step size eta.

    |W+|^{p-1} sgn(W+) = |W|^{p-1} sgn(W) - eta g entrywise, with g = grad L, or with g
    = grad L / ||grad L||_{q,q} if `normalised`, where 1/p + 1/q = 1. p = 2 is gradient
    descent.

    Parameters
    ----------
    p : float
        Exponent p of the potential, 1 < p < inf.
    step_size : float, default 0.1
        Step size eta, 0 < eta < inf.
    normalised : bool, default True
        Whether g is the gradient divided by its dual norm.

    Raises
    ------
    ValueError
        If `p` or `step_size` is out of range.

    Notes
    -----
    Paper C, Section 2.

    Examples
    --------
    >>> from lib import mirror
    >>> mirror.MirrorRule(p=3.0)
    MirrorRule(p=3.0, step_size=0.1, normalised=True)
    """

    p: float
    step_size: float = 0.1
    normalised: bool = True

    def __post_init__(self) -> None:
        geometry.check_exponent(self.p)
        if not 0 < self.step_size < np.inf:
            raise ValueError(
                f"step_size = {self.step_size}; it must be positive and finite"
            )


@dataclass(frozen=True, repr=False)
class MirrorHistory(Shapes):
    """Records of each run under one rule, at k iterations.

    Parameters
    ----------
    rule : MirrorRule
        The rule.
    iterations : ndarray of int (k,)
        The recorded iterations. All records after a run's early end are NaN.
    W : ndarray (runs, k, d, d_z)
        The path of W.
    v : ndarray (runs, k, d)
        The path of the head.
    norm : ndarray (runs, k)
        The l_p norm of W.
    head_norm : ndarray (runs, k)
        The l_p norm of the head.
    log_gap : ndarray (runs, k)
        The logarithm of L - L*; in joint training, of L.
    log_gradient : ndarray (runs, k)
        The logarithm of the dual norm of the gradient in W.
    log_gradient_head : ndarray (runs, k)
        The logarithm of the dual norm of the gradient in the head.
    status : ndarray of str (runs,)
        How each run ended: "completed", "stalled" (the gradient is zero) or "diverged"
        (an entry or a step is above e^600).
    ended : ndarray of int (runs,)
        The iteration at which each run ended.
    loss_rise : ndarray of int (runs,)
        The first iteration whose loss is above the one before, -1 if there is none.

    Notes
    -----
    A rise of the loss is against paper C's Lemma 25.

    Examples
    --------
    >>> from lib import attention, mirror
    >>> data = attention.two_examples()
    >>> rule = mirror.MirrorRule(p=2.0, step_size=0.1)
    >>> history = mirror.train(data, rule, 1000, record=[0, 10, 1000])
    >>> history.norm[0].round(1)  # a normalised step has length 0.1
    array([ 0. ,  1. , 99.8])
    >>> str(history.status[0]), int(history.ended[0]), int(history.loss_rise[0])
    ('completed', 1000, -1)
    """

    rule: MirrorRule
    iterations: np.ndarray
    W: np.ndarray
    v: np.ndarray
    norm: np.ndarray
    head_norm: np.ndarray
    log_gap: np.ndarray
    log_gradient: np.ndarray
    log_gradient_head: np.ndarray
    status: np.ndarray
    ended: np.ndarray
    loss_rise: np.ndarray

    def divergence(self, target: np.ndarray, p: float | None = None) -> np.ndarray:
        """Compute the Bregman divergence of every W's direction from a target's.

        It is D_psi(V/||V||, W/||W||) with W the iterate.

        Parameters
        ----------
        target : ndarray (runs, d, d_z)
            The target V, for example the solution of a token SVM.
        p : float, optional
            Exponent of psi and of the norms. Default: the rule's.

        Returns
        -------
        ndarray (runs, k)
            The divergence at the recorded iterations, NaN where W = 0.

        Raises
        ------
        ValueError
            If `target` is zero or not finite.

        Notes
        -----
        The authors' code of paper C.
        """
        flat = self.W.reshape(*self.W.shape[:2], -1)
        V = target.reshape(len(flat), 1, -1)
        return geometry.directional_bregman(flat, V, p or self.rule.p)

    def head_divergence(self, target: np.ndarray) -> np.ndarray:
        """Compute the same divergence for the head v, with the rule's p.

        Parameters
        ----------
        target : ndarray (runs, d)
            The target direction of the head.

        Returns
        -------
        ndarray (runs, k)
            The divergence at the recorded iterations, NaN where v = 0.

        Raises
        ------
        ValueError
            If `target` is zero or not finite.
        """
        return geometry.directional_bregman(self.v, target[:, None], self.rule.p)


def gaussian_start(
    tokens: TokenSet, seeds: Sequence[int], std: float = 1.0
) -> np.ndarray:
    """Draw W_0 with independent N(0, std^2) entries, one seed per run.

    Parameters
    ----------
    tokens : TokenSet
        The data sets, whose sizes give d and d_z.
    seeds : sequence of int
        One seed per run.
    std : float, default 1.0
        Standard deviation of every entry.

    Returns
    -------
    ndarray (runs, d, d_z)
        The start W_0.

    Examples
    --------
    >>> from lib import attention, mirror
    >>> data = attention.two_examples()
    >>> mirror.gaussian_start(data, seeds=[0]).shape
    (1, 2, 2)
    """
    return gaussian(seeds, (tokens.shape[-1], tokens.z.shape[-1]), std)


def selected_tokens(tokens: TokenSet, W: np.ndarray) -> np.ndarray:
    """Return the token of every sample that attention at W selects.

    alpha_i = argmax_t of the softmax weights of sample i.

    Parameters
    ----------
    tokens : TokenSet
        The data sets, one per run.
    W : ndarray (runs, d, d_z)
        The attention weights.

    Returns
    -------
    ndarray of int (runs, n)
        The index alpha_i of the token with the largest weight.

    Raises
    ------
    ValueError
        If two tokens of a sample share the largest logit. The message names run and
        sample.

    Examples
    --------
    A random W selects any token, a trained W the opt tokens:

    >>> from lib import attention, mirror
    >>> data = attention.two_examples()
    >>> data.opt
    array([[2, 2]])
    >>> start = mirror.gaussian_start(data, seeds=[0])
    >>> mirror.selected_tokens(data, start)
    array([[1, 0]])
    >>> history = mirror.train(data, mirror.MirrorRule(p=2.0), 100, start=start)
    >>> mirror.selected_tokens(data, history.W[:, -1])
    array([[2, 2]])
    """
    logits = attention.logits(tokens, W)
    tied = (logits == logits.max(-1, keepdims=True)).sum(-1) != 1
    if tied.any():
        run, sample = np.argwhere(tied)[0]
        where = f"sample {sample} of run {run}"
        row = logits[run, sample]
        raise ValueError(f"{where} has two equal softmax maxima or none: logits {row}")
    return logits.argmax(-1)


def train(
    tokens: TokenSet,
    rules: MirrorRule | Mapping[str, MirrorRule],
    steps: int | Mapping[str, int],
    start: np.ndarray | None = None,
    head: str = "fixed",
    record: Sequence[int] | None = None,
    loss: str = "logistic",
) -> MirrorHistory | dict[str, MirrorHistory]:
    """Train attention by l_p mirror descent and record the path.

    Minimises (1/n) sum_i l(y_i v^T X_i^T softmax(X_i W z_i)) over W, or over W and v.

    Parameters
    ----------
    tokens : TokenSet
        The data sets, one per run. Their head u is v, or where joint training starts.
    rules : MirrorRule or mapping of str to MirrorRule
        One rule, or named ones.
    steps : int or mapping of str to int
        Number of iterations, for all rules or by name.
    start : ndarray (runs, d, d_z), optional
        Initial weights W_0. Default: zero.
    head : {"fixed", "joint"}
        "fixed" keeps v = u (lp-AttGD). "joint" trains v from u on (lp-JointGD); each
        gradient is normalised by itself.
    record : sequence of int, optional
        Iterations to record, ascending, cut at each rule's steps. Default: about 100,
        evenly spaced in log t.
    loss : str
        The loss l, one of ``attention.LOSSES``.

    Returns
    -------
    MirrorHistory or dict of str to MirrorHistory
        The history of every rule: a dict if `rules` is a mapping.

    Raises
    ------
    ValueError
        If `start` has the wrong shape, `loss` or `head` is unknown, or `steps` or
        `record` is out of order.

    Notes
    -----
    lp-AttGD and lp-JointGD of paper C. A run needs memory for 2 n (T - 1) d d_z
    numbers.

    Examples
    --------
    In these data the token SVMs of p = 1.5, 2 and 3 have one and the same solution. The
    direction of W turns towards it, with a larger p more slowly:

    >>> from lib import attention, mirror
    >>> data = attention.two_examples()
    >>> W_mm = np.array([[[-0.5, 0.0], [0.5, -0.5]]])
    >>> rules = {f"p = {p}": mirror.MirrorRule(p=p) for p in (1.5, 2.0, 3.0)}
    >>> histories = mirror.train(data, rules, 1000, record=[10, 100, 1000])
    >>> for name, history in histories.items():
    ...     print(name, history.divergence(W_mm)[0].round(3))
    p = 1.5 [0.289 0.001 0.   ]
    p = 2.0 [0.171 0.004 0.   ]
    p = 3.0 [0.092 0.027 0.004]
    """
    recording.check_head(head)
    if isinstance(rules, Mapping):
        named = rules
    else:
        named = {"": rules}
    times = [
        _times(steps[name] if isinstance(steps, Mapping) else steps, record)
        for name in named
    ]
    problem = _rows(tokens, loss, head == "joint")
    whole = len(tokens.y), tokens.shape[-1], tokens.z.shape[-1]
    if start is None:
        W_0 = np.zeros(whole)
    else:
        W_0 = recording.checked_start(start, whole)
    histories = _run(problem, list(named.values()), times, W_0, tokens.u)
    if isinstance(rules, Mapping):
        return dict(zip(named, histories))
    return histories[0]


def _times(steps: int, record: Sequence[int] | np.ndarray | None) -> np.ndarray:
    """Return the iterations to record under one rule, cut at its steps."""
    if record is not None and (kept := np.asarray(record)).size:
        whole = recording.record_times(record, max(0, int(kept.max())))
        record = whole[whole <= steps]
    return recording.record_times(record, steps)


def _rows(tokens: TokenSet, loss: str, joint: bool) -> kernel.Rows:
    """Build the Rows of a token set.

    ValueError for an unknown loss, sizes not in `SIZES`.
    """
    check_sizes(tokens)
    runs, n, T, d = tokens.shape
    delta = coordinates.differences(tokens, tokens.opt, masked_as_zero=True)
    A = coordinates.constraint_rows(delta, tokens.z)
    signed = coordinates.signed_opt_first(tokens).reshape(runs, n * T, d)
    hidden = coordinates.hidden_pairs(tokens, tokens.opt)
    if hidden is None:
        hidden = np.zeros((runs, 0), bool)
    return kernel.Rows(
        A=A,
        signed=signed,
        n=n,
        logistic=attention.is_logistic(loss),
        joint=joint,
        hidden=hidden.reshape(runs, -1),
    )


def _run(
    problem: kernel.Rows,
    rules: Sequence[MirrorRule],
    times: Sequence[np.ndarray],
    W_0: np.ndarray,
    v: np.ndarray,
) -> list[MirrorHistory]:
    """Return the history of every rule, from W_0 (runs, d, d_z) and v (runs, d).

    `times` has one array a rule. Of the jobs a run's rules stand together, so that each
    core gets long ones.
    """
    W = W_0.reshape(len(W_0), -1)
    kinds = len(rules)
    runs = len(W)
    k = max(map(len, times))
    padded = np.stack(
        [np.pad(at, (0, k - len(at)), constant_values=-1) for at in times]
    )
    # Copies, to be moved in place
    start, head = (np.repeat(array, kinds, 0) for array in (W, v))
    exponents = np.tile([float(rule.p) for rule in rules], runs)
    images = (
        np.stack([geometry.to_mirror(row, p) for row, p in zip(array, exponents)])
        for array in (start, head)
    )

    # The rows (runs, n T, D) keep a sample's tokens together, the loop a token's
    # samples.
    def split(rows: np.ndarray) -> np.ndarray:
        return rows.reshape(runs, problem.n, -1, rows.shape[-1])

    A, signed = (split(part).swapaxes(1, 2).reshape(part.shape) for part in problem[:2])
    hidden = problem.hidden
    if hidden.size:
        hidden = split(hidden[..., None]).swapaxes(1, 2).reshape(hidden.shape)
    sizes = dict(path=(k, W.shape[1]), head=(k, v.shape[1]), logs=(k, 3))
    raw = recording.unwritten(status.COMPLETED, runs * kinds, **sizes)
    raw["status"], raw["ended"], raw["rise"] = kernel.run_jobs(
        problem._replace(A=A, signed=signed, hidden=hidden),
        np.array([[rule.p, rule.step_size, rule.normalised] for rule in rules], float),
        padded,
        (start, head, *images),
        tuple(raw[name] for name in sizes),
    )
    histories = []
    for kind, (rule, at) in enumerate(zip(rules, times, strict=True)):
        part = {name: values[kind::kinds] for name, values in raw.items()}
        path, heads, logs = (part[name][:, : len(at)] for name in sizes)
        recording.end_where_not_finite(
            part["status"], part["ended"], at, [path, heads], [logs]
        )
        W = path.reshape(runs, len(at), *W_0.shape[1:])
        norms = geometry.norm(path, rule.p), geometry.norm(heads, rule.p)
        names = np.array(status.NAMES)[part["status"]]
        about = *norms, *np.moveaxis(logs, -1, 0), names, part["ended"], part["rise"]
        histories.append(MirrorHistory(rule, at, W, heads, *about))
    return histories
