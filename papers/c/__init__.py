"""Paper C, "Optimizing Attention with Mirror Descent" (2410.14581), and its predecessor 2308.16898.

In: mirror descent's histories. Out: claims. Open `section5` first for the experiments;
`step_lemmas` and `cones` hold the lemmas, `ledger_rows` gathers them, `statements.toml` words
them, `predecessor` is the earlier paper, `reviews` what is claimed of real data.
"""
