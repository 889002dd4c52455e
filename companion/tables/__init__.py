"""Tables made from the records; `python -m companion.tables` renews them in place.

The inputs are figures/index.toml, figures/beside.toml and the records. The command
rewrites the marked tables in the files that `figures` lists as `FILES`, and
figures/beside.md. Open `figures` first.
"""
