"""Progress bars that show nothing."""


def tqdm(iterable):
    """Return what it is given."""
    return iterable
