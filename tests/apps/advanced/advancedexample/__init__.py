"""advancedexample: A Flower / PyTorch app whose clients keep their own head."""
