"""The law of the margins: where training ends, from the dual variables of the SVM.

Open `margin_law` first, which states the law. `prediction` predicts the direction error
of your own run. `margin_law_runs` compares runs with the law, and `margin_theorem`
proves the law for some of these runs. `tolerances` lists the conditions that a run must
meet before a claim about it is checked.

The other modules show how the law changes in other settings. `joint_law` is about a
trained head, `global_map` about joint training that does not reach the SVM solutions,
`head_law` about several heads, and `lp_law` about mirror descent. `constant_map`
measures the constant C when paper A's assumptions do not hold, and `zero_duals` is
about tight constraints whose dual is zero. `real_tokens` tests the law on the tokens of
a pretrained encoder.
"""
