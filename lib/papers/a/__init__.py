"""Paper A, "Implicit Bias and Fast Convergence Rates for Self-attention" (2402.05738).

In: histories and solutions. Out: claims. Open `fixed_head` first: Theorems 1, 5 to 7 and Lemmas 1
to 10; `joint_training` has Theorems 2 to 4, `data_and_starts` the assumptions, `phase_diagram` what
happens without them.
"""
