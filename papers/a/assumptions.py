r"""Measure by how much a data set satisfies or violates paper A's Assumptions 1 and 2.

In Example 1 of paper A the opt tokens are class means: the samples of a class share
their opt token (our reading). Assumption 1, as we read it, bounds the inner products of
two queries, and those of two tokens of which at least one is not an opt token. It does
not bound the inner product of two opt tokens.

The inequalities of Assumption 1 are blank in our copy of the paper.
`near_orthogonality` measures a sufficient condition of ours instead. Our condition must
imply Lemma 5: while the softmax weight of a sample's opt token is at most 1/2, a step
along the negative gradient does not lower this weight.

Derivation. Sample i has tokens x_{i,t}, the query z_i, the opt token o_i = x_{i,opt},
its softmax weight p_i, and the score gap Delta_i: the score of o_i minus the score r_i
that all other tokens share (Assumption 2). T is the number of tokens of a sample, n the
number of samples.

1. With m_i the mean of the other tokens under their softmax weights, the negative
   gradient is -grad L = (1/n) sum_i c_i (o_i - m_i) z_i^T, where c_i = |l'(f_i)|
   Delta_i p_i (1 - p_i).
2. The logit of o_j exceeds the logit of another token x of sample j by <(o_j - x)
   z_j^T, W>. A step of size s along the negative gradient changes this difference by
   s/n times
       c_j ||z_j||^2 <o_j - x, o_j - m_j>
           + sum_{i != j} c_i <z_i, z_j> <o_j - x, o_i - m_i>.
   If this is not negative for any other token x, then p_j does not fall, however long
   the step is.
3. Let mu bound |<x, x'>| for any two tokens at different places of which at least one
   is not an opt token. Then <o_j, x>, <o_j, m_j> and -<x, m_j> are at most mu. (The
   product <x, m_j> also contains a nonnegative multiple of ||x||^2, which only lowers
   -<x, m_j>.) With a the smallest norm of an opt token,
       <o_j - x, o_j - m_j> >= a^2 - 3 mu.
4. Only the Cauchy-Schwarz inequality bounds <o_j, o_i>. With U the largest norm of an
  opt
   token,
       |<o_j - x, o_i - m_i>| <= U^2 + 3 mu.
5. Let b be the smallest norm of a query, nu the largest |<z_i, z_j>| of two samples'
   queries, and C an upper bound of c_i / c_j. The first term of step 2 outweighs all
   other terms if
       b^2 (a^2 - 3 mu) >= (n - 1) C nu (U^2 + 3 mu).
6. C for the exponential loss, f_i = r_i + p_i Delta_i: c_i = e^{-r_i} h(p_i, Delta_i)
   with h(p, Delta) = Delta e^{-p Delta} p (1 - p). log h is concave in p. So over p_j
   in [phi, 1/2] h has its minimum at an end of the interval. Over all p_i it has its
   maximum where 1/p - 1/(1
   - p) = Delta. We take phi = 1/(e T): at a small start the weight is at least phi
     (Lemma 4), and by the condition no step lowers the weight before it is 1/2. A step
     from above 1/2 must be short enough not to end below phi.

So the opt tokens of a class may be equal. Whether the condition holds depends mainly on
nu / b^2, which is about the square root of (log n)/d for random queries, and so on the
dimension d.
"""

import numpy as np

from companion.claims import Claim
from lib import attention, dynamics
from lib.attention import TokenSet, coordinates
from papers.a import fixed_head
from papers.a.statements import PAPER


def _token_products(tokens: TokenSet) -> tuple[np.ndarray, np.ndarray]:
    """Return |<x, x'>| for any two tokens of a run, and ||x||^2 for every token.

    The two arrays have the shapes (runs, n T, n T) and (runs, n, T).
    """
    runs, n, T, d = tokens.shape
    flat = tokens.X.reshape(runs, n * T, d)
    products = np.abs(flat @ np.swapaxes(flat, 1, 2))
    squared_norms = np.diagonal(products, axis1=1, axis2=2).reshape(runs, n, T)
    return products, squared_norms


def _largest_outside(products: np.ndarray, excluded: np.ndarray) -> np.ndarray:
    """Return, for each run, the largest of the products (runs, m, m) that are not
    `excluded`.

    The result has the shape (runs,). Products are at least 0. `excluded` is a bool
    array, (m, m) or (runs, m, m). If all pairs are excluded, the result is 0.
    """
    return np.where(excluded, 0.0, products).max((1, 2))


