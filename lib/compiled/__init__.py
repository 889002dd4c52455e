"""Numba primitives: vectors, Gram products, softmax of many samples, exponentials.

All functions take and return plain arrays, in a layout that fills vector registers.
numba's compiled code is stored in a cache of its own. Open `softmax` first, which
computes what `attention.slopes` computes, but for many samples at a time.
"""

from lib.compiled import cache

cache.use_folder()  # must run before numba prepares any function for its cache
