"""Studies of networks on real data, as experiments with a protocol.

The protocol is notebooks/confirmation.md. What is fixed in advance is in
`confirm.toml`, and `confirm` runs it. `family` has the 21 claims and what each of them
measures, `intervals` the two kinds of intervals, and `decide` Holm's rule. Three
commands plan the seeds or read their files: `blinded` (the one look before a study has
all its seeds), `judge` (the verdicts) and `simulate` (how many claims are decided if
the effects of the first round are right).
"""
