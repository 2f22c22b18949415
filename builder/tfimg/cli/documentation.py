"""Where a page of the documentation is: on the published site, else in a checkout."""

from __future__ import annotations


def locate_page(page: str, anchor: str = "") -> str:
    """Return the address of a page such as `how-to/troubleshoot`, or its path in a checkout.

    The package's metadata states the address of the site under `Project-URL: Documentation`, once it is published.
    """
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        entries = metadata("tfimg").get_all("Project-URL") or []
    except PackageNotFoundError:  # run from a checkout without an installation
        entries = []
    addresses = (entry.partition(",")[2].strip() for entry in entries if entry.lower().startswith("documentation,"))
    address = next(addresses, "")
    place = f"{address.rstrip('/')}/{page}.html" if address else f"docs/{page}.md"
    return f"{place}#{anchor}" if anchor else place
