"""A directory of downloaded data sets and the cache of what was made of them."""

import hashlib
import os
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from .. import environment

_root: str | None = None


def get_dataset_root() -> str:
    """Directory under which data sets are kept.

    The first of: the argument of :func:`set_dataset_root`; the environment variables
    ``KUSARI_DATASET_ROOT`` and ``CHAINER_DATASET_ROOT``; ``~/.chainer/dataset`` when it exists, so that
    downloads of Chainer are used; ``~/.kusari/dataset``.
    """
    if _root is not None:
        return _root
    configured = environment.text("DATASET_ROOT")
    if configured:
        return configured
    chainers = os.path.join(os.path.expanduser("~"), ".chainer", "dataset")
    if os.path.isdir(chainers):
        return chainers
    return os.path.join(os.path.expanduser("~"), ".kusari", "dataset")


def set_dataset_root(path: str) -> None:
    """Set the directory under which data sets are kept, for this process."""
    global _root
    _root = os.fspath(path)


def get_dataset_directory(dataset_name: str, create_directory: bool = True) -> str:
    """Directory of one data set below :func:`get_dataset_root`, created unless told otherwise.

    Args:
        dataset_name: its name, levels separated by slashes, for example ``'pfnet/chainer/mnist'``.
        create_directory: whether to make the directory.
    """
    path = os.path.join(get_dataset_root(), *dataset_name.split("/"))
    if create_directory:
        os.makedirs(path, exist_ok=True)
    return path


def cached_download(url: str, timeout: float = 30.0) -> str:
    """Download ``url`` once and return the path of the copy, ``<root>/_dl_cache/<md5 of the url>``.

    Raises:
        OSError: the address cannot be reached or the directory cannot be written; the message names the
            file to put in place by hand.
    """
    directory = os.path.join(get_dataset_root(), "_dl_cache")
    path = os.path.join(directory, hashlib.md5(url.encode(), usedforsecurity=False).hexdigest())
    if os.path.exists(path):
        return path
    os.makedirs(directory, exist_ok=True)
    # A partial download must never look like a whole one: write aside, then rename.
    handle, temporary = tempfile.mkstemp(dir=directory, prefix="partial-")
    try:
        with os.fdopen(handle, "wb") as file, urllib.request.urlopen(url, timeout=timeout) as response:
            shutil.copyfileobj(response, file)
        os.replace(temporary, path)
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        raise OSError(
            f"cannot download {url}: {error}. Without a network, fetch the file elsewhere and save it as {path}"
        ) from error
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)
    return path


def cache_or_load_file(path: str, creator: Callable[[str], Any], loader: Callable[[str], Any]) -> Any:
    """Load ``path`` with ``loader`` if it exists, else let ``creator`` make it, and return the content.

    Args:
        path: the cache file.
        creator: called with a path to write; returns the content.
        loader: called with ``path``; returns the content.
    """
    if os.path.exists(path):
        return loader(path)
    directory = os.path.dirname(os.path.abspath(path))
    os.makedirs(directory, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory, prefix="partial-") as folder:
        temporary = os.path.join(folder, os.path.basename(path))
        content = creator(temporary)
        os.replace(temporary, path)
    return content
