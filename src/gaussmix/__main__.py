"""``python -m gaussmix``: the command, where its script is not on the path."""

from gaussmix.cli import main

if __name__ == "__main__":
    main(prog_name="gaussmix")
