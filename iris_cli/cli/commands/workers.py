"""`iris workers`: the inventory."""

from iris_cli.cli.context import Context

EXAMPLES = """
iris workers
iris workers --json | jq -r '.workers[].id'
"""


def workers(iris: Context) -> None:
    """List the workers with free resources and problems."""
    from iris_cli.ops.views.inventory import inventory
    from iris_cli.render.workers import show_inventory

    session, output = iris.session("iris workers"), iris.output
    show_inventory(output, inventory(session, briefly=not output.as_json))
