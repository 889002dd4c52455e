"""The law of the margins: where a run of training ends, from the SVM's duals, and where
the law bends.

Open `margin_law` first, the law itself; then `margin_law_runs`, where a run meets it,
and `margin_theorem`, which proves it for some runs. `tolerances` says what a run must
show before it is judged. Where the law bends: `joint_law` (a trained head),
`global_map` (joint training that misses), `head_law` (several heads), `lp_law` (mirror
descent), `constant_map` and `zero_duals`. `real_tokens` asks it of an encoder's tokens.
"""
