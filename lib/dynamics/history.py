"""What training records: a `History`, which consists of arrays only."""

import io
from dataclasses import dataclass, fields
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lib import files
from lib.attention import coordinates, model
from lib.attention.coordinates import Minimal
from lib.attention.token_sets import TokenSet, as_array
from lib.mirror import geometry
from lib.representation import Shapes
from lib.svm import Blocks, MaxMargin, norm_of, token_svm
from lib.svm.max_margin import checked_selection

if TYPE_CHECKING:
    import pandas as pd

LOGS = ("log_gap", "log_gradient", "log_gradient_head", "log_step", "log_step_head")
MEASURED = (  # fields with one number per run and iteration
    *LOGS,
    "norm",
    "head_norm",
    "own_norm",
    "own_head_norm",
    "log_own_gradient",
    "log_own_gradient_head",
)
MEASURED_OF_TARGETS = (  # fields that map each target's name to such an array
    "direction_error",
    "alignment",
    "descent",
    "head_direction_error",
    "head_alignment",
)


# The largest absolute and relative difference between the margins that a run recorded
# and the margins that its W gives on the same tokens. Over a million steps, the two
# drift apart by less than 1e-9.
SAME_RUN = 1e-6
# The part of W_0 outside minimal coordinates counts as zero if ||W|| exceeds the norm
# of the part inside by at most this share of ||W||. The norm of the part outside is
# then below 1.5e-6 ||W||.
ROUNDING = 1e-12


@dataclass(frozen=True, repr=False, eq=False)
class Coefficients(Shapes):
    """W_t and u_t of every run, stored as coefficients of the run's tokens.

    Parameters
    ----------
    W_0 : ndarray (runs, r, q)
        The start of W in minimal coordinates.
    delta : ndarray (runs, n, T-1, r)
        The opt token of each sample minus each of its other tokens.
    z : ndarray (runs, n, q)
        The queries.
    alpha : ndarray (runs, k, n, T-1)
        The coefficients in W_t = W_0 + sum_{i,t} alpha_{it} delta_{it} z_i^T, at each
        of the k records.
    u_0 : ndarray (runs, r)
        The start of the head.
    signed : ndarray (runs, n, T, r)
        The tokens times the label of their sample, with the opt token first. If the
        head is fixed, the array is empty: it has no runs.
    b : ndarray (runs, k, n, T)
        The coefficients in u_t = u_0 + sum_{i,t} b_{it} signed_{it}, at each of the k
        records. If the head is fixed, they are zero.
    """

    W_0: np.ndarray
    delta: np.ndarray
    z: np.ndarray
    alpha: np.ndarray
    u_0: np.ndarray
    signed: np.ndarray
    b: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (r, q) of W."""
        return self.W_0.shape[1:]

    def transposed_weights(self, records: slice) -> np.ndarray:
        """Return W^T at the records of a slice, (runs, k, q, r)."""
        pulled = np.swapaxes(self.alpha[:, records], 1, 2) @ self.delta
        runs, n, k, r = pulled.shape
        moved = np.swapaxes(self.z, 1, 2) @ pulled.reshape(runs, n, k * r)
        moved = np.swapaxes(moved.reshape(runs, -1, k, r), 1, 2)
        return np.add(np.swapaxes(self.W_0, 1, 2)[:, None], moved, order="C")

    def weights(self, records: slice) -> np.ndarray:
        """Return W at the records of a slice, (runs, k, r, q)."""
        return np.swapaxes(self.transposed_weights(records), -1, -2)

    def head(self, records: slice) -> np.ndarray:
        """Return the head u at the records of a slice, (runs, k, r)."""
        runs, k, n, T = self.b[:, records].shape
        if not len(self.signed):  # the head is fixed
            return np.repeat(self.u_0[:, None], k, 1)
        coefficients = self.b[:, records].reshape(runs, k, n * T)
        return self.u_0[:, None] + coefficients @ self.signed.reshape(runs, n * T, -1)


@dataclass(frozen=True, repr=False, eq=False)
class Weights(Shapes):
    """W_t and u_t of every run, in the coordinates of the tokens.

    Parameters
    ----------
    W : ndarray (runs, k, d, d_z)
        W at each of the k records.
    u : ndarray (runs, k, d)
        The head at each of the k records.
    """

    W: np.ndarray
    u: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (d, d_z) of W."""
        return self.W.shape[2:]

    def weights(self, records: slice) -> np.ndarray:
        """Return W at the records of a slice, (runs, k, d, d_z)."""
        return self.W[:, records]

    def head(self, records: slice) -> np.ndarray:
        """Return the head u at the records of a slice, (runs, k, d)."""
        return self.u[:, records]


