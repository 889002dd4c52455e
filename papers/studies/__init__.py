"""Studies of networks on real data.

They are experiments with a protocol, which is notebooks/confirmation.md. `confirm.toml`
lists what is fixed in advance, and `confirm` runs it. `family` has the 21 claims with
their measures, `intervals` has the two kinds of intervals, and `decide` has Holm's
rule. Three commands plan the seeds or read their files: `blinded` takes the one look
that is allowed before a study has all its seeds, `judge` gives the verdicts, and
`simulate` computes how many claims are decided if the effects of the first round are
right.
"""
