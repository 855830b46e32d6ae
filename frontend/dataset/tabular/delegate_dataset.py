"""A base for classes that are made of a dataset with named columns."""

from __future__ import annotations

from .tabular_dataset import TabularDataset, View


class DelegateDataset(View):
    """Dataset with the columns of another one: a class of your own inherits it and gives it what it reads.

    Args:
        dataset: The dataset that is read.

    >>> from kusari.dataset import tabular
    >>> class Squares(tabular.DelegateDataset):
    ...     def __init__(self):
    ...         super().__init__(tabular.from_data((("n", [1, 2, 3]), ("square", self.square))))
    ...     def square(self, i):
    ...         return (i + 1) ** 2
    >>> Squares()[2], Squares().slice[:2, "square"].fetch()
    ((3, 9), [1, 4])
    """

    def __init__(self, dataset: TabularDataset) -> None:
        super().__init__(dataset)
