"""Companion library to three papers on how a self-attention layer learns; see the README for a map."""
