"""Options of keys, policies and signed repositories, and what they name."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tfimg.cli.options import RegistryOptions, option, option_group, values
from tfimg.cli.values import require_fingerprint, require_publisher
from tfimg.core.errors import InvalidKey, UsageError

if TYPE_CHECKING:
    from tfimg.attestations.keys import SigningKey, VerifyingKey
    from tfimg.attestations.policy import Policy
    from tfimg.cli.context import Context
    from tfimg.project.project import Project
    from tfimg.publish.repository import SignedRepository
    from tfimg.registry.reference import Reference

PASSWORD_VARIABLE = "TFIMG_KEY_PASSWORD"  # noqa: S105


@option_group
class PasswordOptions:
    """What opens a private key."""

    password_file: str | None = option(
        "its first line is the private key's password; -: standard input (default: TFIMG_KEY_PASSWORD, then "
        "the terminal)",
        "FILE",
    )

    def read_password(self, environ: Mapping[str, str], *, new: bool = False) -> bytes:
        """Return a private key's password; ask twice for a `new` one. Raises `UsageError` without a terminal.

        Its bytes are taken as they are, in any encoding.
        """
        from getpass import getpass

        from tfimg.attestations.keys import MAX_PEM, read_key_file

        if file := self.password_file:
            if file != "-":
                content = read_key_file(file)
            elif len(content := sys.stdin.buffer.readline(MAX_PEM + 1) if sys.stdin else b"") > MAX_PEM:
                step = "Give the password and a line end."
                raise UsageError(f"Standard input has a line of more than {MAX_PEM} bytes.", next_step=step)
            return content.partition(b"\n")[0].rstrip(b"\r")
        if PASSWORD_VARIABLE in environ:
            return os.fsencode(environ[PASSWORD_VARIABLE])
        if not (sys.stdin and sys.stdin.isatty()):
            raise UsageError(
                "The private key needs a password, and there is no terminal to ask for it.",
                next_step=f"Put it into {PASSWORD_VARIABLE}, or into a file that --password-file names.",
            )
        entered = getpass("Password of the private key: ")
        if new and getpass("Repeat it: ") != entered:
            raise InvalidKey("The two passwords differ.", next_step="Try again.")
        return entered.encode()


@option_group
class TrustedKeyOptions(RegistryOptions):
    """The public keys of publishers."""

    public_key: tuple[str, ...] = values(
        "public key of a publisher whom you trust (default: TFIMG_PUBLIC_KEY)", "FILE.pub"
    )

    def public_keys(self, environ: Mapping[str, str]) -> tuple[VerifyingKey, ...]:
        """Return the public keys of --public-key, else of TFIMG_PUBLIC_KEY."""
        return _read_public_keys(self.public_key or _environment_files(environ))


@option_group
class PolicyOptions(RegistryOptions):
    """What is required, what tags promise, and which keys are refused."""

    policy: str | None = option("policy file: requirements, levels of tags, keys", "FILE")
    refuse_key: tuple[str, ...] = values(
        "fingerprint of a key to refuse, even if it is trusted", "SHA256:…", check=require_fingerprint
    )

    def read_policy(self) -> Policy:
        """Return the policy that the options make. Raises `FileError` and `UsageError`."""
        from tfimg.attestations.policy import Policy, read_policy_file

        policy = read_policy_file(self.policy) if self.policy else Policy()
        return replace(policy, refused_keys=policy.refused_keys | set(self.refuse_key))

    def read_image_policy(self, project: Project) -> Policy:
        """Return the policy with what the matrix says of images. Raises as `read_policy`."""
        return replace(self.read_policy(), find_support_ends=project.find_support_ends)


@option_group
class RequirementOptions(PolicyOptions, TrustedKeyOptions):
    """What the attestations of an image have to show, and who may have signed it."""

    require: str | None = option(
        "built, linked or validated; supported, gpu=sm_90, driver>=535, max-age=30d or unlimited; separated by commas "
        "(default: what the tag promises, max-age=90d)",
        "CONDITIONS",
    )
    origin: str | None = option(
        "of a mirror: the publisher's repository, which promotions name (default: the image's own)", "REPOSITORY"
    )

    def read_policy(self) -> Policy:
        """Return the policy that the options make. Raises `FileError` and `UsageError`."""
        from tfimg.attestations.policy import parse_conditions
        from tfimg.registry.reference import parse_repository

        policy = super().read_policy()
        if self.origin:
            policy = replace(policy, origin=parse_repository(self.origin).repository)
        return policy if self.require is None else parse_conditions(self.require, policy=policy)


@option_group
class SigningOptions(PasswordOptions, PolicyOptions):
    """The keys, the publisher's name and the policy of commands that move tags."""

    key: str | None = option("private key that signs; `tfimg keygen` makes a pair (default: TFIMG_KEY)", "FILE.key")
    public_key: tuple[str, ...] = values(
        "public key of another publisher to this repository, beside TFIMG_PUBLIC_KEY", "FILE.pub"
    )
    publisher: str | None = option(
        "name of this machine in attestations and promotions (default: its host name)", "NAME", check=require_publisher
    )

    def signing_key(self, environ: Mapping[str, str]) -> SigningKey:
        """Read the private key of --key, else of TFIMG_KEY; ask for its password if it has one.

        Raises `UsageError` if none is named, `FileError`, and `InvalidKey`, also if the policy refuses it.
        """
        from tfimg.attestations.keys import is_encrypted, read_key_file, read_signing_key

        file = self.key or environ.get("TFIMG_KEY")
        if not file:
            raise UsageError(
                "No key is named to sign the attestations.",
                next_step="Make a pair with `tfimg keygen DIR` and name --key DIR/tfimg.key.",
            )
        pem = read_key_file(file)
        password = self.read_password(environ) if is_encrypted(pem) else None
        key = read_signing_key(pem, password=password, source=file)
        self.read_policy().accepted_keys([key.verifying_key])
        return key

    def own_public_key(self, environ: Mapping[str, str]) -> VerifyingKey | None:
        """Return the public half of the signing key; None if no key is named.

        It is read from FILE.pub beside FILE.key, as `tfimg keygen` writes them, so that no password is asked for. Only
        without such a file is the private key opened. Raises what `signing_key` does.
        """
        named = self.key or environ.get("TFIMG_KEY")
        if not named:
            return None
        beside = Path(named).with_suffix(".pub")
        if not beside.is_file():
            return self.signing_key(environ).verifying_key
        (key,) = _read_public_keys([str(beside)])
        self.read_policy().accepted_keys([key])
        return key

    def trusted_keys(self, environ: Mapping[str, str]) -> tuple[VerifyingKey, ...]:
        """Return the public keys of other publishers: those of --public-key and of TFIMG_PUBLIC_KEY."""
        return _read_public_keys((*self.public_key, *_environment_files(environ)))

    def signed_repository(
        self, context: Context, project: Project, target: Reference, key: SigningKey, *, reinstate: bool = False
    ) -> SignedRepository:
        """Return the repository whose tags move."""
        from tfimg.publish.repository import SignedRepository

        services = project.services
        return SignedRepository(
            registry=self.open_registry(services, target),
            key=key,
            state=services.state,
            policy=self.read_image_policy(project),
            other_keys=self.trusted_keys(services.environ),
            publisher=self.publisher or os.uname().nodename,
            reinstate=reinstate,
            now=services.now,
            warn=cache(context.note),  # each once
        )


