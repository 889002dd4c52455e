"""Training by rules that are not rotation equivariant, in the given coordinates.

In: a token set as rows (margins are linear in W), rules, times to record. Out: raw records, which
`mirror` turns into a history. Softmax, loss and status codes are those of `compiled`. Open `rows`
first; `kernel` is its compiled loop.
"""
