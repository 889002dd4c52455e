"""The atlas of optimisers: the norm whose margin each update rule maximises.

Open `atlas` first, which measures a run's margin in every norm, then `atlas_rules`,
which has the rules with their predicted norms. `atlas_used` is about weight decay and
rules with a norm of their own, `factored_atlas` trains the factors (K, Q), and
`network_margins` measures a vision transformer.
"""
