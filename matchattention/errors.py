"""The one exception users are meant to read."""


class InputError(ValueError):
    """Something about the given input cannot work; the text says what to do about it.

    The command line prints the text as one sentence and exits with code 2.
    """


class InputWarning(UserWarning):
    """The result may still be useful, but something about the input looks wrong."""
