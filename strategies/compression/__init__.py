"""Compressed model updates: pure functions and values on NumPy arrays, no Flower import.

| module | idea |
|---|---|
| `layout` | a model's arrays as one flat vector and back |
| `topk` | which entries are kept |
| `golomb` | positions as bits |
| `ternary`, `sparse`, `signs`, `dense` | the four forms of an update, each with its bytes |
| `feedback` | what was not sent is kept for the next time |
| `theory` | what the papers say it should cost |
"""
