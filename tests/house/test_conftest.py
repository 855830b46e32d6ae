"""A test's changes to the configuration end with it (these two run in this order)."""

from __future__ import annotations

from kusari.configuration import config, global_config


def test_changes_the_configuration() -> None:
    config.train = False
    config.user_key = 1
    global_config.user_other = 2
    global_config.debug = True
    assert not config.train and config.debug


def test_finds_it_as_it_was() -> None:
    assert config.train and not config.debug
    assert not hasattr(config, "user_key") and not hasattr(global_config, "user_other")
