"""Flags that the environment can set, too."""

import argparse

import pytest

from gpu_dra.cli.flags import add_flag
from gpu_dra.cli.node import register


@pytest.fixture
def parser():
    def parser():
        whole = argparse.ArgumentParser(prog="gpu-dra")
        commands = whole.add_subparsers()
        add_flag(commands.add_parser("node"), "--level", env="LEVEL", default="info", help="", choices=("info", "debug"))
        commands.add_parser("detect")
        return whole

    return parser


def refused(parser, *arguments, capsys):
    """What is said of arguments that are refused, on the last line after the usage."""
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(arguments)
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("environment", "arguments", "level"),
    [({}, [], "info"), ({"LEVEL": "debug"}, [], "debug"), ({"LEVEL": "info"}, ["--level", "debug"], "debug")],
)
def test_the_command_line_wins_over_the_environment_and_that_over_the_default(parser, monkeypatch, environment, arguments, level):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert parser().parse_args(["node", *arguments]).level == level


def test_a_bad_value_of_the_environment_is_refused_by_its_own_subcommand_in_a_line_that_names_the_variable(
    parser, monkeypatch, capsys
):
    monkeypatch.setenv("LEVEL", "LOUD")
    line = refused(parser(), "node", capsys=capsys)
    assert line.startswith("gpu-dra node: error: ")
    assert "environment variable LEVEL: 'LOUD': choose from info, debug" in line


@pytest.mark.parametrize("arguments", [["--help"], ["node", "--help"]])
def test_a_bad_value_of_the_environment_keeps_nobody_from_the_help(parser, monkeypatch, arguments):
    monkeypatch.setenv("LEVEL", "LOUD")
    with pytest.raises(SystemExit, match="0"):
        parser().parse_args(arguments)


def test_a_bad_value_of_the_environment_is_nothing_to_other_subcommands(parser, monkeypatch):
    monkeypatch.setenv("LEVEL", "LOUD")
    assert parser().parse_args(["detect"])


def test_a_bad_value_of_the_environment_is_nothing_where_the_command_line_says_otherwise(parser, monkeypatch):
    monkeypatch.setenv("LEVEL", "LOUD")
    assert parser().parse_args(["node", "--level", "debug"]).level == "debug"


@pytest.fixture
def node():
    whole = argparse.ArgumentParser(prog="gpu-dra")
    register(whole.add_subparsers())
    return whole


@pytest.mark.parametrize("value", ["8080", "localhost", "localhost:", "localhost:http", ":70000", ":-1"])
def test_an_endpoint_that_is_no_host_and_port_is_refused(node, capsys, value):
    """A bare port would be all interfaces, which should be written so."""
    assert "is not host:port" in refused(node, "node", "--http-endpoint", value, capsys=capsys)


@pytest.mark.parametrize("value", ["", ":8080", "127.0.0.1:0", "[::1]:8080"])
def test_an_endpoint_is_host_and_port_or_nothing(node, value):
    assert node.parse_args(["node", "--http-endpoint", value]).http_endpoint == value
