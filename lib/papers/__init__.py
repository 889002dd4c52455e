"""What each paper states, as checked claims, and its experiments.

The three papers do not import each other.
"""
