"""The Authorization header for a registry: what it asks for when it says 401, and what it was told before."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import urlsplit

import requests
from requests.utils import parse_dict_header

from tfimg.errors import RegistryRefused, TfimgError
from tfimg.registry.credentials import Credentials
from tfimg.registry.refusals import TRANSPORT, Answer, Asked, of_answer, of_transport, wrong_credentials
from tfimg.registry.retry import Passing, Patience

ACTIONS: Mapping[str, str] = {"GET": "pull", "HEAD": "pull", "DELETE": "delete"}
"""What a method needs the right to; any other, to pull and to push (distribution, `handlers/app.go`)."""

CLIENT = "tfimg"
"""How token servers know programs; they want one where a token is changed for another (OAuth 2.0, RFC 6749)."""


class Authorization:
    """Headers by what they allow. One for each repository: a token is for a repository.

    `cleartext` says that a password may go to a token server without TLS, as to the registry itself.
    """

    def __init__(
        self, *, host: str, path: str, credentials: Credentials | None, session: requests.Session,
        timeout: tuple[float, float], patience: Patience, cleartext: bool,
    ) -> None:  # fmt: skip
        self._host = host
        self._path = path
        self._credentials = credentials
        self._session = session
        self._timeout = timeout
        self._patience = patience
        self._cleartext = cleartext
        self._headers: dict[str, str] = {}

    @property
    def known(self) -> bool:
        """Whether there is somebody to be."""
        return self._credentials is not None

    def header(self, method: str) -> dict[str, str]:
        """What to send with a request, as far as anything was asked for."""
        value = self._headers.get(_actions(method))
        return {"Authorization": value} if value else {}

    def meet(self, challenge: str, method: str) -> bool:
        """Do what a WWW-Authenticate asks for; whether there is anything new to say. Raises as `Connection.once`."""
        kind, _, rest = challenge.strip().partition(" ")
        given: dict[str, str] = parse_dict_header(rest)  # type: ignore[no-untyped-call]
        if kind.lower() == "bearer" and given.get("realm"):
            value = f"Bearer {self._token(given, _actions(method))}"
        elif kind.lower() == "basic" and self._credentials and self._credentials.username:
            value = _basic(self._credentials)
        else:
            return False
        new = self._headers.get(_actions(method)) != value
        self._headers[_actions(method)] = value
        return new

    def _token(self, given: Mapping[str, str], actions: str) -> str:
        realm = given["realm"]
        if self.known and not self._cleartext and urlsplit(realm).scheme != "https":
            raise RegistryRefused(
                f"The registry {self._host} asks for our password to be sent to {realm}, which has no TLS.",
                next_step="Nothing was sent. Ask its owner for a token server with TLS.",
            )
        asked = {"scope": given.get("scope") or f"repository:{self._path}:{actions}"}
        if given.get("service"):
            asked["service"] = given["service"]
        answer = self._ask(realm, asked)
        try:
            document = json.loads(answer.content)
            return str(document.get("token") or document["access_token"])
        except (ValueError, KeyError, AttributeError):
            raise RegistryRefused(
                f"The token server {urlsplit(realm).netloc} of {self._host} gave no token.",
                next_step="Its owner may know why; run it again later.",
            ) from None

    def _ask(self, realm: str, asked: Mapping[str, str]) -> Answer:
        server, us = urlsplit(realm).netloc, self._credentials
        try:
            if us and us.identity_token:
                form = {
                    **asked, "grant_type": "refresh_token", "client_id": CLIENT, "refresh_token": us.identity_token,
                }  # fmt: skip
                response = self._session.post(realm, data=form, timeout=self._timeout, allow_redirects=False)
            else:
                headers = {"Authorization": _basic(us)} if us else {}
                response = self._session.get(
                    realm, params=asked, headers=headers, timeout=self._timeout, allow_redirects=False
                )
        except TRANSPORT as error:
            raise of_transport(error, server, self._timeout[1]) from None
        answer = Answer(
            status=response.status_code, headers=response.headers, content=response.content, url=realm
        )
        if answer.status == requests.codes.ok:
            return answer
        raise self._refused(answer, server)

    def _refused(self, answer: Answer, server: str) -> Passing | TfimgError:
        no_entry = answer.status in (400, 401, 403)
        if no_entry and self.known:
            return wrong_credentials(self._host, f"{answer.status} {answer.words}")
        asked = Asked(
            host=self._host if no_entry else server, repository=f"{self._host}/{self._path}", writing=False,
            known=self.known,
        )  # fmt: skip
        return of_answer(answer, asked, self._patience)


def _actions(method: str) -> str:
    return ACTIONS.get(method, "pull,push")


def _basic(credentials: Credentials) -> str:
    pair = f"{credentials.username}:{credentials.password}".encode()
    return f"Basic {b64encode(pair).decode()}"
