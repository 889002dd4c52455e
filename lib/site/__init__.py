"""Every figure, claim and notebook as pages that open from disk: `python -m lib.site`.

In: the committed records and the notebooks as they ran. Out: runs/site/. Open `build` first.
"""
