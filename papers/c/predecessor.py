"""What paper C generalises (2308.16898): keys and queries, several tokens, the path.

Settings follow that paper's code where it is known; what is reduced or ours is said where it is
used.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from lib import svm
from lib.attention.token_sets import TokenSet
from lib.attention.tokens import unit_tokens
from lib.companion.claims import Claim, at_least, at_most
from lib.mirror.descent import MirrorRule, selected_tokens, train
from lib.mirror.geometry import directional_bregman
from lib.seeds import stream
from papers.c import key_query, multi_token, regularisation_path
from papers.c.cones import selection

RANK = 1e-6  # singular values below this share of the largest are zero
PREDECESSOR = "2308.16898"
BOUND = f"{PREDECESSOR} (our bound, a regression test)"  # set a little beyond the first run's value
SELECTED = 1e-3  # a softmax weight above it counts as selected, as in that paper's code


def alignment(W: np.ndarray, V: np.ndarray) -> np.ndarray:
    """<W, V> / (||W||_F ||V||_F) of W and V (..., d, d) over the last two axes; NaN for zero."""
    sizes = np.linalg.norm(W, axis=(-1, -2)) * np.linalg.norm(V, axis=(-1, -2))
    with np.errstate(invalid="ignore"):
        return (W * V).sum((-1, -2)) / sizes


def keys_against_weights(
    tokens: TokenSet, seeds: Sequence[int], record: Sequence[int], step_size: float
) -> dict:
    """Training (K, Q) and W: alignment with the SVMs of the tokens they select.

    {("K, Q" or "W", norm): (runs, k)}. K, Q and W start with entries uniform in +-1/sqrt(d).
    Besides "rank": (runs,) that of the nuclear-norm solution, and "share": how much of the sum of
    singular values of K Q^T its largest `rank` ones hold at the end.
    """
    d = tokens.shape[-1]
    K, Q, W_0 = np.stack([stream(seed, "start").uniform(-1, 1, (3, d, d)) for seed in seeds], 1)
    paths = {
        "K, Q": key_query.train_key_query(tokens, K / d**0.5, Q / d**0.5, step_size, record),
        "W": train(tokens, MirrorRule(2, step_size), max(record), W_0 / d**0.5, record=record).W,
    }
    found = {}
    for what, W in paths.items():
        chosen = replace(tokens, opt=selected_tokens(tokens, W[:, -1]))
        for norm in ("nuclear", "frobenius"):
            target = svm.token_svm(chosen, norm=norm).W
            found[what, norm] = alignment(W, target[:, None])
            if (what, norm) == ("K, Q", "nuclear"):
                found["rank"] = ranks(target)
                sizes = np.linalg.svd(W[:, -1], compute_uv=False)
                top = np.arange(d) < found["rank"][:, None]
                found["share"] = (sizes * top).sum(1) / sizes.sum(1)
    return found


def ranks(W: np.ndarray) -> np.ndarray:
    """The number of singular values above RANK times the largest, (runs,)."""
    return np.linalg.matrix_rank(W, rtol=RANK)


def rank_by_dimension(
    seeds: Sequence[int], n: int, T: int, dimensions: Sequence[int]
) -> np.ndarray:
    """Mean rank of the nuclear-norm token SVM for each dimension, (dimensions,).

    The mean is over the draws of `unit_tokens` that have a solution. NaN where none has: selections
    are random, and low dimensions cannot make them all.
    """
    found = []
    for d in dimensions:
        kept = svm.feasible(unit_tokens(seeds, n, T, d))
        of_draws = [np.nan] if kept is None else ranks(svm.token_svm(kept, norm="nuclear").W)
        found.append(np.mean(of_draws))
    return np.array(found)


def several_tokens(seeds: Sequence[int], n: int, T: int, d: int, step_size: float, steps: int):
    """ReLU head, from zero: tokens selected (runs, n), alignment with their SVM (runs,).

    Aligned after the finite part of W, in the span of the SVM's equations, is taken out; NaN for a
    run whose selection no W can make, or in which every sample selects every token.
    """
    tokens = unit_tokens(seeds, n, T, d)
    W, weights = multi_token.train_relu_head(tokens, step_size, steps)
    chosen, found = weights > SELECTED, np.full(len(W), np.nan)
    for run in range(len(W)):
        try:
            V, equations = multi_token.max_margin(tokens.run(run), chosen[run])
        except ValueError:  # svm.Infeasible is one
            continue
        flat = W[run].ravel()
        found[run] = alignment((flat - equations.T @ (equations @ flat)).reshape(d, d), V)
    return chosen.sum(-1), found


def path_against_descent(
    tokens: TokenSet,
    p: float,
    multiples: Sequence[float],
    steps: int,
    random_starts: int,
    named: Callable = lambda solution: solution,
) -> dict:
    """The regularisation path of every run, opt tokens, and lp-AttGD from W_0 = 0.

    Radii are R = multiple ||W_mm||. "path", "descent": divergence from the opt tokens' SVM, (runs,
    multiples) and (runs,); "multiple": where descent ends, ||W|| / ||W_mm|| (runs,); "gap": log(L -
    L*) of the path (runs, multiples); "optimal": whether descent selects the opt tokens (runs,).
    """
    of, multiples = selection(tokens, tokens.opt, p), np.asarray(multiples, float)
    history = train(tokens, MirrorRule(p), steps)
    towards = named(of.solution).W.reshape(of.direction.shape)
    path, gaps = [], []
    for run in range(len(tokens.y)):
        random = stream(run, "draws").standard_normal((random_starts, *of.solution.W.shape[1:]))
        starts = np.stack([of.solution.W[run], history.W[run, -1], *random])
        W, gap = regularisation_path.solve(
            tokens.run(run), p, multiples * of.solution.norm[run], starts
        )
        path.append(directional_bregman(W.reshape(len(W), -1), towards[run], p))
        gaps.append(gap)
    optimal = (selected_tokens(tokens, history.W[:, -1]) == tokens.opt).all(1)
    return {
        "path": np.array(path),
        "gap": np.array(gaps),
        "optimal": optimal,
        "descent": history.divergence(of.solution.W)[:, -1],
        "multiple": history.norm[:, -1] / of.solution.norm,
    }


def claims_on_parents(pairs: Mapping, several: Mapping, paths: Mapping) -> list[Claim]:
    """What 2308.16898 says of three of the experiments, in the order of this module's functions.

    That a nuclear-norm solution has a rank of at most min(n, d) is an identity, which is tested.
    """
    return [
        *_on_key_and_query(pairs),
        _on_the_rank(pairs),
        *_on_several_tokens(several),
        *_on_the_path(paths),
    ]


def _on_key_and_query(pairs):
    last = {key: np.median(value[:, -1]) for key, value in pairs.items() if isinstance(key, tuple)}
    found = []
    for trained, own, other, name in (
        ("K, Q", "nuclear", "frobenius", "parents.kq"),
        ("W", "frobenius", "nuclear", "parents.w"),
    ):
        words = {"nuclear": "nuclear-norm", "frobenius": "Frobenius"}
        at_own, at_other = last[trained, own], last[trained, other]
        aligned = f"{trained}: median alignment with the {words[own]} SVM"
        better = f"{trained}: that over the median alignment with the {words[other]} SVM"
        found += [
            at_least(name, aligned, BOUND, at_own, 0.99),
            at_least(f"{name}.other", better, PREDECESSOR, at_own / at_other, 1.0),
        ]
    return found


def _on_the_rank(pairs):
    inside = "K Q^T: share of its singular values in as many as W_mm has, median"
    return at_least("parents.rank", inside, BOUND, np.median(pairs["share"]), 0.95)


def _on_several_tokens(several):
    lowest, highest = (np.nanmedian(several[d][1]) for d in (min(several), max(several)))
    own = f"several tokens, d = {max(several)}: median alignment with their SVM"
    ratio = f"that over the one at d = {min(several)}"
    return [
        at_least("parents.several", own, BOUND, highest, 0.95),
        at_least("parents.several.d", ratio, PREDECESSOR, highest / lowest, 1.0),
    ]


def _on_the_path(paths):
    divergences = [found["path"] for found in paths.values()]
    ends = max(path[:, -1].max() for path in divergences)
    falls = max((path[:, 1:] / path[:, :-1])[:, 1:].max() for path in divergences)
    theorem = "paper C, Theorem, path (our {})".format
    last = "regularisation path: largest divergence from the opt tokens' SVM at the last R"
    successive = "largest ratio of successive divergences, from the second R on"
    return [
        at_most("parents.path", last, theorem("constant"), ends, 1e-2),
        at_most("parents.path.falls", successive, theorem("reading"), falls, 1.0),
    ]
