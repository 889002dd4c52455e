"""Paper A, "Implicit Bias and Fast Convergence Rates for Self-attention" (2402.05738).

The modules take training histories and SVM solutions, and return claims: statements
with a measured value and a bound. Open `fixed_head` first: it has Theorems 1, 5, 6 and
7 and Lemmas 1, 2, 5, 6, 7 and 9. `joint_training` has Theorems 2 to 4, Lemmas 3, 12 and
13, and what Figure 3 shows. `ledger_rows` measures all these statements, and also those
that are only about data and starts. `phase_diagram` shows what happens without the
assumptions. `figure_sentences` checks what the text says about Figures 2, 3 and 5, and
`figures` draws these figures.
"""
