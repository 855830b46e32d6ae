"""Progress bars that show nothing."""


class ProgressBar:
    """Hands on what it is given."""

    def __call__(self, iterable, max_value=None):
        return iter(iterable)
