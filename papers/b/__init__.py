"""Paper B (2603.01514): preconditioned training of a softmax self-attention layer.

Its title is "Training Dynamics of Softmax Self-Attention: Fast Global Convergence via
Preconditioning". The modules take histories of preconditioned descent, and return
claims: statements with a measured value and a bound. Open `landscape` first, then
`experiments`.
"""
