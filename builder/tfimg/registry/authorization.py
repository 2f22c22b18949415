"""The Authorization header for a registry: what it asks for when it says 401, and what it was told before."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from contextlib import closing
from urllib.parse import urlsplit

import requests
from requests.utils import parse_dict_header

from tfimg.core.documents import Document, InvalidDocument, parse_document
from tfimg.core.errors import RegistryError, TfimgError
from tfimg.registry.address import InvalidAddress, Origin, check_realm, parse_origin
from tfimg.registry.credentials import Credentials
from tfimg.registry.error_mapping import (
    TRANSPORT_ERRORS,
    RequestContext,
    Response,
    address_error,
    credentials_error,
    map_response,
    map_transport_error,
)
from tfimg.registry.responses import read_response
from tfimg.registry.retry import RetryPolicy, TransientError

ACTIONS: Mapping[str, str] = {"GET": "pull", "HEAD": "pull", "DELETE": "delete"}
"""What a method needs the right to; any other, to pull and to push (distribution, `handlers/app.go`)."""

CLIENT = "tfimg"
"""How token servers know programs; they want one where a token is changed for another (OAuth 2.0, RFC 6749)."""


TOKEN = re.compile(r"[\x21-\x7e]{1,32768}")
"""A token as a header can have it; that of a large organisation at GitLab or Harbor has 4 kB."""


class TokenAnswer(Document):
    """A token server's answer. How long the token is valid is not read: the registry says 401 when it no longer is."""

    token: str | None = None
    access_token: str | None = None


class Authorization:
    """Headers by what they allow. One for each repository: a token is for a repository, and for its origin alone."""

    def __init__(
        self,
        *,
        host: str,
        path: str,
        credentials: Credentials | None,
        session: requests.Session,
        timeout: tuple[float, float],
        response_seconds: float,
        retry_policy: RetryPolicy,
    ) -> None:
        self._host = host
        self._path = path
        self._credentials = credentials
        self._session = session
        self._timeout = timeout
        self._answer_seconds = response_seconds
        self._patience = retry_policy
        self._headers: dict[str, str] = {}

    @property
    def known(self) -> bool:
        """Whether there is somebody to be."""
        return self._credentials is not None

    def header(self, method: str) -> dict[str, str]:
        """What to send with a request, as far as anything was asked for."""
        value = self._headers.get(_actions(method))
        return {"Authorization": value} if value else {}

    def meet(self, challenge: str, method: str, origin: Origin) -> bool:
        """Do what a WWW-Authenticate of the registry at `origin` asks for; return whether there is a new header.

        Only an answer of the registry's own may be given to this. Raises as `Connection.once`.
        """
        kind, _, rest = challenge.strip().partition(" ")
        given: dict[str, str] = parse_dict_header(rest)  # type: ignore[no-untyped-call]
        if kind.lower() == "bearer" and given.get("realm"):
            value = f"Bearer {self._token(given, _actions(method), origin)}"
        elif kind.lower() == "basic" and self._credentials and self._credentials.username:
            value = _basic(self._credentials)
        else:
            return False
        new = self._headers.get(_actions(method)) != value
        self._headers[_actions(method)] = value
        return new

    def _token(self, given: Mapping[str, str], actions: str, origin: Origin) -> str:
        realm = given["realm"]
        try:
            check_realm(origin, parse_origin(realm))
        except InvalidAddress as error:
            raise address_error(self._host, "its token server", realm, error) from None
        asked = {"scope": given.get("scope") or f"repository:{self._path}:{actions}"}
        if given.get("service"):
            asked["service"] = given["service"]
        answer = self._ask(realm, asked)
        try:
            document = parse_document(TokenAnswer, answer.content)
            token = document.token or document.access_token or ""
            if not TOKEN.fullmatch(token):
                raise InvalidDocument("a token has 1 to 32768 printable characters of ASCII")
        except InvalidDocument as error:
            raise RegistryError(
                f"The token server {urlsplit(realm).netloc} of {self._host} gave no valid token: {error}.",
                next_step="Its owner may know why; run it again later.",
            ) from None
        return token

    def _ask(self, realm: str, asked: Mapping[str, str]) -> Response:
        server, us = urlsplit(realm).netloc, self._credentials
        try:
            if us and us.identity_token:
                form = {
                    **asked,
                    "grant_type": "refresh_token",
                    "client_id": CLIENT,
                    "refresh_token": us.identity_token,
                }
                response = self._session.post(realm, data=form, timeout=self._timeout, stream=True)
            else:
                headers = {"Authorization": _basic(us)} if us else {}
                response = self._session.get(realm, params=asked, headers=headers, timeout=self._timeout, stream=True)
            with closing(response):
                answer = read_response(response, server, self._answer_seconds)
        except TRANSPORT_ERRORS as error:
            raise map_transport_error(error, server, self._timeout[1]) from None
        if answer.status == requests.codes.ok:
            return answer
        raise self._refused(answer, server)

    def _refused(self, answer: Response, server: str) -> TransientError | TfimgError:
        no_entry = answer.status in (400, 401, 403)
        if no_entry and self.known:
            return credentials_error(self._host, f"{answer.status} {answer.words}")
        asked = RequestContext(
            host=self._host if no_entry else server,
            repository=f"{self._host}/{self._path}",
            writing=False,
            known=self.known,
        )
        return map_response(answer, asked, self._patience)


def _actions(method: str) -> str:
    return ACTIONS.get(method, "pull,push")


def _basic(credentials: Credentials) -> str:
    pair = f"{credentials.username}:{credentials.password}".encode()
    return f"Basic {b64encode(pair).decode()}"
