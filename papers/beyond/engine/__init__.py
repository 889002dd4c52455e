"""Training by rules that are not rotation equivariant, in the given coordinates.

In: a token set, rules, times to record. Out: paths of W. The compiled `loop` sees the gradient as a
graded sum over samples, for steepest descent in any norm, block by block too, Muon, Adam and its
kin, Shampoo, SOAP, full-matrix AdaGrad, the natural gradient, and mirror descent with a fixed head
(rounded otherwise than in `lib.mirror`). Open `optimisers` first, for what each rule does;
`training` runs them and keeps long runs; `factored` trains keys and queries in place of W.
`gradients`, `entrywise`, `graded_svd` and `preconditioners` are the loop's parts.
"""
