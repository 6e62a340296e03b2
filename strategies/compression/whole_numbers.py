"""The check of arguments that are whole numbers."""


def check_whole(name: str, given: object, least: int, most: int | None = None) -> None:
    """Check a compressor's argument.

    Raises:
        ValueError: It is not a whole number from ``least`` to ``most``; ``name`` is named.
    """
    whole = isinstance(given, int) and not isinstance(given, bool)
    if not whole or given < least or (most is not None and given > most):  # type: ignore[operator]
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} = {given!r}: give a whole number {bounds}")
