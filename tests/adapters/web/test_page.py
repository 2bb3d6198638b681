"""The dashboard in a real browser, with runs of other processes (docs: The page and the HTTP API)."""

import json
import re
from collections.abc import Iterator
from typing import Any

import loopback
import pytest
import web_server
from web_server import ANA, BEN, EVE, Site, going

from tests.dashboard import ASKS, POLICY, Person, ends, expect, needs_browser, waiting

pytestmark = needs_browser
HOSTILE = (
    "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
    "\u202e\u0007\u3164\u034f\ufe0f⚠️<b>bold</b>"
)


def test_a_run_appears_and_is_approved_with_the_keyboard(person: Person, site: Site) -> None:
    """Without a reload or a pointer. The run continues, and its page shows it. The token has left the address. A
    request answered in one tab disappears in another person's, with the author.
    """
    tab, second = person.opens(), person.opens("#/approvals", BEN)
    expect(tab.get_by_role("status").filter(has_text="live")).to_be_visible()
    assert "token" not in tab.url
    with waiting(site) as run_id:
        expect(tab.locator(".run").filter(has_text=run_id[:12])).to_contain_text("waiting")
        expect(tab.get_by_role("link", name="Approvals 1 waiting")).to_be_visible()
        expect(second.get_by_role("article")).to_have_count(1)
        tab.keyboard.press("2")
        card = tab.get_by_role("article")
        expect(card).to_contain_text("notes.txt")
        expect(card.locator(".add")).to_have_count(2)
        expect(tab.locator(".moved")).to_have_count(0)
        tab.keyboard.press("j")
        tab.keyboard.press("a")
        expect(tab.get_by_role("button", name="Approve")).to_be_focused()
        tab.keyboard.press("Enter")
        expect(tab.get_by_text("Nothing waits for a person.")).to_be_visible()
        expect(second.get_by_text("write was approved by ana.")).to_be_visible()
        expect(second.get_by_text("Nothing waits for a person.")).to_be_visible()
        expect(tab.get_by_text("write was approved by ana.")).to_have_count(0)
        tab.evaluate("id => { location.hash = `#/run/${id}` }", run_id)
        expect(tab.get_by_text("It is written.").first).to_be_visible()
        expect(tab.locator(".about .pill")).to_have_text("completed")
        expect(tab.get_by_text("approved by ana")).to_be_visible()
        expect(tab.get_by_role("meter", name="tool calls")).to_have_attribute("aria-valuetext", "1 of 10")
        tab.locator(".call summary", has_text="Why").click()
        expect(tab.locator(".steps").first).to_contain_text("require human-approval before write")
        assert ends(site, run_id)[-1]["type"] == "run_completed"


def test_signing_in_with_another_token_opens_one_stream(person: Person) -> None:
    """A link opened in a tab where somebody is signed in."""
    tab = person.opens()
    expect(tab.get_by_role("status").filter(has_text="live")).to_be_visible()
    with tab.expect_event("requestfailed", lambda request: request.url.endswith("/api/changes")):
        tab.evaluate("token => { location.hash = `#token=${token}` }", BEN)


def test_a_call_is_denied_with_a_text_for_the_model(person: Person, site: Site) -> None:
    """On the run's own page, live; the text reaches the model."""
    with waiting(site) as run_id:
        tab = person.opens(f"#/run/{run_id}")
        expect(tab.get_by_role("button", name="Deny")).to_be_visible()
        expect(tab.locator(".moved")).to_have_count(0)
        tab.keyboard.press("d")
        tab.keyboard.type("Ask ops first.")
        tab.keyboard.press("Control+Enter")
        expect(tab.get_by_text("Then not.").first).to_be_visible()
        expect(tab.locator(".call")).to_contain_text("declined by ana")
        expect(tab.locator(".call .why p").filter(has_text="human-approval")).to_have_count(1)  # not twice
        words = [event["tell_model"] for event in ends(site, run_id) if event["type"] == "tool_call_denied"]

    assert words == ["Ask ops first."]


