"""What the papers leave open and this project answers: the law of the margins.

In: problems and rules, or histories. Out: predictions beside measurements, and claims with the
wrong worlds that they catch. Open `margin_law_runs` first: it lets a run meet its prediction.
"""
