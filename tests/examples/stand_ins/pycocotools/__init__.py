"""Tools for the data set COCO."""
