"""RayGrid: Flower's Grid on long-lived Ray actors (docs/engine.md)."""
