"""``vstate sign`` makes a signed commit that covers all history before it, or a new key. Layer: cli."""

from __future__ import annotations

import os
from pathlib import Path

import click

from versioned_state.cli.render.output import Output, Span
from versioned_state.cli.shared import completion
from versioned_state.cli.shared.handle import author_option, handle, message_option, print_commits
from versioned_state.cli.shared.settings import Settings, verb
from versioned_state.errors import InvalidArgumentError


@verb("sign", example="vstate --sign-key ~/agent.pem sign -m 'checked by Ana'")
@message_option("sign")
@author_option
@click.option(
    "--new-key",
    metavar="FILE",
    help="Only make a key: the private half in FILE, the public half in FILE.pub.",
    shell_complete=completion.file,
)
@click.pass_obj
def sign(settings: Settings, *, message: str, author: str | None, new_key: str | None) -> None:
    """Make a signed commit without changes on the current branch. A signature covers a commit and everything before it.

    --sign-key or $VSTATE_SIGN_KEY names the key: Ed25519, in PEM or in OpenSSH's format, without a password. Every
    other command that commits signs with it too. vstate verify checks signatures.
    """
    if new_key is not None:
        _make_key(settings.output, Path(new_key))
        return
    with handle(settings, author) as state:
        signer = state.repository.signer
        if signer is None:
            raise InvalidArgumentError(
                "there is no key to sign with", hint="--sign-key names its file; --new-key makes one"
            )
        head = state.head
        # The commit's own word is not enough: anybody could have written it.
        if not state.repository.verify(head, keys=[signer.public_key], limit=1).ok:
            head = state.commit(message or "sign", allow_empty=True)
        print_commits(settings.output, state, head, nothing=f"{state.branch} is signed with that key already")


def _make_key(output: Output, file: Path) -> None:
    from versioned_state.repository.history.signing import Signer

    signer = Signer.generate()
    public = file.with_name(file.name + ".pub")
    # Nobody else can read the file from its first moment on; an existing file is never overwritten.
    for name, mode, content in ((file, 0o600, signer.private_pem()), (public, 0o644, signer.public_pem())):
        with open(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as target:  # noqa: PTH123
            target.write(content)
    output.print("key ", Span(signer.key_id, "id"), f" is in {file}, and its public half in {public}")
