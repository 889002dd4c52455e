"""Numba primitives: vectors, Gram products, softmax of many samples, exponentials.

In and out: plain arrays, in the layout that fills vector registers. What numba compiles
is kept in a cache of its own. Open `softmax` first: it is `attention.slopes` once more,
many samples at a time.
"""

from lib.compiled import cache

cache.use_folder()  # this comes before any function is prepared for the cache
