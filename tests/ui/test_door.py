"""Who is let in, and with what: each rule of the door, over a real server."""

import re

import pytest

from tests.ui.conftest import PAGES, RUN
from tests.ui.site import served, tight
from tidemill.ui.door import FORM_TOKEN

STATIC = ("/static/page.css", "/static/page.js", "/static/live.js", "/static/icon.svg")
FORM = "application/x-www-form-urlencoded"
ORDER = f"/runs/{RUN}/order"


@pytest.mark.parametrize("path", [*PAGES, *STATIC, "/nothing", "/pipelines/pipeline/plan"])
def test_every_route_wants_the_token(site, path):
    found = site.visitor().ask(path)
    assert found.status == 401 and "open the link" in found.text
    assert "set-cookie" not in found.headers


@pytest.mark.parametrize("path", ["/", f"/runs/{RUN}"])
def test_event_streams_want_the_token(site, path):
    with site.visitor().stream(path) as answer:
        assert answer.status == 401


def test_posts_want_the_token(site):
    stranger = site.visitor()
    headers = {"Origin": stranger.origin, "Content-Type": FORM}
    assert stranger.ask(ORDER, "POST", "order=cancel", **headers).status == 401


def test_the_link_is_exchanged_for_a_cookie_and_leaves_the_address(site):
    found = site.visitor().ask(f"/runs?token={site.token}&state=failed")
    assert found.status == 303 and found.headers["location"] == "/runs?state=failed"
    cookie = found.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and "path=/" in cookie
    assert site.token not in str(found.headers)
    assert found.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("token", ["", "wrong", "t" * 42, "t" * 44, "%ff%00", "é"])
def test_a_wrong_token_is_refused(site, token):
    from urllib.parse import quote

    given = token if "%" in token else quote(token)
    found = site.visitor().ask(f"/?token={given}")
    assert found.status == 401 and "set-cookie" not in found.headers


def test_tokens_are_compared_in_constant_time(site, monkeypatch):
    """The comparison is `hmac`'s, over digests of equal length."""
    compared = []

    def compare(one, other):
        compared.append((len(one), len(other)))
        return False

    monkeypatch.setattr("tidemill.ui.access.hmac.compare_digest", compare)
    assert site.visitor().ask("/?token=x").status == 401
    assert compared == [(32, 32)]


def test_a_cookie_of_elsewhere_opens_nothing(site, visitor):
    name = visitor.cookie.partition("=")[0]
    assert name == f"tidemill_{site.port}", "two servers on a machine do not take each other's"
    visitor.cookie = f"{name}={site.token}"
    assert visitor.ask("/").status == 401, "the token itself is no cookie"


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:{port}", "127.0.0.1.evil:{port}"),
        *("127.0.0.1", "127.0.0.1:1", ""),
    ],
)
def test_a_name_that_is_not_the_servers_is_refused(visitor, host):
    """DNS rebinding: the name of another site that points here; on pages and event streams."""
    name = host.format(port=visitor.port)
    assert visitor.ask("/", Host=name).status in (400, 421)
    assert visitor.ask("/static/page.js", Host=name).status in (400, 421)
    with visitor.stream("/", Host=name) as answer:
        assert answer.status in (400, 421)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "LOCALHOST"])
def test_the_servers_own_names_are_known(visitor, name):
    assert visitor.ask("/", Host=f"{name}:{visitor.port}").status == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
def test_another_origin_is_refused(site, visitor, origin):
    assert visitor.ask("/", Origin=origin).status == 403
    with visitor.stream("/", Origin=origin) as answer:
        assert answer.status == 403
    found = visitor.send(ORDER, {"order": "cancel"}, f"/runs/{RUN}", Origin=origin)
    assert found.status == 403 and "another site" in found.text


def test_requests_that_a_browser_says_come_from_elsewhere_are_refused(visitor):
    assert visitor.ask("/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors").status == 403
    assert visitor.ask("/", Sec_Fetch_Site="same-site", Sec_Fetch_Mode="cors").status == 403
    assert visitor.ask("/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate").status == 200
    assert visitor.ask("/", Sec_Fetch_Site="same-origin", Sec_Fetch_Mode="cors").status == 200


def test_a_change_wants_an_origin_and_the_forms_token(site, visitor):
    token, path = visitor.form_token(f"/runs/{RUN}/review"), ORDER
    own = {"Origin": visitor.origin, "Content-Type": FORM}
    other = site.visitor().enter().form_token(f"/runs/{RUN}/review")
    assert visitor.ask(path, "POST", f"{FORM_TOKEN}={token}", Content_Type=FORM).status == 403
    assert visitor.ask(path, "POST", "order=pause", **own).status == 403
    assert visitor.ask(path, "POST", f"{FORM_TOKEN}={other}", **own).status == 403
    assert visitor.ask(path, "POST", f"{FORM_TOKEN}=%ff", **own).status == 400
    assert visitor.ask(path, "POST", f"{FORM_TOKEN}={token}&order=pause", **own).status == 409


