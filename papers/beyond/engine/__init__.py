"""Training by rules that are not rotation equivariant, in the given coordinates.

In: a token set, rules, times to record. Out: paths of W. There are two compiled loops, since they
round differently: `kernel`, of l_p mirror descent, sees a token set as rows (margins are linear in
W; `rows` calls it, and `mirror` turns its raw records into a history); `loop` sees the gradient as
a graded sum over samples, for steepest descent in any norm, block by block too, Muon, Adam and its
kin, Shampoo, SOAP, full-matrix AdaGrad, the natural gradient, and mirror descent with a fixed head.
Softmax, loss and status codes of both are those of `compiled`. Open `optimisers` first, for what
each rule does (`update` holds it as numbers); `training` runs them and `kept` keeps long runs;
`gradients`, `entrywise`, `graded_svd`, `spectral`, `blocks`, `natural`, `scaled`, `matrix_moments`
and `full_matrix` are the loop's parts. `factored` trains keys and queries in
place of W, by the loop in `factored_loop`.
"""
