"""What the papers leave open: the law of the margins, where it bends, the atlas.

Open `margin_law` first, the law from the SVM's duals, then `margin_law_runs`, where a
run meets it; `tolerances` says what it must show. Where the law bends: `joint_law` (a
trained head), `global_map` (joint training that misses), `head_law`, `constant_map`,
`zero_duals`, `lp_law`. `engine` trains by rules that see coordinates; `atlas` measures
which norm's margin is maximised, `network_margins` in a vision transformer.
"""
