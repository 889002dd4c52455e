"""Studies of networks on real data as experiments with a protocol,
notebooks/confirmation.md.

What is fixed before is in `confirm.toml`, and `confirm` runs it. `family` has the 21
claims and what each measures, `intervals` the two intervals, `decide` Holm's rule.
Three commands plan the seeds or read their files: `blinded` (the one look before a
study is full), `judge` (the verdicts) and `simulate` (how many claims are decided if
the first round is right).
"""
