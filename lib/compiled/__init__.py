"""Numba primitives: vectors, Gram products, softmax of many samples, exponentials,
their cache.

In and out: plain arrays, in the layout that fills vector registers. Open `softmax`
first: it is `attention.slopes` once more, many samples at a time.
"""

from lib.compiled import cache

cache.use_folder()  # before any function is prepared for the cache
