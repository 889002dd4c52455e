"""Training by rules that are not rotation equivariant, in the given coordinates.

In: a token set, rules, times to record. Out: paths of W. The compiled `loop` sees the gradient as a
graded sum over samples, for steepest descent in any norm, block by block too, Muon, Adam and its
kin, Shampoo, SOAP, full-matrix AdaGrad, the natural gradient, and mirror descent with a fixed head
(rounded otherwise than in `lib.mirror`). Open `optimisers` first, for what each rule does (`update`
holds it as numbers); `training` runs them and `kept` keeps long runs; `gradients`, `entrywise`,
`graded_svd`, `spectral`, `blocks`, `natural`, `scaled`, `matrix_moments` and `full_matrix` are the
loop's parts. `factored` trains keys and queries in place of W, by the loop in `factored_loop`.
"""
