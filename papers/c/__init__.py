"""Paper C, "Optimizing Attention with Mirror Descent" (2410.14581).

The package also covers the paper that C generalises (2308.16898). The modules take
histories of mirror descent, and return claims: statements with a measured value and a
bound. Open `section5` first, for the experiments. `lemmas` checks the appendix,
`ledger_rows` gathers these checks, and `statements.toml` has their words. `predecessor`
is about the earlier paper. What paper C claims about real data is in
`papers.studies.reviews`.
"""