def test_a_call_is_approved_for_the_rest_of_the_run(person: Person, site: Site) -> None:
    """If the policy allows it, there is a button, and the next call asks nobody."""
    policy = POLICY.replace("timeout_s: 120", "timeout_s: 120, approvers: ['@leads'], scope: run")
    call = "  - {call: write, input: {path: a.txt, content: one}}\n"
    with going(site, f"tools: [write]\nsteps:\n{call}{call}", policy) as process, web_server.waits(process) as event:
        tab = person.opens("#/approvals")
        card = tab.get_by_role("article")
        expect(card).to_contain_text("@leads")
        expect(card.get_by_role("button", name="Approve for the rest of the session")).to_have_count(0)
        card.get_by_role("button", name="Approve for the rest of the run").click()
        types = [each["type"] for each in ends(site, event["run_id"])]

    assert (types.count("tool_call_completed"), types[-1]) == (2, "run_completed")


def test_a_second_tap_does_not_answer_the_next_call(person: Person, site: Site) -> None:
    """The next call's button appears at the same position, and works only after a moment. The keyboard
    has no delay.
    """
    call = "  - {call: write, input: {path: a.txt, content: one}}\n"
    with going(site, f"tools: [write]\nsteps:\n{call}{call}", POLICY) as process, web_server.waits(process) as event:
        tab = person.opens("#/approvals")
        expect(tab.get_by_role("article")).to_be_visible()
        tab.evaluate(
            """() => new MutationObserver((found) => {
                const added = found.flatMap((each) => [...each.addedNodes]).find((each) => each.matches("article"));
                if (!added) return;
                const place = added.querySelector("button.main").getBoundingClientRect();
                document.body.lang = document.elementFromPoint(place.x + 5, place.y + 5).tagName;
            }).observe(document.querySelector(".approvals"), { childList: true })"""
        )
        tab.get_by_role("button", name="Approve").click()
        expect(tab.get_by_text("write was approved").or_(tab.get_by_text("Approved: write"))).to_be_visible()
        expect(tab.locator("body")).to_have_attribute("lang", "DIV")
        tab.get_by_role("button", name="Approve").click()
        assert ends(site, event["run_id"])[-1]["type"] == "run_completed"


def test_a_link_to_a_call_behind_many_others_shows_its_card(person: Person, site: Site) -> None:
    """The list has the oldest hundred; a notification may be about any."""
    with waiting(site) as run_id:
        approval_id = f"{run_id}.1"
        tab = person.opens()
        tab.route("**/api/approvals", lambda route: route.fulfill(json={"approvals": [], "total": 101}))
        tab.evaluate("id => { location.hash = `#/approvals/${id}` }", approval_id)
        expect(tab.get_by_text("1 of 101 waiting")).to_be_visible()
        expect(tab.get_by_role("article")).to_be_focused()
        tab.get_by_role("button", name="Approve").click()
        assert ends(site, run_id)[-1]["type"] == "run_completed"


def test_words_for_a_call_that_is_answered_meanwhile_answer_no_other(person: Person, site: Site) -> None:
    """Another person is first, and the next call's card comes: a letter is a key of the page, and a blank presses the
    button that has the focus. The card stays until its words are left.
    """
    call = "  - {call: write, input: {path: a.txt, content: one}}\n"
    with going(site, f"tools: [write]\nsteps:\n{call}{call}", POLICY) as process, web_server.waits(process) as event:
        tab = person.opens("#/approvals")
        tab.get_by_label("Note").focus()
        tab.keyboard.type("he has ")
        [first] = site.get("/api/approvals")["approvals"]
        answer = {"answer": "grant", "input_digest": first["input_digest"]}
        assert site.ask("POST", f"/api/approvals/{first['approval_id']}/answer", token=BEN, body=answer).status == 200
        expect(tab.get_by_text("write was approved by ben.")).to_be_visible()
        expect(tab.get_by_role("article")).to_have_count(2)
        tab.keyboard.type("a a problem")
        tab.keyboard.press("Control+Enter")
        [second] = site.get("/api/approvals")["approvals"]
        tab.get_by_role("heading", level=1).click()
        expect(tab.get_by_role("article")).to_have_count(1)
        tab.get_by_label("Note").fill("He has none.")
        tab.get_by_label("Note").press("Control+Enter")
        expect(tab.get_by_role("article")).to_have_count(0)
        assert ends(site, event["run_id"])[-1]["type"] == "run_completed"

    assert second["approval_id"] != first["approval_id"]


