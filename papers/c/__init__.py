"""Paper C, "Optimizing Attention with Mirror Descent" (2410.14581), and its predecessor
2308.16898.

In: mirror descent's histories. Out: claims. Open `section5` first for the experiments;
`lemmas` holds the appendix, `ledger_rows` gathers it, `statements.toml` words it,
`predecessor` is the earlier paper, `reviews` what is claimed of real data.
"""
