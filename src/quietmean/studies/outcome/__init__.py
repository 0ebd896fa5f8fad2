"""What everybody knows after a study, and what was expected before it."""
