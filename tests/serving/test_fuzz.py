"""Damaged uploads and odd requests: each gets an answer, and never a traceback."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robustness.damage import damaged, fuzz
from serving.conftest import BODY, encoded, files

pytestmark = [pytest.mark.training, pytest.mark.xdist_group("serving")]

IMAGES = [encoded(kind=kind) for kind in ("PNG", "JPEG", "GIF", "BMP", "WEBP")]
TEXTS = st.text(max_size=30) | st.sampled_from(
    ["train", "outputs", "none", "0=1", "recall:0=0.9", "[[0]]", "-1"]
)


@fuzz(100)
@given(st.lists(st.sampled_from(IMAGES).flatmap(damaged) | st.binary(max_size=60), max_size=3))
def test_damaged_images_never_break_the_server(client, contents):
    answer = client.post("/predict", files=files(*contents)) if contents else None
    if answer is not None:
        assert answer.status_code == 200
        assert "Traceback" not in answer.text
        assert len(answer.json()["images"]) == len(contents)


@fuzz(60)
@given(
    st.dictionaries(st.sampled_from(["prior", "decide", "costs", "top", "details"]), TEXTS),
    st.sampled_from(["0.png", "../../x", "a\0b", "\N{SNOWMAN}", "C:\\x", "'; --"]),
)
def test_odd_options_never_break_the_server(client, fields, name):
    answer = client.post("/predict", files={"images": (name, IMAGES[0])}, data=fields)
    assert answer.status_code in (200, 422)
    assert "Traceback" not in answer.text


@pytest.mark.filterwarnings(  # Starlette leaves the files of a damaged form to Python
    "ignore::pytest.PytestUnraisableExceptionWarning"
)
@fuzz(60)
@given(
    damaged(BODY),
    st.sampled_from(["/predict", "/model", "/", "/docs", "/x", "/predict/"]),
    st.sampled_from(["POST", "GET", "PUT", "DELETE", "OPTIONS"]),
    st.sampled_from(["multipart/form-data; boundary=b", "multipart/form-data", "application/json"]),
)
def test_odd_requests_never_break_the_server(client, body, path, method, kind):
    answer = client.request(method, path, content=body, headers={"content-type": kind})
    assert answer.status_code < 500
    assert "Traceback" not in answer.text
