"""Real data sets, found in a fixed order and checked row by row, and stand-ins for them.

Out: tensors or texts with labels, and their identity. Open `places` first.
"""
