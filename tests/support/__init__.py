"""What the tests of the node run it in: a network in memory, virtual time, faults, bad roads, and the truth from the stores."""
