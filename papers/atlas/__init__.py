"""The atlas of optimisers: the norm whose margin each update rule maximises.

Open `atlas` first, which measures a run's margin in every norm, and then `atlas_rules`,
which has the rules and the norm that is predicted for each. `atlas_used` is about
weight decay and about rules that have their own norm, `factored_atlas` trains the
factors (K, Q), and `network_margins` measures a vision transformer.
"""
