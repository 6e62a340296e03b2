"""Tasks that only the papers' tables use."""
