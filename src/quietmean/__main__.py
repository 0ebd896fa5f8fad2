"""``python -m quietmean``."""

from quietmean.cli.main import main

if __name__ == "__main__":
    main()