@dataclass(frozen=True, repr=False, eq=False)
class Factors(Shapes):
    """The factors of W_t = K_t Q_t^T of every run, in the coordinates of the tokens.

    Parameters
    ----------
    K : ndarray (runs, k, d, m)
        The keys at each of the k records.
    Q : ndarray (runs, k, d_z, m)
        The queries at each of the k records.
    u : ndarray (runs, k, d)
        The head at each of the k records.
    """

    K: np.ndarray
    Q: np.ndarray
    u: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (d, d_z) of W."""
        return self.K.shape[2], self.Q.shape[2]

    def weights(self, records: slice) -> np.ndarray:
        """Return W at the records of a slice, (runs, k, d, d_z)."""
        return self.K[:, records] @ np.swapaxes(self.Q[:, records], -1, -2)

    def head(self, records: slice) -> np.ndarray:
        """Return the head u at the records of a slice, (runs, k, d)."""
        return self.u[:, records]


PATHS = (Coefficients, Weights, Factors)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Comparison(Shapes):
    """A run measured against the SVM of chosen tokens, from `History.against`.

    Parameters
    ----------
    selected : ndarray of int (runs, n)
        The tokens.
    solution : MaxMargin
        The token SVM of these tokens, with its W_mm.
    margins : ndarray (runs, k, n, T-1)
        The logit of the selected token minus the logit of each other token. The other
        tokens are in ascending order of their index. The margin of a masked token is
        NaN.
    direction_error : ndarray (runs, k)
        || W_t/||W_t|| - W_mm/||W_mm|| ||; NaN for W_t = 0.
    alignment : ndarray (runs, k)
        <W_t, W_mm>/(||W_t|| ||W_mm||); NaN for W_t = 0.
    """

    selected: np.ndarray
    solution: MaxMargin
    margins: np.ndarray
    direction_error: np.ndarray
    alignment: np.ndarray


@dataclass(frozen=True, repr=False, eq=False)
class History(Shapes):
    r"""The records of every run at the recorded iterations.

    All fields are arrays, or dicts of arrays keyed by the name of a target V. If a run
    ends early, its later entries are NaN, except that a fixed head and its score gaps
    keep their values. The margins and score gaps of masked tokens are NaN. Some fields
    are measured only for some rules, and are NaN for all others:

    ==============================  ===========================================
    measured for                    fields
    ==============================  ===========================================
    rules along the gradient        `log_step`, `log_step_head`,
                                    `log_gradient_head`, `momentum`
    `MirrorDescent` on all samples  `own_norm`, `own_head_norm`, `loss_rise`,
                                    `log_own_gradient`, `log_own_gradient_head`
    all rules                       all other fields
    ==============================  ===========================================

    A history can be pickled and deep-copied; `save` writes it as one npz file, and
    `to_dataframe` returns it as a table.

    Margins, `log_miss` and score gaps refer to the opt tokens of the token set that was
    trained on. `against` measures the same run with respect to other tokens, such as
    the tokens that the run selects.

    Rules that step along the gradient train in minimal coordinates, that is, in the
    span of the tokens. All other rules train in the coordinates of the tokens.
    `coordinates` says which of the two `W`, `u`, `weights` and `head` are in. If W is
    in minimal coordinates, ``attention.minimal(tokens).expand(W)`` converts it to the
    coordinates of the tokens.

    Parameters
    ----------
    iterations : ndarray of int (k,)
        The recorded iterations, ascending.
    status : ndarray of str (runs,)
        How each run ended. A "completed" run took all its steps. A "stalled" run
        reached a gradient of zero. A "diverged" run left the range of float64. If the
        head gives scores of many hundreds, a run diverges at iteration 0; then divide
        the head by 100. Even in a completed run, an opt token may not have the largest
        logit of its sample. `repr` names up to three runs for which this is so at the
        last record, and `margins` says how far these opt tokens are behind.
    ended : ndarray of int (runs,)
        The iteration at which each run ended. A completed run ends at the last recorded
        iteration.
    log_gap : ndarray (runs, k)
        log(L - L*), where L* is the loss if every sample attains its largest score. In
        joint training it is log L.
    log_gradient : ndarray (runs, k)
        log ||grad_W L||.
    log_step : ndarray (runs, k)
        The logarithm of the size of the step that follows the record. The last record
        has one, too, although no step is taken from there.
    norm : ndarray (runs, k)
        ||W_t||, in the Frobenius norm.
    margins : ndarray (runs, k, n, T-1)
        The logit of the opt token minus the logit of each other token.
    log_miss : ndarray (runs, k, n)
        log(1 - p), where p is the softmax weight of the opt token.
    score_gaps : ndarray (runs, k, n, T-1)
        The score of the opt token minus the score of each other token. With a fixed
        head, the entries are the same at all records, and all records share one piece
        of memory.
    direction_error : dict of ndarray (runs, k)
        The distance between the directions of W_t and V, || W_t/||W_t|| - V/||V|| ||.
    alignment : dict of ndarray (runs, k)
        The cosine of the angle between W_t and V, <W_t, V>/(||W_t|| ||V||).
    descent : dict of ndarray (runs, k)
        The cosine of the angle between -grad_W L and V, <-grad_W L/||grad_W L||,
        V>/||V||.
    log_gradient_head : ndarray (runs, k)
        log ||grad_u L||, in joint training by a rule along the gradient. With a fixed
        head, such a rule gives -inf here. All other rules give NaN.
    log_step_head : ndarray (runs, k)
        The logarithm of the head's step size, in joint training by a rule along the
        gradient. With a fixed head, it repeats `log_step`. All other rules give NaN.
    head_norm : ndarray (runs, k)
        ||u_t||, in joint training; NaN if the head is fixed.
    head_direction_error : dict of ndarray (runs, k)
        The `direction_error` of the head, || u_t/||u_t|| - v/||v|| ||, by the name of
        the head target v. The dict is empty if the head is fixed.
    head_alignment : dict of ndarray (runs, k)
        The `alignment` of the head, <u_t, v>/(||u_t|| ||v||), by the name of the head
        target v. The dict is empty if the head is fixed.
    path : Coefficients, Weights or Factors
        W_t and u_t in the form in which the engine stores them. To read them, use
        `weights` and `head`, or `W` and `u`.
    own_norm, own_head_norm : ndarray (runs, k)
        The norms of W_t and u_t in the rule's own geometry: the l_p norms under
        ``MirrorDescent(p)``.
    log_own_gradient, log_own_gradient_head : ndarray (runs, k)
        The logarithms of the norms of grad_W L and grad_u L, in the dual of the rule's
        own norm. The second array is -inf if the head is fixed.
    loss_rise : ndarray (runs,)
        Under `MirrorDescent`, the first iteration whose loss exceeds the loss of the
        iteration before it by more than rounding; -1 if the loss never rises. A rise
        contradicts paper C's Lemma 25.
    momentum : ndarray (runs,)
        The momentum beta of a rule that steps along the gradient. All runs have the
        same one.
    moments : dict of ndarray
        The state of a compiled rule that sees coordinates, after its last step.
        "second" (runs, d, d_z) are the moments of G^2 or, under SOAP, the moments of
        the squares of Q_L^T G Q_R. "left" (runs, d, d) and "right" (runs, d_z, d_z) are
        Shampoo's L and R, or the bases of SOAP. In each run, each moment and each of L
        and R is known only up to a positive factor. Arrays that the rule does not use
        are zero. For all other rules, including `MirrorDescent` on all samples, the
        dict is empty.

    Examples
    --------
    >>> from lib import attention, dynamics, svm
    >>> data = attention.two_examples()
    >>> targets = {"W_mm": svm.token_svm(data)}
    >>> run = dynamics.train(data, dynamics.NGD(0.1), 1000, targets=targets)
    >>> round(float(run.direction_error["W_mm"][0, -1]), 4)
    0.0094
    >>> table = run.to_dataframe()
    >>> table[table.quantity == "norm"].tail(1)[["iteration", "value"]].round(1)
         iteration  value
    455       1000   99.8
    """

    iterations: np.ndarray
    status: np.ndarray
    ended: np.ndarray
    log_gap: np.ndarray
    log_gradient: np.ndarray
    log_step: np.ndarray
    norm: np.ndarray
    margins: np.ndarray
    log_miss: np.ndarray
    score_gaps: np.ndarray
    direction_error: dict[str, np.ndarray]
    alignment: dict[str, np.ndarray]
    descent: dict[str, np.ndarray]
    log_gradient_head: np.ndarray
    log_step_head: np.ndarray
    head_norm: np.ndarray
    head_direction_error: dict[str, np.ndarray]
    head_alignment: dict[str, np.ndarray]
    path: Coefficients | Weights | Factors
    own_norm: np.ndarray
    own_head_norm: np.ndarray
    log_own_gradient: np.ndarray
    log_own_gradient_head: np.ndarray
    loss_rise: np.ndarray
    momentum: np.ndarray
    moments: dict[str, np.ndarray]

    def __repr__(self) -> str:
        words = super().__repr__()
        behind = np.flatnonzero(
            (self.status == "completed")
            & (np.nan_to_num(self.margins[:, -1], nan=1.0) <= 0).any((1, 2))
        )
        if not behind.size:
            return words
        some = ", ".join(map(str, behind[:3])) + (", ..." if behind.size > 3 else "")
        runs = f"run {some}" if behind.size == 1 else f"{behind.size} runs ({some})"
        return f"{words[:-1]}, opt tokens do not lead in {runs})"

    @property
    def coordinates(self) -> str:
        """The coordinates of W and u: "minimal" or "tokens"."""
        if isinstance(self.path, Coefficients):
            return "minimal"
        return "tokens"

    @property
    def W(self) -> np.ndarray:
        """The whole path of W, (runs, k, d, d_z) or (runs, k, r, q)."""
        return self.path.weights(slice(None))

    @property
    def u(self) -> np.ndarray:
        """The whole path of the head, (runs, k, d) or (runs, k, r)."""
        return self.path.head(slice(None))

    @property
    def opt_score(self) -> np.ndarray:
        """The softmax weight of the opt token, averaged over the samples, (runs, k)."""
        return 1.0 - np.exp(self.log_miss).mean(-1)

    @property
    def norm_outside(self) -> np.ndarray:
        """The norm (runs,) of the part of W_0 outside minimal coordinates.

        No step changes this part. Its norm is computed from the first record, since W
        grows and this part is a smaller share of every later W. If the norm is below
        1.5e-6 of ||W|| at the first record, the result is zero. It is also zero if the
        run was trained in the coordinates of the tokens, and NaN if the run ended
        before its first record.
        """
        if not isinstance(self.path, Coefficients):
            return np.zeros(len(self.norm))
        inside = np.linalg.norm(self.weights(0), axis=(1, 2))
        whole = self.norm[:, 0]
        difference = np.where(whole - inside > ROUNDING * whole, whole - inside, 0.0)
        return np.sqrt(difference * (whole + inside))

    def selected(self, tokens: TokenSet | Minimal, k: int = -1) -> np.ndarray:
        """Return the token that has the largest weight in each sample at one record.

        These tokens need not be the opt tokens. The direction of W turns towards the
        solution of their SVM, ``svm.token_svm(tokens, run.selected(tokens))``.
        `against` measures the distance to this direction.

        Parameters
        ----------
        tokens : TokenSet or Minimal
            The tokens that were trained on.
        k : int, optional
            The place of the record in `iterations`. Default: the last record.

        Returns
        -------
        ndarray of int (runs, n)
            The index of the token in each sample. If several tokens share the largest
            weight, it is one of them.

        Raises
        ------
        ValueError
            If a run had ended before this record; if the history was trained on tokens
            of another shape.
        IndexError
            If there is no such record.
        TypeError
            If `tokens` is neither a TokenSet nor a Minimal.

        Examples
        --------
        >>> from lib import attention, dynamics
        >>> tokens = attention.two_examples()
        >>> run = dynamics.train(tokens, dynamics.NGD(0.1), 100)
        >>> run.selected(tokens), tokens.opt
        (array([[2, 2]]), array([[2, 2]]))
        """
        tokens = self._of_this_shape(tokens)
        k = self._only(k).start
        ended = np.isnan(self.norm[:, k])
        if ended.any():
            r = int(np.argmax(ended))
            raise ValueError(
                f"k = {k}: run {r} had ended by then, {self.status[r]} at iteration "
                f"{self.ended[r]}; it has only the first "
                f"{(~np.isnan(self.norm[r])).sum()} records"
            )
        margins = self.margins[:, k]  # (runs, n, T-1), NaN for masked tokens
        margins = np.where(np.isnan(margins), np.inf, margins)
        others = coordinates.others(tokens.opt, tokens.shape[2])
        least = margins.argmin(-1)[..., None]
        best_other = np.take_along_axis(others, least, -1)[..., 0]
        behind = np.take_along_axis(margins, least, -1)[..., 0] < 0
        return np.where(behind, best_other, tokens.opt)

    def against(
        self,
        tokens: TokenSet | Minimal,
        selected: np.ndarray | None = None,
        norm: str | float | Blocks = "frobenius",
    ) -> Comparison:
        r"""Compare the run with the SVM of chosen tokens, without training again.

        It returns the margins of these tokens at every record, and the direction error
        with respect to W_mm, the solution of the SVM of these tokens.

        Parameters
        ----------
        tokens : TokenSet or Minimal
            The tokens that were trained on.
        selected : ndarray of int (runs, n), optional
            In each sample, the token whose margins are measured. Default: the tokens
            that the run selects at its last record, ``run.selected(tokens)``.
        norm : {"frobenius", "nuclear", "spectral"}, float or Blocks
            The norm that W_mm minimises, as in `lib.token_svm`.

        Returns
        -------
        Comparison
            A record with the ``margins`` (runs, k, n, T-1), the ``direction_error`` and
            the ``alignment`` (runs, k), the tokens ``selected`` (runs, n), and the
            ``solution`` of the SVM, which contains W_mm and its certificate.

        Raises
        ------
        ValueError
            If the run was trained on other tokens; if `selected` is not given and a run
            has ended early; if W_0 and W_mm both have a part outside the span of tokens
            and queries, because the angle between these two parts is not known; if
            `lib.token_svm` does not accept `selected` or `norm`.
        Infeasible
            If no W selects these tokens. The other errors of `lib.token_svm` are
            possible, too.

        Examples
        --------
        In these data, one sample selects a token that is not its opt token. At the last
        record, the direction of W is far from the SVM solution for the opt tokens, and
        close to the SVM solution for the selected tokens.

        >>> import lib
        >>> tokens = lib.unit_tokens(0, n=6, T=8, d=10)
        >>> targets = {"W_mm": lib.token_svm(tokens)}
        >>> run = lib.train(tokens, lib.NGD(0.5), 20_000, targets=targets)
        >>> found = run.against(tokens)
        >>> int((found.selected != tokens.opt).sum())
        1
        >>> print(run.direction_error["W_mm"][:, -1].round(3))
        [0.958]
        >>> print(found.direction_error[:, -1].round(3))
        [0.001]
        >>> bool((run.margins[:, -1] > 0).all()), bool((found.margins[:, -1] > 0).all())
        (False, True)
        """
        # Imported here, because `measures` makes histories.
        from lib.dynamics.measures import Target, directions, in_span

        data, _ = self._weights_on(tokens, -1)
        if selected is None:
            selected = self.selected(data)
        selected = checked_selection(data, selected)
        solution = token_svm(tokens, selected, norm)
        if self.coordinates == "minimal":
            ends = {"": solution.value}
            target = in_span(ends, tokens, coordinates.minimal(tokens))[""]
        else:
            target = Target(solution.value, np.zeros(len(self.norm)))
        outside = self.norm_outside
        if (outside * target.outside > 0).any():
            raise ValueError(
                "W_0 and W_mm both leave the span of tokens and queries, where only "
                "norms are kept; their angle is not known there"
            )
        _, error, alignment = directions(
            self.path.weights, len(self.iterations), outside, {"": target}
        )
        return Comparison(
            selected=selected,
            solution=solution,
            margins=_margins_of(self.margins, data.opt, selected),
            direction_error=error[""],
            alignment=alignment[""],
        )

    def margin_ratio(
        self,
        tokens: TokenSet | Minimal,
        norm: str | float | Blocks = "frobenius",
        k: int = -1,
    ) -> np.ndarray:
        r"""Compute the margin of W_t as a share of the largest margin in a norm.

        r(W) = (min_{i,t} g_{i,t} / ||W||) ||W_mm||, where g_{i,t} is the logit of the
        token that sample i selects minus the logit of token t. W_mm solves the SVM of
        the selected tokens in this norm, so 1/||W_mm|| is the largest margin of any W
        with norm 1. If an optimiser maximises the margin in a norm, r tends to 1 for
        this norm.

        Parameters
        ----------
        tokens : TokenSet or Minimal
            The tokens that were trained on.
        norm : {"frobenius", "nuclear", "spectral"}, float or Blocks
            The norm, as in `lib.token_svm`. A number p stands for the entrywise l_p
            norm, and numpy.inf for the largest absolute entry.
        k : int, optional
            The place of the record in `iterations`. Default: the last record.

        Returns
        -------
        ndarray (runs,)
            The ratio, which lies between 0 and 1 up to the accuracy of the SVM; NaN for
            W_t = 0.

        Raises
        ------
        ValueError
            If a run had ended before this record, if it was trained on other tokens, or
            if the norm is unknown.
        IndexError
            If there is no such record.
        Infeasible
            If no W selects these tokens. The other errors of `lib.token_svm` are
            possible, too.

        Notes
        -----
        Page 44 measures this ratio in seven norms for 28 optimisers. For a run in
        minimal coordinates, ||W|| does not include the part of W_0 outside the span of
        tokens and queries.

        Examples
        --------
        >>> import lib
        >>> tokens = lib.unit_tokens(1, n=6, T=4, d=5)
        >>> run = lib.train(tokens, lib.SignDescent(0.01), 5000)
        >>> for norm in ("frobenius", "spectral", float("inf")):
        ...     print(norm, run.margin_ratio(tokens, norm).round(3))
        frobenius [0.805]
        spectral [0.59]
        inf [0.986]
        """
        selected = self.selected(tokens, k)  # (runs, n)
        data, W = self._weights_on(tokens, k)
        margins = _margins_of(self.margins[:, self._only(k)], data.opt, selected)
        least = np.nanmin(margins, (1, 2, 3))  # the margin of a masked token is NaN
        largest = 1.0 / token_svm(tokens, selected, norm).norm
        size = norm_of(W, norm)
        with np.errstate(divide="ignore", invalid="ignore"):
            return least / size / largest

    def _of_this_shape(self, tokens: TokenSet | Minimal) -> TokenSet:
        """Return the token set; raise ValueError if the run's tokens had other shapes.

        Raises TypeError if `tokens` is neither a TokenSet nor a Minimal.
        """
        data = coordinates.token_set_of(tokens)
        runs, n, T, _ = data.shape
        of_run = len(self.norm), *self.margins.shape[2:]
        if (runs, n, T - 1) != of_run:
            trained = (*of_run[:2], of_run[2] + 1)
            raise ValueError(
                f"tokens has (runs, n, T) = {(runs, n, T)}, and the run was trained on "
                f"{trained}: give the tokens that it was trained on"
            )
        return data

    def _weights_on(
        self, tokens: TokenSet | Minimal, k: int
    ) -> tuple[TokenSet, np.ndarray]:
        """Return the token set, and W at record k in the coordinates of this token set.

        Raises ValueError if the margins of W on these tokens are not the recorded ones.
        """
        data = self._of_this_shape(tokens)
        W = self.weights(k)
        shape = len(data.X), data.X.shape[-1], data.z.shape[-1]
        if self.coordinates == "minimal" and isinstance(tokens, TokenSet):
            problem = coordinates.minimal(tokens)
            inside = problem.token_basis.shape[2], problem.query_basis.shape[2]
            if W.shape[1:] == inside:
                W = problem.expand(W)
        same = W.shape == shape
        if same:
            recorded = self.margins[:, k]
            logits = model.logits(data, W)[:, None]
            of_opt = np.take_along_axis(logits, data.opt[:, None, :, None], -1)
            others = coordinates.others(data.opt, data.shape[2])[:, None]
            found = (of_opt - np.take_along_axis(logits, others, -1))[:, 0]
            close = np.isclose(found, recorded, rtol=SAME_RUN, atol=SAME_RUN)
            # The margins of masked tokens, and of a run that has ended, are NaN.
            same = bool((close | np.isnan(recorded)).all())
        if not same:
            raise ValueError(
                "the run was trained on other tokens, or with other opt tokens, since "
                "its W has other margins on these: give the tokens that it was trained "
                "on"
            )
        return data, W

    def weights(self, k: int) -> np.ndarray:
        """Return W at one record, in the coordinates of training.

        Parameters
        ----------
        k : int
            The place of the record in `iterations`. A negative k counts from the end.

        Returns
        -------
        ndarray (runs, d, d_z) or (runs, r, q)
            W, or NaN for a run that had ended before this record. In minimal
            coordinates, W lacks the part of W_0 outside the span of tokens and queries.

        Raises
        ------
        IndexError
            If there is no such record.
        """
        return self.path.weights(self._only(k))[:, 0]

    def head(self, k: int) -> np.ndarray:
        """Return u at one record, in the coordinates of training.

        Parameters
        ----------
        k : int
            The place of the record in `iterations`. A negative k counts from the end.

        Returns
        -------
        ndarray (runs, d) or (runs, r)
            The head u. In minimal coordinates, it lacks the part of u_0 outside the
            span of the tokens.

        Raises
        ------
        IndexError
            If there is no such record.
        """
        return self.path.head(self._only(k))[:, 0]

    def divergence(self, target: np.ndarray | MaxMargin, p: float) -> np.ndarray:
        """Compute the Bregman divergence between the directions of each W and a target.

        The divergence is D_psi(V/||V||, W/||W||), where W is the iterate, V is the
        target, and psi = ||.||_p^p / p. All norms are l_p norms of the entries.

        Parameters
        ----------
        target : MaxMargin or ndarray (runs, d, d_z)
            The target V, for example ``svm.token_svm(tokens)``, in the coordinates of
            the tokens.
        p : float
            The exponent of psi and of the norms, 1 < p < inf.

        Returns
        -------
        ndarray (runs, k)
            The divergence at the recorded iterations. It is NaN if W = 0, and after the
            end of a run.

        Raises
        ------
        ValueError
            If the target is not finite, has the wrong shape, or is zero in some run; if
            p is out of range; or if W is in minimal coordinates, in which the l_p norms
            are different.

        Notes
        -----
        The formula comes from the code by the authors of paper C.
        """
        return self._divergence(self.W, target, p)

    def head_divergence(self, target: np.ndarray | MaxMargin, p: float) -> np.ndarray:
        """Compute `divergence` for the head u instead of W.

        Parameters
        ----------
        target : MaxMargin or ndarray (runs, d)
            The target direction of the head, for example ``svm.head_svm(tokens)``.
        p : float
            The exponent of psi and of the norms, 1 < p < inf.

        Returns
        -------
        ndarray (runs, k)
            The divergence at the recorded iterations. It is NaN if u = 0.

        Raises
        ------
        ValueError
            In the cases that `divergence` lists.
        """
        return self._divergence(self.u, target, p)

    def _divergence(
        self, path: np.ndarray, target: np.ndarray | MaxMargin, p: float
    ) -> np.ndarray:
        """Compute `divergence` for a path (runs, k, ...) and a target (runs, ...)."""
        if isinstance(target, MaxMargin):
            target = target.value
        V = as_array("target", target)
        if self.coordinates != "tokens":
            raise ValueError(
                "the history is in minimal coordinates, in which l_p norms differ: "
                "train with MirrorDescent, or expand W by attention.minimal(tokens)"
            )
        runs, k, *shape = path.shape
        if V.shape != (runs, *shape):
            raise ValueError(f"target has shape {V.shape}; it needs {(runs, *shape)}")
        return geometry.directional_bregman(
            path.reshape(runs, k, -1), V.reshape(runs, 1, -1), p
        )

    def _only(self, k: int) -> slice:
        """Return the slice of record k alone; a negative k counts from the end.

        Raises IndexError if there is no such record, and TypeError if k is not an
        integer.
        """
        if not isinstance(k, Integral):
            raise TypeError(f"k = {k!r}; it must be the place of a record, an integer")
        count = len(self.iterations)
        if not -count <= k < count:
            raise IndexError(
                f"record k = {k} is not there: k is a place in run.iterations, from "
                f"{-count} to {count - 1}"
            )
        return slice(k % count, k % count + 1)

    def to_dataframe(self) -> "pd.DataFrame":
        """Return the quantities with one number per run and iteration as a tidy table.

        These are `opt_score` and the fields of shape (runs, k), with or without a
        target. The table does not contain margins, `log_miss` and score gaps, which
        belong to single samples.

        Returns
        -------
        pandas.DataFrame
            A table with the columns `run`, `iteration`, `quantity`, `target` and
            `value`. A quantity that is NaN in all runs and iterations has no rows, so
            that the table is empty if all runs diverged at iteration 0. `target` is an
            empty string if the quantity has no target.
        """
        import pandas as pd  # imported here: it takes half a second

        measured = {(name, ""): getattr(self, name) for name in MEASURED}
        measured["opt_score", ""] = self.opt_score
        for name in MEASURED_OF_TARGETS:
            measured |= {(name, V): rows for V, rows in getattr(self, name).items()}
        runs, k = self.norm.shape
        tables = [
            pd.DataFrame(
                {
                    "run": np.repeat(np.arange(runs), k),
                    "iteration": np.tile(self.iterations, runs),
                    "quantity": name,
                    "target": target,
                    "value": values.ravel(),
                }
            )
            for (name, target), values in measured.items()
            if not np.isnan(values).all()
        ]
        if not tables:
            return pd.DataFrame(
                columns=["run", "iteration", "quantity", "target", "value"]
            )
        return pd.concat(tables, ignore_index=True)

    def save(self, path: str | Path) -> None:
        """Write the history as one npz file, completely or not at all.

        Parameters
        ----------
        path : str or Path
            The file, which `History.load` reads. If the name does not end with ".npz",
            this suffix is added. Missing folders are created.

        Raises
        ------
        OSError
            If the file cannot be written. A file that was there before keeps its
            content.
        ValueError
            If the names of two targets are the same text, such as 1 and "1".
        """
        content = io.BytesIO()
        np.savez_compressed(content, **_flat(self))  # ty: ignore[invalid-argument-type]  # every value is an array
        files.write(_npz(path), content.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> "History":
        """Read a history that `save` wrote.

        Parameters
        ----------
        path : str or Path
            The file, under the name that was passed to `save`.

        Returns
        -------
        History
            A history that equals the saved one in every entry, if all names of targets
            are strings.

        Raises
        ------
        ValueError
            If the file is damaged, or does not contain a history.
        FileNotFoundError
            If there is no such file.
        """
        path = _npz(path)
        try:
            with open(path, "rb") as file, np.load(file) as saved:
                arrays = {name: saved[name] for name in saved.files}
            # Files of earlier versions lack the momentum.
            unknown = np.full(len(arrays["status"]), np.nan)
            return cls(**_nested({"momentum": unknown} | arrays))
        except FileNotFoundError:
            raise
        except Exception as error:  # the error's type depends on the damaged byte
            raise ValueError(
                f"{path}: expected a file that History.save wrote"
            ) from error


def _npz(path: str | Path) -> Path:
    """Return the path with the suffix ".npz", which is added if it is missing."""
    path = Path(path)
    if path.name.endswith(".npz"):
        return path
    return path.with_name(path.name + ".npz")


def _margins_of(
    margins: np.ndarray, opt: np.ndarray, selected: np.ndarray
) -> np.ndarray:
    """Return the margins (runs, k, n, T-1) of the selected tokens.

    The given `margins` (runs, k, n, T-1) are those of the opt tokens `opt` (runs, n).
    NaN marks a masked token, and is kept.
    """
    T = margins.shape[-1] + 1
    # The logits minus the logit of the opt token.
    logits = np.zeros((*margins.shape[:-1], T))
    places = np.broadcast_to(coordinates.others(opt, T)[:, None], margins.shape)
    np.put_along_axis(logits, places, -margins, -1)
    of_selected = np.take_along_axis(logits, selected[:, None, :, None], -1)
    places = np.broadcast_to(coordinates.others(selected, T)[:, None], margins.shape)
    return of_selected - np.take_along_axis(logits, places, -1)


def _flat(history: History) -> dict[str, np.ndarray]:
    """Return the arrays of a history by name.

    An array in a dict or in the path gets the name "field/key". Raises ValueError if
    two keys of a dict are the same text.
    """
    arrays = {}
    for field in fields(history):
        value = getattr(history, field.name)
        if isinstance(value, PATHS):
            value = vars(value)
        if isinstance(value, dict):
            if len(set(map(str, value))) < len(value):
                raise ValueError(
                    f"{field.name} has the targets {list(value)}, and two of these "
                    "names are the same text; a file needs names that differ"
                )
            arrays |= {f"{field.name}/{key}": part for key, part in value.items()}
        else:
            arrays[field.name] = value
    return arrays


def _nested(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the fields of a history by name, from the arrays that `_flat` returned.

    Raises KeyError if the arrays of the path do not fit any class in PATHS.
    """
    given: dict[str, Any] = {name: {} for name in (*MEASURED_OF_TARGETS, "moments")}
    parts = {}
    for name, values in arrays.items():
        field, nested, key = name.partition("/")
        if not nested:
            given[field] = values
        elif field == "path":
            parts[key] = values
        else:
            given[field][key] = values
    for kind in PATHS:
        if parts.keys() == {field.name for field in fields(kind)}:
            return given | {"path": kind(**parts)}
    raise KeyError("path")
