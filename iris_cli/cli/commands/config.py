"""`iris config ...`: the configuration file."""

from iris_cli.cli.context import Context
from iris_cli.errors import ConfigError, ExitCode

HELP = "Check cluster.yaml."
EXAMPLES = """
iris config validate  # all problems with their lines
iris config validate --config lab.yaml --json
"""
COMMANDS = {"validate": EXAMPLES}


def validate(iris: Context) -> int:
    """Check cluster.yaml and print every problem. Contacts no host."""
    from iris_cli.render.checks import show_problems, show_valid

    try:
        config = iris.config
    except ConfigError as error:
        if not iris.output.as_json:
            raise
        show_problems(iris.output, error)
        return ExitCode.CONFIG
    show_valid(iris.output, config)
    return ExitCode.OK
