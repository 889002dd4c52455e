"""The engine of rules that see the coordinates: whatever is not rotation equivariant trains here,
in logarithms.

In: a token set as rows (margins are linear in W), rules, times to record. Out: raw records, which
`mirror` turns into a history. Softmax, loss and status codes are those of `compiled`. Open `rows`
first; `kernel` is its compiled loop.
"""
