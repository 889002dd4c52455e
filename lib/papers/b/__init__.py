"""Paper B, "Training Dynamics of Softmax Self-Attention: Fast Global Convergence via
Preconditioning" (2603.01514).

In: histories of preconditioned descent. Out: claims. Open `theorems` first, then `experiments`.
"""
