"""Numba primitives: vectors, Gram products, softmax of many samples, exponentials.

All functions take and return plain arrays, in the layout that fills vector registers.
numba's compiled code is kept in a cache of its own. Open `softmax` first: it computes
the same as `attention.slopes`, for many samples at a time.
"""

from lib.compiled import cache

cache.use_folder()  # must run before numba prepares any function for its cache
