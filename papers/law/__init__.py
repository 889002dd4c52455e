"""The law of the margins: where training ends, from the dual variables of the SVM.

Open `margin_law` first, which states the law. `margin_law_runs` compares runs with it,
and `margin_theorem` proves it for some of them. `tolerances` lists what a run must show
before it is judged.

The other modules show where the law bends: `joint_law` treats a trained head,
`global_map` joint training that misses the solution, `head_law` several heads, `lp_law`
mirror descent. `constant_map` follows the constant C away from paper A's assumptions,
and `zero_duals` treats tight constraints without a dual. `real_tokens` tests the law on
the tokens of a pretrained encoder.
"""
