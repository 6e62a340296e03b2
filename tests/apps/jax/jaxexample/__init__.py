"""jaxexample: A Flower / JAX app."""
