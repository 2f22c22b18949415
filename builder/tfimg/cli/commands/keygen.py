"""`tfimg keygen`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tfimg.cli.context import Context
from tfimg.cli.options import Command, argument
from tfimg.cli.trust_options import PasswordOptions
from tfimg.core.errors import FileError


@dataclass(frozen=True)
class Keygen(Command, PasswordOptions):
    """Make a pair of keys: the private one signs evidence, the public one verifies it.

    Examples:
      tfimg keygen ~/tfimg-keys
      tfimg keygen keys --password-file password.txt
    """

    folder: str = argument("folder for tfimg.key and tfimg.pub; neither may exist", "DIR")

    def run(self, context: Context) -> int:
        from tfimg.core.files import write_once
        from tfimg.evidence.keys import generate_key

        folder = Path(self.folder)
        private, public = folder / "tfimg.key", folder / "tfimg.pub"
        for file in (private, public):
            if file.exists():
                raise FileError(
                    f"{file} exists already, and may have signed evidence.",
                    next_step="Name another folder, or move the old pair away.",
                )
        key = generate_key()
        pem = key.pem(self.read_password(context.services.environ, new=True))
        folder.mkdir(parents=True, exist_ok=True)
        write_once(private, pem, mode=0o600)
        write_once(public, key.verifying_key.pem, mode=0o644)
        fields = {"private": str(private), "public": str(public), "fingerprint": key.verifying_key.identifier}
        context.print_result({"event": "keys", **fields}, fields)
        context.say(f"Keep {private.name} and its password secret; give {public.name} to everyone who verifies.")
        return 0
