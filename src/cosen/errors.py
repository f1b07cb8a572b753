"""What cosen raises. Every message says what is wrong, what was given and what to do."""


class CosenError(Exception):
    """The root of all errors that cosen raises on purpose."""


class InputError(CosenError, ValueError):
    """A tensor or an option that a function cannot work with."""
