"""What the papers leave open: the law of the margins, where it bends, the atlas.

In: problems and rules, or histories. Out: predictions beside measurements, and claims with the
wrong worlds that they catch. Open `margin_law_runs` first: it lets a run meet its prediction;
`atlas` measures which norm's margin an optimiser maximises, `factored_atlas` with keys and queries
trained, `network_margins` in a vision transformer. Where the law bends: `joint_law` (a
trained head), `counterexample` and `global_map` (joint training that misses), `head_law`,
`constant_map`, `zero_duals` (`single_zero_dual` is its least case), `lp_law`.
"""
