"""Every figure, claim and notebook as pages that open from disk: `python -m lib.site`.

In: figures/index.toml, the committed records, the notebooks as they ran. Out: runs/site/, with
every claim in claims.json; with `python -m lib.site tables` the tables of README.md and
REPRODUCING.md. Open `build` first, `tables` for the Markdown.
"""
