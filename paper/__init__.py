"""Reproduction of the papers: their tables as files, the runs that fill them, and the report.

It is used from the repository, as `python -m paper`, and is not part of the package.
"""
