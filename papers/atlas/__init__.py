"""The atlas of optimisers: the norm whose margin each update rule maximises.

Open `atlas` first, which measures a run's margin in every norm, then `atlas_rules`,
which has the rules with their predicted norms. `atlas_used` treats weight decay and
norms of a rule's own, `factored_atlas` trains the factors (K, Q), and `network_margins`
measures a vision transformer.
"""
