"""Paper A, "Implicit Bias and Fast Convergence Rates for Self-attention" (2402.05738).

In: histories and solutions. Out: claims. Open `fixed_head` first: Theorems 1, 5, 6 and 7 and Lemmas
1, 5 and 7. `gradient_cone` has Lemmas 2, 6 and 9, `curvature` Lemma 3, `data_and_starts`
the assumptions and Lemma 4, `joint_training` Theorems 2 to 4. `phase_diagram` shows what happens
without the assumptions, `speed` what the figures on real data claim.
"""
