"""The methods that `fedavg plan` tries by default, as variants of a grid.

They sent least in the project's own measurements (docs/choosing-a-compressor.md), from few large
messages to many small ones.
"""

from typing import Any

_STC = "sparsity-up = {0}, sparsity-down = {0}"
_BOTH_WAYS = (
    "uplink = {name = 'rotated', unbiased = false}, downlink = {name = 'rotated', unbiased = false}"
)

CANDIDATES: list[dict[str, Any]] = [
    {"strategy": "fedavg", "local-steps": [25, 100, 400]},
    {"strategy": "fedsgd"},
    {"strategy": "stc", "strategy-args": _STC.format(0.04), "local-steps": [1, 25, 100]},
    {"strategy": "stc", "strategy-args": _STC.format(0.01), "local-steps": [1, 25, 100]},
    {"strategy": "stc", "strategy-args": _STC.format(0.0025), "local-steps": [1, 25]},
    {"strategy": "eden", "strategy-args": "bits = 1", "local-steps": [1, 25, 100]},
    {"strategy": "qsgd", "strategy-args": "bits = 4", "local-steps": [1, 25, 100]},
    {"strategy": "topk", "strategy-args": "sparsity-up = 0.01", "local-steps": [1, 25]},
    {"strategy": "compressed", "strategy-args": _BOTH_WAYS, "local-steps": [1, 25, 100]},
]
