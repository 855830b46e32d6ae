"""Annotations of the data set COCO, by their ids."""

import json


class COCO:
    """The annotations of one file."""

    def __init__(self, path):
        with open(path) as file:
            data = json.load(file)
        self._anns = {a["id"]: a for a in data["annotations"]}
        self._imgs = {i["id"]: i for i in data["images"]}

    def getAnnIds(self):
        """Return the ids of all annotations."""
        return list(self._anns)

    def loadAnns(self, ids):
        """Return annotations."""
        return [self._anns[i] for i in ids]

    def loadImgs(self, ids):
        """Return images."""
        return [self._imgs[i] for i in ids]
