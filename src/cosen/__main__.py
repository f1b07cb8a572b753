"""``python -m cosen`` is the ``cosen`` command."""

from cosen.cli import main

if __name__ == "__main__":
    main()
