"""The Python interface in a handful of functions and one class. Everything underneath is public too."""
