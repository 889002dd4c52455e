"""Real data sets, found in a fixed order and checked row by row; stand-ins.

Open `places` first.
"""
