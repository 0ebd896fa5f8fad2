"""Push-sum with injections: what IncA, gossip averaging and the broadcast of a result have in common (IncA, Algorithm 2)."""
