"""sklearnexample: A Flower / scikit-learn app."""
