"""A companion to three papers on how a self-attention layer learns; lib/README.md is the map."""
