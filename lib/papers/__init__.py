"""What each paper states, as checked claims, and its experiments; the papers stand apart."""