def test_cards_that_move_again_stay_still_for_as_long(person: Person) -> None:
    """For taps and for keys. The delay is counted from the last move, not the first."""
    tab = person.opens("#/approvals")
    tab.clock.install()
    tab.evaluate(
        """async () => {
            const { focusAnswer, showCards } = await import("/page/approvals.js");
            const { Keyed, h } = await import("/page/dom.js");
            const list = document.body.appendChild(h("div", { id: "cards" }));
            const made = (id) => h("article", {}, h("button", { "data-key": "a" }, `Card ${id}`));
            const cards = new Keyed(list, (each) => each, (id) => ({ element: made(id), show() {} }));
            window.move = (...ids) => showCards(cards, ids);
            window.key = () => focusAnswer(cards, "a", 0);
        }"""
    )
    tab.evaluate("() => { move(1) }")
    tab.clock.run_for(500)
    tab.evaluate("() => { move(2) }")
    tab.clock.run_for(500)
    expect(tab.locator("#cards")).to_have_class("moved")
    tab.evaluate("() => { key() }")
    expect(tab.get_by_role("button", name="Card 2")).not_to_be_focused()
    tab.clock.run_for(500)
    expect(tab.locator("#cards")).to_have_class("")
    tab.evaluate("() => { key() }")
    expect(tab.get_by_role("button", name="Card 2")).to_be_focused()


def test_a_late_answer_is_reported(person: Person, site: Site) -> None:
    """On a slow network: it is shown as being sent, then that another person's was first, although its
    card is gone.
    """
    with waiting(site) as run_id:
        slow, quick = person.opens("#/approvals"), person.opens("#/approvals", BEN)
        held: list[Any] = []
        slow.route("**/answer", lambda route: held.append(route))
        slow.get_by_role("button", name="Approve").click()
        expect(slow.get_by_role("article")).to_contain_text("Sending…")
        quick.get_by_role("button", name="Deny").click()
        expect(slow.get_by_text("Nothing waits for a person.")).to_be_visible()
        held[0].continue_()
        expect(slow.get_by_text("is closed: declined by ben")).to_be_visible()
        assert ends(site, run_id)[-1]["type"] == "run_completed"
    person.wrong.clear()


def test_a_call_whose_run_is_lost_cannot_be_answered(person: Person, site: Site) -> None:
    """Its owner is gone after the card was shown, and nothing is stored of that: the buttons go. A run that waits for
    nobody is not counted among those that wait.
    """
    with going(site, ASKS, POLICY) as process, web_server.waits(process) as event:
        tab, runs = person.opens("#/approvals"), person.opens()
        tab.clock.install()
        tab.reload()
        expect(tab.get_by_role("button", name="Approve")).to_be_visible()
        process.kill()
        process.wait()
        tab.clock.fast_forward(15_000)
        expect(tab.get_by_role("article")).to_contain_text("Nobody can answer")
        expect(tab.get_by_role("button", name="Approve")).to_have_count(0)
        runs.reload()
        expect(runs.locator(".run").filter(has_text=event["run_id"][:12]).locator(".pill")).to_have_text("lost")
        site.ask("POST", f"/api/runs/{event['run_id']}/cancel", body={})
        expect(tab.get_by_text("Nothing waits for a person.")).to_be_visible()


def test_a_call_whose_owner_is_back_can_be_answered_again(person: Person, site: Site) -> None:
    """The owner of its run was suspended for longer than its lease, and nobody else had the run meanwhile."""

    def lost(route: Any) -> None:
        found = route.fetch().json()
        route.fulfill(json={**found, "approvals": [{**each, "lost": True} for each in found["approvals"]]})

    with waiting(site) as run_id:
        tab = person.opens("#/approvals")
        tab.clock.install()
        tab.reload()
        expect(tab.get_by_role("button", name="Approve")).to_be_visible()
        tab.route("**/api/approvals", lost)
        tab.clock.fast_forward(15_000)
        expect(tab.get_by_role("article")).to_contain_text("Nobody can answer")
        tab.unroute("**/api/approvals")
        tab.clock.fast_forward(15_000)
        tab.get_by_role("button", name="Approve").click()
        assert ends(site, run_id)[-1]["type"] == "run_completed"


