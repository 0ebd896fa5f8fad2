"""Learning together: averages of models, and estimators, over sessions."""
