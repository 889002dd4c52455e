"""The atlas of optimisers: the norm whose margin each update rule maximises.

Open `atlas` first, which measures a run's margin in every norm; then `atlas_rules`, the
rules with their predicted norms. `atlas_used` has decay and norms of a rule's own,
`factored_atlas` trains (K, Q), `network_margins` measures a vision transformer.
"""
