"""Authorization headers for a registry, in response to its WWW-Authenticate challenges."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import requests
from requests.utils import parse_dict_header

from tfimg.core.documents import Document, InvalidDocument, parse_document
from tfimg.core.errors import RegistryError
from tfimg.registry import responses
from tfimg.registry.address import InvalidAddress, Origin, check_realm, parse_origin
from tfimg.registry.credentials import Credentials
from tfimg.registry.reference import Reference
from tfimg.registry.responses import Response

ACTIONS: Mapping[str, str] = {"GET": "pull", "HEAD": "pull", "DELETE": "delete"}
"""Right that a method needs; all others need pull and push (distribution, `handlers/app.go`)."""

CLIENT = "tfimg"
"""Client identifier for token servers, required with a refresh token (OAuth 2.0, RFC 6749)."""

TOKEN = re.compile(r"[\x21-\x7e]{1,32768}")
"""A token that fits a header; those of large organisations at GitLab or Harbor have 4 kB."""


class _TokenDocument(Document):
    """A token server's response. The lifetime is not read: the registry answers 401 to an expired token."""

    token: str | None = None
    access_token: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Authorization:
    """Headers by the actions that they allow, for one repository and its origin. `timeout` as requests has it."""

    reference: Reference
    credentials: Credentials | None
    session: requests.Session
    timeout: tuple[float, float]
    response_seconds: float
    _headers: dict[str, str] = field(default_factory=dict, init=False)

    def header(self, method: str) -> dict[str, str]:
        """Return the headers for a request; empty before the first challenge."""
        value = self._headers.get(_actions(method))
        return {"Authorization": value} if value else {}

    def answer_challenge(self, challenge: str, method: str, origin: Origin) -> bool:
        """Obtain the header that a WWW-Authenticate asks for; return whether it is new.

        The challenge has to come from the registry itself, at `origin`. Raises as `Connection.open`.
        """
        scheme, _, rest = challenge.strip().partition(" ")
        parameters: dict[str, str] = parse_dict_header(rest)  # type: ignore[no-untyped-call]
        if scheme.lower() == "bearer" and parameters.get("realm"):
            value = f"Bearer {self._token(parameters, _actions(method), origin)}"
        elif scheme.lower() == "basic" and self.credentials and self.credentials.username:
            value = _basic(self.credentials)
        else:
            return False
        is_new = self._headers.get(_actions(method)) != value
        self._headers[_actions(method)] = value
        return is_new

    def _token(self, parameters: Mapping[str, str], actions: str, origin: Origin) -> str:
        realm = parameters["realm"]
        try:
            check_realm(origin, parse_origin(realm))
        except InvalidAddress as error:
            raise responses.address_error(self.reference.host, "its token server", realm, error) from None
        query = {"scope": parameters.get("scope") or f"repository:{self.reference.path}:{actions}"}
        if parameters.get("service"):
            query["service"] = parameters["service"]
        try:
            document = parse_document(_TokenDocument, self._request(realm, query).content)
            token = document.token or document.access_token or ""
            if not TOKEN.fullmatch(token):
                raise InvalidDocument("a token has 1 to 32768 printable characters of ASCII")
        except InvalidDocument as error:
            raise RegistryError(
                f"The token server {urlsplit(realm).netloc} of {self.reference.host} sent no valid token: {error}.",
                next_step="Run it again later, or ask its owner.",
            ) from None
        return token

    def _request(self, realm: str, query: Mapping[str, str]) -> Response:
        server, account = urlsplit(realm).netloc, self.credentials
        try:
            if account and account.identity_token:
                grant = {"grant_type": "refresh_token", "client_id": CLIENT, "refresh_token": account.identity_token}
                opened = self.session.post(realm, data={**query, **grant}, timeout=self.timeout, stream=True)
            else:
                headers = {"Authorization": _basic(account)} if account else {}
                opened = self.session.get(realm, params=query, headers=headers, timeout=self.timeout, stream=True)
            with opened:
                response = responses.read_response(opened, server, self.response_seconds)
        except responses.TRANSPORT_ERRORS as error:
            raise responses.map_transport_error(error, server, self.timeout[1]) from None
        if response.status == requests.codes.ok:
            return response
        is_denied = response.status in (400, 401, 403)
        if is_denied and account:
            raise responses.credentials_error(self.reference.host, f"{response.status} {response.message}")
        host = self.reference.host if is_denied else server  # only a 401 depends on credentials
        raise responses.map_response(response, host, self.reference.repository, is_write=False, has_credentials=False)


def _actions(method: str) -> str:
    return ACTIONS.get(method, "pull,push")


def _basic(credentials: Credentials) -> str:
    return f"Basic {b64encode(f'{credentials.username}:{credentials.password}'.encode()).decode()}"
