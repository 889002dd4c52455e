"""Real data sets, which are checked row by row, and small stand-ins for them.

Open `places` first, which finds the data sets.
"""
