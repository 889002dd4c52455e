"""Directions made from singular values: steepest descent in spectral and nuclear norm, Muon.

Each is U f(S) V^T of the singular value decomposition G = U S V^T of a graded sum: f = 1 on what is
not zero (polar factor), f = 1 on the largest alone, or the polynomial of Newton and Schulz.
"""

import math

import numba

from papers.beyond.engine import graded_svd as svd
from papers.beyond.engine import update as o

QUINTIC = (3.4445, -4.7750, 2.0315)  # Jordan (2024)


@numba.njit
def quintic(x, iterations):
    """Muon's polynomial, so many times, on a singular value x <= 1."""
    for _ in range(iterations):
        y = x * x
        x = x * (QUINTIC[0] + y * (QUINTIC[1] + y * QUINTIC[2]))
    return x


@numba.njit
def _squares(s, count):
    """The sum of squares of all entries of G, without e^(2 s.scale of the first column)."""
    total = 0.0
    for k in range(count):
        factor = math.exp(s.scale[s.columns[k]] - s.scale[s.columns[0]])
        for r in range(s.made[k + 1]):
            total += (factor * s.R[k, r]) ** 2
    return total


@numba.njit
def _decompose(s, first, last):
    """The block's singular vectors in s.block and s.V, its values in s.sigma; returns the largest.

    Values beyond the block's rank are zero.
    """
    before, after = s.made[first], s.made[last]
    count, width = last - first, after - before
    for k in range(count):
        factor = math.exp(s.scale[s.columns[first + k]] - s.scale[s.columns[first]])
        for r in range(width):
            s.block[k, r] = factor * s.R[first + k, before + r]
    svd.jacobi(s.block, s.V, count, width)
    top, positive = 0.0, 0
    for l in range(count):
        total = 0.0
        for r in range(width):
            total += s.block[l, r] * s.block[l, r]
        s.sigma[l] = math.sqrt(total)
        top = max(top, s.sigma[l])
        positive += s.sigma[l] > 0.0
    for _ in range(positive - width):  # more than the rank: the least are rounding
        least = -1
        for l in range(count):
            if s.sigma[l] > 0.0 and (least < 0 or s.sigma[l] < s.sigma[least]):
                least = l
        s.sigma[least] = 0.0
    return top


@numba.njit
def direction(graded, z, rule, s, D):
    """Fill D; returns the log of the dual norm of G (of the nuclear norm for Newton-Schulz)."""
    D[:] = 0.0
    count = svd.factorise(graded, z, s)
    if count == 0:
        return -math.inf
    shape, top = int(rule[o.SHAPE]), s.scale[s.columns[0]]
    length = math.sqrt(_squares(s, count)) if shape == o.NEWTON_SCHULZ else 1.0
    first, value = 0, 0.0
    while first < count:
        last = svd.block_end(s, first, count)
        factor = math.exp(s.scale[s.columns[first]] - top)
        largest, found = _decompose(s, first, last), False
        for l in range(last - first):
            sigma, weight = s.sigma[l], 0.0
            if sigma > 0.0 and shape == o.POLAR:
                weight = 1.0
            elif sigma > 0.0 and shape == o.NEWTON_SCHULZ:
                weight = quintic(sigma * factor / length, int(rule[o.ITERATIONS]))
            elif sigma == largest and not found:
                weight, found = 1.0, True
            s.sigma[l] = weight / sigma if sigma > 0.0 else 0.0
            value += sigma * factor * (weight if shape == o.LEADING else 1.0)
        _add(s, first, last, D)
        if shape == o.LEADING:
            break
        first = last
    return top + math.log(value)


@numba.njit
def _add(s, first, last, D):
    """D += the block's part, sum_l s.sigma_l (row l of s.block) x (row l of s.V)."""
    before, count = s.made[first], last - first
    width, d_z = s.made[last] - before, s.of_z.shape[1]
    for r in range(width):
        s.image[r] = 0.0
        for k in range(count):
            total = 0.0
            for l in range(count):
                total += s.sigma[l] * s.block[l, r] * s.V[l, k]
            of_z = s.of_z[s.columns[first + k]]
            for e in range(d_z):
                s.image[r, e] += total * of_z[e]
    for r in range(width):
        of_c = s.of_c[before + r]
        for j in range(len(D)):
            for e in range(d_z):
                D[j, e] += of_c[j] * s.image[r, e]
