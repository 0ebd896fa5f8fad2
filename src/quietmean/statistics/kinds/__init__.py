"""Statistics, one family a module: each class with a name is one."""
