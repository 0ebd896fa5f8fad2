"""Vocabulary that everything else is written in; it imports nothing of ours."""
