"""Training by rules that are not rotation equivariant, in the given coordinates.

In: a token set, rules, times to record. Out: paths of W. Open `optimisers` first, for
what each rule does; `training` runs them and keeps long runs; `factored` trains keys
and queries in place of W. The compiled `loop` sees the gradient as a graded sum over
samples.
"""
