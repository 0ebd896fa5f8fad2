"""A page with which a browser contributes to a study with a committee."""