def test_a_network_failure_during_loading_signs_nobody_out(person: Person) -> None:
    """The page retries until the server answers. An expired token does sign out."""
    tab = person.opens()
    tab.route("**/api/me", lambda route: route.abort(), times=1)
    tab.reload()
    expect(tab.get_by_text("reconnecting")).to_be_visible()
    expect(tab.get_by_role("heading", name="Runs")).to_be_visible()
    tab.route("**/api/**", lambda route: route.fulfill(status=401, json={"message": "no"}))
    tab.get_by_role("link", name="Approvals").click()
    expect(tab.get_by_text("Your token is no longer valid.")).to_be_visible()
    expect(tab.get_by_role("button", name="Stop…")).to_be_hidden()
    person.wrong.clear()


@pytest.fixture(scope="class")
def run_id(site: Site) -> Iterator[str]:
    """Of a run with a pending call."""
    with waiting(site, prompt="Refactor-" + "oneLongWord" * 30) as run_id:
        yield run_id


class TestWhileACallWaits:
    """What a person sees of a run with a pending call."""

    def test_runs_are_found_by_words_and_by_state(self, person: Person, run_id: str) -> None:
        """`/` and a text; the buttons for the states; a message if nothing matches."""
        tab = person.opens()
        row = tab.locator(".run").filter(has_text=run_id[:12])
        expect(row).to_be_visible()
        tab.keyboard.press("/")
        tab.keyboard.type("nothing like it")
        expect(tab.get_by_text("No runs match.")).to_be_visible()
        tab.get_by_label("Search runs").fill(run_id)
        expect(tab.locator(".run")).to_have_count(1)
        tab.get_by_text("Completed", exact=True).click()
        expect(tab.get_by_text("No runs match.")).to_be_visible()
        tab.get_by_text("Waiting", exact=True).click()
        expect(tab.locator(".run .pill")).to_have_text("waiting")
        tab.get_by_text("Running", exact=True).click()
        expect(row).to_be_visible()

    def test_its_timeline_is_filtered_and_its_policies_are_drawn(self, person: Person, run_id: str) -> None:
        """By kinds and words. The graph is a diagram with a description, and the policy's text below."""
        tab = person.opens(f"#/run/{run_id}")
        expect(tab.get_by_text("I write it down.")).to_be_visible()
        tab.get_by_text("Calls", exact=True).click()
        expect(tab.get_by_text("I write it down.")).to_be_hidden()
        expect(tab.locator(".call")).to_have_count(1)
        tab.get_by_text("Everything", exact=True).click()
        tab.get_by_label("Search the timeline").fill("write it down")
        expect(tab.get_by_text("I write it down.")).to_be_visible()
        expect(tab.locator(".call").first).to_be_hidden()
        tab.get_by_role("tab", name="Policies in force").click()
        picture = tab.get_by_role("group", name="Graph of the policies").locator("img")
        expect(picture).to_be_visible()
        assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 100
        expect(tab.get_by_text("require human-approval before write").first).to_be_visible()

    def test_another_role_cannot_act(self, person: Person, run_id: str) -> None:
        """There is no button, and the button's request is rejected."""
        tab = person.opens(f"#/run/{run_id}", EVE)
        expect(tab.get_by_text("Your token does not allow answers.")).to_be_visible()
        assert tab.get_by_role("button", name=re.compile("Approve|Deny|End")).count() == 0
        assert status_of(tab, f"/api/runs/{run_id}/cancel", EVE) == 403
        assert status_of(tab, f"/api/runs/{run_id}/cancel", "wrong-token-1234567890") == 401
        person.wrong.clear()

    @pytest.mark.parametrize("width", [1280, 390])
    def test_every_view_is_accessible(self, browser: Any, site: Site, run_id: str, width: int) -> None:
        """By axe's rules (names, roles) and its contrast checks, in light and dark, with each dialog. Nothing is
        wider than the window, even on a phone.
        """
        axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install '.[browser]'").Axe()
        context = browser.new_context(viewport={"width": width, "height": 844}, reduced_motion="reduce")
        tab = context.new_page()

        def assert_accessible() -> None:
            for scheme, only in (("light", {}), ("dark", {"runOnly": ["color-contrast"]})):
                tab.emulate_media(color_scheme=scheme)
                found = axe.run(tab, options={"resultTypes": ["violations"], **only}).response["violations"]
                assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []

        tab.goto(f"{site.url}/#token={ANA}")
        for path, there in (("#/", ".run"), ("#/approvals", ".approval"), (f"#/run/{run_id}", ".call")):
            tab.evaluate("path => { location.hash = path }", path)
            tab.locator(there).first.wait_for()
            assert_accessible()
            assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
            wider = tab.evaluate(
                """() => [...document.querySelectorAll(".card")]
                    .filter((card) => card.scrollWidth > card.clientWidth).map((card) => card.className)"""
            )
            assert wider == []
        for key, there in (("?", "dialog"), ("s", "#stop-typed"), ("x", "#reason")):
            tab.keyboard.press(key)
            if key == "x":
                tab.keyboard.press("Enter")
            tab.locator(there).wait_for()
            assert_accessible()
            assert tab.locator("dialog").evaluate("dialog => dialog.scrollWidth <= dialog.clientWidth")
            tab.keyboard.press("Escape")
            tab.locator("dialog").wait_for(state="detached")
        context.close()


