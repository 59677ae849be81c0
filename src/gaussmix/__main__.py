"""Run the ``gaussmix`` command as ``python -m gaussmix``."""

from gaussmix.cli import main

if __name__ == "__main__":
    main(prog_name="gaussmix")
