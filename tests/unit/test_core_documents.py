"""Documents from outside: malformed ones are refused in one way, whatever is wrong with them."""

import pytest

from tfimg.core.documents import MAX_DEPTH, MAX_VALUES, InvalidDocument, parse_document, parse_json, parse_object
from tfimg.registry.documents import ImageIndex, ImageManifest

DIGEST = f"sha256:{'a' * 64}"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"size": NaN}', "not valid JSON"),
        (b'{"size": 1e999}', "number that is too large"),
        (b'"\\ud800"', "not valid JSON"),
        (b"9" * 5000, "not valid JSON"),
        (b"[" * 100_000 + b"]" * 100_000, "not valid JSON"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "levels deep"),
        (b"[" + b"0," * MAX_VALUES + b"0]", "values"),
        (b'"' + b"a" * (9 << 20) + b'"', "at most 8388608"),
    ],
)
def test_malformed_json_is_refused(content: bytes, problem: str) -> None:
    with pytest.raises(InvalidDocument, match=problem):
        parse_json(content)


@pytest.mark.parametrize("content", [b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, b"null", b'"text"', b"1"])
def test_json_that_is_not_an_object_is_refused_where_one_is_expected(content: bytes) -> None:
    parse_json(content)
    with pytest.raises(InvalidDocument, match="not a JSON object"):
        parse_object(content)


@pytest.mark.parametrize(
    ("entry", "path"),
    [
        ('{"mediaType": "a", "size": 1}', "layers.0.digest"),
        ('{"mediaType": "a", "digest": "sha256:../../x", "size": 1}', "layers.0.digest"),
        (f'{{"mediaType": "a", "digest": "{DIGEST}\\n", "size": 1}}', "layers.0.digest"),
        (f'{{"mediaType": "a", "digest": "{DIGEST}", "size": -1}}', "layers.0.size"),
        (f'{{"mediaType": "a", "digest": "{DIGEST}", "size": {2**70}}}', "layers.0.size"),
        (f'{{"mediaType": [], "digest": "{DIGEST}", "size": 1}}', "layers.0.mediaType"),
        (f'{{"mediaType": "a", "digest": "{DIGEST}", "size": 1, "annotations": []}}', "layers.0.annotations"),
        ("null", "layers.0"),
    ],
)
def test_a_malformed_descriptor_is_refused_by_its_path(entry: str, path: str) -> None:
    with pytest.raises(InvalidDocument, match=path.replace(".", r"\.")):
        parse_document(ImageManifest, f'{{"layers": [{entry}]}}'.encode())


def test_an_index_may_list_nothing() -> None:
    assert parse_document(ImageIndex, b'{"manifests": null}').manifests == ()
    with pytest.raises(InvalidDocument, match="manifests"):
        parse_document(ImageIndex, b"{}")
