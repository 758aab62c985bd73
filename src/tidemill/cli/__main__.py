"""``python -m tidemill.cli``."""

from tidemill.cli.main import main

if __name__ == "__main__":
    main()
