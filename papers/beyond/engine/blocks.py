"""Directions block by block, as head-wise Muon takes them: W's rows or columns in h equal parts.

The norm is max_b N(W_b), its dual sum_b N*(G_b), so that each block takes its own steepest step. A
block's part of the gradient is a graded sum with logs of its own: none underflows beside another.
"""

import math
from typing import NamedTuple

import numba
import numpy as np

from lib.compiled import exponentials
from papers.beyond.engine import entrywise, graded_svd, gradients, spectral
from papers.beyond.engine import update as o


class Block(NamedTuple):
    """Work space of one block (d_b, q_b): its gradient, its queries z (n, q_b), its direction D."""

    graded: gradients.Graded
    z: np.ndarray
    G: np.ndarray
    D: np.ndarray
    work: np.ndarray
    space: graded_svd.Space


@numba.njit
def block(rule, n, d, d_z):
    """A Block of zeros."""
    count, by_columns = int(rule[o.BLOCKS]), rule[o.BY_COLUMNS] != 0.0
    height, width = (d, d_z // count) if by_columns else (d // count, d_z)
    return Block(
        graded=gradients.empty(n, height),
        z=np.zeros((n, width)),
        G=np.zeros((height, width)),
        D=np.zeros((height, width)),
        work=np.zeros((2, height * width)),
        space=graded_svd.space(n, height, width),
    )


@numba.njit
def direction(rule, graded, z, s, D):
    """Fill D; returns the log of the dual norm, summed over the blocks."""
    height, width = s.D.shape
    value = -math.inf
    for k in range(int(rule[o.BLOCKS])):
        row, column = (0, k * width) if rule[o.BY_COLUMNS] != 0.0 else (k * height, 0)
        for i in range(len(z)):
            s.graded.logs[i] = graded.logs[i]
            for j in range(height):
                s.graded.b[i, j] = graded.b[i, row + j]
            for e in range(width):
                s.z[i, e] = z[i, column + e]
        gradients.unit(s.graded)
        if rule[o.KIND] == o.SPECTRAL:
            own = spectral.direction(s.graded, s.z, rule, s.space, s.D)
        else:
            top = gradients.dense(s.graded, s.z, s.G)
            own = entrywise.steepest(s.G.ravel(), top, rule[o.P], s.work, s.D.ravel())
        for j in range(height):
            for e in range(width):
                D[row + j, column + e] = s.D[j, e]
        value = exponentials.add_logs(value, own)
    return value