def _of_opt_tokens(values: np.ndarray, tokens: TokenSet) -> np.ndarray:
    """Select the values (runs, n, T) at the opt tokens.

    The result has the shape (runs, n).
    """
    return np.take_along_axis(values, tokens.opt[..., None], -1)[..., 0]


def near_orthogonality(tokens: TokenSet) -> np.ndarray:
    """Measure the room that a data set leaves in Assumption 1, as we read it.

    Parameters
    ----------
    tokens : TokenSet
        Data sets of n samples of T tokens in dimension d, one per run, that satisfy
        Assumption 2. No token is masked.

    Returns
    -------
    numpy.ndarray
        b^2 (a^2 - 3 mu) / ((n - 1) C nu (U^2 + 3 mu)) of each run, shape (runs,), with
        the symbols of the derivation at the top of this file. At 1 or more the
        condition holds. It is negative if a^2 < 3 mu, and infinite if n = 1.
    """
    runs, n, T, _ = tokens.shape
    if n == 1:
        return np.full(runs, np.inf)
    products, squared_norms = _token_products(tokens)

    # mu is a maximum over pairs of tokens at different places, at least one of which is
    # not an opt token.
    is_opt = (np.arange(T) == tokens.opt[..., None]).reshape(runs, n * T)
    two_opt_tokens = is_opt[:, :, None] & is_opt[:, None, :]
    same_place = np.eye(n * T, dtype=bool)
    mu = _largest_outside(products, two_opt_tokens | same_place)

    # a and U: the smallest and the largest norm of an opt token.
    opt_squared = _of_opt_tokens(squared_norms, tokens)
    a_squared = opt_squared.min(1)
    U_squared = opt_squared.max(1)

    # b is the smallest norm of a query; nu is a maximum over pairs of queries.
    query_products = np.abs(tokens.z @ np.swapaxes(tokens.z, 1, 2))
    b_squared = np.diagonal(query_products, axis1=1, axis2=2).min(1)
    nu = _largest_outside(query_products, np.eye(n, dtype=bool))

    # The two sides of step 5.
    C = pull_ratio(tokens)
    own_term = b_squared * (a_squared - 3 * mu)
    terms_of_others = (n - 1) * C * nu * (U_squared + 3 * mu)
    return own_term / terms_of_others


def pull_ratio(tokens: TokenSet) -> np.ndarray:
    """Bound c_i / c_j: how much harder sample i pulls on W than a sample j whose opt
    token is not yet selected.

    Parameters
    ----------
    tokens : TokenSet
        Data sets that satisfy Assumption 2, without masked tokens. The loss is
        exponential.

    Returns
    -------
    numpy.ndarray
        C of step 6 of the derivation, shape (runs,).
    """
    scores = attention.scores(tokens, tokens.u)  # (runs, n, T)
    gaps = np.ptp(scores, axis=-1)  # (runs, n)
    lowest = scores.min(-1)  # the other tokens' score
    phi = 1 / (np.e * tokens.shape[2])

    def pull(p: np.ndarray):
        return np.exp(-lowest - p * gaps) * gaps * p * (1 - p)

    # The root of 1/p - 1/(1 - p) = gap, without a division by a small gap.
    strongest = 2 / (2 + gaps + np.sqrt(4 + gaps**2))
    weakest = np.minimum(pull(phi), pull(0.5))
    return pull(strongest).max(1) / weakest.min(1)


