import click
from versioned_state.cli.settings import verb
@verb("demo", example="vstate demo")
def demo(): pass
