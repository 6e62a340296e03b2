"""Secure sums: the parts of `strategies.secure_sum`, and their bytes.

K. Bonawitz et al.: Practical Secure Aggregation for Privacy-Preserving Machine Learning. CCS 2017.
"""
