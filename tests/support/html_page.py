"""A page of HTML as tests look at it: elements, text and scripts; its tags must nest."""

from html.parser import HTMLParser

Attributes = dict[str, str | None]
VOID = frozenset({"meta", "input", "link", "br"})


class HtmlPage(HTMLParser):
    """Read a page; fail on tags that do not nest or are never closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, Attributes]] = []
        self.text: list[str] = []
        self.scripts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep an element and its attributes."""
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Require that the innermost element ends."""
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Keep text apart from scripts."""
        (self.scripts if self._open and self._open[-1] == "script" else self.text).append(data)

    @property
    def tags(self) -> list[str]:
        """The name of every element, in order."""
        return [tag for tag, _ in self.elements]

    def having(self, attribute: str) -> list[tuple[str, str]]:
        """Tag and value for each element with an attribute."""
        return [(tag, reported[attribute] or "") for tag, reported in self.elements if attribute in reported]

    def of_class(self, tag: str, word: str) -> list[Attributes]:
        """The attributes of elements of a kind and a class."""
        return [
            reported
            for name, reported in self.elements
            if name == tag and word in (reported.get("class") or "").split()
        ]