def test_a_form_is_a_form(visitor):
    own = {"Origin": visitor.origin}
    assert visitor.ask(ORDER, "POST", "{}", **own, Content_Type="application/json").status == 415
    assert visitor.ask(ORDER, "POST", "x", **own, Content_Type="text/plain").status == 415


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_refused(visitor, method):
    assert visitor.ask("/", method).status == 405


def test_nothing_is_changed_by_looking(visitor):
    assert visitor.ask(ORDER).status == 405
    assert visitor.ask(f"/runs/{RUN}/decide?action=publish").status == 405


def test_every_answer_has_the_headers(site, visitor):
    answers = [visitor.ask(path) for path in (*PAGES, *STATIC, "/nothing")]
    answers.append(site.visitor().ask("/"))
    answers.append(visitor.ask("/", Host="evil.example"))
    for found in answers:
        policy = found.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
        assert "frame-ancestors 'none'" in policy and "base-uri 'none'" in policy
        assert found.headers["x-content-type-options"] == "nosniff"
        assert found.headers["referrer-policy"] in ("same-origin", "no-referrer")
        assert found.headers["cache-control"] == "no-store"
        assert found.headers["cross-origin-opener-policy"] == "same-origin"
        assert found.headers["cross-origin-resource-policy"] == "same-origin"
        assert "server" not in found.headers


def test_pages_need_no_exception_from_the_policy(visitor):
    """No script or style in the page, no handler, nothing from elsewhere."""
    for path in PAGES:
        text = visitor.ask(path).text
        assert not re.search(r"<[^>]*\s(style|on\w+)\s*=", text), path
        assert not re.search(r"<style|<script(?![^>]* src=\"/static/)", text), path
        assert not re.search(r"(?:src|href|action)=\"(?!/|\?|#|data:)", text), path


def test_a_body_has_an_end(hostile):
    with served(hostile.project, limits=tight(body=1_000, fields=5)) as small:
        visitor = small.visitor().enter()
        own = {"Origin": visitor.origin, "Content-Type": FORM}
        assert visitor.ask(ORDER, "POST", "x" * 1_001, **own).status == 413
        assert (
            visitor.ask(ORDER, "POST", "&".join(f"a{n}=1" for n in range(9)), **own).status == 400
        )

        def parts():
            for _ in range(50):
                yield b"x" * 100

        assert visitor.ask(ORDER, "POST", parts(), **own).status == 413
        assert visitor.ask(f"/runs?x={'y' * 20_000}").status == 414


def test_a_body_that_does_not_come_is_not_waited_for(hostile):
    with served(hostile.project, limits=tight(patience=0.2)) as hasty:
        visitor = hasty.visitor().enter()
        own = {"Origin": visitor.origin, "Content-Type": FORM, "Content-Length": "10"}
        assert visitor.ask(ORDER, "POST", "short", **own).status == 408


def test_an_address_may_ask_for_so_much(hostile):
    with served(hostile.project, limits=tight(burst=30, rate=0.001)) as busy:
        visitor = busy.visitor().enter()
        found = [visitor.ask("/static/icon.svg").status for _ in range(40)]
        assert set(found) == {200, 429}
        assert found.index(429) == 29


def test_guessing_is_dearer_than_looking(hostile):
    with served(hostile.project, limits=tight(burst=100, rate=0.001)) as busy:
        found = [busy.visitor().ask("/?token=guess").status for _ in range(10)]
        assert found.count(401) == 5 and found[-1] == 429


def test_so_many_event_streams_are_open_at_once(hostile):
    with served(hostile.project, limits=tight(streams=2)) as few:
        visitor = few.visitor().enter()
        with visitor.stream("/") as one, visitor.stream("/runs") as two:
            assert (one.status, two.status) == (200, 200)
            assert one.readline() and two.readline()
            with visitor.stream("/") as three:
                assert three.status == 503
                assert "too many pages are open" in three.read().decode()


def test_a_read_only_page_changes_nothing(hostile):
    with served(hostile.project, read_only=True) as shown:
        visitor = shown.visitor().enter()
        assert "read-only" in visitor.ask("/").text
        assert FORM_TOKEN not in visitor.ask(f"/runs/{RUN}/review").text
        own = {"Origin": visitor.origin, "Content-Type": FORM}
        for path in (
            ORDER,
            f"/runs/{RUN}/decide",
            f"/runs/{RUN}/compare",
            "/pipelines/pipeline/start",
        ):
            found = visitor.ask(path, "POST", "order=cancel", **own)
            assert found.status == 403 and "--read-only" in found.text


@pytest.mark.parametrize(
    "path", ["../app.py", "%2e%2e/app.py", "..%2fdesk.py", "%5c..%5capp.py", ""]
)
def test_files_beside_the_static_ones_are_not_served(visitor, path):
    found = visitor.ask(f"/static/{path}")
    assert found.status == 404 and "import" not in found.text
