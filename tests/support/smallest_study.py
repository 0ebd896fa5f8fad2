"""The smallest study that everybody can read: the mean of one column by `local-dp`."""

STUDY = """
[study]
name = "ages"
epsilon = 0.5
delta = 1e-6
colluding = 0
protocol = "local-dp"

[[column]]
name = "age"
low = 0
high = 100
"""