def test_the_effect_of_a_call_is_shown_as_text(person: Person, site: Site) -> None:
    """A script in its arguments, and text that hides or reorders, is escaped in the inbox and in the timeline.
    However long it and the prompt are, the buttons stay visible. A command line is split into commands, with the
    unresolvable parts.
    """
    shown = "<script>document.title='taken'</script>\\u{202e}\\x07\\u{3164}\\u{34f}\\u{fe0f}⚠️<b>bold</b>"
    write = {"call": "write", "input": {"path": "deep/" * 99 + "a.txt", "content": HOSTILE}}
    bash = {"call": "bash", "input": {"command": "cd src && rm -rf build; eval $LINE"}}
    script = json.dumps({"tools": ["write", "bash"], "steps": [{"say": HOSTILE}, write, bash]})
    policy = POLICY.replace("before write]", "before write, require human-approval before bash]")
    policy = policy.replace(
        "timeout_s: 120", "timeout_s: 120, scope: session"
    )  # the button for similar calls is as long
    with going(site, script, policy, prompt="word " * 2000) as process, web_server.waits(process) as event:
        tab = person.opens("#/approvals")
        card = tab.get_by_role("article")
        expect(card).to_contain_text(shown)
        assert tab.evaluate("() => document.documentElement.scrollWidth <= innerWidth")  # every button is visible
        card.get_by_role("link").click()
        expect(tab.locator(".line")).to_contain_text(shown)
        assert tab.get_by_role("heading", level=1).bounding_box()["height"] < 100
        assert len(tab.title()) < 400
        assert tab.get_by_label("Note").bounding_box()["width"] > 200
        assert tab.locator("main img, main script, main b:has-text('bold')").count() == 0
        assert "taken" not in tab.title()
        tab.get_by_role("button", name="Deny").click()
        tab.evaluate("() => { location.hash = '#/approvals' }")
        card = tab.get_by_role("article").filter(has_text="rm -rf build")
        expect(card.get_by_role("list", name="What it runs").get_by_role("listitem").nth(1)).to_have_text(
            "rm-rfbuild"
        )
        expect(card).to_contain_text("proctor can't see everything this line runs")
        card.get_by_role("button", name="Deny").click()
        ends(site, event["run_id"])


def test_a_large_number_is_shown_exactly_and_a_long_text_leaves_the_buttons_visible(browser: Any, site: Site) -> None:
    """On a phone. The number is beyond the browser's precision, and shown alone and in the whole input. A long text
    has its length, and scrolls separately.
    """
    order = 9007199254740993
    refund = {"order": order, "lines": [{"id": -order}, 1.5, 2], "memo": "all of it\n" * 1_000}
    script = json.dumps({"tools": ["refund"], "steps": [{"call": "refund", "input": refund}]})
    context = browser.new_context(viewport={"width": 390, "height": 844})
    policy = POLICY.replace("write", "refund").replace("max_tool_calls: 10", f"max_tool_calls: {2**63 - 1}")
    with going(site, script, policy) as process, web_server.waits(process) as event:
        tab = context.new_page()
        tab.goto(f"{site.url}/#token={ANA}")
        tab.evaluate("() => { location.hash = '#/approvals' }")
        card = tab.get_by_role("article")
        expect(card.locator(".arguments dd").nth(0)).to_have_text(str(order))
        expect(card.locator(".arguments dd").nth(1)).to_have_text(json.dumps(refund["lines"], indent=2))
        expect(card).to_contain_text("10,000 characters")
        expect(card.locator("details .block")).to_have_text(json.dumps(refund, indent=2))
        assert card.bounding_box()["height"] < 3 * 844
        tab.evaluate("id => { location.hash = `#/run/${id}` }", event["run_id"])
        expect(tab.locator(".call .args")).to_contain_text(f"order: {order}")
        assert len(tab.locator(".call .args").inner_text()) < 1100
        expect(tab.get_by_role("meter", name="tool calls")).to_be_visible()
        expect(tab.locator(".arguments dd").nth(0)).to_have_text(str(order))
        tab.get_by_role("button", name="Deny").click()
        ends(site, event["run_id"])
    context.close()


