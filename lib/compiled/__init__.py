"""Numba primitives: vectors, Gram products, softmax of many samples side by side, exponentials.

Also their status codes and their cache. In and out: plain arrays, in the layout that fills vector
registers. No problem, rule or paper is known here. Open `softmax` first: it is `attention.slopes`
once more, many samples at a time.
"""
