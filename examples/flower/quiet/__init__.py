"""A Flower app whose server sees noisy means only."""