def orthogonality_of_all_tokens(tokens: TokenSet) -> np.ndarray:
    """Measure the room in another sufficient condition, which bounds the inner product
    of two opt tokens too.

    Parameters
    ----------
    tokens : TokenSet
        Data sets of n samples of T tokens that satisfy Assumption 2, one per run. The
        query of a sample is one of its tokens, and the tokens other than the opt tokens
        score zero. No token is masked.

    Returns
    -------
    numpy.ndarray
        b^2 (a^2 - 3 mu) / (4 n C mu^2), shape (runs,). Here mu bounds |<x, x'>| of any
        two tokens at different places, a is the smallest norm of an opt token, b the
        smallest norm of a query, and C = e^{Delta_max/2} Delta_max / (4 Delta_min phi
        (1 - phi)) with phi = 1/(e T). Delta_max and Delta_min are the largest and the
        smallest score gap of a sample. At 1 or more the condition holds. Class means
        never satisfy it, because the samples of a class share their opt token. Gaussian
        tokens satisfy it if d is large.

    Notes
    -----
    In the derivation at the top of this file, mu then bounds nu, because queries are
    tokens, and all of step 4's inner products, which together are at most 4 mu. C
    bounds c_i / c_j if the other tokens score zero. Neither this condition nor that of
    `near_orthogonality` implies the other: this one has mu^2 in place of nu (U^2 + 3
    mu), but its constant C is larger.
    """
    _, n, T, _ = tokens.shape
    products, squared_norms = _token_products(tokens)
    mu = _largest_outside(products, np.eye(n * T, dtype=bool))
    a_squared = _of_opt_tokens(squared_norms, tokens).min(1)
    b_squared = (tokens.z**2).sum(-1).min(1)

    # Under Assumption 2 the range of a sample's scores is its gap Delta.
    gaps = np.ptp(attention.scores(tokens, tokens.u), axis=-1)  # (runs, n)
    Delta_max = gaps.max(1)
    Delta_min = gaps.min(1)
    phi = 1 / (np.e * T)
    C = np.exp(Delta_max / 2) * Delta_max / (4 * Delta_min * phi * (1 - phi))

    own_term = b_squared * (a_squared - 3 * mu)
    terms_of_others = 4 * n * C * mu**2
    return own_term / terms_of_others


def score_gaps(tokens: TokenSet) -> tuple[np.ndarray, np.ndarray]:
    """Measure by how much the opt token scores higher than the other tokens, and how
    equal their scores are.

    Parameters
    ----------
    tokens : TokenSet
        Data sets of n samples of T tokens, one per run. No token is masked.

    Returns
    -------
    gap : numpy.ndarray
        The smallest difference of the opt token's score and another token's, divided by
        the largest absolute score, shape (runs,). It is not positive if another token
        scores as high as the opt token.
    imbalance : numpy.ndarray
        The largest range of the other tokens' scores in a sample, divided by that
        smallest difference, shape (runs,). It is 0 under Assumption 2.
    """
    scores = attention.scores(tokens, tokens.u)
    others = coordinates.others(tokens.opt, tokens.shape[2])
    best = np.take_along_axis(scores, tokens.opt[..., None], -1)
    rest = np.take_along_axis(scores, others, -1)
    gap = (best - rest).min((1, 2))
    return gap / np.abs(scores).max((1, 2)), np.ptp(rest, axis=-1).max(1) / gap


def theorem1_claims(
    problem: coordinates.Minimal,
    start: dynamics.Start,
    history: dynamics.History,
    step_size: float,
) -> list[Claim]:
    """Measure every hypothesis of Theorem 1, as we read it, and then its rate.

    Parameters
    ----------
    problem : Minimal
        The data sets, in the span of their tokens.
    start : Start
        The starts of the runs.
    history : History
        Runs of NGD from these starts, with the target "W_mm".
    step_size : float
        The step size of NGD.

    Returns
    -------
    list of Claim
        First come the claims about the hypotheses, one each, measured on the worst run.
        Then come the claims about the exponent in t of the direction error over the
        last decade, and about Lemma 5.
    """
    tokens = problem.tokens
    T = tokens.shape[2]

    # The data have one best token per sample, equal scores of all others, and nearly
    # orthogonal tokens.
    gap, imbalance = score_gaps(tokens)
    room = near_orthogonality(tokens)

    # At the start, the softmax weights are within a factor of e of 1/T.
    weights = attention.weights(tokens, start.inside)
    away = np.abs(np.log(T * weights)).max()

    # In one step, a difference of logits moves by at most step_size D, where D is the
    # length of the longest (x_opt - x) z^T.
    differences = coordinates.differences(tokens, tokens.opt)
    lengths = np.linalg.norm(differences, axis=-1)  # (runs, n, T-1)
    longest = (lengths * np.linalg.norm(tokens.z, axis=-1)[..., None]).max()
    allowed = np.log(np.e * T - 1) / longest

    remark = "by construction of the data"
    unequal = PAPER.claim("hypotheses.equal", imbalance.max(), remark=remark)
    return [
        PAPER.claim("definition1", gap.min()),
        PAPER.claim("assumption1.margin", room.min()),
        unequal,
        PAPER.claim("hypotheses.start", away),
        PAPER.claim("hypotheses.step", step_size / allowed),
        *fixed_head.direction(history, "NGD", history.iterations[-1] / 10, "Theorem 1"),
        *fixed_head.lemma5(history, "NGD"),
    ]
