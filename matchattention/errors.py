"""The one exception users are meant to read, and all others in one line."""


class InputError(ValueError):
    """Something about the given input cannot work; the text says what to do about it.

    The command line prints the text as one sentence and exits with code 2. A full stop that is missing is added.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence if sentence.endswith((".", "!", "?", "…")) else f"{sentence}.")


class InputWarning(UserWarning):
    """The result may still be useful, but something about the input looks wrong."""


def first_line(error: Exception) -> str:
    """An exception in one line, for a log or a result that has to say what went wrong."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300] if lines else 'no message'}"
