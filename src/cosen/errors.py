"""What cosen raises. Every message says what is wrong, what was given and what to do."""


class CosenError(Exception):
    """The root of all errors that cosen raises on purpose."""


class InputError(CosenError, ValueError):
    """A tensor or an option that a function cannot work with."""


class DataError(CosenError):
    """Data that is missing, unreadable, or not what was said of it."""


class BrokenImageError(DataError):
    """One image that cannot be decoded."""


class RunError(CosenError):
    """A run that cannot go on, or a run folder that cannot be used."""
