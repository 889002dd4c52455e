"""Every figure, claim and notebook as pages that open from disk: `python -m companion.site`.

In: figures/index.toml, records, executed notebooks. Out: runs/site/, or the tables of
`FILES` of `figures`. Open `build` first, `figures` for the Markdown.
"""
