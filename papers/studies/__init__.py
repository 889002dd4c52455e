"""Studies of networks on real data.

There are two rounds. The first one is exploratory; its rules are in
notebooks/protocol.md. `kept_curves` reads its runs and judges its claims, which are in
`speed` (paper A) and `reviews` (paper C), and `redraw` draws its pictures again.
`layers` and `paper_form` draw further pictures of paper A's figures.

The second round has fresh seeds and a protocol, notebooks/confirmation.md, that is
older than its runs. `confirm.toml` lists what is fixed in advance, and `confirm` runs
it. `family` has the 21 claims with their measures, `intervals` has the two kinds of
intervals, and `decide` has Holm's rule. Three commands plan the seeds or read their
files: `blinded` takes the one look that is allowed before a study has all its seeds,
`judge` gives the verdicts, and `simulate` computes how many claims are decided if the
effects of the first round are right. `fresh_seeds` draws all verdicts in one picture,
and `second_round` the pictures of single studies.
"""
