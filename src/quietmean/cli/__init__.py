"""The command line. It may call everything; nothing imports it."""