def test_no_text_becomes_markup_whatever_the_page_does(person: Person) -> None:
    """The browser itself rejects markup in texts, inline code and foreign code."""
    tab = person.opens()
    refusals = tab.evaluate(
        """() => {
            const found = [];
            const tried = (what) => {
                try { what(); found.push("went through"); } catch (error) { found.push(error.name); }
            };
            tried(() => { document.body.innerHTML = "<p>x</p>"; });
            tried(() => { document.body.setAttribute("onclick", "document.title = 'taken'"); });
            tried(() => { document.createElement("script").text = "document.title = 'taken'"; });
            return found;
        }"""
    )
    person.wrong.clear()

    assert refusals == ["TypeError"] * 3
    assert "taken" not in tab.title()


def test_a_link_to_something_that_is_not_stored_is_answered_once(person: Person) -> None:
    """The run or the request was pruned, or belongs to another store."""
    tab = person.opens("#/run/run_gone")
    expect(tab.get_by_role("heading", level=1)).to_have_text("This run isn't in the store.")
    expect(tab.get_by_role("tab")).to_have_count(0)
    tab.evaluate("() => { location.hash = '#/approvals/run_gone.1' }")
    expect(tab.get_by_text("This request isn't in the store.")).to_be_visible()
    expect(tab.get_by_text("there is no run")).to_have_count(0)
    person.wrong.clear()  # the browser reports each 404


def test_without_the_token_nothing_is_visible(browser: Any, site: Site) -> None:
    """The page asks for it. A wrong one, or a truncated link, is rejected, and a valid one is accepted."""
    context = browser.new_context()
    tab = context.new_page()
    tab.goto(f"{site.url}/#token=%E")
    expect(tab.get_by_text("This token isn't valid.")).to_be_visible()
    tab.goto(f"{site.url}/?")
    tab.get_by_label("Token", exact=True).fill("wrong-token-1234567890")
    tab.keyboard.press("Enter")
    expect(tab.get_by_text("This token isn't valid.")).to_be_visible()
    tab.get_by_label("Token", exact=True).fill(EVE)
    tab.get_by_role("button", name="Sign in").click()
    expect(tab.get_by_role("heading", name="Runs")).to_be_visible()
    context.close()


def test_another_origin_can_neither_see_nor_act(browser: Any, site: Site) -> None:
    """A page on another port of this machine that even has the token; nor can it embed the page in a frame."""
    context = browser.new_context()
    other = loopback.Server(lambda exchange: exchange.give(b"<!doctype html><title>other</title>", kind="text/html"))
    try:
        tab = context.new_page()
        tab.goto(other.url)
        for path, method in (("/api/me", "GET"), ("/api/runs/run_x/cancel", "POST")):
            assert status_of(tab, f"{site.url}{path}", ANA, method=method) == "TypeError"
        framed = tab.evaluate(
            """url => new Promise((done) => {
                const frame = document.createElement("iframe");
                frame.onload = () => done(frame.contentDocument === null);
                frame.src = url;
                document.body.append(frame);
            })""",
            site.url,
        )
        assert framed
        assert tab.frames[-1].url.startswith("chrome-error:")
    finally:
        context.close()
        other.close()


def status_of(tab: Any, url: str, token: str, *, method: str = "POST") -> Any:
    """The status that a page gets for a request, or the name of its error."""
    return tab.evaluate(
        """async ([url, token, method]) => {
            const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
            const body = method === "POST" ? "{}" : undefined;
            try { return (await fetch(url, { method, headers, body })).status; } catch (error) { return error.name; }
        }""",
        [url, token, method],
    )