def require_keys(keys: tuple[VerifyingKey, ...]) -> tuple[VerifyingKey, ...]:
    """Return the keys. Raises `UsageError` if there are none."""
    if not keys:
        raise UsageError(
            "No key is named, and only attestations that a trusted key signed count.",
            next_step="Name the publisher's public key with --public-key tfimg.pub, or in TFIMG_PUBLIC_KEY.",
        )
    return keys


def split_tag(text: str, environ: Mapping[str, str]) -> tuple[Reference, str | None]:
    """Return the repository and the tag of REGISTRY/NAME[:TAG]; a TAG alone is one of TFIMG_REPOSITORY."""
    from tfimg.registry.reference import parse_reference, parse_repository

    if set("@:") & set(text.rpartition("/")[2]):
        reference = parse_reference(text)
        return reference, reference.tag
    if "/" in text:
        return parse_repository(text), None
    if repository := environ.get("TFIMG_REPOSITORY"):
        return parse_repository(repository), text
    raise UsageError(
        f"{text} is a tag, and no repository is named.",
        next_step="Write `REGISTRY/NAME TAG`, or name the repository in TFIMG_REPOSITORY.",
    )


def _environment_files(environ: Mapping[str, str]) -> list[str]:
    return [name for name in environ.get("TFIMG_PUBLIC_KEY", "").split(":") if name]


def _read_public_keys(files: Sequence[str]) -> tuple[VerifyingKey, ...]:
    from tfimg.attestations.keys import read_key_file, read_verifying_key

    return tuple(read_verifying_key(read_key_file(file), source=file) for file in files)
